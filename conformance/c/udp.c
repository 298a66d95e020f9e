/* UDP over loopback: udp(7), ip(7), recvmsg(2), sendmmsg(2). */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

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

int main(void)
{
	datagrams();
	connections();
	full();
	return tap_done();
}
