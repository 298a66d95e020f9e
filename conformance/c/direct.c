/* O_DIRECT (open(2)): what can be open with it, and which transfers it allows. tmpfs takes it since Linux 6.6 and is left out, and so
 * are addresses that are multiples of 4: how they must be aligned is the disk's affair. */
#include "tap.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

static void who_can(void)
{
	CHECK_ERRNO(open(".", O_RDONLY | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("/dev/null", O_RDWR | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("/dev/urandom", O_RDONLY | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("/proc/version", O_RDONLY | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("/proc", O_RDONLY | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("none", O_RDONLY | O_DIRECT), ENOENT);
	int fd = open(".", O_PATH | O_DIRECT);
	CHECK(fd >= 0);
	close(fd);
	fd = open("/dev/null", O_RDWR);
	CHECK_ERRNO(fcntl(fd, F_SETFL, O_DIRECT), EINVAL);
	CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	close(fd);
	fd = open(".", O_RDONLY);
	CHECK_ERRNO(fcntl(fd, F_SETFL, O_DIRECT), EINVAL);
	close(fd);
	int ends[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK_ERRNO(fcntl(ends[0], F_SETFL, O_DIRECT), EINVAL);
	close(ends[0]), close(ends[1]);
	/* Of a pipe it makes packets. */
	REQUIRE(pipe(ends) == 0);
	CHECK_EQ(fcntl(ends[1], F_SETFL, O_DIRECT), 0);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
	CHECK_ERRNO(open(path, O_WRONLY | O_DIRECT), EINVAL);
	close(ends[0]), close(ends[1]);
}

/* The open of a fifo meets the other side before it fails. */
static void fifos(void)
{
	int status;
	REQUIRE(mkfifo("fifo", 0600) == 0);
	CHECK_ERRNO(open("fifo", O_RDWR | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("fifo", O_RDONLY | O_NONBLOCK | O_DIRECT), EINVAL);
	CHECK_ERRNO(open("fifo", O_WRONLY | O_NONBLOCK | O_DIRECT), ENXIO);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		int fd = open("fifo", O_RDONLY);
		_exit(fd >= 0 && read(fd, &byte, 1) == 0 ? 0 : 1);
	}
	CHECK_ERRNO(open("fifo", O_WRONLY | O_DIRECT), EINVAL);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	pid = fork();
	if (pid == 0)
		_exit(open("fifo", O_RDONLY | O_DIRECT) == -1 && errno == EINVAL ? 0 : 1);
	int fd = open("fifo", O_WRONLY);
	CHECK(fd >= 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(fd);
	REQUIRE(unlink("fifo") == 0);
}

static void transfers(void)
{
	static char buffer[3 * 4096] __attribute__((aligned(4096)));
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (fd == -1 && errno == EINVAL)
		return;
	CHECK_EQ(fcntl(fd, F_GETFL) & O_DIRECT, O_DIRECT);
	CHECK_EQ(write(fd, buffer, 4096), 4096);
	CHECK_EQ(pwrite(fd, buffer, 8192, 4096), 8192);
	CHECK_ERRNO(pwrite(fd, buffer, 4096, 1), EINVAL);
	CHECK_ERRNO(pwrite(fd, buffer, 1, 0), EINVAL);
	CHECK_ERRNO(pwrite(fd, buffer + 1, 4096, 0), EINVAL);
	CHECK_ERRNO(pread(fd, buffer, 4096, 1), EINVAL);
	CHECK_ERRNO(pread(fd, buffer, 100, 0), EINVAL);
	CHECK_ERRNO(pread(fd, buffer + 1, 4096, 0), EINVAL);
	CHECK_EQ(pread(fd, buffer, 4096, 4096), 4096);
	CHECK_EQ(pread(fd, buffer, 0, 1), 0);
	/* All of the parts are looked at. */
	struct iovec parts[2] = { { buffer, 4096 }, { buffer + 4096, 4096 } };
	CHECK_EQ(preadv(fd, parts, 2, 0), 8192);
	parts[0].iov_len = 4000;
	CHECK_ERRNO(preadv(fd, parts, 2, 0), EINVAL);
	CHECK_ERRNO(pwritev(fd, parts, 2, 0), EINVAL);
	/* Behind the end there is nothing to be aligned. */
	CHECK_EQ(pread(fd, buffer, 4096, 3 * 4096), 0);
	CHECK_EQ(pread(fd, buffer + 1, 4096, 3 * 4096), 0);
	/* A file whose end is not aligned is read to it. */
	REQUIRE(ftruncate(fd, 4096 + 100) == 0);
	CHECK_EQ(pread(fd, buffer, 8192, 0), 4196);
	CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
	CHECK_EQ(pwrite(fd, buffer + 1, 10, 5), 10);
	CHECK_EQ(fcntl(fd, F_SETFL, O_DIRECT), 0);
	CHECK_ERRNO(pwrite(fd, buffer + 1, 10, 5), EINVAL);
	CHECK_EQ(fcntl(fd, F_SETFL, O_DIRECT | O_APPEND), 0);
	CHECK_ERRNO(write(fd, buffer, 4096), EINVAL);
	close(fd);
	REQUIRE(unlink("f") == 0);
}

int main(void)
{
	tap_directory();
	who_can();
	fifos();
	transfers();
	return tap_done();
}
