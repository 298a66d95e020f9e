/* Flags of inodes, which chattr(1) sets: ioctl_iflags(2), ioctl_xfs_fsgetxattr(2). */
#include "tap.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#ifndef OVERLAYFS_SUPER_MAGIC
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#endif
#define NONE 0x80000000u

/* What the file system is, and whether this process may make files immutable. */
static int memory, ext4, privileged;

static unsigned flags_of(const char *path)
{
	/* Linux writes an int, whatever the number of the command says. */
	unsigned long flags = 0;
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	int got = fd < 0 ? -1 : ioctl(fd, FS_IOC_GETFLAGS, &flags);
	int error = errno;
	close(fd);
	errno = error;
	return got == 0 ? flags : NONE;
}

static int set(const char *path, unsigned flags)
{
	int fd = open(path, O_RDONLY), error;
	REQUIRE(fd >= 0);
	int got = ioctl(fd, FS_IOC_SETFLAGS, &flags);
	error = errno;
	close(fd);
	errno = error;
	return got;
}

static int set_extended(const char *path, unsigned xflags, unsigned extsize, unsigned project)
{
	struct fsxattr given = { .fsx_xflags = xflags, .fsx_extsize = extsize, .fsx_projid = project };
	int fd = open(path, O_RDONLY), error;
	REQUIRE(fd >= 0);
	int got = ioctl(fd, FS_IOC_FSSETXATTR, &given);
	error = errno;
	close(fd);
	errno = error;
	return got;
}

static void make(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
	REQUIRE(fd >= 0 && write(fd, "12345", 5) == 5);
	close(fd);
}

static int try(const char *path, int flags)
{
	int fd = open(path, flags);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static void plain(void)
{
	unsigned usual = memory ? 0 : FS_EXTENT_FL;
	make("f");
	REQUIRE(mkdir("d", 0755) == 0 && mkfifo("p", 0644) == 0);
	CHECK_EQ(flags_of("f"), usual);
	CHECK_EQ(flags_of("d"), usual);
	CHECK(flags_of("p") == NONE && errno == ENOTTY);
	CHECK(flags_of("/dev/null") == NONE && errno == ENOTTY);
	CHECK(flags_of("/proc/self/status") == NONE && errno == ENOTTY);
	int fd = open("f", O_RDONLY);
	CHECK_ERRNO(ioctl(fd, FS_IOC_GETFLAGS, BAD), EFAULT);
	CHECK_ERRNO(ioctl(fd, FS_IOC_SETFLAGS, BAD), EFAULT);
	CHECK_ERRNO(ioctl(fd, FS_IOC_FSGETXATTR, BAD), EFAULT);
	CHECK_ERRNO(ioctl(fd, FS_IOC_FSSETXATTR, BAD), EFAULT);
	struct fsxattr got;
	memset(&got, 0xff, sizeof got);
	CHECK_OK(ioctl(fd, FS_IOC_FSGETXATTR, &got));
	CHECK(got.fsx_xflags == 0 && got.fsx_extsize == 0 && got.fsx_nextents == 0 && got.fsx_projid == 0 && got.fsx_cowextsize == 0);
	close(fd);
	fd = open("f", O_PATH);
	CHECK_ERRNO(ioctl(fd, FS_IOC_GETFLAGS, &usual), EBADF);
	close(fd);
	CHECK_OK(set("f", usual | FS_NODUMP_FL));
	CHECK_EQ(flags_of("f"), usual | FS_NODUMP_FL);
	struct statx stx;
	CHECK_OK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &stx));
	CHECK_EQ(stx.stx_attributes & (STATX_ATTR_NODUMP | STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND), STATX_ATTR_NODUMP);
	unsigned known = STATX_ATTR_NODUMP | STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND;
	CHECK_EQ(stx.stx_attributes_mask & (known | STATX_ATTR_COMPRESSED), memory ? known : known | STATX_ATTR_COMPRESSED);
	CHECK_ERRNO(set("f", usual | FS_NOCOW_FL), EOPNOTSUPP);
	CHECK_EQ(flags_of("f"), usual | FS_NODUMP_FL);
	if (memory) {
		CHECK_ERRNO(set("f", FS_SYNC_FL), EOPNOTSUPP);
		CHECK_ERRNO(set("f", FS_EXTENT_FL), EOPNOTSUPP);
		CHECK_ERRNO(set("d", FS_DIRSYNC_FL), EOPNOTSUPP);
		CHECK_ERRNO(set_extended("f", 0, 4096, 0), EOPNOTSUPP);
	} else {
		CHECK_OK(set("f", usual | FS_SYNC_FL));
		CHECK_ERRNO(set("f", usual | FS_DIRSYNC_FL), EOPNOTSUPP);
		CHECK_ERRNO(set("f", usual | FS_TOPDIR_FL), EOPNOTSUPP);
		CHECK_OK(set("d", usual | FS_DIRSYNC_FL));
		CHECK_EQ(flags_of("d"), usual | FS_DIRSYNC_FL);
		CHECK_OK(set("d", usual));
		CHECK_OK(set("f", usual));
	}
	CHECK_OK(set_extended("f", FS_XFLAG_NODUMP | FS_XFLAG_NOATIME, 0, 0));
	CHECK_EQ(flags_of("f"), usual | FS_NODUMP_FL | FS_NOATIME_FL);
	fd = open("f", O_RDONLY);
	CHECK_OK(ioctl(fd, FS_IOC_FSGETXATTR, &got));
	CHECK_EQ(got.fsx_xflags, FS_XFLAG_NODUMP | FS_XFLAG_NOATIME);
	close(fd);
	CHECK_ERRNO(set_extended("f", 0, 0, -1), EINVAL);
	CHECK_ERRNO(set_extended("d", FS_XFLAG_EXTSIZE, 4096, 0), EINVAL);
	CHECK_ERRNO(set_extended("f", FS_XFLAG_EXTSZINHERIT, 4096, 0), EINVAL);
	/* What is inherited. */
	CHECK_OK(set("d", usual | FS_NODUMP_FL | FS_NOATIME_FL));
	make("d/f");
	REQUIRE(mkdir("d/d", 0755) == 0);
	CHECK_EQ(flags_of("d/f"), usual | FS_NODUMP_FL | FS_NOATIME_FL);
	CHECK_EQ(flags_of("d/d"), usual | FS_NODUMP_FL | FS_NOATIME_FL);
	/* Reads leave its time as it is. */
	struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	struct stat st;
	char c;
	REQUIRE(utimensat(AT_FDCWD, "d/f", old, 0) == 0);
	fd = open("d/f", O_RDONLY);
	CHECK(read(fd, &c, 1) == 1 && fstat(fd, &st) == 0 && st.st_atime == 1000);
	close(fd);
	CHECK_OK(set("d/f", usual));
	fd = open("d/f", O_RDONLY);
	CHECK(read(fd, &c, 1) == 1 && fstat(fd, &st) == 0 && st.st_atime != 1000);
	close(fd);
	unlink("d/f");
	rmdir("d/d");
	rmdir("d");
	unlink("p");
	unlink("f");
}

/* Of whom the flags are: this process is that user from now on. */
static void be(uid_t uid)
{
	REQUIRE(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
}

static void owners(void)
{
	unsigned usual = memory ? 0 : FS_EXTENT_FL;
	int status;
	make("f");
	make("g");
	REQUIRE(chown("f", 1000, 1000) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		be(1000);
		_exit(set("f", usual | FS_NODUMP_FL) != 0 || flags_of("f") != (usual | FS_NODUMP_FL)	   ? 1 :
		      !fails(set("f", usual | FS_IMMUTABLE_FL), EPERM)					   ? 2 :
		      !fails(set("f", usual | FS_APPEND_FL), EPERM)					   ? 3 :
		      !fails(set_extended("f", FS_XFLAG_IMMUTABLE, 0, 0), EPERM)			   ? 4 :
		      !fails(set("g", usual | FS_NODUMP_FL), EPERM) || !fails(set("g", usual), EPERM) ? 5 :
													     42);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 42);
	unlink("f");
	unlink("g");
}

static void immutable(void)
{
	unsigned usual = memory ? 0 : FS_EXTENT_FL;
	struct timeval times[2] = { { 5, 0 }, { 5, 0 } };
	make("f");
	make("g");
	REQUIRE(setxattr("f", "user.a", "1", 1, 0) == 0 || errno == EOPNOTSUPP);
	int fd = open("f", O_RDWR);
	CHECK_OK(set("f", usual | FS_IMMUTABLE_FL));
	CHECK_ERRNO(try("f", O_WRONLY), EPERM);
	CHECK_ERRNO(try("f", O_RDWR | O_APPEND), EPERM);
	CHECK_ERRNO(try("f", O_RDONLY | O_TRUNC), EPERM);
	CHECK_OK(try("f", O_RDONLY));
	CHECK_ERRNO(access("f", W_OK), EPERM);
	CHECK_OK(access("f", R_OK));
	CHECK_ERRNO(truncate("f", 0), EPERM);
	CHECK_ERRNO(unlink("f"), EPERM);
	CHECK_ERRNO(rename("f", "h"), EPERM);
	CHECK_ERRNO(rename("g", "f"), EPERM);
	CHECK_ERRNO(link("f", "h"), EPERM);
	CHECK_ERRNO(chmod("f", 0600), EPERM);
	CHECK_ERRNO(chown("f", 1, -1), EPERM);
	CHECK_ERRNO(utimes("f", NULL), EPERM);
	CHECK_ERRNO(utimes("f", times), EPERM);
	CHECK_ERRNO(setxattr("f", "user.b", "1", 1, 0), EPERM);
	CHECK_ERRNO(removexattr("f", "user.a"), EPERM);
	CHECK_ERRNO(setxattr("f", "system.posix_acl_access", "\2\0\0\0", 4, 0), EPERM);
	struct statx stx;
	CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &stx) == 0 && stx.stx_attributes & STATX_ATTR_IMMUTABLE);
	/* Who has it open goes on, but on ext4; fallocate asks everywhere. */
	if (ext4) {
		CHECK_ERRNO(pwrite(fd, "x", 1, 0), EPERM);
		CHECK_ERRNO(ftruncate(fd, 3), EPERM);
		CHECK_ERRNO(set("f", usual | FS_IMMUTABLE_FL | FS_NODUMP_FL), EPERM);
	} else {
		CHECK_EQ(pwrite(fd, "x", 1, 0), 1);
		CHECK_OK(ftruncate(fd, 3));
		CHECK_OK(set("f", usual | FS_IMMUTABLE_FL | FS_NODUMP_FL));
	}
	CHECK_ERRNO(fallocate(fd, 0, 0, 10), EPERM);
	close(fd);
	CHECK_OK(set("f", usual));
	CHECK_OK(try("f", O_RDWR));
	CHECK_OK(unlink("f"));
	/* Directories: names. */
	REQUIRE(mkdir("d", 0755) == 0);
	make("d/f");
	CHECK_OK(set_extended("d", FS_XFLAG_IMMUTABLE, 0, 0));
	CHECK_EQ(flags_of("d"), usual | FS_IMMUTABLE_FL);
	CHECK_ERRNO(try("d/h", O_CREAT | O_WRONLY), EPERM);
	CHECK_ERRNO(open("d", O_TMPFILE | O_WRONLY, 0600), EPERM);
	CHECK_ERRNO(mkdir("d/h", 0755), EPERM);
	CHECK_ERRNO(unlink("d/f"), EPERM);
	CHECK_ERRNO(rename("d/f", "h"), EPERM);
	CHECK_ERRNO(rename("g", "d/g"), EPERM);
	CHECK_ERRNO(link("g", "d/g"), EPERM);
	CHECK_ERRNO(rmdir("d"), EPERM);
	CHECK_OK(try("d/f", O_RDWR | O_TRUNC));
	CHECK_OK(set("d", usual));
	CHECK_OK(unlink("d/f"));
	rmdir("d");
	unlink("g");
}

static void append_only(void)
{
	unsigned usual = memory ? 0 : FS_EXTENT_FL;
	struct timeval times[2] = { { 5, 0 }, { 5, 0 } };
	make("f");
	make("g");
	CHECK_OK(set("f", usual | FS_APPEND_FL));
	CHECK_ERRNO(try("f", O_WRONLY), EPERM);
	CHECK_ERRNO(try("f", O_WRONLY | O_APPEND | O_TRUNC), EPERM);
	CHECK_OK(try("f", O_RDONLY));
	int fd = open("f", O_WRONLY | O_APPEND);
	CHECK(fd >= 0 && write(fd, "678", 3) == 3);
	CHECK_ERRNO(fcntl(fd, F_SETFL, 0), EPERM);
	CHECK_OK(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
	CHECK_ERRNO(ftruncate(fd, 1), EPERM);
	CHECK_ERRNO(truncate("f", 1), EPERM);
	CHECK_OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100));
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 1), EPERM);
	close(fd);
	CHECK_OK(access("f", W_OK));
	CHECK_ERRNO(chmod("f", 0600), EPERM);
	CHECK_ERRNO(utimes("f", times), EPERM);
	CHECK_OK(utimes("f", NULL));
	CHECK_ERRNO(setxattr("f", "user.b", "1", 1, 0), EPERM);
	CHECK_ERRNO(unlink("f"), EPERM);
	CHECK_ERRNO(rename("f", "h"), EPERM);
	CHECK_ERRNO(link("f", "h"), EPERM);
	struct stat st;
	CHECK(stat("f", &st) == 0 && st.st_size == 8);
	CHECK_OK(set("f", usual));
	REQUIRE(mkdir("d", 0755) == 0);
	CHECK_OK(set("d", usual | FS_APPEND_FL));
	CHECK_OK(rename("f", "d/f"));
	CHECK_OK(mkdir("d/d", 0755));
	CHECK_ERRNO(rename("d/f", "f"), EPERM);
	CHECK_ERRNO(unlink("d/f"), EPERM);
	CHECK_ERRNO(rmdir("d/d"), EPERM);
	CHECK_OK(set("d", usual));
	CHECK_OK(rmdir("d/d"));
	unlink("d/f");
	rmdir("d");
	unlink("g");
}

static void everything(char *directory)
{
	struct statfs fs;
	REQUIRE(chdir(directory) == 0 && chmod(directory, 0755) == 0 && statfs(".", &fs) == 0);
	memory = fs.f_type == TMPFS_MAGIC;
	ext4 = fs.f_type == EXT4_SUPER_MAGIC;
	if (memory || ext4 || fs.f_type == OVERLAYFS_SUPER_MAGIC) {
		unsigned usual = memory ? 0 : FS_EXTENT_FL;
		make("f");
		privileged = set("f", usual | FS_IMMUTABLE_FL) == 0;
		REQUIRE(privileged || errno == EPERM);
		REQUIRE(set("f", usual) == 0);
		unlink("f");
		plain();
		if (getuid() == 0)
			owners();
		/* "Only the superuser or a process possessing the CAP_LINUX_IMMUTABLE capability" (chattr(1)). */
		if (privileged) {
			immutable();
			append_only();
		}
	}
	rmdir(directory);
}

int main(void)
{
	everything(tap_directory());
	char in_memory[] = "/dev/shm/iflags-XXXXXX", on_disk[] = "/var/tmp/iflags-XXXXXX";
	REQUIRE(mkdtemp(in_memory));
	everything(in_memory);
	REQUIRE(mkdtemp(on_disk));
	everything(on_disk);
	return tap_done();
}
