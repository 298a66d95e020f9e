/* Netlink sockets and what NETLINK_ROUTE tells (netlink(7), rtnetlink(7)). */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

static char room[65536];

static int open_route(int flags)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | flags, NETLINK_ROUTE);
	REQUIRE(fd >= 0);
	return fd;
}

/* Sends a request with a family's header of so many bytes, of which the first is the family. */
static ssize_t ask(int fd, int type, int flags, int family, int length)
{
	struct {
		struct nlmsghdr head;
		unsigned char payload[64];
	} request = { .head = { NLMSG_LENGTH(length), type, NLM_F_REQUEST | flags, 77, 0 } };
	request.payload[0] = family;
	return send(fd, &request, request.head.nlmsg_len, 0);
}

/* The error of an NLMSG_ERROR or NLMSG_DONE; 1 for another message, 2 for none. */
static int outcome(int fd)
{
	ssize_t got = recv(fd, room, sizeof room, MSG_DONTWAIT);
	struct nlmsghdr *head = (struct nlmsghdr *)room;
	if (got < (ssize_t)sizeof *head)
		return 2;
	if (head->nlmsg_type != NLMSG_ERROR && head->nlmsg_type != NLMSG_DONE)
		return 1;
	return *(int *)NLMSG_DATA(head);
}

typedef void each(struct nlmsghdr *head);

/* Receives a whole dump: the number of messages, or the error of its end. */
static int dump(int fd, each *look)
{
	int count = 0;
	for (;;) {
		ssize_t got = recv(fd, room, sizeof room, 0);
		REQUIRE(got > 0);
		unsigned left = got;
		for (struct nlmsghdr *head = (void *)room; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
			if (head->nlmsg_type == NLMSG_DONE) {
				int error = *(int *)NLMSG_DATA(head);
				return error ? error : count;
			}
			REQUIRE(head->nlmsg_flags & NLM_F_MULTI);
			REQUIRE(head->nlmsg_seq == 77);
			count++;
			if (look)
				look(head);
		}
	}
}

static void kinds(void)
{
	CHECK_ERRNO(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE), ESOCKTNOSUPPORT);
	CHECK_ERRNO(socket(AF_NETLINK, SOCK_RAW, 32), EPROTONOSUPPORT);
	CHECK_ERRNO(socket(AF_NETLINK, SOCK_RAW, -1), EPROTONOSUPPORT);
	int pair[2];
	CHECK_ERRNO(socketpair(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, pair), EOPNOTSUPP);
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_ROUTE);
	CHECK(fd >= 0);
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode));
	int value = -1;
	socklen_t length = sizeof value;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_NETLINK);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_DGRAM);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == NETLINK_ROUTE);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
	CHECK_ERRNO(listen(fd, 1), EOPNOTSUPP);
	CHECK_ERRNO(accept(fd, NULL, NULL), EOPNOTSUPP);
	CHECK_ERRNO(shutdown(fd, SHUT_RDWR), EOPNOTSUPP);
	CHECK_ERRNO(ioctl(fd, FIONREAD, &value), ENOTTY);
	struct ifreq named = { .ifr_name = "lo" };
	CHECK(ioctl(fd, SIOCGIFINDEX, &named) == 0 && named.ifr_ifindex == 1);
	/* The name takes the place of the one that was there; all else of the request stays. */
	memset(named.ifr_name, 'x', sizeof named.ifr_name);
	CHECK(ioctl(fd, SIOCGIFNAME, &named) == 0 && memcmp(named.ifr_name, "lo\0xx", 5) == 0 && named.ifr_ifindex == 1);
	CHECK_ERRNO(recv(fd, room, 1, MSG_OOB), EOPNOTSUPP);
	CHECK_ERRNO(send(fd, room, 1, MSG_OOB), EOPNOTSUPP);
	CHECK_ERRNO(recv(fd, room, 1, MSG_DONTWAIT), EAGAIN);
	struct pollfd set = { fd, POLLIN | POLLOUT, 0 };
	CHECK(poll(&set, 1, 0) == 1 && set.revents == POLLOUT);
	close(fd);
}

static void names(void)
{
	int a = open_route(0), b = open_route(0), c = open_route(0);
	struct sockaddr_nl name = { .nl_family = AF_NETLINK }, got = { 0 };
	socklen_t length = sizeof got;
	CHECK(getsockname(a, (void *)&got, &length) == 0 && got.nl_family == AF_NETLINK && got.nl_pid == 0);
	CHECK_EQ(length, sizeof got);
	CHECK_ERRNO(bind(a, (void *)&name, sizeof name - 1), EINVAL);
	name.nl_family = AF_INET;
	CHECK_ERRNO(bind(a, (void *)&name, sizeof name), EINVAL);
	name.nl_family = AF_NETLINK;
	CHECK(bind(a, (void *)&name, sizeof name) == 0);
	CHECK(getsockname(a, (void *)&got, &length) == 0 && got.nl_pid == (unsigned)getpid() && got.nl_groups == 0);
	CHECK(bind(b, (void *)&name, sizeof name) == 0);
	CHECK(getsockname(b, (void *)&got, &length) == 0 && (int)got.nl_pid < -4096);
	name.nl_pid = getpid();
	CHECK_ERRNO(bind(c, (void *)&name, sizeof name), EADDRINUSE);
	CHECK_ERRNO(bind(b, (void *)&name, sizeof name), EINVAL);
	name.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR;
	CHECK(bind(a, (void *)&name, sizeof name) == 0);
	CHECK(getsockname(a, (void *)&got, &length) == 0 && got.nl_groups == (RTMGRP_LINK | RTMGRP_IPV4_IFADDR));
	CHECK(getpeername(a, (void *)&got, &length) == 0 && got.nl_pid == 0 && got.nl_groups == 0);
	name = (struct sockaddr_nl){ .nl_family = AF_NETLINK };
	CHECK(connect(c, (void *)&name, sizeof name) == 0);
	CHECK(getsockname(c, (void *)&got, &length) == 0 && got.nl_pid != 0);
	int group = RTNLGRP_IPV6_ROUTE;
	CHECK(setsockopt(c, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) == 0);
	CHECK(getsockname(c, (void *)&got, &length) == 0 && got.nl_groups == 1u << (RTNLGRP_IPV6_ROUTE - 1));
	CHECK(setsockopt(c, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group) == 0);
	CHECK(getsockname(c, (void *)&got, &length) == 0 && got.nl_groups == 0);
	group = 0;
	CHECK_ERRNO(setsockopt(c, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group), EINVAL);
	group = 1000;
	CHECK_ERRNO(setsockopt(c, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group), EINVAL);
	close(a);
	close(b);
	close(c);
}

static void options(void)
{
	int fd = open_route(0);
	int options[] = { NETLINK_PKTINFO, NETLINK_BROADCAST_ERROR, NETLINK_NO_ENOBUFS, NETLINK_CAP_ACK, NETLINK_EXT_ACK,
			  NETLINK_GET_STRICT_CHK };
	for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
		int value = 5;
		socklen_t length = sizeof value;
		CHECK(getsockopt(fd, SOL_NETLINK, options[i], &value, &length) == 0 && value == 0);
		value = 5;
		CHECK(setsockopt(fd, SOL_NETLINK, options[i], &value, sizeof value) == 0);
		CHECK(getsockopt(fd, SOL_NETLINK, options[i], &value, &length) == 0 && value == 1);
		/* Without a whole number it is taken for 0. */
		CHECK(setsockopt(fd, SOL_NETLINK, options[i], &value, 3) == 0);
		CHECK(getsockopt(fd, SOL_NETLINK, options[i], &value, &length) == 0 && value == 0);
	}
	int value = 0;
	socklen_t length = sizeof value;
	CHECK_ERRNO(setsockopt(fd, SOL_NETLINK, 99, &value, sizeof value), ENOPROTOOPT);
	CHECK_ERRNO(getsockopt(fd, SOL_NETLINK, 99, &value, &length), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(fd, SOL_IP, 1, &value, sizeof value), ENOPROTOOPT);
	close(fd);
}

static int loopbacks, named_lo;

static void look_link(struct nlmsghdr *head)
{
	struct ifinfomsg *info = NLMSG_DATA(head);
	int left = IFLA_PAYLOAD(head);
	REQUIRE(head->nlmsg_type == RTM_NEWLINK);
	if (info->ifi_index != 1)
		return;
	loopbacks += info->ifi_type == 772 && (info->ifi_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING)) ==
						      (IFF_UP | IFF_LOOPBACK | IFF_RUNNING);
	for (struct rtattr *at = IFLA_RTA(info); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
		named_lo += at->rta_type == IFLA_IFNAME && strcmp(RTA_DATA(at), "lo") == 0;
		named_lo += at->rta_type == IFLA_MTU && *(unsigned *)RTA_DATA(at) == 65536;
		named_lo += at->rta_type == IFLA_ADDRESS && RTA_PAYLOAD(at) == 6;
		named_lo += at->rta_type == IFLA_STATS64 && RTA_PAYLOAD(at) >= 192;
	}
}

static int addresses;

static void look_address(struct nlmsghdr *head)
{
	struct ifaddrmsg *info = NLMSG_DATA(head);
	int left = IFA_PAYLOAD(head);
	REQUIRE(head->nlmsg_type == RTM_NEWADDR);
	if (info->ifa_index != 1 || info->ifa_family != AF_INET)
		return;
	addresses += info->ifa_prefixlen == 8 && info->ifa_scope == RT_SCOPE_HOST && info->ifa_flags == IFA_F_PERMANENT;
	for (struct rtattr *at = IFA_RTA(info); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
		addresses += at->rta_type == IFA_LOCAL && *(unsigned *)RTA_DATA(at) == htonl(INADDR_LOOPBACK);
		addresses += at->rta_type == IFA_ADDRESS && *(unsigned *)RTA_DATA(at) == htonl(INADDR_LOOPBACK);
		addresses += at->rta_type == IFA_LABEL && strcmp(RTA_DATA(at), "lo") == 0;
	}
}

static int routes, families;

static void look_route(struct nlmsghdr *head)
{
	struct rtmsg *route = NLMSG_DATA(head);
	int left = RTM_PAYLOAD(head);
	REQUIRE(head->nlmsg_type == RTM_NEWROUTE);
	families |= route->rtm_family == AF_INET ? 1 : 2;
	if (route->rtm_family != AF_INET || route->rtm_type != RTN_LOCAL || route->rtm_dst_len != 8)
		return;
	routes += route->rtm_table == RT_TABLE_LOCAL && route->rtm_protocol == RTPROT_KERNEL && route->rtm_scope == RT_SCOPE_HOST;
	for (struct rtattr *at = RTM_RTA(route); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
		routes += at->rta_type == RTA_DST && *(unsigned *)RTA_DATA(at) == htonl(0x7f000000);
		routes += at->rta_type == RTA_OIF && *(unsigned *)RTA_DATA(at) == 1;
		routes += at->rta_type == RTA_PREFSRC && *(unsigned *)RTA_DATA(at) == htonl(INADDR_LOOPBACK);
	}
}

static int six, six_named, six_inside;

/* What IPv6 tells of loopback; there are counters of two kinds, as many as they say themselves. */
static void look_link6(struct nlmsghdr *head)
{
	struct ifinfomsg *link = NLMSG_DATA(head);
	int left = head->nlmsg_len - NLMSG_LENGTH(sizeof *link);
	if (link->ifi_family != AF_INET6 || link->ifi_index != 1)
		return;
	six += link->ifi_type == ARPHRD_LOOPBACK && link->ifi_flags & IFF_LOOPBACK;
	for (struct rtattr *at = IFLA_RTA(link); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
		six_named += at->rta_type == IFLA_IFNAME && strcmp(RTA_DATA(at), "lo") == 0;
		six_named += at->rta_type == IFLA_MTU && *(unsigned *)RTA_DATA(at) == 65536;
		six_named += at->rta_type == IFLA_ADDRESS && RTA_PAYLOAD(at) == 6;
		six_named += at->rta_type == IFLA_OPERSTATE && RTA_PAYLOAD(at) == 1;
		if (at->rta_type != IFLA_PROTINFO)
			continue;
		int rest = RTA_PAYLOAD(at);
		for (struct rtattr *in = RTA_DATA(at); RTA_OK(in, rest); in = RTA_NEXT(in, rest)) {
			unsigned *data = RTA_DATA(in);
			/* IFLA_INET6_FLAGS, _CONF, _STATS, _CACHEINFO, _ICMP6STATS, _TOKEN, _ADDR_GEN_MODE */
			six_inside += in->rta_type == 1 && data[0] >> 31;
			six_inside += in->rta_type == 2 && RTA_PAYLOAD(in) >= 58 * 4 && data[2] == 65536 && data[27] == -1u;
			six_inside += in->rta_type == 3 && RTA_PAYLOAD(in) == data[0] * 8;
			six_inside += in->rta_type == 5 && RTA_PAYLOAD(in) == 16 && data[0] == 65535;
			six_inside += in->rta_type == 6 && RTA_PAYLOAD(in) == data[0] * 8;
			six_inside += in->rta_type == 7 && RTA_PAYLOAD(in) == 16;
			six_inside += in->rta_type == 8 && RTA_PAYLOAD(in) == 1;
		}
	}
}

static void dumps(void)
{
	int fd = open_route(0);
	CHECK_EQ(ask(fd, RTM_GETLINK, NLM_F_DUMP, AF_UNSPEC, 16), 32);
	struct pollfd set = { fd, POLLIN, 0 };
	CHECK(poll(&set, 1, 0) == 1 && set.revents == POLLIN);
	ssize_t whole = recv(fd, room, 16, MSG_PEEK | MSG_TRUNC);
	CHECK(whole > 16 && whole % 4 == 0);
	CHECK(recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC) == whole);
	CHECK(dump(fd, look_link) >= 1);
	CHECK_EQ(loopbacks, 1);
	CHECK_EQ(named_lo, 4);
	CHECK_ERRNO(recv(fd, room, 1, MSG_DONTWAIT), EAGAIN);
	/* struct rtgenmsg is enough. */
	CHECK_EQ(ask(fd, RTM_GETLINK, NLM_F_DUMP, AF_UNSPEC, 1), 17);
	CHECK(dump(fd, NULL) >= 1);
	ask(fd, RTM_GETLINK, NLM_F_DUMP, AF_INET6, 16);
	CHECK(dump(fd, look_link6) >= 1);
	CHECK_EQ(six, 1);
	CHECK_EQ(six_named, 4);
	CHECK_EQ(six_inside, 7);
	ask(fd, RTM_GETLINK, NLM_F_DUMP, AF_BRIDGE, 16);
	CHECK(dump(fd, NULL) >= 0);
	ask(fd, RTM_GETADDR, NLM_F_DUMP, AF_UNSPEC, 8);
	CHECK(dump(fd, look_address) >= 1);
	CHECK_EQ(addresses, 4);
	addresses = 0;
	ask(fd, RTM_GETADDR, NLM_F_DUMP, AF_INET, 8);
	CHECK(dump(fd, look_address) >= 1);
	CHECK_EQ(addresses, 4);
	ask(fd, RTM_GETROUTE, NLM_F_DUMP, AF_INET, 12);
	CHECK(dump(fd, look_route) >= 3);
	CHECK_EQ(routes, 4);
	CHECK_EQ(families, 1);
	ask(fd, RTM_GETRULE, NLM_F_DUMP, AF_INET, 12);
	CHECK(dump(fd, NULL) >= 3);
	ask(fd, RTM_GETNEIGH, NLM_F_DUMP, AF_INET, 12);
	CHECK(dump(fd, NULL) >= 0);
	close(fd);
}

static void strictness(void)
{
	int fd = open_route(0), on = 1;
	REQUIRE(setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof on) == 0);
	ask(fd, RTM_GETLINK, NLM_F_DUMP, AF_UNSPEC, 1);
	CHECK_EQ(dump(fd, NULL), -EINVAL);
	ask(fd, RTM_GETLINK, NLM_F_DUMP, AF_INET6, 20);
	CHECK_EQ(dump(fd, NULL), -EINVAL);
	ask(fd, RTM_GETADDR, NLM_F_DUMP, AF_INET, 4);
	CHECK_EQ(dump(fd, NULL), -EINVAL);
	ask(fd, RTM_GETROUTE, NLM_F_DUMP, AF_INET, 4);
	CHECK_EQ(dump(fd, NULL), -EINVAL);
	struct {
		struct nlmsghdr head;
		struct ifaddrmsg info;
	} request = { { sizeof request, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 77, 0 }, { .ifa_family = AF_INET, .ifa_index = 1 } };
	addresses = 0;
	send(fd, &request, sizeof request, 0);
	CHECK_EQ(dump(fd, look_address), 1);
	CHECK_EQ(addresses, 4);
	request.info.ifa_index = 9999;
	send(fd, &request, sizeof request, 0);
	CHECK_EQ(dump(fd, NULL), -ENODEV);
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
	} of = { { sizeof of, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 77, 0 }, { .rtm_family = AF_INET, .rtm_table = RT_TABLE_LOCAL } };
	routes = 0;
	send(fd, &of, sizeof of, 0);
	CHECK(dump(fd, look_route) >= 3);
	CHECK_EQ(routes, 4);
	of.route.rtm_table = 77;
	send(fd, &of, sizeof of, 0);
	CHECK_EQ(dump(fd, NULL), -ENOENT);
	close(fd);
}

static void single(void)
{
	int fd = open_route(0);
	struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
		struct rtattr at;
		char name[16];
	} request = { { 32, RTM_GETLINK, NLM_F_REQUEST, 77, 0 }, { .ifi_index = 1 }, { 7, IFLA_IFNAME }, "lo" };
	struct nlmsghdr *head = (void *)room;
	loopbacks = named_lo = 0;
	send(fd, &request, 32, 0);
	CHECK(recv(fd, room, sizeof room, 0) > 32 && head->nlmsg_flags == 0);
	look_link(head);
	CHECK(loopbacks == 1 && named_lo == 4);
	CHECK_ERRNO(recv(fd, room, 1, MSG_DONTWAIT), EAGAIN);
	request.info.ifi_index = 0;
	request.head.nlmsg_len = 40;
	send(fd, &request, 40, 0);
	CHECK(recv(fd, room, sizeof room, 0) > 32 && head->nlmsg_type == RTM_NEWLINK);
	/* With NLM_F_ACK an acknowledgement follows. */
	request.head.nlmsg_flags |= NLM_F_ACK;
	send(fd, &request, 40, 0);
	CHECK_EQ(outcome(fd), 1);
	CHECK_EQ(outcome(fd), 0);
	strcpy(request.name, "xx");
	send(fd, &request, 40, 0);
	CHECK_EQ(outcome(fd), -ENODEV);
	CHECK(head->nlmsg_len == 36 + 24 && head->nlmsg_pid != 0);
	request.info.ifi_index = 9999;
	request.head.nlmsg_len = 32;
	send(fd, &request, 32, 0);
	CHECK_EQ(outcome(fd), -ENODEV);
	request.info.ifi_index = 0;
	send(fd, &request, 32, 0);
	CHECK_EQ(outcome(fd), -EINVAL);
	ask(fd, RTM_GETADDR, 0, AF_INET, 8);
	CHECK_EQ(outcome(fd), -EOPNOTSUPP);
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
		struct rtattr at;
		unsigned to;
	} where = { { sizeof where, RTM_GETROUTE, NLM_F_REQUEST, 77, 0 },
		    { .rtm_family = AF_INET, .rtm_dst_len = 32 },
		    { 8, RTA_DST },
		    htonl(INADDR_LOOPBACK) };
	send(fd, &where, sizeof where, 0);
	CHECK_EQ(outcome(fd), 1);
	struct rtmsg *route = NLMSG_DATA(head);
	CHECK(head->nlmsg_type == RTM_NEWROUTE && route->rtm_type == RTN_LOCAL && route->rtm_table == RT_TABLE_MAIN);
	CHECK(route->rtm_flags == (RTM_F_CLONED | 0x80000000u) && route->rtm_dst_len == 32);
	close(fd);
}

static void errors(void)
{
	int fd = open_route(0);
	struct sockaddr_nl from;
	socklen_t length = sizeof from;
	struct nlmsghdr *head = (void *)room;
	CHECK_ERRNO(send(fd, room, 0, 0), ENODATA);
	CHECK_EQ(ask(fd, 200, 0, 0, 4), 20);
	CHECK(recvfrom(fd, room, sizeof room, 0, (void *)&from, &length) == 40);
	CHECK(length == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0 && from.nl_groups == 0);
	CHECK(head->nlmsg_type == NLMSG_ERROR && head->nlmsg_seq == 77 && head->nlmsg_len == 40);
	CHECK_EQ(*(int *)NLMSG_DATA(head), -EOPNOTSUPP);
	int on = 1;
	setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
	ask(fd, 200, 0, 0, 4);
	CHECK_EQ(recv(fd, room, sizeof room, 0), 36);
	CHECK(head->nlmsg_flags & 0x100);
	/* Below NLMSG_MIN_TYPE, not a request, or without a payload: nothing, or an acknowledgement. */
	ask(fd, NLMSG_NOOP, 0, 0, 4);
	CHECK_EQ(outcome(fd), 2);
	ask(fd, NLMSG_NOOP, NLM_F_ACK, 0, 4);
	CHECK_EQ(outcome(fd), 0);
	ask(fd, RTM_GETLINK, NLM_F_ACK, 0, 0);
	CHECK_EQ(outcome(fd), 0);
	ask(fd, RTM_GETLINK, NLM_F_DUMP, 0, 0);
	CHECK_EQ(outcome(fd), 2);
	/* Garbage is taken and not answered. */
	memset(room, 0, 64);
	CHECK_EQ(send(fd, room, 64, 0), 64);
	CHECK_EQ(outcome(fd), 2);
	CHECK_EQ(send(fd, "x", 1, 0), 1);
	CHECK_EQ(outcome(fd), 2);
	struct sockaddr_nl to = { .nl_family = AF_NETLINK };
	CHECK_ERRNO(sendto(fd, room, 16, 0, (void *)&to, sizeof to - 1), EINVAL);
	to.nl_family = AF_UNIX;
	CHECK_ERRNO(sendto(fd, room, 16, 0, (void *)&to, sizeof to), EINVAL);
	CHECK_ERRNO(recv(fd, BAD, 16, MSG_DONTWAIT), EAGAIN);
	ask(fd, 200, 0, 0, 4);
	CHECK_ERRNO(recv(fd, BAD, 16, MSG_DONTWAIT), EFAULT);
	CHECK_EQ(outcome(fd), 2);
	close(fd);
}

static void credentials(void)
{
	int fd = open_route(0), on = 1;
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec vector = { room, 8 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
	ask(fd, RTM_GETADDR, NLM_F_DUMP, AF_INET, 8);
	CHECK_EQ(recvmsg(fd, &message, 0), 8);
	CHECK(message.msg_flags & MSG_TRUNC);
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	CHECK(part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS);
	struct ucred *who = (void *)CMSG_DATA(part);
	CHECK(who->pid == 0 && who->uid == 0 && who->gid == 0);
	close(fd);
}

/* Nobody but who has CAP_NET_ADMIN changes anything. */
static void rights(void)
{
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		int types[] = { RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK, RTM_NEWADDR, RTM_DELADDR, RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWNEIGH };
		if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
			_exit(50);
		int fd = open_route(0);
		for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
			ask(fd, types[i], NLM_F_ACK, AF_INET, 16);
			if (outcome(fd) != -EPERM)
				_exit(1 + i);
		}
		struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_pid = getppid() };
		if (sendto(fd, room, 16, 0, (void *)&to, sizeof to) != -1 || errno != EPERM)
			_exit(51);
		if (connect(fd, (void *)&to, sizeof to) != -1 || errno != EPERM)
			_exit(52);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

/* A wait for an answer ends with its timeout. */
static void waiting(void)
{
	int fd = open_route(0);
	struct timeval limit = { 0, 20000 };
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	CHECK_ERRNO(recv(fd, room, sizeof room, 0), EAGAIN);
	int epoll = epoll_create1(0);
	struct epoll_event event = { EPOLLIN | EPOLLET, { .fd = fd } };
	REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 0);
	ask(fd, RTM_GETADDR, NLM_F_DUMP, AF_INET, 8);
	CHECK(epoll_wait(epoll, &event, 1, 1000) == 1 && event.events == EPOLLIN);
	CHECK(dump(fd, NULL) >= 1);
	close(epoll);
	close(fd);
}

static void library(void)
{
	struct ifaddrs *list = NULL;
	int found = 0;
	CHECK(getifaddrs(&list) == 0);
	for (struct ifaddrs *at = list; at; at = at->ifa_next) {
		if (strcmp(at->ifa_name, "lo") != 0 || !at->ifa_addr)
			continue;
		found |= at->ifa_addr->sa_family == AF_PACKET;
		if (at->ifa_addr->sa_family != AF_INET)
			continue;
		struct sockaddr_in *ip = (void *)at->ifa_addr, *mask = (void *)at->ifa_netmask;
		if (ip->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && mask->sin_addr.s_addr == htonl(0xff000000))
			found |= 2;
	}
	CHECK_EQ(found, 3);
	freeifaddrs(list);
	CHECK_EQ(if_nametoindex("lo"), 1);
	struct if_nameindex *all = if_nameindex();
	CHECK(all && all[0].if_index == 1 && strcmp(all[0].if_name, "lo") == 0);
	if_freenameindex(all);
}

int main(void)
{
	kinds();
	names();
	options();
	dumps();
	strictness();
	single();
	errors();
	credentials();
	rights();
	waiting();
	library();
	return tap_done();
}
