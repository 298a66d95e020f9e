/*
 * fork, vfork, clone, execve, wait and the ends of processes: fork(2), execve(2), wait(2), exit(3), prctl(2).
 * Run with arguments it is the program which the exec checks start.
 */
#include "tap.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static char self[4096];

/* What a freshly executed copy of this program reports by its exit status. */
static int as_child(int argc, char **argv)
{
	if (!strcmp(argv[1], "exit"))
		return atoi(argv[2]);
	if (!strcmp(argv[1], "args"))
		return argc == 4 && !strcmp(argv[0], "zero") && !strcmp(argv[2], "") && !strcmp(argv[3], "a b") &&
				       getenv("ONLY") && !strcmp(getenv("ONLY"), "one") && !environ[1]
			       ? 0
			       : 1;
	if (!strcmp(argv[1], "fds")) {
		int open_fd = atoi(argv[2]), closed_fd = atoi(argv[3]);
		return fcntl(open_fd, F_GETFD) == 0 && fcntl(closed_fd, F_GETFD) == -1 && errno == EBADF ? 0 : 1;
	}
	if (!strcmp(argv[1], "signals")) {
		struct sigaction usr1, usr2;
		sigset_t mask;
		sigaction(SIGUSR1, NULL, &usr1);
		sigaction(SIGUSR2, NULL, &usr2);
		sigprocmask(SIG_SETMASK, NULL, &mask);
		/* Handlers fall back to the default, ignored signals stay ignored, the mask is kept. */
		return usr1.sa_handler == SIG_DFL && usr2.sa_handler == SIG_IGN && sigismember(&mask, SIGHUP) == 1 &&
				       sigismember(&mask, SIGTERM) == 0
			       ? 0
			       : 1;
	}
	if (!strcmp(argv[1], "cwd")) {
		char buffer[4096];
		return getcwd(buffer, sizeof buffer) && !strcmp(buffer, "/") && umask(0) == 027 ? 0 : 1;
	}
	return 97;
}

static int status_of(pid_t pid)
{
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status;
}

#define IN_CHILD(...) \
	({ pid_t pid_ = fork(); REQUIRE(pid_ >= 0); if (pid_ == 0) { __VA_ARGS__; _exit(0); } pid_; })

static void exits(void)
{
	static const int codes[] = { 0, 1, 42, 255, 256, -1 };
	for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
		int status = status_of(IN_CHILD(_exit(codes[i])));
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), codes[i] & 255);
	}
	static const int signals[] = { SIGKILL, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE };
	for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
		int status = status_of(IN_CHILD(raise(signals[i]); pause()));
		CHECK(WIFSIGNALED(status) && !WIFEXITED(status));
		CHECK_EQ(WTERMSIG(status), signals[i]);
	}
	int status = status_of(IN_CHILD({
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		*(volatile int *)BAD = 1;
	}));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	status = status_of(IN_CHILD({
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		abort();
	}));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	/* A signal whose default is to be ignored ends nobody. */
	status = status_of(IN_CHILD(raise(SIGCHLD); raise(SIGURG); raise(SIGWINCH); _exit(3)));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static int atexit_fd;
static void say_bye(void)
{
	REQUIRE(write(atexit_fd, "b", 1) == 1);
}

static void fork_copies(void)
{
	int fds[2], before = 7;
	volatile int *heap = malloc(sizeof *heap);
	*heap = 1;
	REQUIRE(pipe(fds) == 0);
	pid_t parent = getpid();
	pid_t pid = IN_CHILD({
		int all = getppid() == parent && getpid() != parent && syscall(SYS_gettid) == getpid() && before == 7 &&
			  *heap == 1;
		*heap = 2;
		before = 8;
		REQUIRE(write(fds[1], all ? "y" : "n", 1) == 1);
	});
	CHECK(pid > 0 && pid != parent);
	char c = 0;
	CHECK(read(fds[0], &c, 1) == 1 && c == 'y');
	CHECK(WIFEXITED(status_of(pid)));
	CHECK(*heap == 1 && before == 7);
	free((void *)heap);

	/* The file offset belongs to the open file, which both share. */
	char *directory = tap_directory();
	int fd = open("offset", O_RDWR | O_CREAT, 0600);
	REQUIRE(fd >= 0 && write(fd, "abcdef", 6) == 6 && lseek(fd, 0, SEEK_SET) == 0);
	status_of(IN_CHILD({
		char buffer[2];
		REQUIRE(read(fd, buffer, 2) == 2);
		close(fd);
	}));
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 2);
	close(fd);
	unlink("offset");
	REQUIRE(chdir("/") == 0 && rmdir(directory) == 0);

	/* exit runs the handlers and flushes, _exit does not. */
	atexit_fd = fds[1];
	status_of(IN_CHILD(atexit(say_bye); exit(0)));
	status_of(IN_CHILD(atexit(say_bye); _exit(0)));
	close(fds[1]);
	CHECK(read(fds[0], &c, 1) == 1 && c == 'b');
	CHECK_EQ(read(fds[0], &c, 1), 0);
	close(fds[0]);
}

static void waits(void)
{
	int status = 1, fds[2];
	CHECK_ERRNO(waitpid(-1, NULL, 0), ECHILD);
	CHECK_ERRNO(waitpid(getpid(), NULL, 0), ECHILD);
	/* CLONE_SETTLS with a base that no processor takes. */
	CHECK_ERRNO(syscall(SYS_clone, 0x80000 | SIGCHLD, NULL, NULL, NULL, 0x61b95b547c320f90), EPERM);
	CHECK_ERRNO(waitpid(-1, NULL, 0x10000), EINVAL);
	REQUIRE(pipe(fds) == 0);
	pid_t pid = IN_CHILD({
		char c;
		close(fds[1]);
		REQUIRE(read(fds[0], &c, 1) == 0);
		_exit(5);
	});
	CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
	CHECK_ERRNO(waitpid(pid + 100000, &status, WNOHANG), ECHILD);
	CHECK_EQ(kill(pid, 0), 0);
	close(fds[1]);
	close(fds[0]);
	siginfo_t info;
	memset(&info, 0, sizeof info);
	/* WNOWAIT leaves the child waitable; a zombie can still be named by kill. */
	CHECK_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
	CHECK(info.si_pid == pid && info.si_signo == SIGCHLD && info.si_code == CLD_EXITED && info.si_status == 5);
	CHECK_EQ(kill(pid, 0), 0);
	CHECK(waitpid(pid, &status, WNOHANG) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
	CHECK_ERRNO(waitpid(pid, &status, 0), ECHILD);
	CHECK_ERRNO(kill(pid, 0), ESRCH);

	/* Three children, collected in any order. */
	int sum = 0;
	for (int i = 1; i <= 3; i++)
		IN_CHILD(_exit(i));
	for (int i = 0; i < 3; i++) {
		REQUIRE(wait(&status) > 0);
		sum += WEXITSTATUS(status);
	}
	CHECK_EQ(sum, 6);
	CHECK_ERRNO(wait(&status), ECHILD);

	/* Stopped and continued. */
	pid = IN_CHILD(for (;;) pause());
	kill(pid, SIGSTOP);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	kill(pid, SIGCONT);
	CHECK(waitpid(pid, &status, WCONTINUED) == pid);
	CHECK(WIFCONTINUED(status));
	kill(pid, SIGKILL);
	CHECK(waitid(P_PID, pid, &info, WEXITED) == 0);
	CHECK(info.si_code == CLD_KILLED && info.si_status == SIGKILL);

	/* By process group. */
	pid = IN_CHILD(setpgid(0, 0); _exit(4));
	setpgid(pid, pid);
	CHECK(waitpid(-pid, &status, 0) == pid);
	CHECK_ERRNO(waitpid(0, NULL, WNOHANG), ECHILD);

	struct rusage usage;
	pid = IN_CHILD(_exit(0));
	CHECK(wait4(pid, &status, 0, &usage) == pid);
}

static void ignored_children(void)
{
	/* With SIGCHLD ignored children leave no zombies: wait blocks till all are gone, then fails. */
	signal(SIGCHLD, SIG_IGN);
	IN_CHILD(_exit(0));
	CHECK_ERRNO(wait(NULL), ECHILD);
	signal(SIGCHLD, SIG_DFL);
	struct sigaction no_wait = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT };
	sigaction(SIGCHLD, &no_wait, NULL);
	IN_CHILD(_exit(0));
	CHECK_ERRNO(wait(NULL), ECHILD);
	signal(SIGCHLD, SIG_DFL);
}

static void orphans(void)
{
	int fds[2];
	pid_t reaper = -1;
	REQUIRE(pipe(fds) == 0);
	/* With a subreaper set, orphans become its children, and it can wait for them. */
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	pid_t middle = IN_CHILD({
		pid_t self_pid = getpid();
		IN_CHILD({
			while (getppid() == self_pid)
				sched_yield();
			pid_t now = getppid();
			REQUIRE(write(fds[1], &now, sizeof now) == sizeof now);
			_exit(9);
		});
	});
	status_of(middle);
	CHECK_EQ(read(fds[0], &reaper, sizeof reaper), (long)sizeof reaper);
	CHECK(reaper == getpid());
	int status;
	CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 9);
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
	close(fds[0]);
	close(fds[1]);
}

static int run(char *path, char **argv, char **environment)
{
	return status_of(IN_CHILD(execve(path, argv, environment); _exit(errno)));
}

static void execs(void)
{
	char *none[] = { NULL };
	char *one[] = { "ONLY=one", NULL };
	CHECK_EQ(WEXITSTATUS(run(self, (char *[]){ "x", "exit", "17", NULL }, none)), 17);
	CHECK_EQ(run(self, (char *[]){ "zero", "args", "", "a b", NULL }, one), 0);
	CHECK_EQ(WEXITSTATUS(run("/nonexistent", none, none)), ENOENT);
	CHECK_EQ(WEXITSTATUS(run("/", none, none)), EACCES);
	CHECK_EQ(WEXITSTATUS(run("/dev/null", none, none)), EACCES);

	char *directory = tap_directory();
	int fd = open("text", O_WRONLY | O_CREAT, 0755);
	REQUIRE(fd >= 0 && write(fd, "neither\n", 8) == 8);
	close(fd);
	CHECK_EQ(WEXITSTATUS(run("text", none, none)), ENOEXEC);
	chmod("text", 0644);
	CHECK_EQ(WEXITSTATUS(run("text", none, none)), EACCES);
	CHECK_EQ(WEXITSTATUS(run("text/x", none, none)), ENOTDIR);
	unlink("text");
	/* An interpreter gets its one optional argument, the script's name, and the arguments without the first. */
	fd = open("script", O_WRONLY | O_CREAT, 0755);
	REQUIRE(fd >= 0 && dprintf(fd, "#! %s exit\n", self) > 0);
	close(fd);
	CHECK_EQ(WEXITSTATUS(run("./script", (char *[]){ "x", "9", NULL }, none)), atoi("./script"));
	fd = open("script", O_WRONLY | O_TRUNC);
	REQUIRE(fd >= 0 && dprintf(fd, "#!/nonexistent\n") > 0);
	close(fd);
	CHECK_EQ(WEXITSTATUS(run("./script", none, none)), ENOENT);
	unlink("script");
	REQUIRE(chdir("/") == 0 && rmdir(directory) == 0);

	int keep = open("/dev/null", O_RDONLY), lose = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char keep_text[16], lose_text[16];
	snprintf(keep_text, sizeof keep_text, "%d", keep);
	snprintf(lose_text, sizeof lose_text, "%d", lose);
	CHECK_EQ(run(self, (char *[]){ "x", "fds", keep_text, lose_text, NULL }, none), 0);
	close(keep);
	close(lose);

	int status = status_of(IN_CHILD({
		sigset_t mask;
		sigemptyset(&mask);
		sigaddset(&mask, SIGHUP);
		sigprocmask(SIG_SETMASK, &mask, NULL);
		signal(SIGUSR1, (void (*)(int))say_bye);
		signal(SIGUSR2, SIG_IGN);
		execve(self, (char *[]){ "x", "signals", NULL }, none);
	}));
	CHECK_EQ(status, 0);
	status = status_of(IN_CHILD(umask(027); execve(self, (char *[]){ "x", "cwd", NULL }, none)));
	CHECK_EQ(status, 0);
	fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	status = status_of(IN_CHILD(syscall(SYS_execveat, fd, "", (char *[]){ "x", "exit", "6", NULL }, none, AT_EMPTY_PATH)));
	CHECK_EQ(WEXITSTATUS(status), 6);
	close(fd);
	/* The pid does not change. */
	pid_t pid = IN_CHILD(execve(self, (char *[]){ "x", "exit", "3", NULL }, none));
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
}

static void vforks(void)
{
	volatile int shared = 1;
	pid_t pid = vfork();
	if (pid == 0) {
		shared = 2;
		_exit(11);
	}
	/* The parent goes on only now, and sees what the child wrote. */
	CHECK(pid > 0 && shared == 2);
	CHECK_EQ(WEXITSTATUS(status_of(pid)), 11);
	pid = vfork();
	if (pid == 0) {
		execl(self, "x", "exit", "12", NULL);
		_exit(1);
	}
	CHECK_EQ(WEXITSTATUS(status_of(pid)), 12);
	CHECK_EQ(WEXITSTATUS(system("exit 13")), 13);
	FILE *p = popen("echo hello; exit 2", "r");
	char line[16] = "";
	CHECK(p && fgets(line, sizeof line, p) && !strcmp(line, "hello\n"));
	CHECK_EQ(WEXITSTATUS(pclose(p)), 2);
}

static void parent_death(void)
{
	int fds[2], go[2];
	REQUIRE(pipe(fds) == 0 && pipe(go) == 0);
	pid_t middle = IN_CHILD({
		IN_CHILD({
			close(fds[0]);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			REQUIRE(write(go[1], "x", 1) == 1);
			for (;;)
				pause();
		});
		char c;
		REQUIRE(read(go[0], &c, 1) == 1);
	});
	close(fds[1]);
	status_of(middle);
	char c;
	/* End of file: the grandchild held the last writing end and was killed with its parent. */
	CHECK_EQ(read(fds[0], &c, 1), 0);
	close(fds[0]);
	close(go[0]);
	close(go[1]);
}

static void sessions(void)
{
	int status = status_of(IN_CHILD({
		REQUIRE(getpgrp() == getpgid(0) && getsid(0) == getsid(getppid()));
		REQUIRE(setsid() == getpid());
		REQUIRE(getsid(0) == getpid() && getpgrp() == getpid());
		REQUIRE(setsid() == -1 && errno == EPERM);
		REQUIRE(setpgid(0, 0) == -1 && errno == EPERM);
		REQUIRE(getpgid(-1) == -1 && errno == ESRCH);
		REQUIRE(setpgid(0, -1) == -1 && errno == EINVAL);
	}));
	CHECK_EQ(status, 0);
	/* The group of a program may be sent signals, also where the program is the first process. */
	CHECK_EQ(killpg(getpgrp(), 0), 0);
	CHECK(killpg(getpgrp(), 65) == -1 && errno == EINVAL);
	/* A signal for a group reaches all its members. */
	pid_t first = IN_CHILD(setpgid(0, 0); for (;;) pause());
	setpgid(first, first);
	pid_t second = IN_CHILD(for (;;) pause());
	CHECK_EQ(setpgid(second, first), 0);
	CHECK_EQ(kill(-first, SIGTERM), 0);
	CHECK_EQ(WTERMSIG(status_of(first)), SIGTERM);
	CHECK_EQ(WTERMSIG(status_of(second)), SIGTERM);
	CHECK_ERRNO(kill(-first, 0), ESRCH);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return as_child(argc, argv);
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	REQUIRE(n > 0);
	exits();
	fork_copies();
	waits();
	ignored_children();
	orphans();
	execs();
	vforks();
	parent_death();
	sessions();
	return tap_done();
}
