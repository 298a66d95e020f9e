/* Datagrams to several receivers, over loopback: multicast of IPv4, broadcast, and membership in groups of IPv6 (ip(7), ipv6(7), RFC 3678). */
#include "tap.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define GROUP "239.1.2.3"
#define OTHER "239.1.2.4"

static char buffer[100];

static struct sockaddr_in at(const char *ip, int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(ip) };
}

static int set(int fd, int option, const void *value, socklen_t len)
{
	return setsockopt(fd, IPPROTO_IP, option, value, len);
}

/* A socket at an address whose port several sockets share. */
static int shared(const char *ip, int port)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	struct sockaddr_in address = at(ip, port);
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
	REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	return fd;
}

static int port_of(int fd)
{
	struct sockaddr_in address;
	socklen_t len = sizeof address;
	REQUIRE(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	return ntohs(address.sin_port);
}

static ssize_t send_to(int fd, const char *ip, int port)
{
	struct sockaddr_in address = at(ip, port);
	return sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof address);
}

static int hears(int fd)
{
	int count = 0;
	while (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) >= 0)
		count++;
	return count;
}

static struct ip_mreq mreq(const char *group)
{
	return (struct ip_mreq){ { inet_addr(group) }, { htonl(INADDR_LOOPBACK) } };
}

static void membership(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
	struct ip_mreq join = mreq(GROUP), other = mreq(OTHER), none = mreq("10.0.0.1");
	CHECK_ERRNO(set(fd, IP_ADD_MEMBERSHIP, &join, 4), EINVAL);
	CHECK_ERRNO(set(fd, IP_ADD_MEMBERSHIP, &none, sizeof none), EINVAL);
	CHECK_EQ(set(fd, IP_ADD_MEMBERSHIP, &join, sizeof join), 0);
	CHECK_ERRNO(set(fd, IP_ADD_MEMBERSHIP, &join, sizeof join), EADDRINUSE);
	CHECK_ERRNO(set(fd, IP_DROP_MEMBERSHIP, &other, sizeof other), EADDRNOTAVAIL);
	CHECK_EQ(set(fd, IP_DROP_MEMBERSHIP, &join, sizeof join), 0);
	CHECK_ERRNO(set(fd, IP_DROP_MEMBERSHIP, &join, sizeof join), EADDRNOTAVAIL);
	CHECK_ERRNO(set(stream, IP_ADD_MEMBERSHIP, &join, sizeof join), EPROTO);
	/* By the number of the interface, which counts before the address. */
	struct ip_mreqn byindex = { { inet_addr(GROUP) }, { 0 }, 1 };
	CHECK_EQ(set(fd, IP_ADD_MEMBERSHIP, &byindex, sizeof byindex), 0);
	byindex.imr_ifindex = 9999;
	byindex.imr_multiaddr.s_addr = inet_addr(OTHER);
	CHECK_ERRNO(set(fd, IP_ADD_MEMBERSHIP, &byindex, sizeof byindex), ENODEV);
	join.imr_interface.s_addr = inet_addr("203.0.113.1");
	CHECK_ERRNO(set(fd, IP_ADD_MEMBERSHIP, &join, sizeof join), ENODEV);
	/* The calls that do not depend on the family. */
	struct group_req request = { .gr_interface = 1 };
	*(struct sockaddr_in *)&request.gr_group = at(OTHER, 0);
	CHECK_EQ(set(fd, MCAST_JOIN_GROUP, &request, sizeof request), 0);
	CHECK_ERRNO(set(fd, MCAST_JOIN_GROUP, &request, sizeof request), EADDRINUSE);
	CHECK_ERRNO(set(fd, MCAST_JOIN_GROUP, &request, 100), EINVAL);
	CHECK_EQ(set(fd, MCAST_LEAVE_GROUP, &request, sizeof request), 0);
	request.gr_group.ss_family = AF_INET6;
	CHECK_ERRNO(set(fd, MCAST_JOIN_GROUP, &request, sizeof request), EINVAL);
	/* net.ipv4.igmp_max_memberships */
	int joined = 1, error = 0;
	for (int i = 0; i < 30 && !error; i++) {
		struct ip_mreq many = mreq("239.9.9.0");
		many.imr_multiaddr.s_addr = htonl(ntohl(many.imr_multiaddr.s_addr) + i);
		if (set(fd, IP_ADD_MEMBERSHIP, &many, sizeof many) == 0)
			joined++;
		else
			error = errno;
	}
	CHECK_EQ(joined, 20);
	CHECK_EQ(error, ENOBUFS);
	close(fd), close(stream);
}

/* IP_MULTICAST_IF, IP_MULTICAST_TTL, IP_MULTICAST_LOOP */
static void options(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
	struct in_addr address, loopback = { htonl(INADDR_LOOPBACK) }, strange = { inet_addr("203.0.113.1") };
	socklen_t len = sizeof address;
	CHECK(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &address, &len) == 0 && address.s_addr == 0 && len == 4);
	CHECK_EQ(set(fd, IP_MULTICAST_IF, &loopback, sizeof loopback), 0);
	CHECK(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &address, &len) == 0 && address.s_addr == loopback.s_addr);
	CHECK_ERRNO(set(fd, IP_MULTICAST_IF, &strange, sizeof strange), EADDRNOTAVAIL);
	CHECK_ERRNO(set(fd, IP_MULTICAST_IF, &loopback, 2), EINVAL);
	CHECK_ERRNO(set(stream, IP_MULTICAST_IF, &loopback, sizeof loopback), EINVAL);
	int number = 256;
	CHECK_ERRNO(set(fd, IP_MULTICAST_TTL, &number, sizeof number), EINVAL);
	number = 7;
	CHECK_EQ(set(fd, IP_MULTICAST_TTL, &number, sizeof number), 0);
	unsigned char byte;
	len = 1;
	CHECK(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &byte, &len) == 0 && byte == 7 && len == 1);
	close(fd), close(stream);
}

/* Who gets a datagram to a group. */
static void multicast(void)
{
	struct in_addr loopback = { htonl(INADDR_LOOPBACK) };
	struct ip_mreq join = mreq(GROUP);
	int member = shared("0.0.0.0", 0), port = port_of(member), off = 0, on = 1;
	int bound = shared(GROUP, port), stranger = shared(OTHER, port), listener = shared("0.0.0.0", port);
	int quiet = shared("0.0.0.0", port), single = shared("127.0.0.1", port), sender = socket(AF_INET, SOCK_DGRAM, 0);
	REQUIRE(set(sender, IP_MULTICAST_IF, &loopback, sizeof loopback) == 0);
	REQUIRE(set(quiet, IP_MULTICAST_ALL, &off, sizeof off) == 0);
	/* Nobody is in the group: it is lost without a word. */
	CHECK_EQ(send_to(sender, GROUP, port), 1);
	CHECK_EQ(hears(bound) + hears(member) + hears(listener), 0);
	REQUIRE(set(member, IP_ADD_MEMBERSHIP, &join, sizeof join) == 0);
	CHECK_EQ(send_to(sender, GROUP, port), 1);
	CHECK_EQ(send_to(sender, GROUP, port), 1);
	CHECK_EQ(hears(member), 2);
	CHECK_EQ(hears(bound), 2);
	/* "IP_MULTICAST_ALL": without it a socket hears only the groups that it has joined itself. */
	CHECK_EQ(hears(listener), 2);
	CHECK_EQ(hears(quiet), 0);
	CHECK_EQ(hears(stranger), 0);
	CHECK_EQ(hears(single), 0);
	/* The group is the destination, and the sender's address is that of the interface. */
	REQUIRE(set(member, IP_PKTINFO, &on, sizeof on) == 0);
	REQUIRE(set(member, IP_RECVTTL, &on, sizeof on) == 0);
	send_to(sender, GROUP, port);
	char control[200];
	struct sockaddr_in from;
	struct iovec part = { buffer, sizeof buffer };
	struct msghdr message = { &from, sizeof from, &part, 1, control, sizeof control, 0 };
	REQUIRE(recvmsg(member, &message, MSG_DONTWAIT) == 1);
	CHECK(ntohl(from.sin_addr.s_addr) == INADDR_LOOPBACK && ntohs(from.sin_port) == port_of(sender));
	struct cmsghdr *first = CMSG_FIRSTHDR(&message);
	const struct in_pktinfo *info = (const void *)CMSG_DATA(first);
	CHECK(info->ipi_ifindex == 1 && info->ipi_addr.s_addr == inet_addr(GROUP) &&
	      ntohl(info->ipi_spec_dst.s_addr) == INADDR_LOOPBACK);
	CHECK_EQ(*(int *)CMSG_DATA(CMSG_NXTHDR(&message, first)), 1);
	/* On loopback all comes back. */
	REQUIRE(set(sender, IP_MULTICAST_LOOP, &off, sizeof off) == 0);
	send_to(sender, GROUP, port);
	CHECK_EQ(hears(member), 1);
	/* Connected to a group: sent there, heard only from there, which nothing comes from. */
	struct sockaddr_in group = at(GROUP, port);
	CHECK_EQ(connect(sender, (struct sockaddr *)&group, sizeof group), 0);
	CHECK_EQ(send(sender, "x", 1, 0), 1);
	CHECK_EQ(hears(member), 1);
	struct pollfd wait = { member, POLLIN, 0 };
	send(sender, "x", 1, 0);
	CHECK(poll(&wait, 1, 1000) == 1 && wait.revents == POLLIN);
	REQUIRE(set(member, IP_DROP_MEMBERSHIP, &join, sizeof join) == 0);
	CHECK_EQ(hears(member), 1);
	CHECK_EQ(send(sender, "x", 1, 0), 1);
	CHECK_EQ(hears(member) + hears(single), 0);
	/* A connection to a group there is not. */
	int stream = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(connect(stream, (struct sockaddr *)&group, sizeof group), ENETUNREACH);
	close(member), close(bound), close(stranger), close(listener), close(quiet), close(single), close(sender), close(stream);
}

/* ip(7): broadcast needs SO_BROADCAST. 127.255.255.255 is the broadcast address of loopback. */
static void broadcast(void)
{
	int one = shared("0.0.0.0", 0), port = port_of(one), two = shared("127.255.255.255", port), on = 1;
	int single = shared("127.0.0.1", port), sender = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK_ERRNO(send_to(sender, "127.255.255.255", port), EACCES);
	struct sockaddr_in all = at("127.255.255.255", port);
	CHECK_ERRNO(connect(sender, (struct sockaddr *)&all, sizeof all), EACCES);
	REQUIRE(setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
	CHECK_EQ(send_to(sender, "127.255.255.255", port), 1);
	CHECK_EQ(hears(one), 1);
	CHECK_EQ(hears(two), 1);
	CHECK_EQ(hears(single), 0);
	CHECK_EQ(connect(sender, (struct sockaddr *)&all, sizeof all), 0);
	CHECK_EQ(send(sender, "x", 1, 0), 1);
	CHECK_EQ(hears(one), 1);
	/* One that is bound there can send as any other. */
	CHECK_EQ(send_to(two, "127.0.0.1", port_of(sender)), 1);
	close(one), close(two), close(single), close(sender);
}

static void multicast6(void)
{
	int member = socket(AF_INET6, SOCK_DGRAM, 0), sender = socket(AF_INET6, SOCK_DGRAM, 0), index = 1, none = 9999;
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 }, group = any;
	socklen_t len = sizeof any;
	REQUIRE(bind(member, (struct sockaddr *)&any, sizeof any) == 0);
	REQUIRE(getsockname(member, (struct sockaddr *)&any, &len) == 0);
	struct ipv6_mreq join = { .ipv6mr_interface = 1 };
	inet_pton(AF_INET6, "ff02::1234", &join.ipv6mr_multiaddr);
	group.sin6_addr = join.ipv6mr_multiaddr;
	group.sin6_port = any.sin6_port;
	CHECK_EQ(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join), 0);
	CHECK_ERRNO(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join), EADDRINUSE);
	CHECK_ERRNO(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, 16), EINVAL);
	struct ipv6_mreq wrong = { .ipv6mr_interface = 9999, .ipv6mr_multiaddr = join.ipv6mr_multiaddr };
	CHECK_ERRNO(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &wrong, sizeof wrong), ENODEV);
	wrong = (struct ipv6_mreq){ .ipv6mr_interface = 1, .ipv6mr_multiaddr = IN6ADDR_LOOPBACK_INIT };
	CHECK_ERRNO(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &wrong, sizeof wrong), EINVAL);
	CHECK_ERRNO(setsockopt(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, &none, sizeof none), ENODEV);
	CHECK_EQ(setsockopt(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index), 0);
	/* Loopback has no route to groups of IPv6, whether it is named by the option or by the address. */
	CHECK_ERRNO(sendto(sender, "x", 1, 0, (struct sockaddr *)&group, sizeof group), ENETUNREACH);
	int other = socket(AF_INET6, SOCK_DGRAM, 0);
	group.sin6_scope_id = 1;
	CHECK_ERRNO(sendto(other, "x", 1, 0, (struct sockaddr *)&group, sizeof group), ENETUNREACH);
	CHECK_EQ(setsockopt(member, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &join, sizeof join), 0);
	CHECK_ERRNO(setsockopt(member, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &join, sizeof join), EADDRNOTAVAIL);
	close(member), close(sender), close(other);
}

/* Filters by source (RFC 3678, ip(7)). */
static void sources(void)
{
	int fd = shared("0.0.0.0", 0), from = socket(AF_INET, SOCK_DGRAM, 0), port = port_of(fd);
	struct sockaddr_in one = at("127.0.0.1", 0);
	REQUIRE(bind(from, (struct sockaddr *)&one, sizeof one) == 0);
	struct in_addr lo = { htonl(INADDR_LOOPBACK) };
	REQUIRE(set(from, IP_MULTICAST_IF, &lo, sizeof lo) == 0);
	struct ip_mreq_source mine = { .imr_multiaddr.s_addr = inet_addr(GROUP), .imr_interface = lo, .imr_sourceaddr = lo };
	struct ip_mreq_source other = mine, none = mine;
	other.imr_sourceaddr.s_addr = inet_addr("127.0.0.5");
	none.imr_multiaddr.s_addr = inet_addr("10.0.0.1");
	struct ip_mreq whole = mreq(GROUP);
	CHECK_ERRNO(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, 8), EINVAL);
	CHECK_ERRNO(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &none, sizeof none), EINVAL);
	CHECK_ERRNO(set(fd, IP_DROP_SOURCE_MEMBERSHIP, &mine, sizeof mine), EINVAL);
	CHECK_ERRNO(set(fd, IP_BLOCK_SOURCE, &mine, sizeof mine), EINVAL);
	CHECK_EQ(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &other, sizeof other), 0);
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 0);
	CHECK_ERRNO(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &other, sizeof other), EADDRNOTAVAIL);
	CHECK_EQ(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, sizeof mine), 0);
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 1);
	CHECK_ERRNO(set(fd, IP_BLOCK_SOURCE, &mine, sizeof mine), EINVAL);
	CHECK_EQ(set(fd, IP_DROP_SOURCE_MEMBERSHIP, &mine, sizeof mine), 0);
	CHECK_ERRNO(set(fd, IP_DROP_SOURCE_MEMBERSHIP, &mine, sizeof mine), EADDRNOTAVAIL);
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 0);
	/* With the last source the membership ends. */
	CHECK_EQ(set(fd, IP_DROP_SOURCE_MEMBERSHIP, &other, sizeof other), 0);
	CHECK_ERRNO(set(fd, IP_DROP_MEMBERSHIP, &whole, sizeof whole), EADDRNOTAVAIL);
	/* A whole group but for some sources. */
	CHECK_EQ(set(fd, IP_ADD_MEMBERSHIP, &whole, sizeof whole), 0);
	CHECK_ERRNO(set(fd, IP_UNBLOCK_SOURCE, &mine, sizeof mine), EADDRNOTAVAIL);
	CHECK_EQ(set(fd, IP_BLOCK_SOURCE, &mine, sizeof mine), 0);
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 0);
	CHECK_ERRNO(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, sizeof mine), EINVAL);
	CHECK_EQ(set(fd, IP_UNBLOCK_SOURCE, &mine, sizeof mine), 0);
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 1);
	CHECK_EQ(set(fd, IP_DROP_MEMBERSHIP, &whole, sizeof whole), 0);
	/* The same by addresses of any family. */
	struct group_source_req request = { .gsr_interface = 1 };
	struct sockaddr_in group = at(GROUP, 0), source = at("127.0.0.1", 0);
	memcpy(&request.gsr_group, &group, sizeof group);
	memcpy(&request.gsr_source, &source, sizeof source);
	CHECK_ERRNO(set(fd, MCAST_JOIN_SOURCE_GROUP, &request, 100), EINVAL);
	CHECK_EQ(set(fd, MCAST_JOIN_SOURCE_GROUP, &request, sizeof request), 0);
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 1);
	CHECK_EQ(set(fd, MCAST_LEAVE_SOURCE_GROUP, &request, sizeof request), 0);
	CHECK_ERRNO(set(fd, MCAST_LEAVE_SOURCE_GROUP, &request, sizeof request), EINVAL);
	/* Eleven sources are one too many (net.ipv4.igmp_max_msf). */
	for (int i = 0; i < 10; i++) {
		mine.imr_sourceaddr.s_addr = htonl(0x7f000101 + i);
		REQUIRE(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, sizeof mine) == 0);
	}
	mine.imr_sourceaddr.s_addr = htonl(0x7f000201);
	CHECK_ERRNO(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, sizeof mine), ENOBUFS);
	close(fd), close(from);
}

/*
 * The options of RFC 3678 do not ask whether a socket is a stream, unlike those before them. What accept(2) gives is in none of the
 * groups of the listener.
 */
static void streams(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
	struct group_req join = { if_nametoindex("lo"), { 0 } };
	struct group_source_req source = { .gsr_interface = join.gr_interface };
	struct sockaddr_in address = at("127.0.0.1", 0);
	struct sockaddr_in6 group6 = { .sin6_family = AF_INET6 };
	socklen_t length = sizeof address;
	REQUIRE(l >= 0 && c >= 0 && six >= 0);
	*(struct sockaddr_in *)&join.gr_group = *(struct sockaddr_in *)&source.gsr_group = at(GROUP, 0);
	*(struct sockaddr_in *)&source.gsr_source = at("127.0.0.1", 0);
	REQUIRE(bind(l, (struct sockaddr *)&address, sizeof address) == 0 && listen(l, 1) == 0);
	CHECK_EQ(set(l, MCAST_JOIN_GROUP, &join, sizeof join), 0);
	CHECK_ERRNO(set(l, MCAST_JOIN_GROUP, &join, sizeof join), EADDRINUSE);
	CHECK_ERRNO(set(c, MCAST_LEAVE_GROUP, &join, sizeof join), EADDRNOTAVAIL);
	REQUIRE(getsockname(l, (struct sockaddr *)&address, &length) == 0);
	REQUIRE(connect(c, (struct sockaddr *)&address, sizeof address) == 0);
	int accepted = accept(l, NULL, NULL);
	CHECK_ERRNO(set(accepted, MCAST_LEAVE_GROUP, &join, sizeof join), EADDRNOTAVAIL);
	CHECK_EQ(set(l, MCAST_LEAVE_GROUP, &join, sizeof join), 0);
	CHECK_EQ(set(c, MCAST_JOIN_SOURCE_GROUP, &source, sizeof source), 0);
	CHECK_ERRNO(set(c, MCAST_JOIN_SOURCE_GROUP, &source, sizeof source), EADDRNOTAVAIL);
	CHECK_EQ(set(c, MCAST_LEAVE_SOURCE_GROUP, &source, sizeof source), 0);
	REQUIRE(inet_pton(AF_INET6, "ff02::1:5", &group6.sin6_addr) == 1);
	*(struct sockaddr_in6 *)&join.gr_group = group6;
	CHECK_EQ(setsockopt(six, IPPROTO_IPV6, MCAST_JOIN_GROUP, &join, sizeof join), 0);
	CHECK_EQ(setsockopt(six, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &join, sizeof join), 0);
	CHECK_ERRNO(setsockopt(six, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &join, sizeof join), EADDRNOTAVAIL);
	close(l), close(c), close(six), close(accepted);
}

/* All sources of a group at once: IP_MSFILTER, MCAST_MSFILTER. */
static union {
	struct ip_msfilter ip;
	struct group_filter any;
	char bytes[30000];
} filter;

static int set_filter(int fd, uint32_t mode, uint32_t count, socklen_t len)
{
	filter.ip.imsf_multiaddr.s_addr = inet_addr(GROUP);
	filter.ip.imsf_interface.s_addr = htonl(INADDR_LOOPBACK);
	filter.ip.imsf_fmode = mode;
	filter.ip.imsf_numsrc = count;
	for (uint32_t i = 0; i < count && i < 20; i++)
		filter.ip.imsf_slist[i].s_addr = htonl(INADDR_LOOPBACK + i);
	return set(fd, IP_MSFILTER, &filter, len);
}

static int get_filter(int fd, uint32_t room, socklen_t *len)
{
	memset(&filter, 0, sizeof filter);
	filter.ip.imsf_multiaddr.s_addr = inet_addr(GROUP);
	filter.ip.imsf_interface.s_addr = htonl(INADDR_LOOPBACK);
	filter.ip.imsf_numsrc = room;
	return getsockopt(fd, IPPROTO_IP, IP_MSFILTER, &filter, len);
}

static void filters(void)
{
	int fd = shared("0.0.0.0", 0), from = socket(AF_INET, SOCK_DGRAM, 0), port = port_of(fd);
	struct ip_mreq whole = mreq(GROUP);
	struct in_addr lo = { htonl(INADDR_LOOPBACK) };
	struct ip_mreq_source mine = { .imr_multiaddr.s_addr = inet_addr(GROUP), .imr_interface = lo, .imr_sourceaddr = lo };
	struct sockaddr_in one = at("127.0.0.1", 0);
	REQUIRE(bind(from, (struct sockaddr *)&one, sizeof one) == 0);
	REQUIRE(set(from, IP_MULTICAST_IF, &lo, sizeof lo) == 0);
	socklen_t len = sizeof filter;
	CHECK_ERRNO(set_filter(fd, MCAST_INCLUDE, 0, 15), EINVAL);
	CHECK_ERRNO(set_filter(fd, MCAST_INCLUDE, 0, 200000), ENOBUFS);
	CHECK_ERRNO(set_filter(fd, MCAST_INCLUDE, 11, 60), ENOBUFS);
	CHECK_ERRNO(set_filter(fd, MCAST_INCLUDE, 2, 23), EINVAL);
	CHECK_ERRNO(set_filter(fd, 2, 1, 20), EINVAL);
	CHECK_ERRNO(set(fd, IP_MSFILTER, BAD, 20), EFAULT);
	CHECK_ERRNO(set_filter(fd, MCAST_INCLUDE, 1, 20), EINVAL);
	CHECK_ERRNO(set_filter(fd, MCAST_INCLUDE, 0, 16), EADDRNOTAVAIL);
	CHECK_ERRNO(get_filter(fd, 5, &len), EADDRNOTAVAIL);
	REQUIRE(set(fd, IP_ADD_MEMBERSHIP, &whole, sizeof whole) == 0);
	CHECK_OK(get_filter(fd, 5, &len));
	CHECK(len == 16 && filter.ip.imsf_fmode == MCAST_EXCLUDE && filter.ip.imsf_numsrc == 0);
	CHECK_OK(set_filter(fd, MCAST_EXCLUDE, 3, 28));
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 0);
	CHECK_OK(set_filter(fd, MCAST_INCLUDE, 3, 40));
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 1);
	/* As many as there is said to be room for, whatever the length is. */
	len = 16;
	CHECK_OK(get_filter(fd, 2, &len));
	CHECK(len == 24 && filter.ip.imsf_fmode == MCAST_INCLUDE && filter.ip.imsf_numsrc == 3);
	CHECK(filter.ip.imsf_slist[1].s_addr == htonl(INADDR_LOOPBACK + 1) && filter.ip.imsf_slist[2].s_addr == 0);
	len = 15;
	CHECK_ERRNO(get_filter(fd, 2, &len), EINVAL);
	/* A filter that is emptied keeps its way, one that is set empty does not. */
	CHECK_OK(set_filter(fd, MCAST_EXCLUDE, 1, 20));
	CHECK_OK(set(fd, IP_UNBLOCK_SOURCE, &mine, sizeof mine));
	CHECK_ERRNO(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, sizeof mine), EINVAL);
	CHECK_OK(set_filter(fd, MCAST_EXCLUDE, 0, 16));
	CHECK_OK(set(fd, IP_ADD_SOURCE_MEMBERSHIP, &mine, sizeof mine));
	/* To hear nobody is to leave. */
	CHECK_OK(set_filter(fd, MCAST_INCLUDE, 0, 16));
	CHECK_ERRNO(set(fd, IP_DROP_MEMBERSHIP, &whole, sizeof whole), EADDRNOTAVAIL);
	filter.ip.imsf_multiaddr.s_addr = inet_addr("10.0.0.1");
	CHECK_ERRNO(set(fd, IP_MSFILTER, &filter, 16), EINVAL);
	len = sizeof filter;
	CHECK_ERRNO(getsockopt(fd, IPPROTO_IP, IP_MSFILTER, &filter, &len), EINVAL);
	set_filter(fd, MCAST_EXCLUDE, 0, 16);
	filter.ip.imsf_interface.s_addr = inet_addr("203.0.113.7");
	CHECK_ERRNO(set(fd, IP_MSFILTER, &filter, 16), ENODEV);

	/* The same by addresses of any family; whose length is counted in struct sockaddr_storage. */
	struct sockaddr_in *group = (struct sockaddr_in *)&filter.any.gf_group, *source = (struct sockaddr_in *)filter.any.gf_slist;
	REQUIRE(set(fd, IP_ADD_MEMBERSHIP, &whole, sizeof whole) == 0);
	memset(&filter, 0, sizeof filter);
	filter.any.gf_interface = if_nametoindex("lo");
	filter.any.gf_fmode = MCAST_INCLUDE;
	filter.any.gf_numsrc = 1;
	CHECK_ERRNO(set(fd, MCAST_MSFILTER, &filter, 272), EADDRNOTAVAIL);
	*group = at(GROUP, 0);
	CHECK_ERRNO(set(fd, MCAST_MSFILTER, &filter, 272), EADDRNOTAVAIL);
	*source = at("127.0.0.1", 0);
	CHECK_ERRNO(set(fd, MCAST_MSFILTER, &filter, 271), EINVAL);
	CHECK_ERRNO(set(fd, MCAST_MSFILTER, &filter, 143), EINVAL);
	CHECK_OK(set(fd, MCAST_MSFILTER, &filter, 272));
	send_to(from, GROUP, port);
	CHECK_EQ(hears(fd), 1);
	memset(source, 0xff, 128);
	filter.any.gf_numsrc = 7;
	len = 144;
	CHECK_OK(getsockopt(fd, IPPROTO_IP, MCAST_MSFILTER, &filter, &len));
	CHECK(len == 272 && filter.any.gf_fmode == MCAST_INCLUDE && filter.any.gf_numsrc == 1);
	CHECK(source->sin_family == AF_INET && source->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && filter.bytes[271] == 0);
	filter.any.gf_interface = 0;
	CHECK_ERRNO(getsockopt(fd, IPPROTO_IP, MCAST_MSFILTER, &filter, &len), EADDRNOTAVAIL);
	group->sin_family = AF_INET6;
	CHECK_ERRNO(getsockopt(fd, IPPROTO_IP, MCAST_MSFILTER, &filter, &len), EINVAL);
	close(fd), close(from);
}

static void filters6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), lo = if_nametoindex("lo");
	struct sockaddr_in6 *group = (struct sockaddr_in6 *)&filter.any.gf_group, *source = (struct sockaddr_in6 *)filter.any.gf_slist;
	struct group_req join = { lo, { 0 } };
	socklen_t len = 400;
	memset(&filter, 0, sizeof filter);
	group->sin6_family = AF_INET6;
	REQUIRE(inet_pton(AF_INET6, "ff02::1:7", &group->sin6_addr) == 1);
	memcpy(&join.gr_group, group, sizeof *group);
	filter.any.gf_interface = lo;
	filter.any.gf_fmode = MCAST_EXCLUDE;
	filter.any.gf_numsrc = 1;
	source->sin6_addr = in6addr_loopback;
	CHECK_ERRNO(setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, 272), EINVAL);
	CHECK_ERRNO(getsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, &len), EADDRNOTAVAIL);
	REQUIRE(setsockopt(fd, IPPROTO_IPV6, MCAST_JOIN_GROUP, &join, sizeof join) == 0);
	/* The families of sources are not looked at. */
	CHECK_OK(setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, 272));
	filter.any.gf_numsrc = 65;
	CHECK_ERRNO(setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, 10000), ENOBUFS);
	filter.any.gf_numsrc = 2;
	CHECK_OK(getsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, &len));
	CHECK(len == 272 && filter.any.gf_numsrc == 1 && source->sin6_family == AF_INET6);
	CHECK(!memcmp(&source->sin6_addr, &in6addr_loopback, 16));
	filter.any.gf_interface = 0;
	CHECK_ERRNO(getsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, &len), EADDRNOTAVAIL);
	filter.any.gf_interface = 12345;
	CHECK_ERRNO(setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, 272), ENODEV);
	filter.any.gf_interface = lo;
	filter.any.gf_fmode = MCAST_INCLUDE;
	filter.any.gf_numsrc = 0;
	CHECK_OK(setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, 144));
	CHECK_ERRNO(setsockopt(fd, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &join, sizeof join), EADDRNOTAVAIL);
	group->sin6_family = AF_INET;
	CHECK_ERRNO(getsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, &len), EADDRNOTAVAIL);
	close(fd);
}

int main(void)
{
	membership();
	options();
	multicast();
	broadcast();
	multicast6();
	sources();
	streams();
	filters();
	filters6();
	return tap_done();
}
