/*
 * Commands, options and flags that do not exist, of calls that do: each gets its error. Those that newer kernels know are
 * left out, so that the program passes on any Linux from 6.1 on. Calls that programs merely probe must not stop a run.
 */
#include "tap.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>

static void multiplexers(void)
{
	int one = 1, file = open("/proc/self/exe", O_RDONLY), fds[2];
	REQUIRE(file >= 0 && pipe(fds) == 0);
	CHECK_ERRNO(prctl(9999, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_TSC, 77, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_ENDIAN, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_TIMING, 1, 0, 0, 0), EINVAL);
	CHECK_EQ(prctl(PR_GET_TIMING, 0, 0, 0, 0), 0);
	CHECK_ERRNO(prctl(PR_MCE_KILL, 9, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_arch_prctl, 0x7777, 0), EINVAL);
	CHECK_ERRNO(fcntl(file, 9999), EINVAL);
	CHECK_ERRNO(fcntl(file, 12), EINVAL);
	CHECK_ERRNO(ioctl(file, 0x12345678, &one), ENOTTY);
	CHECK_ERRNO(ioctl(fds[0], 0x12345678, &one), ENOTTY);
	CHECK_ERRNO(syscall(SYS_futex, &one, 200, 0, NULL, NULL, 0), ENOSYS);
	CHECK_ERRNO(syscall(SYS_futex, &one, FUTEX_FD, 0, NULL, NULL, 0), ENOSYS);
	CHECK_ERRNO(syscall(SYS_futex, &one, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0), ENOSYS);
	CHECK_ERRNO(syscall(SYS_futex, &one, 0x200, 0, NULL, NULL, 0), ENOSYS);
	CHECK_ERRNO(syscall(SYS_futex, &one, FUTEX_WAIT_BITSET, 1, NULL, NULL, 0), EINVAL);
	/* How C libraries ask for locks with priority inheritance. */
	int lock = 0;
	CHECK_ERRNO(syscall(SYS_futex, &lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
	CHECK_ERRNO(syscall(SYS_membarrier, 1 << 20, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_membarrier, 1, 1 << 20, 0), EINVAL);
	/* A private expedited barrier is for processes that have registered; a child has its parent's registrations. */
	CHECK_ERRNO(syscall(SYS_membarrier, 8, 0, 0), EPERM);
	CHECK_EQ(syscall(SYS_membarrier, 16, 0, 0), 0);
	CHECK_EQ(syscall(SYS_membarrier, 8, 0, 0), 0);
	CHECK_ERRNO(syscall(SYS_membarrier, 32, 0, 0), EPERM);
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(syscall(SYS_membarrier, 8, 0, 0) != 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	int ep = epoll_create1(0);
	struct epoll_event event = { 0 };
	CHECK_ERRNO(epoll_ctl(ep, 77, fds[0], &event), EINVAL);
	CHECK_ERRNO(epoll_create1(1), EINVAL);
	int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	CHECK_ERRNO(shmctl(segment, 99, NULL), EINVAL);
	CHECK_EQ(shmctl(segment, IPC_RMID, NULL), 0);
	CHECK_ERRNO(sched_setscheduler(0, 99, &(struct sched_param){ 0 }), EINVAL);
	CHECK_ERRNO(sched_get_priority_max(99), EINVAL);
	close(ep);
	close(file);
	close(fds[0]);
	close(fds[1]);
}

static void sockets(void)
{
	int one = 1;
	socklen_t len = sizeof one;
	int tcp = socket(AF_INET, SOCK_STREAM, 0), unix_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_ERRNO(socket(77, SOCK_STREAM, 0), EAFNOSUPPORT);
	CHECK_ERRNO(socket(AF_INET, 12, 0), EINVAL);
	CHECK_ERRNO(socket(AF_INET, SOCK_STREAM | 1 << 20, 0), EINVAL);
	CHECK_ERRNO(setsockopt(tcp, SOL_SOCKET, 9999, &one, len), ENOPROTOOPT);
	CHECK_ERRNO(getsockopt(tcp, SOL_SOCKET, 9999, &one, &len), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(tcp, IPPROTO_TCP, 9999, &one, len), ENOPROTOOPT);
	CHECK_ERRNO(getsockopt(tcp, IPPROTO_TCP, 9999, &one, &len), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(tcp, IPPROTO_IP, 250, &one, len), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(tcp, 9999, 1, &one, len), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(unix_fd, SOL_SOCKET, 9999, &one, len), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(unix_fd, IPPROTO_TCP, 1, &one, len), EOPNOTSUPP);
	CHECK_ERRNO(setsockopt(tcp, SOL_SOCKET, SO_PEERCRED, &one, len), ENOPROTOOPT);
	CHECK_ERRNO(ioctl(tcp, 0x12345678, &one), ENOTTY);
	int pid = getpid(), owner = 0;
	CHECK(ioctl(tcp, FIOSETOWN, &pid) == 0 && ioctl(tcp, FIOGETOWN, &owner) == 0 && owner == pid);
	CHECK_ERRNO(accept4(tcp, NULL, NULL, 1), EINVAL);
	close(tcp);
	close(unix_fd);
}

static void flags(void)
{
	char path[] = "/tmp/unknown-XXXXXX";
	int file = mkstemp(path), fds[2];
	REQUIRE(file >= 0);
	struct stat st;
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(page != MAP_FAILED);
	CHECK_ERRNO(madvise(page, 4096, 77), EINVAL);
	CHECK_ERRNO(mprotect(page, 4096, 0x100), EINVAL);
	CHECK_ERRNO(msync(page, 4096, 0x100), EINVAL);
	CHECK_ERRNO(mlockall(0x100), EINVAL);
	CHECK_ERRNO(mlockall(MCL_ONFAULT), EINVAL);
	CHECK(mmap(NULL, 4096, PROT_READ, 0, file, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | 0x2000000, file, 0) == MAP_FAILED && errno == EOPNOTSUPP);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED | 0x2000000, file, 0) != MAP_FAILED);
	char *low = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	CHECK(low != MAP_FAILED && (uintptr_t)low < 1ul << 31);
	CHECK_ERRNO(pipe2(fds, 1), EINVAL);
	CHECK_ERRNO(dup3(file, 99, 1), EINVAL);
	CHECK_ERRNO(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
	CHECK_ERRNO(timerfd_create(99, 0), EINVAL);
	CHECK_ERRNO(memfd_create("x", 0x100), EINVAL);
	CHECK_ERRNO(syscall(SYS_getrandom, page, 8, 0x100), EINVAL);
	CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, path, 0x100), EINVAL);
	CHECK_ERRNO(syscall(SYS_statx, AT_FDCWD, path, 1 << 30, 0, page), EINVAL);
	CHECK_ERRNO(fstatat(AT_FDCWD, path, &st, 1 << 30), EINVAL);
	CHECK_ERRNO(unlinkat(AT_FDCWD, path, 0x100), EINVAL);
	CHECK_ERRNO(fallocate(file, 1 << 20, 0, 10), EOPNOTSUPP);
	CHECK_ERRNO(sync_file_range(file, 0, 0, 0x100), EINVAL);
	CHECK_ERRNO(syscall(SYS_close_range, 500, 600, 0x100), EINVAL);
	CHECK_ERRNO(waitpid(-1, NULL, 0x100), EINVAL);
	CHECK_ERRNO(waitid(99, 0, NULL, WEXITED), EINVAL);
	CHECK_ERRNO(waitid(P_ALL, 0, NULL, 0x100 | WEXITED), EINVAL);
	CHECK_ERRNO(posix_fadvise(file, 0, 0, 0) ? -1 : syscall(SYS_fadvise64, file, 0, 0, 77), EINVAL);
	struct timespec now;
	CHECK_ERRNO(clock_gettime(99, &now), EINVAL);
	/* A field that no kernel knows. */
	uint64_t args[16] = { 0 };
	args[15] = 1;
	CHECK_ERRNO(syscall(SYS_clone3, args, sizeof args), E2BIG);
	args[15] = 0, args[0] = 1ull << 60;
	CHECK_ERRNO(syscall(SYS_clone3, args, sizeof args), EINVAL);
	close(file);
	unlink(path);
}

static void probes(void)
{
	/* Calls of the past. */
	static const int gone[] = { 134, 156, 174, 177, 178, 180, 181, 182, 183, 184, 185, 205, 211, 214, 215, 236 };
	for (unsigned i = 0; i < sizeof gone / sizeof *gone; i++)
		REQUIRE(syscall(gone[i], 0, 0, 0, 0, 0, 0) == -1 && (errno == ENOSYS || errno == EPERM));
	/* These fail with bad arguments everywhere, in whichever way; a run goes on. */
	REQUIRE(syscall(SYS_ustat, -1l, BAD) == -1);
	REQUIRE(syscall(SYS_sysfs, 99, 0, 0) == -1);
	REQUIRE(syscall(SYS_modify_ldt, 99, NULL, 0) != 0);
	REQUIRE(syscall(SYS_io_destroy, 99) == -1);
	REQUIRE(syscall(SYS_kcmp, -1, -1, 0, 0, 0) == -1);
	REQUIRE(syscall(SYS_name_to_handle_at, -1, "", NULL, NULL, 0) == -1);
	REQUIRE(syscall(SYS_fanotify_init, -1, 0) == -1);
	REQUIRE(syscall(SYS_fanotify_mark, -1, 0, 0, -1, NULL) == -1 && errno != 0);
	REQUIRE(syscall(SYS_inotify_rm_watch, -1, 0) == -1);
	REQUIRE(syscall(SYS_keyctl, 9999, 0, 0, 0, 0) == -1);
	REQUIRE(syscall(SYS_add_key, NULL, NULL, NULL, 0, 0) == -1);
	REQUIRE(syscall(SYS_request_key, NULL, NULL, NULL, 0) == -1);
	REQUIRE(syscall(SYS_mbind, 1, 1, 99, NULL, 0, 0) == -1);
	REQUIRE(syscall(SYS_set_mempolicy, 99, NULL, 0) == -1);
	REQUIRE(syscall(SYS_quotactl, 99, NULL, 0, NULL) == -1);
	REQUIRE(syscall(SYS_open_by_handle_at, -1, NULL, 0) == -1);
	REQUIRE(syscall(SYS_setns, -1, 0) == -1);
	REQUIRE(syscall(SYS_pidfd_open, -1, 0) == -1);
	REQUIRE(syscall(SYS_landlock_create_ruleset, NULL, 0, 99) == -1);
	REQUIRE(syscall(700) == -1 && errno == ENOSYS);
	CHECK(1);
	struct timex timex = { 0 };
	CHECK(adjtimex(&timex) >= 0 && timex.tick == 10000);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	CHECK(timex.time.tv_sec >= now.tv_sec - 10 && timex.time.tv_sec <= now.tv_sec + 10);
	timex.modes = 0;
	CHECK(clock_adjtime(CLOCK_REALTIME, &timex) >= 0);
	CHECK_ERRNO(clock_adjtime(CLOCK_MONOTONIC, &timex), EOPNOTSUPP);
	CHECK_ERRNO(clock_adjtime(99, &timex), EINVAL);
}

static long number_in(const char *path)
{
	char text[64];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -9999;
	text[n] = 0;
	return strtol(text, NULL, 10);
}

static int store(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd < 0)
		return -1;
	ssize_t n = write(fd, text, strlen(text));
	int error = errno;
	close(fd);
	errno = error;
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

static void knobs(void)
{
	const char *adj = "/proc/self/oom_score_adj";
	long before = number_in(adj);
	REQUIRE(before >= -1000 && before <= 900);
	CHECK_EQ(store(adj, "950\n"), 0);
	CHECK_EQ(number_in(adj), 950);
	CHECK_EQ(number_in("/proc/self/oom_adj"), 15);
	CHECK_ERRNO(store(adj, "1001"), EINVAL);
	CHECK_ERRNO(store(adj, "-1001"), EINVAL);
	CHECK_ERRNO(store(adj, "much"), EINVAL);
	CHECK_EQ(number_in(adj), 950);
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		/* Inherited, and the child's own. */
		REQUIRE(number_in(adj) == 950 && store(adj, "960") == 0 && number_in(adj) == 960);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_EQ(number_in(adj), 950);
	CHECK_EQ(store("/proc/self/comm", "renamed"), 0);
	char name[17] = { 0 };
	CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "renamed") == 0);
	CHECK_EQ(prctl(PR_SET_TIMERSLACK, 12345, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 12345);
	CHECK_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
	CHECK_EQ(store("/proc/self/coredump_filter", "0x3f"), 0);
	CHECK_ERRNO(store("/proc/self/coredump_filter", "z"), EINVAL);
	CHECK_ERRNO(store("/proc/self/clear_refs", "99"), EINVAL);
}

int main(void)
{
	multiplexers();
	sockets();
	flags();
	probes();
	knobs();
	return tap_done();
}
