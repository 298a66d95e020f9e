/* What processes and threads share by clone(2): descriptors, places in the file system, signal actions; unshare(2). */
#include "tap.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char stack[65536] __attribute__((aligned(16)));

/* A child that runs `act`, and what it ended with. */
static int child(int flags, int (*act)(void *), void *arg)
{
	int status = -1;
	pid_t pid = clone(act, stack + sizeof stack, flags | SIGCHLD, arg);
	REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static int nothing(void *arg)
{
	return arg != NULL;
}

static int opens(void *arg)
{
	int *fds = arg;
	fds[0] = open("f", O_RDWR);
	close(fds[1]);
	fcntl(fds[2], F_SETFD, FD_CLOEXEC);
	return dup2(fds[2], 100) != 100;
}

static int makes_table(void *arg)
{
	int *fds = arg;
	if (unshare(CLONE_FILES) != 0)
		return 1;
	close(fds[2]);
	return open("f", O_RDWR) < 0;
}

static int executes(void *arg)
{
	int *fds = arg;
	fcntl(fds[2], F_SETFD, FD_CLOEXEC);
	execlp("true", "true", NULL);
	return 1;
}

static int closes_alone(void *arg)
{
	(void)arg;
	return syscall(SYS_close_range, 3, ~0u, 2) != 0 || is_open(100);
}

static void descriptors(void)
{
	int *fds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fds[1] = open("f", O_RDWR), fds[2] = open("f", O_RDWR);
	CHECK_EQ(child(CLONE_FILES, opens, fds), 0);
	CHECK(is_open(fds[0]) && is_open(100));
	CHECK(!is_open(fds[1]) || fds[0] == fds[1]);
	CHECK_EQ(fcntl(fds[2], F_GETFD), FD_CLOEXEC);
	close(fds[0]), close(100);
	/* Not so without. */
	fds[1] = open("f", O_RDWR);
	CHECK_EQ(child(0, opens, fds), 0);
	CHECK(is_open(fds[1]) && !is_open(100));
	/* The end of one leaves the table to the other. */
	CHECK_EQ(child(CLONE_FILES, makes_table, fds), 0);
	CHECK(is_open(fds[2]));
	int lowest = open("f", O_RDWR);
	close(lowest);
	CHECK_EQ(child(CLONE_FILES | CLONE_VM, makes_table, fds), 0);
	CHECK_EQ(open("f", O_RDWR), lowest);
	/* A program that is executed has a table of its own. */
	CHECK_EQ(child(CLONE_FILES, executes, fds), 0);
	CHECK(is_open(fds[2]));
	/* close_range with a table of its own. */
	REQUIRE(dup2(fds[2], 100) == 100);
	CHECK_EQ(child(CLONE_FILES, closes_alone, fds), 0);
	CHECK(is_open(100) && is_open(fds[2]));
	CHECK_EQ(child(0, closes_alone, fds), 0);
	CHECK(is_open(100));
	close(100), close(lowest), close(fds[1]), close(fds[2]);
	/* The last one closes: the other end of a pipe sees it. */
	int p[2];
	char c;
	REQUIRE(pipe(p) == 0);
	CHECK_EQ(child(CLONE_FILES, nothing, NULL), 0);
	close(p[1]);
	CHECK_EQ(read(p[0], &c, 1), 0);
	close(p[0]);
	munmap(fds, 4096);
}

static int moves(void *arg)
{
	(void)arg;
	umask(077);
	return chdir("d");
}

static int moves_alone(void *arg)
{
	(void)arg;
	if (unshare(CLONE_FS) != 0)
		return 1;
	umask(0);
	return chdir("/");
}

static const char *here(void)
{
	static char path[4096];
	return strrchr(getcwd(path, sizeof path), '/');
}

static void places(void)
{
	char top[4096];
	REQUIRE(getcwd(top, sizeof top));
	umask(022);
	CHECK_EQ(child(0, moves, NULL), 0);
	CHECK_EQ(strcmp(here(), strrchr(top, '/')), 0);
	CHECK_EQ(umask(022), 022);
	CHECK_EQ(child(CLONE_FS, moves, NULL), 0);
	CHECK_EQ(strcmp(here(), "/d"), 0);
	CHECK_EQ(umask(022), 077);
	CHECK_EQ(child(CLONE_FS, moves_alone, NULL), 0);
	CHECK_EQ(strcmp(here(), "/d"), 0);
	CHECK_EQ(umask(022), 022);
	CHECK_EQ(chdir(".."), 0);
}

static volatile int handled;

static void handler(int sig)
{
	handled = sig;
}

static int handles(void *arg)
{
	(void)arg;
	struct sigaction act = { .sa_handler = handler };
	sigaction(SIGUSR1, &act, NULL);
	act.sa_handler = SIG_IGN;
	sigaction(SIGUSR2, &act, NULL);
	return 0;
}

static int executes_true(void *arg)
{
	(void)arg;
	execlp("true", "true", NULL);
	return 1;
}

static int gets(void *arg)
{
	(void)arg;
	raise(SIGUSR1);
	return handled == SIGUSR1 ? 0 : 1;
}

static void actions(void)
{
	struct sigaction act, plain = { .sa_handler = SIG_DFL };
	CHECK_EQ(child(CLONE_VM, handles, NULL), 0);
	sigaction(SIGUSR1, NULL, &act);
	CHECK(act.sa_handler == SIG_DFL);
	CHECK_EQ(child(CLONE_VM | CLONE_SIGHAND, handles, NULL), 0);
	sigaction(SIGUSR1, NULL, &act);
	CHECK(act.sa_handler == handler);
	sigaction(SIGUSR2, NULL, &act);
	CHECK(act.sa_handler == SIG_IGN);
	/* A signal is for one of them. */
	handled = 0;
	CHECK_EQ(child(CLONE_VM | CLONE_SIGHAND, gets, NULL), 0);
	CHECK_EQ(handled, SIGUSR1);
	/* A new program's are its own. */
	CHECK_EQ(child(CLONE_VM | CLONE_SIGHAND, executes_true, NULL), 0);
	sigaction(SIGUSR1, NULL, &act);
	CHECK(act.sa_handler == handler);
	sigaction(SIGUSR1, &plain, NULL), sigaction(SIGUSR2, &plain, NULL);
	CHECK_ERRNO(clone(gets, stack + sizeof stack, CLONE_SIGHAND | SIGCHLD, NULL), EINVAL);
}

static void *thread(void *arg)
{
	int *results = arg;
	results[0] = unshare(CLONE_FILES | CLONE_FS);
	results[1] = open("f", O_RDWR);
	dup2(results[1], 90);
	results[2] = chdir("/");
	results[3] = unshare(CLONE_THREAD) == -1 && errno == EINVAL;
	results[4] = unshare(CLONE_VM) == -1 && errno == EINVAL;
	/* The thread's own descriptors. */
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%ld/fd/90", syscall(SYS_gettid));
	results[5] = access(path, F_OK);
	snprintf(path, sizeof path, "/proc/%d/fd/90", getpid());
	results[6] = access(path, F_OK) == -1 && errno == ENOENT;
	return NULL;
}

static void threads(void)
{
	pthread_t t;
	int results[7] = { 1, 1, 1, 1, 1, 1, 1 };
	char top[4096], now[4096];
	REQUIRE(getcwd(top, sizeof top));
	REQUIRE(pthread_create(&t, NULL, thread, results) == 0);
	pthread_join(t, NULL);
	CHECK_EQ(results[0], 0);
	CHECK(results[1] > 2);
	CHECK_EQ(results[2], 0);
	CHECK_EQ(results[3], 1);
	CHECK_EQ(results[4], 1);
	CHECK_EQ(results[5], 0);
	CHECK_EQ(results[6], 1);
	CHECK(!is_open(90));
	CHECK(getcwd(now, sizeof now) && strcmp(now, top) == 0);
	/* Of one thread. */
	CHECK_EQ(unshare(0), 0);
	CHECK_EQ(unshare(CLONE_FILES | CLONE_FS | CLONE_SYSVSEM), 0);
	/* The other one is joined a little earlier than it is gone. */
	for (int i = 0; i < 1000 && unshare(CLONE_THREAD) != 0; i++)
		usleep(1000);
	CHECK_EQ(unshare(CLONE_THREAD), 0);
	CHECK_EQ(unshare(CLONE_VM | CLONE_SIGHAND), 0);
	CHECK_ERRNO(unshare(CLONE_VFORK), EINVAL);
	CHECK_ERRNO(unshare(CLONE_PTRACE), EINVAL);
}

/* 0 for a lock that could be set, the process that has it else. */
static int held_by(int fd, int start)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = start, .l_len = 1 };
	REQUIRE(fcntl(fd, F_GETLK, &lock) == 0);
	return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

static int locks(int fd, int start)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = start, .l_len = 1 };
	return fcntl(fd, F_SETLK, &lock);
}

static int of_one_table(void *arg)
{
	int fd = *(int *)arg;
	return !(held_by(fd, 0) == 0 && locks(fd, 0) == 0 && locks(fd, 5) == 0);
}

static int of_other_table(void *arg)
{
	int fd = *(int *)arg;
	return !(held_by(fd, 0) == getppid() && locks(fd, 0) == -1 && errno == EAGAIN && held_by(fd, 5) != 0);
}

static int gives_back(void *arg)
{
	int fd = *(int *)arg;
	return close(dup(fd));
}

static int no_locks(void *arg)
{
	int fd = *(int *)arg;
	return !(held_by(fd, 0) == 0 && held_by(fd, 5) == 0);
}

static int leaves(void *arg)
{
	int fd = *(int *)arg;
	if (locks(fd, 3) || unshare(CLONE_FILES))
		return 1;
	return !(held_by(fd, 3) == getpid() && locks(fd, 3) == -1 && errno == EAGAIN);
}

static void *thread_leaves(void *arg)
{
	int fd = *(int *)arg;
	if (unshare(CLONE_FILES))
		return "unshare";
	return held_by(fd, 0) == getpid() && locks(fd, 0) == -1 && errno == EAGAIN && locks(fd, 9) == 0 ? NULL : "locks";
}

/* Record locks are those of a table of descriptors, whoever has that. */
static void record_locks(void)
{
	int fd = open("locked", O_RDWR | O_CREAT, 0600);
	pthread_t thread;
	void *wrong;
	REQUIRE(fd >= 0);
	CHECK_EQ(locks(fd, 0), 0);
	CHECK_EQ(child(CLONE_FILES, of_one_table, &fd), 0);
	/* What has ended leaves them to the others. */
	CHECK_EQ(child(0, of_other_table, &fd), 0);
	CHECK_EQ(child(CLONE_FILES, leaves, &fd), 0);
	CHECK_EQ(held_by(fd, 3), 0);
	/* A thread with descriptors of its own has locks of its own, until it ends. */
	REQUIRE(pthread_create(&thread, NULL, thread_leaves, &fd) == 0 && pthread_join(thread, &wrong) == 0);
	CHECK_EQ(wrong, NULL);
	/* It is joined a little earlier than that. */
	for (int i = 0; i < 1000 && held_by(fd, 9) != 0; i++)
		usleep(1000);
	CHECK_EQ(held_by(fd, 9), 0);
	CHECK_EQ(child(CLONE_FILES, gives_back, &fd), 0);
	CHECK_EQ(child(0, no_locks, &fd), 0);
	close(fd);
}

int main(void)
{
	tap_directory();
	REQUIRE(mkdir("d", 0700) == 0);
	close(open("f", O_RDWR | O_CREAT, 0600));
	descriptors();
	places();
	actions();
	threads();
	record_locks();
	return tap_done();
}
