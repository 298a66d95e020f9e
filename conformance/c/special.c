/* Files with rules of their own: links in sticky directories, set-group-ID directories, whiteouts, attributes that need a
 * capability, seals. Run by root it has more to show. */
#include "tap.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define NOBODY 65534
#define USER 1000

static struct stat st;

/* In a child with the rights of this user: what holds there. */
static int as_user(int user, int (*holds)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		if (user)
			REQUIRE(setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0);
		_exit(holds() ? 0 : 1);
	}
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status == 0;
}

static int number_in(const char *path)
{
	char text[16] = "";
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	return n > 0 ? atoi(text) : -1;
}

static int makes_link(void) { return symlink("../t", "sticky/l") == 0 && symlink("../t", "sticky/m") == 0; }

static int follows(void)
{
	return stat("sticky/l", &st) == 0 && access("sticky/l", R_OK) == 0 && open("sticky/l", O_RDONLY) >= 0 &&
	       open("sticky/l", O_CREAT | O_RDONLY, 0600) >= 0 && stat("sticky/own", &st) == 0;
}

static int may_not_follow(void)
{
	return fails(stat("sticky/l", &st), EACCES) && fails(access("sticky/l", F_OK), EACCES) &&
	       fails(open("sticky/l", O_RDONLY), EACCES) && fails(open("sticky/l", O_CREAT | O_RDONLY, 0600), EACCES) &&
	       fails(truncate("sticky/l", 0), EACCES) && lstat("sticky/l", &st) == 0 &&
	       /* Neither the directory's owner's links, nor those that are not the last component. */
	       stat("sticky/own", &st) == 0 && stat("sticky/d/t", &st) == 0 && fails(stat("sticky/d/", &st), EACCES) &&
	       fails(stat("chain", &st), EACCES) && stat("shared/l", &st) == 0 &&
	       fails(open("sticky/l", O_RDONLY | O_NOFOLLOW), ELOOP);
}

/* "protected_symlinks [...] symbolic links are followed only when outside a sticky world-writable directory, or when the
 * uid of the symbolic link and follower match, or when the directory owner matches the symbolic link's owner" (proc(5)). */
static void sticky(void)
{
	if (geteuid() != 0 || number_in("/proc/sys/fs/protected_symlinks") != 1) {
		for (int i = 0; i < 5; i++)
			CHECK(1);
		return;
	}
	REQUIRE(mkdir("sticky", 01777) == 0 && mkdir("shared", 0777) == 0 && close(creat("t", 0666)) == 0);
	REQUIRE(symlink("../t", "sticky/own") == 0 && symlink("..", "sticky/d") == 0 && symlink("sticky/l", "chain") == 0);
	REQUIRE(symlink("../t", "shared/l") == 0 && lchown("shared/l", NOBODY, NOBODY) == 0);
	REQUIRE(lchown("sticky/d", NOBODY, NOBODY) == 0);
	CHECK(as_user(NOBODY, makes_link));
	CHECK(as_user(NOBODY, follows));
	CHECK(as_user(USER, may_not_follow));
	/* No right helps. */
	CHECK(as_user(0, may_not_follow));
	/* Of directories of one's own links are followed whoever made them, if they are not for all. */
	REQUIRE(chmod("sticky", 01775) == 0);
	CHECK(as_user(0, follows));
}

static int stranger(void)
{
	umask(S_IXGRP);
	int fd = creat("group/a", 02777);
	int held = fstat(fd, &st) == 0 && st.st_mode == (S_IFREG | 0767) && st.st_gid == 1;
	fd = open("group/b", O_CREAT | O_EXCL | O_RDWR, 02777);
	held = held && fstat(fd, &st) == 0 && st.st_mode == (S_IFREG | 0767);
	held = held && mknod("group/n", S_IFREG | 02777, 0) == 0 && stat("group/n", &st) == 0 && st.st_mode == (S_IFREG | 0767);
	held = held && mknod("group/p", S_IFIFO | 02777, 0) == 0 && stat("group/p", &st) == 0 && st.st_mode == (S_IFIFO | 0767);
	held = held && mkdir("group/d", 02777) == 0 && stat("group/d", &st) == 0 && st.st_mode == (S_IFDIR | 02767);
	/* Without the right of the group to execute it is not about running as the group. */
	held = held && mknod("group/m", S_IFREG | 02767, 0) == 0 && stat("group/m", &st) == 0 && st.st_mode == (S_IFREG | 02767);
	return held;
}

/* In a set-group-ID directory, the bit goes from files of a group that their maker is not in: judged before the umask, since
 * Linux 6.0. */
static void group_directory(void)
{
	if (geteuid() != 0) {
		CHECK(1);
		return;
	}
	REQUIRE(mkdir("group", 0777) == 0 && chown("group", NOBODY, 1) == 0 && chmod("group", 02777) == 0);
	CHECK(as_user(NOBODY, stranger));
}

static int makes_whiteout(void)
{
	return mknod("w", S_IFCHR | 0600, 0) == 0 && stat("w", &st) == 0 && st.st_rdev == 0 && S_ISCHR(st.st_mode) &&
	       fails(mknod("x", S_IFCHR | 0600, makedev(1, 3)), EPERM) && fails(mknod("x", S_IFBLK | 0600, 0), EPERM);
}

/* Whiteouts, on a file system in memory: overlayfs makes none. */
static void whiteouts(const char *directory)
{
	char path[] = "/dev/shm/conformance-XXXXXX";
	REQUIRE(mkdtemp(path) && chmod(path, 0777) == 0 && chdir(path) == 0);
	CHECK(as_user(geteuid() == 0 ? NOBODY : 0, makes_whiteout));
	REQUIRE(close(creat("a", 0600)) == 0);
	CHECK_EQ(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 4), 0);
	CHECK(lstat("a", &st) == 0 && st.st_mode == S_IFCHR && st.st_rdev == 0 && stat("b", &st) == 0 && S_ISREG(st.st_mode));
	CHECK_EQ(syscall(SYS_renameat2, AT_FDCWD, "b", AT_FDCWD, "a", 4), 0);
	CHECK(stat("a", &st) == 0 && S_ISREG(st.st_mode) && stat("b", &st) == 0 && S_ISCHR(st.st_mode));
	CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 4 | 1), EEXIST);
	CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 4 | 2), EINVAL);
	CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 8), EINVAL);
	REQUIRE(unlink("a") == 0 && unlink("b") == 0 && unlink("w") == 0 && chdir(directory) == 0 && rmdir(path) == 0);
}

/* What this process has in force of the first capabilities. */
static unsigned effective(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { 0 };
	REQUIRE(syscall(SYS_capget, &header, data) == 0);
	return data[0].effective;
}

static void drop(int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { 0 };
	REQUIRE(syscall(SYS_capget, &header, data) == 0);
	data[0].effective &= ~(1u << capability);
	REQUIRE(syscall(SYS_capset, &header, data) == 0);
}

static int trusted_attributes(void)
{
	char value[32], names[256] = "";
	if (effective() & 1u << CAP_SYS_ADMIN) {
		REQUIRE(setxattr("x", "trusted.a", "1", 1, 0) == 0 && getxattr("x", "trusted.a", value, 32) == 1);
		REQUIRE(listxattr("x", names, sizeof names) > 0 && memmem(names, sizeof names, "trusted.a", 10));
		drop(CAP_SYS_ADMIN);
	}
	memset(names, 0, sizeof names);
	return fails(setxattr("x", "trusted.b", "1", 1, 0), EPERM) && fails(getxattr("x", "trusted.a", value, 32), ENODATA) &&
	       fails(removexattr("x", "trusted.a"), EPERM) && listxattr("x", names, sizeof names) >= 0 &&
	       !memmem(names, sizeof names, "trusted.a", 10) && fails(setxattr("x", "security.b", "1", 1, 0), EPERM) &&
	       fails(removexattr("x", "security.b"), EPERM);
}

/* cap_dac_override+ep, as `struct vfs_cap_data` has it. */
static const unsigned char program[20] = { 1, 0, 0, 2, 2 };

static int program_capabilities(void)
{
	char value[32];
	REQUIRE(effective() & 1u << CAP_SETFCAP);
	int held = fails(setxattr("x", "security.capability", "xxxxxxxxxxxxxxxxxxxx", 20, 0), EINVAL) &&
		   fails(setxattr("x", "security.capability", program, 19, 0), EINVAL) &&
		   setxattr("x", "security.capability", program, 20, 0) == 0 &&
		   getxattr("x", "security.capability", value, 32) == 20 && !memcmp(value, program, 20);
	drop(CAP_SETFCAP);
	/* An empty value nobody looks at. */
	return held && fails(setxattr("x", "security.capability", program, 20, 0), EPERM) &&
	       setxattr("x", "security.capability", NULL, 0, 0) == 0 &&
	       fails(setxattr("x", "security.capability", program, 19, 0), EINVAL) &&
	       fails(removexattr("x", "security.capability"), EPERM);
}

static void attributes(void)
{
	REQUIRE(close(creat("x", 0644)) == 0);
	if (geteuid() != 0) {
		CHECK(1), CHECK(1), CHECK(1);
		return;
	}
	CHECK(as_user(0, trusted_attributes));
	CHECK(as_user(0, program_capabilities));
	CHECK(as_user(NOBODY, trusted_attributes));
}

/* A write to a file that is sealed against growth stops before the page in which it would grow. */
static void sealed(void)
{
	static char much[3 * 4096];
	int fd = memfd_create("pages", MFD_ALLOW_SEALING);
	REQUIRE(fd >= 0 && ftruncate(fd, 8192) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
	CHECK_EQ(pwrite(fd, much, sizeof much, 0), 8192);
	CHECK_EQ(pwrite(fd, much, 5000, 4000), 4192);
	CHECK_ERRNO(pwrite(fd, much, 1, 8192), EPERM);
	close(fd);
	fd = memfd_create("part", MFD_ALLOW_SEALING);
	REQUIRE(fd >= 0 && ftruncate(fd, 20) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
	CHECK_ERRNO(pwrite(fd, much, 8, 16), EPERM);
	CHECK_EQ(pwrite(fd, much, 4, 16), 4);
	close(fd);
}

int main(void)
{
	umask(0);
	char *directory = tap_directory();
	REQUIRE(chmod(directory, 0755) == 0);
	sticky();
	group_directory();
	whiteouts(directory);
	attributes();
	sealed();
	return tap_done();
}
