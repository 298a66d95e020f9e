/* Sockets of one interface: SO_BINDTODEVICE, SO_BINDTOIFINDEX, IP_UNICAST_IF (socket(7), ip(7)), and options about what is with a packet. Where there is no other
 * interface than loopback, what needs one is left out. */
#include "tap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#define OWN_IP_UNICAST_IF 50
#define OWN_IPV6_RECVORIGDSTADDR 74
#define OWN_SO_RCVMARK 75
#define OWN_SO_BUF_LOCK 72

/* Another interface and its address, in the order of the network. */
static char other[IFNAMSIZ];
static struct in_addr own;
static struct in_addr loopback;

static void find_other(void)
{
	struct ifaddrs *all;
	REQUIRE(getifaddrs(&all) == 0);
	for (struct ifaddrs *one = all; one && !*other; one = one->ifa_next) {
		int up = (one->ifa_flags & (IFF_UP | IFF_RUNNING | IFF_LOOPBACK | IFF_POINTOPOINT)) == (IFF_UP | IFF_RUNNING);
		if (!up || !one->ifa_addr || one->ifa_addr->sa_family != AF_INET)
			continue;
		own = ((struct sockaddr_in *)one->ifa_addr)->sin_addr;
		strcpy(other, one->ifa_name);
	}
	freeifaddrs(all);
	loopback.s_addr = htonl(INADDR_LOOPBACK);
}

static int made(int kind, const char *device)
{
	int fd = socket(AF_INET, kind, 0);
	REQUIRE(fd >= 0);
	if (device)
		REQUIRE(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, strlen(device)) == 0);
	return fd;
}

static struct sockaddr_in at(struct in_addr ip, int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = ip, .sin_port = htons(port)};
}

/* Binds to any address; the port. */
static int bound(int fd)
{
	struct sockaddr_in any = at((struct in_addr){INADDR_ANY}, 0);
	socklen_t len = sizeof any;
	REQUIRE(bind(fd, (void *)&any, sizeof any) == 0);
	REQUIRE(getsockname(fd, (void *)&any, &len) == 0);
	return ntohs(any.sin_port);
}

/* Whether a descriptor has something within a time that is long enough for one node. */
static int comes(int fd)
{
	struct pollfd ask = {fd, POLLIN, 0};
	return poll(&ask, 1, 200) == 1;
}

enum { CONNECTS, REFUSED, NOTHING };

/* What becomes of a connection from a socket of one interface to a listener of another one (null: of all). */
static int connects(const char *listens, const char *sends, struct in_addr ip)
{
	int l = made(SOCK_STREAM, listens), c = made(SOCK_STREAM | SOCK_NONBLOCK, sends);
	struct sockaddr_in to = at(ip, bound(l));
	REQUIRE(listen(l, 4) == 0);
	int result = NOTHING;
	if (connect(c, (void *)&to, sizeof to) == -1 && errno == EINPROGRESS) {
		struct pollfd ask = {c, POLLOUT, 0};
		if (poll(&ask, 1, 200) == 1) {
			int error = -1;
			socklen_t len = sizeof error;
			REQUIRE(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
			result = error == ECONNREFUSED ? REFUSED : error ? 10 + error : CONNECTS;
		}
	} else {
		result = errno == ECONNREFUSED ? REFUSED : 100 + errno;
	}
	close(l);
	close(c);
	return result;
}

/* Whether a datagram gets there. */
static int arrives(const char *listens, const char *sends, struct in_addr ip)
{
	int l = made(SOCK_DGRAM, listens), c = made(SOCK_DGRAM, sends);
	struct sockaddr_in to = at(ip, bound(l));
	REQUIRE(sendto(c, "x", 1, 0, (void *)&to, sizeof to) == 1);
	int came = comes(l);
	close(l);
	close(c);
	return came;
}

static void names(void)
{
	int fd = made(SOCK_STREAM, "lo");
	char name[64];
	socklen_t len = sizeof name;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == 0 && len == 3 && !strcmp(name, "lo"));
	len = 15;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == -1 && errno == EINVAL);
	len = 0;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == -1 && errno == EINVAL);
	int index = -1;
	len = sizeof index;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &len) == 0 && index == (int)if_nametoindex("lo"));
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuch0", 7) == -1 && errno == ENODEV);
	index = -1;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) == -1 && errno == EINVAL);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0) == 0);
	len = sizeof name;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == 0 && len == 0);
	index = 12345;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) == 0);
	len = sizeof name;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == -1 && errno == ENODEV);
	struct sockaddr_in to = at(loopback, 9);
	CHECK_ERRNO(connect(fd, (void *)&to, sizeof to), ENODEV);
	close(fd);
	/* Nothing leaves by an interface that is not there. */
	int udp = made(SOCK_DGRAM, NULL), most = 0x7fffffff, on = 1;
	REQUIRE(setsockopt(udp, SOL_SOCKET, SO_BINDTOIFINDEX, &most, sizeof most) == 0);
	REQUIRE(setsockopt(udp, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
	CHECK_ERRNO(sendto(udp, "x", 1, 0, (void *)&to, sizeof to), ENODEV);
	to = at((struct in_addr){htonl(0xe00000fb)}, 9);
	CHECK_ERRNO(sendto(udp, "x", 1, 0, (void *)&to, sizeof to), ENODEV);
	to = at((struct in_addr){INADDR_BROADCAST}, 9);
	CHECK_ERRNO(sendto(udp, "x", 1, 0, (void *)&to, sizeof to), ENODEV);
	close(udp);
	int l = made(SOCK_STREAM, NULL), c = made(SOCK_STREAM, NULL);
	to = at(loopback, bound(l));
	REQUIRE(listen(l, 1) == 0 && connect(c, (void *)&to, sizeof to) == 0);
	int a = accept(l, NULL, NULL);
	REQUIRE(setsockopt(c, SOL_SOCKET, SO_BINDTOIFINDEX, &most, sizeof most) == 0);
	CHECK_EQ(write(c, "x", 1), 1);
	CHECK(!comes(a));
	close(a), close(c), close(l);
	int pair[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) == 0);
	len = sizeof name;
	CHECK(getsockopt(pair[0], SOL_SOCKET, SO_BINDTODEVICE, name, &len) == 0 && len == 3);
	CHECK(write(pair[0], "x", 1) == 1 && comes(pair[1]));
	close(pair[0]);
	close(pair[1]);
}

static void by_loopback(void)
{
	CHECK(connects("lo", NULL, loopback) == CONNECTS);
	CHECK(connects("lo", "lo", loopback) == CONNECTS);
	CHECK(connects(NULL, "lo", loopback) == CONNECTS);
	CHECK(arrives("lo", NULL, loopback));
	CHECK(arrives(NULL, "lo", loopback));
	int l = made(SOCK_STREAM, "lo"), c = made(SOCK_STREAM, NULL);
	struct sockaddr_in to = at(loopback, bound(l));
	REQUIRE(listen(l, 1) == 0 && connect(c, (void *)&to, sizeof to) == 0);
	int a = accept(l, NULL, NULL);
	char name[16];
	socklen_t len = sizeof name;
	CHECK(getsockopt(a, SOL_SOCKET, SO_BINDTODEVICE, name, &len) == 0 && !strcmp(name, "lo"));
	CHECK(write(a, "x", 1) == 1 && comes(c));
	close(a);
	close(c);
	close(l);
}

static void by_another(void)
{
	CHECK(connects(other, NULL, own) == CONNECTS);
	CHECK(connects(other, other, own) == CONNECTS);
	CHECK(connects(NULL, other, own) == CONNECTS);
	CHECK(connects(other, NULL, loopback) == REFUSED);
	CHECK(connects("lo", NULL, own) == REFUSED);
	CHECK(connects("lo", other, own) == REFUSED);
	CHECK(connects(NULL, other, loopback) == NOTHING);
	CHECK(arrives(other, NULL, own) && arrives(other, other, own) && arrives(NULL, other, own));
	CHECK(!arrives(other, NULL, loopback) && !arrives("lo", NULL, own) && !arrives("lo", other, own));
	CHECK(!arrives(NULL, other, loopback) && !arrives(other, "lo", own));
	CHECK(arrives("lo", "lo", own));
	int a = made(SOCK_STREAM, "lo"), b = made(SOCK_STREAM, other), c = made(SOCK_STREAM, NULL), d = made(SOCK_STREAM, "lo");
	struct sockaddr_in same = at((struct in_addr){INADDR_ANY}, bound(a));
	CHECK(bind(b, (void *)&same, sizeof same) == 0);
	CHECK(bind(d, (void *)&same, sizeof same) == -1 && errno == EADDRINUSE);
	CHECK(bind(c, (void *)&same, sizeof same) == -1 && errno == EADDRINUSE);
	close(a), close(b), close(c), close(d);
	int u = made(SOCK_DGRAM, NULL);
	struct sockaddr_in to = at(loopback, 9), name;
	socklen_t len = sizeof name;
	uint32_t index = htonl(if_nametoindex(other));
	CHECK(setsockopt(u, IPPROTO_IP, OWN_IP_UNICAST_IF, &index, sizeof index) == 0);
	CHECK(connect(u, (void *)&to, sizeof to) == 0 && getsockname(u, (void *)&name, &len) == 0 && name.sin_addr.s_addr == own.s_addr);
	uint32_t lo = htonl(if_nametoindex("lo"));
	REQUIRE(setsockopt(u, SOL_SOCKET, SO_BINDTODEVICE, other, strlen(other)) == 0);
	CHECK(setsockopt(u, IPPROTO_IP, OWN_IP_UNICAST_IF, &lo, sizeof lo) == -1 && errno == EINVAL);
	close(u);
}

/* What comes with a datagram to ::1: the control message of this level and kind, or null. */
static unsigned char *control_of(int level, int kind, int option, int at_level)
{
	static char control[256];
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t len = sizeof to;
	REQUIRE(fd >= 0 && bind(fd, (void *)&to, sizeof to) == 0 && getsockname(fd, (void *)&to, &len) == 0);
	REQUIRE(setsockopt(fd, at_level, option, &on, sizeof on) == 0);
	REQUIRE(sendto(fd, "x", 1, 0, (void *)&to, sizeof to) == 1 && comes(fd));
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	REQUIRE(recvmsg(fd, &msg, 0) == 1);
	close(fd);
	for (struct cmsghdr *one = CMSG_FIRSTHDR(&msg); one; one = CMSG_NXTHDR(&msg, one))
		if (one->cmsg_level == level && one->cmsg_type == kind)
			return CMSG_DATA(one);
	return NULL;
}

static void with_packets(void)
{
	struct sockaddr_in6 *to = (void *)control_of(IPPROTO_IPV6, OWN_IPV6_RECVORIGDSTADDR, OWN_IPV6_RECVORIGDSTADDR, IPPROTO_IPV6);
	CHECK(to && to->sin6_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&to->sin6_addr) && to->sin6_port);
	uint32_t *mark = (void *)control_of(SOL_SOCKET, SO_MARK, OWN_SO_RCVMARK, SOL_SOCKET);
	CHECK(mark && *mark == 0);
}

static void others(void)
{
	int fd = made(SOCK_STREAM, NULL), udp = made(SOCK_DGRAM, NULL), value = 0;
	socklen_t len = sizeof value;
	int bytes = 20000;
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, OWN_SO_BUF_LOCK, &value, &len) == 0 && value == 1);
	REQUIRE(setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
	CHECK(getsockopt(udp, SOL_SOCKET, OWN_SO_BUF_LOCK, &value, &len) == 0 && value == 2);
	int pair[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	REQUIRE(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
	CHECK(getsockopt(pair[0], SOL_SOCKET, OWN_SO_BUF_LOCK, &value, &len) == 0 && value == 1);
	close(pair[0]), close(pair[1]);
	int pipes[2];
	REQUIRE(pipe(pipes) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &pipes[0], sizeof(int)) == -1 && errno == EINVAL);
	int bad = 12345;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &bad, sizeof bad) == -1 && errno == EBADF);
	close(pipes[0]), close(pipes[1]);
	int on = 1, off = 0;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &off, sizeof off) == -1 && errno == EPERM);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &off, sizeof off) == -1 && errno == EPERM);
	int ttl = 9;
	CHECK(setsockopt(udp, IPPROTO_IP, 21, &ttl, sizeof ttl) == 0);
	len = sizeof value;
	CHECK(getsockopt(udp, IPPROTO_IP, 21, &value, &len) == 0 && value == 9);
	uint64_t cookie = 0;
	len = sizeof cookie;
	CHECK(getsockopt(udp, SOL_SOCKET, 71, &cookie, &len) == 0 && cookie);
	int six = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	uint32_t info[8] = {0};
	len = sizeof info;
	REQUIRE(connect(six, (void *)&to, sizeof to) == 0);
	CHECK(getsockopt(six, IPPROTO_IPV6, 61, info, &len) == 0 && len == sizeof info && info[7] >= 1280);
	close(six), close(fd), close(udp);
}

int main(void)
{
	find_other();
	names();
	by_loopback();
	if (*other) {
		by_another();
	} else {
		/* The simulation has one always. */
		struct utsname system;
		REQUIRE(uname(&system) == 0);
		CHECK(!strstr(system.release, "bloodhound"));
	}
	with_packets();
	others();
	return tap_done();
}
