/* What the network counts: /proc/net/snmp, netstat, snmp6 and dev (proc(5)), /sys/class/net/lo/statistics. Others may use the network meanwhile, so
 * counters have risen at least so far. */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static char text[65536];

static const char *content(const char *path)
{
	int fd = open(path, O_RDONLY);
	REQUIRE(fd >= 0);
	size_t n = 0;
	ssize_t got;
	while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
		n += got;
	close(fd);
	text[n] = 0;
	return text;
}

/* The counter of this name in a pair of lines of names and values. */
static long counter(const char *path, const char *group, const char *name)
{
	char *names = strstr(content(path), group);
	while (names && names != text && names[-1] != '\n')
		names = strstr(names + 1, group);
	if (!names)
		return -1;
	char *line = NULL, *values = strchr(names, '\n') + 1;
	*strchr(values, '\n') = 0;
	values[-1] = 0;
	char *others = NULL, *value = strtok_r(values, " ", &others);
	for (char *word = strtok_r(names, " ", &line); word && value; word = strtok_r(NULL, " ", &line), value = strtok_r(NULL, " ", &others))
		if (!strcmp(word, name))
			return atol(value);
	return -1;
}

static long snmp(const char *group, const char *name) { return counter("/proc/net/snmp", group, name); }
static long netstat(const char *group, const char *name) { return counter("/proc/net/netstat", group, name); }

static long snmp6(const char *name)
{
	char line[64];
	snprintf(line, sizeof line, "\n%-32s\t", name);
	const char *found = strstr(content("/proc/net/snmp6"), line);
	return found ? atol(found + strlen(line)) : -1;
}

/* The columns of loopback in /proc/net/dev: bytes and packets that came in are 0 and 1, those that went out 8 and 9. */
static const long *of_loopback(void)
{
	static long columns[16];
	char *word = strstr(content("/proc/net/dev"), " lo:"), *rest = NULL;
	REQUIRE(word);
	strtok_r(word, " ", &rest);
	for (int i = 0; i < 16; i++) {
		word = strtok_r(NULL, " \n", &rest);
		columns[i] = word ? atol(word) : -1;
	}
	return columns;
}

static long statistic(const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "/sys/class/net/lo/statistics/%s", name);
	return atol(content(path));
}

static struct sockaddr_in local(int fd)
{
	struct sockaddr_in at;
	socklen_t size = sizeof at;
	REQUIRE(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
	return at;
}

static int bound(int type)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, type, 0);
	REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
	return fd;
}

static void datagrams(void)
{
	char data[100] = "";
	int fd = bound(SOCK_DGRAM), gone = bound(SOCK_DGRAM);
	struct sockaddr_in to = local(fd), nobody = local(gone);
	close(gone);
	long out = snmp("Udp:", "OutDatagrams"), in = snmp("Udp:", "InDatagrams"), packets = statistic("rx_packets"), bytes = of_loopback()[0];
	long requests = snmp("Ip:", "OutRequests"), delivered = snmp("Ip:", "InDelivers"), octets = netstat("IpExt:", "OutOctets");
	for (int i = 0; i < 5; i++)
		REQUIRE(sendto(fd, data, sizeof data, 0, (struct sockaddr *)&to, sizeof to) == sizeof data);
	REQUIRE(recv(fd, data, sizeof data, MSG_PEEK) == sizeof data);
	CHECK(snmp("Udp:", "OutDatagrams") - out >= 5);
	long unread = snmp("Udp:", "InDatagrams");
	CHECK(in >= 0 && unread >= in);
	for (int i = 0; i < 3; i++)
		REQUIRE(recv(fd, data, sizeof data, 0) == sizeof data);
	CHECK(snmp("Udp:", "InDatagrams") - unread >= 3);
	CHECK(statistic("rx_packets") - packets >= 5);
	CHECK(of_loopback()[0] - bytes >= 5 * 128);
	CHECK(snmp("Ip:", "OutRequests") - requests >= 5);
	CHECK(snmp("Ip:", "InDelivers") - delivered >= 5);
	CHECK(netstat("IpExt:", "OutOctets") - octets >= 5 * 128);
	/* Nobody is there, which ICMP says. */
	long no = snmp("Udp:", "NoPorts"), reports = snmp("Icmp:", "OutDestUnreachs"), told = snmp("Icmp:", "InDestUnreachs");
	REQUIRE(connect(fd, (struct sockaddr *)&nobody, sizeof nobody) == 0 && send(fd, data, 1, 0) == 1);
	while (send(fd, data, 1, 0) == 1)
		usleep(1000);
	CHECK(no >= 0 && snmp("Udp:", "NoPorts") > no);
	CHECK(reports >= 0 && snmp("Icmp:", "OutDestUnreachs") > reports);
	CHECK(told >= 0 && snmp("Icmp:", "InDestUnreachs") > told);
	CHECK(snmp("IcmpMsg:", "InType3") >= 1);
	close(fd);
	/* No room. */
	fd = bound(SOCK_DGRAM), to = local(fd);
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){1}, sizeof(int)) == 0);
	long full = snmp("Udp:", "RcvbufErrors"), errors = snmp("Udp:", "InErrors");
	for (int i = 0; i < 50; i++)
		REQUIRE(sendto(fd, data, sizeof data, 0, (struct sockaddr *)&to, sizeof to) == sizeof data);
	usleep(10000);
	CHECK(full >= 0 && snmp("Udp:", "RcvbufErrors") > full);
	CHECK(errors >= 0 && snmp("Udp:", "InErrors") > errors);
	close(fd);
}

static void datagrams6(void)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t size = sizeof at;
	char byte = 0;
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && getsockname(fd, (struct sockaddr *)&at, &size) == 0);
	long out = snmp6("Udp6OutDatagrams"), in = snmp6("Udp6InDatagrams"), bytes = snmp6("Ip6InOctets");
	REQUIRE(sendto(fd, &byte, 1, 0, (struct sockaddr *)&at, size) == 1 && recv(fd, &byte, 1, 0) == 1);
	CHECK(out >= 0 && snmp6("Udp6OutDatagrams") > out);
	CHECK(in >= 0 && snmp6("Udp6InDatagrams") > in);
	CHECK(bytes >= 0 && snmp6("Ip6InOctets") - bytes >= 49);
	close(fd);
}

static void connections(void)
{
	char byte = 0;
	int listener = bound(SOCK_STREAM), gone = bound(SOCK_STREAM);
	struct sockaddr_in to = local(listener), nobody = local(gone);
	close(gone);
	REQUIRE(listen(listener, 5) == 0);
	long active = snmp("Tcp:", "ActiveOpens"), passive = snmp("Tcp:", "PassiveOpens"), current = snmp("Tcp:", "CurrEstab");
	long in = snmp("Tcp:", "InSegs"), out = snmp("Tcp:", "OutSegs");
	int fd = socket(AF_INET, SOCK_STREAM, 0), peer;
	REQUIRE(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && (peer = accept(listener, NULL, NULL)) >= 0);
	REQUIRE(send(fd, &byte, 1, 0) == 1 && recv(peer, &byte, 1, 0) == 1);
	CHECK(active >= 0 && snmp("Tcp:", "ActiveOpens") > active);
	CHECK(passive >= 0 && snmp("Tcp:", "PassiveOpens") > passive);
	CHECK(current >= 0 && snmp("Tcp:", "CurrEstab") >= 2);
	/* Three of the handshake, and the data. */
	CHECK(in >= 0 && snmp("Tcp:", "InSegs") - in >= 4);
	CHECK(out >= 0 && snmp("Tcp:", "OutSegs") - out >= 4);
	long resets = snmp("Tcp:", "EstabResets"), sent = snmp("Tcp:", "OutRsts");
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)) == 0);
	close(fd);
	while (recv(peer, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN)
		usleep(1000);
	/* Of both ends. */
	CHECK(resets >= 0 && snmp("Tcp:", "EstabResets") - resets >= 2);
	CHECK(sent >= 0 && snmp("Tcp:", "OutRsts") > sent);
	close(peer);
	long failed = snmp("Tcp:", "AttemptFails");
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), ECONNREFUSED);
	CHECK(failed >= 0 && snmp("Tcp:", "AttemptFails") > failed);
	close(fd);
	/* The queue of the listener takes two, as one of 1 does. */
	REQUIRE(listen(listener, 1) == 0);
	long overflows = netstat("TcpExt:", "ListenOverflows"), drops = netstat("TcpExt:", "ListenDrops");
	int waiting[4];
	for (int i = 0; i < 4; i++) {
		waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(waiting[i], (struct sockaddr *)&to, sizeof to);
		usleep(1000);
	}
	CHECK(overflows >= 0 && netstat("TcpExt:", "ListenOverflows") > overflows);
	CHECK(drops >= 0 && netstat("TcpExt:", "ListenDrops") > drops);
	for (int i = 0; i < 4; i++)
		close(waiting[i]);
	close(listener);
}

/* What rtnetlink tells of loopback (IFLA_STATS). */
static struct rtnl_link_stats by_netlink(void)
{
	struct ifaddrs *all;
	struct rtnl_link_stats found = {0};
	REQUIRE(getifaddrs(&all) == 0);
	for (struct ifaddrs *one = all; one; one = one->ifa_next)
		if (!strcmp(one->ifa_name, "lo") && one->ifa_addr && one->ifa_addr->sa_family == AF_PACKET)
			memcpy(&found, one->ifa_data, sizeof found);
	freeifaddrs(all);
	return found;
}

int main(void)
{
	datagrams();
	datagrams6();
	connections();
	/* What goes out of loopback comes in there. */
	const long *columns = of_loopback();
	CHECK(columns[0] == columns[8] && columns[1] == columns[9] && columns[15] == 0);
	unsigned packets = statistic("rx_packets"), bytes = statistic("tx_bytes");
	struct rtnl_link_stats link = by_netlink();
	CHECK(link.rx_packets - packets < 1u << 31 && link.tx_bytes - bytes < 1u << 31 && link.rx_packets > 0);
	CHECK(statistic("tx_bytes") >= 1000 && statistic("rx_errors") == 0);
	return tap_done();
}
