/* openat2(2): the structure, and rules for the walk of the path. */
#include "tap.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct how { unsigned long long flags, mode, resolve, more; };
#define NO_XDEV 1
#define NO_MAGICLINKS 2
#define NO_SYMLINKS 4
#define BENEATH 8
#define IN_ROOT 16
#define CACHED 32

static long raw(int dir, const char *path, void *how, size_t size)
{
	return syscall(437, dir, path, how, size);
}

/* Opens and closes: 0, or -1 with errno. */
static int at(int dir, const char *path, unsigned long long flags, unsigned long long mode, unsigned long long resolve)
{
	struct how how = { flags, mode, resolve, 0 };
	long fd = raw(dir, path, &how, 24);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static void structure(void)
{
	struct how how = { 0, 0, 0, 0 };
	CHECK_ERRNO(raw(AT_FDCWD, "f", &how, 0), EINVAL);
	CHECK_ERRNO(raw(AT_FDCWD, "f", &how, 23), EINVAL);
	CHECK_ERRNO(raw(AT_FDCWD, "f", &how, 4097), E2BIG);
	CHECK_ERRNO(raw(AT_FDCWD, "f", BAD, 24), EFAULT);
	CHECK_ERRNO(raw(AT_FDCWD, BAD, &how, 24), EFAULT);
	long fd = raw(AT_FDCWD, "f", &how, 32);
	CHECK(fd >= 0);
	CHECK_EQ(fcntl(fd, F_GETFD), 0);
	close(fd);
	how.more = 1;
	CHECK_ERRNO(raw(AT_FDCWD, "f", &how, 32), E2BIG);
	CHECK(raw(AT_FDCWD, "f", &how, 24) >= 0);
	how.flags = O_CLOEXEC | O_RDWR | O_APPEND;
	fd = raw(AT_FDCWD, "f", &how, 24);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND), O_RDWR | O_APPEND);
	close(fd);
	/* Flags that open ignores. */
	CHECK_ERRNO(at(AT_FDCWD, "f", 1ull << 32, 0, 0), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", 1u << 30, 0, 0), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", 0, 0, 64), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", 0, 0, 1ull << 40), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", 0, 0, BENEATH | IN_ROOT), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", 0, 0600, 0), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "g", O_CREAT | O_RDWR, 010000, 0), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", O_PATH | O_RDWR, 0, 0), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, "f", O_PATH | O_TRUNC, 0, 0), EINVAL);
	CHECK_EQ(at(AT_FDCWD, "f", O_PATH | O_CLOEXEC | O_NOFOLLOW, 0, 0), 0);
	CHECK_ERRNO(at(AT_FDCWD, ".", O_TMPFILE, 0600, 0), EINVAL);
	CHECK_ERRNO(at(AT_FDCWD, ".", (O_TMPFILE & ~O_DIRECTORY) | O_RDWR, 0600, 0), EINVAL);
	CHECK_EQ(at(AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0600, 0), 0);
	struct stat st;
	CHECK_EQ(at(AT_FDCWD, "made", O_CREAT | O_EXCL | O_WRONLY, 0640, 0), 0);
	CHECK_EQ(stat("made", &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0640);
	CHECK_ERRNO(at(AT_FDCWD, "made", O_CREAT | O_EXCL | O_WRONLY, 0640, 0), EEXIST);
	CHECK_ERRNO(at(AT_FDCWD, "", 0, 0, 0), ENOENT);
	CHECK_ERRNO(at(99, "f", 0, 0, 0), EBADF);
	CHECK_EQ(at(99, "/", O_DIRECTORY, 0, 0), 0);
}

static void links(int top)
{
	CHECK_EQ(at(top, "link", 0, 0, 0), 0);
	CHECK_ERRNO(at(top, "link", 0, 0, NO_SYMLINKS), ELOOP);
	CHECK_ERRNO(at(top, "dirlink/x", 0, 0, NO_SYMLINKS), ELOOP);
	CHECK_ERRNO(at(top, "dirlink/", 0, 0, NO_SYMLINKS), ELOOP);
	CHECK_ERRNO(at(top, "link", O_NOFOLLOW, 0, NO_SYMLINKS), ELOOP);
	CHECK_EQ(at(top, "link", O_PATH | O_NOFOLLOW, 0, NO_SYMLINKS), 0);
	CHECK_ERRNO(at(top, "newlink", O_CREAT | O_RDWR, 0600, NO_SYMLINKS), ELOOP);
	CHECK_EQ(at(top, "d/x", 0, 0, NO_SYMLINKS), 0);
	CHECK_EQ(at(top, "link", 0, 0, NO_MAGICLINKS), 0);
	CHECK_EQ(at(AT_FDCWD, "/proc/self/status", 0, 0, NO_MAGICLINKS), 0);
	CHECK_ERRNO(at(AT_FDCWD, "/proc/self/status", 0, 0, NO_SYMLINKS), ELOOP);
	CHECK_ERRNO(at(AT_FDCWD, "/proc/self/exe", 0, 0, NO_MAGICLINKS), ELOOP);
	CHECK_ERRNO(at(AT_FDCWD, "/proc/self/cwd/f", 0, 0, NO_MAGICLINKS), ELOOP);
	CHECK_ERRNO(at(AT_FDCWD, "/proc/self/fd/0", 0, 0, NO_MAGICLINKS), ELOOP);
	CHECK_ERRNO(at(AT_FDCWD, "/proc/self/exe", 0, 0, NO_SYMLINKS), ELOOP);
	CHECK_EQ(at(AT_FDCWD, "/proc/self/exe", 0, 0, 0), 0);
}

static void beneath(int top)
{
	CHECK_EQ(at(top, "d/x", 0, 0, BENEATH), 0);
	CHECK_EQ(at(top, "d/../f", 0, 0, BENEATH), 0);
	CHECK_EQ(at(top, ".", O_DIRECTORY, 0, BENEATH), 0);
	CHECK_ERRNO(at(top, "..", O_DIRECTORY, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(top, "d/../..", O_DIRECTORY, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(top, "../top/f", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(top, "/", O_DIRECTORY, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(99, "/", O_DIRECTORY, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(99, "f", O_DIRECTORY, 0, BENEATH), EBADF);
	CHECK_EQ(at(top, "link", 0, 0, BENEATH), 0);
	CHECK_EQ(at(top, "d/uplink", 0, 0, BENEATH), 0);
	CHECK_ERRNO(at(top, "outlink", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(top, "abslink", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(top, "abslink/none", 0, 0, BENEATH), EXDEV);
	CHECK_EQ(at(top, "abslink", O_PATH | O_NOFOLLOW, 0, BENEATH), 0);
	CHECK_ERRNO(at(top, "none", 0, 0, BENEATH), ENOENT);
	CHECK_EQ(at(top, "d/new", O_CREAT | O_RDWR, 0600, BENEATH), 0);
	CHECK_ERRNO(at(top, "../new", O_CREAT | O_RDWR, 0600, BENEATH), EXDEV);
	CHECK_ERRNO(at(top, "abslink", O_CREAT | O_RDWR, 0600, BENEATH), EXDEV);
	/* A file is no start. */
	int f = open("f", O_RDONLY);
	CHECK_ERRNO(at(f, "x", 0, 0, BENEATH), ENOTDIR);
	CHECK_ERRNO(at(f, "x", 0, 0, IN_ROOT), ENOTDIR);
	close(f);
}

static void in_root(int top)
{
	struct stat a, b;
	CHECK_EQ(at(top, "/f", 0, 0, IN_ROOT), 0);
	CHECK_EQ(at(top, "/../../d/../f", 0, 0, IN_ROOT), 0);
	CHECK_EQ(at(top, "..", O_DIRECTORY, 0, IN_ROOT), 0);
	CHECK_ERRNO(at(99, "/", O_DIRECTORY, 0, IN_ROOT), EBADF);
	struct how how = { O_PATH, 0, IN_ROOT, 0 };
	long fd = raw(top, "/..", &how, 24);
	CHECK(fstat(fd, &a) == 0 && fstat(top, &b) == 0 && a.st_ino == b.st_ino);
	close(fd);
	CHECK_EQ(at(top, "rootlink", 0, 0, IN_ROOT), 0);
	CHECK_ERRNO(at(top, "rootlink", 0, 0, 0), ENOENT);
	CHECK_EQ(at(top, "outlink", 0, 0, IN_ROOT), 0);
	CHECK_ERRNO(at(top, "proclink", 0, 0, IN_ROOT), ENOENT);
	CHECK_EQ(at(top, "/made-in-root", O_CREAT | O_RDWR, 0600, IN_ROOT), 0);
	CHECK_EQ(access("made-in-root", F_OK), 0);
	/* No way out by a magic link. */
	int root = open("/", O_PATH);
	CHECK_EQ(at(root, "proc/self/status", 0, 0, IN_ROOT), 0);
	CHECK_EQ(at(root, "proc/../proc/self/status", 0, 0, BENEATH), 0);
	CHECK_ERRNO(at(root, "proc/../../x", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(root, "proc/self/exe", 0, 0, IN_ROOT), EXDEV);
	CHECK_ERRNO(at(root, "proc/self/cwd/f", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(root, "proc/self/root", 0, 0, IN_ROOT), EXDEV);
	close(root);
	/* Inside of /proc. */
	int proc = open("/proc/self", O_PATH | O_DIRECTORY);
	CHECK_EQ(at(proc, "status", 0, 0, BENEATH), 0);
	CHECK_EQ(at(proc, "/status", 0, 0, IN_ROOT), 0);
	CHECK_EQ(at(proc, "../../status", 0, 0, IN_ROOT), 0);
	CHECK_ERRNO(at(proc, "../self/status", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(proc, "/status", 0, 0, BENEATH), EXDEV);
	CHECK_ERRNO(at(proc, "fd/0", 0, 0, BENEATH), EXDEV);
	CHECK_EQ(at(proc, "net/../status", 0, 0, BENEATH), 0);
	close(proc);
}

static void mounts(int top)
{
	int root = open("/", O_PATH);
	CHECK_ERRNO(at(root, "proc/self/status", 0, 0, NO_XDEV), EXDEV);
	CHECK_ERRNO(at(root, "proc", 0, 0, NO_XDEV), EXDEV);
	CHECK_ERRNO(at(root, "dev/shm/..", 0, 0, NO_XDEV), EXDEV);
	CHECK_EQ(at(root, ".", O_DIRECTORY, 0, NO_XDEV), 0);
	CHECK_EQ(at(root, "../..", O_DIRECTORY, 0, NO_XDEV), 0);
	CHECK_EQ(at(top, "link", 0, 0, NO_XDEV), 0);
	/* An absolute path may begin anywhere. */
	int proc = open("/proc", O_PATH);
	CHECK_EQ(at(proc, "/", O_DIRECTORY, 0, NO_XDEV), 0);
	CHECK_ERRNO(at(proc, "..", O_DIRECTORY, 0, NO_XDEV), EXDEV);
	CHECK_EQ(at(proc, "self/status", 0, 0, NO_XDEV), 0);
	CHECK_ERRNO(at(proc, "self/exe", 0, 0, NO_XDEV), EXDEV);
	CHECK_ERRNO(at(proc, "self/root", 0, 0, NO_XDEV), EXDEV);
	close(proc), close(root);
	CHECK_ERRNO(at(AT_FDCWD, "f", O_CREAT | O_RDWR, 0600, CACHED), EAGAIN);
	CHECK_ERRNO(at(AT_FDCWD, "f", O_TRUNC | O_RDWR, 0, CACHED), EAGAIN);
	CHECK_ERRNO(at(AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0600, CACHED), EAGAIN);
	CHECK_EQ(at(AT_FDCWD, "f", 0, 0, CACHED), 0);
	CHECK_ERRNO(at(AT_FDCWD, "/proc/self/exe", 0, 0, CACHED), EAGAIN);
}

/* What the structure says counts when the call began. */
static void sleeping(void)
{
	REQUIRE(mkfifo("fifo", 0600) == 0);
	pid_t child = fork();
	if (child == 0) {
		int fd = open("fifo", O_WRONLY);
		_exit(write(fd, "x", 1) != 1);
	}
	struct how how = { O_RDONLY | O_CLOEXEC, 0, BENEATH | NO_SYMLINKS, 0 };
	long fd = raw(AT_FDCWD, "fifo", &how, 24);
	char c = 0;
	CHECK_EQ(read(fd, &c, 1), 1);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	close(fd);
}

int main(void)
{
	tap_directory();
	REQUIRE(mkdir("top", 0700) == 0 && chdir("top") == 0);
	REQUIRE(mkdir("d", 0700) == 0);
	close(open("f", O_CREAT | O_RDWR, 0600));
	close(open("d/x", O_CREAT | O_RDWR, 0600));
	close(open("../outside", O_CREAT | O_RDWR, 0600));
	REQUIRE(symlink("f", "link") == 0 && symlink("d", "dirlink") == 0 && symlink("new", "newlink") == 0);
	REQUIRE(symlink("../f", "d/uplink") == 0 && symlink("../f", "outlink") == 0);
	REQUIRE(symlink("/", "abslink") == 0 && symlink("/d/uplink", "rootlink") == 0 && symlink("/proc/self/status", "proclink") == 0);
	int top = open(".", O_RDONLY | O_DIRECTORY);
	structure();
	links(top);
	beneath(top);
	in_root(top);
	mounts(top);
	sleeping();
	return tap_done();
}
