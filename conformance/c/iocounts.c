/* What a process and its threads have read and written: /proc/PID/io (proc(5), task_io_accounting_ops.h). */
#include "tap.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* What a file said, and how long its text was: reading it is one of the reads that the next look finds. */
struct counts {
	long rchar, wchar, syscr, syscw, length;
};

static struct counts look(const char *path)
{
	struct counts counts = {0};
	char text[512];
	int fd = open(path, O_RDONLY);
	REQUIRE(fd >= 0);
	counts.length = read(fd, text, sizeof text - 1);
	REQUIRE(counts.length > 0);
	text[counts.length] = 0;
	REQUIRE(sscanf(text, "rchar: %ld\nwchar: %ld\nsyscr: %ld\nsyscw: %ld\n", &counts.rchar, &counts.wchar, &counts.syscr, &counts.syscw) == 4);
	REQUIRE(strstr(text, "\nread_bytes: ") && strstr(text, "\nwrite_bytes: ") && strstr(text, "\ncancelled_write_bytes: "));
	close(fd);
	return counts;
}

static struct counts before;

/* Whether what was done since the last look comes to this. Checks write what they find: they come behind it, and another look behind them. */
static int added(long rchar, long wchar, long syscr, long syscw)
{
	struct counts now = look("/proc/self/io");
	return now.rchar - before.rchar - before.length == rchar && now.wchar - before.wchar == wchar &&
	       now.syscr - before.syscr - 1 == syscr && now.syscw - before.syscw == syscw;
}

static void calls(void)
{
	char bytes[64] = "";
	struct iovec two[2] = {{bytes, 10}, {bytes, 20}};
	int fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644), zero = open("/dev/zero", O_RDONLY), ends[2];
	REQUIRE(fd >= 0 && zero >= 0 && pipe(ends) == 0);
	before = look("/proc/self/io");
	CHECK(added(0, 0, 0, 0));
	before = look("/proc/self/io");
	REQUIRE(write(fd, bytes, 40) == 40);
	REQUIRE(pwrite(fd, bytes, 5, 0) == 5);
	CHECK(added(0, 45, 0, 2));
	before = look("/proc/self/io");
	REQUIRE(writev(fd, two, 2) == 30);
	REQUIRE(pwritev(fd, two, 2, 0) == 30);
	REQUIRE(pwritev2(fd, two, 1, 0, 0) == 10);
	CHECK(added(0, 70, 0, 3));
	before = look("/proc/self/io");
	REQUIRE(read(zero, bytes, 7) == 7);
	REQUIRE(pread(fd, bytes, 8, 0) == 8);
	REQUIRE(readv(zero, two, 2) == 30);
	REQUIRE(preadv(fd, two, 1, 0) == 10);
	REQUIRE(preadv2(fd, two, 1, 0, 0) == 10);
	CHECK(added(65, 0, 5, 0));
	before = look("/proc/self/io");
	/* The end of a file is a call without bytes. */
	REQUIRE(read(fd, bytes, 8) == 0);
	CHECK(added(0, 0, 1, 0));
	before = look("/proc/self/io");
	/* Calls that fail count, too, but where nothing is open, or not for that. */
	REQUIRE(fails(read(ends[1], bytes, 8), EBADF));
	REQUIRE(fails(read(-1, bytes, 8), EBADF));
	REQUIRE(fails(pread(ends[0], bytes, 8, 0), ESPIPE));
	REQUIRE(fails(write(zero, bytes, 8), EBADF));
	CHECK(added(0, 0, 0, 0));
	before = look("/proc/self/io");
	REQUIRE(fails(readv(-1, two, 2), EBADF));
	REQUIRE(fails(writev(-1, two, 2), EBADF));
	CHECK(added(0, 0, 1, 1));
	before = look("/proc/self/io");
	REQUIRE(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
	REQUIRE(fails(read(ends[0], bytes, 8), EAGAIN));
	CHECK(added(0, 0, 1, 0));
	before = look("/proc/self/io");
	off_t offset = 0;
	REQUIRE(sendfile(ends[1], fd, &offset, 12) == 12);
	CHECK(added(12, 12, 1, 1));
	before = look("/proc/self/io");
	REQUIRE(fails(sendfile(-1, fd, &offset, 12), EBADF));
	CHECK(added(0, 0, 0, 0));
	before = look("/proc/self/io");
	REQUIRE(splice(ends[0], NULL, fd, NULL, 12, 0) == 12);
	CHECK(added(0, 0, 0, 0));
	before = look("/proc/self/io");
	close(fd);
	close(zero);
	close(ends[0]);
	close(ends[1]);
}

/* Of sockets read(2) and write(2) count, and calls of their own do not. */
static void sockets(void)
{
	char bytes[16] = "";
	int pair[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	before = look("/proc/self/io");
	REQUIRE(send(pair[0], bytes, 8, 0) == 8);
	REQUIRE(recv(pair[1], bytes, 8, 0) == 8);
	CHECK(added(0, 0, 0, 0));
	before = look("/proc/self/io");
	REQUIRE(write(pair[0], bytes, 8) == 8);
	REQUIRE(read(pair[1], bytes, 16) == 8);
	CHECK(added(8, 8, 1, 1));
	before = look("/proc/self/io");
	close(pair[0]);
	close(pair[1]);
}

static int waits[2], goes[2];

static void *reader(void *arg)
{
	char bytes[100];
	(void)arg;
	int zero = open("/dev/zero", O_RDONLY);
	REQUIRE(zero >= 0 && read(zero, bytes, 100) == 100);
	close(zero);
	struct counts own = look("/proc/thread-self/io"), all = look("/proc/self/io");
	CHECK(own.rchar == 100 && own.syscr == 1 && own.wchar == 0 && own.syscw == 0);
	CHECK(all.rchar > 100 && all.syscr > 2);
	return NULL;
}

/* What somebody reads in its file who has done nothing yet. */
#define NOTHING "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"

/* A thread has its own; those of its process have what ended threads did as well, and what children did for whom it has waited
 * (wait_task_zombie). */
static void threads(void)
{
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, reader, NULL) == 0 && pthread_join(thread, NULL) == 0);
	struct counts mine = look("/proc/thread-self/io");
	before = look("/proc/self/io");
	CHECK(mine.rchar < before.rchar - 100);
	before = look("/proc/self/io");
	pid_t pid = fork();
	if (pid == 0) {
		struct counts child = look("/proc/self/io");
		_exit(child.rchar == 0 && child.syscr == 0 && child.wchar == 0 && child.syscw == 0 ? 42 : 1);
	}
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK(added(strlen(NOTHING), 0, 1, 0));
	CHECK_EQ(WEXITSTATUS(status), 42);
}

static void ignore(int number)
{
	(void)number;
}

/* A read that a signal interrupts has been made; where it begins anew, it is made twice. */
static void interrupted(void)
{
	char bytes[8];
	REQUIRE(pipe(waits) == 0 && pipe(goes) == 0);
	for (int restarts = 0; restarts < 2; restarts++) {
		struct sigaction action = {.sa_handler = ignore, .sa_flags = restarts ? SA_RESTART : 0};
		REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
		pid_t parent = getpid(), pid = fork();
		if (pid == 0) {
			char path[64], state;
			snprintf(path, sizeof path, "/proc/%d/stat", parent);
			REQUIRE(read(goes[0], bytes, 1) == 1);
			do {
				FILE *stat = fopen(path, "r");
				REQUIRE(stat && fscanf(stat, "%*d %*s %c", &state) == 1);
				fclose(stat);
			} while (state != 'S');
			REQUIRE(kill(parent, SIGUSR1) == 0);
			usleep(20000);
			REQUIRE(write(waits[1], "x", 1) == 1);
			_exit(0);
		}
		before = look("/proc/self/io");
		REQUIRE(write(goes[1], "x", 1) == 1);
		if (restarts)
			REQUIRE(read(waits[0], bytes, 8) == 1);
		else
			REQUIRE(fails(read(waits[0], bytes, 8), EINTR));
		CHECK(restarts ? added(1, 1, 2, 1) : added(0, 1, 1, 1));
		before = look("/proc/self/io");
		REQUIRE(waitpid(pid, NULL, 0) == pid);
		if (!restarts)
			REQUIRE(read(waits[0], bytes, 8) == 1);
	}
}

/* Who may not trace a process reads nothing of it, wherever the reading begins. */
static void secrets(void)
{
	char bytes[64];
	if (getuid() != 0)
		return;
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/io", getpid());
	pid_t pid = fork();
	if (pid == 0) {
		/* Opened by who may, and asked for again when it is read. */
		int first = open(path, O_RDONLY), later = open(path, O_RDONLY);
		REQUIRE(first >= 0 && later >= 0);
		REQUIRE(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
		REQUIRE(fails(pread(first, bytes, 64, 0), EACCES));
		REQUIRE(fails(pread(later, bytes, 64, 10), EACCES));
		_exit(42);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42);
}

int main(void)
{
	tap_directory();
	/* Kernels are built without it. */
	if (access("/proc/self/io", F_OK) == 0) {
		calls();
		sockets();
		threads();
		interrupted();
		secrets();
	}
	return tap_done();
}
