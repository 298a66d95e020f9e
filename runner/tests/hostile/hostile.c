/*
 * Makes system calls with arguments that make no sense, from a fixed pseudo-random sequence: hostile SEED [NUMBER...].
 * With numbers, only those calls are made. Nothing is checked here: the system must answer each call and survive.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define BATCHES 40
#define CALLS 120

static unsigned long state;

static unsigned long draw(void)
{
	state += 0x9e3779b97f4a7c15;
	unsigned long z = state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static unsigned long below(unsigned long n)
{
	return draw() % n;
}

static char *pages; /* writable, then read-only, then nothing */

static const char *const paths[] = { "/", ".", "..", "", "f", "f/g", "d/x", "/proc/self/mem", "/proc/self/fd/3", "/proc", "/dev/null",
				     "/proc/self/maps", "/sys", "l", "/nonexistent", "/tmp", "/etc/passwd", "/dev/zero", "d", "p",
				     "/proc/self/exe", "/proc/self/task", "/dev/stdin", "s" };

static unsigned long address(void)
{
	static const unsigned long odd[] = { 0, 1, 8, 4095, 4096, 0x7fff00000000, 0x7ffffffff000, 0x800000000000, 0xffff800000000000,
					     0xffffffffffffffff, 0xfffffffffffff000, 0x8000000000000000, 0x7fffffffffffffff };
	switch (below(10)) {
	case 0:
		return odd[below(sizeof odd / sizeof *odd)];
	case 1: /* read-only */
		return (unsigned long)pages + 4 * PAGE + below(PAGE);
	case 2: /* the end is missing */
		return (unsigned long)pages + 5 * PAGE - below(64);
	case 3: /* the end is read-only */
		return (unsigned long)pages + 4 * PAGE - below(64);
	case 4: {
		char *at = pages + below(PAGE);
		strcpy(at, paths[below(sizeof paths / sizeof *paths)]);
		return (unsigned long)at;
	}
	case 5: /* small numbers: lengths, times, families */
		for (unsigned i = 0; i < 64; i++)
			((unsigned *)pages)[512 + i] = below(3) ? below(20) : (unsigned)draw();
		return (unsigned long)pages + 2048;
	case 6: /* pointers to pointers */
		for (unsigned i = 0; i < 16; i++)
			((unsigned long *)pages)[1024 + i] = i % 2 ? below(5000) : (unsigned long)pages + below(4 * PAGE);
		return (unsigned long)pages + 8192;
	case 7:
		for (unsigned i = 0; i < 256; i++)
			pages[3 * PAGE + i] = draw();
		return (unsigned long)pages + 3 * PAGE;
	default:
		return (unsigned long)pages + below(4 * PAGE);
	}
}

static unsigned long argument(void)
{
	switch (below(12)) {
	case 0:
		return -1;
	case 1:
		return AT_FDCWD;
	case 2:
		return 1UL << below(64);
	case 3:
		return (1UL << below(32)) | (1UL << below(32));
	case 4:
		return draw();
	case 5:
		return below(0x10000);
	case 6:
		return (unsigned)draw();
	case 7:
	case 8:
		return below(20);
	default:
		return address();
	}
}

/* Never made: they end the program, wait for ever by design, or signal others. */
static int left_out(long nr)
{
	switch (nr) {
	case SYS_exit:
	case SYS_exit_group:
	case SYS_kill:
	case SYS_tkill:
	case SYS_tgkill:
	case SYS_rt_sigqueueinfo:
	case SYS_rt_tgsigqueueinfo:
	case SYS_pidfd_send_signal:
	case SYS_fork:
	case SYS_vfork:
		return 1;
	}
	return 0;
}

static void open_some(void)
{
	int fds[2];
	open("f", O_RDWR | O_CREAT, 0600);
	pipe(fds);
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	epoll_create1(0);
	syscall(SYS_eventfd2, 0, O_NONBLOCK);
	syscall(SYS_timerfd_create, 1, O_NONBLOCK);
	open(".", O_RDONLY | O_DIRECTORY);
	open("/proc/self", O_RDONLY | O_DIRECTORY);
	syscall(SYS_memfd_create, "m", 2);
	unsigned long set = 1 << 9;
	syscall(SYS_signalfd4, -1, &set, 8, O_NONBLOCK);
}

static void batch(const long *numbers, int count)
{
	long self = syscall(SYS_gettid);
	open_some();
	for (int i = 0; i < CALLS; i++) {
		long nr = count ? numbers[below(count)] : (long)below(below(20) ? 460 : 100000);
		unsigned long a[6];
		for (int j = 0; j < 6; j++)
			a[j] = argument();
		if (left_out(nr))
			continue;
		alarm(2);
		syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		/* A child of clone. */
		if (syscall(SYS_gettid) != self)
			syscall(SYS_exit, 0);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	long numbers[512];
	int count = 0;
	for (int i = 2; i < argc && count < 512; i++)
		numbers[count++] = atol(argv[i]);
	pages = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(pages + 4 * PAGE, PAGE, PROT_READ);
	munmap(pages + 5 * PAGE, PAGE);
	mkdir("d", 0700);
	symlink("l", "l");
	symlink("f", "s");
	mkfifo("p", 0600);
	for (int i = 0; i < BATCHES; i++) {
		state = strtoul(argv[1], NULL, 10) * 1000 + i;
		pid_t pid = fork();
		if (pid == 0)
			batch(numbers, count);
		int status = 0;
		/* Most end by their alarm at the latest; some have blocked it. */
		for (int tick = 0; tick < 50 && waitpid(pid, &status, WNOHANG | __WALL) == 0; tick++)
			usleep(100000);
		kill(pid, SIGKILL);
		waitpid(pid, &status, __WALL);
		printf("%d %x\n", i, status);
		fflush(stdout);
	}
	return 0;
}
