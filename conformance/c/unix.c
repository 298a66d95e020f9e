/* Unix domain sockets: unix(7), socketpair(2), cmsg(3). */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char buffer[256];

static socklen_t name(struct sockaddr_un *address, const char *path)
{
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	/* "@x" stands for the abstract name x. */
	strcpy(address->sun_path, path);
	if (path[0] == '@')
		address->sun_path[0] = 0;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + (path[0] != '@'));
}

static int bind_to(int fd, const char *path)
{
	struct sockaddr_un address;
	socklen_t length = name(&address, path);
	return bind(fd, (struct sockaddr *)&address, length);
}

static int connect_to(int fd, const char *path)
{
	struct sockaddr_un address;
	socklen_t length = name(&address, path);
	return connect(fd, (struct sockaddr *)&address, length);
}

static void named(void)
{
	struct sockaddr_un address;
	struct stat st;
	int l = socket(AF_UNIX, SOCK_STREAM, 0), a = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_ERRNO(connect_to(a, "s"), ENOENT);
	CHECK_EQ(bind_to(l, "s"), 0);
	CHECK(stat("s", &st) == 0 && S_ISSOCK(st.st_mode));
	CHECK_ERRNO(connect_to(a, "s"), ECONNREFUSED);
	CHECK_ERRNO(open("s", O_RDWR), ENXIO);
	CHECK_EQ(listen(l, 2), 0);
	CHECK_EQ(connect_to(a, "s"), 0);
	CHECK_ERRNO(connect_to(a, "s"), EISCONN);
	socklen_t length = sizeof address;
	int b = accept(l, (struct sockaddr *)&address, &length);
	CHECK(b >= 0 && length == 2 && address.sun_family == AF_UNIX);
	length = sizeof address;
	CHECK(getpeername(a, (struct sockaddr *)&address, &length) == 0 && !strcmp(address.sun_path, "s") && length == 4);
	struct ucred peer;
	length = sizeof peer;
	CHECK(getsockopt(b, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == getpid() && peer.uid == geteuid() &&
	      peer.gid == getegid());
	CHECK_EQ(send(a, "hello", 5, 0), 5);
	CHECK_EQ(recv(b, buffer, 3, 0), 3);
	CHECK_EQ(recv(b, buffer, 9, 0), 2);
	close(a);
	CHECK_EQ(recv(b, buffer, 9, 0), 0);
	CHECK_ERRNO(send(b, "x", 1, MSG_NOSIGNAL), EPIPE);
	close(b);
	int other = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_ERRNO(bind_to(other, "s"), EADDRINUSE);
	CHECK_ERRNO(bind_to(other, "none/s"), ENOENT);
	close(l);
	/* The name outlives its socket. */
	CHECK_ERRNO(connect_to(other, "s"), ECONNREFUSED);
	CHECK_EQ(unlink("s"), 0);
	CHECK_EQ(bind_to(other, "s"), 0);
	CHECK_ERRNO(bind_to(other, "t"), EINVAL);
	REQUIRE(unlink("s") == 0);
	close(other);
	/* An abstract name has no file and goes with its socket. */
	l = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind_to(l, "@conformance") == 0 && listen(l, 1) == 0);
	a = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_EQ(connect_to(a, "@conformance"), 0);
	length = sizeof address;
	CHECK(getpeername(a, (struct sockaddr *)&address, &length) == 0 && length == 14 && address.sun_path[0] == 0 &&
	      !memcmp(address.sun_path + 1, "conformance", 11));
	close(l);
	close(a);
	a = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_ERRNO(connect_to(a, "@conformance"), ECONNREFUSED);
	close(a);
	/* A full backlog: a non-blocking connect fails at once. */
	l = socket(AF_UNIX, SOCK_STREAM, 0);
	REQUIRE(bind_to(l, "@full") == 0 && listen(l, 0) == 0);
	int first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_EQ(connect_to(first, "@full"), 0);
	CHECK_ERRNO(connect_to(second, "@full"), EAGAIN);
	close(first), close(second), close(l);
	CHECK_ERRNO(socket(AF_UNIX, SOCK_RAW + 50, 0), EINVAL);
}

static void pairs(void)
{
	int s[2], n;
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	CHECK_EQ(fcntl(s[0], F_GETFD), FD_CLOEXEC);
	CHECK(write(s[0], "ab", 2) == 2 && write(s[0], "cd", 2) == 2);
	CHECK(ioctl(s[1], FIONREAD, &n) == 0 && n == 4);
	CHECK(recv(s[1], buffer, 3, MSG_PEEK) == 3 && read(s[1], buffer, 9) == 4 && !memcmp(buffer, "abcd", 4));
	CHECK(write(s[1], "x", 1) == 1 && read(s[0], buffer, 9) == 1);
	/* Closed with data unread: a reset. */
	REQUIRE(write(s[0], "unread", 6) == 6);
	close(s[1]);
	CHECK_ERRNO(read(s[0], buffer, 9), ECONNRESET);
	CHECK_EQ(read(s[0], buffer, 9), 0);
	close(s[0]);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, s), 0);
	CHECK(send(s[0], "one", 3, 0) == 3 && send(s[0], "two", 3, 0) == 3);
	CHECK(recv(s[1], buffer, 9, 0) == 3 && !memcmp(buffer, "one", 3));
	CHECK_EQ(recv(s[1], buffer, 1, MSG_TRUNC), 3);
	CHECK_ERRNO(recv(s[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
	close(s[1]);
	CHECK_ERRNO(send(s[0], "x", 1, 0), ECONNREFUSED);
	close(s[0]);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s), 0);
	CHECK(send(s[0], "packet", 6, 0) == 6 && send(s[0], "next", 4, 0) == 4);
	struct iovec part = { buffer, 3 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	CHECK(recvmsg(s[1], &message, 0) == 3 && (message.msg_flags & MSG_TRUNC));
	CHECK_EQ(recv(s[1], buffer, 9, 0), 4);
	close(s[0]);
	CHECK_EQ(recv(s[1], buffer, 9, 0), 0);
	close(s[1]);
	CHECK_ERRNO(socketpair(AF_INET, SOCK_STREAM, 0, s), EOPNOTSUPP);
	/* A stream that is full, and what poll says of it. */
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s) == 0);
	static char big[1 << 16];
	long total = 0, sent, received = 0;
	while ((sent = write(s[0], big, sizeof big)) > 0)
		total += sent;
	int error = errno;
	CHECK_EQ(error, EAGAIN);
	struct pollfd p = { s[0], POLLOUT, 0 };
	CHECK(total > 65536 && poll(&p, 1, 0) == 0);
	while ((sent = read(s[1], big, sizeof big)) > 0)
		received += sent;
	CHECK(received == total && poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	CHECK_EQ(shutdown(s[0], SHUT_WR), 0);
	CHECK_EQ(read(s[1], big, 1), 0);
	CHECK_EQ(write(s[1], "x", 1), 1);
	close(s[0]), close(s[1]);
}

static void datagrams(void)
{
	int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un address;
	CHECK_EQ(bind_to(a, "a"), 0);
	socklen_t length = name(&address, "a");
	CHECK_EQ(sendto(b, "anon", 4, 0, (struct sockaddr *)&address, length), 4);
	length = sizeof address;
	CHECK(recvfrom(a, buffer, 9, 0, (struct sockaddr *)&address, &length) == 4 && length == 0);
	CHECK_EQ(bind_to(b, "b"), 0);
	CHECK_EQ(connect_to(b, "a"), 0);
	CHECK_EQ(send(b, "named", 5, 0), 5);
	length = sizeof address;
	CHECK(recvfrom(a, buffer, 9, 0, (struct sockaddr *)&address, &length) == 5 && !strcmp(address.sun_path, "b"));
	close(a);
	CHECK_ERRNO(send(b, "x", 1, 0), ECONNREFUSED);
	CHECK_ERRNO(connect_to(b, "none"), ENOENT);
	close(b);
	REQUIRE(unlink("a") == 0 && unlink("b") == 0);
}

static ssize_t send_fd(int over, int fd)
{
	char space[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8)));
	memset(space, 0, sizeof space);
	struct iovec part = { "f", 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	return sendmsg(over, &message, 0);
}

static int receive_fd(int over, int flags)
{
	char space[64] __attribute__((aligned(8)));
	struct iovec part = { buffer, sizeof buffer };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	int fd = -1;
	REQUIRE(recvmsg(over, &message, flags) == 1);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof fd))
		memcpy(&fd, CMSG_DATA(header), sizeof fd);
	return fd;
}

static void passing(void)
{
	int s[2], p[2];
	char c;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0);
	/* The open file travels, and lives while it is under way though nobody else has it. */
	CHECK_EQ(send_fd(s[0], p[1]), 1);
	close(p[1]);
	int fd = receive_fd(s[1], MSG_CMSG_CLOEXEC);
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(write(fd, "x", 1) == 1 && read(p[0], &c, 1) == 1);
	close(fd);
	CHECK_EQ(read(p[0], &c, 1), 0);
	/* To another process, with the offset of the file. */
	int file = open("f", O_RDWR | O_CREAT, 0600);
	REQUIRE(file >= 0 && write(file, "abc", 3) == 3 && lseek(file, 1, SEEK_SET) == 1);
	pid_t pid = fork();
	if (pid == 0) {
		close(file);
		int mine = receive_fd(s[1], 0);
		_exit(mine >= 0 && read(mine, &c, 1) == 1 && c == 'b' ? 0 : 1);
	}
	CHECK_EQ(send_fd(s[0], file), 1);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 2);
	CHECK_ERRNO(send_fd(s[0], 999), EBADF);
	/* Unread descriptors are closed with their socket. */
	REQUIRE(pipe(p) == 0 && send_fd(s[0], p[1]) == 1);
	close(p[1]);
	close(s[0]), close(s[1]);
	CHECK_EQ(read(p[0], &c, 1), 0);
	/* Without room for it the descriptor is dropped, and MSG_CTRUNC says so. */
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && send_fd(s[0], file) == 1);
	struct iovec part = { buffer, 9 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	CHECK(recvmsg(s[1], &message, 0) == 1 && (message.msg_flags & MSG_CTRUNC));
	/* Credentials on request. */
	int one = 1;
	CHECK_EQ(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one), 0);
	REQUIRE(send(s[0], "c", 1, 0) == 1);
	char space[64] __attribute__((aligned(8)));
	message = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	CHECK_EQ(recvmsg(s[1], &message, 0), 1);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	CHECK(header && header->cmsg_type == SCM_CREDENTIALS && ((struct ucred *)CMSG_DATA(header))->pid == getpid());
	close(s[0]), close(s[1]), close(file), close(p[0]);
	REQUIRE(unlink("f") == 0);
}

/* A socket that is in its own queue only is closed, and the message that held it does not count as unread. */
static void in_itself(void)
{
	int pair[2], error = -1;
	socklen_t size = sizeof error;
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	REQUIRE(send_fd(pair[0], pair[1]) == 1);
	CHECK_OK(close(pair[1]));
	/* Linux looks for such sockets when others are closed. */
	struct pollfd closed = { pair[0], POLLIN, 0 };
	for (int tries = 0; tries < 100 && !(closed.revents & POLLHUP); tries++) {
		int other[2];
		REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
		close(other[0]), close(other[1]);
		REQUIRE(poll(&closed, 1, 20) >= 0);
	}
	CHECK(closed.revents & POLLHUP && !(closed.revents & POLLERR));
	CHECK(getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0);
	close(pair[0]);
}

/* SO_PEEK_OFF (socket(7)): peeks go on where the last one ended, and receptions take the offset back. */
static int offset_of(int fd)
{
	int off = 77;
	socklen_t len = sizeof off;
	return getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, &len) == 0 ? off : -99;
}

static int set_offset(int fd, int off)
{
	return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off);
}

static int peeked(int fd, size_t room, int flags, const char *want)
{
	char data[64];
	ssize_t n = recv(fd, data, room, MSG_DONTWAIT | flags);
	return n == (ssize_t)strlen(want) && !memcmp(data, want, n);
}

static void *send_later(void *fd)
{
	usleep(20000);
	write(*(int *)fd, "later", 5);
	return NULL;
}

static void peeks_at_offsets(void)
{
	int pair[2], stream = socket(AF_INET, SOCK_STREAM, 0), netlink = socket(AF_NETLINK, SOCK_RAW, 0);
	pthread_t thread;
	char data[64];
	/* Of TCP, later kernels have it too. */
	CHECK(set_offset(stream, 0) == 0 || errno == EOPNOTSUPP);
	CHECK_ERRNO(set_offset(netlink, 0), EOPNOTSUPP);
	close(stream), close(netlink);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK_EQ(offset_of(pair[1]), -1);
	CHECK_ERRNO(setsockopt(pair[1], SOL_SOCKET, SO_PEEK_OFF, data, 2), EINVAL);
	write(pair[0], "hello ", 6);
	write(pair[0], "world", 5);
	CHECK(peeked(pair[1], 3, MSG_PEEK, "hel"));
	CHECK_EQ(offset_of(pair[1]), -1);
	CHECK_OK(set_offset(pair[1], -5));
	CHECK_EQ(offset_of(pair[1]), -5);
	CHECK(peeked(pair[1], 3, MSG_PEEK, "hel"));
	CHECK_OK(set_offset(pair[1], 0));
	CHECK(peeked(pair[1], 3, MSG_PEEK, "hel"));
	CHECK(peeked(pair[1], 5, MSG_PEEK, "lo wo"));
	CHECK_EQ(offset_of(pair[1]), 8);
	CHECK(peeked(pair[1], 50, MSG_PEEK, "rld"));
	CHECK_ERRNO(recv(pair[1], data, 50, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(offset_of(pair[1]), 11);
	CHECK(peeked(pair[1], 2, 0, "he"));
	CHECK_EQ(offset_of(pair[1]), 9);
	CHECK_OK(set_offset(pair[1], 1));
	CHECK(peeked(pair[1], 4, 0, "llo "));
	CHECK_EQ(offset_of(pair[1]), 0);
	CHECK_OK(set_offset(pair[1], 5));
	REQUIRE(pthread_create(&thread, NULL, send_later, &pair[0]) == 0);
	CHECK(recv(pair[1], data, 50, MSG_PEEK) == 5 && !memcmp(data, "later", 5));
	pthread_join(thread, NULL);
	CHECK_EQ(offset_of(pair[1]), 10);
	/* Memory that cannot be written changes nothing. */
	CHECK_OK(set_offset(pair[1], 2));
	CHECK_ERRNO(recv(pair[1], BAD, 5, MSG_PEEK), EFAULT);
	CHECK_EQ(offset_of(pair[1]), 2);
	CHECK(peeked(pair[1], 50, MSG_PEEK, "rldlater"));
	close(pair[0]), close(pair[1]);

	for (int kind = 0; kind < 2; kind++) {
		REQUIRE(socketpair(AF_UNIX, kind ? SOCK_SEQPACKET : SOCK_DGRAM, 0, pair) == 0);
		write(pair[0], "first", 5);
		send(pair[0], "", 0, 0);
		write(pair[0], "second", 6);
		CHECK_OK(set_offset(pair[1], 0));
		CHECK(peeked(pair[1], 2, MSG_PEEK, "fi"));
		struct iovec part = { data, 2 };
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
		CHECK(recvmsg(pair[1], &message, MSG_PEEK) == 2 && message.msg_flags == MSG_TRUNC && !memcmp(data, "rs", 2));
		CHECK_EQ(offset_of(pair[1]), 4);
		CHECK_EQ(recv(pair[1], data, 0, MSG_PEEK | MSG_TRUNC), 1);
		CHECK(peeked(pair[1], 50, MSG_PEEK, "t"));
		/* The empty one is shown once. */
		CHECK(peeked(pair[1], 50, MSG_PEEK, ""));
		CHECK(peeked(pair[1], 50, MSG_PEEK, "second"));
		CHECK_ERRNO(recv(pair[1], data, 50, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
		CHECK_EQ(offset_of(pair[1]), 11);
		CHECK(peeked(pair[1], 2, 0, "fi"));
		CHECK_EQ(offset_of(pair[1]), 6);
		CHECK(peeked(pair[1], 50, 0, ""));
		CHECK_ERRNO(recv(pair[1], BAD, 5, 0), EFAULT);
		CHECK_EQ(offset_of(pair[1]), 6);
		close(pair[0]), close(pair[1]);
	}
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	char *directory = tap_directory();
	named();
	pairs();
	datagrams();
	passing();
	in_itself();
	peeks_at_offsets();
	REQUIRE(chdir("/") == 0);
	CHECK_EQ(rmdir(directory), 0);
	return tap_done();
}
