/* Process descriptors: pidfd_open(2), pidfd_send_signal(2), pidfd_getfd(2), CLONE_PIDFD, P_PIDFD; siblings by CLONE_PARENT. */
#include "tap.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int open_pid(pid_t pid, unsigned flags)
{
	return syscall(SYS_pidfd_open, pid, flags);
}

static int send(int fd, int signal, siginfo_t *info, unsigned flags)
{
	return syscall(SYS_pidfd_send_signal, fd, signal, info, flags);
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

static pid_t sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(9);
	}
	REQUIRE(pid > 0);
	return pid;
}

static int readable(int fd, int timeout)
{
	struct pollfd one = { fd, POLLIN | POLLOUT, 0 };
	return poll(&one, 1, timeout) == 1 ? one.revents : 0;
}

/* EINVAL; newer kernels say ENOENT. */
static void *other_thread(void *unused)
{
	(void)unused;
	return (void *)(long)(open_pid(syscall(SYS_gettid), 0) == -1 && (errno == EINVAL || errno == ENOENT));
}

static void opening(void)
{
	CHECK_ERRNO(open_pid(-1, 0), EINVAL);
	CHECK_ERRNO(open_pid(0, 0), EINVAL);
	CHECK_ERRNO(open_pid(getpid(), 1), EINVAL);
	CHECK_ERRNO(open_pid(4194303, 0), ESRCH);
	int self = open_pid(getpid(), 0);
	CHECK(self >= 0 && fcntl(self, F_GETFD) == FD_CLOEXEC && fcntl(self, F_GETFL) == O_RDWR);
	int calm = open_pid(getpid(), O_NONBLOCK);
	CHECK(calm >= 0 && fcntl(calm, F_GETFL) == (O_RDWR | O_NONBLOCK));
	char byte;
	CHECK_ERRNO(read(self, &byte, 1), EINVAL);
	CHECK_ERRNO(write(self, &byte, 1), EINVAL);
	CHECK_EQ(readable(self, 0), 0);
	char path[64], name[64] = "";
	snprintf(path, sizeof path, "/proc/self/fd/%d", self);
	CHECK(readlink(path, name, sizeof name - 1) > 0 && strcmp(name, "anon_inode:[pidfd]") == 0);
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", self);
	FILE *info = fopen(path, "r");
	int shown = -2;
	while (info && fgets(name, sizeof name, info))
		sscanf(name, "Pid: %d", &shown);
	CHECK_EQ(shown, getpid());
	fclose(info);
	pthread_t thread;
	void *refused;
	REQUIRE(pthread_create(&thread, NULL, other_thread, NULL) == 0);
	pthread_join(thread, &refused);
	CHECK(refused != NULL);
	CHECK_ERRNO(send(0, 0, NULL, 0), EBADF);
	CHECK_ERRNO(send(self, 0, NULL, 0x80), EINVAL);
	CHECK_ERRNO(send(self, 65, NULL, 0), EINVAL);
	CHECK_OK(send(self, 0, NULL, 0));
	close(self);
	close(calm);
}

static void ending(void)
{
	pid_t pid = sleeper();
	int fd = open_pid(pid, 0), calm = open_pid(pid, O_NONBLOCK), set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	CHECK_OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
	siginfo_t info = { 0 };
	CHECK_ERRNO(waitid(P_PIDFD, calm, &info, WEXITED), EAGAIN);
	CHECK(waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0);
	CHECK_ERRNO(waitid(P_PIDFD, 0, &info, WEXITED), EBADF);
	siginfo_t wrong = { .si_signo = SIGUSR2, .si_code = SI_QUEUE };
	CHECK_ERRNO(send(fd, SIGTERM, &wrong, 0), EINVAL);
	siginfo_t forged = { .si_signo = SIGTERM, .si_code = SI_USER };
	CHECK_ERRNO(send(fd, SIGTERM, &forged, 0), EPERM);
	CHECK_OK(send(fd, SIGTERM, NULL, 0));
	CHECK_EQ(readable(fd, -1), POLLIN);
	CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLIN);
	CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
	/* Not waited for: still there. */
	CHECK_OK(send(fd, 0, NULL, 0));
	CHECK_OK(waitid(P_PIDFD, calm, &info, WEXITED));
	CHECK(info.si_pid == pid && info.si_code == CLD_KILLED && info.si_status == SIGTERM);
	CHECK_ERRNO(send(fd, 0, NULL, 0), ESRCH);
	CHECK_ERRNO(waitid(P_PIDFD, fd, &info, WEXITED), ECHILD);
	CHECK(readable(fd, 0) & POLLIN);
	close(fd);
	close(calm);
	close(set);
}

static void descriptors(void)
{
	int there[2], back[2];
	REQUIRE(pipe(there) == 0 && pipe(back) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		int mine = open("/dev/null", O_RDWR);
		dup2(there[1], mine);
		char byte;
		REQUIRE(write(back[1], &mine, sizeof mine) == sizeof mine);
		REQUIRE(read(there[0], &byte, 1) == 1);
		_exit(byte == 'x' ? 3 : 1);
	}
	int fd = open_pid(pid, 0), theirs;
	REQUIRE(read(back[0], &theirs, sizeof theirs) == sizeof theirs);
	int copy = syscall(SYS_pidfd_getfd, fd, theirs, 0);
	CHECK(copy >= 0 && fcntl(copy, F_GETFD) == FD_CLOEXEC);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 1000, 0), EBADF);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, theirs, 1), EINVAL);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, copy, theirs, 0), EBADF);
	CHECK_EQ(write(copy, "x", 1), 1);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, theirs, 0), ESRCH);
	close(fd);
}

static pid_t clone_into(uint64_t flags, int *fd)
{
	struct clone_args args = { .flags = flags, .pidfd = (uintptr_t)fd, .exit_signal = SIGCHLD };
	if (flags & CLONE_PARENT)
		args.exit_signal = 0;
	return syscall(SYS_clone3, &args, sizeof args);
}

static void cloning(void)
{
	int fd = -1, status;
	pid_t pid = clone_into(CLONE_PIDFD, &fd);
	if (pid == 0)
		_exit(fcntl(fd, F_GETFD) == -1 ? 4 : 1);
	siginfo_t info;
	CHECK(pid > 0 && fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(waitid(P_PIDFD, fd, &info, WEXITED) == 0 && info.si_pid == pid && info.si_status == 4);
	close(fd);
	int old = -1;
	pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &old, 0, 0);
	if (pid == 0)
		_exit(6);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6 && (readable(old, 0) & POLLIN));
	close(old);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, &old, 0, 0), EINVAL);
	CHECK_ERRNO(clone_into(CLONE_PIDFD | CLONE_DETACHED, &fd), EINVAL);
	CHECK_ERRNO(clone_into(CLONE_PIDFD, BAD), EFAULT);

	/* A sibling: its parent is the caller's. */
	int news[2];
	REQUIRE(pipe(news) == 0);
	pid = fork();
	if (pid == 0) {
		pid_t parent = getppid(), sibling = clone_into(CLONE_PARENT, NULL);
		if (sibling == 0)
			_exit(getppid() == parent ? 7 : 1);
		REQUIRE(write(news[1], &sibling, sizeof sibling) == sizeof sibling);
		_exit(waitpid(sibling, NULL, 0) == -1 && errno == ECHILD ? 8 : 1);
	}
	pid_t sibling;
	REQUIRE(read(news[0], &sibling, sizeof sibling) == sizeof sibling);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 8);
	CHECK(waitpid(sibling, &status, 0) == sibling && WEXITSTATUS(status) == 7);
}

static char stack[65536] __attribute__((aligned(16)));
static volatile int shared;

static int in_the_same_memory(void *unused)
{
	(void)unused;
	shared = getpid();
	nap();
	return 11;
}

/* Another process in the same memory, while both run. */
static void memory(void)
{
	int status;
	extern int clone(int (*)(void *), void *, int, void *, ...);
	pid_t pid = clone(in_the_same_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	REQUIRE(pid > 0);
	while (!shared)
		nap();
	CHECK_EQ(shared, pid);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 11);
}

int main(void)
{
	opening();
	ending();
	descriptors();
	cloning();
	memory();
	return tap_done();
}
