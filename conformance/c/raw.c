/* Raw sockets and echo sockets over loopback: raw(7), icmp(7), ipv6(7), RFC 3542. They need CAP_NET_RAW. Natively a network namespace of its
 * own has net.ipv4.ping_group_range set as Docker sets it. */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef ICMP_FILTER
#define ICMP_FILTER 1
#endif

static unsigned char buffer[70000];

static void prepare(void)
{
	if (unshare(CLONE_NEWNET) != 0)
		return;
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	REQUIRE(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
	close(fd);
	fd = open("/proc/sys/net/ipv4/ping_group_range", O_WRONLY);
	REQUIRE(write(fd, "0 2147483647", 12) == 12);
	close(fd);
}

static struct sockaddr_in at(const char *ip, int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(ip) };
}

static struct sockaddr_in6 at6(const char *ip, int port)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	inet_pton(AF_INET6, ip, &address.sin6_addr);
	return address;
}

static ssize_t to(int fd, const void *data, size_t len, const char *ip)
{
	struct sockaddr_in address = at(ip, 0);
	return sendto(fd, data, len, 0, (struct sockaddr *)&address, sizeof address);
}

static ssize_t to6(int fd, const void *data, size_t len, const char *ip, int port)
{
	struct sockaddr_in6 address = at6(ip, port);
	return sendto(fd, data, len, 0, (struct sockaddr *)&address, sizeof address);
}

static ssize_t got(int fd)
{
	return recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
}

static int option(int fd, int level, int name)
{
	int value = -77;
	socklen_t len = sizeof value;
	return getsockopt(fd, level, name, &value, &len) == 0 ? value : -errno;
}

static unsigned short sum(const void *data, size_t len)
{
	const unsigned char *bytes = data;
	unsigned sum = 0;
	for (size_t i = 0; i < len; i++)
		sum += i % 2 ? bytes[i] : bytes[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum & 0xffff);
}

/* An echo request with 24 bytes. */
struct echo {
	struct icmphdr head;
	char data[16];
};

static struct echo echo(int id, int seq)
{
	struct echo out = { .head = { .type = ICMP_ECHO, .un.echo = { htons(id), htons(seq) } }, .data = "sixteen bytes.." };
	out.head.checksum = sum(&out, sizeof out);
	return out;
}

static void making(void)
{
	CHECK_ERRNO(socket(AF_INET, SOCK_RAW, 0), EPROTONOSUPPORT);
	CHECK_ERRNO(socket(AF_INET, SOCK_RAW, 300), EINVAL);
	CHECK_ERRNO(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMPV6), EPROTONOSUPPORT);
	CHECK_ERRNO(socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMP), EPROTONOSUPPORT);
	CHECK_ERRNO(socket(AF_INET, SOCK_STREAM, IPPROTO_ICMP), EPROTONOSUPPORT);
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	CHECK(fd >= 0);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_TYPE), SOCK_RAW);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_ICMP);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
	CHECK_EQ(option(fd, IPPROTO_IP, IP_HDRINCL), 0);
	CHECK_ERRNO(listen(fd, 1), EOPNOTSUPP);
	CHECK_ERRNO(accept(fd, NULL, NULL), EOPNOTSUPP);
	struct sockaddr_in name;
	socklen_t len = sizeof name;
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&name, &len), 0);
	CHECK_EQ(name.sin_addr.s_addr, 0);
	CHECK_EQ(ntohs(name.sin_port), IPPROTO_ICMP);
	CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&name, &len), ENOTCONN);
	close(fd);
	fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	CHECK_EQ(option(fd, IPPROTO_IP, IP_HDRINCL), 1);
	close(fd);
	fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_ICMPV6);
	close(fd);
	fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	CHECK(fd >= 0);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_ICMP);
	close(fd);
}

static void pinging(void)
{
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	struct echo request = echo(0x1234, 1);
	CHECK_EQ(to(fd, &request, sizeof request, "127.0.0.1"), sizeof request);
	/* The request comes by as well. */
	CHECK_EQ(got(fd), sizeof request + 20);
	CHECK_EQ(buffer[20], ICMP_ECHO);
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	CHECK_EQ(recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&from, &len), sizeof request + 20);
	struct iphdr *ip = (struct iphdr *)buffer;
	struct echo *reply = (struct echo *)(buffer + 20);
	CHECK_EQ(ip->version, 4);
	CHECK_EQ(ip->ihl, 5);
	CHECK_EQ(ntohs(ip->tot_len), sizeof request + 20);
	CHECK_EQ(ip->ttl, 64);
	CHECK_EQ(ip->protocol, IPPROTO_ICMP);
	CHECK_EQ(ip->saddr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(ip->daddr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(sum(buffer, 20), 0);
	CHECK_EQ(reply->head.type, ICMP_ECHOREPLY);
	CHECK_EQ(reply->head.code, 0);
	CHECK_EQ(reply->head.un.echo.id, htons(0x1234));
	CHECK_EQ(reply->head.un.echo.sequence, htons(1));
	CHECK_EQ(sum(reply, sizeof *reply), 0);
	CHECK_EQ(memcmp(reply->data, request.data, sizeof request.data), 0);
	CHECK_EQ(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(from.sin_port, 0);
	CHECK_ERRNO(got(fd), EAGAIN);
	/* A request with a wrong checksum stays without an answer. */
	request.head.checksum ^= 1;
	CHECK_EQ(to(fd, &request, sizeof request, "127.0.0.1"), sizeof request);
	CHECK_EQ(got(fd), sizeof request + 20);
	CHECK_ERRNO(got(fd), EAGAIN);
	request.head.checksum ^= 1;
	/* What is too short for a header reaches nobody (icmp_filter). */
	CHECK_EQ(to(fd, &request, 4, "127.0.0.1"), 4);
	CHECK_ERRNO(got(fd), EAGAIN);
	/* Filters. */
	unsigned filter = ~(1u << ICMP_ECHOREPLY);
	CHECK_EQ(setsockopt(fd, SOL_RAW, ICMP_FILTER, &filter, sizeof filter), 0);
	CHECK_EQ(option(fd, SOL_RAW, ICMP_FILTER), (int)filter);
	CHECK_EQ(to(fd, &request, sizeof request, "127.0.0.1"), sizeof request);
	CHECK_EQ(got(fd), sizeof request + 20);
	CHECK_EQ(buffer[20], ICMP_ECHOREPLY);
	CHECK_ERRNO(got(fd), EAGAIN);
	CHECK_ERRNO(send(fd, &request, sizeof request, 0), EDESTADDRREQ);
	/* Time to live and class. */
	int value = 9, on = 1;
	CHECK_EQ(setsockopt(fd, IPPROTO_IP, IP_TTL, &value, sizeof value), 0);
	value = 0x10;
	CHECK_EQ(setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof value), 0);
	filter = 0;
	setsockopt(fd, SOL_RAW, ICMP_FILTER, &filter, sizeof filter);
	CHECK_EQ(to(fd, &request, sizeof request, "127.0.0.1"), sizeof request);
	CHECK_EQ(got(fd), sizeof request + 20);
	CHECK_EQ(ip->ttl, 9);
	CHECK_EQ(ip->tos, 0x10);
	CHECK_EQ(got(fd), sizeof request + 20);
	CHECK_EQ(ip->ttl, 64);
	CHECK_EQ(ip->tos, 0x10);
	(void)on;
	close(fd);
}

static void addresses(void)
{
	int a = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), b = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	struct sockaddr_in local = at("127.0.0.2", 99), peer = at("127.0.0.3", 0), nowhere = at("203.0.113.1", 0);
	unsigned filter = ~(1u << ICMP_ECHOREPLY);
	setsockopt(a, SOL_RAW, ICMP_FILTER, &filter, sizeof filter);
	setsockopt(b, SOL_RAW, ICMP_FILTER, &filter, sizeof filter);
	CHECK_ERRNO(bind(a, (struct sockaddr *)&nowhere, sizeof nowhere), EADDRNOTAVAIL);
	CHECK_ERRNO(bind(a, (struct sockaddr *)&local, 8), EINVAL);
	CHECK_EQ(bind(a, (struct sockaddr *)&local, sizeof local), 0);
	struct sockaddr_in name;
	socklen_t len = sizeof name;
	CHECK_EQ(getsockname(a, (struct sockaddr *)&name, &len), 0);
	CHECK_EQ(name.sin_addr.s_addr, inet_addr("127.0.0.2"));
	CHECK_EQ(ntohs(name.sin_port), IPPROTO_ICMP);
	struct echo request = echo(7, 1);
	CHECK_EQ(to(a, &request, sizeof request, "127.0.0.3"), sizeof request);
	CHECK_EQ(got(a), sizeof request + 20);
	CHECK_EQ(((struct iphdr *)buffer)->saddr, inet_addr("127.0.0.3"));
	CHECK_EQ(((struct iphdr *)buffer)->daddr, inet_addr("127.0.0.2"));
	/* Every socket of the protocol gets a copy. */
	CHECK_EQ(got(b), sizeof request + 20);
	/* But not one that is bound to another address, or connected to another one. */
	CHECK_EQ(to(b, &request, sizeof request, "127.0.0.1"), sizeof request);
	CHECK_ERRNO(got(a), EAGAIN);
	CHECK_EQ(got(b), sizeof request + 20);
	CHECK_EQ(connect(b, (struct sockaddr *)&peer, sizeof peer), 0);
	CHECK_EQ(send(b, &request, sizeof request, 0), sizeof request);
	CHECK_EQ(got(b), sizeof request + 20);
	CHECK_EQ(to(a, &request, sizeof request, "127.0.0.1"), sizeof request);
	CHECK_EQ(got(a), sizeof request + 20);
	CHECK_ERRNO(got(b), EAGAIN);
	CHECK_ERRNO(bind(b, (struct sockaddr *)&local, sizeof local), EINVAL);
	CHECK_ERRNO(to(a, &request, sizeof request, "255.255.255.255"), EACCES);
	close(a);
	close(b);
}

/* Raw sockets of UDP and TCP. */
static void transports(void)
{
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_UDP), udp = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	struct sockaddr_in address = at("127.0.0.1", 0);
	socklen_t len = sizeof address;
	REQUIRE(bind(udp, (struct sockaddr *)&address, sizeof address) == 0);
	REQUIRE(getsockname(udp, (struct sockaddr *)&address, &len) == 0);
	int port = ntohs(address.sin_port);
	REQUIRE(sendto(udp, "hello", 5, 0, (struct sockaddr *)&address, sizeof address) == 5);
	CHECK_EQ(got(udp), 5);
	CHECK_EQ(got(raw), 33);
	struct udphdr *head = (struct udphdr *)(buffer + 20);
	CHECK_EQ(ntohs(head->source), port);
	CHECK_EQ(ntohs(head->dest), port);
	CHECK_EQ(ntohs(head->len), 13);
	CHECK_EQ(memcmp(buffer + 28, "hello", 5), 0);
	/* A datagram made by hand. */
	struct {
		struct udphdr head;
		char data[4];
	} made = { { { { htons(1234), htons(port), htons(12), 0 } } }, "abcd" };
	CHECK_EQ(to(raw, &made, sizeof made, "127.0.0.1"), sizeof made);
	len = sizeof address;
	CHECK_EQ(recvfrom(udp, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&address, &len), 4);
	CHECK_EQ(ntohs(address.sin_port), 1234);
	CHECK_EQ(got(raw), 32);
	/* With a wrong length it is no datagram. */
	made.head.len = htons(13);
	CHECK_EQ(to(raw, &made, sizeof made, "127.0.0.1"), sizeof made);
	CHECK_ERRNO(got(udp), EAGAIN);
	CHECK_EQ(got(raw), 32);
	/* To a port that nobody has: a report. */
	int icmp = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	made.head.len = htons(12);
	made.head.dest = htons(9);
	CHECK_EQ(to(raw, &made, sizeof made, "127.0.0.1"), sizeof made);
	CHECK(got(icmp) >= 20 + 8 + 20 + 8);
	CHECK_EQ(buffer[20], ICMP_DEST_UNREACH);
	CHECK_EQ(buffer[21], ICMP_PORT_UNREACH);
	CHECK_EQ(buffer[28 + 9], IPPROTO_UDP);
	CHECK_EQ(ntohs(((struct udphdr *)(buffer + 48))->dest), 9);
	/* A protocol that nobody has. */
	int odd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	struct {
		struct iphdr ip;
		char data[8];
	} whole = { { .ihl = 5, .version = 4, .ttl = 33, .protocol = 200, .daddr = htonl(INADDR_LOOPBACK) }, "payload" };
	CHECK_EQ(to(odd, &whole, sizeof whole, "127.0.0.1"), sizeof whole);
	CHECK(got(icmp) >= 20 + 8 + 20 + 8);
	CHECK_EQ(buffer[20], ICMP_DEST_UNREACH);
	CHECK_EQ(buffer[21], ICMP_PROT_UNREACH);
	CHECK_EQ(buffer[28 + 8], 33);
	CHECK_EQ(buffer[28 + 9], 200);
	/* And that somebody has. */
	int mine = socket(AF_INET, SOCK_RAW, 200);
	CHECK_EQ(to(odd, &whole, sizeof whole, "127.0.0.1"), sizeof whole);
	CHECK_ERRNO(got(icmp), EAGAIN);
	CHECK_EQ(got(mine), sizeof whole);
	struct iphdr *ip = (struct iphdr *)buffer;
	CHECK_EQ(ip->ttl, 33);
	CHECK_EQ(ip->saddr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(ntohs(ip->tot_len), sizeof whole);
	CHECK_EQ(sum(buffer, 20), 0);
	CHECK_EQ(memcmp(buffer + 20, "payload", 8), 0);
	CHECK_ERRNO(to(odd, &whole, 10, "127.0.0.1"), EINVAL);
	/* A socket of IPPROTO_RAW receives nothing but packets of its own number, also its own. */
	CHECK_ERRNO(got(odd), EAGAIN);
	whole.ip.protocol = IPPROTO_RAW;
	CHECK_EQ(to(odd, &whole, sizeof whole, "127.0.0.1"), sizeof whole);
	CHECK_EQ(got(odd), sizeof whole);
	CHECK_ERRNO(got(icmp), EAGAIN);
	whole.ip.protocol = 200;
	/* A header of one's own with another source. */
	CHECK_EQ(setsockopt(mine, IPPROTO_IP, IP_HDRINCL, &on, sizeof on), 0);
	whole.ip.saddr = inet_addr("127.0.0.9");
	CHECK_EQ(to(mine, &whole, sizeof whole, "127.0.0.1"), sizeof whole);
	CHECK_EQ(got(mine), sizeof whole);
	CHECK_EQ(ip->saddr, inet_addr("127.0.0.9"));
	close(mine);
	/* Segments of a connection come by. */
	int tcp = socket(AF_INET, SOCK_RAW, IPPROTO_TCP), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in closed = at("127.0.0.1", 9);
	CHECK_ERRNO(connect(client, (struct sockaddr *)&closed, sizeof closed), ECONNREFUSED);
	CHECK(got(tcp) >= 40);
	struct tcphdr *segment = (struct tcphdr *)(buffer + 20);
	CHECK_EQ(segment->syn, 1);
	CHECK_EQ(segment->ack, 0);
	CHECK_EQ(ntohs(segment->dest), 9);
	CHECK_EQ(got(tcp), 40);
	CHECK_EQ(segment->rst, 1);
	CHECK_EQ(segment->ack, 1);
	CHECK_ERRNO(got(tcp), EAGAIN);
	CHECK_ERRNO(setsockopt(tcp, SOL_RAW, ICMP_FILTER, &on, sizeof on), EOPNOTSUPP);
	CHECK_ERRNO(setsockopt(udp, IPPROTO_IP, IP_HDRINCL, &on, sizeof on), ENOPROTOOPT);
	close(raw), close(udp), close(icmp), close(odd), close(tcp), close(client);
}

static void echoes(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), other = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	struct echo request = echo(0x4321, 5);
	/* What is sent is looked at before the address. */
	struct sockaddr_in none = { .sin_family = AF_UNSPEC };
	CHECK_ERRNO(sendto(fd, &request, 0, 0, (void *)&none, sizeof none), EINVAL);
	CHECK_ERRNO(sendto(fd, &request, 0, 0, (void *)&none, 4), EINVAL);
	CHECK_ERRNO(sendto(fd, &request, sizeof request, 0, (void *)&none, sizeof none), EAFNOSUPPORT);
	CHECK_EQ(to(fd, &request, sizeof request, "127.0.0.1"), sizeof request);
	struct sockaddr_in name, from;
	socklen_t len = sizeof name, flen = sizeof from;
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&name, &len), 0);
	CHECK(name.sin_port != 0);
	/* Its own identifier, no header of IP, replies only. */
	CHECK_EQ(recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&from, &flen), sizeof request);
	struct echo *reply = (struct echo *)buffer;
	CHECK_EQ(reply->head.type, ICMP_ECHOREPLY);
	CHECK_EQ(reply->head.un.echo.id, name.sin_port);
	CHECK_EQ(reply->head.un.echo.sequence, htons(5));
	CHECK_EQ(sum(reply, sizeof *reply), 0);
	CHECK_EQ(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(from.sin_port, 0);
	CHECK_ERRNO(got(fd), EAGAIN);
	CHECK_ERRNO(got(other), EAGAIN);
	request.head.type = ICMP_ECHOREPLY;
	CHECK_ERRNO(to(fd, &request, sizeof request, "127.0.0.1"), EINVAL);
	request.head.type = ICMP_ECHO;
	request.head.code = 1;
	CHECK_ERRNO(to(fd, &request, sizeof request, "127.0.0.1"), EINVAL);
	request.head.code = 0;
	CHECK_ERRNO(to(fd, &request, 4, "127.0.0.1"), EINVAL);
	/* bind(2) chooses the identifier. */
	struct sockaddr_in local = at("127.0.0.1", 77);
	CHECK_EQ(bind(other, (struct sockaddr *)&local, sizeof local), 0);
	CHECK_EQ(to(other, &request, sizeof request, "127.0.0.1"), sizeof request);
	CHECK_EQ(got(other), sizeof request);
	CHECK_EQ(reply->head.un.echo.id, htons(77));
	int third = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	/* Such sockets share by default (INET_PROTOSW_REUSE). */
	CHECK_EQ(option(third, SOL_SOCKET, SO_REUSEADDR), 1);
	CHECK_EQ(bind(third, (struct sockaddr *)&local, sizeof local), 0);
	struct pollfd poller = { fd, POLLIN, 0 };
	CHECK_EQ(poll(&poller, 1, 0), 0);
	to(fd, &request, sizeof request, "127.0.0.1");
	CHECK_EQ(poll(&poller, 1, 1000), 1);
	close(fd), close(other), close(third);
	/* IPv6. */
	fd = socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6);
	request = echo(1, 2);
	CHECK_ERRNO(to6(fd, &request, sizeof request, "::1", 0), EINVAL);
	request.head.type = ICMP6_ECHO_REQUEST;
	CHECK_EQ(to6(fd, &request, sizeof request, "::1", 0), sizeof request);
	CHECK_EQ(got(fd), sizeof request);
	CHECK_EQ(reply->head.type, ICMP6_ECHO_REPLY);
	CHECK_EQ(reply->head.un.echo.sequence, htons(2));
	close(fd);
}

static void six(void)
{
	int fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), value;
	CHECK_EQ(option(fd, IPPROTO_IPV6, IPV6_CHECKSUM), 2);
	value = 4;
	CHECK_ERRNO(setsockopt(fd, IPPROTO_IPV6, IPV6_CHECKSUM, &value, sizeof value), EINVAL);
	struct icmp6_filter filter;
	ICMP6_FILTER_SETBLOCKALL(&filter);
	ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &filter);
	CHECK_EQ(setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter), 0);
	struct echo request = echo(0x55, 6);
	request.head.type = ICMP6_ECHO_REQUEST;
	/* The checksum is the kernel's. */
	CHECK_EQ(to6(fd, &request, sizeof request, "::1", 0), sizeof request);
	struct sockaddr_in6 from;
	socklen_t len = sizeof from;
	CHECK_EQ(recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&from, &len), sizeof request);
	CHECK_EQ(buffer[0], ICMP6_ECHO_REPLY);
	CHECK_EQ(((struct echo *)buffer)->head.un.echo.id, htons(0x55));
	CHECK_EQ(from.sin6_port, 0);
	CHECK(IN6_IS_ADDR_LOOPBACK(&from.sin6_addr));
	CHECK_ERRNO(got(fd), EAGAIN);
	CHECK_ERRNO(to6(fd, &request, sizeof request, "::1", 17), EINVAL);
	CHECK_EQ(to6(fd, &request, sizeof request, "::1", 58), sizeof request);
	close(fd);
	/* Checksums elsewhere. */
	fd = socket(AF_INET6, SOCK_RAW, 201);
	CHECK_EQ(option(fd, IPPROTO_IPV6, IPV6_CHECKSUM), -1);
	CHECK_EQ(to6(fd, "12345678", 8, "::1", 0), 8);
	CHECK_EQ(got(fd), 8);
	CHECK_EQ(memcmp(buffer, "12345678", 8), 0);
	value = 3;
	CHECK_ERRNO(setsockopt(fd, IPPROTO_IPV6, IPV6_CHECKSUM, &value, sizeof value), EINVAL);
	value = 4;
	CHECK_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_CHECKSUM, &value, sizeof value), 0);
	CHECK_EQ(option(fd, IPPROTO_IPV6, IPV6_CHECKSUM), 4);
	CHECK_EQ(to6(fd, "12345678", 8, "::1", 0), 8);
	CHECK_EQ(got(fd), 8);
	CHECK(memcmp(buffer + 4, "56", 2) != 0);
	CHECK_EQ(memcmp(buffer, "1234", 4), 0);
	CHECK_ERRNO(to6(fd, "1234", 4, "::1", 0), EINVAL);
	value = -1;
	CHECK_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_CHECKSUM, &value, sizeof value), 0);
	CHECK_EQ(option(fd, IPPROTO_IPV6, IPV6_CHECKSUM), -1);
	close(fd);
}

/* What is not received is lost when SO_RCVBUF is full. */
static void overflowing(void)
{
	int fd = socket(AF_INET, SOCK_RAW, 202), small = 0, lost = 0;
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
	for (int i = 0; i < 20; i++)
		REQUIRE(to(fd, buffer, 1000, "127.0.0.1") == 1000);
	while (got(fd) == 1020)
		lost++;
	CHECK(lost >= 1 && lost < 10);
	close(fd);
}

/* Without CAP_NET_RAW there are no raw sockets, but echo sockets. */
static void unprivileged(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
		int raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
		int status = raw == -1 && errno == EPERM;
		status += (socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6) == -1 && errno == EPERM) << 1;
		status += (socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP) >= 0) << 2;
		status += (socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6) >= 0) << 3;
		_exit(status);
	}
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 15);
}

int main(void)
{
	prepare();
	making();
	pinging();
	addresses();
	transports();
	echoes();
	six();
	overflowing();
	unprivileged();
	return tap_done();
}
