/* Packet sockets on the loopback interface: packet(7). They need CAP_NET_RAW; natively they look at a network namespace of their own, where
 * nobody else sends. */
#include "tap.h"
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static unsigned char buffer[70000];

static void prepare(void)
{
	if (unshare(CLONE_NEWNET) != 0)
		return;
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	REQUIRE(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
	close(fd);
}

static int option(int fd, int level, int name)
{
	int value = -77;
	socklen_t len = sizeof value;
	return getsockopt(fd, level, name, &value, &len) == 0 ? value : -errno;
}

static ssize_t got(int fd)
{
	return recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
}

static struct sockaddr_ll from;

static ssize_t got_from(int fd)
{
	socklen_t len = sizeof from;
	memset(&from, 0xee, sizeof from);
	return recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
}

static struct sockaddr_ll on(int protocol, int index)
{
	return (struct sockaddr_ll){ .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = index };
}

static int udp, port;

/* Sends a datagram of five bytes to itself. */
static void send_one(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	REQUIRE(sendto(udp, "hello", 5, 0, (struct sockaddr *)&address, sizeof address) == 5);
	REQUIRE(recv(udp, buffer, sizeof buffer, 0) == 5);
}

static void making(void)
{
	CHECK_ERRNO(socket(AF_PACKET, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
	CHECK_ERRNO(socket(AF_PACKET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	CHECK(fd >= 0);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_TYPE), SOCK_RAW);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_DOMAIN), AF_PACKET);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_PROTOCOL), 0);
	struct sockaddr_ll name;
	socklen_t len = sizeof name;
	memset(&name, 0xee, sizeof name);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&name, &len), 0);
	CHECK_EQ(len, 12);
	CHECK_EQ(name.sll_family, AF_PACKET);
	CHECK_EQ(name.sll_protocol, htons(ETH_P_ALL));
	CHECK_EQ(name.sll_ifindex, 0);
	CHECK_EQ(name.sll_hatype, 0);
	CHECK_EQ(name.sll_halen, 0);
	struct sockaddr_ll lo = on(0, 1), none = on(0, 99);
	CHECK_ERRNO(bind(fd, (struct sockaddr *)&none, sizeof none), ENODEV);
	CHECK_ERRNO(bind(fd, (struct sockaddr *)&lo, 12), EINVAL);
	CHECK_EQ(bind(fd, (struct sockaddr *)&lo, sizeof lo), 0);
	len = sizeof name;
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&name, &len), 0);
	CHECK_EQ(len, 18);
	CHECK_EQ(name.sll_protocol, htons(ETH_P_ALL));
	CHECK_EQ(name.sll_ifindex, 1);
	CHECK_EQ(name.sll_hatype, 772);
	CHECK_EQ(name.sll_halen, 6);
	lo.sll_family = AF_INET;
	CHECK_ERRNO(bind(fd, (struct sockaddr *)&lo, sizeof lo), EINVAL);
	CHECK_ERRNO(connect(fd, (struct sockaddr *)&lo, sizeof lo), EOPNOTSUPP);
	CHECK_ERRNO(listen(fd, 1), EOPNOTSUPP);
	CHECK_ERRNO(accept(fd, NULL, NULL), EOPNOTSUPP);
	CHECK_ERRNO(shutdown(fd, SHUT_RD), EOPNOTSUPP);
	len = sizeof name;
	CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&name, &len), EOPNOTSUPP);
	close(fd);
	fd = socket(AF_PACKET, SOCK_DGRAM, 0);
	CHECK_EQ(option(fd, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	send_one();
	CHECK_ERRNO(got(fd), EAGAIN);
	close(fd);
}

static void watching(void)
{
	int all = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), ip = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
	int six = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IPV6));
	struct pollfd poller = { all, POLLIN, 0 };
	CHECK_EQ(poll(&poller, 1, 0), 0);
	send_one();
	CHECK_EQ(poll(&poller, 1, 1000), 1);
	/* It goes out. */
	CHECK_EQ(got_from(all), 14 + 33);
	CHECK_EQ(from.sll_family, AF_PACKET);
	CHECK_EQ(from.sll_protocol, htons(ETH_P_IP));
	CHECK_EQ(from.sll_ifindex, 1);
	CHECK_EQ(from.sll_hatype, 772);
	CHECK_EQ(from.sll_pkttype, PACKET_OUTGOING);
	CHECK_EQ(from.sll_halen, 6);
	CHECK_EQ(memcmp(buffer, "\0\0\0\0\0\0\0\0\0\0\0\0\x08\0", 14), 0);
	struct iphdr *head = (struct iphdr *)(buffer + 14);
	CHECK_EQ(head->protocol, IPPROTO_UDP);
	CHECK_EQ(ntohs(head->tot_len), 33);
	CHECK_EQ(head->daddr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(memcmp(buffer + 14 + 28, "hello", 5), 0);
	/* And comes in. */
	CHECK_EQ(got_from(all), 14 + 33);
	CHECK_EQ(from.sll_pkttype, PACKET_HOST);
	CHECK_ERRNO(got(all), EAGAIN);
	/* A socket for one type sees what comes in. */
	CHECK_EQ(got_from(ip), 33);
	CHECK_EQ(from.sll_pkttype, PACKET_HOST);
	CHECK_EQ(buffer[0], 0x45);
	CHECK_ERRNO(got(ip), EAGAIN);
	CHECK_ERRNO(got(six), EAGAIN);
	/* Counts begin anew when they are asked for. */
	struct tpacket_stats counts;
	socklen_t len = sizeof counts;
	CHECK_EQ(getsockopt(all, SOL_PACKET, PACKET_STATISTICS, &counts, &len), 0);
	CHECK_EQ(counts.tp_packets, 2);
	CHECK_EQ(counts.tp_drops, 0);
	CHECK_EQ(getsockopt(all, SOL_PACKET, PACKET_STATISTICS, &counts, &len), 0);
	CHECK_EQ(counts.tp_packets, 0);
	/* A part of a frame. */
	send_one();
	CHECK_EQ(recv(all, buffer, 10, MSG_DONTWAIT | MSG_PEEK), 10);
	CHECK_EQ(recv(all, buffer, 10, MSG_DONTWAIT | MSG_TRUNC), 47);
	CHECK_EQ(got(all), 47);
	int flag = 1;
	CHECK_EQ(setsockopt(all, SOL_PACKET, PACKET_IGNORE_OUTGOING, &flag, sizeof flag), 0);
	send_one();
	CHECK_EQ(got_from(all), 47);
	CHECK_EQ(from.sll_pkttype, PACKET_HOST);
	CHECK_ERRNO(got(all), EAGAIN);
	struct packet_mreq mreq = { .mr_ifindex = 1, .mr_type = PACKET_MR_PROMISC };
	CHECK_EQ(setsockopt(all, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq), 0);
	CHECK_EQ(setsockopt(all, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &mreq, sizeof mreq), 0);
	CHECK_ERRNO(setsockopt(all, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, 8), EINVAL);
	mreq.mr_ifindex = 99;
	CHECK_ERRNO(setsockopt(all, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &mreq, sizeof mreq), ENODEV);
	CHECK_ERRNO(setsockopt(all, SOL_PACKET, 9999, &flag, sizeof flag), ENOPROTOOPT);
	/* What is not received is lost when SO_RCVBUF is full, and counted. */
	int small = 0, here = 0;
	CHECK_EQ(setsockopt(all, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
	getsockopt(all, SOL_PACKET, PACKET_STATISTICS, &counts, &len);
	for (int i = 0; i < 20; i++)
		send_one();
	while (got(all) == 47)
		here++;
	CHECK(here >= 1 && here < 10);
	CHECK_EQ(getsockopt(all, SOL_PACKET, PACKET_STATISTICS, &counts, &len), 0);
	CHECK_EQ(counts.tp_packets, 20);
	CHECK_EQ(counts.tp_drops, 20 - here);
	close(all), close(ip), close(six);
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

/* A datagram that is put together down to the header of Ethernet. */
static void sending(void)
{
	struct {
		unsigned char ether[14];
		struct iphdr ip;
		unsigned short udp[4];
		char data[5];
	} __attribute__((packed)) frame = { .ether = { [12] = 0x08 }, .data = "hand" };
	frame.ip = (struct iphdr){ .ihl = 5, .version = 4, .tot_len = htons(33), .ttl = 7, .protocol = IPPROTO_UDP,
				   .saddr = htonl(INADDR_LOOPBACK), .daddr = htonl(INADDR_LOOPBACK) };
	frame.ip.check = sum(&frame.ip, 20);
	frame.udp[0] = htons(4321), frame.udp[1] = htons(port), frame.udp[2] = htons(13);
	int raw = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), cooked = socket(AF_PACKET, SOCK_DGRAM, 0);
	struct sockaddr_ll lo = on(ETH_P_IP, 1);
	lo.sll_halen = 6;
	CHECK_ERRNO(send(raw, &frame, sizeof frame, 0), ENXIO);
	CHECK_EQ(sendto(raw, &frame, sizeof frame, 0, (struct sockaddr *)&lo, sizeof lo), sizeof frame);
	/* "Martian": no packet of 127.0.0.0/8 comes in by an interface, not even this one. */
	CHECK_ERRNO(recv(udp, buffer, sizeof buffer, MSG_DONTWAIT), EAGAIN);
	/* The sender sees it come in only. */
	CHECK_EQ(got_from(raw), 47);
	CHECK_EQ(from.sll_pkttype, PACKET_HOST);
	CHECK_EQ(((struct iphdr *)(buffer + 14))->ttl, 7);
	CHECK_ERRNO(got(raw), EAGAIN);
	CHECK_EQ(sendto(cooked, &frame.ip, 33, 0, (struct sockaddr *)&lo, sizeof lo), 33);
	/* IPv6 has no such rule. */
	struct {
		struct in6_addr source, target;
		unsigned length, next;
		unsigned short udp[4];
		char data[6];
	} six = { IN6ADDR_LOOPBACK_INIT, IN6ADDR_LOOPBACK_INIT, htonl(14), htonl(IPPROTO_UDP), { htons(4321), 0, htons(14), 0 }, "hand6" };
	unsigned char whole[54] = { 0x60, [5] = 14, [6] = IPPROTO_UDP, [7] = 9 };
	int receiver = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 name = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t len = sizeof name;
	REQUIRE(bind(receiver, (struct sockaddr *)&name, sizeof name) == 0);
	REQUIRE(getsockname(receiver, (struct sockaddr *)&name, &len) == 0);
	six.udp[1] = name.sin6_port;
	six.udp[3] = sum(&six, sizeof six);
	memcpy(whole + 8, &six, 32);
	memcpy(whole + 40, six.udp, 14);
	lo.sll_protocol = htons(ETH_P_IPV6);
	CHECK_EQ(sendto(cooked, whole, sizeof whole, 0, (struct sockaddr *)&lo, sizeof lo), sizeof whole);
	CHECK_EQ(recvfrom(receiver, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&name, &len), 6);
	CHECK_EQ(memcmp(buffer, "hand6", 6), 0);
	CHECK_EQ(ntohs(name.sin6_port), 4321);
	close(receiver);
	/* The family of whom it is for is not looked at, the length of the hardware address is. */
	lo.sll_family = AF_INET;
	CHECK_EQ(sendto(cooked, whole, sizeof whole, 0, (struct sockaddr *)&lo, sizeof lo), sizeof whole);
	lo.sll_halen = 9;
	CHECK_ERRNO(sendto(cooked, whole, sizeof whole, 0, (struct sockaddr *)&lo, sizeof lo), EINVAL);
	lo.sll_halen = 6;
	CHECK_ERRNO(sendto(cooked, whole, sizeof whole, 0, (struct sockaddr *)&lo, 18), EINVAL);
	/* What has no type is lost; questions of ARP are answered by nobody on loopback. */
	lo.sll_protocol = 0;
	CHECK_EQ(sendto(cooked, whole, sizeof whole, 0, (struct sockaddr *)&lo, sizeof lo), sizeof whole);
	lo.sll_protocol = htons(ETH_P_ARP);
	CHECK_EQ(sendto(cooked, whole, 28, 0, (struct sockaddr *)&lo, sizeof lo), 28);
	lo.sll_ifindex = 99;
	CHECK_ERRNO(sendto(cooked, &frame.ip, 33, 0, (struct sockaddr *)&lo, sizeof lo), ENXIO);
	CHECK_ERRNO(sendto(cooked, &frame.ip, 33, 0, (struct sockaddr *)&lo, 8), EINVAL);
	close(raw), close(cooked);
}

/* PACKET_AUXDATA: what is known of a packet beside its bytes. */
static void auxiliary(int kind, int head)
{
	int on = 1, fd = socket(AF_PACKET, kind, htons(ETH_P_IP));
	CHECK_EQ(setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on), 0);
	CHECK_EQ(option(fd, SOL_PACKET, PACKET_AUXDATA), 1);
	send_one();
	char control[128];
	struct iovec iov = { buffer, 10 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	CHECK_EQ(recvmsg(fd, &msg, MSG_DONTWAIT), 10);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	REQUIRE(c);
	CHECK(c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA);
	CHECK_EQ(c->cmsg_len, CMSG_LEN(sizeof(struct tpacket_auxdata)));
	struct tpacket_auxdata *aux = (void *)CMSG_DATA(c);
	CHECK_EQ(aux->tp_status, TP_STATUS_USER | TP_STATUS_CSUMNOTREADY);
	CHECK_EQ(aux->tp_len, 33 + head);
	CHECK_EQ(aux->tp_snaplen, 33 + head);
	CHECK_EQ(aux->tp_mac, 0);
	CHECK_EQ(aux->tp_net, head);
	CHECK(!CMSG_NXTHDR(&msg, c));
	close(fd);
}

static void unprivileged(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
		_exit(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)) == -1 && errno == EPERM ? 15 : 1);
	}
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 15);
}

int main(void)
{
	prepare();
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	REQUIRE(bind(udp, (struct sockaddr *)&address, sizeof address) == 0);
	REQUIRE(getsockname(udp, (struct sockaddr *)&address, &len) == 0);
	port = ntohs(address.sin_port);
	making();
	watching();
	sending();
	auxiliary(SOCK_RAW, 14);
	auxiliary(SOCK_DGRAM, 0);
	unprivileged();
	return tap_done();
}
