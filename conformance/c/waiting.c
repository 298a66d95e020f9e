/* Calls that wait look for what they wait for first and for signals second: what is there when a signal comes is not lost. No
 * handler here has SA_RESTART. */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
}

/* A child that ends a little later, when its parent sleeps. */
static pid_t dying(int code)
{
	pid_t pid = fork();
	if (pid == 0) {
		nap();
		_exit(code);
	}
	REQUIRE(pid > 0);
	return pid;
}

static void children(void)
{
	int status, held = 1;
	for (int round = 0; round < 10; round++) {
		pid_t pid = dying(round);
		handled = 0;
		held &= waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == round && handled == 1;
	}
	CHECK(held && "waitpid(pid) finds the child whose SIGCHLD comes with it");
	pid_t pid = dying(3);
	CHECK(waitpid(-1, &status, 0) == pid && WEXITSTATUS(status) == 3);
	pid = dying(4);
	CHECK(waitpid(0, &status, __WALL) == pid && WEXITSTATUS(status) == 4);
	pid = dying(5);
	siginfo_t info;
	CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == pid && info.si_status == 5);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	pid = dying(6);
	CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == pid);

	/* Stops and continuations are told as deaths are. */
	pid = fork();
	if (pid == 0) {
		nap();
		raise(SIGSTOP);
		nap();
		_exit(7);
	}
	handled = 0;
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && handled == 1);
	pid_t helper = fork();
	if (helper == 0) {
		nap();
		kill(pid, SIGCONT);
		pause();
	}
	CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
	kill(helper, SIGKILL);
	CHECK(waitpid(helper, &status, 0) == helper && WTERMSIG(status) == SIGKILL);

	/* A signal alone, with a child that lives on, does interrupt. */
	pid = fork();
	if (pid == 0) {
		nap();
		kill(getppid(), SIGUSR1);
		pause();
	}
	CHECK_ERRNO(waitpid(pid, &status, 0), EINTR);
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
}

/* A process closes its descriptors and gives back its locks before it sends SIGCHLD: who waits for that is never interrupted by
 * it. */
static void ends(void)
{
	char byte;
	for (int kind = 0; kind < 5; kind++) {
		int fds[2];
		REQUIRE(kind == 4 ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 : pipe(fds) == 0);
		pid_t pid = fork();
		if (pid == 0) {
			close(fds[0]);
			nap();
			_exit(0);
		}
		close(fds[1]);
		struct pollfd p = { fds[0], POLLIN, 0 };
		fd_set set;
		FD_ZERO(&set);
		FD_SET(fds[0], &set);
		struct epoll_event event = { EPOLLIN, { .u64 = 1 } };
		int ep = epoll_create1(0);
		REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &event) == 0);
		if (kind == 0)
			CHECK_EQ(read(fds[0], &byte, 1), 0);
		if (kind == 1)
			CHECK_EQ(poll(&p, 1, -1), 1);
		if (kind == 2)
			CHECK_EQ(select(fds[0] + 1, &set, NULL, NULL, NULL), 1);
		if (kind == 3)
			CHECK_EQ(epoll_wait(ep, &event, 1, -1), 1);
		if (kind == 4)
			CHECK(poll(&p, 1, -1) == 1 && recv(fds[0], &byte, 1, 0) == 0);
		int status;
		while (waitpid(pid, &status, 0) != pid)
			;
		close(ep);
		close(fds[0]);
	}
	int file = open("lock", O_RDWR | O_CREAT, 0600), told[2];
	REQUIRE(file >= 0 && pipe(told) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		int own = open("lock", O_RDWR);
		REQUIRE(flock(own, LOCK_EX) == 0 && write(told[1], "x", 1) == 1);
		nap();
		_exit(0);
	}
	REQUIRE(read(told[0], &byte, 1) == 1);
	CHECK_EQ(flock(file, LOCK_EX), 0);
	int status;
	while (waitpid(pid, &status, 0) != pid)
		;
}

/* With a mask that lets a pending signal in: poll and select see it before a timeout, even one of zero, and after what is
 * ready; epoll_wait after both. A call that is not interrupted leaves the signal pending. */
static void masks(void)
{
	sigset_t usr1, none;
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	int fds[2], ep = epoll_create1(0);
	REQUIRE(pipe(fds) == 0);
	struct epoll_event event = { EPOLLIN, { .u64 = 1 } };
	REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &event) == 0);
	struct pollfd p = { fds[0], POLLIN, 0 };
	struct timespec zero = { 0, 0 };
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fds[0], &set);
	raise(SIGUSR1);
	handled = 0;
	CHECK_ERRNO(ppoll(&p, 1, &zero, &none), EINTR);
	CHECK_EQ(handled, 1);
	raise(SIGUSR1);
	CHECK_ERRNO(pselect(fds[0] + 1, &set, NULL, NULL, &zero, &none), EINTR);
	CHECK(handled == 2 && FD_ISSET(fds[0], &set));
	raise(SIGUSR1);
	CHECK_EQ(epoll_pwait(ep, &event, 1, 0, &none), 0);
	CHECK_EQ(handled, 2);
	CHECK_ERRNO(epoll_pwait(ep, &event, 1, 1000, &none), EINTR);
	CHECK_EQ(handled, 3);

	REQUIRE(write(fds[1], "x", 1) == 1);
	raise(SIGUSR1);
	CHECK_EQ(ppoll(&p, 1, &zero, &none), 1);
	CHECK_EQ(pselect(fds[0] + 1, &set, NULL, NULL, NULL, &none), 1);
	CHECK_EQ(epoll_pwait(ep, &event, 1, -1, &none), 1);
	CHECK_EQ(handled, 3);
	/* Also after a sleep that something else has ended. */
	char byte;
	REQUIRE(read(fds[0], &byte, 1) == 1);
	sigset_t chld;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	pid_t writer = fork();
	if (writer == 0) {
		nap();
		_exit(write(fds[1], "x", 1) != 1);
	}
	sigaddset(&chld, SIGUSR1);
	CHECK_EQ(ppoll(&p, 1, NULL, &chld), 1);
	CHECK_EQ(handled, 3);
	int status;
	REQUIRE(waitpid(writer, &status, 0) == writer);
	sigprocmask(SIG_UNBLOCK, &chld, NULL);
	CHECK_EQ(handled, 5);
	sigprocmask(SIG_BLOCK, &usr1, NULL);

	/* A signal that is waited for goes before one that interrupts. */
	sigset_t usr2;
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		nap();
		kill(getppid(), SIGUSR2);
		pause();
	}
	CHECK_EQ(sigwaitinfo(&usr2, NULL), SIGUSR2);
	kill(pid, SIGKILL);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	sigprocmask(SIG_UNBLOCK, &usr2, NULL);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGCHLD, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	tap_directory();
	children();
	ends();
	masks();
	return tap_done();
}
