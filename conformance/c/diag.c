/* NETLINK_SOCK_DIAG: what sockets there are (sock_diag(7)). Ports and names are those of this program alone. */
#include "tap.h"
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char buffer[1 << 16];
static int link_;

static unsigned inode(int fd)
{
	struct stat st;
	REQUIRE(fstat(fd, &st) == 0);
	return st.st_ino;
}

static int port_of(int fd)
{
	struct sockaddr_in6 address;
	socklen_t len = sizeof address;
	REQUIRE(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	return ntohs(address.sin6_port);
}

static void ask(int type, int flags, const void *body, size_t len)
{
	struct {
		struct nlmsghdr head;
		char body[200];
	} request = { .head = { .nlmsg_len = NLMSG_LENGTH(len), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = 5 } };
	memcpy(request.body, body, len);
	REQUIRE(send(link_, &request, NLMSG_LENGTH(len), 0) == (ssize_t)NLMSG_LENGTH(len));
}

/* The error that comes for a request. */
static int error_of(void)
{
	REQUIRE(recv(link_, buffer, sizeof buffer, 0) >= NLMSG_HDRLEN);
	struct nlmsghdr *head = (struct nlmsghdr *)buffer;
	if (head->nlmsg_type == NLMSG_ERROR || head->nlmsg_type == NLMSG_DONE)
		return -*(int *)NLMSG_DATA(head);
	return -1;
}

static char found[4096];
/* The type that messages have. */
static int type = SOCK_DIAG_BY_FAMILY;

/* Takes all messages of a dump, and keeps the one with this inode, which is at `at` in it. Returns how often it came. */
static int find(size_t at, unsigned wanted)
{
	int count = 0;
	for (;;) {
		ssize_t len = recv(link_, buffer, sizeof buffer, 0);
		REQUIRE(len > 0);
		for (struct nlmsghdr *head = (struct nlmsghdr *)buffer; NLMSG_OK(head, len); head = NLMSG_NEXT(head, len)) {
			if (head->nlmsg_type == NLMSG_DONE)
				return count;
			REQUIRE(head->nlmsg_type == type);
			REQUIRE(head->nlmsg_flags & NLM_F_MULTI);
			if (*(unsigned *)((char *)NLMSG_DATA(head) + at) == wanted) {
				count++;
				memcpy(found, head, head->nlmsg_len);
			}
		}
	}
}

/* An attribute of what was found; its length in `size`. */
static void *attribute(size_t body, int type, int *size)
{
	struct nlmsghdr *head = (struct nlmsghdr *)found;
	char *at = (char *)NLMSG_DATA(head) + NLMSG_ALIGN(body), *end = found + head->nlmsg_len;
	while (at + sizeof(struct nlattr) <= end) {
		struct nlattr *attribute = (struct nlattr *)at;
		if (attribute->nla_type == type) {
			*size = attribute->nla_len - NLA_HDRLEN;
			return at + NLA_HDRLEN;
		}
		at += NLA_ALIGN(attribute->nla_len);
	}
	return NULL;
}

static int find_inet(int family, int protocol, unsigned states, int fd)
{
	struct inet_diag_req_v2 request = { .sdiag_family = family, .sdiag_protocol = protocol, .idiag_states = states,
					    .idiag_ext = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_SKMEMINFO - 1) };
	ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, sizeof request);
	return find(offsetof(struct inet_diag_msg, idiag_inode), inode(fd));
}

#define ALL 0xfff
#define BIT(state) (1 << (state))

static void inet(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 7) == 0);
	REQUIRE(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
	struct inet_diag_msg *message = NLMSG_DATA((struct nlmsghdr *)found);
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, BIT(TCP_LISTEN), listener), 1);
	CHECK_EQ(message->idiag_family, AF_INET);
	CHECK_EQ(message->idiag_state, TCP_LISTEN);
	CHECK_EQ(message->id.idiag_sport, address.sin_port);
	CHECK_EQ(message->id.idiag_dport, 0);
	CHECK_EQ(message->id.idiag_src[0], htonl(INADDR_LOOPBACK));
	CHECK_EQ(message->idiag_rqueue, 0);
	CHECK_EQ(message->idiag_wqueue, 7);
	CHECK_EQ(message->idiag_uid, getuid());
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, BIT(TCP_ESTABLISHED), listener), 0);
	CHECK_EQ(find_inet(AF_INET6, IPPROTO_TCP, ALL, listener), 0);
	CHECK_EQ(find_inet(AF_INET, IPPROTO_UDP, ALL, listener), 0);
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, ALL, client), 0);
	REQUIRE(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, ALL, listener), 1);
	CHECK_EQ(message->idiag_rqueue, 1);
	int server = accept(listener, NULL, NULL), size;
	REQUIRE(send(client, "four", 4, 0) == 4);
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, BIT(TCP_ESTABLISHED), server), 1);
	CHECK_EQ(message->idiag_rqueue, 4);
	CHECK_EQ(message->idiag_wqueue, 0);
	CHECK_EQ(ntohs(message->id.idiag_dport), port_of(client));
	CHECK_EQ(message->id.idiag_dst[0], htonl(INADDR_LOOPBACK));
	/* The old type of requests: a dump of all families, and one connection. Answers have the type of the request. */
	struct inet_diag_req old = { .idiag_family = AF_INET, .idiag_states = BIT(TCP_ESTABLISHED), .id = message->id };
	ask(TCPDIAG_GETSOCK, 0, &old, sizeof old);
	REQUIRE(recv(link_, buffer, sizeof buffer, 0) > NLMSG_HDRLEN);
	CHECK_EQ(((struct nlmsghdr *)buffer)->nlmsg_type, TCPDIAG_GETSOCK);
	struct inet_diag_msg *exact = NLMSG_DATA((struct nlmsghdr *)buffer);
	CHECK_EQ(exact->idiag_inode, inode(server));
	CHECK_EQ(exact->id.idiag_sport, address.sin_port);
	ask(TCPDIAG_GETSOCK, 0, &old, sizeof old - 4);
	CHECK_EQ(error_of(), EINVAL);
	old.idiag_family = AF_UNIX;
	ask(TCPDIAG_GETSOCK, 0, &old, sizeof old);
	CHECK_EQ(error_of(), EINVAL);
	old = (struct inet_diag_req){ .idiag_states = BIT(TCP_ESTABLISHED) };
	ask(TCPDIAG_GETSOCK, NLM_F_DUMP, &old, sizeof old);
	type = TCPDIAG_GETSOCK;
	CHECK_EQ(find(offsetof(struct inet_diag_msg, idiag_inode), inode(server)), 1);
	type = SOCK_DIAG_BY_FAMILY;
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, BIT(TCP_ESTABLISHED), server), 1);
	struct tcp_info *info = attribute(sizeof *message, INET_DIAG_INFO, &size);
	CHECK(info != NULL && size >= 104);
	CHECK_EQ(info ? info->tcpi_state : -1, TCP_ESTABLISHED);
	CHECK(attribute(sizeof *message, INET_DIAG_SKMEMINFO, &size) != NULL && size >= 32);
	unsigned char *shut = attribute(sizeof *message, INET_DIAG_SHUTDOWN, &size);
	CHECK_EQ(shut ? *shut : -1, 0);
	/* One by its ends. */
	struct inet_diag_req_v2 one = { .sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .id = message->id };
	one.id.idiag_cookie[0] = one.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	ask(SOCK_DIAG_BY_FAMILY, 0, &one, sizeof one);
	REQUIRE(recv(link_, found, sizeof found, 0) > 0);
	CHECK_EQ(((struct nlmsghdr *)found)->nlmsg_type, SOCK_DIAG_BY_FAMILY);
	CHECK_EQ(message->idiag_inode, inode(server));
	/* What is no connection is for the listener. */
	one.id.idiag_dport = htons(1);
	ask(SOCK_DIAG_BY_FAMILY, 0, &one, sizeof one);
	REQUIRE(recv(link_, found, sizeof found, 0) > 0);
	CHECK_EQ(message->idiag_inode, inode(listener));
	one.id.idiag_sport = htons(1);
	ask(SOCK_DIAG_BY_FAMILY, 0, &one, sizeof one);
	CHECK_EQ(error_of(), ENOENT);
	shutdown(server, SHUT_WR);
	CHECK_EQ(find_inet(AF_INET, IPPROTO_TCP, BIT(TCP_FIN_WAIT1) | BIT(TCP_FIN_WAIT2), server), 1);
	close(server), close(client), close(listener);
	/* Datagrams, IPv6. */
	int udp = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	REQUIRE(bind(udp, (struct sockaddr *)&six, sizeof six) == 0);
	CHECK_EQ(find_inet(AF_INET6, IPPROTO_UDP, BIT(TCP_CLOSE), udp), 1);
	CHECK_EQ(ntohs(message->id.idiag_sport), port_of(udp));
	CHECK_EQ(memcmp(message->id.idiag_src, &six.sin6_addr, 16), 0);
	CHECK_EQ(find_inet(AF_INET6, IPPROTO_UDP, BIT(TCP_ESTABLISHED), udp), 0);
	unsigned char *only = attribute(sizeof *message, INET_DIAG_SKV6ONLY, &size);
	(void)only;
	close(udp);
}

/* A request with an attribute behind it; how often what has this inode comes. */
static void ask_with(unsigned states, int protocol, int type, const void *value, size_t len)
{
	char body[200] = { 0 };
	struct inet_diag_req_v2 request = { .sdiag_family = AF_INET, .sdiag_protocol = protocol, .idiag_states = states };
	struct nlattr attribute = { NLA_HDRLEN + len, type };
	memcpy(body, &request, sizeof request);
	memcpy(body + sizeof request, &attribute, sizeof attribute);
	memcpy(body + sizeof request + NLA_HDRLEN, value, len);
	ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, body, sizeof request + NLA_HDRLEN + len);
}

static int passes(const void *program, size_t len, int fd)
{
	ask_with(ALL, IPPROTO_TCP, INET_DIAG_REQ_BYTECODE, program, len);
	return find(offsetof(struct inet_diag_msg, idiag_inode), inode(fd));
}

static int refused(const void *program, size_t len)
{
	ask_with(ALL, IPPROTO_TCP, INET_DIAG_REQ_BYTECODE, program, len);
	return error_of();
}

typedef struct inet_diag_bc_op op;
/* A comparison with a port, which ends the program of so many bytes behind it where it does not hold. */
#define PORT(code, port, left) { code, 8, 8 + (left) + 4 }, { 0, 0, port }
#define PASSES(fd, ...) passes((op[]){ __VA_ARGS__ }, sizeof((op[]){ __VA_ARGS__ }), fd)
#define REFUSED(...) refused((op[]){ __VA_ARGS__ }, sizeof((op[]){ __VA_ARGS__ }))

struct host {
	op op;
	struct {
		__u8 family, prefix;
		int port;
	} condition;
	unsigned address;
};

static int at(int code, int prefix, int port, unsigned address, int fd)
{
	struct host host = { { code, sizeof host, sizeof host + 4 }, { AF_INET, prefix, port }, htonl(address) };
	return passes(&host, sizeof host, fd);
}

/* What ss(8) makes of "sport = :80 and dst 10.0.0.0/8". */
static void filters(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(23457), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	REQUIRE(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) == 0);
	REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 7) == 0);
	REQUIRE(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
	int port = 23457, own = port_of(client);
	CHECK_EQ(PASSES(listener, PORT(INET_DIAG_BC_S_EQ, port, 0)), 1);
	CHECK_EQ(PASSES(listener, PORT(INET_DIAG_BC_S_EQ, port + 1, 0)), 0);
	CHECK_EQ(PASSES(client, PORT(INET_DIAG_BC_S_EQ, port, 0)), 0);
	CHECK_EQ(PASSES(client, PORT(INET_DIAG_BC_D_EQ, port, 0)), 1);
	CHECK_EQ(PASSES(client, PORT(INET_DIAG_BC_D_GE, port + 1, 0)), 0);
	CHECK_EQ(PASSES(client, PORT(INET_DIAG_BC_D_LE, port, 0)), 1);
	CHECK_EQ(PASSES(client, PORT(INET_DIAG_BC_S_GE, own, 8), PORT(INET_DIAG_BC_S_LE, own, 0)), 1);
	/* Not: where it holds, the program ends beyond its end. */
	CHECK_EQ(PASSES(client, { INET_DIAG_BC_S_EQ, 8, 12 }, { 0, 0, own }, { INET_DIAG_BC_JMP, 4, 8 }), 0);
	CHECK_EQ(PASSES(client, { INET_DIAG_BC_D_EQ, 8, 12 }, { 0, 0, own }, { INET_DIAG_BC_JMP, 4, 8 }), 1);
	/* The port was chosen by itself. */
	CHECK_EQ(PASSES(client, { INET_DIAG_BC_AUTO, 4, 8 }), 1);
	CHECK_EQ(PASSES(listener, { INET_DIAG_BC_AUTO, 4, 8 }), 0);
	CHECK_EQ(PASSES(listener, { INET_DIAG_BC_NOP, 4, 0 }), 1);
	CHECK_EQ(at(INET_DIAG_BC_S_COND, 32, -1, INADDR_LOOPBACK, listener), 1);
	CHECK_EQ(at(INET_DIAG_BC_S_COND, 8, port, 0x7f020304, listener), 1);
	CHECK_EQ(at(INET_DIAG_BC_S_COND, 16, port, 0x7f020304, listener), 0);
	CHECK_EQ(at(INET_DIAG_BC_S_COND, 8, port + 1, 0x7f020304, listener), 0);
	CHECK_EQ(at(INET_DIAG_BC_D_COND, 31, port, INADDR_LOOPBACK, client), 1);
	CHECK_EQ(at(INET_DIAG_BC_D_COND, 9, -1, 0x7f800000, client), 0);
	CHECK_EQ(at(INET_DIAG_BC_D_COND, 0, -1, 0x01020304, client), 1);
	CHECK_EQ(REFUSED({ 99, 4, 8 }), EINVAL);
	CHECK_EQ(REFUSED({ INET_DIAG_BC_AUTO, 6, 8 }), EINVAL);
	CHECK_EQ(REFUSED({ INET_DIAG_BC_AUTO, 4, 12 }), EINVAL);
	CHECK_EQ(REFUSED({ INET_DIAG_BC_AUTO, 8, 4 }), EINVAL);
	CHECK_EQ(REFUSED({ INET_DIAG_BC_S_EQ, 8, 8 }), EINVAL);
	CHECK_EQ(REFUSED({ INET_DIAG_BC_JMP, 4, 8 }, PORT(INET_DIAG_BC_S_EQ, 1, 0)), EINVAL);
	struct host wide = { { INET_DIAG_BC_S_COND, sizeof wide, sizeof wide + 4 }, { AF_INET, 33, -1 }, 0 };
	CHECK_EQ(refused(&wide, sizeof wide), EINVAL);
	wide.condition.family = AF_UNIX;
	CHECK_EQ(refused(&wide, sizeof wide), EINVAL);
	/* A protocol in four bytes. */
	ask_with(ALL, IPPROTO_UDP, INET_DIAG_REQ_PROTOCOL, &(int){ IPPROTO_TCP }, 4);
	CHECK_EQ(find(offsetof(struct inet_diag_msg, idiag_inode), inode(listener)), 1);
	ask_with(ALL, IPPROTO_UDP, INET_DIAG_REQ_PROTOCOL, &(int){ IPPROTO_TCP }, 2);
	CHECK_EQ(error_of(), EINVAL);
	close(client), close(listener);
}

static int find_unix(unsigned states, unsigned show, int fd)
{
	struct unix_diag_req request = { .sdiag_family = AF_UNIX, .udiag_states = states, .udiag_show = show };
	ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, sizeof request);
	return find(offsetof(struct unix_diag_msg, udiag_ino), inode(fd));
}

static void unixes(void)
{
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), pair[2], size;
	struct sockaddr_un address = { AF_UNIX, "name" };
	REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 3) == 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	struct unix_diag_msg *message = NLMSG_DATA((struct nlmsghdr *)found);
	CHECK_EQ(find_unix(BIT(TCP_LISTEN), UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN | UDIAG_SHOW_ICONS, listener), 1);
	CHECK_EQ(message->udiag_family, AF_UNIX);
	CHECK_EQ(message->udiag_type, SOCK_STREAM);
	CHECK_EQ(message->udiag_state, TCP_LISTEN);
	char *name = attribute(sizeof *message, UNIX_DIAG_NAME, &size);
	CHECK(name && strncmp(name, "name", 4) == 0);
	struct unix_diag_rqlen *queue = attribute(sizeof *message, UNIX_DIAG_RQLEN, &size);
	CHECK_EQ(queue ? queue->udiag_rqueue : 99, 0);
	CHECK_EQ(queue ? queue->udiag_wqueue : 99, 3);
	CHECK(attribute(sizeof *message, UNIX_DIAG_ICONS, &size) != NULL && size == 0);
	CHECK(attribute(sizeof *message, UNIX_DIAG_PEER, &size) == NULL);
	CHECK(attribute(sizeof *message, UNIX_DIAG_SHUTDOWN, &size) != NULL && size == 1);
	CHECK_EQ(find_unix(BIT(TCP_ESTABLISHED), 0, listener), 0);
	REQUIRE(write(pair[0], "five!", 5) == 5);
	CHECK_EQ(find_unix(BIT(TCP_ESTABLISHED), UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_NAME | UDIAG_SHOW_UID, pair[1]), 1);
	unsigned *peer = attribute(sizeof *message, UNIX_DIAG_PEER, &size);
	CHECK_EQ(peer ? *peer : 0, inode(pair[0]));
	queue = attribute(sizeof *message, UNIX_DIAG_RQLEN, &size);
	CHECK_EQ(queue ? queue->udiag_rqueue : 99, 5);
	CHECK(attribute(sizeof *message, UNIX_DIAG_NAME, &size) == NULL);
	unsigned *uid = attribute(sizeof *message, UNIX_DIAG_UID, &size);
	CHECK_EQ(uid ? *uid : 99, getuid());
	struct unix_diag_req one = { .sdiag_family = AF_UNIX, .udiag_ino = inode(pair[0]),
				     .udiag_cookie = { UINT32_MAX, UINT32_MAX } };
	ask(SOCK_DIAG_BY_FAMILY, 0, &one, sizeof one);
	REQUIRE(recv(link_, found, sizeof found, 0) > 0);
	CHECK_EQ(message->udiag_ino, inode(pair[0]));
	one.udiag_ino = 0;
	ask(SOCK_DIAG_BY_FAMILY, 0, &one, sizeof one);
	CHECK_EQ(error_of(), EINVAL);
	one.udiag_ino = 0xfffffff0;
	ask(SOCK_DIAG_BY_FAMILY, 0, &one, sizeof one);
	CHECK_EQ(error_of(), ENOENT);
}

static void errors(void)
{
	char family = AF_INET, body[60] = { 0 };
	ask(SOCK_DIAG_BY_FAMILY, 0, &family, 1);
	CHECK_EQ(error_of(), EINVAL);
	body[0] = 120;
	ask(SOCK_DIAG_BY_FAMILY, 0, body, 56);
	CHECK_EQ(error_of(), EINVAL);
	body[0] = AF_INET, body[1] = IPPROTO_TCP;
	ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, body, 10);
	CHECK_EQ(error_of(), EINVAL);
	ask(99, 0, body, 56);
	CHECK_EQ(error_of(), EINVAL);
	int value;
	socklen_t len = sizeof value;
	CHECK_EQ(getsockopt(link_, SOL_SOCKET, SO_PROTOCOL, &value, &len), 0);
	CHECK_EQ(value, NETLINK_SOCK_DIAG);
	/* Ports are those of a protocol. */
	int other = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_pid = 4321 };
	int same = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
	CHECK_EQ(bind(other, (struct sockaddr *)&address, sizeof address), 0);
	CHECK_EQ(bind(same, (struct sockaddr *)&address, sizeof address), 0);
	close(other), close(same);
}

int main(void)
{
	tap_directory();
	link_ = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
	REQUIRE(link_ >= 0);
	errors();
	inet();
	filters();
	unixes();
	unlink("name");
	return tap_done();
}
