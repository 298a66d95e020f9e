/* Of several that sleep for the same connection or packet Linux wakes one, the one that came first (prepare_to_wait_exclusive). */
#include "tap.h"
#include "turns.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

typedef int (*call)(int fd);

/* A child that makes the call and then tells its name; it sleeps when this returns. */
static pid_t in_line(call made, int fd, int tell_to, char name)
{
	pid_t child = fork();
	if (child == 0) {
		REQUIRE(made(fd) >= 0);
		REQUIRE(write(tell_to, &name, 1) == 1);
		_exit(0);
	}
	usleep(30000);
	return child;
}

/* `give` makes something for one of those who make the call on `fd`. */
static void in_order(call take, int fd, void (*give)(void))
{
	int names[2];
	REQUIRE(pipe(names) == 0);
	in_line(take, fd, names[1], 'A');
	in_line(take, fd, names[1], 'B');
	pid_t third = in_line(take, fd, names[1], 'C');
	in_line(take, fd, names[1], 'D');
	give();
	CHECK_EQ(next_of(names[0]), 'A');
	CHECK_EQ(next_of(names[0]), 0);
	/* Who is gone holds up nobody; of two that are woken any tells first. */
	kill(third, SIGKILL);
	REQUIRE(waitpid(third, NULL, 0) == third);
	give();
	give();
	CHECK_EQ(next_of(names[0]) + next_of(names[0]), 'B' + 'D');
	CHECK_EQ(next_of(names[0]), 0);
	while (wait(NULL) > 0)
		;
	/* What is there when the call is made is for who makes it. */
	pid_t first = in_line(take, fd, names[1], 'A');
	kill(first, SIGSTOP);
	REQUIRE(waitpid(first, NULL, WUNTRACED) == first);
	give();
	CHECK(take(fd) >= 0);
	kill(first, SIGCONT);
	CHECK_EQ(next_of(names[0]), 0);
	give();
	CHECK_EQ(next_of(names[0]), 'A');
	REQUIRE(waitpid(first, NULL, 0) == first);
	close(names[0]), close(names[1]);
}

static struct sockaddr_storage addr;
static socklen_t addr_len;
static int kind;

static void connect_one(void)
{
	int fd = socket(addr.ss_family, kind, 0);
	REQUIRE(connect(fd, (void *)&addr, addr_len) == 0);
	/* The other end has it. */
	close(fd);
}

static void send_one(void)
{
	int fd = socket(addr.ss_family, kind, 0);
	REQUIRE(sendto(fd, "x", 1, 0, (void *)&addr, addr_len) == 1);
	close(fd);
}

static int accept_one(int fd)
{
	int got = accept(fd, NULL, NULL);
	return got < 0 ? got : close(got);
}

static int receive_one(int fd)
{
	char buf[16];
	return recv(fd, buf, sizeof buf, 0);
}

static int peek_one(int fd)
{
	char buf[16];
	return recv(fd, buf, sizeof buf, MSG_PEEK);
}

static int bound(int family, int type)
{
	int fd = socket(family, type, 0);
	addr = (struct sockaddr_storage){.ss_family = family};
	if (family == AF_INET)
		((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	addr_len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa_family_t);
	kind = type;
	REQUIRE(fd >= 0 && bind(fd, (void *)&addr, addr_len) == 0);
	addr_len = sizeof addr;
	REQUIRE(getsockname(fd, (void *)&addr, &addr_len) == 0);
	return fd;
}

static void connections(int family, int type)
{
	int fd = bound(family, type);
	REQUIRE(listen(fd, 16) == 0);
	in_order(accept_one, fd, connect_one);
	close(fd);
}

static void datagrams(int family)
{
	int fd = bound(family, SOCK_DGRAM);
	in_order(receive_one, fd, send_one);
	close(fd);
}

static int ends[2];

static void send_to_end(void)
{
	REQUIRE(send(ends[1], "x", 1, 0) == 1);
}

static void packets(void)
{
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
	in_order(receive_one, ends[0], send_to_end);
	close(ends[0]), close(ends[1]);
}

/* Who only looks at a packet has been woken for it all the same: the next one waits for another. */
static void peeked(int type)
{
	int names[2], fds[2];
	REQUIRE(socketpair(AF_UNIX, type, 0, fds) == 0 && pipe(names) == 0);
	in_line(peek_one, fds[0], names[1], 'A');
	in_line(receive_one, fds[0], names[1], 'B');
	in_line(receive_one, fds[0], names[1], 'C');
	CHECK_EQ(write(fds[1], "x", 1), 1);
	CHECK_EQ(next_of(names[0]), 'A');
	CHECK_EQ(next_of(names[0]), 0);
	CHECK_EQ(write(fds[1], "y", 1), 1);
	CHECK_EQ(next_of(names[0]), 'B');
	CHECK_EQ(next_of(names[0]), 0);
	/* What is left is for who makes the call. */
	CHECK_EQ(receive_one(fds[0]), 1);
	CHECK_EQ(write(fds[1], "z", 1), 1);
	CHECK_EQ(next_of(names[0]), 'C');
	while (wait(NULL) > 0)
		;
	close(fds[0]), close(fds[1]), close(names[0]), close(names[1]);
}

static int tells;

static void *thread(void *fd)
{
	while (receive_one(*(int *)fd) > 0)
		REQUIRE(write(tells, "T", 1) == 1);
	return NULL;
}

/* Who is stopped holds up nobody, and comes last when it goes on. */
static void stopped(void)
{
	int names[2], fd = bound(AF_UNIX, SOCK_DGRAM);
	REQUIRE(pipe(names) == 0);
	tells = names[1];
	pid_t threads = fork();
	if (threads == 0) {
		pthread_t other;
		REQUIRE(pthread_create(&other, NULL, thread, &fd) == 0);
		thread(&fd);
	}
	usleep(30000);
	pid_t last = in_line(receive_one, fd, names[1], 'C');
	kill(threads, SIGSTOP);
	REQUIRE(waitpid(threads, NULL, WUNTRACED) == threads);
	send_one();
	CHECK_EQ(next_of(names[0]), 'C');
	REQUIRE(waitpid(last, NULL, 0) == last);
	last = in_line(receive_one, fd, names[1], 'D');
	kill(threads, SIGCONT);
	usleep(30000);
	send_one();
	CHECK_EQ(next_of(names[0]), 'D');
	REQUIRE(waitpid(last, NULL, 0) == last);
	send_one(), send_one();
	CHECK_EQ(next_of(names[0]), 'T');
	CHECK_EQ(next_of(names[0]), 'T');
	kill(threads, SIGKILL);
	REQUIRE(waitpid(threads, NULL, 0) == threads);
	close(fd), close(names[0]), close(names[1]);
}

/* All who sleep hear of the end. */
static void ended(void)
{
	int names[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && pipe(names) == 0);
	int fds[2] = {ends[0], bound(AF_INET, SOCK_DGRAM)};
	for (int at = 0; at < 2; at++) {
		in_line(receive_one, fds[at], names[1], 'A');
		in_line(receive_one, fds[at], names[1], 'B');
		if (at == 0)
			REQUIRE(shutdown(fds[at], SHUT_RD) == 0);
		else
			CHECK_ERRNO(shutdown(fds[at], SHUT_RD), ENOTCONN);
		CHECK_EQ(next_of(names[0]) + next_of(names[0]), 'A' + 'B');
		while (wait(NULL) > 0)
			;
		close(fds[at]);
	}
	close(ends[1]), close(names[0]), close(names[1]);
}

int main(void)
{
	connections(AF_INET, SOCK_STREAM);
	connections(AF_UNIX, SOCK_STREAM);
	connections(AF_UNIX, SOCK_SEQPACKET);
	datagrams(AF_INET);
	datagrams(AF_UNIX);
	packets();
	peeked(SOCK_DGRAM);
	peeked(SOCK_SEQPACKET);
	stopped();
	ended();
	return tap_done();
}
