/* Filters of sockets: SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_LOCK_FILTER and SO_GET_FILTER (socket(7); Documentation/networking/filter.rst). */
#include "tap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LEN(array) (sizeof(array) / sizeof *(array))
#define ALL BPF_STMT(BPF_RET | BPF_K, -1)
#define NONE BPF_STMT(BPF_RET | BPF_K, 0)
#define ATTACH(fd, ...) attach(fd, (struct sock_filter[]){__VA_ARGS__}, LEN(((struct sock_filter[]){__VA_ARGS__})))

static int attach(int fd, struct sock_filter *program, int len)
{
	struct sock_fprog fprog = {.len = len, .filter = program};
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &fprog, sizeof fprog);
}

/* The length of the next message, or -1. */
static int next(int fd)
{
	char buf[4096];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 200) == 1 ? (int)recv(fd, buf, sizeof buf, MSG_DONTWAIT) : -1;
}

/* A socket bound to loopback, and one connected to it. */
static void pair(int family, int kind, int ends[2])
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr *addr = family == AF_INET ? (void *)&four : (void *)&six;
	socklen_t len = family == AF_INET ? sizeof four : sizeof six;
	ends[0] = socket(family, kind, 0);
	ends[1] = socket(family, kind, 0);
	REQUIRE(ends[0] >= 0 && ends[1] >= 0);
	REQUIRE(bind(ends[0], addr, len) == 0 && getsockname(ends[0], addr, &len) == 0);
	if (kind == SOCK_STREAM)
		REQUIRE(listen(ends[0], 8) == 0);
	else
		REQUIRE(connect(ends[1], addr, len) == 0);
}

static void close_both(int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}

static void what_is_accepted(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sock_filter one = ALL;
	struct sock_fprog fprog = {.len = 1, .filter = &one};
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &fprog, 15), EINVAL);
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &fprog, 17), EINVAL);
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, (void *)8, 16), EFAULT);
	CHECK_ERRNO(attach(fd, &one, 0), EINVAL);
	CHECK_ERRNO(attach(fd, NULL, 1), EINVAL);
	CHECK_ERRNO(attach(fd, (void *)8, 1), EFAULT);
	CHECK_ERRNO(attach(fd, &one, 4097), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_LD | BPF_IMM, 1)), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_RET | BPF_X, 1)), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), ALL), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 0), ALL), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_LD | BPF_MEM, 3), ALL), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + 64), ALL), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + 2), ALL), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 1, 0), ALL), EINVAL);
	CHECK_ERRNO(ATTACH(fd, BPF_STMT(BPF_JMP | BPF_JA, 1), ALL), EINVAL);
	int zero = 0;
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, 4), ENOENT);
	CHECK_EQ(ATTACH(fd, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_CPU), ALL), 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, 4), 0);
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, 4), ENOENT);
	close(fd);
}

static void it_is_shown_and_locked(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1, zero = 0;
	struct sock_filter got[4] = {{0}};
	socklen_t len = 4;
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, got, &len), 0);
	CHECK_EQ(len, 0);
	REQUIRE(ATTACH(fd, BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_RET | BPF_A, 0)) == 0);
	/* Lengths are numbers of instructions. */
	len = 0;
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, got, &len), 0);
	CHECK_EQ(len, 3);
	len = 2;
	CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, got, &len), EINVAL);
	len = 4;
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, got, &len), 0);
	CHECK_EQ(len, 3);
	CHECK(got[0].code == (BPF_LD | BPF_W | BPF_LEN) && got[1].code == (BPF_MISC | BPF_TAX) && got[2].code == (BPF_RET | BPF_A));
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &one, 4), 0);
	CHECK_ERRNO(ATTACH(fd, ALL), EPERM);
	CHECK_ERRNO(attach(fd, (void *)8, 0), EPERM);
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, 4), EPERM);
	len = 4;
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, got, &len), 0);
	CHECK_EQ(len, 3);
	close(fd);
}

static void datagrams(int family)
{
	int ends[2];
	pair(family, SOCK_DGRAM, ends);
	/* The header of UDP comes first: its length is at 4, the content begins at 8. */
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'y', 0, 1), ALL, NONE) == 0);
	CHECK_EQ(send(ends[1], "no", 2, 0), 2);
	CHECK_EQ(send(ends[1], "yes", 3, 0), 3);
	CHECK_EQ(next(ends[0]), 3);
	/* Nothing to look at: the program ends with 0. */
	CHECK_EQ(send(ends[1], "", 0, 0), 0);
	CHECK_EQ(next(ends[0]), -1);
	/* What is queued already stays. */
	CHECK_EQ(send(ends[1], "y", 1, 0), 1);
	REQUIRE(ATTACH(ends[0], NONE) == 0);
	CHECK_EQ(next(ends[0]), 1);
	CHECK_EQ(send(ends[1], "y", 1, 0), 1);
	CHECK_EQ(next(ends[0]), -1);
	/* The answer is a length, with the header, which always stays. */
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_RET | BPF_K, 10)) == 0);
	CHECK_EQ(send(ends[1], "abcdef", 6, 0), 6);
	CHECK_EQ(next(ends[0]), 2);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_RET | BPF_K, 1)) == 0);
	CHECK_EQ(send(ends[1], "abcdef", 6, 0), 6);
	CHECK_EQ(next(ends[0]), 0);
	/* From the header of the network and what is known beside. */
	int at = family == AF_INET ? 9 : 6, type = family == AF_INET ? ETHERTYPE_IP : ETHERTYPE_IPV6;
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + at), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, type, 0, 1), ALL, NONE) == 0);
	CHECK_EQ(send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(next(ends[0]), 3);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_IFINDEX), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, if_nametoindex("lo"), 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_HATYPE), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 772, 0, 1), ALL, NONE) == 0);
	CHECK_EQ(send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(next(ends[0]), 3);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PAY_OFFSET), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 8, 0, 3),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, SKF_LL_OFF + 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, type, 0, 1), ALL, NONE) == 0);
	CHECK_EQ(send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(next(ends[0]), 3);
	/* BPF_LEN counts from the header of UDP; X from the length of a header; a division by zero drops. */
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_RET | BPF_A, 0)) == 0);
	CHECK_EQ(send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(next(ends[0]), 3);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 8), BPF_STMT(BPF_MISC | BPF_TXA, 0), BPF_STMT(BPF_RET | BPF_A, 0)) == 0);
	CHECK_EQ(send(ends[1], "\x43 234567", 8, 0), 8);
	CHECK_EQ(next(ends[0]), 4);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_IMM, 50), BPF_STMT(BPF_LDX | BPF_IMM, 0), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0), ALL) == 0);
	CHECK_EQ(send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(next(ends[0]), -1);
	close_both(ends);
}

static void streams(void)
{
	int ends[2], zero = 0;
	char buf[16];
	pair(AF_INET, SOCK_STREAM, ends);
	struct sockaddr_in addr;
	socklen_t len = sizeof addr;
	REQUIRE(getsockname(ends[0], (void *)&addr, &len) == 0);
	/* A listener's filter sees the SYN, and its connections inherit it: nothing with a payload that begins with 'n'. */
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ST, 0), BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2), BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_MEM, 0),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, 0, 2), BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'n', 1, 0), ALL, NONE) == 0);
	CHECK_EQ(connect(ends[1], (void *)&addr, len), 0);
	int got = accept(ends[0], NULL, NULL);
	REQUIRE(got >= 0);
	struct sock_filter shown[16];
	len = 16;
	CHECK_EQ(getsockopt(got, SOL_SOCKET, SO_GET_FILTER, shown, &len), 0);
	CHECK_EQ(len, 11);
	CHECK_EQ(send(ends[1], "yes", 3, 0), 3);
	CHECK_EQ(next(got), 3);
	/* Dropped until the filter is gone: then it is sent again. */
	CHECK_EQ(send(ends[1], "no", 2, 0), 2);
	CHECK_EQ(next(got), -1);
	CHECK_EQ(setsockopt(got, SOL_SOCKET, SO_DETACH_FILTER, &zero, 4), 0);
	CHECK_EQ(recv(got, buf, sizeof buf, 0), 2);
	/* Of a segment of three bytes two are kept; the third comes again. */
	REQUIRE(ATTACH(got, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2), BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 2), BPF_STMT(BPF_RET | BPF_A, 0)) == 0);
	CHECK_EQ(send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(recv(got, buf, 3, MSG_WAITALL), 3);
	CHECK(memcmp(buf, "abc", 3) == 0);
	close(got);
	close_both(ends);
	/* A listener that drops all SYNs. */
	pair(AF_INET, SOCK_STREAM, ends);
	len = sizeof addr;
	REQUIRE(getsockname(ends[0], (void *)&addr, &len) == 0 && ATTACH(ends[0], NONE) == 0);
	REQUIRE(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
	CHECK_ERRNO(connect(ends[1], (void *)&addr, len), EINPROGRESS);
	struct pollfd p = {.fd = ends[1], .events = POLLOUT};
	CHECK_EQ(poll(&p, 1, 200), 0);
	CHECK_EQ(setsockopt(ends[0], SOL_SOCKET, SO_DETACH_FILTER, &zero, 4), 0);
	CHECK_EQ(poll(&p, 1, 5000), 1);
	close_both(ends);
}

static void of_one_machine(int kind)
{
	int ends[2];
	REQUIRE(socketpair(AF_UNIX, kind, 0, ends) == 0);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'y', 0, 1), BPF_STMT(BPF_RET | BPF_K, 2), NONE) == 0);
	/* "Toss the packet but do not return any error to the sender". Streams are not filtered. */
	int stream = kind == SOCK_STREAM;
	CHECK_EQ(send(ends[1], "no", 2, 0), 2);
	CHECK_EQ(next(ends[0]), stream ? 2 : -1);
	CHECK_EQ(send(ends[1], "yes", 3, 0), 3);
	CHECK_EQ(next(ends[0]), stream ? 3 : 2);
	CHECK_EQ(send(ends[0], "no", 2, 0), 2);
	CHECK_EQ(next(ends[1]), 2);
	/* There is no interface, of which the program is told nothing: it ends with 0. */
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_IFINDEX), ALL) == 0);
	CHECK_EQ(send(ends[1], "yes", 3, 0), 3);
	CHECK_EQ(next(ends[0]), stream ? 3 : -1);
	/* A descriptor in a packet that is dropped is closed. */
	int ways[2];
	REQUIRE(pipe(ways) == 0 && ATTACH(ends[0], NONE) == 0);
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &ways[1], sizeof(int));
	CHECK_EQ(sendmsg(ends[1], &msg, 0), 1);
	close(ways[1]);
	struct pollfd p = {.fd = ways[0], .events = POLLIN};
	CHECK_EQ(poll(&p, 1, 100), stream ? 0 : 1);
	close(ways[0]);
	close_both(ends);
}

/* The filter of a closed receiver is asked before anybody sees that it is closed. */
static void of_a_closed_one(int kind)
{
	int ends[2];
	REQUIRE(socketpair(AF_UNIX, kind, 0, ends) == 0);
	REQUIRE(ATTACH(ends[0], BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'y', 0, 1), ALL, NONE) == 0);
	close(ends[0]);
	if (kind == SOCK_DGRAM) {
		CHECK_EQ(send(ends[1], "no", 2, MSG_NOSIGNAL), 2);
		CHECK_ERRNO(send(ends[1], "yes", 3, MSG_NOSIGNAL), ECONNREFUSED);
		/* It has no peer any more. */
		CHECK_ERRNO(send(ends[1], "no", 2, MSG_NOSIGNAL), ENOTCONN);
	} else {
		CHECK_ERRNO(send(ends[1], "no", 2, MSG_NOSIGNAL), EPIPE);
	}
	close(ends[1]);
}

static void netlink(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	REQUIRE(fd >= 0);
	struct { struct nlmsghdr head; struct ifinfomsg link; } ask = {
		.head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = 1},
		.link = {.ifi_index = 1}};
	/* The type of the message, in the order of the machine. */
	REQUIRE(ATTACH(fd, BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWLINK), 0, 1), ALL, NONE) == 0);
	CHECK_EQ(send(fd, &ask, sizeof ask, 0), (int)sizeof ask);
	CHECK(next(fd) > 0);
	REQUIRE(ATTACH(fd, BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWLINK), 1, 0), ALL, NONE) == 0);
	CHECK_EQ(send(fd, &ask, sizeof ask, 0), (int)sizeof ask);
	CHECK_EQ(next(fd), -1);
	/* Where the attribute IFLA_IFNAME (3) is, behind both headers; without one it is 0. */
	REQUIRE(ATTACH(fd, BPF_STMT(BPF_LD | BPF_IMM, 32), BPF_STMT(BPF_LDX | BPF_IMM, 3), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_NLATTR),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 32, 0, 1), ALL, NONE) == 0);
	CHECK_EQ(send(fd, &ask, sizeof ask, 0), (int)sizeof ask);
	CHECK(next(fd) > 0);
	close(fd);
}

static unsigned short sum(const void *data, int len)
{
	unsigned total = 0;
	for (int at = 0; at < len; at += 2)
		total += ((const unsigned char *)data)[at] << 8 | ((const unsigned char *)data)[at + 1];
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return htons(~total);
}

/* What ping of iputils does: only answers with its own identifier. */
static void raw(void)
{
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	if (fd < 0) {
		CHECK_EQ(errno, EPERM);
		return;
	}
	REQUIRE(ATTACH(fd, BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0), BPF_STMT(BPF_LD | BPF_H | BPF_IND, 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaffe, 0, 1),
		BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ICMP_ECHOREPLY, 1, 0), NONE, BPF_STMT(BPF_RET | BPF_K, 26)) == 0);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (int id = 0xaffd; id <= 0xafff; id++) {
		struct icmphdr echo = {.type = ICMP_ECHO, .un.echo.id = htons(id)};
		echo.checksum = sum(&echo, sizeof echo);
		CHECK_EQ(sendto(fd, &echo, sizeof echo, 0, (void *)&to, sizeof to), 8);
	}
	CHECK_EQ(next(fd), 26);
	CHECK_EQ(next(fd), -1);
	close(fd);
}

static void frames(int kind)
{
	int fd = socket(AF_PACKET, kind, htons(ETH_P_ALL)), ends[2];
	if (fd < 0) {
		CHECK_EQ(errno, EPERM);
		return;
	}
	struct sockaddr_ll lo = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex("lo")};
	pair(AF_INET, SOCK_DGRAM, ends);
	struct sockaddr_in addr;
	socklen_t len = sizeof addr;
	REQUIRE(getsockname(ends[0], (void *)&addr, &len) == 0);
	/* Only what comes in for the port, of which 4 bytes of content are kept. */
	int head = kind == SOCK_RAW ? 14 : 0;
	REQUIRE(ATTACH(fd, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 3, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, head + 22), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohs(addr.sin_port), 0, 1), BPF_STMT(BPF_RET | BPF_K, head + 32), NONE) == 0);
	REQUIRE(bind(fd, (void *)&lo, sizeof lo) == 0);
	CHECK_EQ(send(ends[1], "abcdefgh", 8, 0), 8);
	CHECK_EQ(next(fd), head + 32);
	CHECK_EQ(next(fd), -1);
	CHECK_EQ(next(ends[0]), 8);
	close(fd);
	close_both(ends);
}

int main(void)
{
	what_is_accepted();
	it_is_shown_and_locked();
	datagrams(AF_INET);
	datagrams(AF_INET6);
	streams();
	of_one_machine(SOCK_DGRAM);
	of_one_machine(SOCK_SEQPACKET);
	of_one_machine(SOCK_STREAM);
	of_a_closed_one(SOCK_DGRAM);
	of_a_closed_one(SOCK_SEQPACKET);
	of_a_closed_one(SOCK_STREAM);
	netlink();
	raw();
	frames(SOCK_RAW);
	frames(SOCK_DGRAM);
	return tap_done();
}
