/* Listeners of filters, which decide about calls: seccomp_unotify(2). */
#include "tap.h"
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1UL << 1)
#endif
#define NEW_LISTENER SECCOMP_FILTER_FLAG_NEW_LISTENER

static int call(unsigned op, unsigned flags, const void *args)
{
	return syscall(SYS_seccomp, op, flags, args);
}

/* A filter that leaves one call to its listener. */
static int listen_to(unsigned flags, unsigned number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, code };
	return call(SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* How a child ends that does this: its exit status, or the negative number of its signal. */
static int ended(pid_t pid)
{
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static pid_t begin(void (*what)(void))
{
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		what();
		_exit(0);
	}
	return pid;
}

/* Each part has filters of its own, so it is a process of its own, which tells how many checks it made. */
static void part(void (*what)(void))
{
	int counts[2], ends[2];
	REQUIRE(pipe(ends) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		close(ends[0]);
		what();
		counts[0] = tap_count;
		counts[1] = tap_failed;
		_exit(write(ends[1], counts, sizeof counts) != sizeof counts);
	}
	close(ends[1]);
	REQUIRE(read(ends[0], counts, sizeof counts) == sizeof counts);
	close(ends[0]);
	tap_count = counts[0];
	tap_failed = counts[1];
	REQUIRE(ended(pid) == 0);
}

static struct seccomp_notif received(int listener)
{
	struct seccomp_notif request;
	memset(&request, 0, sizeof request);
	REQUIRE(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) == 0);
	return request;
}

static int answer(int listener, unsigned long long id, long long value, int error, unsigned flags)
{
	struct seccomp_notif_resp response = { id, value, error, flags };
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static int add(int listener, unsigned long long id, unsigned flags, int source, int number, unsigned fd_flags)
{
	struct seccomp_notif_addfd addition = { id, flags, source, number, fd_flags };
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &addition);
}

static int ready(int listener, int timeout)
{
	struct pollfd p = { listener, POLLIN | POLLOUT, 0 };
	REQUIRE(poll(&p, 1, timeout) >= 0);
	return p.revents;
}

static void asks(void)
{
	errno = 0;
	long got = syscall(SYS_getppid, 11, 22, 33, 44, 55, 66);
	_exit(got == 4711 ? 42 : got == -1 && errno == EXDEV ? 43 : got == -1 && errno == ENOSYS ? 44 : got == getpgrp() ? 45 : 1);
}

static void questions(void)
{
	struct seccomp_notif_sizes sizes;
	unsigned action = SECCOMP_RET_USER_NOTIF;
	CHECK_OK(call(SECCOMP_GET_ACTION_AVAIL, 0, &action));
	CHECK_OK(call(SECCOMP_GET_NOTIF_SIZES, 0, &sizes));
	CHECK(sizes.seccomp_notif == 80 && sizes.seccomp_notif_resp == 24 && sizes.seccomp_data == 64);
	CHECK_ERRNO(call(SECCOMP_GET_NOTIF_SIZES, 1, &sizes), EINVAL);
	CHECK_ERRNO(call(SECCOMP_GET_NOTIF_SIZES, 0, BAD), EFAULT);
	CHECK_ERRNO(listen_to(NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC, SYS_getppid), EINVAL);
	CHECK_ERRNO(listen_to(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, SYS_getppid), EINVAL);
	CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
	int listener = listen_to(NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, SYS_getppid);
	CHECK(listener >= 0);
	CHECK_EQ(fcntl(listener, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(listener, F_GETFL) & O_ACCMODE, O_RDWR);
	CHECK_ERRNO(listen_to(NEW_LISTENER, SYS_getuid), EBUSY);
	char path[64], name[64], c;
	snprintf(path, sizeof path, "/proc/self/fd/%d", listener);
	CHECK_EQ(readlink(path, name, sizeof name), 25);
	CHECK(memcmp(name, "anon_inode:seccomp notify", 25) == 0);
	CHECK_ERRNO(read(listener, &c, 1), EINVAL);
	CHECK_ERRNO(write(listener, &c, 1), EINVAL);
	CHECK_ERRNO(lseek(listener, 0, SEEK_CUR), ESPIPE);
	CHECK_ERRNO(pread(listener, &c, 1, 0), ESPIPE);
	CHECK_ERRNO(ioctl(listener, 0x2109, 0), EINVAL);
	CHECK_ERRNO(ioctl(listener, TIOCGWINSZ, &sizes), EINVAL);
	/* Without a listener there is nobody to ask. */
	close(listener);
	CHECK_ERRNO(syscall(SYS_getppid), ENOSYS);
	CHECK(listen_to(NEW_LISTENER, SYS_getuid) >= 0);
}

static void basics(void)
{
	int listener = listen_to(NEW_LISTENER, SYS_getppid);
	REQUIRE(listener >= 0);
	CHECK_EQ(ready(listener, 0), 0);
	pid_t pid = begin(asks);
	CHECK_EQ(ready(listener, -1), POLLIN);
	struct seccomp_notif bad = { .flags = 1 };
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &bad), EINVAL);
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, BAD), EFAULT);
	struct seccomp_notif request = received(listener);
	CHECK_EQ(ready(listener, 0), POLLOUT);
	CHECK_EQ(request.pid, pid);
	CHECK_EQ(request.flags, 0);
	CHECK(request.data.nr == SYS_getppid && request.data.arch == AUDIT_ARCH_X86_64 && request.data.instruction_pointer != 0);
	CHECK(request.data.args[0] == 11 && request.data.args[3] == 44 && request.data.args[5] == 66);
	unsigned long long id = request.id, other = id + 1;
	CHECK_OK(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id));
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &other), ENOENT);
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, BAD), EFAULT);
	CHECK_ERRNO(answer(listener, id, 0, 0, 2), EINVAL);
	CHECK_ERRNO(answer(listener, id, 1, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE), EINVAL);
	CHECK_ERRNO(answer(listener, id, 0, -1, SECCOMP_USER_NOTIF_FLAG_CONTINUE), EINVAL);
	CHECK_ERRNO(answer(listener, other, 1, 0, 0), ENOENT);
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, BAD), EFAULT);
	CHECK_OK(answer(listener, id, 4711, 0, 0));
	CHECK(answer(listener, id, 4711, 0, 0) == -1 && (errno == EINPROGRESS || errno == ENOENT));
	CHECK_EQ(ended(pid), 42);
	CHECK_ERRNO(answer(listener, id, 4711, 0, 0), ENOENT);
	CHECK_EQ(ready(listener, 0), 0);
	/* An error, and a call that is carried out. */
	pid = begin(asks);
	request = received(listener);
	CHECK_EQ(request.id, other);
	CHECK_OK(answer(listener, request.id, 4711, -EXDEV, 0));
	CHECK_EQ(ended(pid), 43);
	REQUIRE(setpgid(0, 0) == 0);
	pid = begin(asks);
	request = received(listener);
	CHECK_OK(answer(listener, request.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
	CHECK_EQ(ended(pid), 45);
	/* Several wait; they are fetched in their order, and answered in any. */
	struct seccomp_notif requests[3];
	pid_t pids[3];
	for (int i = 0; i < 3; i++)
		pids[i] = begin(asks);
	for (int i = 0; i < 3; i++)
		requests[i] = received(listener);
	for (int i = 2; i >= 0; i--)
		REQUIRE(answer(listener, requests[i].id, 4711, 0, 0) == 0);
	CHECK(requests[1].id == requests[0].id + 1 && requests[2].id == requests[1].id + 1);
	CHECK(ended(pids[0]) == 42 && ended(pids[1]) == 42 && ended(pids[2]) == 42);
}

static int shown;

static void looks(void)
{
	/* The descriptor that it was given is a pipe with a byte in it. */
	long fd = syscall(SYS_getppid);
	char c;
	_exit(fd < 0 || read(fd, &c, 1) != 1 || c != 'x' || fcntl(fd, F_GETFD) != (shown ? FD_CLOEXEC : 0) ? 1 : (int)fd);
}

static void descriptors(void)
{
	int listener = listen_to(NEW_LISTENER, SYS_getppid), pipes[2];
	REQUIRE(listener >= 0 && pipe(pipes) == 0 && write(pipes[1], "xxx", 3) == 3);
	int from = fcntl(pipes[0], F_DUPFD, 200);
	close(pipes[0]);
	pid_t pid = begin(looks);
	REQUIRE(ready(listener, -1) == POLLIN);
	struct seccomp_notif request = received(listener);
	CHECK_ERRNO(add(listener, request.id, 0, 999, 0, 0), EBADF);
	CHECK_ERRNO(add(listener, request.id, 0, from, 50, 0), EINVAL);
	CHECK_ERRNO(add(listener, request.id, 4, from, 0, 0), EINVAL);
	CHECK_ERRNO(add(listener, request.id, 0, from, 0, O_NONBLOCK), EINVAL);
	CHECK_ERRNO(add(listener, request.id + 1, 0, from, 0, 0), ENOENT);
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, BAD), EFAULT);
	struct {
		struct seccomp_notif_addfd known;
		unsigned long more;
	} longer = { { request.id, 0, from, 0, 0 }, 1 };
	CHECK_ERRNO(ioctl(listener, _IOC(_IOC_WRITE, '!', 3, 16), &longer), EINVAL);
	CHECK_ERRNO(ioctl(listener, _IOC(_IOC_WRITE, '!', 3, 32), &longer), E2BIG);
	int lowest = dup(0), next = dup(0);
	close(lowest);
	close(next);
	CHECK_EQ(add(listener, request.id, 0, from, 0, 0), lowest);
	longer.more = 0;
	CHECK_EQ(ioctl(listener, _IOC(_IOC_WRITE, '!', 3, 32), &longer), next);
	CHECK_EQ(add(listener, request.id, SECCOMP_ADDFD_FLAG_SETFD, from, 60, O_CLOEXEC), 60);
	CHECK_ERRNO(add(listener, request.id, SECCOMP_ADDFD_FLAG_SETFD, from, 1 << 30, 0), EBADF);
	/* The new number is not among the descriptors of who has added it. */
	CHECK_ERRNO(fcntl(60, F_GETFD), EBADF);
	CHECK_OK(answer(listener, request.id, lowest, 0, 0));
	CHECK_EQ(ended(pid), lowest);
	shown = 1;
	pid = begin(looks);
	request = received(listener);
	REQUIRE(add(listener, request.id, SECCOMP_ADDFD_FLAG_SETFD, from, 60, O_CLOEXEC) == 60);
	CHECK_OK(answer(listener, request.id, 60, 0, 0));
	CHECK_EQ(ended(pid), 60);
	/* Both in one go; a failure leaves the call where it is. */
	pid = begin(looks);
	REQUIRE(ready(listener, -1) == POLLIN);
	CHECK_ERRNO(add(listener, request.id + 1, 0, from, 0, 0), EINPROGRESS);
	request = received(listener);
	CHECK_ERRNO(add(listener, request.id, SECCOMP_ADDFD_FLAG_SETFD | SECCOMP_ADDFD_FLAG_SEND, from, 1 << 30, 0), EBADF);
	CHECK_EQ(ready(listener, 0), POLLOUT);
	CHECK_EQ(add(listener, request.id, SECCOMP_ADDFD_FLAG_SEND, from, 0, O_CLOEXEC), lowest);
	CHECK_EQ(ended(pid), lowest);
}

static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void with_handler(int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void interrupted(void)
{
	with_handler(0);
	long got = syscall(SYS_getppid);
	_exit(got == -1 && errno == EINTR && handled == 1 ? 42 : 1);
}

static void restarted(void)
{
	with_handler(SA_RESTART);
	long got = syscall(SYS_getppid);
	_exit(got == 4711 && handled == 1 ? 42 : 1);
}

static void signals(void)
{
	int listener = listen_to(NEW_LISTENER, SYS_getppid);
	REQUIRE(listener >= 0);
	pid_t pid = begin(interrupted);
	struct seccomp_notif request = received(listener);
	CHECK_OK(kill(pid, SIGUSR1));
	CHECK_EQ(ended(pid), 42);
	unsigned long long id = request.id;
	CHECK_ERRNO(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id), ENOENT);
	CHECK_ERRNO(answer(listener, id, 4711, 0, 0), ENOENT);
	CHECK_ERRNO(add(listener, id, 0, 0, 0, 0), ENOENT);
	CHECK_EQ(ready(listener, 0), 0);
	/* A call that is restarted asks again. */
	pid = begin(restarted);
	request = received(listener);
	CHECK_OK(kill(pid, SIGUSR1));
	struct seccomp_notif again = received(listener);
	CHECK_EQ(again.id, request.id + 1);
	CHECK_OK(answer(listener, again.id, 4711, 0, 0));
	CHECK_EQ(ended(pid), 42);
	/* So does one that was stopped. */
	pid = begin(asks);
	request = received(listener);
	int status;
	CHECK_OK(kill(pid, SIGSTOP));
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK_OK(kill(pid, SIGCONT));
	again = received(listener);
	CHECK(again.id != request.id);
	CHECK_OK(answer(listener, again.id, 4711, 0, 0));
	CHECK_EQ(ended(pid), 42);
	pid = begin(asks);
	request = received(listener);
	CHECK_OK(kill(pid, SIGKILL));
	CHECK_EQ(ended(pid), -SIGKILL);
	CHECK_ERRNO(answer(listener, request.id, 4711, 0, 0), ENOENT);
	/* Nobody asks: a signal ends the wait for a notification. */
	with_handler(0);
	pid = fork();
	if (pid == 0) {
		memset(&request, 0, sizeof request);
		long got = ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request);
		_exit(got == -1 && errno == EINTR && handled > 0 ? 42 : 1);
	}
	struct timespec while_it_waits = { 0, 5000000 };
	while (waitpid(pid, &status, WNOHANG) == 0) {
		REQUIRE(kill(pid, SIGUSR1) == 0);
		nanosleep(&while_it_waits, NULL);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void patient(void)
{
	int listener = listen_to(NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, SYS_getppid);
	REQUIRE(listener >= 0);
	/* Before it was fetched, a signal interrupts. */
	pid_t pid = begin(interrupted);
	REQUIRE(ready(listener, -1) == POLLIN);
	CHECK_OK(kill(pid, SIGUSR1));
	CHECK_EQ(ended(pid), 42);
	close(listener);
	listener = listen_to(NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, SYS_getppid);
	REQUIRE(listener >= 0);
	pid = begin(restarted);
	struct seccomp_notif request = received(listener);
	CHECK_OK(kill(pid, SIGUSR1));
	struct timespec while_it_waits = { 0, 20000000 };
	nanosleep(&while_it_waits, NULL);
	unsigned long long id = request.id;
	CHECK_OK(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id));
	CHECK_OK(answer(listener, id, 4711, 0, 0));
	CHECK_EQ(ended(pid), 42);
	pid = begin(restarted);
	request = received(listener);
	CHECK_OK(kill(pid, SIGKILL));
	CHECK_EQ(ended(pid), -SIGKILL);
	CHECK_ERRNO(answer(listener, request.id, 4711, 0, 0), ENOENT);
}

static void closed(void)
{
	int listener = listen_to(NEW_LISTENER, SYS_getppid), ends[2];
	REQUIRE(listener >= 0 && pipe(ends) == 0);
	/* The children have the descriptor too: they close it first. */
	pid_t pids[2];
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			close(listener);
			asks();
		}
	}
	received(listener);
	struct pollfd other = { listener, POLLIN, 0 };
	REQUIRE(poll(&other, 1, -1) == 1);
	close(listener);
	CHECK(ended(pids[0]) == 44 && ended(pids[1]) == 44);
	CHECK_EQ(ended(begin(asks)), 44);
}

static int sent(int socket)
{
	char c, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &c, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	REQUIRE(recvmsg(socket, &message, 0) == 1);
	int fd;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void send_listener(int socket, int fd)
{
	char c = 'l', control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &c, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	REQUIRE(sendmsg(socket, &message, 0) == 1);
}

static void *in_thread(void *unused)
{
	(void)unused;
	return (void *)(long)(syscall(SYS_getppid) == syscall(SYS_gettid));
}

/* A supervisor that has no filter itself: runtimes are made so. */
static void supervised(int socket)
{
	int listener = listen_to(NEW_LISTENER, SYS_getppid);
	REQUIRE(listener >= 0);
	send_listener(socket, listener);
	close(listener);
	pthread_t thread;
	void *result;
	if (syscall(SYS_getppid) != 1000)
		_exit(1);
	REQUIRE(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, &result) == 0);
	_exit(result ? 42 : 2);
}

static void supervisor(void)
{
	int sockets[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	pid_t pid = fork();
	if (pid == 0)
		supervised(sockets[1]);
	int listener = sent(sockets[0]);
	struct seccomp_notif request = received(listener);
	CHECK_EQ(request.pid, pid);
	CHECK_OK(answer(listener, request.id, 1000, 0, 0));
	request = received(listener);
	CHECK(request.pid != (unsigned)pid);
	CHECK_OK(answer(listener, request.id, request.pid, 0, 0));
	int ep = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	REQUIRE(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event) == 0);
	CHECK_EQ(ended(pid), 42);
	/* Nobody has the filter any more. */
	CHECK_EQ(epoll_wait(ep, &event, 1, -1), 1);
	CHECK_EQ(event.events, EPOLLHUP);
	CHECK_EQ(ready(listener, 0), POLLHUP);
}

/* Calls of all kinds that are carried out after all: those that sleep, make a process, or do not return. */
static void carried_out(void)
{
	static const int numbers[] = { SYS_clock_nanosleep, SYS_clone, SYS_execve };
	for (int i = 0; i < 3; i++) {
		int sockets[2];
		REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
		pid_t pid = fork();
		if (pid == 0) {
			int listener = listen_to(NEW_LISTENER, numbers[i]);
			REQUIRE(listener >= 0);
			send_listener(sockets[1], listener);
			close(listener);
			struct timespec time = { 0, 1000000 };
			if (i == 0)
				_exit(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL) == 0 ? 42 : 1);
			if (i == 1) {
				pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
				if (child == 0)
					_exit(7);
				_exit(child > 0 && ended(child) == 7 ? 42 : 1);
			}
			char *const argv[] = { "unotify", "executed", NULL }, *const envp[] = { NULL };
			syscall(SYS_execve, "/proc/self/exe", argv, envp);
			_exit(1);
		}
		int listener = sent(sockets[0]);
		struct seccomp_notif request = received(listener);
		CHECK_EQ(request.data.nr, numbers[i]);
		CHECK_OK(answer(listener, request.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
		CHECK_EQ(ended(pid), 42);
		close(listener);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "executed") == 0)
		return 42;
	CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	part(questions);
	part(basics);
	part(descriptors);
	part(signals);
	part(patient);
	part(closed);
	part(supervisor);
	part(carried_out);
	return tap_done();
}
