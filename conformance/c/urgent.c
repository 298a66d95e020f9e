/* Urgent data of TCP and of unix sockets: MSG_OOB, SO_OOBINLINE, SIOCATMARK, SIGURG (tcp(7), socket(7), sockatmark(3)). */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>

static char buffer[100];
static volatile sig_atomic_t urgent;

static void on_urgent(int signo)
{
	(void)signo;
	urgent++;
}

/* A connection over loopback: [0] sends, [1] receives. */
static void connection(int pair[2])
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
	REQUIRE(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect(pair[0], (struct sockaddr *)&address, sizeof address) == 0);
	pair[1] = accept(listener, NULL, NULL);
	REQUIRE(pair[1] >= 0 && setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	close(listener);
}

static void done(int pair[2])
{
	close(pair[0]), close(pair[1]);
}

static short ready(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLPRI, 0 };
	poll(&p, 1, 0);
	return p.revents;
}

/* Waits until urgent data is there. */
static int has_urgent(int fd)
{
	struct pollfd p = { fd, POLLPRI, 0 };
	return poll(&p, 1, 5000) == 1 && p.revents & POLLPRI;
}

static int got(int fd, size_t room, int flags, const char *want)
{
	ssize_t n = recv(fd, buffer, room, flags);
	return n == (ssize_t)strlen(want) && memcmp(buffer, want, n) == 0;
}

static int inquiry(int fd)
{
	int n = -1;
	return ioctl(fd, FIONREAD, &n) == 0 ? n : -1;
}

static void apart(void)
{
	int pair[2];
	connection(pair);
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	/* The queue of errors is looked at before urgent data. */
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB | MSG_ERRQUEUE), EAGAIN);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_ERRQUEUE), EAGAIN);
	CHECK_EQ(send(pair[0], "ab", 2, 0), 2);
	CHECK_EQ(send(pair[0], "cU", 2, MSG_OOB), 2);
	CHECK_EQ(send(pair[0], "de", 2, 0), 2);
	REQUIRE(has_urgent(pair[1]));
	fd_set exceptional;
	FD_ZERO(&exceptional);
	FD_SET(pair[1], &exceptional);
	CHECK(select(pair[1] + 1, NULL, NULL, &exceptional, NULL) == 1 && FD_ISSET(pair[1], &exceptional));
	/* The stream is read up to the mark. */
	CHECK_EQ(inquiry(pair[1]), 3);
	CHECK(got(pair[1], sizeof buffer, MSG_PEEK, "abc"));
	CHECK(got(pair[1], 2, 0, "ab"));
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK(got(pair[1], sizeof buffer, 0, "c"));
	CHECK_EQ(sockatmark(pair[1]), 1);
	/* The urgent byte is read apart from it, once, and is seen by a peek. */
	CHECK(got(pair[1], sizeof buffer, MSG_OOB | MSG_PEEK, "U"));
	CHECK(ready(pair[1]) & POLLPRI);
	struct iovec part = { buffer, 10 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	CHECK(recvmsg(pair[1], &message, MSG_OOB) == 1 && buffer[0] == 'U' && message.msg_flags == MSG_OOB);
	CHECK(!(ready(pair[1]) & POLLPRI));
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	CHECK(got(pair[1], sizeof buffer, MSG_PEEK, "de"));
	CHECK(got(pair[1], sizeof buffer, 0, "de"));
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
	/* Never read, it is skipped. */
	send(pair[0], "xU", 2, MSG_OOB);
	send(pair[0], "y", 1, 0);
	REQUIRE(has_urgent(pair[1]));
	CHECK(got(pair[1], 10, 0, "x"));
	CHECK(got(pair[1], 10, 0, "y"));
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	done(pair);
}

static void alone(void)
{
	int pair[2];
	connection(pair);
	CHECK_EQ(send(pair[0], "U", 1, MSG_OOB), 1);
	REQUIRE(has_urgent(pair[1]));
	/* There is nothing else to read. */
	CHECK_EQ(ready(pair[1]), POLLPRI);
	CHECK_EQ(inquiry(pair[1]), 0);
	CHECK_EQ(sockatmark(pair[1]), 1);
	CHECK_EQ(recv(pair[1], buffer, 0, MSG_OOB | MSG_PEEK), 0);
	CHECK_ERRNO(recv(pair[1], buffer, 10, MSG_DONTWAIT | MSG_PEEK), EAGAIN);
	CHECK_EQ(recv(pair[1], buffer, 10, MSG_OOB | MSG_TRUNC), 1);
	/* A reader of the stream passes the mark, although it finds nothing behind it. */
	send(pair[0], "U", 1, MSG_OOB);
	REQUIRE(has_urgent(pair[1]));
	CHECK_ERRNO(recv(pair[1], buffer, 10, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_ERRNO(recv(pair[1], buffer, 10, MSG_OOB), EINVAL);
	/* A second one before the first was read makes that one part of the stream. */
	send(pair[0], "V", 1, MSG_OOB);
	REQUIRE(has_urgent(pair[1]));
	CHECK(got(pair[1], 10, MSG_OOB, "V"));
	CHECK_EQ(send(pair[0], "W", 1, MSG_OOB), 1);
	REQUIRE(has_urgent(pair[1]));
	CHECK_EQ(send(pair[0], "end", 3, 0), 3);
	CHECK_EQ(shutdown(pair[0], SHUT_WR), 0);
	CHECK(got(pair[1], 10, MSG_OOB, "W"));
	CHECK_EQ(recv(pair[1], buffer, 3, MSG_WAITALL), 3);
	CHECK(!memcmp(buffer, "end", 3));
	CHECK_EQ(recv(pair[1], buffer, 10, 0), 0);
	done(pair);
}

/* "SO_OOBINLINE: If this option is enabled, out-of-band data is directly placed into the receive data stream." */
static void in_line(void)
{
	int pair[2], on = 1;
	connection(pair);
	REQUIRE(setsockopt(pair[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
	send(pair[0], "abU", 3, MSG_OOB);
	send(pair[0], "c", 1, 0);
	REQUIRE(has_urgent(pair[1]));
	while (inquiry(pair[1]) < 4) {
	}
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	CHECK(got(pair[1], 10, 0, "ab"));
	CHECK_EQ(sockatmark(pair[1]), 1);
	CHECK_EQ(ready(pair[1]), POLLIN | POLLPRI);
	CHECK(got(pair[1], 10, 0, "Uc"));
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_EQ(ready(pair[1]), 0);
	done(pair);
}

/* fcntl(2): "F_SETOWN [...] SIGURG signals will be sent to the process or process group" without O_ASYNC. */
static void signals(void)
{
	int pair[2];
	connection(pair);
	struct sigaction act = { .sa_handler = on_urgent }, old;
	sigaction(SIGURG, &act, &old);
	urgent = 0;
	send(pair[0], "1", 1, MSG_OOB);
	REQUIRE(has_urgent(pair[1]));
	CHECK_EQ(urgent, 0);
	CHECK_EQ(fcntl(pair[1], F_SETOWN, getpid()), 0);
	CHECK(got(pair[1], 10, MSG_OOB, "1"));
	send(pair[0], "2", 1, MSG_OOB);
	REQUIRE(has_urgent(pair[1]));
	CHECK_EQ(urgent, 1);
	sigaction(SIGURG, &old, NULL);
	done(pair);
}

static void elsewhere(void)
{
	int pair[2], udp = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK_ERRNO(sendto(udp, "x", 1, MSG_OOB, (struct sockaddr *)&address, sizeof address), EOPNOTSUPP);
	CHECK_ERRNO(send(stream, "x", 1, MSG_OOB | MSG_NOSIGNAL), EPIPE);
	CHECK_ERRNO(recv(stream, buffer, 1, MSG_OOB), EINVAL);
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	CHECK_ERRNO(send(pair[0], "x", 1, MSG_OOB), EOPNOTSUPP);
	close(udp), close(stream), close(pair[0]), close(pair[1]);
}

/* Unix streams have it as well (CONFIG_AF_UNIX_OOB). */
static void unix_pair(int pair[2])
{
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

static void unix_apart(void)
{
	int pair[2];
	unix_pair(pair);
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	CHECK_ERRNO(send(pair[0], "", 0, MSG_OOB), EOPNOTSUPP);
	CHECK_EQ(send(pair[0], "ab", 2, 0), 2);
	CHECK_EQ(ready(pair[1]), POLLIN);
	CHECK_EQ(send(pair[0], "cU", 2, MSG_OOB), 2);
	CHECK_EQ(send(pair[0], "de", 2, 0), 2);
	CHECK_EQ(ready(pair[1]), POLLIN | POLLPRI);
	/* All bytes count, and the stream is read up to the mark. */
	CHECK_EQ(inquiry(pair[1]), 6);
	CHECK(got(pair[1], sizeof buffer, MSG_PEEK, "abc"));
	CHECK(got(pair[1], 2, 0, "ab"));
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK(got(pair[1], sizeof buffer, 0, "c"));
	CHECK_EQ(sockatmark(pair[1]), 1);
	/* A peek looks past the mark. */
	CHECK(got(pair[1], sizeof buffer, MSG_PEEK, "de"));
	CHECK(got(pair[1], sizeof buffer, MSG_OOB | MSG_PEEK, "U"));
	CHECK(ready(pair[1]) & POLLPRI);
	struct iovec part = { buffer, 10 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	CHECK(recvmsg(pair[1], &message, MSG_OOB) == 1 && buffer[0] == 'U' && message.msg_flags == MSG_OOB);
	CHECK_EQ(ready(pair[1]), POLLIN);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	CHECK_EQ(inquiry(pair[1]), 2);
	/* Linux 6.1 finds nothing once where the byte was; later ones find what is behind it. */
	ssize_t n = recv(pair[1], buffer, sizeof buffer, MSG_DONTWAIT);
	if (n == -1 && errno == EAGAIN)
		n = recv(pair[1], buffer, sizeof buffer, MSG_DONTWAIT);
	CHECK(n == 2 && !memcmp(buffer, "de", 2));
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_EQ(ready(pair[1]), 0);
	/* Who may wait gets that at once. */
	send(pair[0], "U", 1, MSG_OOB);
	CHECK(got(pair[1], 1, MSG_OOB, "U"));
	send(pair[0], "fg", 2, 0);
	CHECK(got(pair[1], sizeof buffer, 0, "fg"));
	/* Never read, it is skipped, and with it the notice. */
	send(pair[0], "xU", 2, MSG_OOB);
	send(pair[0], "y", 1, 0);
	CHECK(got(pair[1], 10, 0, "x"));
	CHECK(got(pair[1], 10, 0, "y"));
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	send(pair[0], "U", 1, MSG_OOB);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(ready(pair[1]), 0);
	/* A second one makes the first a part of the stream. */
	send(pair[0], "aV", 2, MSG_OOB);
	send(pair[0], "bW", 2, MSG_OOB);
	CHECK(got(pair[1], sizeof buffer, 0, "aVb"));
	CHECK(got(pair[1], sizeof buffer, MSG_OOB, "W"));
	done(pair);
}

static void unix_ends(void)
{
	int pair[2], on = 1;
	/* In line it is a mark only, at which a reader stops once. */
	unix_pair(pair);
	REQUIRE(setsockopt(pair[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
	send(pair[0], "abU", 3, MSG_OOB);
	send(pair[0], "c", 1, 0);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	CHECK(got(pair[1], 10, 0, "ab"));
	CHECK_EQ(sockatmark(pair[1]), 1);
	CHECK_EQ(ready(pair[1]), POLLIN | POLLPRI);
	CHECK(got(pair[1], 10, 0, "Uc"));
	CHECK_EQ(sockatmark(pair[1]), 0);
	CHECK_EQ(ready(pair[1]), 0);
	/* Room for nothing is room enough; where the byte cannot be stored it is lost. */
	REQUIRE(setsockopt(pair[1], SOL_SOCKET, SO_OOBINLINE, &(int){ 0 }, sizeof on) == 0);
	send(pair[0], "U", 1, MSG_OOB);
	CHECK_EQ(recv(pair[1], buffer, 0, MSG_OOB | MSG_PEEK), 1);
	CHECK_ERRNO(recv(pair[1], BAD, 1, MSG_OOB), EFAULT);
	CHECK_ERRNO(recv(pair[1], buffer, 1, MSG_OOB), EINVAL);
	/* A byte that was read does not count as unread at the end. */
	close(pair[1]);
	CHECK_EQ(recv(pair[0], buffer, 1, 0), 0);
	CHECK_ERRNO(send(pair[0], "x", 1, MSG_OOB | MSG_NOSIGNAL), EPIPE);
	close(pair[0]);
	unix_pair(pair);
	send(pair[0], "U", 1, MSG_OOB);
	close(pair[1]);
	CHECK_ERRNO(recv(pair[0], buffer, 1, 0), ECONNRESET);
	close(pair[0]);
	/* The end of the stream behind it. */
	unix_pair(pair);
	send(pair[0], "aU", 2, MSG_OOB);
	close(pair[0]);
	CHECK(got(pair[1], 10, 0, "a"));
	CHECK(got(pair[1], 10, MSG_OOB, "U"));
	CHECK_EQ(recv(pair[1], buffer, 10, 0), 0);
	close(pair[1]);
}

static void unix_signals(void)
{
	int pair[2], plain = socket(AF_UNIX, SOCK_STREAM, 0), packets[2];
	unix_pair(pair);
	struct sigaction act = { .sa_handler = on_urgent }, old;
	sigaction(SIGURG, &act, &old);
	urgent = 0;
	send(pair[0], "1", 1, MSG_OOB);
	CHECK_EQ(urgent, 0);
	CHECK_EQ(fcntl(pair[1], F_SETOWN, getpid()), 0);
	send(pair[0], "2", 1, MSG_OOB);
	CHECK_EQ(urgent, 1);
	send(pair[0], "3", 1, 0);
	CHECK_EQ(urgent, 1);
	sigaction(SIGURG, &old, NULL);
	CHECK_ERRNO(send(plain, "x", 1, MSG_OOB | MSG_NOSIGNAL), ENOTCONN);
	CHECK_ERRNO(recv(plain, buffer, 1, MSG_OOB), EINVAL);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);
	CHECK_ERRNO(send(packets[0], "x", 1, MSG_OOB), EOPNOTSUPP);
	CHECK_ERRNO(recv(packets[1], buffer, 1, MSG_OOB), EOPNOTSUPP);
	done(packets);
	packets[0] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK_ERRNO(send(packets[0], "x", 1, MSG_OOB), ENOTCONN);
	CHECK_ERRNO(recv(packets[0], buffer, 1, MSG_OOB), ENOTCONN);
	done(pair), close(plain), close(packets[0]);
}

int main(void)
{
	unix_apart();
	unix_ends();
	unix_signals();
	apart();
	alone();
	in_line();
	signals();
	elsewhere();
	return tap_done();
}
