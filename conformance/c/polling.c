/* epoll(7), poll(2), select(2), eventfd(2), timerfd_create(2). */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

static struct epoll_event got[8];

static int ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };
	return epoll_ctl(ep, op, fd, &event);
}

/* The events that are ready now. */
static int ready(int ep)
{
	memset(got, 0, sizeof got);
	return epoll_wait(ep, got, 8, 0);
}

static void errors(void)
{
	int fds[2], ep = epoll_create1(EPOLL_CLOEXEC);
	CHECK(ep >= 0);
	CHECK_EQ(fcntl(ep, F_GETFD), FD_CLOEXEC);
	CHECK_ERRNO(epoll_create(0), EINVAL);
	CHECK_ERRNO(epoll_create1(77), EINVAL);
	REQUIRE(pipe(fds) == 0);
	CHECK_EQ(ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1), 0);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1), EEXIST);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_MOD, fds[1], EPOLLIN, 1), ENOENT);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_DEL, fds[1], 0, 0), ENOENT);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, -1, EPOLLIN, 1), EBADF);
	CHECK_ERRNO(ctl(-1, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1), EBADF);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN, 1), EINVAL);
	CHECK_ERRNO(ctl(fds[0], EPOLL_CTL_ADD, fds[1], EPOLLIN, 1), EINVAL);
	CHECK_ERRNO(ctl(ep, 77, fds[0], EPOLLIN, 1), EINVAL);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, fds[0], BAD), EFAULT);
	int file = open("/proc/self/exe", O_RDONLY), directory = open("/", O_RDONLY);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, file, EPOLLIN, 1), EPERM);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, directory, EPOLLIN, 1), EPERM);
	CHECK_ERRNO(epoll_wait(ep, got, 0, 0), EINVAL);
	CHECK_ERRNO(epoll_wait(fds[0], got, 1, 0), EINVAL);
	CHECK_ERRNO(epoll_wait(-1, got, 1, 0), EBADF);
	CHECK_EQ(epoll_wait(ep, got, 8, 10), 0);
	CHECK_ERRNO(read(ep, got, 1), EINVAL);
	close(file), close(directory), close(fds[0]), close(fds[1]), close(ep);
}

static void levels_and_edges(void)
{
	int a[2], b[2], ep = epoll_create1(0);
	char c, two[2];
	REQUIRE(pipe(a) == 0 && pipe2(b, O_NONBLOCK) == 0);
	/* Level: as long as there is data. */
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, a[0], EPOLLIN, 11) == 0);
	CHECK_EQ(ready(ep), 0);
	REQUIRE(write(a[1], "xy", 2) == 2);
	CHECK_EQ(ready(ep), 1);
	CHECK(got[0].events == EPOLLIN && got[0].data.u64 == 11);
	CHECK_EQ(ready(ep), 1);
	REQUIRE(read(a[0], two, 2) == 2);
	CHECK_EQ(ready(ep), 0);
	/* Edge: once for each arrival, whether the data is read or not. */
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, b[0], EPOLLIN | EPOLLET, 22) == 0);
	REQUIRE(write(b[1], "x", 1) == 1);
	CHECK_EQ(ready(ep), 1);
	CHECK_EQ(got[0].data.u64, 22);
	CHECK_EQ(ready(ep), 0);
	REQUIRE(write(b[1], "y", 1) == 1);
	CHECK_EQ(ready(ep), 1);
	CHECK_EQ(ready(ep), 0);
	/* MOD looks again. */
	REQUIRE(ctl(ep, EPOLL_CTL_MOD, b[0], EPOLLIN | EPOLLET, 23) == 0);
	CHECK(ready(ep) == 1 && got[0].data.u64 == 23);
	/* One shot: then off until modified. */
	REQUIRE(ctl(ep, EPOLL_CTL_MOD, b[0], EPOLLIN | EPOLLONESHOT, 24) == 0);
	CHECK_EQ(ready(ep), 1);
	REQUIRE(write(b[1], "z", 1) == 1);
	CHECK_EQ(ready(ep), 0);
	REQUIRE(ctl(ep, EPOLL_CTL_MOD, b[0], EPOLLIN | EPOLLONESHOT, 25) == 0);
	CHECK(ready(ep) == 1 && got[0].data.u64 == 25);
	REQUIRE(ctl(ep, EPOLL_CTL_DEL, b[0], 0, 0) == 0);
	/* Hang-up and error come unasked. */
	close(a[1]);
	CHECK_EQ(ready(ep), 1);
	CHECK_EQ(got[0].events, EPOLLHUP);
	REQUIRE(ctl(ep, EPOLL_CTL_MOD, a[0], 0, 26) == 0);
	CHECK_EQ(ready(ep), 1);
	CHECK(got[0].events == EPOLLHUP && got[0].data.u64 == 26);
	/* A closed descriptor leaves the set; with a duplicate it stays. */
	int copy = dup(a[0]);
	close(a[0]);
	CHECK_EQ(ready(ep), 1);
	close(copy);
	CHECK_EQ(ready(ep), 0);
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, b[1], EPOLLOUT | EPOLLET, 30) == 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLOUT);
	CHECK_EQ(ready(ep), 0);
	/* More room is news where there was none. */
	REQUIRE(write(b[1], "x", 1) == 1 && read(b[0], two, 1) == 1);
	CHECK_EQ(ready(ep), 0);
	static char fill[70000];
	REQUIRE(write(b[1], fill, sizeof fill) > 0);
	CHECK_EQ(ready(ep), 0);
	REQUIRE(read(b[0], two, 1) == 1);
	CHECK_EQ(ready(ep), 0);
	static char drain[70000];
	REQUIRE(read(b[0], drain, sizeof drain) > 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLOUT);
	close(b[0]);
	CHECK(ready(ep) == 1 && (got[0].events & EPOLLERR));
	close(b[1]);
	close(ep);
	/* Several at once, no more than asked for; the rest comes next. */
	ep = epoll_create1(0);
	int many[5];
	for (int i = 0; i < 5; i++) {
		many[i] = eventfd(1, 0);
		REQUIRE(ctl(ep, EPOLL_CTL_ADD, many[i], EPOLLIN, i) == 0);
	}
	CHECK_EQ(ready(ep), 5);
	int seen = 0;
	for (int round = 0; round < 5; round++) {
		REQUIRE(epoll_wait(ep, got, 2, 0) == 2);
		seen |= 1 << got[0].data.u64 | 1 << got[1].data.u64;
	}
	CHECK_EQ(seen, 31);
	for (int i = 0; i < 5; i++)
		close(many[i]);
	CHECK_EQ(ready(ep), 0);
	close(ep);
	(void)c;
}

/* Each end of a pipe hears of what concerns it, whatever its watch asks for: a write is no news to who writes, nor a read to who reads. */
static void edges_of_other_ends(void)
{
	int fds[2], ep = epoll_create1(0);
	static char fill[70000];
	const uint32_t both = EPOLLIN | EPOLLOUT | EPOLLET;
	REQUIRE(pipe2(fds, O_NONBLOCK) == 0);
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, fds[1], both, 1) == 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLOUT);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK_EQ(ready(ep), 0);
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, fds[0], both, 0) == 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 0);
	REQUIRE(write(fds[1], fill, sizeof fill) > 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 0);
	REQUIRE(read(fds[0], fill, 20000) == 20000);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLOUT && got[0].data.u64 == 1);
	/* One description that reads and writes hears of both. */
	CHECK(mkfifo("both-ends", 0600) == 0);
	int fifo = open("both-ends", O_RDWR | O_NONBLOCK);
	REQUIRE(fifo >= 0 && ctl(ep, EPOLL_CTL_ADD, fifo, both, 2) == 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLOUT);
	REQUIRE(write(fifo, "x", 1) == 1);
	CHECK(ready(ep) == 1 && got[0].events == (EPOLLIN | EPOLLOUT));
	/* Of ends that are opened readers hear, and only of the first one of a side; of ends that are closed, only of the last. */
	CHECK_EQ(ready(ep), 0);
	int reader = open("both-ends", O_RDONLY | O_NONBLOCK), writer = open("both-ends", O_WRONLY | O_NONBLOCK);
	REQUIRE(reader >= 0 && writer >= 0 && ready(ep) == 0);
	close(reader), close(writer);
	CHECK_EQ(ready(ep), 0);
	close(fifo);
	reader = open("both-ends", O_RDONLY | O_NONBLOCK);
	writer = open("both-ends", O_WRONLY | O_NONBLOCK);
	REQUIRE(reader >= 0 && writer >= 0 && ctl(ep, EPOLL_CTL_ADD, reader, both, 3) == 0 && ctl(ep, EPOLL_CTL_ADD, writer, both, 4) == 0);
	REQUIRE(write(writer, "xy", 2) == 2);
	ready(ep);
	int second = open("both-ends", O_WRONLY | O_NONBLOCK);
	CHECK_EQ(ready(ep), 0);
	close(second);
	CHECK_EQ(ready(ep), 0);
	close(writer);
	CHECK(ready(ep) == 1 && got[0].events == (EPOLLIN | EPOLLHUP) && got[0].data.u64 == 3);
	writer = open("both-ends", O_WRONLY | O_NONBLOCK);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 3);
	close(reader), close(writer);
	/* That the other side is gone is told whatever the watch asks for. */
	close(fds[0]);
	CHECK(ready(ep) == 1 && got[0].events == (EPOLLOUT | EPOLLERR));
	unlink("both-ends");
	close(fds[1]), close(ep);
}

static void nesting(void)
{
	int inner = epoll_create1(0), outer = epoll_create1(0), fds[2];
	REQUIRE(pipe(fds) == 0);
	REQUIRE(ctl(inner, EPOLL_CTL_ADD, fds[0], EPOLLIN, 1) == 0);
	CHECK_EQ(ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2), 0);
	CHECK_ERRNO(ctl(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 3), ELOOP);
	CHECK_EQ(ready(outer), 0);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK(ready(outer) == 1 && got[0].data.u64 == 2);
	struct pollfd p = { inner, POLLIN, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
	/* Woken through both levels. */
	char c;
	REQUIRE(read(fds[0], &c, 1) == 1);
	CHECK_EQ(ready(outer), 0);
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(write(fds[1], "y", 1) == 1);
		_exit(0);
	}
	CHECK_EQ(epoll_wait(outer, got, 8, -1), 1);
	waitpid(pid, NULL, 0);
	close(inner), close(outer), close(fds[0]), close(fds[1]);
}

/* What a signalfd below an epoll instance shows depends on who polls. */
static void nested_signals(void)
{
	sigset_t set;
	struct signalfd_siginfo info;
	sigemptyset(&set), sigaddset(&set, SIGUSR2);
	REQUIRE(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	int fd = signalfd(-1, &set, SFD_NONBLOCK), inner = epoll_create1(0), outer = epoll_create1(0);
	REQUIRE(ctl(inner, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0 && ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2) == 0);
	struct pollfd p = { inner, POLLIN, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	REQUIRE(kill(getpid(), SIGUSR2) == 0);
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
	CHECK(ready(outer) == 1 && got[0].data.u64 == 2);
	/* A new watch of what is ready already. */
	int late = epoll_create1(0);
	REQUIRE(ctl(late, EPOLL_CTL_ADD, inner, EPOLLIN, 3) == 0);
	CHECK(ready(late) == 1 && got[0].data.u64 == 3);
	CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_EQ(ready(outer), 0);
	close(fd), close(inner), close(outer), close(late);
	REQUIRE(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

struct widened {
	int fd;
	sigset_t set;
};

static void *widen(void *to)
{
	struct widened *signals = to;
	nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
	REQUIRE(signalfd(signals->fd, &signals->set, 0) == signals->fd);
	return NULL;
}

/* "If a process adds (via epoll_ctl(2)) a signalfd file descriptor to an epoll(7) instance, then epoll_wait(2) returns events only for
 * signals sent to that process" (signalfd(2)). A signal of that process makes another one look as well, and it is told of its own. */
static void inherited_signals(void)
{
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2);
	REQUIRE(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	sigdelset(&set, SIGUSR1);
	int fd = signalfd(-1, &set, SFD_NONBLOCK), ep = epoll_create1(0), edges = epoll_create1(0);
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0 && ctl(edges, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 2) == 0);
	int status = -1;
	pid_t parent = getpid(), child = fork();
	if (child == 0) {
		struct pollfd p = { fd, POLLIN, 0 };
		REQUIRE(kill(getpid(), SIGUSR2) == 0);
		REQUIRE(poll(&p, 1, 0) == 1 && ready(ep) == 0 && ready(edges) == 0);
		/* A watch of its own tells of it. */
		int own = epoll_create1(0);
		REQUIRE(ctl(own, EPOLL_CTL_ADD, fd, EPOLLIN, 3) == 0 && ready(own) == 1);
		/* Whatever signal the other one is sent. */
		REQUIRE(kill(parent, SIGUSR1) == 0 && ready(ep) == 1 && ready(edges) == 1 && ready(edges) == 0);
		_exit(0);
	}
	waitpid(child, &status, 0);
	CHECK_EQ(status, 0);
	/* The other way round: what the child found is forgotten where it is not so. */
	CHECK_EQ(ready(ep), 0);
	REQUIRE(kill(getpid(), SIGUSR2) == 0);
	CHECK_EQ(ready(ep), 1);
	/* An edge for each signal, also for one that the signalfd does not show, while another waits. */
	CHECK_EQ(ready(edges), 1);
	CHECK_EQ(ready(edges), 0);
	sigaddset(&set, SIGUSR1);
	REQUIRE(sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) == SIGUSR1 && kill(getpid(), SIGUSR1) == 0);
	CHECK_EQ(ready(edges), 1);
	REQUIRE(sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) == SIGUSR1);
	/* Another mask is an edge as well, and wakes who sleeps. */
	CHECK_EQ(ready(edges), 0);
	CHECK_EQ(signalfd(fd, &set, 0), fd);
	CHECK_EQ(ready(edges), 1);
	REQUIRE(sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) == SIGUSR2);
	pthread_t other;
	sigset_t less;
	sigemptyset(&less);
	REQUIRE(signalfd(fd, &less, 0) == fd && kill(getpid(), SIGUSR2) == 0);
	struct widened more = { fd, set };
	REQUIRE(pthread_create(&other, NULL, widen, &more) == 0);
	struct pollfd sleeper = { fd, POLLIN, 0 };
	struct timespec began, woken;
	clock_gettime(CLOCK_MONOTONIC, &began);
	CHECK(poll(&sleeper, 1, 60000) == 1 && sleeper.revents == POLLIN);
	/* It does not only look again when its time is over. */
	clock_gettime(CLOCK_MONOTONIC, &woken);
	CHECK(woken.tv_sec - began.tv_sec < 50);
	REQUIRE(pthread_join(other, NULL) == 0);
	/* The end of who has added a watch queues it a last time. */
	int last = epoll_create1(0);
	child = fork();
	if (child == 0)
		_exit(ctl(last, EPOLL_CTL_ADD, fd, EPOLLIN, 4));
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	CHECK_EQ(ready(last), 1);
	REQUIRE(sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) == SIGUSR2);
	CHECK_EQ(ready(last), 0);
	REQUIRE(kill(getpid(), SIGUSR2) == 0);
	CHECK_EQ(ready(last), 0);
	REQUIRE(sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) == SIGUSR2);
	close(fd), close(ep), close(edges), close(last);
	REQUIRE(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

/* The error of an ADD, or 0. */
static int added(int outer, int inner)
{
	return ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 0) == 0 ? 0 : errno;
}

/* A chain of instances may have five of them, from wherever it is made longer. Older kernels say EINVAL where the chain ends with
 * another file. */
static void deep_nesting(void)
{
	int ep[6], fds[2];
	for (int i = 0; i < 6; i++)
		ep[i] = epoll_create1(0);
	REQUIRE(pipe(fds) == 0 && added(ep[0], fds[0]) == 0);
	/* Upwards. */
	for (int i = 0; i < 4; i++)
		CHECK_EQ(added(ep[i + 1], ep[i]), 0);
	int error = added(ep[5], ep[4]);
	CHECK(error == ELOOP || error == EINVAL);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK_EQ(ready(ep[4]), 1);
	CHECK_ERRNO(ctl(ep[0], EPOLL_CTL_ADD, ep[4], EPOLLIN, 0), ELOOP);
	CHECK_ERRNO(ctl(ep[0], EPOLL_CTL_ADD, ep[0], EPOLLIN, 0), EINVAL);
	/* A branch at the side has its own length. */
	CHECK_EQ(added(ep[5], ep[3]), 0);
	for (int i = 0; i < 6; i++)
		close(ep[i]);
	close(fds[0]), close(fds[1]);
}

static int exclusive_source;
static atomic_int sleeping_in[2], woken;

static void *wait_exclusively(void *number)
{
	int index = (int)(intptr_t)number, ep = epoll_create1(0);
	struct epoll_event event;
	uint32_t events = EPOLLIN | (index < 2 ? EPOLLEXCLUSIVE : 0);
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, exclusive_source, events, 1) == 0);
	atomic_store(&sleeping_in[index % 2], syscall(SYS_gettid));
	REQUIRE(epoll_wait(ep, &event, 1, -1) == 1);
	atomic_fetch_add(&woken, 1);
	close(ep);
	return NULL;
}

/* Waits until a thread sleeps. */
static void until_asleep(atomic_int *tid)
{
	char path[64], text[512], *state;
	do {
		sched_yield();
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(tid));
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, sizeof text - 1);
		close(fd);
		text[n > 0 ? n : 0] = 0;
		state = strrchr(text, ')');
	} while (!state || state[2] != 'S');
}

static void until_woken(int count)
{
	while (atomic_load(&woken) < count)
		sched_yield();
	nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
}

/* "one or more of the epoll file descriptors will receive an event" (epoll_ctl(2), EPOLLEXCLUSIVE): one where one sleeps. */
static void exclusive(void)
{
	pthread_t threads[2];
	for (int kind = 0; kind < 2; kind++) {
		exclusive_source = eventfd(0, 0);
		atomic_store(&woken, 0);
		for (int i = 0; i < 2; i++) {
			atomic_store(&sleeping_in[i], 0);
			void *number = (void *)(intptr_t)(2 * kind + i);
			REQUIRE(pthread_create(&threads[i], NULL, wait_exclusively, number) == 0);
			until_asleep(&sleeping_in[i]);
		}
		REQUIRE(eventfd_write(exclusive_source, 1) == 0);
		until_woken(kind + 1);
		CHECK_EQ(atomic_load(&woken), kind + 1);
		/* The one that is awake does not stand in the way of the other. */
		REQUIRE(eventfd_write(exclusive_source, 1) == 0);
		until_woken(2);
		CHECK_EQ(atomic_load(&woken), 2);
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		close(exclusive_source);
	}
	int ep = epoll_create1(0), inner = epoll_create1(0), event = eventfd(0, 0);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1), EINVAL);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 1), EINVAL);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, inner, EPOLLIN | EPOLLEXCLUSIVE, 1), EINVAL);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLEXCLUSIVE, 1), EINVAL);
	CHECK_EQ(ctl(ep, EPOLL_CTL_ADD, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 1), 0);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_MOD, event, EPOLLIN, 1), EINVAL);
	CHECK_ERRNO(ctl(ep, EPOLL_CTL_ADD, event, EPOLLIN, 1), EEXIST);
	/* Without a sleeper the event is there for whoever looks next. */
	REQUIRE(ctl(inner, EPOLL_CTL_ADD, event, EPOLLIN | EPOLLEXCLUSIVE, 1) == 0 && eventfd_write(event, 1) == 0);
	CHECK(ready(ep) == 1 && ready(inner) == 1);
	close(ep), close(inner), close(event);
}

static void half_closed(void)
{
	int s[2], ep = epoll_create1(0);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	REQUIRE(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1) == 0);
	CHECK(ready(ep) == 1 && got[0].events == EPOLLOUT);
	CHECK_EQ(shutdown(s[1], SHUT_WR), 0);
	CHECK(ready(ep) == 1 && got[0].events == (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
	close(s[1]);
	CHECK(ready(ep) == 1 && got[0].events == (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP));
	close(s[0]);
	close(ep);
}

static void polls(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	struct pollfd p[3] = { { fds[0], POLLIN, 99 }, { -1, POLLIN, 99 }, { 999, POLLIN, 0 } };
	CHECK_EQ(poll(p, 2, 0), 0);
	CHECK(p[0].revents == 0 && p[1].revents == 0);
	CHECK(poll(p, 3, -1) == 1 && p[2].revents == POLLNVAL);
	CHECK_EQ(poll(p, 2, 20), 0);
	CHECK_EQ(poll(NULL, 0, 10), 0);
	CHECK_ERRNO(poll(BAD, 1, 0), EFAULT);
	int file = open("/proc/self/exe", O_RDONLY);
	p[0] = (struct pollfd){ file, POLLIN | POLLOUT, 0 };
	CHECK(poll(p, 1, -1) == 1 && p[0].revents == (POLLIN | POLLOUT));
	close(file);
	CHECK_ERRNO(ppoll(p, 1, &(struct timespec){ -1, 0 }, NULL), EINVAL);
	CHECK_ERRNO(ppoll(p, 1, &(struct timespec){ 0, 1000000000 }, NULL), EINVAL);

	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fds[0], &in);
	FD_SET(fds[1], &out);
	struct timeval t = { 0, 0 };
	CHECK_EQ(select(fds[1] + 1, &in, &out, NULL, &t), 1);
	CHECK(!FD_ISSET(fds[0], &in) && FD_ISSET(fds[1], &out));
	REQUIRE(write(fds[1], "x", 1) == 1);
	FD_SET(fds[0], &in);
	CHECK_EQ(select(fds[1] + 1, &in, &out, NULL, NULL), 2);
	FD_ZERO(&in);
	t = (struct timeval){ 0, 10000 };
	CHECK_EQ(select(0, NULL, NULL, NULL, &t), 0);
	/* Linux writes the time that is left. */
	CHECK(t.tv_sec == 0 && t.tv_usec == 0);
	int closed = dup(fds[0]);
	close(closed);
	FD_SET(closed, &in);
	CHECK_ERRNO(select(closed + 1, &in, NULL, NULL, NULL), EBADF);
	CHECK_ERRNO(select(-1, NULL, NULL, NULL, NULL), EINVAL);
	/* Beyond the table of descriptors nothing is looked at; it has grown for the highest that ever was open. */
	pid_t pid = fork();
	if (pid == 0) {
		t = (struct timeval){ 0, 1000 };
		FD_ZERO(&in);
		FD_SET(1000, &in);
		REQUIRE(select(1024, &in, NULL, NULL, &t) == 0 && FD_ISSET(1000, &in));
		REQUIRE(dup2(0, 500) == 500 && close(500) == 0);
		REQUIRE(select(1024, &in, NULL, NULL, &t) == 0);
		FD_ZERO(&in);
		FD_SET(511, &in);
		REQUIRE(select(1024, &in, NULL, NULL, &t) == -1 && errno == EBADF);
		REQUIRE(dup2(0, 512) == 512 && close(512) == 0);
		FD_ZERO(&in);
		FD_SET(1000, &in);
		REQUIRE(select(1024, &in, NULL, NULL, &t) == -1 && errno == EBADF);
		/* A new process has a table for what is open. */
		pid = fork();
		if (pid == 0)
			_exit(select(1024, &in, NULL, NULL, &t) != 0);
		int inner;
		REQUIRE(waitpid(pid, &inner, 0) == pid && inner == 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	t = (struct timeval){ -1, 0 };
	CHECK_ERRNO(select(0, NULL, NULL, NULL, &t), EINVAL);
	close(fds[0]), close(fds[1]);
}

static void eventfds(void)
{
	uint64_t n;
	int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(read(fd, &n, 8) == 8 && n == 3);
	CHECK_ERRNO(read(fd, &n, 8), EAGAIN);
	n = 5;
	CHECK_EQ(write(fd, &n, 8), 8);
	n = 6;
	CHECK_EQ(write(fd, &n, 8), 8);
	CHECK_ERRNO(read(fd, &n, 4), EINVAL);
	CHECK_ERRNO(write(fd, &n, 4), EINVAL);
	CHECK(read(fd, &n, 8) == 8 && n == 11);
	n = UINT64_MAX;
	CHECK_ERRNO(write(fd, &n, 8), EINVAL);
	n = UINT64_MAX - 1;
	CHECK_EQ(write(fd, &n, 8), 8);
	n = 1;
	CHECK_ERRNO(write(fd, &n, 8), EAGAIN);
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
	REQUIRE(read(fd, &n, 8) == 8);
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	close(fd);
	fd = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
	CHECK(read(fd, &n, 8) == 8 && n == 1);
	CHECK(read(fd, &n, 8) == 8 && n == 1);
	CHECK_ERRNO(read(fd, &n, 8), EAGAIN);
	close(fd);
	/* Each buffer of a vector is a write of its own, the first one also if it is empty. */
	uint64_t two[2] = { 3, 5 };
	struct iovec both[] = { { &two[0], 8 }, { &two[1], 0 }, { &two[1], 8 } }, second[] = { { &two[0], 0 }, { &two[1], 8 } };
	struct iovec halves[] = { { &two[0], 4 }, { (char *)&two[0] + 4, 4 } }, part[] = { { &two[0], 8 }, { &two[1], 4 } };
	fd = eventfd(0, EFD_NONBLOCK);
	CHECK_EQ(writev(fd, both, 3), 16);
	CHECK(read(fd, &n, 8) == 8 && n == 8);
	CHECK_ERRNO(writev(fd, second, 2), EINVAL);
	CHECK_ERRNO(writev(fd, halves, 2), EINVAL);
	CHECK_EQ(writev(fd, part, 2), 8);
	two[1] = UINT64_MAX - 2;
	CHECK_EQ(writev(fd, both, 3), 8);
	CHECK(read(fd, &n, 8) == 8 && n == 6);
	close(fd);
	CHECK_ERRNO(eventfd(0, 77), EINVAL);
	/* A blocked reader is woken. */
	fd = eventfd(0, 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(read(fd, &n, 8) == 8 && n == 4 ? 0 : 1);
	n = 4;
	REQUIRE(write(fd, &n, 8) == 8);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(fd);
}

static void timerfds(void)
{
	uint64_t n;
	struct itimerspec now, spec = { .it_value = { 0, 10000000 } };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	CHECK(fd >= 0);
	CHECK_ERRNO(read(fd, &n, 8), EAGAIN);
	CHECK_EQ(timerfd_settime(fd, 0, &spec, NULL), 0);
	CHECK_EQ(timerfd_gettime(fd, &now), 0);
	CHECK(now.it_value.tv_sec == 0 && now.it_value.tv_nsec > 0 && now.it_value.tv_nsec <= 10000000);
	struct pollfd p = { fd, POLLIN, 0 };
	CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLIN);
	CHECK_ERRNO(read(fd, &n, 4), EINVAL);
	CHECK(read(fd, &n, 8) == 8 && n == 1);
	CHECK_EQ(timerfd_gettime(fd, &now), 0);
	CHECK(now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
	/* Periodic, and expirations that nobody fetched add up. */
	CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
	spec.it_interval = spec.it_value = (struct timespec){ 0, 5000000 };
	CHECK_EQ(timerfd_settime(fd, 0, &spec, NULL), 0);
	nanosleep(&(struct timespec){ 0, 32000000 }, NULL);
	CHECK(read(fd, &n, 8) == 8 && n >= 6);
	CHECK(read(fd, &n, 8) == 8 && n >= 1);
	/* Absolute, in the past: at once. */
	spec = (struct itimerspec){ .it_value = { 1, 0 } };
	CHECK_EQ(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, &now), 0);
	CHECK_EQ(now.it_interval.tv_nsec, 5000000);
	CHECK(read(fd, &n, 8) == 8 && n == 1);
	/* Set anew, an expiration that was not fetched is forgotten. */
	spec.it_value = (struct timespec){ 0, 1 };
	REQUIRE(timerfd_settime(fd, 0, &spec, NULL) == 0 && poll(&p, 1, -1) == 1);
	spec.it_value = (struct timespec){ 1000, 0 };
	REQUIRE(timerfd_settime(fd, 0, &spec, NULL) == 0);
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_ERRNO(timerfd_create(99, 0), EINVAL);
	CHECK_ERRNO(timerfd_create(CLOCK_MONOTONIC, 77), EINVAL);
	CHECK_ERRNO(timerfd_settime(0, 0, &spec, NULL), EINVAL);
	spec.it_value.tv_nsec = 1000000000;
	CHECK_ERRNO(timerfd_settime(fd, 0, &spec, NULL), EINVAL);
	CHECK_ERRNO(write(fd, &n, 8), EINVAL);
	close(fd);
}

int main(void)
{
	errors();
	levels_and_edges();
	edges_of_other_ends();
	nesting();
	nested_signals();
	inherited_signals();
	deep_nesting();
	exclusive();
	half_closed();
	polls();
	eventfds();
	timerfds();
	return tap_done();
}
