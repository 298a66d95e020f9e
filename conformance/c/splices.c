/* splice(2), tee(2), vmsplice(2), and sendfile(2) to pipes. */
#include "tap.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

static int p[2], q[2], file;
static char room[200000];

static void pair(int fds[2], int flags)
{
	REQUIRE(pipe2(fds, flags) == 0);
}

static void drop(int fds[2])
{
	close(fds[0]), close(fds[1]);
}

static int held(int fd)
{
	int n = -1;
	ioctl(fd, FIONREAD, &n);
	return n;
}

static const char *text_of(int fd)
{
	static char text[64];
	memset(text, 0, sizeof text);
	if (read(fd, text, sizeof text - 1) < 0)
		strcpy(text, "?");
	return text;
}

#define CHECK_TEXT(got, want) \
	do { \
		const char *got_ = got; \
		if (!tap_true(strcmp(got_, want) == 0, want[0] ? want : "(nothing)", __FILE__, __LINE__, 0)) \
			tap_print("# got %s\n", got_); \
	} while (0)

static void arguments(void)
{
	loff_t at = 0, minus = -1;
	pair(p, 0), pair(q, 0);
	int other = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), event = eventfd(1, 0), dir = open(".", O_RDONLY);
	REQUIRE(write(p[1], "text", 4) == 4);
	CHECK_EQ(splice(-1, NULL, -1, NULL, 0, 99), 0);
	CHECK_ERRNO(splice(-1, NULL, -1, NULL, 1, 99), EINVAL);
	CHECK_ERRNO(splice(-1, NULL, q[1], NULL, 1, 0), EBADF);
	CHECK_ERRNO(splice(p[0], NULL, -1, NULL, 1, 0), EBADF);
	CHECK_ERRNO(splice(p[0], &at, q[1], NULL, 1, 0), ESPIPE);
	CHECK_ERRNO(splice(p[0], NULL, q[1], &at, 1, 0), ESPIPE);
	CHECK_ERRNO(splice(p[1], &at, q[0], BAD, 1, 0), ESPIPE);
	CHECK_ERRNO(splice(p[0], NULL, other, BAD, 1, 0), EFAULT);
	CHECK_ERRNO(splice(other, BAD, q[1], NULL, 1, 0), EFAULT);
	CHECK_ERRNO(splice(p[1], NULL, q[1], NULL, 1, 0), EBADF);
	CHECK_ERRNO(splice(p[0], NULL, q[0], NULL, 1, 0), EBADF);
	CHECK_ERRNO(splice(p[0], NULL, p[1], NULL, 1, 0), EINVAL);
	CHECK_ERRNO(splice(other, NULL, file, NULL, 1, 0), EINVAL);
	CHECK_ERRNO(splice(p[0], NULL, other, &minus, 1, 0), EINVAL);
	CHECK_ERRNO(splice(other, &minus, q[1], NULL, 1, 0), EINVAL);
	CHECK_ERRNO(splice(event, NULL, q[1], NULL, 8, 0), EINVAL);
	CHECK_ERRNO(splice(p[0], NULL, event, NULL, 8, 0), EINVAL);
	CHECK_ERRNO(splice(dir, NULL, q[1], NULL, 8, 0), EINVAL);
	/* An end that no offset says is found before the pipe is looked at. */
	loff_t last = INT64_MAX;
	CHECK_ERRNO(splice(q[0], NULL, other, &last, 1, SPLICE_F_NONBLOCK), EINVAL);
	CHECK_ERRNO(splice(q[0], NULL, other, NULL, SIZE_MAX, SPLICE_F_NONBLOCK), EINVAL);
	fcntl(other, F_SETFL, O_APPEND);
	CHECK_ERRNO(splice(p[0], NULL, other, NULL, 8, 0), EINVAL);
	fcntl(other, F_SETFL, 0);
	CHECK_ERRNO(tee(-1, -1, 0, 99), EINVAL);
	CHECK_EQ(tee(-1, -1, 0, 0), 0);
	CHECK_ERRNO(tee(p[0], -1, 1, 0), EBADF);
	CHECK_ERRNO(tee(p[1], q[1], 1, 0), EBADF);
	CHECK_ERRNO(tee(p[0], p[1], 1, 0), EINVAL);
	CHECK_ERRNO(tee(p[0], other, 1, 0), EINVAL);
	CHECK_ERRNO(tee(other, q[1], 1, 0), EINVAL);
	struct iovec iov = { room, 10 };
	CHECK_ERRNO(vmsplice(-1, &iov, 1, 99), EINVAL);
	CHECK_ERRNO(vmsplice(-1, &iov, 1, 0), EBADF);
	CHECK_ERRNO(vmsplice(other, &iov, 1, 0), EBADF);
	CHECK_ERRNO(vmsplice(other, BAD, 1, 0), EFAULT);
	CHECK_ERRNO(vmsplice(other, &iov, 1025, 0), EINVAL);
	CHECK_EQ(vmsplice(other, &iov, 0, 0), 0);
	CHECK_EQ(vmsplice(p[1], &iov, 0, 0), 0);
	CHECK_ERRNO(vmsplice(p[1], BAD, 1, 0), EFAULT);
	iov.iov_base = BAD;
	CHECK_ERRNO(vmsplice(p[1], &iov, 1, 0), EFAULT);
	CHECK_ERRNO(vmsplice(p[0], &iov, 1, 0), EFAULT);
	CHECK_EQ(held(p[0]), 4);
	close(other), close(event), close(dir);
	drop(p), drop(q);
}

static void between_pipes(void)
{
	pair(p, 0), pair(q, 0);
	REQUIRE(write(p[1], "hello, world", 12) == 12);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 5, 0), 5);
	CHECK_EQ(held(p[0]), 7);
	CHECK_TEXT(text_of(q[0]), "hello");
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 100, 0), 7);
	CHECK_TEXT(text_of(q[0]), ", world");
	CHECK_ERRNO(splice(p[0], NULL, q[1], NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(splice(p[0], NULL, q[1], NULL, 100, 0), EAGAIN);
	fcntl(p[0], F_SETFL, 0);
	fcntl(q[1], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(splice(p[0], NULL, q[1], NULL, 100, 0), EAGAIN);
	/* Full: buffers are counted, not bytes. */
	fcntl(q[1], F_SETFL, 0);
	for (int i = 0; i < 16; i++) {
		REQUIRE(write(p[1], "x", 1) == 1);
		REQUIRE(splice(p[0], NULL, q[1], NULL, 1, 0) == 1);
	}
	CHECK_EQ(held(q[0]), 16);
	REQUIRE(write(p[1], "yz", 2) == 2);
	CHECK_ERRNO(splice(p[0], NULL, q[1], NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
	/* What has come by splice is not added to where only a part was moved. */
	REQUIRE(read(q[0], room, 1) == 1);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 1, SPLICE_F_NONBLOCK), 1);
	fcntl(q[1], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(write(q[1], "w", 1), EAGAIN);
	REQUIRE(read(q[0], room, 1) == 1);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 1, 0), 1);
	CHECK_EQ(write(q[1], "w", 1), 1);
	CHECK_EQ(held(q[0]), 17);
	REQUIRE(read(q[0], room, 100) == 17);
	CHECK(memcmp(room, "xxxxxxxxxxxxxxyzw", 17) == 0);
	fcntl(q[1], F_SETFL, 0);
	/* A part of a buffer that fills the other pipe. */
	REQUIRE(write(p[1], room, 65536) == 65536);
	REQUIRE(read(p[0], room, 100) == 100);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 1 << 20, 0), 65436);
	CHECK_EQ(held(q[0]), 65436);
	REQUIRE(read(q[0], room, 65536) == 65436);
	/* Ends. */
	close(p[1]);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 100, 0), 0);
	drop(q);
	pair(q, 0);
	close(p[0]);
	pair(p, 0);
	REQUIRE(write(p[1], "x", 1) == 1);
	close(q[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK_ERRNO(splice(p[0], NULL, q[1], NULL, 100, 0), EPIPE);
	CHECK_ERRNO(tee(p[0], q[1], 100, 0), EPIPE);
	struct iovec iov = { room, 10 };
	CHECK_ERRNO(vmsplice(q[1], &iov, 1, 0), EPIPE);
	CHECK_ERRNO(splice(file, NULL, q[1], NULL, 100, 0), EPIPE);
	CHECK_EQ(held(p[0]), 1);
	close(q[1]);
	drop(p);
	/* Packets stay packets. */
	pair(p, O_DIRECT), pair(q, 0);
	REQUIRE(write(p[1], "one", 3) == 3 && write(p[1], "two", 3) == 3);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 100, 0), 6);
	CHECK_TEXT(text_of(q[0]), "one");
	CHECK_TEXT(text_of(q[0]), "two");
	drop(p), drop(q);
}

static void tees(void)
{
	pair(p, 0), pair(q, 0);
	CHECK_ERRNO(tee(p[0], q[1], 100, SPLICE_F_NONBLOCK), EAGAIN);
	REQUIRE(write(p[1], "hello", 5) == 5);
	CHECK_EQ(tee(p[0], q[1], 3, 0), 3);
	CHECK_EQ(held(p[0]), 5);
	CHECK_TEXT(text_of(q[0]), "hel");
	CHECK_EQ(tee(p[0], q[1], 100, 0), 5);
	CHECK_EQ(tee(p[0], q[1], 100, 0), 5);
	CHECK_TEXT(text_of(q[0]), "hellohello");
	CHECK_TEXT(text_of(p[0]), "hello");
	/* What was copied is not added to, on neither side. */
	REQUIRE(write(p[1], "a", 1) == 1);
	CHECK_EQ(tee(p[0], q[1], 100, 0), 1);
	REQUIRE(write(q[1], "b", 1) == 1);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(text_of(p[0]), "ac");
	CHECK_TEXT(text_of(q[0]), "ab");
	for (int i = 0; i < 16; i++)
		REQUIRE(vmsplice(q[1], &(struct iovec){ "x", 1 }, 1, 0) == 1);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_ERRNO(tee(p[0], q[1], 100, SPLICE_F_NONBLOCK), EAGAIN);
	CHECK_EQ(held(q[0]), 16);
	close(p[1]);
	REQUIRE(read(p[0], room, 10) == 1 && read(q[0], room, 100) == 16);
	CHECK_EQ(tee(p[0], q[1], 100, 0), 0);
	close(p[0]), drop(q);
}

static void memory(void)
{
	struct iovec iov[3] = { { "one ", 4 }, { "two ", 4 }, { "three", 5 } };
	pair(p, 0);
	CHECK_EQ(vmsplice(p[1], iov, 3, 0), 13);
	CHECK_TEXT(text_of(p[0]), "one two three");
	/* Full: what fits, once. */
	char *pages = mmap(NULL, 40 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(pages, 'm', 40 * 4096);
	CHECK_EQ(vmsplice(p[1], &(struct iovec){ pages, 40 * 4096 }, 1, 0), 16 * 4096);
	CHECK_ERRNO(vmsplice(p[1], &(struct iovec){ pages, 1 }, 1, SPLICE_F_NONBLOCK), EAGAIN);
	/* The other way. */
	char *to = mmap(NULL, 40 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec back[2] = { { to, 10 }, { to + 4096, 30 * 4096 } };
	CHECK_EQ(vmsplice(p[0], back, 2, 0), 16 * 4096);
	CHECK(to[0] == 'm' && to[9] == 'm' && to[10] == 0 && to[4096 + 16 * 4096 - 11] == 'm' && !to[4096 + 16 * 4096 - 10]);
	CHECK_ERRNO(vmsplice(p[0], back, 2, SPLICE_F_NONBLOCK), EAGAIN);
	/* Pages begin where those of memory do. */
	CHECK_EQ(vmsplice(p[1], &(struct iovec){ pages + 4000, 20 * 4096 }, 1, 0), 15 * 4096 + 96);
	CHECK_EQ(read(p[0], room, 100), 100);
	CHECK_EQ(read(p[0], room, sizeof room), 15 * 4096 + 96 - 100);
	/* Bad in its middle: whole pages before it. */
	munmap(pages + 2 * 4096, 4096);
	CHECK_EQ(vmsplice(p[1], &(struct iovec){ pages + 10, 4 * 4096 }, 1, 0), 2 * 4096 - 10);
	CHECK_EQ(read(p[0], room, sizeof room), 2 * 4096 - 10);
	REQUIRE(write(p[1], "hello", 5) == 5);
	close(p[1]);
	CHECK_EQ(vmsplice(p[0], &(struct iovec){ to, 3 }, 1, 0), 3);
	CHECK_EQ(vmsplice(p[0], &(struct iovec){ to + 3, 30 }, 1, 0), 2);
	CHECK(memcmp(to, "hello", 5) == 0);
	CHECK_EQ(vmsplice(p[0], &(struct iovec){ to + 3, 30 }, 1, 0), 0);
	close(p[0]);
	munmap(to, 40 * 4096), munmap(pages, 2 * 4096), munmap(pages + 3 * 4096, 37 * 4096);
}

static void files(void)
{
	loff_t at = 6;
	int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pair(p, 0);
	CHECK_EQ(splice(file, NULL, p[1], NULL, 5, 0), 5);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 5);
	CHECK_EQ(splice(file, &at, p[1], NULL, 5, 0), 5);
	CHECK_EQ(at, 11);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 5);
	CHECK_TEXT(text_of(p[0]), "01234ghijk");
	at = 100000;
	CHECK_EQ(splice(file, &at, p[1], NULL, 5, 0), 0);
	CHECK_EQ(at, 100000);
	/* As much as there is room for. */
	at = 4000;
	CHECK_EQ(splice(file, &at, p[1], NULL, 90000, 0), 15 * 4096 + 96);
	CHECK_EQ(at, 16 * 4096);
	CHECK_ERRNO(splice(file, &at, p[1], NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(splice(file, &at, p[1], NULL, 1, 0), EAGAIN);
	CHECK_ERRNO(sendfile(p[1], file, &at, 1), EAGAIN);
	fcntl(p[1], F_SETFL, 0);
	CHECK_EQ(splice(p[0], NULL, out, NULL, 3, 0), 3);
	at = 10;
	CHECK_EQ(splice(p[0], NULL, out, &at, 1 << 20, 0), 15 * 4096 + 93);
	CHECK_EQ(at, 10 + 15 * 4096 + 93);
	CHECK_EQ(lseek(out, 0, SEEK_CUR), 3);
	CHECK_EQ(lseek(out, 0, SEEK_END), at);
	CHECK_EQ(held(p[0]), 0);
	CHECK_ERRNO(splice(p[0], NULL, out, NULL, 3, SPLICE_F_NONBLOCK), EAGAIN);
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(splice(p[0], NULL, out, NULL, 3, 0), EAGAIN);
	fcntl(p[0], F_SETFL, 0);
	fcntl(out, F_SETFL, O_NONBLOCK);
	/* A short page of a file is not written to. */
	at = 0;
	for (int i = 0; i < 16; i++)
		REQUIRE(splice(file, &at, p[1], NULL, 1, 0) == 1);
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(write(p[1], "x", 1), EAGAIN);
	fcntl(p[1], F_SETFL, 0);
	REQUIRE(read(p[0], room, 100) == 16);
	close(p[1]);
	CHECK_EQ(splice(p[0], NULL, out, NULL, 3, 0), 0);
	close(p[0]);
	/* Devices. */
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
	pair(p, 0);
	REQUIRE(write(p[1], "hello", 5) == 5);
	CHECK_EQ(splice(p[0], NULL, null, NULL, 100, 0), 5);
	CHECK_ERRNO(splice(null, NULL, p[1], NULL, 100, 0), EINVAL);
	CHECK_ERRNO(sendfile(p[1], null, NULL, 100), EINVAL);
	CHECK_ERRNO(sendfile(file, null, NULL, 100), EINVAL);
	/* The output has no place for a byte behind the last one that there can be. */
	int last = memfd_create("last", 0);
	off_t from = 0;
	CHECK_EQ(lseek(last, INT64_MAX, SEEK_SET), INT64_MAX);
	CHECK_ERRNO(sendfile(last, last, &from, 1), EINVAL);
	CHECK_EQ(sendfile(last, last, &from, 0), 0);
	close(last);
	CHECK_EQ(splice(zero, NULL, p[1], NULL, 100, 0), 100);
	CHECK_ERRNO(splice(p[0], NULL, full, NULL, 100, 0), EINVAL);
	CHECK_EQ(splice(p[0], NULL, zero, NULL, 100, 0), 100);
	/* The offset of a device that keeps nothing of what it is given stays where it is. */
	int random = open("/dev/urandom", O_RDWR);
	loff_t place = 5;
	REQUIRE(write(p[1], "hello", 5) == 5);
	CHECK_EQ(splice(p[0], NULL, null, &place, 2, 0), 2);
	CHECK_EQ(splice(p[0], NULL, zero, &place, 2, 0), 2);
	CHECK_EQ(splice(p[0], NULL, random, &place, 1, 0), 1);
	CHECK_EQ(place, 5);
	close(null), close(zero), close(full), close(random), close(out);
	drop(p);
}

static void sockets(void)
{
	int s[2];
	loff_t at = 0;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	pair(p, 0);
	REQUIRE(write(p[1], "hello", 5) == 5);
	CHECK_ERRNO(splice(p[0], NULL, s[0], &at, 5, 0), EINVAL);
	CHECK_ERRNO(splice(s[1], &at, p[1], NULL, 5, 0), EINVAL);
	CHECK_EQ(splice(p[0], NULL, s[0], NULL, 100, 0), 5);
	CHECK_EQ(splice(s[1], NULL, p[1], NULL, 3, 0), 3);
	CHECK_EQ(splice(s[1], NULL, p[1], NULL, 100, 0), 2);
	CHECK_TEXT(text_of(p[0]), "hello");
	CHECK_ERRNO(splice(s[1], NULL, p[1], NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
	fcntl(s[1], F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(splice(s[1], NULL, p[1], NULL, 100, 0), EAGAIN);
	/* A full socket that does not wait. */
	fcntl(s[0], F_SETFL, O_NONBLOCK);
	while (write(s[0], room, 4096) > 0)
		;
	REQUIRE(write(p[1], "hello", 5) == 5);
	CHECK_ERRNO(splice(p[0], NULL, s[0], NULL, 100, 0), EAGAIN);
	CHECK_EQ(held(p[0]), 5);
	while (read(s[1], room, sizeof room) > 0)
		;
	CHECK_EQ(splice(p[0], NULL, s[0], NULL, 100, 0), 5);
	close(s[0]);
	CHECK_EQ(splice(s[1], NULL, p[1], NULL, 100, 0), 5);
	CHECK_EQ(splice(s[1], NULL, p[1], NULL, 100, 0), 0);
	CHECK_ERRNO(splice(p[0], NULL, s[1], NULL, 100, 0), EPIPE);
	CHECK_EQ(held(p[0]), 5);
	close(s[1]), drop(p);
	/* Datagrams. */
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
	pair(p, 0);
	REQUIRE(write(s[0], "one", 3) == 3 && write(s[0], "two", 3) == 3);
	CHECK_EQ(splice(s[1], NULL, p[1], NULL, 2, 0), 2);
	CHECK_EQ(splice(s[1], NULL, p[1], NULL, 100, 0), 3);
	CHECK_EQ(splice(p[0], NULL, s[0], NULL, 100, 0), 5);
	CHECK_EQ(read(s[1], room, 100), 5);
	CHECK(memcmp(room, "ontwo", 5) == 0);
	/* Of at most 16 buffers each. */
	REQUIRE(fcntl(p[1], F_SETPIPE_SZ, 1 << 20) == 1 << 20 && write(p[1], room, 70000) == 70000);
	CHECK_EQ(splice(p[0], NULL, s[0], NULL, 69000, 0), 69000);
	CHECK_EQ(read(s[1], room, sizeof room), 65536);
	CHECK_EQ(read(s[1], room, sizeof room), 69000 - 65536);
	CHECK_EQ(held(p[0]), 1000);
	close(s[0]), close(s[1]), drop(p);
	/* A proxy: much data through a pipe between TCP sockets. */
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof addr;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(bind(listener, (void *)&addr, len) == 0 && listen(listener, 2) == 0 &&
		getsockname(listener, (void *)&addr, &len) == 0);
	int front = socket(AF_INET, SOCK_STREAM, 0), back = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect(front, (void *)&addr, len) == 0);
	int in = accept(listener, NULL, NULL);
	REQUIRE(connect(back, (void *)&addr, len) == 0);
	int out = accept(listener, NULL, NULL);
	enum { MUCH = 3000000 };
	pid_t writer = fork();
	if (writer == 0) {
		close(in), close(back), close(out);
		for (int done = 0; done < MUCH;) {
			for (int i = 0; i < 10000; i++)
				room[i] = (done + i) * 7 % 251;
			int n = write(front, room, MUCH - done < 10000 ? MUCH - done : 10000);
			REQUIRE(n > 0);
			done += n;
		}
		_exit(0);
	}
	pid_t reader = fork();
	if (reader == 0) {
		close(front), close(in), close(back);
		int done = 0, n, good = 1;
		while ((n = read(out, room, sizeof room)) > 0)
			for (int i = 0; i < n; i++, done++)
				good &= room[i] == (char)(done * 7 % 251);
		_exit(n != 0 || done != MUCH || !good);
	}
	close(front), close(out);
	pair(p, 0);
	ssize_t n, total = 0;
	while ((n = splice(in, NULL, p[1], NULL, 1 << 20, SPLICE_F_MOVE)) > 0)
		while (n > 0) {
			ssize_t m = splice(p[0], NULL, back, NULL, n, SPLICE_F_MOVE | SPLICE_F_MORE);
			REQUIRE(m > 0);
			n -= m, total += m;
		}
	CHECK_EQ(n, 0);
	CHECK_EQ(total, MUCH);
	close(back), close(in), close(listener);
	int status = -1;
	waitpid(writer, &status, 0);
	CHECK_EQ(status, 0);
	waitpid(reader, &status, 0);
	CHECK_EQ(status, 0);
	drop(p);
}

/* A socket of packets knows nothing of the flags of splice(2) and of the pipe: who reads it sleeps, unless the socket itself may not. */
static void packets(void)
{
	int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
	for (int at = 0; at < 2; at++) {
		int ends[2], p[2];
		REQUIRE(socketpair(AF_UNIX, types[at], 0, ends) == 0 && pipe2(p, O_NONBLOCK) == 0);
		pid_t child = fork();
		if (child == 0) {
			usleep(30000);
			_exit(send(ends[1], "ab", 2, 0) != 2);
		}
		CHECK_EQ(splice(ends[0], NULL, p[1], NULL, 2, SPLICE_F_NONBLOCK), 2);
		REQUIRE(waitpid(child, NULL, 0) == child);
		REQUIRE(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
		CHECK_ERRNO(splice(ends[0], NULL, p[1], NULL, 2, 0), EAGAIN);
		close(ends[0]), close(ends[1]), close(p[0]), close(p[1]);
	}
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void sleeping(void)
{
	struct iovec iov = { room, 100 };
	int status = -1;
	loff_t at = 0;
	/* For data: pipe to pipe, pipe to file, pipe to memory, tee. */
	pair(p, 0), pair(q, 0);
	int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 4; i++) {
			nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
			REQUIRE(write(p[1], "hello", 5) == 5);
		}
		_exit(0);
	}
	CHECK_EQ(tee(p[0], q[1], 100, 0), 5);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 100, 0), 5);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 100, 0), 5);
	at = 7;
	CHECK_EQ(splice(p[0], NULL, out, &at, 100, 0), 5);
	CHECK_EQ(at, 12);
	CHECK_EQ(vmsplice(p[0], &iov, 1, 0), 5);
	waitpid(child, &status, 0);
	CHECK_TEXT(text_of(q[0]), "hellohellohello");
	/* For room. */
	CHECK_EQ(fcntl(q[1], F_SETPIPE_SZ, 4096), 4096);
	REQUIRE(write(q[1], "x", 1) == 1);
	child = fork();
	if (child == 0) {
		for (int i = 0; i < 5; i++) {
			nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
			REQUIRE(read(q[0], room, 10) > 0);
		}
		_exit(0);
	}
	REQUIRE(write(p[1], "hello", 5) == 5);
	CHECK_EQ(tee(p[0], q[1], 100, 0), 5);
	CHECK_EQ(splice(p[0], NULL, q[1], NULL, 100, 0), 5);
	iov.iov_len = 10;
	CHECK_EQ(vmsplice(q[1], &iov, 1, 0), 10);
	at = 0;
	CHECK_EQ(splice(file, &at, q[1], NULL, 10, 0), 10);
	CHECK_EQ(at, 10);
	waitpid(child, &status, 0);
	CHECK_EQ(status, 0);
	drop(q);
	/* A writer's end while it sleeps. */
	child = fork();
	if (child == 0) {
		nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
		_exit(0);
	}
	close(p[1]);
	CHECK_EQ(splice(p[0], NULL, out, NULL, 100, 0), 0);
	close(p[0]);
	waitpid(child, &status, 0);
	/* Signals. */
	struct sigaction action = { .sa_handler = on_alarm };
	sigaction(SIGALRM, &action, NULL);
	pair(p, 0), pair(q, 0);
	alarm(1);
	CHECK_ERRNO(splice(p[0], NULL, q[1], NULL, 100, 0), EINTR);
	alarm(1);
	CHECK_ERRNO(tee(p[0], q[1], 100, 0), EINTR);
	int s[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	alarm(1);
	CHECK_ERRNO(splice(s[0], NULL, q[1], NULL, 100, 0), EINTR);
	/* A socket that is full: what went before the signal. */
	while (send(s[0], room, 4096, MSG_DONTWAIT) > 0)
		;
	REQUIRE(write(p[1], room, 60000) == 60000);
	alarm(1);
	CHECK_ERRNO(splice(p[0], NULL, s[0], NULL, 60000, 0), EINTR);
	CHECK_EQ(held(p[0]), 60000);
	/* One that is emptied meanwhile. */
	child = fork();
	if (child == 0) {
		close(s[0]);
		while (read(s[1], room, sizeof room) > 0)
			;
		_exit(0);
	}
	CHECK_EQ(splice(p[0], NULL, s[0], NULL, 60000, 0), 60000);
	CHECK_EQ(held(p[0]), 0);
	close(s[0]), close(s[1]);
	waitpid(child, &status, 0);
	CHECK_EQ(status, 0);
	close(out);
	drop(p), drop(q);
}

int main(void)
{
	tap_directory();
	file = open("source", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < 80000; i++)
		room[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[i < 6 ? i : (i + 10) % 36];
	REQUIRE(write(file, room, 80000) == 80000 && lseek(file, 0, SEEK_SET) == 0);
	arguments();
	between_pipes();
	tees();
	memory();
	files();
	sockets();
	packets();
	sleeping();
	return tap_done();
}
