/* The error queue of sockets of datagrams: IP_RECVERR and IPV6_RECVERR (ip(7), ipv6(7)), and the times of sending, which come by it
 * (Documentation/networking/timestamping.rst). */
#include "tap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* What recvmsg(2) with MSG_ERRQUEUE says. */
struct told {
	int n, flags, namelen, levels[8], types[8], parts;
	unsigned char data[4096];
	struct sockaddr_in6 name, offender;
	struct sock_extended_err error;
	struct timespec times[3];
	struct timespec stamp;
};

static struct told next(int fd, int room)
{
	struct told told = {0};
	char control[1024];
	struct iovec iov = {told.data, room};
	struct msghdr msg = {&told.name, sizeof told.name, &iov, 1, control, sizeof control, 0};
	told.n = recvmsg(fd, &msg, MSG_ERRQUEUE);
	if (told.n < 0) {
		told.n = -errno;
		return told;
	}
	told.flags = msg.msg_flags;
	told.namelen = msg.msg_namelen;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		told.levels[told.parts] = c->cmsg_level;
		told.types[told.parts++] = c->cmsg_type;
		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR)
		    || (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)) {
			memcpy(&told.error, CMSG_DATA(c), sizeof told.error);
			memcpy(&told.offender, CMSG_DATA(c) + sizeof told.error, c->cmsg_len - CMSG_LEN(0) - sizeof told.error);
		}
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPING)
			memcpy(told.times, CMSG_DATA(c), sizeof told.times);
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS)
			memcpy(&told.stamp, CMSG_DATA(c), sizeof told.stamp);
	}
	return told;
}

static int events(int fd, int asked)
{
	struct pollfd p = {.fd = fd, .events = asked};
	poll(&p, 1, 200);
	return p.revents;
}

static int pending(int fd)
{
	int error = -1;
	socklen_t len = sizeof error;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	return error;
}

static void set(int fd, int level, int name, int value)
{
	REQUIRE(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

static struct sockaddr_in four(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct sockaddr_in6 six(int port)
{
	return (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
}

static struct sockaddr_in6 mapped(int port)
{
	struct sockaddr_in6 a = six(port);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr);
	return a;
}

#define TO(fd, text, len, addr) sendto(fd, text, len, 0, (void *)&(addr), sizeof(addr))

/* Nobody hears these ports. */
enum { CLOSED = 47, ALSO_CLOSED = 48 };

static void who_asks_for_nothing(void)
{
	struct sockaddr_in to = four(CLOSED);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(TO(fd, "abc", 3, to) == 3);
	CHECK(events(fd, POLLIN) == 0);
	CHECK(next(fd, 64).n == -EAGAIN);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0);
	CHECK(send(fd, "abc", 3, 0) == 3);
	CHECK(events(fd, POLLIN) == POLLERR);
	CHECK(next(fd, 64).n == -EAGAIN);
	CHECK(pending(fd) == ECONNREFUSED);
	close(fd);
}

static void reports_of_ipv4(void)
{
	struct sockaddr_in to = four(CLOSED), also = four(ALSO_CLOSED);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	set(fd, SOL_IP, IP_RECVERR, 1);
	CHECK(TO(fd, "abc", 3, to) == 3);
	CHECK(events(fd, POLLIN) == POLLERR);
	/* The error is the socket's own, too, and is told once. */
	CHECK_ERRNO(recv(fd, (char[8]){0}, 8, MSG_DONTWAIT), ECONNREFUSED);
	CHECK_ERRNO(recv(fd, (char[8]){0}, 8, MSG_DONTWAIT), EAGAIN);
	CHECK(events(fd, POLLIN) == POLLERR);
	struct told told = next(fd, 64);
	CHECK(told.n == 3 && memcmp(told.data, "abc", 3) == 0);
	CHECK(told.flags == MSG_ERRQUEUE);
	struct sockaddr_in *name = (void *)&told.name, *offender = (void *)&told.offender;
	CHECK(told.namelen == sizeof *name);
	CHECK(name->sin_family == AF_INET && name->sin_port == htons(CLOSED) && name->sin_addr.s_addr == to.sin_addr.s_addr);
	CHECK(told.parts == 1 && told.levels[0] == SOL_IP && told.types[0] == IP_RECVERR);
	CHECK(told.error.ee_errno == ECONNREFUSED && told.error.ee_origin == SO_EE_ORIGIN_ICMP);
	CHECK(told.error.ee_type == 3 && told.error.ee_code == 3);
	CHECK(told.error.ee_info == 0 && told.error.ee_data == 0);
	CHECK(offender->sin_family == AF_INET && offender->sin_addr.s_addr == to.sin_addr.s_addr && offender->sin_port == 0);
	CHECK(events(fd, POLLIN) == 0);
	CHECK(next(fd, 64).n == -EAGAIN);

	/* An error that waits stops the next datagram, once. */
	CHECK(TO(fd, "first", 5, to) == 5);
	CHECK_ERRNO(TO(fd, "second", 6, also), ECONNREFUSED);
	CHECK(TO(fd, "second", 6, also) == 6);
	CHECK(pending(fd) == ECONNREFUSED);
	CHECK(pending(fd) == 0);
	told = next(fd, 2);
	CHECK(told.n == 2 && memcmp(told.data, "fi", 2) == 0 && told.flags == (MSG_ERRQUEUE | MSG_TRUNC));
	/* That of the next report is the socket's now. */
	CHECK(pending(fd) == ECONNREFUSED);
	told = next(fd, 64);
	CHECK(told.n == 6 && name->sin_port == htons(ALSO_CLOSED));
	CHECK(pending(fd) == 0);
	CHECK(next(fd, 64).n == -EAGAIN);

	/* Who does not want reports any more loses those that wait. */
	CHECK(TO(fd, "x", 1, to) == 1);
	set(fd, SOL_IP, IP_RECVERR, 0);
	CHECK(next(fd, 64).n == -EAGAIN);
	close(fd);
}

static void how_much_is_quoted(void)
{
	char big[3000];
	memset(big, 'q', sizeof big);
	struct sockaddr_in to = four(CLOSED);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	set(fd, SOL_IP, IP_RECVERR, 1);
	REQUIRE(connect(fd, (void *)&to, sizeof to) == 0);
	for (int len = 519; len <= 521; len++) {
		CHECK(send(fd, big, len, 0) == len);
		struct told told = next(fd, 4000);
		CHECK(told.n == (len < 520 ? len : 520));
		pending(fd);
	}
	CHECK(send(fd, big, sizeof big, 0) == sizeof big);
	CHECK(next(fd, 4000).n == 520);
	CHECK(send(fd, "", 0, 0) == 0 || errno == ECONNREFUSED);
	close(fd);
	struct sockaddr_in6 to6 = six(CLOSED);
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	set(fd, SOL_IPV6, IPV6_RECVERR, 1);
	REQUIRE(connect(fd, (void *)&to6, sizeof to6) == 0);
	CHECK(send(fd, big, sizeof big, 0) == sizeof big);
	CHECK(next(fd, 4000).n == 1184);
	close(fd);
}

static void reports_of_ipv6(void)
{
	struct sockaddr_in6 to = six(CLOSED), four = mapped(CLOSED);
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	set(fd, SOL_IPV6, IPV6_RECVERR, 1);
	CHECK(TO(fd, "abcd", 4, to) == 4);
	CHECK(events(fd, POLLIN) == POLLERR);
	struct told told = next(fd, 64);
	CHECK(told.n == 4 && told.flags == MSG_ERRQUEUE && told.namelen == sizeof to);
	CHECK(told.name.sin6_family == AF_INET6 && told.name.sin6_port == htons(CLOSED));
	CHECK(memcmp(&told.name.sin6_addr, &to.sin6_addr, 16) == 0);
	CHECK(told.parts == 1 && told.levels[0] == SOL_IPV6 && told.types[0] == IPV6_RECVERR);
	CHECK(told.error.ee_errno == ECONNREFUSED && told.error.ee_origin == SO_EE_ORIGIN_ICMP6);
	CHECK(told.error.ee_type == 1 && told.error.ee_code == 4);
	CHECK(told.offender.sin6_family == AF_INET6 && memcmp(&told.offender.sin6_addr, &to.sin6_addr, 16) == 0);
	CHECK(pending(fd) == 0);

	/* Reports about IPv4 are asked for by the option of IPv4. */
	CHECK(TO(fd, "abcd", 4, four) == 4);
	CHECK(events(fd, POLLIN) == 0);
	CHECK(next(fd, 64).n == -EAGAIN);
	set(fd, SOL_IPV6, IPV6_RECVERR, 0);
	set(fd, SOL_IP, IP_RECVERR, 1);
	CHECK(TO(fd, "abcd", 4, to) == 4);
	CHECK(next(fd, 64).n == -EAGAIN);
	CHECK(TO(fd, "abcde", 5, four) == 5);
	told = next(fd, 64);
	CHECK(told.n == 5 && told.namelen == sizeof four && told.name.sin6_port == htons(CLOSED));
	CHECK(memcmp(&told.name.sin6_addr, &four.sin6_addr, 16) == 0);
	CHECK(told.parts == 1 && told.levels[0] == SOL_IPV6 && told.types[0] == IPV6_RECVERR);
	CHECK(told.error.ee_origin == SO_EE_ORIGIN_ICMP && told.error.ee_type == 3 && told.error.ee_code == 3);
	CHECK(told.offender.sin6_family == AF_INET6 && memcmp(&told.offender.sin6_addr, &four.sin6_addr, 16) == 0);
	close(fd);
}

static void what_comes_with_reports(void)
{
	struct sockaddr_in to = four(CLOSED);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	set(fd, SOL_IP, IP_RECVERR, 1);
	set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
	set(fd, SOL_IP, IP_RECVTTL, 1);
	set(fd, SOL_IP, IP_PKTINFO, 1);
	CHECK(TO(fd, "abc", 3, to) == 3);
	struct told told = next(fd, 64);
	CHECK(told.n == 3 && told.parts == 4);
	CHECK(told.levels[0] == SOL_SOCKET && told.types[0] == SO_TIMESTAMPNS);
	CHECK(told.levels[1] == SOL_IP && told.types[1] == IP_PKTINFO);
	CHECK(told.levels[2] == SOL_IP && told.types[2] == IP_TTL);
	CHECK(told.levels[3] == SOL_IP && told.types[3] == IP_RECVERR);
	CHECK(told.stamp.tv_sec > 0);
	close(fd);
}

static void times_of_sending(void)
{
	struct timespec before, after;
	struct sockaddr_in to = four(0);
	socklen_t len = sizeof to;
	int heard = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
	REQUIRE(bind(heard, (void *)&to, len) == 0 && getsockname(heard, (void *)&to, &len) == 0);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
	clock_gettime(CLOCK_REALTIME, &before);
	CHECK(TO(fd, "hello", 5, to) == 5);
	clock_gettime(CLOCK_REALTIME, &after);
	CHECK(events(fd, POLLIN | POLLPRI) == POLLERR);
	CHECK(pending(fd) == 0);
	struct told told = next(fd, 4000);
	/* The whole frame: headers of Ethernet, IP and UDP. */
	CHECK(told.n == 14 + 20 + 8 + 5 && told.flags == MSG_ERRQUEUE && told.namelen == 0);
	CHECK(told.data[12] == 8 && told.data[13] == 0 && told.data[14] == 0x45 && told.data[23] == IPPROTO_UDP);
	CHECK(memcmp(told.data + 26, &to.sin_addr, 4) == 0 && memcmp(told.data + 30, &to.sin_addr, 4) == 0);
	CHECK(memcmp(told.data + 36, &to.sin_port, 2) == 0 && memcmp(told.data + 42, "hello", 5) == 0);
	CHECK(told.parts == 2 && told.levels[0] == SOL_SOCKET && told.types[0] == SO_TIMESTAMPING);
	CHECK(told.levels[1] == SOL_IP && told.types[1] == IP_RECVERR);
	CHECK(told.error.ee_errno == ENOMSG && told.error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
	CHECK(told.error.ee_info == SCM_TSTAMP_SND && told.error.ee_data == 0 && told.error.ee_type == 0);
	CHECK(told.offender.sin6_family == 0);
	CHECK(told.times[0].tv_sec >= before.tv_sec && told.times[0].tv_sec <= after.tv_sec);
	CHECK(told.times[1].tv_sec == 0 && told.times[2].tv_sec == 0);
	CHECK(events(fd, POLLIN) == 0);

	/* POLLPRI tells of the queue where that is asked for. */
	set(fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1);
	CHECK(TO(fd, "hello", 5, to) == 5);
	CHECK(events(fd, POLLIN | POLLPRI) == (POLLERR | POLLPRI));
	CHECK(next(fd, 10).flags == (MSG_ERRQUEUE | MSG_TRUNC));
	CHECK(events(fd, POLLIN | POLLPRI) == 0);

	/* Two times of each, numbered, without the bytes. */
	int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE;
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, flags | SOF_TIMESTAMPING_OPT_TSONLY | SOF_TIMESTAMPING_OPT_ID);
	for (int i = 0; i < 2; i++) {
		CHECK(TO(fd, "hello", 5, to) == 5);
		told = next(fd, 64);
		CHECK(told.n == 0 && told.error.ee_info == SCM_TSTAMP_SCHED && (int)told.error.ee_data == i && told.parts == 2);
		told = next(fd, 64);
		CHECK(told.n == 0 && told.error.ee_info == SCM_TSTAMP_SND && (int)told.error.ee_data == i && told.parts == 2);
		CHECK(next(fd, 64).n == -EAGAIN);
	}
	/* Numbers go on where the option stays, and begin anew when it is set again. */
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID);
	CHECK(TO(fd, "hello", 5, to) == 5);
	CHECK(next(fd, 64).error.ee_data == 2);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
	CHECK(TO(fd, "hello", 5, to) == 5);
	CHECK(next(fd, 64).error.ee_data == 0);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID);
	CHECK(TO(fd, "hello", 5, to) == 5);
	CHECK(next(fd, 64).error.ee_data == 0);

	/* Who does not say that times of software are wanted gets a report without one. */
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE);
	CHECK(TO(fd, "hello", 5, to) == 5);
	told = next(fd, 64);
	CHECK(told.n == 47 && told.parts == 1 && told.error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
	close(fd);
	close(heard);
}

/* sendmsg(2) with a control message SO_TIMESTAMPING. */
static int stamped(int fd, int flags, size_t len)
{
	struct sockaddr_in to = four(CLOSED);
	char control[CMSG_SPACE(8)] = {0};
	struct iovec iov = {"hello", 5};
	struct msghdr msg = {&to, sizeof to, &iov, 1, control, CMSG_SPACE(len), 0};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SO_TIMESTAMPING, .cmsg_len = CMSG_LEN(len)};
	memcpy(CMSG_DATA(c), &flags, sizeof flags);
	return sendmsg(fd, &msg, 0) < 0 ? -errno : 0;
}

static void times_of_single_messages(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY);
	CHECK(stamped(fd, 0, 4) == 0 && next(fd, 64).n == -EAGAIN);
	CHECK(stamped(fd, SOF_TIMESTAMPING_TX_SOFTWARE, 4) == 0);
	CHECK(next(fd, 64).error.ee_info == SCM_TSTAMP_SND);
	CHECK(next(fd, 64).n == -EAGAIN);
	CHECK(stamped(fd, SOF_TIMESTAMPING_TX_SCHED, 4) == 0);
	CHECK(next(fd, 64).error.ee_info == SCM_TSTAMP_SCHED);
	CHECK(stamped(fd, SOF_TIMESTAMPING_SOFTWARE, 4) == -EINVAL);
	CHECK(stamped(fd, SOF_TIMESTAMPING_RX_SOFTWARE, 4) == -EINVAL);
	CHECK(stamped(fd, SOF_TIMESTAMPING_TX_SOFTWARE, 8) == -EINVAL);
	/* What one message says is said of no other, and it takes times away as well. */
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
	CHECK(stamped(fd, 0, 4) == 0 && next(fd, 64).n == -EAGAIN);
	close(fd);

	struct sockaddr_in6 to = six(CLOSED);
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
	CHECK(TO(fd, "hello", 5, to) == 5);
	struct told told = next(fd, 4000);
	CHECK(told.n == 14 + 40 + 8 + 5 && told.namelen == 0 && told.parts == 2);
	CHECK(told.data[12] == 0x86 && told.data[13] == 0xdd && memcmp(told.data + 62, "hello", 5) == 0);
	CHECK(told.levels[1] == SOL_IPV6 && told.types[1] == IPV6_RECVERR);
	CHECK(told.error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
	CHECK(told.offender.sin6_family == AF_INET6 && memcmp(&told.offender.sin6_addr, &to.sin6_addr, 16) == 0);

	/* With what the options ask for of the packet; nothing is known of one that does not come along. */
	set(fd, SOL_IPV6, IPV6_RECVPKTINFO, 1);
	CHECK(TO(fd, "hello", 5, to) == 5);
	told = next(fd, 4000);
	CHECK(told.parts == 3 && told.levels[1] == SOL_IPV6 && told.types[1] == IPV6_PKTINFO);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY);
	CHECK(TO(fd, "hello", 5, to) == 5);
	told = next(fd, 4000);
	CHECK(told.n == 0 && told.parts == 2 && told.offender.sin6_family == 0);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
	set(fd, SOL_IPV6, IPV6_RECVPKTINFO, 0);

	/* Reports and times share a queue; an error is pending only for the first. */
	set(fd, SOL_IPV6, IPV6_RECVERR, 1);
	CHECK(TO(fd, "hello", 5, to) == 5);
	CHECK(pending(fd) == ECONNREFUSED);
	CHECK(next(fd, 4000).error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
	CHECK(pending(fd) == ECONNREFUSED);
	CHECK(next(fd, 4000).error.ee_origin == SO_EE_ORIGIN_ICMP6);
	CHECK(pending(fd) == 0);
	close(fd);
}

/* SOF_TIMESTAMPING_OPT_CMSG: IPv4 tells of the packet only where that is asked for. */
static void where_it_left(void)
{
	struct sockaddr_in to = four(CLOSED);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	set(fd, SOL_IP, IP_PKTINFO, 1);
	set(fd, SOL_IP, IP_RECVTTL, 1);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
	CHECK(TO(fd, "hello", 5, to) == 5);
	CHECK(next(fd, 64).parts == 2);
	set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_CMSG);
	CHECK(TO(fd, "hello", 5, to) == 5);
	struct told told = next(fd, 64);
	struct sockaddr_in *offender = (void *)&told.offender;
	CHECK(told.parts == 4 && told.types[1] == IP_PKTINFO && told.types[2] == IP_TTL && told.types[3] == IP_RECVERR);
	CHECK(offender->sin_family == AF_INET && offender->sin_addr.s_addr == to.sin_addr.s_addr);
	close(fd);
}

static ssize_t dont_fragment(int fd, size_t size, int value)
{
	static char big[65536];
	struct sockaddr_in6 to = six(CLOSED);
	char control[CMSG_SPACE(sizeof value)] = { 0 };
	struct iovec iov = { big, size };
	struct msghdr msg = { &to, sizeof to, &iov, 1, control, sizeof control, 0 };
	struct cmsghdr *part = CMSG_FIRSTHDR(&msg);
	*part = (struct cmsghdr){ CMSG_LEN(sizeof value), SOL_IPV6, IPV6_DONTFRAG };
	memcpy(CMSG_DATA(part), &value, sizeof value);
	return sendmsg(fd, &msg, 0);
}

/* IPV6_DONTFRAG as ancillary data is for one datagram, and goes before the option of the socket (RFC 3542, 11.2). */
static void one_datagram_whole(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK_EQ(dont_fragment(fd, 65500, 0), 65500);
	CHECK_ERRNO(dont_fragment(fd, 65500, 1), EMSGSIZE);
	CHECK_EQ(dont_fragment(fd, 100, 1), 100);
	CHECK_ERRNO(dont_fragment(fd, 100, 2), EINVAL);
	set(fd, SOL_IPV6, IPV6_DONTFRAG, 1);
	CHECK_EQ(dont_fragment(fd, 65500, 0), 65500);
	close(fd);
}

int main(void)
{
	one_datagram_whole();
	who_asks_for_nothing();
	reports_of_ipv4();
	how_much_is_quoted();
	reports_of_ipv6();
	what_comes_with_reports();
	times_of_sending();
	times_of_single_messages();
	where_it_left();
	return tap_done();
}
