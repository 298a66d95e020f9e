/* TCP over loopback: socket(7), ip(7), tcp(7), connect(2), accept(2), send(2), recv(2), shutdown(2). */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

static socklen_t length;

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static int connect_to(int fd, int port)
{
	struct sockaddr_in address = loopback(port);
	return connect(fd, (struct sockaddr *)&address, sizeof address);
}

static int bind_to(int fd, int port)
{
	struct sockaddr_in address = loopback(port);
	return bind(fd, (struct sockaddr *)&address, sizeof address);
}

static int port_of(int fd)
{
	struct sockaddr_in address;
	length = sizeof address;
	REQUIRE(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
	return ntohs(address.sin_port);
}

static int option(int fd, int level, int name)
{
	int value = -1;
	length = sizeof value;
	REQUIRE(getsockopt(fd, level, name, &value, &length) == 0);
	return value;
}

static int listener(int *port)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(fd >= 0 && bind_to(fd, 0) == 0 && listen(fd, 16) == 0);
	*port = port_of(fd);
	return fd;
}

/* A connected pair. */
static void pair(int *a, int *b)
{
	int port, l = listener(&port);
	*a = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect_to(*a, port) == 0);
	*b = accept(l, NULL, NULL);
	REQUIRE(*b >= 0);
	close(l);
}

static void wait_for(int fd, int events)
{
	struct pollfd p = { fd, events, 0 };
	REQUIRE(poll(&p, 1, -1) == 1);
}

static void setting_up(void)
{
	int port, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK(fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
	CHECK_ERRNO(socket(AF_INET, 99, 0), EINVAL);
	CHECK_ERRNO(socket(99, SOCK_STREAM, 0), EAFNOSUPPORT);
	CHECK_ERRNO(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	char c;
	CHECK_ERRNO(recv(fd, &c, 1, 0), ENOTCONN);
	CHECK_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_ERRNO(shutdown(fd, SHUT_WR), ENOTCONN);
	CHECK_ERRNO(accept(fd, NULL, NULL), EINVAL);
	struct sockaddr_in address;
	length = sizeof address;
	CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&address, &length), ENOTCONN);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	CHECK(address.sin_family == AF_INET && address.sin_port == 0 && address.sin_addr.s_addr == 0 &&
	      length == sizeof address);
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLOUT | POLLHUP));
	CHECK_EQ(bind_to(fd, 0), 0);
	CHECK_ERRNO(bind_to(fd, 0), EINVAL);
	port = port_of(fd);
	CHECK(port >= 1024);
	int other = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(bind_to(other, port), EADDRINUSE);
	address = loopback(0);
	address.sin_addr.s_addr = inet_addr("192.0.2.1");
	CHECK_ERRNO(bind(other, (struct sockaddr *)&address, sizeof address), EADDRNOTAVAIL);
	CHECK_ERRNO(bind(other, (struct sockaddr *)&address, 3), EINVAL);
	address.sin_family = AF_UNIX;
	CHECK_ERRNO(bind(other, (struct sockaddr *)&address, sizeof address), EAFNOSUPPORT);
	CHECK_EQ(listen(fd, 5), 0);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
	CHECK_ERRNO(accept(fd, NULL, NULL), EAGAIN);
	CHECK_ERRNO(connect_to(fd, port), EISCONN);
	CHECK_ERRNO(accept4(fd, NULL, NULL, 77), EINVAL);
	close(other);
	int file = open("/dev/null", O_RDWR);
	CHECK_ERRNO(listen(file, 1), ENOTSOCK);
	CHECK_ERRNO(send(file, "x", 1, 0), ENOTSOCK);
	CHECK_ERRNO(connect(-1, (struct sockaddr *)&address, sizeof address), EBADF);
	close(file);
	close(fd);
	/* Refused. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(connect_to(fd, port), ECONNREFUSED);
	CHECK_ERRNO(connect_to(fd, port), ECONNREFUSED);
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_ERRNO(connect_to(fd, port), EINPROGRESS);
	wait_for(fd, POLLOUT);
	p.fd = fd;
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLERR | POLLHUP));
	CHECK_EQ(option(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_ERROR), 0);
	close(fd);
}

/* The address of a port of loopback that nobody has. */
static struct sockaddr_in free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	REQUIRE(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
	close(fd);
	return address;
}

/* A connection that was refused gives back a port that nobody chose, and the socket may be bound then; a chosen one it keeps. */
static void refused_then_bound(void)
{
	for (int chosen = 0; chosen < 2; chosen++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		struct sockaddr_in own = free_port(), other = free_port();
		if (own.sin_port == other.sin_port)
			other.sin_port = htons(ntohs(own.sin_port) ^ 1);
		if (!chosen)
			own.sin_port = 0;
		CHECK_OK(bind(fd, (struct sockaddr *)&own, sizeof own));
		CHECK_ERRNO(connect(fd, (struct sockaddr *)&other, sizeof other), EINPROGRESS);
		wait_for(fd, POLLOUT);
		own.sin_port = 0;
		int error = bind(fd, (struct sockaddr *)&own, sizeof own) == 0 ? 0 : errno;
		CHECK_EQ(error, chosen ? EINVAL : 0);
		CHECK_EQ(option(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
		/* It keeps what it is bound to, whatever is asked of it, also when it is connected again. */
		int on = 1, port = port_of(fd);
		CHECK_OK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
		CHECK_ERRNO(bind(fd, (struct sockaddr *)&own, sizeof own), EINVAL);
		CHECK_ERRNO(connect(fd, (struct sockaddr *)&other, sizeof other), ECONNABORTED);
		CHECK_ERRNO(bind(fd, (struct sockaddr *)&own, sizeof own), EINVAL);
		CHECK_ERRNO(connect(fd, (struct sockaddr *)&other, sizeof other), EINPROGRESS);
		CHECK_EQ(port_of(fd), port);
		close(fd);
	}
}

static void connecting(void)
{
	int port, l = listener(&port), a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in address;
	int error = connect_to(a, port) == 0 ? 0 : errno;
	CHECK(error == 0 || error == EINPROGRESS);
	wait_for(a, POLLOUT);
	CHECK_EQ(option(a, SOL_SOCKET, SO_ERROR), 0);
	/* The first call after the connection stands says so once more. */
	CHECK(connect_to(a, port) == 0 || errno == EISCONN);
	CHECK_ERRNO(connect_to(a, port), EISCONN);
	wait_for(l, POLLIN);
	length = sizeof address;
	int b = accept4(l, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
	CHECK(b >= 0);
	CHECK(length == sizeof address && address.sin_family == AF_INET && ntohs(address.sin_port) == port_of(a) &&
	      ntohl(address.sin_addr.s_addr) == INADDR_LOOPBACK);
	CHECK(fcntl(b, F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(b, F_GETFD) == FD_CLOEXEC);
	CHECK_EQ(port_of(b), port);
	length = sizeof address;
	CHECK(getpeername(a, (struct sockaddr *)&address, &length) == 0 && ntohs(address.sin_port) == port);
	/* A connection is there for its client before anyone accepts it, and data can wait in it. */
	int early = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(connect_to(early, port), 0);
	CHECK_EQ(send(early, "early", 5, 0), 5);
	close(early);
	int late = accept(l, NULL, NULL);
	char buffer[16];
	CHECK_EQ(recv(late, buffer, 16, MSG_WAITALL), 5);
	CHECK_EQ(recv(late, buffer, 16, 0), 0);
	close(late);
	/* A short address buffer gets a part, and the length says how long it is. */
	int third = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect_to(third, port) == 0);
	memset(&address, 0x55, sizeof address);
	length = 4;
	int fourth = accept(l, (struct sockaddr *)&address, &length);
	CHECK(fourth >= 0 && length == sizeof address && address.sin_addr.s_addr == 0x55555555);
	close(third), close(fourth), close(a), close(b), close(l);
	/* Connections that were never accepted are reset when the listener goes. */
	l = listener(&port);
	a = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect_to(a, port) == 0);
	close(l);
	CHECK_ERRNO(recv(a, buffer, 1, 0), ECONNRESET);
	close(a);
}

static void transfer(void)
{
	int a, b, n;
	char buffer[32];
	pair(&a, &b);
	CHECK_EQ(send(a, "hello ", 6, 0), 6);
	CHECK_EQ(write(a, "world", 5), 5);
	CHECK_EQ(recv(b, buffer, 11, MSG_WAITALL), 11);
	CHECK(!memcmp(buffer, "hello world", 11));
	REQUIRE(send(a, "abcdef", 6, 0) == 6);
	wait_for(b, POLLIN);
	CHECK_EQ(recv(b, buffer, 3, MSG_PEEK), 3);
	CHECK_EQ(recv(b, buffer, 3, MSG_PEEK), 3);
	CHECK(!memcmp(buffer, "abc", 3));
	CHECK(ioctl(b, FIONREAD, &n) == 0 && n == 6);
	CHECK_EQ(recv(b, buffer, 32, 0), 6);
	CHECK_ERRNO(recv(b, buffer, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO(recv(b, buffer, 0, MSG_DONTWAIT), EAGAIN);
	struct iovec parts[2] = { { "one", 3 }, { "two", 3 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	CHECK_EQ(sendmsg(a, &message, 0), 6);
	char x[4], y[8];
	struct iovec into[2] = { { x, 4 }, { y, 8 } };
	struct msghdr in = { .msg_iov = into, .msg_iovlen = 2, .msg_flags = 77 };
	CHECK_EQ(recvmsg(b, &in, 0), 6);
	CHECK(!memcmp(x, "onet", 4) && !memcmp(y, "wo", 2) && in.msg_flags == 0 && in.msg_namelen == 0);
	CHECK_EQ(writev(a, parts, 2), 6);
	CHECK_EQ(readv(b, into, 2), 6);
	/* MSG_TRUNC throws away. */
	REQUIRE(send(a, "123456", 6, 0) == 6);
	wait_for(b, POLLIN);
	CHECK_EQ(recv(b, NULL, 4, MSG_TRUNC), 4);
	CHECK(recv(b, buffer, 8, 0) == 2 && !memcmp(buffer, "56", 2));
	/* Urgent data is kept apart. */
	CHECK_ERRNO(recv(b, buffer, 1, MSG_OOB), EINVAL);
	CHECK_ERRNO(send(a, BAD, 4, 0), EFAULT);
	/* sendto's address is ignored, or refused, on a connection; Linux ignores it. */
	struct sockaddr_in address = loopback(1);
	CHECK_EQ(sendto(a, "z", 1, 0, (struct sockaddr *)&address, sizeof address), 1);
	CHECK_EQ(recv(b, buffer, 1, 0), 1);
	/* A receive time-out. */
	struct timeval t = { 0, 20000 };
	CHECK_EQ(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
	CHECK_ERRNO(recv(b, buffer, 1, 0), EAGAIN);
	close(a), close(b);

	/* More than any buffer holds, against a slow reader. */
	pair(&a, &b);
	pid_t pid = fork();
	if (pid == 0) {
		close(a);
		unsigned long at = 0;
		static unsigned char chunk[30000];
		for (ssize_t got; (got = read(b, chunk, sizeof chunk)) > 0;)
			for (ssize_t i = 0; i < got; i++, at++)
				REQUIRE(chunk[i] == (unsigned char)(at * 31 + at / 4096));
		REQUIRE(at == 20 * 524288);
		REQUIRE(write(b, "done", 4) == 4);
		_exit(0);
	}
	close(b);
	static unsigned char big[524288];
	for (unsigned long round = 0, at = 0; round < 20; round++) {
		for (unsigned i = 0; i < sizeof big; i++, at++)
			big[i] = (unsigned char)(at * 31 + at / 4096);
		REQUIRE(send(a, big, sizeof big, 0) == sizeof big);
	}
	CHECK_EQ(shutdown(a, SHUT_WR), 0);
	CHECK_EQ(recv(a, buffer, 4, MSG_WAITALL), 4);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(a);
	/* Without a reader a non-blocking sender is stopped, and can go on when there is room. */
	pair(&a, &b);
	fcntl(a, F_SETFL, O_NONBLOCK);
	long total = 0, sent, error = 0;
	do {
		/* What is on its way to the receiver's buffer makes room for more: only a pause of no progress counts. */
		while ((sent = send(a, big, sizeof big, 0)) > 0)
			total += sent;
		error = errno;
		struct pollfd p = { a, POLLOUT, 0 };
		if (poll(&p, 1, 50) == 0)
			break;
	} while (1);
	CHECK(sent == -1 && error == EAGAIN);
	CHECK(total > 65536);
	shutdown(a, SHUT_WR);
	long received = 0, got;
	while ((got = recv(b, big, sizeof big, 0)) > 0)
		received += got;
	CHECK(got == 0 && received == total);
	close(a), close(b);
}

static void endings(void)
{
	int a, b;
	char c;
	signal(SIGPIPE, SIG_IGN);
	/* Orderly, one direction at a time. */
	pair(&a, &b);
	CHECK_EQ(shutdown(a, SHUT_WR), 0);
	CHECK_EQ(recv(b, &c, 1, 0), 0);
	CHECK_ERRNO(send(a, "x", 1, 0), EPIPE);
	CHECK_EQ(send(b, "y", 1, 0), 1);
	CHECK(recv(a, &c, 1, 0) == 1 && c == 'y');
	struct pollfd p = { b, POLLIN | POLLOUT | POLLRDHUP, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLRDHUP));
	CHECK_EQ(shutdown(b, SHUT_WR), 0);
	CHECK_EQ(recv(a, &c, 1, 0), 0);
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
	CHECK_ERRNO(shutdown(b, 77), EINVAL);
	close(a), close(b);
	/* SHUT_RD: end of file at once. */
	pair(&a, &b);
	CHECK_EQ(shutdown(b, SHUT_RD), 0);
	CHECK_EQ(recv(b, &c, 1, 0), 0);
	close(a), close(b);
	/* Closed with data unread: a reset for the other side. */
	pair(&a, &b);
	REQUIRE(send(a, "x", 1, 0) == 1);
	wait_for(b, POLLIN);
	close(b);
	wait_for(a, POLLIN);
	CHECK_ERRNO(recv(a, &c, 1, 0), ECONNRESET);
	CHECK_EQ(recv(a, &c, 1, 0), 0);
	CHECK_ERRNO(send(a, "x", 1, 0), EPIPE);
	close(a);
	/* SO_LINGER of zero: a reset as well. */
	pair(&a, &b);
	struct linger linger = { 1, 0 };
	CHECK_EQ(setsockopt(b, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	close(b);
	wait_for(a, POLLIN);
	p = (struct pollfd){ a, POLLIN | POLLOUT | POLLRDHUP, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP));
	CHECK_EQ(option(a, SOL_SOCKET, SO_ERROR), ECONNRESET);
	CHECK_EQ(recv(a, &c, 1, 0), 0);
	close(a);
	/* Writing to a closed side: the first gets a reset back, the second fails. */
	pair(&a, &b);
	close(b);
	wait_for(a, POLLIN);
	CHECK_EQ(recv(a, &c, 1, 0), 0);
	CHECK_EQ(send(a, "x", 1, 0), 1);
	wait_for(a, POLLERR);
	CHECK_ERRNO(send(a, "x", 1, 0), EPIPE);
	close(a);
	signal(SIGPIPE, SIG_DFL);
	pair(&a, &b);
	shutdown(a, SHUT_WR);
	CHECK_ERRNO(send(a, "x", 1, MSG_NOSIGNAL), EPIPE);
	pid_t pid = fork();
	if (pid == 0) {
		send(a, "x", 1, 0);
		_exit(0);
	}
	int status;
	waitpid(pid, &status, 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
	close(a), close(b);
	/* A process's end closes its connections. */
	pair(&a, &b);
	pid = fork();
	if (pid == 0) {
		close(b);
		for (;;)
			pause();
	}
	close(a);
	kill(pid, SIGKILL);
	CHECK_EQ(recv(b, &c, 1, 0), 0);
	waitpid(pid, NULL, 0);
	close(b);
}

static void options(void)
{
	int a, b, one = 1, zero = 0;
	pair(&a, &b);
	CHECK_EQ(option(a, IPPROTO_TCP, TCP_NODELAY), 0);
	CHECK_EQ(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
	CHECK_EQ(option(a, IPPROTO_TCP, TCP_NODELAY), 1);
	CHECK_EQ(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one), 0);
	CHECK_EQ(option(a, SOL_SOCKET, SO_KEEPALIVE), 1);
	int seconds = 30;
	CHECK_EQ(setsockopt(a, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds), 0);
	CHECK_EQ(option(a, IPPROTO_TCP, TCP_KEEPIDLE), 30);
	CHECK_EQ(setsockopt(a, IPPROTO_TCP, TCP_USER_TIMEOUT, &seconds, sizeof seconds), 0);
	CHECK_EQ(setsockopt(a, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one), 0);
	int size = 20000;
	CHECK_EQ(setsockopt(a, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
	CHECK_EQ(option(a, SOL_SOCKET, SO_SNDBUF), 40000);
	CHECK_EQ(setsockopt(a, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
	CHECK_EQ(option(a, SOL_SOCKET, SO_RCVBUF), 40000);
	CHECK_ERRNO(setsockopt(a, SOL_SOCKET, 9999, &one, sizeof one), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(a, IPPROTO_TCP, 9999, &one, sizeof one), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &one, 1), EINVAL);
	CHECK_ERRNO(setsockopt(a, SOL_SOCKET, SO_REUSEADDR, BAD, 4), EFAULT);
	struct tcp_info info;
	length = sizeof info;
	CHECK(getsockopt(a, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_ESTABLISHED);
	char options[40];
	length = sizeof options;
	CHECK(getsockopt(a, IPPROTO_IP, IP_OPTIONS, options, &length) == 0 && length == 0);
	close(a), close(b);
	/* A port with old connections: only with SO_REUSEADDR, then and now, at once again. */
	int port, l = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
	REQUIRE(bind_to(l, 0) == 0 && listen(l, 1) == 0);
	port = port_of(l);
	a = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect_to(a, port) == 0);
	b = accept(l, NULL, NULL);
	close(b);
	char c;
	REQUIRE(recv(a, &c, 1, 0) == 0);
	close(a), close(l);
	l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(bind_to(l, port), EADDRINUSE);
	CHECK_EQ(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
	CHECK_EQ(bind_to(l, port), 0);
	close(l);
	/* SO_REUSEPORT lets two listen. */
	l = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	REQUIRE(bind_to(l, 0) == 0 && listen(l, 1) == 0);
	port = port_of(l);
	a = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(a, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	CHECK(bind_to(a, port) == 0 && listen(a, 1) == 0);
	close(a), close(l);
	/* IPv6, and IPv4 through it. */
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT }, from;
	l = socket(AF_INET6, SOCK_STREAM, 0);
	if (l >= 0) {
		setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
		/* Fragments have at least the size that every link takes. */
		int small = 1279, least = 1280;
		CHECK_ERRNO(setsockopt(l, IPPROTO_IPV6, IPV6_MTU, &small, sizeof small), EINVAL);
		CHECK_ERRNO(setsockopt(l, IPPROTO_IPV6, IPV6_MTU, &least, 2), EINVAL);
		CHECK_EQ(setsockopt(l, IPPROTO_IPV6, IPV6_MTU, &least, sizeof least), 0);
		CHECK(bind(l, (struct sockaddr *)&any, sizeof any) == 0 && listen(l, 1) == 0);
		length = sizeof any;
		REQUIRE(getsockname(l, (struct sockaddr *)&any, &length) == 0);
		a = socket(AF_INET, SOCK_STREAM, 0);
		CHECK_EQ(connect_to(a, ntohs(any.sin6_port)), 0);
		length = sizeof from;
		b = accept(l, (struct sockaddr *)&from, &length);
		CHECK(b >= 0 && length == sizeof from && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
		close(a), close(b), close(l);
	} else {
		/* A kernel without IPv6 says so in this way, and the check lines stay the same. */
		CHECK(errno == EAFNOSUPPORT);
		CHECK(1);
		CHECK(1);
		CHECK(1);
		CHECK(1);
		CHECK(1);
	}
}

/* What the kernel knows of the packet that began a connection (IP_PKTOPTIONS), and of neighbours (arp(7)). */
static void packet_and_neighbours(void)
{
	int one = 1, l = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0);
	char buf[256];
	socklen_t length = sizeof buf;
	CHECK_EQ(getsockopt(l, IPPROTO_IP, IP_PKTOPTIONS, buf, &length), 0);
	CHECK_EQ(length, 0);
	setsockopt(l, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
	REQUIRE(bind_to(l, 0) == 0 && listen(l, 1) == 0);
	REQUIRE(connect_to(a, port_of(l)) == 0);
	int b = accept(l, NULL, NULL);
	setsockopt(b, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
	length = sizeof buf;
	CHECK_EQ(getsockopt(b, IPPROTO_IP, IP_PKTOPTIONS, buf, &length), 0);
	CHECK_EQ(length, CMSG_SPACE(sizeof(struct in_pktinfo)));
	struct cmsghdr *header = (struct cmsghdr *)buf;
	struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(header);
	CHECK(header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO);
	CHECK_EQ(info->ipi_ifindex, 1);
	CHECK_EQ(ntohl(info->ipi_addr.s_addr), INADDR_LOOPBACK);
	int u = socket(AF_INET, SOCK_DGRAM, 0), x = socket(AF_UNIX, SOCK_DGRAM, 0);
	length = sizeof buf;
	CHECK_ERRNO(getsockopt(u, IPPROTO_IP, IP_PKTOPTIONS, buf, &length), ENOPROTOOPT);
	/* No table of neighbours has the loopback address. */
	struct arpreq arp = { .arp_pa.sa_family = AF_INET, .arp_dev = "lo" };
	CHECK_ERRNO(ioctl(u, SIOCGARP, &arp), ENXIO);
	strcpy(arp.arp_dev, "none");
	CHECK_ERRNO(ioctl(u, SIOCGARP, &arp), ENODEV);
	arp.arp_dev[0] = 0;
	CHECK_ERRNO(ioctl(a, SIOCGARP, &arp), ENODEV);
	arp.arp_flags = ATF_NETMASK;
	CHECK_ERRNO(ioctl(u, SIOCGARP, &arp), EINVAL);
	arp.arp_pa.sa_family = AF_INET6;
	CHECK_ERRNO(ioctl(u, SIOCGARP, &arp), EPFNOSUPPORT);
	CHECK_ERRNO(ioctl(u, SIOCGARP, BAD), EFAULT);
	CHECK_ERRNO(ioctl(x, SIOCGARP, &arp), ENOTTY);
	/* What is to change is read before anybody asks who may change it. */
	CHECK_ERRNO(ioctl(u, SIOCSIFFLAGS, NULL), EFAULT);
	CHECK_ERRNO(ioctl(u, SIOCSIFMTU, BAD), EFAULT);
	CHECK_ERRNO(ioctl(x, SIOCSIFFLAGS, BAD), EFAULT);
	CHECK_ERRNO(ioctl(u, SIOCADDRT, BAD), EFAULT);
	close(l), close(a), close(b), close(u), close(x);
}

/* Times of arrival (socket(7), SO_TIMESTAMP), as ancillary data of recvmsg(2). */
static char control[256];

static const void *stamp_of(int fd, size_t room, int flags, int type, ssize_t *n)
{
	static char data[64];
	struct iovec part = { data, room };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	*n = recvmsg(fd, &message, flags);
	if (*n < 0)
		return NULL;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == type)
			return CMSG_DATA(c);
	return NULL;
}

/* What a reception says of how much there is left. */
static int left_of(int fd, size_t room, int flags)
{
	char data[16];
	struct iovec part = { data, room };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	if (recvmsg(fd, &message, flags) < 0)
		return -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ)
			return *(int *)CMSG_DATA(c);
	return -2;
}

/* How long ago, in microseconds. */
static long age(const void *stamp)
{
	struct timespec now, then;
	memcpy(&then, stamp, sizeof then);
	clock_gettime(CLOCK_REALTIME, &now);
	return (now.tv_sec - then.tv_sec) * 1000000 + (now.tv_nsec - then.tv_nsec) / 1000;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
}

static int set_socket(int fd, int name, int value)
{
	return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

static void times(void)
{
	int a, b, port, l = listener(&port), c, flags[2] = { 0, 0 };
	ssize_t n;
	const void *stamp;
	struct timespec between;
	pair(&a, &b);
	REQUIRE(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) == 0);
	CHECK_OK(set_socket(b, SO_TIMESTAMPNS, 1));
	CHECK(option(b, SOL_SOCKET, SO_TIMESTAMPNS) == 1 && option(b, SOL_SOCKET, SO_TIMESTAMP) == 0);
	nap();
	REQUIRE(write(a, "one", 3) == 3);
	nap();
	stamp = stamp_of(b, 2, MSG_PEEK, SO_TIMESTAMPNS, &n);
	CHECK(n == 2 && stamp && age(stamp) >= 19000 && age(stamp) < 10000000);
	stamp = stamp_of(b, 2, 0, SO_TIMESTAMPNS, &n);
	CHECK(n == 2 && stamp && age(stamp) >= 19000 && age(stamp) < 10000000);
	stamp = stamp_of(b, 9, 0, SO_TIMESTAMPNS, &n);
	CHECK(n == 1 && stamp && age(stamp) >= 19000);
	/* Of several segments it is the last that counts. */
	REQUIRE(write(a, "two", 3) == 3);
	nap();
	clock_gettime(CLOCK_REALTIME, &between);
	REQUIRE(write(a, "three", 5) == 5);
	nap();
	stamp = stamp_of(b, 9, 0, SO_TIMESTAMPNS, &n);
	CHECK(n == 8 && stamp && age(stamp) >= 19000 && age(stamp) <= age(&between));
	/* Nothing came: none. */
	CHECK(stamp_of(b, 9, MSG_DONTWAIT, SO_TIMESTAMPNS, &n) == NULL && n == -1);
	/* Microseconds, and the types of the new kind. */
	CHECK_OK(set_socket(b, SO_TIMESTAMP, 1));
	REQUIRE(write(a, "x", 1) == 1);
	const struct timeval *tv = stamp_of(b, 9, 0, SO_TIMESTAMP, &n);
	CHECK(n == 1 && tv && tv->tv_sec > 1000000000 && tv->tv_usec < 1000000);
	CHECK_OK(set_socket(b, 64 /* SO_TIMESTAMPNS_NEW */, 1));
	CHECK(option(b, SOL_SOCKET, SO_TIMESTAMPNS) == 0 && option(b, SOL_SOCKET, 64) == 1);
	REQUIRE(write(a, "x", 1) == 1);
	stamp = stamp_of(b, 9, 0, 64, &n);
	CHECK(n == 1 && stamp && age(stamp) < 10000000);
	CHECK_OK(set_socket(b, SO_TIMESTAMP, 0));
	REQUIRE(write(a, "x", 1) == 1);
	CHECK(stamp_of(b, 9, 0, 64, &n) == NULL && n == 1);
	/* SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE: three times, of which software tells one. */
	CHECK_OK(set_socket(b, SO_TIMESTAMPING, 8 | 16));
	length = sizeof flags;
	REQUIRE(getsockopt(b, SOL_SOCKET, SO_TIMESTAMPING, flags, &length) == 0);
	CHECK(length == 8 && flags[0] == (8 | 16));
	nap();
	REQUIRE(write(a, "x", 1) == 1);
	const struct timespec *three = stamp_of(b, 9, 0, SO_TIMESTAMPING, &n);
	CHECK(n == 1 && three && age(three) < 10000000 && three[1].tv_sec == 0 && three[2].tv_sec == 0);
	/* No interface has a clock of its own: times of that (flags 1, 4 and 64) are taken, and none come. */
	CHECK_OK(set_socket(b, SO_TIMESTAMPING, 1 | 4 | 64));
	REQUIRE(write(a, "x", 1) == 1);
	CHECK(stamp_of(b, 9, 0, SO_TIMESTAMPING, &n) == NULL && n == 1);
	/* SOF_TIMESTAMPING_OPT_ID counts from a byte that a stream must have; OPT_STATS wants OPT_TSONLY. */
	CHECK_OK(set_socket(b, SO_TIMESTAMPING, 128));
	CHECK_ERRNO(set_socket(l, SO_TIMESTAMPING, 128), EINVAL);
	CHECK_ERRNO(set_socket(b, SO_TIMESTAMPING, 4096), EINVAL);
	CHECK_ERRNO(set_socket(b, SO_TIMESTAMPING, 1 << 30), EINVAL);
	CHECK_ERRNO(set_socket(b, SO_TIMESTAMPING, 1 << 15), EOPNOTSUPP);
	close(a), close(b);
	/* TCP_INQ: how much is left, and one for the end. */
	pair(&a, &b);
	CHECK_ERRNO(setsockopt(b, IPPROTO_TCP, TCP_INQ, &(int){ 2 }, sizeof(int)), EINVAL);
	CHECK_OK(setsockopt(b, IPPROTO_TCP, TCP_INQ, &(int){ 1 }, sizeof(int)));
	CHECK_EQ(option(b, IPPROTO_TCP, TCP_INQ), 1);
	REQUIRE(write(a, "abcdef", 6) == 6);
	wait_for(b, POLLIN);
	CHECK(left_of(b, 2, MSG_PEEK) == 6 && left_of(b, 2, 0) == 4);
	close(a);
	wait_for(b, POLLRDHUP);
	CHECK(left_of(b, 3, 0) == 2 && left_of(b, 9, 0) == 1 && left_of(b, 9, 0) == 1);
	close(b);
	/* What a listener has, its connections have. The kernel's stamping begins a moment after the first one wants it (net_enable_timestamp). */
	CHECK_OK(set_socket(l, SO_TIMESTAMPNS, 1));
	nap();
	a = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect_to(a, port) == 0);
	REQUIRE(write(a, "x", 1) == 1);
	c = accept(l, NULL, NULL);
	REQUIRE(c >= 0);
	CHECK_EQ(option(c, SOL_SOCKET, SO_TIMESTAMPNS), 1);
	stamp = stamp_of(c, 9, 0, SO_TIMESTAMPNS, &n);
	CHECK(n == 1 && stamp);
	close(a), close(c), close(l);
}

static int open_by_sending(int fd, int port, int flags)
{
	struct sockaddr_in address = loopback(port);
	return sendto(fd, "hi", 2, MSG_FASTOPEN | flags, (struct sockaddr *)&address, sizeof address);
}

/* MSG_FASTOPEN connects and sends, TCP_FASTOPEN_CONNECT lets connect(2) be; no server here gives a cookie, so both wait for the connection. */
static void opened_by_data(void)
{
	int port, l = listener(&port), yes = 1, two = 2, a = socket(AF_INET, SOCK_STREAM, 0);
	char got[8];
	CHECK_EQ(open_by_sending(a, port, 0), 2);
	int b = accept(l, NULL, NULL);
	CHECK(read(b, got, sizeof got) == 2 && memcmp(got, "hi", 2) == 0);
	CHECK_ERRNO(open_by_sending(a, port, 0), EISCONN);
	CHECK_ERRNO(sendto(a, "hi", 2, MSG_FASTOPEN, NULL, 0), EISCONN);
	CHECK_ERRNO(sendto(l, "hi", 2, MSG_FASTOPEN, NULL, 0), EISCONN);
	CHECK(write(b, "yo", 2) == 2 && read(a, got, sizeof got) == 2);
	close(a), close(b);
	a = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(sendto(a, "hi", 2, MSG_FASTOPEN, NULL, 0), EINVAL);
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	CHECK_ERRNO(sendto(a, "hi", 2, MSG_FASTOPEN, &none, sizeof none), EOPNOTSUPP);
	CHECK_ERRNO(setsockopt(a, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &two, sizeof two), EINVAL);
	CHECK(setsockopt(a, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &yes, sizeof yes) == 0 && option(a, IPPROTO_TCP, TCP_FASTOPEN_CONNECT) == 1);
	CHECK(connect_to(a, port) == 0 && write(a, "yo", 2) == 2);
	b = accept(l, NULL, NULL);
	CHECK(read(b, got, sizeof got) == 2 && memcmp(got, "yo", 2) == 0);
	CHECK_ERRNO(setsockopt(a, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &yes, sizeof yes), EINVAL);
	close(a), close(b), close(l);
	a = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(open_by_sending(a, port, 0), ECONNREFUSED);
	close(a);
	/* Who does not wait for the connection has sent nothing. */
	l = listener(&port), a = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(open_by_sending(a, port, MSG_DONTWAIT), EINPROGRESS);
	CHECK_EQ(sendto(a, "hi", 2, MSG_FASTOPEN, NULL, 0), 2);
	close(a), close(l);
}

int main(void)
{
	opened_by_data();
	setting_up();
	packet_and_neighbours();
	refused_then_bound();
	connecting();
	transfer();
	endings();
	options();
	times();
	return tap_done();
}
