/* What few programs ask for, of several families of calls: as the Linux Test Project's tests do. */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

/* A descriptor of O_PATH is none to those who ask for readiness. */
static void paths(void)
{
	int fd = open("/", O_PATH);
	REQUIRE(fd >= 0 && fd < 64);
	struct pollfd one = { .fd = fd, .events = POLLIN | POLLOUT };
	CHECK_EQ(poll(&one, 1, 0), 1);
	CHECK_EQ(one.revents, POLLNVAL);
	fd_set in, out, except;
	FD_ZERO(&in);
	FD_SET(fd, &in);
	out = except = in;
	CHECK_EQ(select(fd + 1, &in, &out, &except, &(struct timeval){ 0 }), 3);
	CHECK(FD_ISSET(fd, &in) && FD_ISSET(fd, &out) && FD_ISSET(fd, &except));
	close(fd);
	FD_SET(fd, &in);
	CHECK_ERRNO(select(fd + 1, &in, NULL, NULL, &(struct timeval){ 0 }), EBADF);
}

/* SIGEV_THREAD is the C library's; the kernel takes it for a signal. */
static void timers(void)
{
	int id;
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_signo = SIGUSR1 };
	signal(SIGUSR1, SIG_IGN);
	CHECK_EQ(syscall(SYS_timer_create, CLOCK_REALTIME, &event, &id), 0);
	CHECK_EQ(syscall(SYS_timer_delete, id), 0);
	event.sigev_signo = 0;
	CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_REALTIME, &event, &id), EINVAL);
	event.sigev_signo = SIGUSR1;
	event.sigev_notify = 3;
	CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_REALTIME, &event, &id), EINVAL);
	struct timex state = { 0 };
	CHECK_ERRNO(syscall(SYS_clock_adjtime, -1, &state), EOPNOTSUPP);
	CHECK_ERRNO(syscall(SYS_clock_adjtime, CLOCK_MONOTONIC, &state), EOPNOTSUPP);
}

static unsigned mode_of(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 ? status.st_mode & 07777 : 077777;
}

/* The ends of a pipe are one inode, and a socket has its own: both keep what is set. */
static void attributes(void)
{
	int ends[2], pair[2];
	struct stat status;
	REQUIRE(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK_EQ(mode_of(ends[0]), 0600);
	CHECK_EQ(fchmod(ends[0], 0640), 0);
	CHECK_EQ(mode_of(ends[0]), 0640);
	CHECK_EQ(mode_of(ends[1]), 0640);
	CHECK_EQ(fchmod(pair[0], 0600), 0);
	CHECK_EQ(mode_of(pair[0]), 0600);
	CHECK_EQ(mode_of(pair[1]), 0777);
	CHECK(fstat(pair[0], &status) == 0 && S_ISSOCK(status.st_mode));
	CHECK_EQ(fchown(pair[0], -1, -1), 0);
	CHECK(fstat(pair[0], &status) == 0 && status.st_uid == geteuid() && status.st_gid == getegid());
	if (geteuid() == 0) {
		CHECK_EQ(fchown(ends[1], 7, 8), 0);
		CHECK(fstat(ends[0], &status) == 0 && status.st_uid == 7 && status.st_gid == 8);
		CHECK_EQ(mode_of(ends[0]), 0640);
	} else {
		CHECK_ERRNO(fchown(ends[1], 0, -1), EPERM);
		CHECK_EQ(mode_of(ends[0]), 0640);
		CHECK(fstat(ends[0], &status) == 0 && status.st_uid == geteuid());
	}
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(pair[i]);
	}
	/* A new one begins anew. */
	REQUIRE(pipe(ends) == 0);
	CHECK_EQ(mode_of(ends[0]), 0600);
	close(ends[0]);
	close(ends[1]);
}

/* The descriptor that memfd_create(2) gives is no writer to execve(2); one that opens it again is. */
static void programs(void)
{
	int from = open("/proc/self/exe", O_RDONLY), memory = memfd_create("program", 0);
	REQUIRE(from >= 0 && memory >= 0);
	static char buffer[65536];
	for (ssize_t n; (n = read(from, buffer, sizeof buffer)) > 0;)
		REQUIRE(write(memory, buffer, n) == n);
	close(from);
	char *arguments[] = { "details", "again", NULL }, *environment[] = { NULL };
	int status;
	pid_t child = fork();
	if (child == 0) {
		syscall(SYS_execveat, memory, "", arguments, environment, AT_EMPTY_PATH);
		_exit(errno);
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
	int writer = open(path, O_RDWR);
	REQUIRE(writer >= 0);
	CHECK_ERRNO(syscall(SYS_execveat, memory, "", arguments, environment, AT_EMPTY_PATH), ETXTBSY);
	close(writer);
	close(memory);
}

/* What cannot be told of a child is no reason not to make it. */
static void children(void)
{
	int status;
	long child = syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, NULL, BAD, NULL, NULL);
	if (child == 0)
		_exit(7);
	REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* The mapping that another one replaces may be all that keeps its segment. */
static void segments(void)
{
	const int page = 4096;
	int id = shmget(IPC_PRIVATE, 2 * page, IPC_CREAT | 0600);
	REQUIRE(id >= 0);
	char *at = shmat(id, NULL, 0);
	REQUIRE(at != (void *)-1);
	CHECK_EQ(syscall(SYS_remap_file_pages, at, page, 0, 1, 0), 0);
	CHECK_EQ(syscall(SYS_remap_file_pages, at, page, 0, 0, 0), 0);
	CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
	CHECK_ERRNO(syscall(SYS_remap_file_pages, at, 2 * page, 0, 0, 0), EINVAL);
	CHECK_ERRNO(shmdt(at), EINVAL);
	CHECK_ERRNO(shmget(IPC_PRIVATE, ~0UL - (1UL << 24), IPC_CREAT | 0600), EINVAL);
}

static void names(void)
{
	char *directory = tap_directory();
	int fd = open("file", O_RDWR | O_CREAT, 0600);
	REQUIRE(fd >= 0);
	CHECK_ERRNO(setxattr("file", "security.", "v", 1, 0), EINVAL);
	CHECK_ERRNO(setxattr("file", "trusted.", "v", 1, 0), EINVAL);
	CHECK_ERRNO(getxattr("file", "security.", NULL, 0), EINVAL);
	close(fd);
	REQUIRE(unlink("file") == 0 && chdir("/") == 0 && rmdir(directory) == 0);
}

static void filters(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
	REQUIRE(fd >= 0);
	CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &one, sizeof one), ENOENT);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return strcmp(argv[1], "again") == 0 ? 42 : 1;
	paths();
	timers();
	attributes();
	programs();
	children();
	segments();
	names();
	filters();
	return tap_done();
}
