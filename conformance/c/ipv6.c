/* Sockets of IPv6: the headers that they want to see or to send (RFC 3542, RFC 2292), and IPV6_ADDRFORM (ipv6(7)). */
#include "tap.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int set(int fd, int name, int value)
{
	return setsockopt(fd, IPPROTO_IPV6, name, &value, sizeof value);
}

static int get(int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof value;
	return getsockopt(fd, level, name, &value, &length) == 0 ? value : -errno;
}

static void headers(void)
{
	static const int flags[] = { IPV6_RECVHOPOPTS,	IPV6_RECVDSTOPTS, IPV6_RECVRTHDR,
				     IPV6_2292HOPOPTS, IPV6_2292DSTOPTS, IPV6_2292RTHDR };
	static const int sticky[] = { IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_RTHDR, IPV6_DSTOPTS };
	unsigned char header[16] = { 0, 2 };
	int u = socket(AF_INET6, SOCK_DGRAM, 0), a = socket(AF_INET, SOCK_DGRAM, 0), held = 1;
	socklen_t length = sizeof header;
	REQUIRE(u >= 0 && a >= 0);
	for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
		held &= get(u, IPPROTO_IPV6, flags[i]) == 0;
		held &= set(u, flags[i], 7) == 0 && get(u, IPPROTO_IPV6, flags[i]) == 1;
		held &= setsockopt(u, IPPROTO_IPV6, flags[i], header, 3) == -1 && errno == EINVAL;
		held &= setsockopt(u, IPPROTO_IPV6, flags[i], NULL, 4) == 0 && get(u, IPPROTO_IPV6, flags[i]) == 0;
		held &= setsockopt(u, IPPROTO_IPV6, flags[i], BAD, 4) == -1 && errno == EFAULT;
		held &= set(a, flags[i], 1) == -1 && errno == ENOPROTOOPT;
	}
	CHECK(held);
	for (unsigned i = 0; i < sizeof sticky / sizeof *sticky; i++) {
		/* No multiple of eight bytes, more than there can be, less than the header itself says. */
		held &= set(u, sticky[i], 1) == -1 && errno == EINVAL;
		held &= setsockopt(u, IPPROTO_IPV6, sticky[i], header, 2048) == -1 && errno == EINVAL;
		held &= setsockopt(u, IPPROTO_IPV6, sticky[i], header, 16) == -1 && errno == EINVAL;
		held &= setsockopt(u, IPPROTO_IPV6, sticky[i], NULL, 8) == -1 && errno == EINVAL;
		held &= setsockopt(u, IPPROTO_IPV6, sticky[i], NULL, 0) == 0;
		length = sizeof header;
		held &= getsockopt(u, IPPROTO_IPV6, sticky[i], header, &length) == 0 && length == 0;
	}
	CHECK(held);
	CHECK_EQ(set(u, IPV6_2292PKTOPTIONS, 1), 0);
	CHECK_EQ(setsockopt(u, IPPROTO_IPV6, IPV6_2292PKTOPTIONS, NULL, 0), 0);
	CHECK_ERRNO(setsockopt(u, IPPROTO_IPV6, IPV6_2292PKTOPTIONS, BAD, 8), EFAULT);
	close(u), close(a);
}

static struct sockaddr_storage address;

static int family(int fd, int peer)
{
	socklen_t length = sizeof address;
	int got = peer ? getpeername(fd, (struct sockaddr *)&address, &length) : getsockname(fd, (struct sockaddr *)&address, &length);
	return got == 0 ? address.ss_family : -errno;
}

static void address_form(void)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 }, own = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof any;
	char text[4] = "";
	int l = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(bind(l, (struct sockaddr *)&any, sizeof any) == 0 && listen(l, 5) == 0);
	REQUIRE(getsockname(l, (struct sockaddr *)&any, &length) == 0);
	own.sin6_port = v4.sin_port = any.sin6_port;
	CHECK_ERRNO(set(l, IPV6_ADDRFORM, AF_INET), ENOTCONN);
	CHECK_ERRNO(set(l, IPV6_ADDRFORM, AF_INET6), EINVAL);
	CHECK_ERRNO(setsockopt(l, IPPROTO_IPV6, IPV6_ADDRFORM, text, 3), EINVAL);
	CHECK_EQ(get(l, IPPROTO_IPV6, IPV6_ADDRFORM), -ENOTCONN);

	/* Both ends have addresses of IPv4: the socket becomes one of that family, which can be connected and bound anew. */
	REQUIRE(connect(c, (struct sockaddr *)&v4, sizeof v4) == 0);
	int s = accept(l, NULL, NULL);
	REQUIRE(s >= 0);
	CHECK_EQ(get(s, IPPROTO_IPV6, IPV6_ADDRFORM), AF_INET6);
	CHECK_EQ(family(s, 0), AF_INET6);
	CHECK_EQ(set(s, IPV6_ADDRFORM, AF_INET), 0);
	CHECK_EQ(get(s, SOL_SOCKET, SO_DOMAIN), AF_INET);
	CHECK(family(s, 0) == AF_INET && ((struct sockaddr_in *)&address)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK_EQ(family(s, 1), AF_INET);
	CHECK_ERRNO(set(s, IPV6_ADDRFORM, AF_INET), ENOPROTOOPT);
	CHECK(write(c, "abc", 3) == 3 && read(s, text, 4) == 3 && memcmp(text, "abc", 3) == 0);
	CHECK_EQ(connect(s, &(struct sockaddr){ AF_UNSPEC, "" }, sizeof(struct sockaddr)), 0);
	v4.sin_port = 0;
	CHECK_ERRNO(bind(s, (struct sockaddr *)&own, sizeof own), EAFNOSUPPORT);
	CHECK_EQ(bind(s, (struct sockaddr *)&v4, sizeof v4), 0);
	CHECK_EQ(listen(s, 5), 0);
	CHECK_EQ(family(s, 0), AF_INET);
	close(c);
	c = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(connect(c, (struct sockaddr *)&address, sizeof v4), 0);
	int t = accept(s, NULL, NULL);
	CHECK_EQ(family(t, 0), AF_INET);
	close(s), close(t), close(c);

	/* A connection by IPv6 stays what it is. */
	c = socket(AF_INET6, SOCK_STREAM, 0);
	REQUIRE(connect(c, (struct sockaddr *)&own, sizeof own) == 0);
	CHECK_ERRNO(set(c, IPV6_ADDRFORM, AF_INET), EADDRNOTAVAIL);
	close(c), close(l);

	int u = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK_ERRNO(set(u, IPV6_ADDRFORM, AF_INET), ENOTCONN);
	own.sin6_port = htons(9);
	REQUIRE(inet_pton(AF_INET6, "::ffff:127.0.0.1", &own.sin6_addr) == 1);
	CHECK_EQ(connect(u, (struct sockaddr *)&own, sizeof own), 0);
	CHECK_EQ(set(u, IPV6_ADDRFORM, AF_INET), 0);
	CHECK(family(u, 0) == AF_INET && family(u, 1) == AF_INET);
	CHECK_EQ(get(u, SOL_SOCKET, SO_DOMAIN), AF_INET);
	close(u);

	/* Who may not have raw sockets does without the rest. */
	int raw = socket(AF_INET6, SOCK_RAW, 0x9f);
	CHECK(raw == -1 || (set(raw, IPV6_ADDRFORM, AF_INET) == -1 && errno == ENOPROTOOPT));
	close(raw);
}

/* Addresses of IPv4 on sockets of IPv6: those that are for IPv6 only, which binding to such an address makes them, take none, each call
 * with another error, and a route is asked for only then. */
static void other_family(void)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, none = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback }, mapped = v6;
	static char large[70000];
	REQUIRE(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
	for (int by_option = 0; by_option < 2; by_option++) {
		int u = socket(AF_INET6, SOCK_DGRAM, 0);
		CHECK_EQ(by_option ? set(u, IPV6_V6ONLY, 1) : bind(u, (struct sockaddr *)&v6, sizeof v6), 0);
		CHECK_EQ(get(u, IPPROTO_IPV6, IPV6_V6ONLY), 1);
		CHECK_ERRNO(connect(u, (struct sockaddr *)&none, sizeof none), EAFNOSUPPORT);
		CHECK_ERRNO(connect(u, (struct sockaddr *)&v4, sizeof v4), EAFNOSUPPORT);
		CHECK_ERRNO(connect(u, (struct sockaddr *)&v4, 2), EAFNOSUPPORT);
		CHECK_ERRNO(connect(u, (struct sockaddr *)&v4, 1), EINVAL);
		CHECK_ERRNO(connect(u, (struct sockaddr *)&mapped, sizeof mapped), ENETUNREACH);
		CHECK_ERRNO(sendto(u, "a", 1, 0, (struct sockaddr *)&v4, sizeof v4), ENETUNREACH);
		CHECK_ERRNO(sendto(u, "a", 1, 0, (struct sockaddr *)&v4, 2), ENETUNREACH);
		CHECK_ERRNO(sendto(u, "a", 1, MSG_MORE, (struct sockaddr *)&v4, 8), ENETUNREACH);
		CHECK_ERRNO(sendto(u, "a", 1, 0, (struct sockaddr *)&mapped, sizeof mapped), ENETUNREACH);
		CHECK_ERRNO(sendto(u, large, sizeof large, 0, (struct sockaddr *)&v4, sizeof v4), ENETUNREACH);
		CHECK_ERRNO(sendto(u, large, sizeof large, 0, (struct sockaddr *)&v6, sizeof v6), EINVAL);
		close(u);
	}

	int u = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK_ERRNO(connect(u, (struct sockaddr *)&v4, 15), EINVAL);
	CHECK_ERRNO(sendto(u, "a", 1, 0, (struct sockaddr *)&v4, 15), EINVAL);
	CHECK_ERRNO(sendto(u, large, sizeof large, 0, (struct sockaddr *)&v4, sizeof v4), EMSGSIZE);
	CHECK_ERRNO(sendto(u, large, sizeof large, 0, (struct sockaddr *)&mapped, sizeof mapped), EMSGSIZE);
	/* The own address stays that of the first connection; by the second one it sends from another. */
	int receiver = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t length = sizeof v4;
	char text[4];
	CHECK_EQ(bind(receiver, (struct sockaddr *)&v4, sizeof v4), 0);
	CHECK_EQ(getsockname(receiver, (struct sockaddr *)&v4, &length), 0);
	v6.sin6_port = v4.sin_port;
	CHECK_EQ(connect(u, (struct sockaddr *)&v6, sizeof v6), 0);
	CHECK_EQ(connect(u, (struct sockaddr *)&v4, sizeof v4), 0);
	CHECK(family(u, 1) == AF_INET6 && !memcmp(&((struct sockaddr_in6 *)&address)->sin6_addr, &mapped.sin6_addr, 16));
	CHECK(family(u, 0) == AF_INET6 && !memcmp(&((struct sockaddr_in6 *)&address)->sin6_addr, &v6.sin6_addr, 16));
	CHECK_EQ(send(u, "abc", 3, 0), 3);
	length = sizeof v4;
	CHECK_EQ(recvfrom(receiver, text, sizeof text, 0, (struct sockaddr *)&v4, &length), 3);
	CHECK_EQ(v4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	close(u), close(receiver);

	/* Raw sockets and those for echo requests know no others at all. */
	int raw = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
	CHECK(raw == -1 || fails(connect(raw, (struct sockaddr *)&v4, sizeof v4), EAFNOSUPPORT));
	CHECK(raw == -1 || fails(sendto(raw, "12345678", 8, 0, (struct sockaddr *)&v4, sizeof v4), EINVAL));
	close(raw);
}

int main(void)
{
	headers();
	address_form();
	other_family();
	return tap_done();
}
