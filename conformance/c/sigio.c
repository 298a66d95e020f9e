/* Signals of descriptors: owners (F_SETOWN and its kin), O_ASYNC, F_SETSIG, F_NOTIFY (fcntl(2), "Managing signals"). */
#include "tap.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif
#ifndef FIOSETOWN
#define FIOSETOWN 0x8901
#define FIOGETOWN 0x8903
#endif

static char told[1024];

/* All signals that are pending here: "signal/code/fd/band". */
static const char *signals_after(long ms)
{
	sigset_t set;
	siginfo_t info;
	struct timespec wait = { 0, ms * 1000000 };
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 1);
	told[0] = 0;
	size_t n = 0;
	while (sigtimedwait(&set, &info, &wait) > 0) {
		const char *name = info.si_signo == SIGIO ? "IO" : info.si_signo == SIGUSR1 ? "USR1" : "RT";
		n += snprintf(told + n, sizeof told - n, "%s%s", n ? " " : "", name);
		if (info.si_code == SI_KERNEL)
			n += snprintf(told + n, sizeof told - n, "/kernel/%d/%d", info.si_pid, info.si_uid);
		else
			n += snprintf(told + n, sizeof told - n, "/%d/%d/%lx", info.si_code, info.si_fd, info.si_band);
		wait.tv_nsec = 0;
	}
	return told;
}

static const char *signals(void)
{
	return signals_after(0);
}

#define CHECK_TEXT(got, want) \
	do { \
		const char *got_ = got; \
		if (!tap_true(strcmp(got_, want) == 0, want[0] ? want : "(nothing)", __FILE__, __LINE__, 0)) \
			tap_print("# got %s\n", got_); \
	} while (0)

static int owner_ex(int fd, int *type)
{
	struct f_owner_ex ex = { -1, -1 };
	if (fcntl(fd, F_GETOWN_EX, &ex))
		return -2;
	*type = ex.type;
	return ex.pid;
}

static int set_owner_ex(int fd, int type, int pid)
{
	struct f_owner_ex ex = { type, pid };
	return fcntl(fd, F_SETOWN_EX, &ex);
}

static void owners(void)
{
	int p[2], type;
	REQUIRE(pipe(p) == 0);
	/* A process group of its own: that of who has started the program may not have a number here. */
	REQUIRE(getpgrp() == getpid() || setpgid(0, 0) == 0);
	CHECK_EQ(fcntl(p[0], F_GETOWN), 0);
	CHECK_EQ(fcntl(p[0], F_GETSIG), 0);
	CHECK_EQ(owner_ex(p[0], &type), 0);
	CHECK_EQ(type, F_OWNER_TID);
	CHECK_EQ(fcntl(p[0], F_SETOWN, getpid()), 0);
	CHECK_EQ(fcntl(p[0], F_GETOWN) == getpid(), 1);
	CHECK_EQ(owner_ex(p[0], &type) == getpid(), 1);
	CHECK_EQ(type, F_OWNER_PID);
	CHECK_EQ(fcntl(p[0], F_SETOWN, -getpgrp()), 0);
	CHECK_EQ(syscall(SYS_fcntl, p[0], F_GETOWN) == -getpgrp() || fcntl(p[0], F_GETOWN) == -getpgrp(), 1);
	CHECK_EQ(owner_ex(p[0], &type) == getpgrp(), 1);
	CHECK_EQ(type, F_OWNER_PGRP);
	CHECK_EQ(set_owner_ex(p[0], F_OWNER_TID, getpid()), 0);
	CHECK_EQ(owner_ex(p[0], &type) == getpid(), 1);
	CHECK_EQ(type, F_OWNER_TID);
	CHECK_EQ(fcntl(p[0], F_GETOWN) == getpid(), 1);
	CHECK_ERRNO(fcntl(p[0], F_SETOWN, 4000000), ESRCH);
	CHECK_ERRNO(fcntl(p[0], F_SETOWN, -4000000), ESRCH);
	CHECK_ERRNO(fcntl(p[0], F_SETOWN, -2147483647 - 1), EINVAL);
	CHECK_ERRNO(set_owner_ex(p[0], 3, getpid()), EINVAL);
	CHECK_ERRNO(set_owner_ex(p[0], -1, getpid()), EINVAL);
	CHECK_ERRNO(set_owner_ex(p[0], F_OWNER_PID, 4000000), ESRCH);
	CHECK_ERRNO(fcntl(p[0], F_SETOWN_EX, BAD), EFAULT);
	CHECK_ERRNO(fcntl(p[0], F_GETOWN_EX, BAD), EFAULT);
	CHECK_EQ(fcntl(p[0], F_GETOWN) == getpid(), 1);
	/* It is the description's. */
	int copy = dup(p[0]);
	CHECK_EQ(fcntl(copy, F_GETOWN) == getpid(), 1);
	CHECK_EQ(fcntl(p[1], F_GETOWN), 0);
	CHECK_EQ(fcntl(p[0], F_SETOWN, 0), 0);
	CHECK_EQ(owner_ex(copy, &type), 0);
	CHECK_EQ(type, F_OWNER_PID);
	CHECK_EQ(set_owner_ex(p[0], F_OWNER_PGRP, 0), 0);
	CHECK_EQ(owner_ex(copy, &type), 0);
	CHECK_EQ(type, F_OWNER_PGRP);
	/* An owner that is gone. */
	pid_t child = fork();
	if (child == 0)
		pause();
	CHECK_EQ(fcntl(p[0], F_SETOWN, child), 0);
	CHECK_EQ(fcntl(p[0], F_GETOWN) == child, 1);
	kill(child, SIGKILL);
	siginfo_t info;
	REQUIRE(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
	CHECK_EQ(fcntl(p[0], F_GETOWN) == child, 1);
	waitpid(child, NULL, 0);
	CHECK_EQ(fcntl(p[0], F_GETOWN), 0);
	CHECK_EQ(owner_ex(p[0], &type), 0);
	CHECK_EQ(type, F_OWNER_PID);
	/* Signals. */
	CHECK_EQ(fcntl(p[0], F_SETSIG, SIGUSR1), 0);
	CHECK_EQ(fcntl(copy, F_GETSIG), SIGUSR1);
	CHECK_EQ(fcntl(p[0], F_SETSIG, 64), 0);
	CHECK_ERRNO(fcntl(p[0], F_SETSIG, 65), EINVAL);
	CHECK_ERRNO(fcntl(p[0], F_SETSIG, -1), EINVAL);
	CHECK_EQ(fcntl(p[0], F_GETSIG), 64);
	CHECK_EQ(fcntl(p[0], F_SETSIG, 0), 0);
	int ids[2] = { -1, -1 };
	CHECK_EQ(fcntl(p[0], F_GETOWNER_UIDS, ids), 0);
	CHECK(ids[0] == (int)getuid() && ids[1] == (int)geteuid());
	int path = open(".", O_PATH);
	CHECK_ERRNO(fcntl(path, F_SETOWN, getpid()), EBADF);
	CHECK_ERRNO(fcntl(path, F_GETOWN), EBADF);
	CHECK_ERRNO(fcntl(path, F_SETSIG, SIGIO), EBADF);
	close(path), close(copy), close(p[0]), close(p[1]);
	/* Sockets have ioctls for it. */
	int s = socket(AF_UNIX, SOCK_STREAM, 0), pid = getpid(), got = -1;
	CHECK_EQ(ioctl(s, FIOSETOWN, &pid), 0);
	CHECK_EQ(ioctl(s, FIOGETOWN, &got), 0);
	CHECK(got == pid && fcntl(s, F_GETOWN) == pid);
	pid = -getpgrp();
	CHECK_EQ(ioctl(s, FIOSETOWN, &pid), 0);
	CHECK_EQ(ioctl(s, FIOGETOWN, &got), 0);
	CHECK(got == pid);
	pid = 4000000;
	CHECK_ERRNO(ioctl(s, FIOSETOWN, &pid), ESRCH);
	CHECK_ERRNO(ioctl(s, FIOSETOWN, BAD), EFAULT);
	CHECK_ERRNO(ioctl(s, FIOGETOWN, BAD), EFAULT);
	close(s);
	REQUIRE(pipe(p) == 0);
	CHECK_ERRNO(ioctl(p[0], FIOSETOWN, &pid), ENOTTY);
	CHECK_ERRNO(ioctl(p[0], FIOGETOWN, &pid), ENOTTY);
	close(p[0]), close(p[1]);
}

static int own(int fd, int sig)
{
	return fcntl(fd, F_SETOWN, getpid()) | fcntl(fd, F_SETSIG, sig) | fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
}

/* Fixed numbers, for the si_fd of signals. */
static void at(int *fd, int number)
{
	REQUIRE(dup2(*fd, number) == number);
	close(*fd);
	*fd = number;
}

static void of_pipes(void)
{
	int p[2];
	char room[70000];
	REQUIRE(pipe2(p, O_NONBLOCK) == 0);
	at(&p[0], 20), at(&p[1], 21);
	/* Without an owner nobody is told. */
	fcntl(p[0], F_SETFL, O_NONBLOCK | O_ASYNC);
	REQUIRE(write(p[1], "a", 1) == 1);
	CHECK_TEXT(signals(), "");
	CHECK_EQ(fcntl(p[0], F_GETFL), O_RDONLY | O_NONBLOCK | O_ASYNC);
	/* The old signal. */
	CHECK_EQ(own(p[0], 0), 0);
	REQUIRE(write(p[1], "b", 1) == 1);
	CHECK_TEXT(signals(), "IO/kernel/0/0");
	/* SIGIO with details, another one, and one that queues. */
	fcntl(p[0], F_SETSIG, SIGIO);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "IO/1/20/41");
	fcntl(p[0], F_SETSIG, SIGUSR1);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "USR1/1/20/41");
	fcntl(p[0], F_SETSIG, SIGRTMIN + 1);
	REQUIRE(write(p[1], "c", 1) == 1);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "RT/1/20/41 RT/1/20/41");
	CHECK_EQ(write(p[1], "", 0), 0);
	CHECK_TEXT(signals(), "");
	/* The number is that of the descriptor by which it was switched on. */
	int copy = dup(p[0]);
	fcntl(copy, F_SETFL, O_NONBLOCK | O_ASYNC);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "RT/1/20/41");
	fcntl(copy, F_SETFL, O_NONBLOCK);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "");
	at(&copy, 22);
	fcntl(copy, F_SETFL, O_NONBLOCK | O_ASYNC);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "RT/1/22/41");
	close(copy);
	REQUIRE(write(p[1], "c", 1) == 1);
	CHECK_TEXT(signals(), "RT/1/22/41");
	/* Writers. */
	CHECK_EQ(own(p[1], SIGUSR1), 0);
	CHECK_TEXT(signals(), "");
	REQUIRE(read(p[0], room, 1) == 1);
	CHECK_TEXT(signals(), "USR1/2/21/304");
	REQUIRE(read(p[0], room, 100) > 1);
	CHECK_TEXT(signals(), "USR1/2/21/304");
	CHECK_ERRNO(read(p[0], room, 100), EAGAIN);
	CHECK_TEXT(signals(), "USR1/2/21/304");
	/* A full pipe, and no room. */
	CHECK_EQ(write(p[1], room, sizeof room), 65536);
	CHECK_TEXT(signals(), "RT/1/22/41");
	CHECK_ERRNO(write(p[1], room, 1), EAGAIN);
	CHECK_TEXT(signals(), "RT/1/22/41");
	/* Ends. */
	close(p[1]);
	CHECK_TEXT(signals(), "RT/1/22/41");
	close(p[0]);
	REQUIRE(pipe2(p, O_NONBLOCK) == 0);
	at(&p[0], 20), at(&p[1], 21);
	own(p[1], SIGUSR1);
	close(p[0]);
	CHECK_TEXT(signals(), "USR1/2/21/304");
	signal(SIGPIPE, SIG_IGN);
	CHECK_ERRNO(write(p[1], room, 1), EPIPE);
	CHECK_TEXT(signals(), "");
	close(p[1]);
	/* A codes of its own: si_code is SI_SIGIO. */
	REQUIRE(pipe2(p, O_NONBLOCK) == 0);
	at(&p[0], 20), at(&p[1], 21);
	own(p[0], SIGCHLD);
	sigset_t set;
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigemptyset(&set), sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	REQUIRE(write(p[1], "x", 1) == 1);
	CHECK_EQ(sigtimedwait(&set, &info, &none), SIGCHLD);
	CHECK_EQ(info.si_code, SI_SIGIO);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	/* FIOASYNC is another way. */
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	fcntl(p[0], F_SETSIG, SIGUSR1);
	int on = 1;
	CHECK_EQ(ioctl(p[0], FIOASYNC, &on), 0);
	CHECK_EQ(fcntl(p[0], F_GETFL), O_RDONLY | O_NONBLOCK | O_ASYNC);
	REQUIRE(write(p[1], "x", 1) == 1);
	CHECK_TEXT(signals(), "USR1/1/20/41");
	on = 0;
	CHECK_EQ(ioctl(p[0], FIOASYNC, &on), 0);
	CHECK_EQ(fcntl(p[0], F_GETFL), O_RDONLY | O_NONBLOCK);
	REQUIRE(write(p[1], "x", 1) == 1);
	CHECK_TEXT(signals(), "");
	close(p[0]), close(p[1]);
}

static void of_others(void)
{
	int on = 1, off = 0;
	int fd = eventfd(0, EFD_NONBLOCK);
	/* Not of an eventfd: F_SETFL leaves the flag out. */
	CHECK_EQ(own(fd, SIGUSR1), 0);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ASYNC, 0);
	eventfd_write(fd, 1);
	CHECK_TEXT(signals(), "");
	CHECK_ERRNO(ioctl(fd, FIOASYNC, &on), ENOTTY);
	CHECK_EQ(ioctl(fd, FIOASYNC, &off), 0);
	close(fd);
	fd = timerfd_create(CLOCK_MONOTONIC, 0);
	CHECK_ERRNO(ioctl(fd, FIOASYNC, &on), ENOTTY);
	CHECK_EQ(ioctl(fd, FIOASYNC, &off), 0);
	close(fd);
	fd = open("file", O_RDWR | O_CREAT, 0600);
	CHECK_EQ(own(fd, SIGUSR1), 0);
	REQUIRE(write(fd, "x", 1) == 1);
	CHECK_TEXT(signals(), "");
	CHECK_ERRNO(ioctl(fd, FIOASYNC, &on), ENOTTY);
	CHECK_EQ(ioctl(fd, FIOASYNC, &off), 0);
	CHECK_ERRNO(ioctl(fd, FIOASYNC, BAD), EFAULT);
	close(fd);
	fd = open("/dev/null", O_RDWR);
	CHECK_ERRNO(ioctl(fd, FIOASYNC, &on), ENOTTY);
	close(fd);
	/* The flag of open(2) does nothing, and stays for ever. */
	REQUIRE(mkfifo("fifo", 0600) == 0);
	fd = open("fifo", O_RDWR | O_NONBLOCK | O_ASYNC);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ASYNC, O_ASYNC);
	CHECK_EQ(own(fd, SIGUSR1), 0);
	REQUIRE(write(fd, "x", 1) == 1);
	CHECK_TEXT(signals(), "");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ASYNC, O_ASYNC);
	fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC);
	REQUIRE(write(fd, "x", 1) == 1);
	CHECK_TEXT(signals(), "");
	close(fd);
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	at(&fd, 20);
	CHECK_EQ(own(fd, SIGUSR1), 0);
	char byte;
	REQUIRE(write(fd, "x", 1) == 1);
	CHECK_TEXT(signals(), "USR1/1/20/41");
	REQUIRE(read(fd, &byte, 1) == 1);
	CHECK_TEXT(signals(), "USR1/2/20/304");
	close(fd);
	fd = inotify_init1(IN_NONBLOCK);
	at(&fd, 20);
	inotify_add_watch(fd, ".", IN_CREATE);
	own(fd, SIGUSR1);
	REQUIRE(mknod("made", S_IFREG | 0600, 0) == 0);
	CHECK_TEXT(signals(), "USR1/1/20/41");
	close(fd);
}

static void of_sockets(void)
{
	int s[2];
	char room[100];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	at(&s[0], 20), at(&s[1], 21);
	CHECK_EQ(own(s[0], SIGRTMIN + 1), 0);
	CHECK_EQ(fcntl(s[0], F_GETFL), O_RDWR | O_ASYNC);
	CHECK_TEXT(signals(), "");
	REQUIRE(write(s[1], "abc", 3) == 3);
	CHECK_TEXT(signals(), "RT/1/20/41");
	REQUIRE(write(s[1], "abc", 3) == 3);
	CHECK_TEXT(signals(), "RT/1/20/41");
	REQUIRE(read(s[0], room, 100) == 6);
	CHECK_TEXT(signals(), "");
	shutdown(s[1], SHUT_WR);
	CHECK_TEXT(signals(), "RT/1/20/41");
	close(s[1]);
	CHECK_TEXT(signals(), "RT/6/20/18");
	close(s[0]);
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
	at(&s[0], 20), at(&s[1], 21);
	own(s[0], SIGRTMIN + 1);
	REQUIRE(write(s[1], "abc", 3) == 3);
	CHECK_TEXT(signals(), "RT/1/20/41");
	close(s[0]), close(s[1]);
	/* UDP over the loopback. */
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof addr;
	s[0] = socket(AF_INET, SOCK_DGRAM, 0), s[1] = socket(AF_INET, SOCK_DGRAM, 0);
	at(&s[0], 20), at(&s[1], 21);
	REQUIRE(bind(s[0], (void *)&addr, len) == 0 && getsockname(s[0], (void *)&addr, &len) == 0);
	own(s[0], SIGRTMIN + 1);
	REQUIRE(sendto(s[1], "abc", 3, 0, (void *)&addr, len) == 3);
	CHECK_TEXT(signals_after(500), "RT/1/20/41");
	REQUIRE(sendto(s[1], "abc", 3, 0, (void *)&addr, len) == 3);
	CHECK_TEXT(signals_after(500), "RT/1/20/41");
	close(s[0]), close(s[1]);
	/* TCP: a connection to accept, data, the end. */
	addr.sin_port = 0;
	s[0] = socket(AF_INET, SOCK_STREAM, 0), s[1] = socket(AF_INET, SOCK_STREAM, 0);
	at(&s[0], 20), at(&s[1], 21);
	REQUIRE(bind(s[0], (void *)&addr, len) == 0 && getsockname(s[0], (void *)&addr, &len) == 0);
	REQUIRE(listen(s[0], 1) == 0);
	own(s[0], SIGRTMIN + 1);
	REQUIRE(connect(s[1], (void *)&addr, len) == 0);
	CHECK_TEXT(signals_after(500), "RT/1/20/41");
	int c = accept(s[0], NULL, NULL);
	REQUIRE(c >= 0);
	at(&c, 22);
	own(c, SIGUSR1);
	REQUIRE(write(s[1], "abc", 3) == 3);
	CHECK_TEXT(signals_after(500), "USR1/1/22/41");
	REQUIRE(read(c, room, 100) == 3);
	CHECK_TEXT(signals(), "");
	close(s[1]);
	CHECK_TEXT(signals_after(500), "USR1/1/22/41");
	close(c), close(s[0]);
}

static int fds[2];
static pthread_barrier_t barrier;

static void *thread(void *arg)
{
	(void)arg;
	set_owner_ex(fds[0], F_OWNER_TID, gettid());
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return strdup(signals());
}

/* Who gets them: a thread, a process, a group. */
static void whom(void)
{
	pthread_t t;
	void *seen;
	REQUIRE(pipe2(fds, O_NONBLOCK) == 0);
	at(&fds[0], 20), at(&fds[1], 21);
	pthread_barrier_init(&barrier, NULL, 2);
	own(fds[0], SIGUSR1);
	pthread_create(&t, NULL, thread, NULL);
	pthread_barrier_wait(&barrier);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK_TEXT(signals(), "");
	pthread_barrier_wait(&barrier);
	pthread_join(t, &seen);
	CHECK_TEXT(seen, "USR1/1/20/41");
	free(seen);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK_TEXT(signals(), "");
	/* A group of two processes. */
	int ready[2];
	REQUIRE(pipe(ready) == 0);
	pid_t leader = fork();
	if (leader == 0) {
		setpgid(0, 0);
		fcntl(fds[0], F_SETOWN, -getpgrp());
		pid_t other = fork();
		REQUIRE(write(fds[1], "x", 1) == 1);
		char byte;
		if (other == 0) {
			REQUIRE(write(ready[1], "x", 1) == 1);
			_exit(strncmp(signals_after(900), "USR1/1/20/41", 12) != 0);
		}
		REQUIRE(read(ready[0], &byte, 1) == 1);
		int status = -1;
		REQUIRE(waitpid(other, &status, 0) == other);
		_exit(status != 0 || strcmp(signals(), "USR1/1/20/41"));
	}
	int status = -1;
	REQUIRE(waitpid(leader, &status, 0) == leader);
	CHECK_EQ(status, 0);
	CHECK_TEXT(signals(), "");
	close(fds[0]), close(fds[1]), close(ready[0]), close(ready[1]);
}

static volatile int handled, handled_fd;

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)context;
	handled = sig, handled_fd = info->si_fd;
}

/* A handler, while the writer is another process and the owner computes or sleeps. */
static void handlers(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	sigset_t set, old;
	int p[2];
	sigemptyset(&set), sigaddset(&set, SIGUSR1);
	sigaction(SIGUSR1, &action, NULL);
	REQUIRE(pipe(p) == 0);
	at(&p[0], 20), at(&p[1], 21);
	own(p[0], SIGUSR1);
	pid_t child = fork();
	if (child == 0) {
		REQUIRE(write(p[1], "x", 1) == 1);
		_exit(0);
	}
	sigprocmask(0, NULL, &old);
	sigdelset(&old, SIGUSR1);
	sigsuspend(&old);
	CHECK_EQ(handled, SIGUSR1);
	CHECK_EQ(handled_fd, 20);
	waitpid(child, NULL, 0);
	close(p[0]), close(p[1]);
	signal(SIGUSR1, SIG_DFL);
}

static void directories(void)
{
	REQUIRE(mkdir("d", 0700) == 0 && mkdir("e", 0700) == 0);
	int fd = open("d", O_RDONLY), file;
	at(&fd, 20);
	CHECK_EQ(fcntl(fd, F_SETSIG, SIGRTMIN + 1), 0);
	CHECK_EQ(fcntl(fd, F_NOTIFY, DN_CREATE), 0);
	CHECK_EQ(fcntl(fd, F_GETOWN) == getpid(), 1);
	REQUIRE((file = open("d/a", O_RDWR | O_CREAT, 0600)) >= 0);
	CHECK_TEXT(signals(), "RT/3/20/441");
	/* Once only. */
	close(open("d/b", O_RDWR | O_CREAT, 0600));
	CHECK_TEXT(signals(), "");
	fcntl(fd, F_NOTIFY, DN_MODIFY | DN_ACCESS | DN_MULTISHOT);
	REQUIRE(write(file, "text", 4) == 4);
	CHECK_TEXT(signals(), "RT/3/20/441");
	char room[8];
	REQUIRE(pread(file, room, 4, 0) == 4);
	CHECK_TEXT(signals(), "RT/3/20/441");
	REQUIRE(ftruncate(file, 1) == 0);
	CHECK_TEXT(signals(), "RT/3/20/441");
	REQUIRE(fchmod(file, 0640) == 0);
	CHECK_TEXT(signals(), "");
	/* Masks add up. */
	fcntl(fd, F_NOTIFY, DN_ATTRIB);
	REQUIRE(fchmod(file, 0600) == 0);
	CHECK_TEXT(signals(), "RT/3/20/441");
	REQUIRE(pread(file, room, 1, 0) == 1);
	CHECK_TEXT(signals(), "RT/3/20/441");
	CHECK_EQ(fcntl(fd, F_NOTIFY, 0), 0);
	REQUIRE(write(file, "text", 4) == 4);
	CHECK_TEXT(signals(), "");
	fcntl(fd, F_NOTIFY, DN_RENAME | DN_MULTISHOT);
	REQUIRE(rename("d/a", "d/c") == 0);
	CHECK_TEXT(signals(), "RT/3/20/441");
	REQUIRE(rename("d/c", "e/c") == 0);
	REQUIRE(rename("e/c", "d/c") == 0);
	CHECK_TEXT(signals(), "");
	fcntl(fd, F_NOTIFY, 0);
	fcntl(fd, F_NOTIFY, DN_DELETE | DN_MULTISHOT);
	REQUIRE(rename("d/c", "e/c") == 0);
	CHECK_TEXT(signals(), "RT/3/20/441");
	REQUIRE(rename("e/c", "d/c") == 0);
	CHECK_TEXT(signals(), "");
	REQUIRE(unlink("d/c") == 0);
	CHECK_TEXT(signals(), "RT/3/20/441");
	fcntl(fd, F_NOTIFY, 0);
	fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT);
	REQUIRE(rename("d/b", "e/b") == 0);
	CHECK_TEXT(signals(), "");
	REQUIRE(rename("e/b", "d/b") == 0);
	REQUIRE(mkdir("d/sub", 0700) == 0);
	CHECK_TEXT(signals(), "RT/3/20/441 RT/3/20/441");
	/* The plain signal; closing any descriptor of the directory ends it. */
	fcntl(fd, F_SETSIG, 0);
	REQUIRE(mkdir("d/sub2", 0700) == 0);
	CHECK_TEXT(signals(), "IO/kernel/0/0");
	close(dup(fd));
	REQUIRE(mkdir("d/sub3", 0700) == 0);
	CHECK_TEXT(signals(), "");
	CHECK_ERRNO(fcntl(file, F_NOTIFY, DN_CREATE), ENOTDIR);
	CHECK_EQ(fcntl(file, F_NOTIFY, 0), 0);
	close(file), close(fd);
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	tap_directory();
	owners();
	of_pipes();
	of_others();
	of_sockets();
	whom();
	handlers();
	directories();
	return tap_done();
}
