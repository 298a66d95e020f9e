/* Which segments a socket of TCP takes: IP_MINTTL and IPV6_MINHOPCOUNT (ip(7), RFC 5082), TCP_MD5SIG (RFC 2385). */
#include "tap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IPV6_MINHOPCOUNT
#define IPV6_MINHOPCOUNT 73
#endif

static struct sockaddr_storage at;
static socklen_t at_len;

static void loopback(int family, int port)
{
	memset(&at, 0, sizeof at);
	struct sockaddr_in *four = (void *)&at;
	struct sockaddr_in6 *six = (void *)&at;
	at.ss_family = family;
	if (family == AF_INET) {
		four->sin_port = port;
		four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		six->sin6_port = port;
		six->sin6_addr = in6addr_loopback;
	}
	at_len = family == AF_INET ? sizeof *four : sizeof *six;
}

/* A listening socket, whose address is in `at` then. */
static int listener(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	loopback(family, 0);
	REQUIRE(bind(fd, (void *)&at, at_len) == 0 && getsockname(fd, (void *)&at, &at_len) == 0 && listen(fd, 8) == 0);
	return fd;
}

/* 0 for a connection, else what became of it. */
static int reaches(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	if (connect(fd, (void *)&at, at_len) == 0)
		return 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	if (errno != EINPROGRESS || poll(&p, 1, 300) == 0)
		return errno == EINPROGRESS ? ETIMEDOUT : errno;
	int error;
	socklen_t len = sizeof error;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	return error;
}

static int hears(int fd)
{
	char byte;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 300) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) == 1;
}

static int set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof value);
}

static void hops(int family)
{
	int level = family == AF_INET ? SOL_IP : SOL_IPV6;
	int ttl = family == AF_INET ? IP_TTL : IPV6_UNICAST_HOPS, least = family == AF_INET ? IP_MINTTL : IPV6_MINHOPCOUNT;
	int value;
	socklen_t len = sizeof value;
	int server = listener(family), far = socket(family, SOCK_STREAM, 0), near = socket(family, SOCK_STREAM, 0);
	CHECK(set(server, level, least, 256) == -1 && errno == EINVAL);
	CHECK(set(server, level, least, 255) == 0);
	CHECK(getsockopt(server, level, least, &value, &len) == 0 && value == 255);
	CHECK(reaches(far) == ETIMEDOUT);
	CHECK(set(near, level, ttl, 255) == 0);
	CHECK(reaches(near) == 0);
	int accepted = accept(server, NULL, NULL);
	REQUIRE(accepted >= 0);
	CHECK(getsockopt(accepted, level, least, &value, &len) == 0 && value == 255);
	CHECK(send(near, "a", 1, 0) == 1 && hears(accepted));
	/* What comes from afar is lost, until the sender is near again. */
	CHECK(set(near, level, ttl, 254) == 0);
	CHECK(send(near, "b", 1, 0) == 1 && !hears(accepted));
	CHECK(set(near, level, ttl, 255) == 0);
	CHECK(hears(accepted));
	/* The other way nothing is asked for. */
	CHECK(send(accepted, "c", 1, 0) == 1 && hears(near));
	CHECK(set(near, level, least, 64) == 0);
	CHECK(send(accepted, "d", 1, 0) == 1 && hears(near));
	CHECK(set(near, level, least, 65) == 0);
	CHECK(send(accepted, "e", 1, 0) == 1 && !hears(near));
	CHECK(set(near, level, least, 0) == 0);
	CHECK(hears(near));
	/* A minus stands for the default. */
	CHECK(set(near, level, ttl, -1) == 0);
	CHECK(send(near, "f", 1, 0) == 1 && !hears(accepted));
	close(far);
	close(near);
	close(accepted);
	close(server);
}

static int key(int fd, const char *text)
{
	struct tcp_md5sig sig = {.tcpm_keylen = strlen(text)};
	memcpy(&sig.tcpm_addr, &at, sizeof at);
	strncpy((char *)sig.tcpm_key, text, TCP_MD5SIG_MAXKEYLEN);
	return setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig);
}

static void signatures(int family)
{
	int server = listener(family), fd = socket(family, SOCK_STREAM, 0);
	CHECK(key(server, "secret") == 0);
	CHECK(reaches(fd) == ETIMEDOUT);
	close(fd);
	fd = socket(family, SOCK_STREAM, 0);
	CHECK(key(fd, "another") == 0);
	CHECK(reaches(fd) == ETIMEDOUT);
	close(fd);
	fd = socket(family, SOCK_STREAM, 0);
	CHECK(key(fd, "another") == 0 && key(fd, "secret") == 0);
	CHECK(reaches(fd) == 0);
	int accepted = accept(server, NULL, NULL);
	REQUIRE(accepted >= 0);
	CHECK(send(fd, "a", 1, 0) == 1 && hears(accepted));
	CHECK(send(accepted, "b", 1, 0) == 1 && hears(fd));
	/* The connection has a key of its own. */
	CHECK(key(server, "") == 0);
	CHECK_ERRNO(key(server, ""), ENOENT);
	CHECK(send(fd, "c", 1, 0) == 1 && hears(accepted));
	int plain = socket(family, SOCK_STREAM, 0);
	CHECK(reaches(plain) == 0);
	close(plain);
	plain = socket(family, SOCK_STREAM, 0);
	CHECK(key(plain, "secret") == 0);
	CHECK(reaches(plain) == ETIMEDOUT);
	close(plain);
	/* Its end is signed as well. */
	close(fd);
	char byte;
	struct pollfd p = {.fd = accepted, .events = POLLIN};
	CHECK(poll(&p, 1, 300) == 1 && recv(accepted, &byte, 1, 0) == 0);
	close(accepted);
	close(server);

	/* Nobody answers who is signed where nobody listens. */
	fd = socket(family, SOCK_STREAM, 0);
	CHECK(reaches(fd) == ECONNREFUSED);
	close(fd);
	fd = socket(family, SOCK_STREAM, 0);
	CHECK(key(fd, "secret") == 0);
	CHECK(reaches(fd) == ETIMEDOUT);
	close(fd);
}

static void errors(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct tcp_md5sig sig = {.tcpm_keylen = 3};
	loopback(AF_INET, htons(9));
	memcpy(&sig.tcpm_addr, &at, sizeof at);
	CHECK_ERRNO(setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig - 1), EINVAL);
	sig.tcpm_keylen = TCP_MD5SIG_MAXKEYLEN + 1;
	CHECK_ERRNO(setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig), EINVAL);
	sig.tcpm_keylen = TCP_MD5SIG_MAXKEYLEN;
	CHECK(setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig) == 0);
	((struct sockaddr *)&sig.tcpm_addr)->sa_family = AF_INET6;
	CHECK_ERRNO(setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig), EINVAL);
	((struct sockaddr *)&sig.tcpm_addr)->sa_family = AF_INET;
	sig.tcpm_flags = TCP_MD5SIG_FLAG_PREFIX;
	sig.tcpm_prefixlen = 33;
	CHECK(setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig) == 0);
	CHECK_ERRNO(setsockopt(fd, SOL_TCP, TCP_MD5SIG_EXT, &sig, sizeof sig), EINVAL);
	sig.tcpm_prefixlen = 8;
	CHECK(setsockopt(fd, SOL_TCP, TCP_MD5SIG_EXT, &sig, sizeof sig) == 0);
	sig.tcpm_keylen = 0;
	sig.tcpm_prefixlen = 9;
	CHECK_ERRNO(setsockopt(fd, SOL_TCP, TCP_MD5SIG_EXT, &sig, sizeof sig), ENOENT);
	sig.tcpm_prefixlen = 8;
	CHECK(setsockopt(fd, SOL_TCP, TCP_MD5SIG_EXT, &sig, sizeof sig) == 0);
	/* Linux 6.1 takes 150 of them, newer kernels more. */
	sig.tcpm_keylen = 3;
	sig.tcpm_flags = 0;
	int keys = 0, error = 0;
	for (; keys < 2000; keys++) {
		((struct sockaddr_in *)&sig.tcpm_addr)->sin_addr.s_addr = htonl(0x0a000000 + keys);
		if (setsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, sizeof sig) != 0) {
			error = errno;
			break;
		}
	}
	CHECK(keys >= 149 && keys < 2000 && error == ENOMEM);
	socklen_t len = sizeof sig;
	CHECK_ERRNO(getsockopt(fd, SOL_TCP, TCP_MD5SIG, &sig, &len), ENOPROTOOPT);
	close(fd);
}

static int mark_message(int fd, int mark, size_t size)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char control[CMSG_SPACE(sizeof mark)] = { 0 };
	struct iovec iov = { "x", 1 };
	struct msghdr msg = { &to, sizeof to, &iov, 1, control, CMSG_SPACE(size), 0 };
	struct cmsghdr *part = CMSG_FIRSTHDR(&msg);
	*part = (struct cmsghdr){ CMSG_LEN(size), SOL_SOCKET, SO_MARK };
	memcpy(CMSG_DATA(part), &mark, size);
	return sendmsg(fd, &msg, 0);
}

/* Marks, high priorities and transparent sockets are for who has one of two capabilities (since Linux 5.17). */
static void who_may_mark(void)
{
	const struct {
		int level, name, value;
	} options[] = { { SOL_SOCKET, SO_MARK, 7 }, { SOL_SOCKET, SO_PRIORITY, 9 }, { SOL_SOCKET, SO_PRIORITY, -1 }, { SOL_IP, IP_TRANSPARENT, 1 } };
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];
	for (int round = 0; round < 2; round++) {
		/* First CAP_NET_RAW alone, then neither. */
		REQUIRE(syscall(SYS_capget, &header, caps) == 0);
		caps[0].effective &= ~(1u << CAP_NET_ADMIN | (round == 1 ? 1u << CAP_NET_RAW : 0));
		REQUIRE(syscall(SYS_capset, &header, caps) == 0);
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
			int value = options[i].value, zero = 0;
			if (round == 0) {
				CHECK_EQ(setsockopt(fd, options[i].level, options[i].name, &value, sizeof value), 0);
				int got = 0;
				socklen_t len = sizeof got;
				CHECK(getsockopt(fd, options[i].level, options[i].name, &got, &len) == 0 && got == value);
			} else {
				CHECK_ERRNO(setsockopt(fd, options[i].level, options[i].name, &value, sizeof value), EPERM);
			}
			if (options[i].name != SO_MARK)
				CHECK_EQ(setsockopt(fd, options[i].level, options[i].name, &zero, sizeof zero), 0);
		}
		if (round == 0) {
			CHECK_EQ(mark_message(fd, 5, sizeof(int)), 1);
			CHECK_ERRNO(mark_message(fd, 5, 1), EINVAL);
		} else {
			CHECK_ERRNO(mark_message(fd, 5, sizeof(int)), EPERM);
		}
		/* The option of the other family is the same. */
		int six = socket(AF_INET6, SOCK_DGRAM, 0), on = 1, got = 0;
		socklen_t len = sizeof got;
		if (round == 0)
			CHECK(setsockopt(six, SOL_IPV6, IPV6_TRANSPARENT, &on, sizeof on) == 0 &&
			      getsockopt(six, SOL_IP, IP_TRANSPARENT, &got, &len) == 0 && got == 1);
		else
			CHECK_ERRNO(setsockopt(six, SOL_IPV6, IPV6_TRANSPARENT, &on, sizeof on), EPERM);
		close(six), close(fd);
	}
	caps[0].effective = caps[0].permitted;
	REQUIRE(syscall(SYS_capset, &header, caps) == 0);
}

int main(void)
{
	who_may_mark();
	hops(AF_INET);
	hops(AF_INET6);
	signatures(AF_INET);
	signatures(AF_INET6);
	errors();
	return tap_done();
}
