/* Pipes and FIFOs: pipe(2), pipe(7), fifo(7), fcntl(2), packet mode; splice family left out. */
#include "tap.h"
#include "turns.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char block[1 << 20];

static void basics(void)
{
	int fds[2];
	char buffer[16];
	CHECK_EQ(pipe(fds), 0);
	CHECK(fds[0] != fds[1]);
	CHECK_EQ(fcntl(fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	CHECK_EQ(fcntl(fds[1], F_GETFL) & O_ACCMODE, O_WRONLY);
	CHECK_EQ(fcntl(fds[0], F_GETFD), 0);
	CHECK_EQ(write(fds[1], "hello", 5), 5);
	CHECK_EQ(write(fds[1], "world", 5), 5);
	int waiting = 0;
	CHECK_EQ(ioctl(fds[0], FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 10);
	/* A pipe is a stream: no message boundaries. */
	CHECK_EQ(read(fds[0], buffer, 7), 7);
	CHECK(!memcmp(buffer, "hellowo", 7));
	CHECK_EQ(read(fds[0], buffer, sizeof buffer), 3);
	CHECK_EQ(write(fds[1], "", 0), 0);
	CHECK_ERRNO(read(fds[1], buffer, 1), EBADF);
	CHECK_ERRNO(write(fds[0], "x", 1), EBADF);
	CHECK_ERRNO(lseek(fds[0], 0, SEEK_SET), ESPIPE);
	CHECK_ERRNO(pread(fds[0], buffer, 1, 0), ESPIPE);
	CHECK_ERRNO(pwrite(fds[1], "x", 1, 0), ESPIPE);
	CHECK_ERRNO(ftruncate(fds[1], 0), EINVAL);
	CHECK_ERRNO(fsync(fds[1]), EINVAL);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK_ERRNO(read(fds[0], BAD, 1), EFAULT);
	CHECK_EQ(read(fds[0], buffer, 1), 1);
	CHECK_ERRNO(write(fds[1], BAD, 1), EFAULT);
	struct stat st;
	CHECK(fstat(fds[0], &st) == 0 && S_ISFIFO(st.st_mode) && st.st_size == 0);
	struct iovec parts[3] = { { "ab", 2 }, { "", 0 }, { "cde", 3 } };
	CHECK_EQ(writev(fds[1], parts, 3), 5);
	char first[3], second[8];
	struct iovec into[2] = { { first, 3 }, { second, 8 } };
	CHECK_EQ(readv(fds[0], into, 2), 5);
	CHECK(!memcmp(first, "abc", 3) && !memcmp(second, "de", 2));
	close(fds[1]);
	CHECK_EQ(read(fds[0], buffer, 1), 0);
	close(fds[0]);
	CHECK_ERRNO(read(fds[0], buffer, 1), EBADF);
	CHECK_ERRNO(pipe2(fds, 0x1), EINVAL);
	CHECK_ERRNO(pipe(BAD), EFAULT);
	CHECK_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	CHECK_EQ(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(fds[1], F_GETFL), O_WRONLY | O_NONBLOCK);
	close(fds[0]);
	close(fds[1]);
}

static void broken(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	close(fds[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK_ERRNO(write(fds[1], "x", 1), EPIPE);
	struct pollfd p = { fds[1], POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLOUT | POLLERR);
	signal(SIGPIPE, SIG_DFL);
	pid_t pid = fork();
	if (pid == 0) {
		ssize_t n = write(fds[1], "x", 1);
		_exit(n == 1);
	}
	int status;
	waitpid(pid, &status, 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
	close(fds[1]);
}

static volatile int told;

static void tell(int signal)
{
	(void)signal;
	told++;
}

/* The last reader goes while a write waits for room: it tells what it has written, and the signal comes all the same. */
static void broken_amid(void)
{
	int fds[2], status;
	REQUIRE(pipe(fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[1]);
		usleep(100000);
		_exit(0);
	}
	close(fds[0]);
	signal(SIGPIPE, tell);
	CHECK_EQ(write(fds[1], block, sizeof block), 65536);
	CHECK_EQ(told, 1);
	CHECK_ERRNO(write(fds[1], block, 1), EPIPE);
	CHECK_EQ(told, 2);
	signal(SIGPIPE, SIG_DFL);
	waitpid(pid, &status, 0);
	close(fds[1]);
}

static void capacity(void)
{
	int fds[2];
	REQUIRE(pipe2(fds, O_NONBLOCK) == 0);
	CHECK_EQ(fcntl(fds[0], F_GETPIPE_SZ), 65536);
	CHECK_ERRNO(read(fds[0], block, 1), EAGAIN);
	CHECK_EQ(write(fds[1], block, sizeof block), 65536);
	CHECK_ERRNO(write(fds[1], block, 1), EAGAIN);
	struct pollfd p = { fds[1], POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	/* A full pipe is writable again only when a whole page is free. */
	CHECK_EQ(read(fds[0], block, 4095), 4095);
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_EQ(read(fds[0], block, 1), 1);
	CHECK_EQ(poll(&p, 1, 0), 1);
	/* At most PIPE_BUF bytes are written all or not at all. */
	CHECK_EQ(write(fds[1], block, 4096), 4096);
	CHECK_EQ(read(fds[0], block, 4096), 4096);
	REQUIRE(write(fds[1], block, 1) == 1);
	CHECK_ERRNO(write(fds[1], block, 4096), EAGAIN);
	CHECK_EQ(read(fds[0], block, sizeof block), 61441);
	CHECK_EQ(fcntl(fds[1], F_SETPIPE_SZ, 1), 4096);
	CHECK_EQ(fcntl(fds[1], F_GETPIPE_SZ), 4096);
	CHECK_EQ(fcntl(fds[1], F_SETPIPE_SZ, 5000), 8192);
	CHECK_EQ(write(fds[1], block, sizeof block), 8192);
	CHECK_ERRNO(fcntl(fds[1], F_SETPIPE_SZ, 4096), EBUSY);
	CHECK_EQ(fcntl(fds[1], F_SETPIPE_SZ, 16384), 16384);
	CHECK_EQ(read(fds[0], block, sizeof block), 8192);
	close(fds[0]);
	close(fds[1]);
}

/* A blocking write of more than the capacity goes on while a reader drains, and reads block until there is data. */
static void blocking(void)
{
	int fds[2], back[2];
	REQUIRE(pipe(fds) == 0 && pipe(back) == 0);
	for (unsigned i = 0; i < sizeof block; i++)
		block[i] = (char)(i * 7 + i / 256);
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[1]);
		unsigned long total = 0, at = 0;
		char small[1000];
		for (ssize_t n; (n = read(fds[0], small, sizeof small)) > 0; total += n)
			for (ssize_t i = 0; i < n; i++, at++)
				REQUIRE(small[i] == (char)(at * 7 + at / 256));
		REQUIRE(write(back[1], &total, sizeof total) == sizeof total);
		_exit(0);
	}
	CHECK_EQ(write(fds[1], block, sizeof block), (long)sizeof block);
	close(fds[1]);
	unsigned long total = 0;
	CHECK_EQ(read(back[0], &total, sizeof total), 8);
	CHECK_EQ(total, sizeof block);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(fds[0]);
	/* A reader that waits is woken by the last writer's close. */
	REQUIRE(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {
		close(fds[1]);
		char c;
		_exit(read(fds[0], &c, 1) == 0 ? 0 : 1);
	}
	close(fds[1]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(fds[0]);
	close(back[0]);
	close(back[1]);
}

/* Writes of at most PIPE_BUF bytes by several processes are not mixed. */
static void atomicity(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	for (int writer = 0; writer < 3; writer++)
		if (fork() == 0) {
			char message[1024];
			memset(message, 'a' + writer, sizeof message);
			for (int i = 0; i < 50; i++)
				REQUIRE(write(fds[1], message, sizeof message) == sizeof message);
			_exit(0);
		}
	close(fds[1]);
	int counts[3] = { 0, 0, 0 }, mixed = 0;
	char message[1024];
	FILE *in = fdopen(fds[0], "r");
	while (fread(message, sizeof message, 1, in) == 1) {
		counts[message[0] - 'a']++;
		for (unsigned i = 1; i < sizeof message; i++)
			mixed += message[i] != message[0];
	}
	fclose(in);
	CHECK_EQ(mixed, 0);
	CHECK(counts[0] == 50 && counts[1] == 50 && counts[2] == 50);
	while (wait(NULL) > 0)
		;
}

static void fifos(void)
{
	char *directory = tap_directory();
	CHECK_EQ(mkfifo("fifo", 0640), 0);
	CHECK_ERRNO(mkfifo("fifo", 0640), EEXIST);
	struct stat st;
	CHECK(stat("fifo", &st) == 0 && S_ISFIFO(st.st_mode));
	CHECK_ERRNO(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO);
	int reader = open("fifo", O_RDONLY | O_NONBLOCK);
	CHECK(reader >= 0);
	char c;
	CHECK_EQ(read(reader, &c, 1), 0);
	int writer = open("fifo", O_WRONLY | O_NONBLOCK);
	CHECK(writer >= 0);
	CHECK_ERRNO(read(reader, &c, 1), EAGAIN);
	CHECK_EQ(write(writer, "x", 1), 1);
	CHECK_EQ(read(reader, &c, 1), 1);
	close(writer);
	CHECK_EQ(read(reader, &c, 1), 0);
	close(reader);
	/* Opening waits for the other side. */
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open("fifo", O_WRONLY);
		REQUIRE(fd >= 0 && write(fd, "y", 1) == 1);
		_exit(0);
	}
	reader = open("fifo", O_RDONLY);
	CHECK(reader >= 0 && read(reader, &c, 1) == 1 && c == 'y');
	CHECK_EQ(read(reader, &c, 1), 0);
	waitpid(pid, NULL, 0);
	close(reader);
	/* Opened for both it never waits. */
	reader = open("fifo", O_RDWR);
	CHECK(reader >= 0 && write(reader, "z", 1) == 1 && read(reader, &c, 1) == 1);
	close(reader);
	unlink("fifo");
	REQUIRE(chdir("/") == 0 && rmdir(directory) == 0);
}

static void polling(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	struct pollfd both[2] = { { fds[0], POLLIN, 0 }, { fds[1], POLLOUT, 0 } };
	CHECK_EQ(poll(both, 2, 0), 1);
	CHECK(both[0].revents == 0 && both[1].revents == POLLOUT);
	REQUIRE(write(fds[1], "x", 1) == 1);
	CHECK_EQ(poll(both, 2, -1), 2);
	CHECK_EQ(both[0].revents, POLLIN);
	close(fds[1]);
	CHECK_EQ(poll(both, 1, -1), 1);
	CHECK_EQ(both[0].revents, POLLIN | POLLHUP);
	char c;
	REQUIRE(read(fds[0], &c, 1) == 1);
	CHECK_EQ(poll(both, 1, -1), 1);
	CHECK_EQ(both[0].revents, POLLHUP);
	close(fds[0]);
	CHECK_EQ(poll(both, 1, -1), 1);
	CHECK_EQ(both[0].revents, POLLNVAL);
}

/* "Each write(2) to the pipe is dealt with as a separate packet, and read(2)s from the pipe will read one packet at a time." */
static void packets(void)
{
	int fds[2], waiting;
	char buffer[8192];
	CHECK_EQ(pipe2(fds, O_DIRECT | O_NONBLOCK), 0);
	CHECK_EQ(fcntl(fds[0], F_GETFL), O_RDONLY | O_NONBLOCK);
	CHECK_EQ(fcntl(fds[1], F_GETFL), O_WRONLY | O_DIRECT | O_NONBLOCK);
	CHECK_EQ(write(fds[1], "first", 5), 5);
	CHECK_EQ(write(fds[1], "second", 6), 6);
	CHECK_EQ(write(fds[1], "", 0), 0);
	CHECK(ioctl(fds[0], FIONREAD, &waiting) == 0 && waiting == 11);
	/* What does not fit is lost. */
	CHECK_EQ(read(fds[0], buffer, 3), 3);
	CHECK(ioctl(fds[0], FIONREAD, &waiting) == 0 && waiting == 6);
	CHECK_EQ(read(fds[0], buffer, 0), 0);
	struct iovec parts[2] = { { buffer, 4 }, { buffer + 100, 100 } };
	CHECK_EQ(readv(fds[0], parts, 2), 6);
	CHECK(memcmp(buffer, "seco", 4) == 0 && memcmp(buffer + 100, "nd", 2) == 0);
	CHECK_ERRNO(read(fds[0], buffer, 1), EAGAIN);
	CHECK_EQ(write(fds[1], block, 5000), 5000);
	CHECK_EQ(read(fds[0], buffer, sizeof buffer), 4096);
	CHECK_EQ(read(fds[0], buffer, sizeof buffer), 904);
	int written = 0;
	while (write(fds[1], "x", 1) == 1)
		written++;
	CHECK_EQ(written, 16);
	while (read(fds[0], buffer, sizeof buffer) == 1)
		written--;
	CHECK_EQ(written, 0);
	/* The flag of the moment counts: packets and a stream in one pipe. */
	CHECK_EQ(write(fds[1], "packet", 6), 6);
	CHECK_EQ(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
	CHECK_EQ(write(fds[1], "a", 1), 1);
	CHECK_EQ(write(fds[1], "b", 1), 1);
	CHECK_EQ(fcntl(fds[1], F_SETFL, O_NONBLOCK | O_DIRECT), 0);
	CHECK_EQ(write(fds[1], "c", 1), 1);
	CHECK_EQ(write(fds[1], "d", 1), 1);
	CHECK_EQ(read(fds[0], buffer, sizeof buffer), 6);
	CHECK_EQ(read(fds[0], buffer, sizeof buffer), 4);
	CHECK_ERRNO(read(fds[0], buffer, sizeof buffer), EAGAIN);
	close(fds[0]);
	close(fds[1]);
}

/* A child that writes so many bytes, or reads one, and then tells its name; it sleeps when this returns. */
static pid_t in_line(int to_write, int to_read, size_t bytes, int tell_to, char name)
{
	pid_t child = fork();
	if (child == 0) {
		char *all = calloc(1, bytes);
		REQUIRE((to_read >= 0 ? read(to_read, all, bytes) : write(to_write, all, bytes)) > 0);
		REQUIRE(write(tell_to, &name, 1) == 1);
		_exit(0);
	}
	usleep(30000);
	return child;
}

/* Of several that sleep at an end of a pipe the first one goes on first, and wakes the next one if there is more. */
static void first_come(void)
{
	static char buffer[65536];
	int fds[2], names[2];
	REQUIRE(pipe(fds) == 0 && pipe(names) == 0);
	CHECK_EQ(write(fds[1], buffer, 17), 17);
	in_line(fds[1], -1, 65535, names[1], 'A');
	in_line(fds[1], -1, 12, names[1], 'B');
	in_line(fds[1], -1, 12, names[1], 'C');
	/* A page is free now, and the first one takes it. */
	CHECK_EQ(read(fds[0], buffer, 34), 34);
	CHECK_EQ(next_of(names[0]), 'A');
	CHECK_EQ(next_of(names[0]), 0);
	/* Two are, and the second wakes the third; which of them tells of it first is open. */
	CHECK_EQ(read(fds[0], buffer, 8192), 8192);
	CHECK_EQ(next_of(names[0]) + next_of(names[0]), 'B' + 'C');
	for (int i = 0; i < 3; i++)
		wait(NULL);
	while (fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0 && read(fds[0], buffer, sizeof buffer) > 0)
		;
	REQUIRE(fcntl(fds[0], F_SETFL, 0) == 0);
	in_line(-1, fds[0], 3, names[1], 'A');
	in_line(-1, fds[0], 3, names[1], 'B');
	pid_t third = in_line(-1, fds[0], 3, names[1], 'C');
	in_line(-1, fds[0], 3, names[1], 'D');
	CHECK_EQ(write(fds[1], buffer, 2), 2);
	CHECK_EQ(next_of(names[0]), 'A');
	CHECK_EQ(next_of(names[0]), 0);
	/* Who is gone holds up nobody. */
	kill(third, SIGKILL);
	REQUIRE(waitpid(third, NULL, 0) == third);
	CHECK_EQ(write(fds[1], buffer, 4), 4);
	CHECK_EQ(next_of(names[0]) + next_of(names[0]), 'B' + 'D');
	while (wait(NULL) > 0)
		;
	close(fds[0]), close(fds[1]), close(names[0]), close(names[1]);
}

int main(void)
{
	basics();
	first_come();
	broken();
	broken_amid();
	capacity();
	blocking();
	atomicity();
	fifos();
	polling();
	packets();
	return tap_done();
}
