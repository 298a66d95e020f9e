/* chroot(2), and what paths mean then. */
#include "tap.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char top[4096];

static int in_child(int (*act)(void))
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(act());
	REQUIRE(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The number of the first thing that is not so. */
#define SAY(n, held) do { if (!(held)) return n; } while (0)

static const char *linked(const char *path)
{
	static char text[4096];
	ssize_t n = readlink(path, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	return text;
}

/* From inside of the jail. */
static int inside(void)
{
	char path[4096];
	struct stat a, b;
	SAY(1, chdir("jail") == 0 && chroot(".") == 0);
	SAY(2, getcwd(path, sizeof path) && strcmp(path, "/") == 0);
	SAY(3, access("/in", F_OK) == 0 && fails(access("/etc", F_OK), ENOENT));
	SAY(4, access("../in", F_OK) == 0 && access("/../../in", F_OK) == 0);
	SAY(5, stat("/", &a) == 0 && stat("..", &b) == 0 && a.st_ino == b.st_ino);
	/* Links begin at the new root. */
	SAY(6, access("/abs", F_OK) == 0 && fails(access("/out", F_OK), ENOENT));
	SAY(7, access("/d/up", F_OK) == 0 && access("/far", F_OK) == 0);
	SAY(8, chdir("/d") == 0 && getcwd(path, sizeof path) && strcmp(path, "/d") == 0);
	SAY(9, mkdir("/d/new", 0700) == 0 && rmdir("new") == 0);
	SAY(10, fails(execl("/bin/true", "true", NULL), ENOENT));
	SAY(11, fails(open("/proc/self/exe", O_RDONLY), ENOENT));
	SAY(12, rename("/in", "/d/in") == 0 && rename("in", "/in") == 0);
	/* A deeper one. */
	SAY(13, chroot("/d") == 0 && access("/up", F_OK) == -1);
	SAY(14, getcwd(path, sizeof path) && strcmp(path, "/") == 0);
	return 0;
}

/* The working directory stays outside. */
static int outside(void)
{
	char path[4096], want[4096 + 16];
	int dir = open(".", O_RDONLY | O_DIRECTORY), out = open("/", O_PATH);
	SAY(1, chroot("jail") == 0);
	snprintf(want, sizeof want, "(unreachable)%s", top);
	SAY(2, syscall(SYS_getcwd, path, sizeof path) == (long)strlen(want) + 1 && strcmp(path, want) == 0);
	/* glibc does not return that. */
	SAY(3, getcwd(path, sizeof path) == NULL && errno == ENOENT);
	SAY(4, access("jail/in", F_OK) == 0 && access("/in", F_OK) == 0);
	SAY(5, access("../..", F_OK) == 0);
	SAY(6, faccessat(out, "etc", F_OK, 0) == 0 && faccessat(out, "proc/self/status", F_OK, 0) == 0);
	SAY(7, faccessat(dir, "jail/abs", F_OK, 0) == 0);
	SAY(8, chdir("jail/d") == 0 && getcwd(path, sizeof path) && strcmp(path, "/d") == 0);
	/* The way out that everybody knows. */
	SAY(9, fchdir(dir) == 0 && chdir("../../../../../../../../../../..") == 0 && chroot(".") == 0);
	SAY(10, access("/proc/self/status", F_OK) == 0);
	SAY(11, fchdir(dir) == 0 && getcwd(path, sizeof path) && strcmp(path, top) == 0);
	return 0;
}

/* What /proc says of one who is inside. */
static int seen(void)
{
	char path[64], want[4096 + 16];
	int ready[2], go[2], status;
	char c;
	SAY(1, pipe(ready) == 0 && pipe(go) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		if (chroot("jail") != 0 || chdir("/d") != 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		_exit(read(go[0], &c, 1) != 0);
	}
	SAY(2, read(ready[0], &c, 1) == 1);
	snprintf(path, sizeof path, "/proc/%d/root", child), snprintf(want, sizeof want, "%s/jail", top);
	SAY(3, strcmp(linked(path), want) == 0);
	snprintf(path, sizeof path, "/proc/%d/cwd", child), snprintf(want, sizeof want, "%s/jail/d", top);
	SAY(4, strcmp(linked(path), want) == 0);
	snprintf(path, sizeof path, "/proc/%d/root/in", child);
	SAY(5, access(path, F_OK) == 0);
	snprintf(path, sizeof path, "/proc/%d/root/abs", child);
	SAY(6, fails(access(path, F_OK), ENOENT));
	close(go[1]);
	SAY(7, waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

static int thread_of(void *arg)
{
	(void)arg;
	return chroot("jail") != 0;
}

static int shared(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int status;
	pid_t child = clone(thread_of, stack + sizeof stack, CLONE_FS | SIGCHLD, NULL);
	SAY(1, waitpid(child, &status, 0) == child && status == 0);
	SAY(2, access("/in", F_OK) == 0 && fails(access("/etc", F_OK), ENOENT));
	return 0;
}

static int unprivileged(void)
{
	SAY(1, setuid(65534) == 0);
	SAY(2, fails(chroot("/"), EPERM));
	SAY(3, fails(chroot("/none"), ENOENT));
	return 0;
}

int main(void)
{
	tap_directory();
	REQUIRE(getcwd(top, sizeof top) && chmod(".", 0755) == 0);
	REQUIRE(mkdir("jail", 0755) == 0 && mkdir("jail/d", 0755) == 0);
	close(open("jail/in", O_CREAT | O_RDWR, 0644));
	REQUIRE(symlink("/in", "jail/abs") == 0 && symlink("/etc", "jail/out") == 0);
	REQUIRE(symlink("../in", "jail/d/up") == 0 && symlink("../../../in", "jail/far") == 0);
	CHECK_ERRNO(chroot("none"), ENOENT);
	CHECK_ERRNO(chroot("jail/in"), ENOTDIR);
	CHECK_ERRNO(chroot(BAD), EFAULT);
	CHECK_EQ(in_child(inside), 0);
	CHECK_EQ(in_child(outside), 0);
	CHECK_EQ(in_child(seen), 0);
	CHECK_EQ(in_child(shared), 0);
	CHECK_EQ(in_child(unprivileged), 0);
	CHECK_EQ(access("/etc", F_OK), 0);
	return tap_done();
}
