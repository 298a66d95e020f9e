/* UDP over loopback: udp(7), ip(7), recvmsg(2), sendmmsg(2). */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

static char buffer[70000];
static struct sockaddr_in from;
static socklen_t length;

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static int bound(int *port)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in address = loopback(0);
	REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	length = sizeof address;
	REQUIRE(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
	*port = ntohs(address.sin_port);
	return fd;
}

static ssize_t send_to(int fd, int port, const void *data, size_t n)
{
	struct sockaddr_in address = loopback(port);
	return sendto(fd, data, n, 0, (struct sockaddr *)&address, sizeof address);
}

static void datagrams(void)
{
	int a_port, b_port, n, a = bound(&a_port), b = bound(&b_port);
	CHECK_ERRNO(recv(b, buffer, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(send_to(a, b_port, "one", 3), 3);
	CHECK_EQ(send_to(a, b_port, "", 0), 0);
	CHECK_EQ(send_to(a, b_port, "three", 5), 5);
	CHECK(ioctl(b, FIONREAD, &n) == 0 && n == 3);
	CHECK_EQ(recv(b, buffer, 2, MSG_PEEK | MSG_TRUNC), 3);
	length = sizeof from;
	CHECK_EQ(recvfrom(b, buffer, 10, 0, (struct sockaddr *)&from, &length), 3);
	CHECK(length == sizeof from && ntohs(from.sin_port) == a_port && ntohl(from.sin_addr.s_addr) == INADDR_LOOPBACK);
	/* Boundaries are kept, also of the empty one, and what does not fit is lost. */
	CHECK_EQ(recv(b, buffer, 10, 0), 0);
	struct iovec part = { buffer, 2 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	CHECK_EQ(recvmsg(b, &message, 0), 2);
	CHECK(message.msg_flags == MSG_TRUNC && !memcmp(buffer, "th", 2));
	CHECK_ERRNO(recv(b, buffer, 10, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(send_to(a, b_port, buffer, 60000), 60000);
	CHECK_EQ(recv(b, buffer, sizeof buffer, 0), 60000);
	CHECK_ERRNO(send_to(a, b_port, buffer, 66000), EMSGSIZE);
	CHECK_ERRNO(send(a, "x", 1, 0), EDESTADDRREQ);
	CHECK_ERRNO(listen(a, 1), EOPNOTSUPP);
	CHECK_ERRNO(accept(a, NULL, NULL), EOPNOTSUPP);
	struct pollfd p = { a, POLLIN | POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	/* To oneself. */
	CHECK_EQ(send_to(a, a_port, "me", 2), 2);
	CHECK_EQ(recv(a, buffer, 10, 0), 2);
	/* sendmmsg and recvmmsg. */
	struct sockaddr_in to = loopback(b_port);
	struct iovec parts[2] = { { "x", 1 }, { "yy", 2 } };
	struct mmsghdr many[3] = {
		{ .msg_hdr = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &parts[0], .msg_iovlen = 1 } },
		{ .msg_hdr = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &parts[1], .msg_iovlen = 1 } },
	};
	CHECK_EQ(sendmmsg(a, many, 2, 0), 2);
	CHECK(many[0].msg_len == 1 && many[1].msg_len == 2);
	struct iovec into[3] = { { buffer, 10 }, { buffer + 10, 10 }, { buffer + 20, 10 } };
	for (int i = 0; i < 3; i++)
		many[i].msg_hdr = (struct msghdr){ .msg_iov = &into[i], .msg_iovlen = 1 };
	CHECK_EQ(recvmmsg(b, many, 3, MSG_DONTWAIT, NULL), 2);
	CHECK(many[0].msg_len == 1 && many[1].msg_len == 2 && buffer[0] == 'x' && buffer[10] == 'y');
	close(a), close(b);
}

static void connections(void)
{
	int a_port, b_port, c_port, a = bound(&a_port), b = bound(&b_port), c = bound(&c_port);
	struct sockaddr_in address = loopback(b_port);
	CHECK_EQ(connect(a, (struct sockaddr *)&address, sizeof address), 0);
	CHECK_EQ(send(a, "x", 1, 0), 1);
	CHECK_EQ(recv(b, buffer, 10, 0), 1);
	/* Only the peer is heard. */
	CHECK_EQ(send_to(c, a_port, "no", 2), 2);
	CHECK_EQ(send_to(b, a_port, "yes", 3), 3);
	CHECK(recv(a, buffer, 10, 0) == 3);
	CHECK_ERRNO(recv(a, buffer, 10, MSG_DONTWAIT), EAGAIN);
	length = sizeof from;
	CHECK(getpeername(a, (struct sockaddr *)&from, &length) == 0 && ntohs(from.sin_port) == b_port);
	/* Nobody there: the next call learns of it. */
	close(b);
	CHECK_EQ(send(a, "x", 1, 0), 1);
	CHECK_ERRNO(recv(a, buffer, 10, 0), ECONNREFUSED);
	CHECK_ERRNO(recv(a, buffer, 10, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(send(a, "x", 1, 0), 1);
	CHECK_ERRNO(send(a, "x", 1, 0), ECONNREFUSED);
	/* Disconnected again. */
	address.sin_family = AF_UNSPEC;
	CHECK_EQ(connect(a, (struct sockaddr *)&address, sizeof address), 0);
	CHECK_ERRNO(send(a, "x", 1, 0), EDESTADDRREQ);
	/* Unconnected, nobody tells. */
	CHECK_EQ(send_to(a, b_port, "x", 1), 1);
	CHECK_ERRNO(recv(a, buffer, 10, MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO(shutdown(a, SHUT_RD), ENOTCONN);
	int other = socket(AF_INET, SOCK_DGRAM, 0);
	address = loopback(c_port);
	CHECK_ERRNO(bind(other, (struct sockaddr *)&address, sizeof address), EADDRINUSE);
	/* Sending from an unbound socket binds it. */
	CHECK_EQ(send_to(other, c_port, "x", 1), 1);
	length = sizeof from;
	CHECK(getsockname(other, (struct sockaddr *)&from, &length) == 0 && from.sin_port != 0);
	close(a), close(c), close(other);
}

static void full(void)
{
	/* Datagrams that find no room are dropped without a word; those which did arrive are whole and in order. */
	int a_port, b_port, a = bound(&a_port), b = bound(&b_port), size = 20000;
	REQUIRE(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
	for (int i = 0; i < 500; i++) {
		buffer[0] = (char)i;
		buffer[1] = (char)(i >> 8);
		REQUIRE(send_to(a, b_port, buffer, 1000) == 1000);
	}
	int count = 0, last = -1, ordered = 1;
	unsigned char got[1000];
	for (ssize_t n; (n = recv(b, got, sizeof got, MSG_DONTWAIT)) == 1000; count++) {
		int i = got[0] | got[1] << 8;
		ordered &= i > last;
		last = i;
	}
	CHECK(count > 0 && count < 500 && ordered);
	close(a), close(b);
}

/* Receives a datagram with its ancillary data into `control`; the data of the message of this kind, NULL if there is none. */
static char control[512];
static struct msghdr got;

static const void *received(int fd, int level, int type)
{
	static struct iovec part;
	part = (struct iovec){ buffer, sizeof buffer };
	got = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	if (recvmsg(fd, &got, MSG_DONTWAIT) < 0)
		return NULL;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&got); c; c = CMSG_NXTHDR(&got, c))
		if (c->cmsg_level == level && c->cmsg_type == type)
			return CMSG_DATA(c);
	return NULL;
}

/* Sends a datagram with one control message. */
static ssize_t send_with(int fd, const void *to, socklen_t to_len, int level, int type, const void *data, size_t len)
{
	char space[128] = { 0 };
	struct iovec part = { "x", 1 };
	struct msghdr message = { .msg_name = (void *)to, .msg_namelen = to_len, .msg_iov = &part, .msg_iovlen = 1,
				  .msg_control = space, .msg_controllen = CMSG_SPACE(len) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	return sendmsg(fd, &message, 0);
}

static int int_of(const void *data)
{
	int number = -1;
	if (data)
		memcpy(&number, data, sizeof number);
	return number;
}

/* ip(7): IP_RECVTTL, IP_RECVTOS, IP_PKTINFO and IP_RECVORIGDSTADDR tell of the header; IP_TTL and IP_TOS set it. */
static void headers(void)
{
	int a_port, b_port, a = bound(&a_port), b = bound(&b_port), on = 1, number = 9;
	struct sockaddr_in to = loopback(b_port);
	REQUIRE(setsockopt(b, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0);
	send_to(a, b_port, "x", 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IP, IP_TTL)), 64);
	REQUIRE(setsockopt(a, IPPROTO_IP, IP_TTL, &number, sizeof number) == 0);
	number = 0x28;
	REQUIRE(setsockopt(a, IPPROTO_IP, IP_TOS, &number, sizeof number) == 0);
	send_to(a, b_port, "x", 1);
	send_to(a, b_port, "x", 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IP, IP_TTL)), 9);
	const unsigned char *class = received(b, IPPROTO_IP, IP_TOS);
	CHECK(class && *class == 0x28);
	/* PKTINFO comes first. */
	struct cmsghdr *first = CMSG_FIRSTHDR(&got);
	CHECK(first->cmsg_type == IP_PKTINFO && CMSG_NXTHDR(&got, first)->cmsg_type == IP_TTL);
	const struct in_pktinfo *info = (const void *)CMSG_DATA(first);
	CHECK(info->ipi_ifindex == 1 && ntohl(info->ipi_addr.s_addr) == INADDR_LOOPBACK &&
	      ntohl(info->ipi_spec_dst.s_addr) == INADDR_LOOPBACK);
	/* A control message counts for its datagram only. */
	number = 77;
	CHECK_EQ(send_with(a, &to, sizeof to, IPPROTO_IP, IP_TTL, &number, sizeof number), 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IP, IP_TTL)), 77);
	CHECK_EQ(send_with(a, &to, sizeof to, IPPROTO_IP, IP_TOS, "\x04", 1), 1);
	class = received(b, IPPROTO_IP, IP_TOS);
	CHECK(class && *class == 4);
	number = 256;
	CHECK_ERRNO(send_with(a, &to, sizeof to, IPPROTO_IP, IP_TTL, &number, sizeof number), EINVAL);
	CHECK_ERRNO(send_with(a, &to, sizeof to, IPPROTO_IP, IP_TOS, &number, sizeof number), EINVAL);
	CHECK_ERRNO(send_with(a, &to, sizeof to, IPPROTO_IP, IP_TTL, "x", 1), EINVAL);
	/* The source by IP_PKTINFO, from a socket that is bound to no address. */
	int wild = socket(AF_INET, SOCK_DGRAM, 0);
	struct in_pktinfo source = { 0, { htonl(INADDR_LOOPBACK + 1) }, { 0 } };
	CHECK_EQ(send_with(wild, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &source, sizeof source), 1);
	length = sizeof from;
	CHECK_EQ(recvfrom(b, buffer, 10, MSG_DONTWAIT, (struct sockaddr *)&from, &length), 1);
	CHECK_EQ(ntohl(from.sin_addr.s_addr), INADDR_LOOPBACK + 1);
	source.ipi_spec_dst.s_addr = inet_addr("203.0.113.1");
	CHECK_ERRNO(send_with(wild, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &source, sizeof source), ENETUNREACH);
	source = (struct in_pktinfo){ 9999, { 0 }, { 0 } };
	CHECK_ERRNO(send_with(wild, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &source, sizeof source), ENODEV);
	REQUIRE(setsockopt(b, IPPROTO_IP, IP_RECVORIGDSTADDR, &on, sizeof on) == 0);
	send_to(a, b_port, "x", 1);
	const struct sockaddr_in *original = received(b, IPPROTO_IP, IP_ORIGDSTADDR);
	CHECK(original && original->sin_family == AF_INET && ntohs(original->sin_port) == b_port);
	close(a), close(b), close(wild);
}

/* The same of ipv6(7). */
static void headers6(void)
{
	int a = socket(AF_INET6, SOCK_DGRAM, 0), b = socket(AF_INET6, SOCK_DGRAM, 0), on = 1, number;
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	REQUIRE(bind(b, (struct sockaddr *)&to, sizeof to) == 0);
	length = sizeof to;
	REQUIRE(getsockname(b, (struct sockaddr *)&to, &length) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) == 0);
	CHECK_EQ(sendto(a, "x", 1, 0, (struct sockaddr *)&to, sizeof to), 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IPV6, IPV6_HOPLIMIT)), 64);
	struct cmsghdr *first = CMSG_FIRSTHDR(&got);
	const struct in6_pktinfo *info = (const void *)CMSG_DATA(first);
	CHECK(first->cmsg_type == IPV6_PKTINFO && info->ipi6_ifindex == 1 && IN6_IS_ADDR_LOOPBACK(&info->ipi6_addr));
	number = 5;
	REQUIRE(setsockopt(a, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &number, sizeof number) == 0);
	number = 0x40;
	REQUIRE(setsockopt(a, IPPROTO_IPV6, IPV6_TCLASS, &number, sizeof number) == 0);
	sendto(a, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
	sendto(a, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
	CHECK_EQ(int_of(received(b, IPPROTO_IPV6, IPV6_HOPLIMIT)), 5);
	CHECK_EQ(int_of(received(b, IPPROTO_IPV6, IPV6_TCLASS)), 0x40);
	number = 100;
	CHECK_EQ(send_with(a, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &number, sizeof number), 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IPV6, IPV6_HOPLIMIT)), 100);
	number = -1;
	CHECK_EQ(send_with(a, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &number, sizeof number), 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IPV6, IPV6_HOPLIMIT)), 5);
	number = 256;
	CHECK_ERRNO(send_with(a, &to, sizeof to, IPPROTO_IPV6, IPV6_TCLASS, &number, sizeof number), EINVAL);
	close(a), close(b);
	/* IPv4 on a socket of IPv6: the options of ip(7) count, and PKTINFO comes for both. */
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	b = socket(AF_INET6, SOCK_DGRAM, 0);
	REQUIRE(bind(b, (struct sockaddr *)&any, sizeof any) == 0);
	length = sizeof any;
	REQUIRE(getsockname(b, (struct sockaddr *)&any, &length) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) == 0);
	REQUIRE(setsockopt(b, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
	a = socket(AF_INET, SOCK_DGRAM, 0);
	number = 33;
	REQUIRE(setsockopt(a, IPPROTO_IP, IP_TTL, &number, sizeof number) == 0);
	send_to(a, ntohs(any.sin6_port), "x", 1);
	send_to(a, ntohs(any.sin6_port), "x", 1);
	CHECK_EQ(int_of(received(b, IPPROTO_IP, IP_TTL)), 33);
	CHECK(received(b, IPPROTO_IPV6, IPV6_HOPLIMIT) == NULL);
	info = (const void *)CMSG_DATA(CMSG_FIRSTHDR(&got));
	CHECK(CMSG_FIRSTHDR(&got)->cmsg_type == IPV6_PKTINFO && IN6_IS_ADDR_V4MAPPED(&info->ipi6_addr));
	close(a), close(b);
}

static int flag_of(int fd, int option)
{
	int on = -1;
	length = sizeof on;
	REQUIRE(getsockopt(fd, SOL_SOCKET, option, &on, &length) == 0);
	return on;
}

static int close_to(const struct timespec *stamp, const struct timespec *before)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	double a = before->tv_sec + before->tv_nsec / 1e9, b = stamp->tv_sec + stamp->tv_nsec / 1e9;
	return a - 0.001 <= b && b <= now.tv_sec + now.tv_nsec / 1e9;
}

/* socket(7): "SO_TIMESTAMP: Enable or disable the receiving of the SO_TIMESTAMP control message." */
static void timestamps(void)
{
	int a_port, b_port, a = bound(&a_port), b = bound(&b_port), on = 1, off = 0;
	struct timespec before;
	REQUIRE(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	CHECK(flag_of(b, SO_TIMESTAMP) == 1 && flag_of(b, SO_TIMESTAMPNS) == 0);
	clock_gettime(CLOCK_REALTIME, &before);
	send_to(a, b_port, "x", 1);
	const struct timeval *tv = received(b, SOL_SOCKET, SO_TIMESTAMP);
	REQUIRE(tv != NULL);
	struct timespec stamp = { tv->tv_sec, tv->tv_usec * 1000 };
	CHECK(close_to(&stamp, &before));
	/* The last one counts. */
	REQUIRE(setsockopt(b, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0);
	CHECK(flag_of(b, SO_TIMESTAMP) == 0 && flag_of(b, SO_TIMESTAMPNS) == 1);
	send_to(a, b_port, "x", 1);
	const struct timespec *ts = received(b, SOL_SOCKET, SO_TIMESTAMPNS);
	CHECK(ts != NULL && close_to(ts, &before));
	/* When it came, not when it was read. */
	send_to(a, b_port, "x", 1);
	struct timespec nap = { 0, 20000000 }, late;
	nanosleep(&nap, NULL);
	clock_gettime(CLOCK_REALTIME, &late);
	ts = received(b, SOL_SOCKET, SO_TIMESTAMPNS);
	REQUIRE(ts != NULL);
	CHECK((late.tv_sec - ts->tv_sec) * 1000000000L + late.tv_nsec - ts->tv_nsec >= 19000000);
	REQUIRE(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof off) == 0);
	CHECK_EQ(flag_of(b, SO_TIMESTAMPNS), 0);
	send_to(a, b_port, "x", 1);
	CHECK(received(b, SOL_SOCKET, SO_TIMESTAMPNS) == NULL);
	/* SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE: three times, the first one by software. */
	int flags = 8 | 16;
	REQUIRE(setsockopt(b, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags) == 0);
	send_to(a, b_port, "x", 1);
	ts = received(b, SOL_SOCKET, SO_TIMESTAMPING);
	CHECK(ts != NULL && close_to(ts, &before) && ts[1].tv_sec == 0 && ts[2].tv_sec == 0);
	flags = 1 << 30;
	CHECK_ERRNO(setsockopt(b, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags), EINVAL);
	close(a), close(b);
	/* Datagrams of unix sockets have them too. */
	int pair[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	REQUIRE(setsockopt(pair[1], SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	CHECK_EQ(send(pair[0], "x", 1, 0), 1);
	tv = received(pair[1], SOL_SOCKET, SO_TIMESTAMP);
	REQUIRE(tv != NULL);
	stamp = (struct timespec){ tv->tv_sec, tv->tv_usec * 1000 };
	CHECK(close_to(&stamp, &before));
	close(pair[0]), close(pair[1]);
}

/* Datagrams that are put together: UDP_CORK and MSG_MORE (udp(7)). */
static void corks(void)
{
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, off = 0, value = -1;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, nowhere = to;
	socklen_t len = sizeof to, four = sizeof value;
	static char big[65000], got[70000];
	nowhere.sin_port = htons(9);
	REQUIRE(bind(receiver, (struct sockaddr *)&to, sizeof to) == 0);
	REQUIRE(getsockname(receiver, (struct sockaddr *)&to, &len) == 0);
	CHECK_ERRNO(send(fd, "a", 1, MSG_MORE), EDESTADDRREQ);
	CHECK_EQ(sendto(fd, "one ", 4, MSG_MORE, (struct sockaddr *)&to, sizeof to), 4);
	CHECK_ERRNO(recv(receiver, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	/* The first part said where to. */
	CHECK_EQ(sendto(fd, "two", 3, 0, (struct sockaddr *)&nowhere, sizeof nowhere), 3);
	CHECK_EQ(recv(receiver, got, sizeof got, MSG_DONTWAIT), 7);
	CHECK_EQ(memcmp(got, "one two", 7), 0);
	REQUIRE(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK_EQ(setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on), 0);
	CHECK_EQ(getsockopt(fd, IPPROTO_UDP, UDP_CORK, &value, &four), 0);
	CHECK_EQ(value, 1);
	CHECK_EQ(send(fd, "x", 1, 0), 1);
	CHECK_EQ(send(fd, "", 0, 0), 0);
	CHECK_EQ(write(fd, "yz", 2), 2);
	CHECK_ERRNO(recv(receiver, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off), 0);
	CHECK_EQ(recv(receiver, got, sizeof got, MSG_DONTWAIT), 3);
	CHECK_EQ(memcmp(got, "xyz", 3), 0);
	CHECK_EQ(setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off), 0);
	CHECK_ERRNO(recv(receiver, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	/* What is too long is lost. */
	CHECK_EQ(send(fd, big, sizeof big, MSG_MORE), sizeof big);
	CHECK_ERRNO(send(fd, big, 1000, MSG_MORE), EMSGSIZE);
	CHECK_EQ(send(fd, "end", 3, 0), 3);
	CHECK_EQ(recv(receiver, got, sizeof got, MSG_DONTWAIT), 3);
	/* Nobody gets what was not sent when the socket is closed. */
	CHECK_EQ(send(fd, "lost", 4, MSG_MORE), 4);
	close(fd);
	CHECK_ERRNO(recv(receiver, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	close(receiver);
}

/* A socket of IPv6 with an address of its own speaks no IPv4; one with a mapped address speaks nothing else. */
static void families(int kind)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 }, peer = { .sin6_family = AF_INET6, .sin6_port = htons(9) }, own;
	socklen_t length = sizeof own;
	inet_pton(AF_INET6, "::1", &six.sin6_addr);
	int fd = socket(AF_INET6, kind, 0), only = -1;
	socklen_t size = sizeof only;
	CHECK(getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &size) == 0 && only == 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&six, sizeof six), 0);
	CHECK(getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &size) == 0 && only == 1);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &peer.sin6_addr);
	CHECK_ERRNO(connect(fd, (struct sockaddr *)&peer, sizeof peer), ENETUNREACH);
	close(fd);
	fd = socket(AF_INET6, kind, 0);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
	CHECK_EQ(bind(fd, (struct sockaddr *)&six, sizeof six), 0);
	CHECK(getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &size) == 0 && only == 0);
	inet_pton(AF_INET6, "::1", &peer.sin6_addr);
	CHECK_ERRNO(connect(fd, (struct sockaddr *)&peer, sizeof peer), EAFNOSUPPORT);
	if (kind == SOCK_DGRAM) {
		CHECK_ERRNO(sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer), EAFNOSUPPORT);
		/* The unspecified address is that of IPv4. */
		peer.sin6_addr = in6addr_any;
		CHECK_EQ(connect(fd, (struct sockaddr *)&peer, sizeof peer), 0);
		CHECK(getpeername(fd, (struct sockaddr *)&own, &length) == 0 && IN6_IS_ADDR_V4MAPPED(&own.sin6_addr));
	}
	close(fd);
}

/* SO_PEEK_OFF. Unlike that of unix sockets a peek to the end of a datagram, with just as much room, tells of a truncation. */
static void peeks_at_offsets(void)
{
	int port, off = 0, fd = bound(&port), sender = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof off;
	REQUIRE(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0);
	CHECK_EQ(off, -1);
	off = 0;
	CHECK_OK(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off));
	send_to(sender, port, "first", 5);
	send_to(sender, port, "", 0);
	send_to(sender, port, "second", 6);
	CHECK(recv(fd, buffer, 2, MSG_PEEK) == 2 && !memcmp(buffer, "fi", 2));
	struct iovec part = { buffer, 3 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	CHECK(recvmsg(fd, &message, MSG_PEEK) == 3 && message.msg_flags == MSG_TRUNC && !memcmp(buffer, "rst", 3));
	CHECK_EQ(recv(fd, buffer, 9, MSG_PEEK), 0);
	part.iov_len = 9;
	CHECK(recvmsg(fd, &message, MSG_PEEK) == 6 && message.msg_flags == 0 && !memcmp(buffer, "second", 6));
	CHECK_ERRNO(recv(fd, buffer, 9, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
	REQUIRE(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0);
	CHECK_EQ(off, 11);
	/* A reception takes back as much as was stored, or with MSG_TRUNC all. */
	CHECK_EQ(recv(fd, buffer, 2, 0), 2);
	REQUIRE(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0);
	CHECK_EQ(off, 9);
	CHECK_EQ(recv(fd, buffer, 2, 0), 0);
	CHECK_EQ(recv(fd, buffer, 2, MSG_TRUNC), 6);
	REQUIRE(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0);
	CHECK_EQ(off, 3);
	send_to(sender, port, "abcdef", 6);
	CHECK(recv(fd, buffer, 2, MSG_PEEK | MSG_TRUNC) == 6 && !memcmp(buffer, "de", 2));
	REQUIRE(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0);
	CHECK_EQ(off, 9);
	close(fd), close(sender);
}

int main(void)
{
	datagrams();
	families(SOCK_DGRAM);
	families(SOCK_STREAM);
	connections();
	full();
	headers();
	headers6();
	timestamps();
	corks();
	peeks_at_offsets();
	return tap_done();
}
