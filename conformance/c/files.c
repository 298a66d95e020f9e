/*
 * Regular files: open(2), read(2), write(2), lseek(2), pread(2), readv(2), truncate(2), fallocate(2), dup(2), fcntl(2),
 * flock(2), sendfile(2), copy_file_range(2), fsync(2), and the devices null, zero, full and urandom.
 */
#include "tap.h"
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

static int make(const char *name, const char *text)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

static int holds(const char *name, const char *text)
{
	char buffer[256];
	int fd = open(name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, buffer, sizeof buffer);
	close(fd);
	return n == (ssize_t)strlen(text) && !memcmp(buffer, text, n);
}

static void opening(void)
{
	struct stat st;
	CHECK_ERRNO(open("none", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("none/x", O_RDWR | O_CREAT, 0600), ENOENT);
	int fd = open("f", O_WRONLY | O_CREAT | O_EXCL, 0666);
	CHECK(fd >= 0);
	CHECK_ERRNO(open("f", O_WRONLY | O_CREAT | O_EXCL, 0666), EEXIST);
	CHECK(fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && st.st_nlink == 1);
	CHECK_EQ(st.st_mode & 0777, 0644);
	CHECK_EQ(write(fd, "hello", 5), 5);
	char c;
	CHECK_ERRNO(read(fd, &c, 1), EBADF);
	close(fd);
	fd = open("f", O_RDONLY);
	CHECK_ERRNO(write(fd, "x", 1), EBADF);
	CHECK_ERRNO(ftruncate(fd, 0), EINVAL);
	CHECK_EQ(fcntl(fd, F_GETFL) & ~0100000, O_RDONLY);
	close(fd);
	CHECK_ERRNO(close(fd), EBADF);
	CHECK_ERRNO(close(-1), EBADF);
	CHECK_ERRNO(open("f/x", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open("f/", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
	CHECK_ERRNO(open(".", O_WRONLY), EISDIR);
	CHECK_ERRNO(open(".", O_RDWR | O_CREAT, 0600), EISDIR);
	CHECK_ERRNO(open(BAD, O_RDONLY), EFAULT);
	static char longest[PATH_MAX + 8];
	memset(longest, 'n', 256);
	CHECK_ERRNO(open(longest, O_RDONLY), ENAMETOOLONG);
	memset(longest, '/', sizeof longest - 1);
	CHECK_ERRNO(open(longest, O_RDONLY), ENAMETOOLONG);
	fd = open("f", O_WRONLY | O_TRUNC);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
	close(fd);
	/* The lowest free descriptor is used. */
	int a = open("f", O_RDONLY), b = open("f", O_RDONLY), d = open("f", O_RDONLY);
	CHECK(a < b && b < d);
	close(a);
	CHECK_EQ(open("f", O_RDONLY), a);
	close(a), close(b), close(d);
	/* The umask applies. */
	mode_t old = umask(077);
	fd = open("g", O_CREAT | O_WRONLY, 0777);
	CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0700);
	CHECK_EQ(umask(old), 077);
	close(fd);
	unlink("g");
	/* A file created read-only can be written through the creating descriptor. */
	fd = open("g", O_CREAT | O_RDWR, 0400);
	CHECK_EQ(write(fd, "x", 1), 1);
	close(fd);
	unlink("g");
	fd = open("f", O_PATH);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK_ERRNO(read(fd, &c, 1), EBADF);
	close(fd);
	fd = open(".", O_TMPFILE | O_RDWR, 0600);
	if (fd >= 0)
		close(fd);
	unlink("f");
}

static void offsets(void)
{
	char buffer[64];
	int fd = make("f", "0123456789");
	CHECK_EQ(read(fd, buffer, 4), 4);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
	CHECK_EQ(lseek(fd, -2, SEEK_END), 8);
	CHECK_EQ(read(fd, buffer, sizeof buffer), 2);
	CHECK_EQ(read(fd, buffer, sizeof buffer), 0);
	CHECK_ERRNO(lseek(fd, -1, SEEK_SET), EINVAL);
	CHECK_ERRNO(lseek(fd, 0, 99), EINVAL);
	CHECK_ERRNO(lseek(-1, 0, SEEK_SET), EBADF);
	CHECK_EQ(lseek(fd, -5, SEEK_CUR), 5);
	CHECK_EQ(pread(fd, buffer, 3, 1), 3);
	CHECK(!memcmp(buffer, "123", 3));
	CHECK_EQ(pwrite(fd, "ab", 2, 9), 2);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
	CHECK(holds("f", "012345678ab"));
	CHECK_ERRNO(pread(fd, buffer, 1, -1), EINVAL);
	CHECK_ERRNO(pwrite(fd, buffer, 1, -1), EINVAL);
	CHECK_EQ(pread(fd, buffer, 5, 100), 0);
	CHECK_ERRNO(pread(fd, BAD, 1, 0), EFAULT);
	CHECK_ERRNO(pwrite(fd, BAD, 1, 0), EFAULT);
	CHECK_EQ(read(fd, BAD, 0), 0);
	/* A hole reads as zeros. */
	CHECK_EQ(lseek(fd, 20000, SEEK_SET), 20000);
	CHECK_EQ(write(fd, "z", 1), 1);
	memset(buffer, 1, sizeof buffer);
	CHECK_EQ(pread(fd, buffer, sizeof buffer, 10000), (long)sizeof buffer);
	int sum = 0;
	for (unsigned i = 0; i < sizeof buffer; i++)
		sum += buffer[i];
	CHECK_EQ(sum, 0);
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_size == 20001);
	CHECK_EQ(lseek(fd, 0, SEEK_DATA), 0);
	CHECK_EQ(lseek(fd, 20000, SEEK_HOLE), 20001);
	CHECK_ERRNO(lseek(fd, 20001, SEEK_DATA), ENXIO);
	close(fd);

	/* O_APPEND: every write goes to the end, wherever the offset is. */
	fd = make("f", "abc");
	int app = open("f", O_RDWR | O_APPEND);
	CHECK_EQ(write(app, "d", 1), 1);
	CHECK_EQ(pwrite(fd, "ef", 2, 4), 2);
	CHECK_EQ(lseek(app, 0, SEEK_SET), 0);
	CHECK_EQ(write(app, "g", 1), 1);
	CHECK_EQ(lseek(app, 0, SEEK_CUR), 7);
	/* "If a file is opened with O_APPEND, on Linux, pwrite() appends data to the end of the file". */
	CHECK_EQ(pwrite(app, "h", 1, 0), 1);
	CHECK(holds("f", "abcdefgh"));
	CHECK_EQ(fcntl(app, F_SETFL, 0), 0);
	CHECK_EQ(pwrite(app, "A", 1, 0), 1);
	CHECK(holds("f", "Abcdefgh"));
	close(app);
	close(fd);
	unlink("f");
}

static void vectors(void)
{
	int fd = make("f", "");
	char a[4], b[4];
	struct iovec out[3] = { { "one", 3 }, { "", 0 }, { "two", 3 } };
	CHECK_EQ(writev(fd, out, 3), 6);
	struct iovec in[2] = { { a, 4 }, { b, 4 } };
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(readv(fd, in, 2), 6);
	CHECK(!memcmp(a, "onet", 4) && !memcmp(b, "wo", 2));
	CHECK_EQ(preadv(fd, in, 2, 2), 4);
	CHECK(!memcmp(a, "etwo", 4));
	CHECK_EQ(pwritev(fd, out, 1, 3), 3);
	CHECK(holds("f", "oneone"));
	CHECK_EQ(writev(fd, out, 0), 0);
	CHECK_ERRNO(writev(fd, out, -1), EINVAL);
	CHECK_ERRNO(readv(fd, in, 1025), EINVAL);
	CHECK_ERRNO(writev(fd, BAD, 1), EFAULT);
	in[1].iov_len = (size_t)SSIZE_MAX + 1;
	CHECK_ERRNO(readv(fd, in, 2), EINVAL);
	close(fd);
	unlink("f");
}

/* linux/falloc.h, which older headers do not have whole. */
struct space {
	short l_type, l_whence;
	long l_start, l_len;
	int rest[6];
};
enum { RESERVE = 0x40305828, UNRESERVE = 0x40305829, RESERVE64 = 0x4030582a };

static void sizes(void)
{
	struct stat st;
	char buffer[8];
	int fd = make("f", "0123456789");
	CHECK_EQ(ftruncate(fd, 4), 0);
	CHECK(holds("f", "0123"));
	CHECK_EQ(ftruncate(fd, 6), 0);
	CHECK_EQ(pread(fd, buffer, 8, 0), 6);
	CHECK(!memcmp(buffer, "0123\0\0", 6));
	CHECK_ERRNO(ftruncate(fd, -1), EINVAL);
	CHECK_EQ(truncate("f", 2), 0);
	CHECK(holds("f", "01"));
	CHECK_ERRNO(truncate("none", 0), ENOENT);
	CHECK_ERRNO(truncate(".", 0), EISDIR);
	CHECK_EQ(fallocate(fd, 0, 0, 8192), 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 8192 && st.st_blocks == 16);
	CHECK_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE, 8192, 8192), 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 8192 && st.st_blocks == 32);
	/* What is written there takes no more; what is cut off is given back. */
	CHECK(pwrite(fd, "x", 1, 4096) == 1 && fsync(fd) == 0 && fstat(fd, &st) == 0 && st.st_blocks == 32);
	CHECK(lseek(fd, 8192, SEEK_HOLE) == -1 && errno == ENXIO);
	CHECK(ftruncate(fd, 8192) == 0 && fstat(fd, &st) == 0 && st.st_blocks == 16);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0 && fstat(fd, &st) == 0 &&
	      st.st_blocks == 8);
	CHECK_ERRNO(fallocate(fd, 0, -1, 1), EINVAL);
	CHECK_ERRNO(fallocate(fd, 0, 0, 0), EINVAL);
	CHECK_EQ(posix_fallocate(fd, 0, 100), 0);
	CHECK(pread(fd, buffer, 2, 0) == 2 && !memcmp(buffer, "01", 2));
	CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
	CHECK(pread(fd, buffer, 2, 0) == 2 && !memcmp(buffer, "\0\0", 2));
	CHECK_EQ(fsync(fd), 0);
	CHECK_EQ(fdatasync(fd), 0);
	CHECK_ERRNO(fsync(-1), EBADF);
	CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL), 0);
	CHECK_EQ(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE), 0);
	sync();
	CHECK_EQ(syncfs(fd), 0);
	int waiting = 0;
	REQUIRE(lseek(fd, 8000, SEEK_SET) == 8000);
	CHECK_EQ(ioctl(fd, FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 192);
	CHECK_ERRNO(ioctl(fd, TCGETS, buffer), ENOTTY);
	CHECK_EQ(isatty(fd), 0);
	/* fallocate(2) as ioctl(2) has it: from the beginning, from here, from the end. */
	struct space space = { .l_whence = SEEK_SET, .l_start = 4096, .l_len = 8192 };
	CHECK_EQ(ioctl(fd, RESERVE64, &space), 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 8192);
	REQUIRE(pwrite(fd, "here", 4, 4096) == 4 && lseek(fd, 4096, SEEK_SET) == 4096);
	space = (struct space){ .l_whence = SEEK_CUR, .l_start = 0, .l_len = 4096 };
	CHECK_EQ(ioctl(fd, UNRESERVE, &space), 0);
	CHECK(pread(fd, buffer, 4, 4096) == 4 && !memcmp(buffer, "\0\0\0", 4));
	space = (struct space){ .l_whence = SEEK_END, .l_start = -8193, .l_len = 1 };
	CHECK_ERRNO(ioctl(fd, RESERVE, &space), EINVAL);
	space.l_whence = 9;
	CHECK_ERRNO(ioctl(fd, RESERVE, &space), EINVAL);
	CHECK_ERRNO(ioctl(fd, RESERVE, (void *)8), EFAULT);
	close(fd);
	/* A size limit: EFBIG and SIGXFSZ. */
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit limit = { 10, 10 };
		signal(SIGXFSZ, SIG_IGN);
		REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
		fd = open("f", O_WRONLY | O_TRUNC);
		REQUIRE(write(fd, "0123456789abc", 13) == 10);
		REQUIRE(write(fd, "x", 1) == -1 && errno == EFBIG);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	unlink("f");
}

static void duplicates(void)
{
	int fd = make("f", "abcdef");
	char c;
	int copy = dup(fd);
	CHECK(copy > fd);
	CHECK(read(fd, &c, 1) == 1 && read(copy, &c, 1) == 1 && c == 'b');
	CHECK_EQ(dup2(fd, fd), fd);
	CHECK_EQ(dup2(fd, 77), 77);
	CHECK(read(77, &c, 1) == 1 && c == 'c');
	CHECK_ERRNO(dup2(-1, 78), EBADF);
	CHECK_ERRNO(dup2(fd, -1), EBADF);
	CHECK_ERRNO(dup2(fd, 1 << 30), EBADF);
	CHECK_ERRNO(dup(-1), EBADF);
	CHECK_ERRNO(dup3(fd, fd, 0), EINVAL);
	CHECK_ERRNO(dup3(fd, 78, O_NONBLOCK), EINVAL);
	CHECK_EQ(dup3(fd, 78, O_CLOEXEC), 78);
	CHECK_EQ(fcntl(78, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(77, F_GETFD), 0);
	CHECK_EQ(fcntl(fd, F_DUPFD, 77), 79);
	CHECK_EQ(fcntl(fd, F_DUPFD_CLOEXEC, 100), 100);
	CHECK_EQ(fcntl(100, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(100, F_SETFD, 0), 0);
	CHECK_EQ(fcntl(100, F_GETFD), 0);
	CHECK_ERRNO(fcntl(fd, F_DUPFD, -1), EINVAL);
	CHECK_ERRNO(fcntl(-1, F_GETFD), EBADF);
	CHECK_ERRNO(fcntl(fd, 9999), EINVAL);
	/* Status flags belong to the open file, which the copies share. */
	CHECK_EQ(fcntl(fd, F_SETFL, O_APPEND), 0);
	CHECK(fcntl(copy, F_GETFL) & O_APPEND);
	CHECK_EQ(close_range(77, 100, 0), 0);
	CHECK_ERRNO(fcntl(79, F_GETFD), EBADF);
	struct rlimit limit, small;
	REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	small = (struct rlimit){ copy + 1, limit.rlim_max };
	REQUIRE(setrlimit(RLIMIT_NOFILE, &small) == 0);
	CHECK_ERRNO(dup(fd), EMFILE);
	CHECK_ERRNO(open("f", O_RDONLY), EMFILE);
	CHECK_ERRNO(fcntl(fd, F_DUPFD, copy + 1), EINVAL);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	close(copy);
	close(fd);
	unlink("f");
}

static void locks(void)
{
	int status, fd = make("f", "abcdef"), other = open("f", O_RDWR);
	CHECK_EQ(flock(fd, LOCK_EX), 0);
	CHECK_ERRNO(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	CHECK_EQ(flock(fd, LOCK_SH), 0);
	CHECK_EQ(flock(other, LOCK_SH | LOCK_NB), 0);
	CHECK_ERRNO(flock(fd, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK_EQ(flock(other, LOCK_UN), 0);
	CHECK_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
	CHECK_ERRNO(flock(fd, 0), EINVAL);
	/* A waiting flock goes on when the holder's last descriptor is closed. */
	pid_t pid = fork();
	if (pid == 0) {
		close(fd);
		_exit(flock(other, LOCK_EX) == 0 ? 0 : 1);
	}
	close(fd);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(other);

	fd = open("f", O_RDWR);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 2 };
	CHECK_EQ(fcntl(fd, F_SETLK, &lock), 0);
	pid_t me = getpid();
	int ready[2];
	char c;
	REQUIRE(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0 };
		REQUIRE(fcntl(fd, F_GETLK, &l) == 0 && l.l_type == F_WRLCK && l.l_pid == me && l.l_start == 2 &&
			l.l_len == 2);
		l = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 1 };
		REQUIRE(fcntl(fd, F_SETLK, &l) == -1 && (errno == EAGAIN || errno == EACCES));
		l.l_start = 4;
		REQUIRE(fcntl(fd, F_SETLK, &l) == 0);
		REQUIRE(write(ready[1], "r", 1) == 1);
		l.l_start = 2;
		REQUIRE(fcntl(fd, F_SETLKW, &l) == 0);
		_exit(0);
	}
	/* Closing any descriptor of the file gives up the process's locks: the child's F_SETLKW goes on. */
	CHECK_EQ(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	int again = open("f", O_RDONLY);
	lock = (struct flock){ .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 1 };
	CHECK_EQ(fcntl(fd, F_SETLK, &lock), 0);
	close(again);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK_EQ(fcntl(fd, F_GETLK, &lock), 0);
	CHECK_EQ(lock.l_type, F_UNLCK);
	lock.l_type = 77;
	CHECK_ERRNO(fcntl(fd, F_SETLK, &lock), EINVAL);
	/* Locks of open file descriptions conflict within a process. */
	other = open("f", O_RDWR);
	lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
	CHECK_ERRNO(fcntl(other, F_OFD_SETLK, &lock), EAGAIN);
	close(fd);
	CHECK_EQ(fcntl(other, F_OFD_SETLK, &lock), 0);
	close(other);
	unlink("f");
}

static int is_zero(int fd, off_t from, size_t n)
{
	char bytes[8192];
	REQUIRE(n <= sizeof bytes && pread(fd, bytes, n, from) == (ssize_t)n);
	while (n > 0 && bytes[n - 1] == 0)
		n--;
	return n == 0;
}

/* FALLOC_FL_ZERO_RANGE, of file systems that have it, and what is refused before a file system is asked. */
static void zero_ranges(void)
{
	int fd = make("f", "0123456789"), memory = memfd_create("m", 0);
	char bytes[8192];
	struct stat st;
	memset(bytes, 'x', sizeof bytes);
	REQUIRE(pwrite(fd, bytes, sizeof bytes, 0) == sizeof bytes && fsync(fd) == 0);
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EOPNOTSUPP);
	/* EINVAL as well; EOPNOTSUPP in later kernels. */
	CHECK(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1 &&
	      (errno == EINVAL || errno == EOPNOTSUPP));
	CHECK(fallocate(fd, FALLOC_FL_INSERT_RANGE | FALLOC_FL_ZERO_RANGE, 0, 4096) == -1 &&
	      (errno == EINVAL || errno == EOPNOTSUPP));
	CHECK_ERRNO(fallocate(memory, FALLOC_FL_ZERO_RANGE, 0, 4096), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(memory, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(memory, FALLOC_FL_INSERT_RANGE, 0, 4096), EOPNOTSUPP);
	if (fallocate(fd, FALLOC_FL_ZERO_RANGE, 100, 50) == -1 && errno == EOPNOTSUPP) {
		close(fd), close(memory);
		return;
	}
	CHECK(is_zero(fd, 100, 50) && !is_zero(fd, 99, 1) && !is_zero(fd, 150, 1));
	/* Blocks that are zeroed as a whole stay the file's. */
	CHECK_OK(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
	CHECK(fstat(fd, &st) == 0 && st.st_size == 8192 && st.st_blocks == 24);
	CHECK(is_zero(fd, 4096, 4096));
	CHECK_OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 12000, 3000));
	CHECK(fstat(fd, &st) == 0 && st.st_size == 15000 && st.st_blocks == 32);
	CHECK(is_zero(fd, 8192, 6808));
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 0), EINVAL);
	close(fd), close(memory);
	unlink("f");
}

static void copying(void)
{
	int in = make("in", "0123456789"), out = make("out", ""), fds[2];
	off_t at = 2;
	char buffer[16];
	REQUIRE(pipe(fds) == 0);
	CHECK_EQ(sendfile(out, in, &at, 3), 3);
	CHECK(at == 5 && lseek(in, 0, SEEK_CUR) == 0);
	CHECK(holds("out", "234"));
	CHECK_EQ(sendfile(fds[1], in, NULL, 100), 10);
	CHECK_EQ(lseek(in, 0, SEEK_CUR), 10);
	CHECK(read(fds[0], buffer, 16) == 10 && !memcmp(buffer, "0123456789", 10));
	CHECK_EQ(sendfile(fds[1], in, NULL, 100), 0);
	CHECK_ERRNO(sendfile(fds[1], fds[0], NULL, 1), EINVAL);
	CHECK_ERRNO(sendfile(out, -1, NULL, 1), EBADF);
	off64_t from = 8, to = 0;
	CHECK_EQ(copy_file_range(in, &from, out, &to, 10, 0), 2);
	CHECK(from == 10 && to == 2 && holds("out", "894"));
	CHECK_ERRNO(copy_file_range(in, &from, out, &to, 1, 1), EINVAL);
	close(in), close(out), close(fds[0]), close(fds[1]);
	unlink("in"), unlink("out");
}

/* A pattern that no shift maps to itself. */
static char pattern(size_t at)
{
	return (char)(at * 2654435761u >> 24);
}

#define MUCH 3000000

/* sendfile(2) and copy_file_range(2) move all that was asked for, also where they have to wait. */
static void copying_much(void)
{
	static char data[MUCH], back[MUCH];
	for (size_t i = 0; i < MUCH; i++)
		data[i] = pattern(i);
	int in = make("in", ""), out = make("out", ""), fds[2];
	REQUIRE(pwrite(in, data, MUCH, 0) == MUCH && pipe(fds) == 0);
	CHECK_EQ(sendfile(out, in, NULL, 1 << 30), MUCH);
	CHECK(lseek(in, 0, SEEK_CUR) == MUCH && lseek(out, 0, SEEK_CUR) == MUCH);
	CHECK(pread(out, back, MUCH, 0) == MUCH && memcmp(data, back, MUCH) == 0);
	off_t at = 5;
	CHECK_EQ(sendfile(out, in, &at, MUCH - 10), MUCH - 10);
	CHECK_EQ(at, MUCH - 5);
	REQUIRE(ftruncate(out, 0) == 0);
	off64_t from = 1, to = 0;
	CHECK_EQ(copy_file_range(in, &from, out, &to, MUCH, 0), MUCH - 1);
	CHECK(from == MUCH && to == MUCH - 1);
	CHECK(pread(out, back, MUCH, 0) == MUCH - 1 && memcmp(data + 1, back, MUCH - 1) == 0);

	/* Through a socket to a slow reader. */
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int server = socket(AF_INET, SOCK_STREAM, 0);
	fds[1] = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(bind(server, (void *)&address, length) == 0 && listen(server, 1) == 0);
	REQUIRE(getsockname(server, (void *)&address, &length) == 0);
	REQUIRE(connect(fds[1], (void *)&address, length) == 0 && (fds[0] = accept(server, NULL, NULL)) >= 0);
	close(server);
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[1]);
		size_t got = 0;
		ssize_t n;
		while ((n = read(fds[0], back + got, 30000)) > 0)
			got += n;
		_exit(got != MUCH - 3 || memcmp(back, data + 3, got) != 0);
	}
	close(fds[0]);
	at = 3;
	CHECK_EQ(sendfile(fds[1], in, &at, MUCH), MUCH - 3);
	CHECK_EQ(at, MUCH);
	close(fds[1]);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);

	/* A pipe is filled once, by pages of the file, after it has room for one. */
	REQUIRE(pipe(fds) == 0);
	at = 3;
	CHECK(sendfile(fds[1], in, &at, MUCH) == 65533 && at == 65536);
	pid = fork();
	if (pid == 0) {
		usleep(5000);
		_exit(read(fds[0], back, 65533) != 65533 || memcmp(back, data + 3, 65533) != 0);
	}
	CHECK(sendfile(fds[1], in, &at, MUCH) > 0 && at > 65536);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(fds[0]), close(fds[1]);
	REQUIRE(pipe2(fds, O_NONBLOCK) == 0);
	at = 0;
	CHECK(sendfile(fds[1], in, &at, MUCH) == 65536 && at == 65536);
	CHECK_ERRNO(sendfile(fds[1], in, &at, MUCH), EAGAIN);
	CHECK_EQ(at, 65536);
	close(fds[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK_ERRNO(sendfile(fds[1], in, &at, MUCH), EPIPE);
	signal(SIGPIPE, SIG_DFL);
	close(fds[1]);
	close(in), close(out);
	unlink("in"), unlink("out");
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	(void)signal;
	alarms++;
}

/* A signal ends a transfer that has moved something; the offset tells how much. */
static void interrupted_copy(void)
{
	static char data[MUCH];
	int in = make("in", ""), fds[2];
	REQUIRE(pwrite(in, data, MUCH, 0) == MUCH && socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	struct sigaction action = { .sa_handler = on_alarm }, old;
	sigaction(SIGALRM, &action, &old);
	struct itimerval soon = { .it_value = { 0, 20000 } };
	setitimer(ITIMER_REAL, &soon, NULL);
	ssize_t moved = sendfile(fds[1], in, NULL, MUCH);
	CHECK(moved > 0 && moved < MUCH && alarms == 1);
	CHECK_EQ(lseek(in, 0, SEEK_CUR) - moved, 0);
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK_ERRNO(sendfile(fds[1], in, NULL, MUCH), EINTR);
	CHECK(alarms == 2 && lseek(in, 0, SEEK_CUR) == moved);
	sigaction(SIGALRM, &old, NULL);
	close(in), close(fds[0]), close(fds[1]);
	unlink("in");
}

static void devices(void)
{
	unsigned char buffer[64];
	struct stat st;
	int fd = open("/dev/null", O_RDWR);
	CHECK_EQ(write(fd, "abc", 3), 3);
	CHECK_EQ(read(fd, buffer, 8), 0);
	CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode));
	CHECK_EQ(lseek(fd, 100, SEEK_SET), 0);
	close(fd);
	fd = open("/dev/zero", O_RDWR);
	memset(buffer, 1, sizeof buffer);
	CHECK_EQ(read(fd, buffer, sizeof buffer), (long)sizeof buffer);
	int sum = 0;
	for (unsigned i = 0; i < sizeof buffer; i++)
		sum += buffer[i];
	CHECK_EQ(sum, 0);
	CHECK_EQ(write(fd, "abc", 3), 3);
	close(fd);
	fd = open("/dev/full", O_RDWR);
	CHECK_ERRNO(write(fd, "abc", 3), ENOSPC);
	CHECK_EQ(read(fd, buffer, 8), 8);
	close(fd);
	unsigned char other[64];
	fd = open("/dev/urandom", O_RDONLY);
	CHECK_EQ(read(fd, buffer, sizeof buffer), (long)sizeof buffer);
	CHECK_EQ(read(fd, other, sizeof other), (long)sizeof other);
	CHECK(memcmp(buffer, other, sizeof other) != 0);
	close(fd);
	CHECK_EQ(getrandom(buffer, sizeof buffer, 0), (long)sizeof buffer);
	CHECK_EQ(getrandom(buffer, 16, GRND_NONBLOCK), 16);
	CHECK_ERRNO(getrandom(buffer, 16, 0x100), EINVAL);
	CHECK_ERRNO(getrandom(BAD, 16, 0), EFAULT);
}

static void unlinked(void)
{
	struct stat st;
	char buffer[8];
	int fd = make("f", "abc");
	CHECK_EQ(unlink("f"), 0);
	CHECK_ERRNO(open("f", O_RDONLY), ENOENT);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK_EQ(write(fd, "ABCDE", 5), 5);
	CHECK(pread(fd, buffer, 8, 0) == 5 && !memcmp(buffer, "ABCDE", 5));
	/* The name can be taken by another file meanwhile. */
	int other = make("f", "other");
	CHECK(pread(fd, buffer, 8, 0) == 5 && !memcmp(buffer, "ABCDE", 5));
	close(other);
	close(fd);
	CHECK(holds("f", "other"));
	unlink("f");
}

int main(void)
{
	umask(022);
	char *directory = tap_directory();
	opening();
	offsets();
	vectors();
	sizes();
	duplicates();
	locks();
	zero_ranges();
	copying();
	copying_much();
	interrupted_copy();
	devices();
	unlinked();
	CHECK_EQ(chdir("/"), 0);
	CHECK_EQ(rmdir(directory), 0);
	return tap_done();
}
