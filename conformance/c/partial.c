/* A buffer that is bad in its middle: each kind of file moves the part before it, in its own units, and keeps the rest. And a call
 * that sleeps goes on with the arguments that it has read, whatever becomes of them. */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#define PAGE 4096

/* Two pages, the second of which is gone: the address of its last good bytes. */
static char *edge;

static void make_edge(void)
{
	char *at = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(at != MAP_FAILED && munmap(at + 2 * PAGE, PAGE) == 0);
	memset(at, 'e', 2 * PAGE);
	edge = at + 2 * PAGE;
}

static char pattern[3 * PAGE];

static void files(void)
{
	char back[300];
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK_EQ(write(fd, pattern, 1000), 1000);
	CHECK_EQ(pread(fd, edge - 100, 200, 0), 100);
	CHECK(memcmp(edge - 100, pattern, 100) == 0);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(read(fd, edge - 100, 200), 100);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 100);
	CHECK_ERRNO(read(fd, edge, 200), EFAULT);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 100);
	/* Nothing is stored at the end, wherever that would be. */
	CHECK_EQ(pread(fd, edge, 200, 1000), 0);
	/* What no program can have is an error before all else. */
	CHECK_ERRNO(pread(fd, (void *)-4096, 200, 1000), EFAULT);
	struct iovec vectors[3] = { { edge - 10, 10 }, { edge, 10 }, { back, 10 } };
	CHECK_EQ(preadv(fd, vectors, 3, 0), 10);
	CHECK_EQ(ftruncate(fd, 0), 0);
	memcpy(edge - 100, pattern, 100);
	CHECK_EQ(pwrite(fd, edge - 100, 200, 0), 100);
	CHECK_ERRNO(pwrite(fd, edge, 200, 0), EFAULT);
	CHECK_EQ(pread(fd, back, sizeof back, 0), 100);
	CHECK(memcmp(back, pattern, 100) == 0);
	vectors[0] = (struct iovec){ pattern, 10 };
	CHECK_EQ(pwritev(fd, vectors, 2, 0), 10);
	/* A page of a mapping beyond the end of its file is as bad. */
	char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(map != MAP_FAILED);
	int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK_EQ(write(other, map + PAGE - 50, 100), 50);
	CHECK_ERRNO(write(other, map + PAGE, 100), EFAULT);
	munmap(map, 2 * PAGE);
	close(other);
	close(fd);
}

static void devices(void)
{
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
	CHECK_EQ(write(null, edge, 100), 100);
	CHECK_ERRNO(write(full, edge, 100), ENOSPC);
	CHECK_EQ(read(null, edge, 100), 0);
	CHECK_EQ(read(zero, edge - 100, 200), 100);
	CHECK(edge[-100] == 0 && edge[-1] == 0);
	CHECK_ERRNO(read(zero, edge, 200), EFAULT);
	CHECK_EQ(getrandom(edge - 128, 256, 0), 128);
	CHECK_ERRNO(getrandom(edge, 256, 0), EFAULT);
	close(null);
	close(zero);
	close(full);
}

/* A pipe moves pages. */
static void pipes(void)
{
	int fds[2];
	char back[3 * PAGE];
	REQUIRE(pipe(fds) == 0);
	CHECK_EQ(write(fds[1], pattern, 200), 200);
	CHECK_ERRNO(read(fds[0], edge - 100, 200), EFAULT);
	CHECK_EQ(read(fds[0], edge - 100, 100), 100);
	CHECK_EQ(read(fds[0], back, sizeof back), 100);
	CHECK(memcmp(back, pattern + 100, 100) == 0);
	CHECK_EQ(write(fds[1], pattern, 2 * PAGE), 2 * PAGE);
	CHECK_EQ(read(fds[0], edge - PAGE - 100, 2 * PAGE), PAGE);
	CHECK_EQ(read(fds[0], back, sizeof back), PAGE);
	CHECK(memcmp(back, pattern + PAGE, PAGE) == 0);
	CHECK_ERRNO(write(fds[1], edge - 100, 200), EFAULT);
	memcpy(edge - PAGE - 100, pattern, PAGE + 100);
	CHECK_EQ(write(fds[1], edge - PAGE - 100, 2 * PAGE), PAGE);
	CHECK_EQ(read(fds[0], back, sizeof back), PAGE);
	CHECK(memcmp(back, pattern, PAGE) == 0);
	/* Short writes share pages, and as many fit as there are pages. */
	REQUIRE(fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0);
	int writes = 0;
	while (write(fds[1], pattern, 3000) == 3000)
		writes++;
	CHECK_EQ(writes, 16);
	CHECK_EQ(write(fds[1], pattern, 1000), 1000);
	CHECK_ERRNO(write(fds[1], pattern, 1000), EAGAIN);
	CHECK_EQ(fcntl(fds[1], F_SETPIPE_SZ, 17 * PAGE), 32 * PAGE);
	CHECK_EQ(write(fds[1], pattern, 3000), 3000);
	CHECK_ERRNO(fcntl(fds[1], F_SETPIPE_SZ, 16 * PAGE), EBUSY);
	close(fds[0]);
	close(fds[1]);
}

/* A socket moves messages. */
static void sockets(void)
{
	int fds[2];
	char back[3 * PAGE];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	CHECK_EQ(send(fds[1], pattern, 100, 0), 100);
	CHECK_EQ(send(fds[1], pattern + 100, 100, 0), 100);
	/* What there is memory for is stored, though it is not taken. */
	CHECK_ERRNO(recv(fds[0], edge - 50, 200, 0), EFAULT);
	CHECK(memcmp(edge - 50, pattern, 50) == 0);
	CHECK_EQ(recv(fds[0], edge - 150, 200, 0), 100);
	CHECK(memcmp(edge - 50, pattern + 100, 50) == 0);
	CHECK_EQ(read(fds[0], back, sizeof back), 100);
	CHECK(memcmp(back, pattern + 100, 100) == 0);
	CHECK_ERRNO(send(fds[1], edge - 50, 100, 0), EFAULT);
	CHECK_ERRNO(write(fds[1], edge - 50, 100), EFAULT);
	CHECK_ERRNO(recv(fds[0], back, sizeof back, MSG_DONTWAIT), EAGAIN);
	close(fds[0]);
	close(fds[1]);
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0);
	CHECK_ERRNO(send(fds[1], edge - 50, 100, 0), EFAULT);
	CHECK_EQ(send(fds[1], pattern, 100, 0), 100);
	CHECK_ERRNO(recv(fds[0], edge - 50, 100, 0), EFAULT);
	/* The datagram is lost. */
	CHECK_ERRNO(recv(fds[0], back, sizeof back, MSG_DONTWAIT), EAGAIN);
	close(fds[0]);
	close(fds[1]);
}

static void others(void)
{
	int fd = eventfd(3, EFD_NONBLOCK);
	unsigned long long value;
	CHECK_ERRNO(read(fd, edge - 4, 8), EFAULT);
	/* The number is lost. */
	CHECK_ERRNO(read(fd, &value, 8), EAGAIN);
	CHECK_ERRNO(write(fd, edge - 4, 8), EFAULT);
	close(fd);
	REQUIRE(mkdir("dir", 0700) == 0 && close(open("dir/some", O_CREAT | O_RDWR, 0600)) == 0);
	fd = open("dir", O_RDONLY | O_DIRECTORY);
	/* ".", ".." take 24 bytes each. */
	CHECK_EQ(syscall(SYS_getdents64, fd, edge - 60, 1000), 48);
	CHECK_ERRNO(syscall(SYS_getdents64, fd, edge - 8, 1000), EFAULT);
	char back[1000];
	CHECK_EQ(syscall(SYS_getdents64, fd, back, sizeof back), 24);
	CHECK_EQ(syscall(SYS_getdents64, fd, back, sizeof back), 0);
	close(fd);
	int one = eventfd(1, 0), two = eventfd(1, 0), ep = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, one, &event) == 0 && epoll_ctl(ep, EPOLL_CTL_ADD, two, &event) == 0);
	CHECK_EQ(epoll_wait(ep, (void *)(edge - 12), 2, 0), 1);
	CHECK_ERRNO(epoll_wait(ep, (void *)(edge - 8), 2, 0), EFAULT);
	CHECK_EQ(epoll_wait(ep, (void *)back, 2, 0), 2);
	close(one);
	close(two);
	close(ep);
}

/* A thread that sleeps in a call. */
static atomic_int sleeper;
static long result;

static void start(pthread_t *thread, void *(*call)(void *), void *argument)
{
	char path[64], text[512];
	atomic_store(&sleeper, 0);
	REQUIRE(pthread_create(thread, NULL, call, argument) == 0);
	while (!atomic_load(&sleeper))
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&sleeper));
	for (;;) {
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
		close(fd);
		text[n > 0 ? n : 0] = 0;
		char *state = strrchr(text, ')');
		if (state && state[1] == ' ' && state[2] == 'S')
			return;
		sched_yield();
	}
}

static struct iovec vector;
static struct msghdr header;
static struct pollfd watched;
static struct timespec request;
static fd_set set;
static char first[64], second[64];

static void *read_vector(void *fd)
{
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = readv(*(int *)fd, &vector, 1);
	return NULL;
}

static void *receive(void *fd)
{
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = recvmsg(*(int *)fd, &header, 0);
	return NULL;
}

static void *watch(void *unused)
{
	(void)unused;
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = poll(&watched, 1, -1);
	return NULL;
}

static void *choose(void *fd)
{
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = select(*(int *)fd + 1, &set, NULL, NULL, NULL);
	return NULL;
}

static void *sleep_short(void *unused)
{
	(void)unused;
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = nanosleep(&request, NULL);
	return NULL;
}

static void kept_arguments(void)
{
	int fds[2], other[2];
	pthread_t thread;
	REQUIRE(pipe(fds) == 0 && pipe(other) == 0);
	vector = (struct iovec){ first, sizeof first };
	start(&thread, read_vector, &fds[0]);
	vector = (struct iovec){ second, 1 };
	CHECK_EQ(write(fds[1], "hello", 5), 5);
	pthread_join(thread, NULL);
	CHECK(result == 5 && memcmp(first, "hello", 5) == 0 && second[0] == 0);

	watched = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	start(&thread, watch, NULL);
	watched = (struct pollfd){ .fd = other[0], .events = 0 };
	CHECK_EQ(write(fds[1], "x", 1), 1);
	pthread_join(thread, NULL);
	CHECK(result == 1 && watched.revents == POLLIN && watched.fd == other[0]);
	CHECK_EQ(read(fds[0], first, 1), 1);

	FD_SET(fds[0], &set);
	start(&thread, choose, &fds[0]);
	FD_ZERO(&set);
	CHECK_EQ(write(fds[1], "x", 1), 1);
	pthread_join(thread, NULL);
	CHECK(result == 1 && FD_ISSET(fds[0], &set));
	CHECK_EQ(read(fds[0], first, 1), 1);

	request = (struct timespec){ .tv_nsec = 20000000 };
	start(&thread, sleep_short, NULL);
	request.tv_nsec = -1;
	pthread_join(thread, NULL);
	CHECK_EQ(result, 0);
	close(fds[0]);
	close(fds[1]);

	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0);
	vector = (struct iovec){ first, sizeof first };
	header = (struct msghdr){ .msg_iov = &vector, .msg_iovlen = 1 };
	start(&thread, receive, &fds[0]);
	vector = (struct iovec){ second, 1 };
	header.msg_iovlen = 2000;
	CHECK_EQ(send(fds[1], "world", 5, 0), 5);
	pthread_join(thread, NULL);
	CHECK(result == 5 && memcmp(first, "world", 5) == 0);
	close(fds[0]);
	close(fds[1]);
	close(other[0]);
	close(other[1]);
}

static char much[1 << 20];

static void *write_much(void *fd)
{
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = write(*(int *)fd, much, sizeof much);
	return NULL;
}

/* Who sleeps for room in a socket is woken when there is much of it, and not by each byte that is read. */
static void slow_reader(void)
{
	int fds[2];
	pthread_t thread;
	char buffer[700];
	long total = 0;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	start(&thread, write_much, &fds[1]);
	while (total < (long)sizeof much) {
		ssize_t n = read(fds[0], buffer, sizeof buffer);
		if (n <= 0)
			break;
		total += n;
	}
	pthread_join(thread, NULL);
	CHECK(result == sizeof much && total == sizeof much);
	close(fds[0]);
	close(fds[1]);
}

static void handler(int unused)
{
	(void)unused;
}

static void *read_stream(void *fd)
{
	atomic_store(&sleeper, syscall(SYS_gettid));
	result = read(*(int *)fd, first, sizeof first);
	if (result < 0)
		result = -errno;
	return NULL;
}

/* Who sleeps holds its description: the other side learns of the close when the call has ended. */
static void held_descriptions(void)
{
	int fds[2], other[2];
	pthread_t thread;
	signal(SIGPIPE, SIG_IGN);
	REQUIRE(pipe(fds) == 0 && pipe(other) == 0);
	watched = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	start(&thread, watch, NULL);
	close(fds[0]);
	CHECK_EQ(write(fds[1], "x", 1), 1);
	pthread_join(thread, NULL);
	/* The second look goes by the descriptor. */
	CHECK(result == 1 && watched.revents == POLLNVAL);
	CHECK_ERRNO(write(fds[1], "x", 1), EPIPE);
	close(fds[1]);

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	start(&thread, read_stream, &fds[0]);
	int reader = fds[0];
	close(reader);
	CHECK_EQ(send(fds[1], "late", 4, MSG_NOSIGNAL), 4);
	pthread_join(thread, NULL);
	CHECK(result == 4 && memcmp(first, "late", 4) == 0);
	CHECK_ERRNO(send(fds[1], "late", 4, MSG_NOSIGNAL), EPIPE);
	close(fds[1]);

	/* A signal ends the call with EINTR, and then nobody holds the pipe. */
	struct sigaction action = { .sa_handler = handler };
	sigaction(SIGUSR1, &action, NULL);
	REQUIRE(pipe(fds) == 0);
	start(&thread, read_stream, &fds[0]);
	close(fds[0]);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	pthread_join(thread, NULL);
	CHECK_EQ(result, -EINTR);
	CHECK_ERRNO(write(fds[1], "x", 1), EPIPE);
	close(fds[1]);

	/* A restarted call looks its descriptor up again. */
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	REQUIRE(pipe(fds) == 0);
	start(&thread, read_stream, &fds[0]);
	CHECK_EQ(dup2(other[0], fds[0]), fds[0]);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	CHECK_EQ(write(other[1], "other", 5), 5);
	pthread_join(thread, NULL);
	CHECK(result == 5 && memcmp(first, "other", 5) == 0);
	close(fds[0]);
	close(fds[1]);
	close(other[0]);
	close(other[1]);
}

int main(void)
{
	tap_directory();
	make_edge();
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = "0123456789abcdefghij"[i % 20 ^ i / 100 % 5];
	files();
	devices();
	pipes();
	sockets();
	others();
	kept_arguments();
	slow_reader();
	held_descriptions();
	return tap_done();
}
