/*
 * Names and directories: path_resolution(7), rename(2), link(2), symlink(2), mkdir(2), getdents64(2), stat(2), statx(2),
 * chmod(2), access(2), chdir(2), the *at calls, utimensat(2), xattr(7), statfs(2), and /proc/self.
 */
#include "tap.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

static struct stat st;
static char *directory;

static void touch(const char *name)
{
	int fd = open(name, O_CREAT | O_WRONLY, 0644);
	REQUIRE(fd >= 0);
	close(fd);
}

static ino_t inode(const char *name)
{
	return lstat(name, &st) == 0 ? st.st_ino : 0;
}

static void links(void)
{
	char text[64];
	touch("a");
	CHECK_EQ(link("a", "b"), 0);
	CHECK(inode("a") == inode("b") && st.st_nlink == 2);
	CHECK_ERRNO(link("a", "b"), EEXIST);
	CHECK_ERRNO(link("none", "c"), ENOENT);
	CHECK_ERRNO(link(".", "c"), EPERM);
	CHECK_EQ(unlink("a"), 0);
	CHECK(stat("b", &st) == 0 && st.st_nlink == 1);
	CHECK_EQ(symlink("b", "s"), 0);
	CHECK_ERRNO(symlink("b", "s"), EEXIST);
	CHECK_ERRNO(symlink("", "t"), ENOENT);
	CHECK(lstat("s", &st) == 0 && S_ISLNK(st.st_mode) && st.st_size == 1 && (st.st_mode & 0777) == 0777);
	CHECK(stat("s", &st) == 0 && S_ISREG(st.st_mode));
	CHECK_EQ(readlink("s", text, sizeof text), 1);
	CHECK_ERRNO(readlink("b", text, sizeof text), EINVAL);
	CHECK_ERRNO(readlink("none", text, sizeof text), ENOENT);
	CHECK_ERRNO(readlink("s", text, 0), EINVAL);
	REQUIRE(symlink("long-target", "u") == 0);
	CHECK_EQ(readlink("u", text, 4), 4);
	CHECK(!memcmp(text, "long", 4));
	/* A dangling link: creating through it works, O_EXCL and O_NOFOLLOW refuse it. */
	CHECK_ERRNO(open("u", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("u", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
	CHECK_ERRNO(open("u", O_RDONLY | O_NOFOLLOW), ELOOP);
	int fd = open("u", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && access("long-target", F_OK) == 0);
	close(fd);
	REQUIRE(symlink("loop2", "loop1") == 0 && symlink("loop1", "loop2") == 0);
	CHECK_ERRNO(open("loop1", O_RDONLY), ELOOP);
	CHECK_ERRNO(stat("loop1/x", &st), ELOOP);
	CHECK(lstat("loop1", &st) == 0);
	/* 40 links in a row are followed, not more. */
	char from[16], to[16];
	touch("chain0");
	for (int i = 1; i <= 41; i++) {
		snprintf(from, sizeof from, "chain%d", i);
		snprintf(to, sizeof to, "chain%d", i - 1);
		REQUIRE(symlink(to, from) == 0);
	}
	CHECK_EQ(stat("chain40", &st), 0);
	CHECK_ERRNO(stat("chain41", &st), ELOOP);
	for (int i = 0; i <= 41; i++) {
		snprintf(from, sizeof from, "chain%d", i);
		REQUIRE(unlink(from) == 0);
	}
	CHECK_EQ(mkdir("d", 0755), 0);
	REQUIRE(symlink("d", "to-d") == 0);
	touch("d/inside");
	CHECK_EQ(access("to-d/inside", F_OK), 0);
	CHECK(lstat("to-d/", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(stat("d/../b", &st) == 0 && stat("./d/./../b", &st) == 0 && stat("d//inside", &st) == 0);
	CHECK_ERRNO(unlink("to-d/"), ENOTDIR);
	CHECK_ERRNO(rmdir("to-d"), ENOTDIR);
	CHECK_ERRNO(stat("b/..", &st), ENOTDIR);
	CHECK_EQ(linkat(AT_FDCWD, "s", AT_FDCWD, "copy", 0), 0);
	CHECK(lstat("copy", &st) == 0 && S_ISLNK(st.st_mode));
	CHECK_EQ(linkat(AT_FDCWD, "s", AT_FDCWD, "hard", AT_SYMLINK_FOLLOW), 0);
	CHECK(lstat("hard", &st) == 0 && S_ISREG(st.st_mode));
	static const char *const all[] = { "b", "s", "u", "long-target", "loop1", "loop2", "d/inside", "to-d", "copy", "hard" };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		REQUIRE(unlink(all[i]) == 0);
	CHECK_EQ(rmdir("d"), 0);
}

static void renames(void)
{
	touch("a");
	touch("b");
	ino_t a = inode("a");
	CHECK_EQ(rename("a", "b"), 0);
	CHECK(inode("b") == a && inode("a") == 0);
	CHECK_EQ(rename("b", "b"), 0);
	CHECK_ERRNO(rename("none", "x"), ENOENT);
	/* Two names of one file: nothing happens. */
	REQUIRE(link("b", "c") == 0);
	CHECK_EQ(rename("b", "c"), 0);
	CHECK(inode("b") == a && inode("c") == a);
	REQUIRE(unlink("c") == 0);
	REQUIRE(mkdir("d", 0755) == 0 && mkdir("e", 0755) == 0);
	CHECK_ERRNO(rename("b", "d"), EISDIR);
	CHECK_ERRNO(rename("d", "b"), ENOTDIR);
	CHECK_EQ(rename("d", "e"), 0);
	CHECK_EQ(inode("d"), 0);
	touch("e/x");
	REQUIRE(mkdir("d", 0755) == 0);
	CHECK_ERRNO(rename("d", "e"), ENOTEMPTY);
	CHECK_ERRNO(rename("e", "e/sub"), EINVAL);
	CHECK_ERRNO(rename("e/.", "f"), EBUSY);
	CHECK_EQ(rename("e/x", "d/y"), 0);
	CHECK_EQ(rename("d", "e/d"), 0);
	CHECK(access("e/d/y", F_OK) == 0 && stat("e/d/..", &st) == 0 && st.st_ino == inode("e"));
	CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "b", AT_FDCWD, "e", RENAME_NOREPLACE), EEXIST);
	CHECK_EQ(syscall(SYS_renameat2, AT_FDCWD, "b", AT_FDCWD, "n", RENAME_NOREPLACE), 0);
	ino_t n = inode("n"), e = inode("e");
	CHECK_EQ(syscall(SYS_renameat2, AT_FDCWD, "n", AT_FDCWD, "e", RENAME_EXCHANGE), 0);
	CHECK(inode("e") == n && inode("n") == e);
	CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "n", AT_FDCWD, "e", 0x80), EINVAL);
	/* A renamed file stays open. */
	int fd = open("e", O_RDWR);
	REQUIRE(rename("e", "z") == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_ino == n);
	close(fd);
	REQUIRE(unlink("z") == 0 && unlink("n/d/y") == 0 && rmdir("n/d") == 0 && rmdir("n") == 0);
}

static void directories(void)
{
	CHECK_EQ(mkdir("d", 0777), 0);
	CHECK(stat("d", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0755 && st.st_nlink == 2);
	CHECK_ERRNO(mkdir("d", 0777), EEXIST);
	CHECK_ERRNO(mkdir("none/x", 0777), ENOENT);
	CHECK_ERRNO(mkdir("", 0777), ENOENT);
	CHECK_ERRNO(unlink("d"), EISDIR);
	CHECK_ERRNO(rmdir("none"), ENOENT);
	CHECK_ERRNO(rmdir("d/."), EINVAL);
	CHECK_ERRNO(rmdir("d/.."), ENOTEMPTY);
	CHECK_EQ(mkdir("d/sub/", 0777), 0);
	CHECK(stat("d", &st) == 0 && st.st_nlink == 3);
	CHECK_ERRNO(rmdir("d"), ENOTEMPTY);
	CHECK_EQ(rmdir("d/sub"), 0);
	char name[32];
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof name, "d/file-%d", i);
		touch(name);
	}
	/* Every name exactly once, "." and ".." among them, whatever the buffer; files removed meanwhile do not disturb. */
	static char seen[500];
	int dots = 0, others = 0, types = 0;
	DIR *dir = opendir("d");
	long where = -1;
	for (struct dirent *entry; (entry = readdir(dir));) {
		int i;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			dots++;
		else if (sscanf(entry->d_name, "file-%d", &i) == 1)
			seen[i]++, types += entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN;
		else
			others++;
		if (dots + types == 250)
			where = telldir(dir);
	}
	int once = 0;
	for (int i = 0; i < 500; i++)
		once += seen[i] == 1;
	CHECK(dots == 2 && once == 500 && others == 0 && types == 500);
	seekdir(dir, where);
	int rest = 0;
	while (readdir(dir))
		rest++;
	CHECK_EQ(rest, 502 - 250);
	rewinddir(dir);
	CHECK(readdir(dir) != NULL);
	closedir(dir);
	int fd = open("d", O_RDONLY | O_DIRECTORY), total = 0, rounds = 0;
	char buffer[512];
	for (;;) {
		long n = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
		REQUIRE(n >= 0);
		if (n == 0)
			break;
		rounds++;
		for (long at = 0; at < n; at += *(unsigned short *)(buffer + at + 16))
			total++;
	}
	CHECK(total == 502 && rounds > 30);
	CHECK_EQ(syscall(SYS_getdents64, fd, buffer, sizeof buffer), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_ERRNO(syscall(SYS_getdents64, fd, buffer, 8), EINVAL);
	/* The call of before: the kind is the last byte of a record. */
	int before = 0, kinds = 0;
	for (long n; (n = syscall(SYS_getdents, fd, buffer, sizeof buffer)) > 0;)
		for (long at = 0; at < n; at += *(unsigned short *)(buffer + at + 16)) {
			unsigned length = *(unsigned short *)(buffer + at + 16);
			const char *name = buffer + at + 18;
			before++;
			kinds += buffer[at + length - 1] == (name[0] == '.' ? DT_DIR : DT_REG) && length % 8 == 0;
		}
	CHECK_EQ(before, 502);
	CHECK_EQ(kinds, 502);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_ERRNO(syscall(SYS_getdents, fd, buffer, 8), EINVAL);
	CHECK_ERRNO(syscall(SYS_getdents, 0, buffer, sizeof buffer), ENOTDIR);
	CHECK_ERRNO(syscall(SYS_getdents64, 0, buffer, sizeof buffer), ENOTDIR);
	CHECK_ERRNO(read(fd, buffer, 1), EISDIR);
	CHECK_ERRNO(write(fd, buffer, 1), EBADF);
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof name, "file-%d", i);
		REQUIRE(unlinkat(fd, name, 0) == 0);
	}
	CHECK_ERRNO(unlinkat(AT_FDCWD, "d", 0), EISDIR);
	CHECK_EQ(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR), 0);
	/* A removed directory can still be looked at; nothing can be made in it. */
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK_ERRNO(openat(fd, "x", O_CREAT | O_WRONLY, 0600), ENOENT);
	close(fd);
}

static void working_directories(void)
{
	char path[4096], expected[4200];
	CHECK(getcwd(path, sizeof path) && !strcmp(path, directory));
	CHECK(!getcwd(path, 2) && errno == ERANGE);
	REQUIRE(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0);
	CHECK_EQ(chdir("d/e"), 0);
	snprintf(expected, sizeof expected, "%s/d/e", directory);
	CHECK(getcwd(path, sizeof path) && !strcmp(path, expected));
	CHECK_EQ(chdir("../.."), 0);
	int fd = open("d", O_RDONLY | O_DIRECTORY);
	CHECK_EQ(fchdir(fd), 0);
	CHECK_EQ(access("e", F_OK), 0);
	CHECK_ERRNO(chdir("none"), ENOENT);
	touch("f");
	CHECK_ERRNO(chdir("f"), ENOTDIR);
	/* Above the root is the root. */
	CHECK(chdir("/../../..") == 0 && getcwd(path, sizeof path) && !strcmp(path, "/"));
	/* The *at calls work from a descriptor. */
	int file = openat(fd, "f", O_RDWR);
	CHECK(file >= 0);
	CHECK_EQ(fstatat(fd, "f", &st, 0), 0);
	CHECK_EQ(fstatat(file, "", &st, AT_EMPTY_PATH), 0);
	CHECK_ERRNO(fstatat(file, "x", &st, 0), ENOTDIR);
	CHECK_ERRNO(fstatat(-1, "f", &st, 0), EBADF);
	CHECK_ERRNO(fstatat(fd, "f", &st, 0x40000000), EINVAL);
	CHECK_EQ(mkdirat(fd, "g", 0700), 0);
	CHECK_EQ(renameat(fd, "f", fd, "g/f"), 0);
	CHECK_EQ(symlinkat("g/f", fd, "s"), 0);
	CHECK_EQ(readlinkat(fd, "s", path, sizeof path), 3);
	CHECK_EQ(faccessat(fd, "s", R_OK, 0), 0);
	CHECK_EQ(fchmodat(fd, "g/f", 0600, 0), 0);
	CHECK_EQ(linkat(fd, "g/f", fd, "h", 0), 0);
	CHECK(unlinkat(fd, "h", 0) == 0 && unlinkat(fd, "s", 0) == 0 && unlinkat(fd, "g/f", 0) == 0 &&
	      unlinkat(fd, "g", AT_REMOVEDIR) == 0 && unlinkat(fd, "e", AT_REMOVEDIR) == 0);
	close(file);
	/* The working directory of a removed directory. */
	CHECK_EQ(fchdir(fd), 0);
	snprintf(path, sizeof path, "%s/d", directory);
	CHECK_EQ(rmdir(path), 0);
	CHECK(!getcwd(path, sizeof path) && errno == ENOENT);
	CHECK_ERRNO(open("x", O_CREAT | O_WRONLY, 0600), ENOENT);
	close(fd);
	REQUIRE(chdir(directory) == 0);
}

static void modes(void)
{
	touch("f");
	CHECK_EQ(chmod("f", 04755), 0);
	CHECK(stat("f", &st) == 0 && (st.st_mode & 07777) == 04755);
	int fd = open("f", O_RDWR);
	CHECK_EQ(fchmod(fd, 0), 0);
	CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0);
	close(fd);
	CHECK_ERRNO(chmod("none", 0), ENOENT);
	CHECK_EQ(access("f", F_OK), 0);
	CHECK_ERRNO(access("f", X_OK), EACCES);
	CHECK_ERRNO(access("f", 99), EINVAL);
	CHECK_ERRNO(access("none", R_OK), ENOENT);
	CHECK_EQ(chown("f", -1, -1), 0);
	CHECK_EQ(chown("f", getuid(), getgid()), 0);
	/* Permissions bind everyone but root. */
	REQUIRE(chmod(".", 0755) == 0 && mkdir("closed", 0) == 0 && chmod("f", 0640) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (getuid() == 0)
			REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
		else
			REQUIRE(chmod("f", 0) == 0 && chmod(".", 0555) == 0);
		REQUIRE(open("f", O_RDONLY) == -1 && errno == EACCES);
		REQUIRE(access("f", R_OK) == -1 && errno == EACCES);
		REQUIRE(stat("closed/x", &st) == -1 && errno == EACCES);
		REQUIRE(open("new", O_CREAT | O_WRONLY, 0600) == -1 && errno == EACCES);
		REQUIRE(unlink("f") == -1 && errno == EACCES);
		REQUIRE(stat("f", &st) == 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	REQUIRE(chmod(".", 0700) == 0 && rmdir("closed") == 0 && unlink("f") == 0);
}

static void attributes(void)
{
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	REQUIRE(fd >= 0 && write(fd, "12345", 5) == 5);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 5 && st.st_uid == geteuid() && st.st_blksize > 0 && st.st_rdev == 0);
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
	CHECK_EQ(utimensat(AT_FDCWD, "f", times, 0), 0);
	CHECK(stat("f", &st) == 0 && st.st_atim.tv_sec == 1000 && st.st_atim.tv_nsec == 1 && st.st_mtim.tv_sec == 2000 &&
	      st.st_mtim.tv_nsec == 2);
	times[0].tv_nsec = UTIME_OMIT;
	times[1].tv_nsec = UTIME_NOW;
	CHECK_EQ(futimens(fd, times), 0);
	CHECK(stat("f", &st) == 0 && st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec > 2000);
	times[0].tv_nsec = 1000000000;
	CHECK_ERRNO(futimens(fd, times), EINVAL);
	/* A write moves the modification time. */
	times[0] = times[1] = (struct timespec){ 500, 0 };
	REQUIRE(futimens(fd, times) == 0 && write(fd, "6", 1) == 1 && fstat(fd, &st) == 0);
	CHECK(st.st_mtim.tv_sec > 500 && st.st_atim.tv_sec == 500);
	struct statx x;
	CHECK_EQ(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x), 0);
	CHECK((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS && x.stx_size == 6 && S_ISREG(x.stx_mode) &&
	      x.stx_ino == st.st_ino && makedev(x.stx_dev_major, x.stx_dev_minor) == st.st_dev && x.stx_nlink == 1);
	CHECK_EQ(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x), 0);
	/* The mount is told without being asked, and as fdinfo has it. */
	CHECK_EQ(statx(fd, "", AT_EMPTY_PATH, 0, &x), 0);
	char path[64], info[256] = "", mount[32];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	snprintf(mount, sizeof mount, "mnt_id:\t%llu\n", (unsigned long long)x.stx_mnt_id);
	int shown = open(path, O_RDONLY);
	CHECK(x.stx_mask & STATX_MNT_ID && read(shown, info, sizeof info - 1) > 0 && strstr(info, mount));
	close(shown);
	CHECK_ERRNO(statx(AT_FDCWD, "none", 0, STATX_SIZE, &x), ENOENT);
	CHECK_ERRNO(stat(BAD, &st), EFAULT);
	CHECK_ERRNO(syscall(SYS_newfstatat, AT_FDCWD, "f", BAD, 0), EFAULT);
	char value[16];
	CHECK(getxattr("f", "user.none", value, sizeof value) == -1 && (errno == ENODATA || errno == EOPNOTSUPP));
	CHECK_ERRNO(getxattr("none", "user.none", value, sizeof value), ENOENT);
	struct statfs fs;
	CHECK(fstatfs(fd, &fs) == 0 && fs.f_bsize > 0 && fs.f_namelen == 255);
	struct statvfs vfs;
	CHECK(statvfs(".", &vfs) == 0 && vfs.f_namemax == 255);
	CHECK_ERRNO(statfs("none", &fs), ENOENT);
	close(fd);
	REQUIRE(unlink("f") == 0);
}

static void proc(void)
{
	char text[4096], path[64];
	ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
	CHECK(n > 0 && text[0] == '/' && (text[n] = 0, strrchr(text, '/') && !strcmp(strrchr(text, '/'), "/names")));
	int fd = open("/proc/self/cmdline", O_RDONLY);
	n = read(fd, text, sizeof text);
	CHECK(n > 0 && text[n - 1] == 0);
	close(fd);
	fd = open("/proc/self/stat", O_RDONLY);
	n = read(fd, text, sizeof text - 1);
	REQUIRE(n > 0);
	text[n] = 0;
	int pid, ppid;
	char state;
	CHECK(sscanf(text, "%d (names) %c %d", &pid, &state, &ppid) == 3 && pid == getpid() && ppid == getppid() && state == 'R');
	close(fd);
	FILE *status = fopen("/proc/self/status", "r");
	int found = 0;
	while (status && fgets(text, sizeof text, status))
		found += !strncmp(text, "Pid:", 4) && atoi(text + 4) == getpid();
	CHECK_EQ(found, 1);
	if (status)
		fclose(status);
	touch("f");
	fd = open("f", O_RDWR);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	n = readlink(path, text, sizeof text - 1);
	CHECK(n > 0 && (text[n] = 0, !strncmp(text, directory, strlen(directory)) && !strcmp(text + strlen(directory), "/f")));
	/* Opening it makes a new open file of the same file. */
	int again = open(path, O_RDONLY);
	CHECK(again >= 0 && write(fd, "x", 1) == 1 && lseek(again, 0, SEEK_CUR) == 0 && read(again, text, 2) == 1);
	REQUIRE(unlink("f") == 0);
	n = readlink(path, text, sizeof text - 1);
	CHECK(n > 0 && (text[n] = 0, strstr(text, "/f (deleted)")));
	close(again);
	close(fd);
	CHECK_ERRNO(readlink(path, text, sizeof text), ENOENT);
	n = readlink("/proc/self/cwd", text, sizeof text - 1);
	CHECK(n > 0 && (text[n] = 0, !strcmp(text, directory)));
	n = readlink("/proc/self/root", text, sizeof text - 1);
	CHECK(n == 1 && text[0] == '/');
	/* The maps know the stack and what this function's code is mapped from. */
	FILE *maps = fopen("/proc/self/maps", "r");
	int code = 0, stack = 0;
	while (maps && fgets(text, sizeof text, maps)) {
		unsigned long start, end;
		char permissions[8];
		if (sscanf(text, "%lx-%lx %7s", &start, &end, permissions) != 3)
			continue;
		if ((unsigned long)proc >= start && (unsigned long)proc < end)
			code += !strcmp(permissions, "r-xp") && strstr(text, "/names");
		if ((unsigned long)&start >= start && (unsigned long)&start < end)
			stack += !strcmp(permissions, "rw-p") && strstr(text, "[stack]");
	}
	CHECK(code == 1 && stack == 1);
	if (maps)
		fclose(maps);
	CHECK_ERRNO(open("/proc/none", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("/proc/self/none", O_RDONLY), ENOENT);
	DIR *fds = opendir("/proc/self/fd");
	int own = 0;
	for (struct dirent *entry; fds && (entry = readdir(fds));)
		own += atoi(entry->d_name) == dirfd(fds);
	CHECK(own >= 1);
	if (fds)
		closedir(fds);
}

int main(void)
{
	umask(022);
	directory = tap_directory();
	links();
	renames();
	directories();
	working_directories();
	modes();
	attributes();
	proc();
	REQUIRE(chdir("/") == 0);
	CHECK_EQ(rmdir(directory), 0);
	return tap_done();
}
