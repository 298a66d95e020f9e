/* Limits of a process: getrlimit(2), vm.max_map_count, and what getrusage(2) and /proc say of memory. */
#include "tap.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PAGE 4096L
#define MIB (1L << 20)

/* Runs a check in a child, whose limits are its own; its exit status, or 100 and the signal that killed it. */
static int child(int (*run)(void))
{
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0)
		_exit(run());
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void limit(int resource, rlim_t most)
{
	struct rlimit r;
	REQUIRE(getrlimit(resource, &r) == 0);
	r.rlim_cur = most;
	REQUIRE(setrlimit(resource, &r) == 0);
}

static char *map(size_t size, int prot, int flags)
{
	return mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

/* The n-th number of /proc/self/statm, in pages. */
static long statm(int n)
{
	char text[256];
	int fd = open("/proc/self/statm", O_RDONLY);
	REQUIRE(fd >= 0);
	ssize_t got = read(fd, text, sizeof text - 1);
	REQUIRE(got > 0);
	close(fd);
	text[got] = 0;
	char *at = text;
	long value = 0;
	for (int i = 0; i <= n; i++)
		value = strtol(at, &at, 10);
	return value;
}

static int address_space(void)
{
	long now = statm(0) * PAGE;
	limit(RLIMIT_AS, now + 8 * MIB);
	char *small = map(4 * MIB, PROT_READ | PROT_WRITE, 0);
	if (small == MAP_FAILED)
		return 1;
	if (map(64 * MIB, PROT_NONE, MAP_NORESERVE) != MAP_FAILED || errno != ENOMEM)
		return 2;
	if (mremap(small, 4 * MIB, 64 * MIB, MREMAP_MAYMOVE) != MAP_FAILED || errno != ENOMEM)
		return 3;
	/* What is replaced does not count. */
	if (mmap(small, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != small)
		return 4;
	if (sbrk(64 * MIB) != (void *)-1 || errno != ENOMEM)
		return 5;
	munmap(small, 4 * MIB);
	return map(4 * MIB, PROT_READ, 0) == MAP_FAILED ? 6 : 0;
}

static int data(void)
{
	limit(RLIMIT_DATA, 64 * MIB);
	if (map(128 * MIB, PROT_READ | PROT_WRITE, MAP_NORESERVE) != MAP_FAILED || errno != ENOMEM)
		return 1;
	/* Only private memory that can be written counts. */
	char *reserved = map(128 * MIB, PROT_NONE, 0);
	if (reserved == MAP_FAILED)
		return 2;
	if (mprotect(reserved, 128 * MIB, PROT_READ | PROT_WRITE) != -1 || errno != ENOMEM)
		return 3;
	if (mmap(NULL, 128 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 4;
	if (sbrk(128 * MIB) != (void *)-1 || errno != ENOMEM)
		return 5;
	return map(16 * MIB, PROT_READ | PROT_WRITE, 0) == MAP_FAILED ? 6 : 0;
}

static volatile char sink;

__attribute__((noinline)) static int deep(long left)
{
	volatile char frame[64 * 1024];
	frame[0] = (char)left;
	sink = frame[0];
	return left == 0 ? 0 : deep(left - 1) + frame[0];
}

static int stack_within(void)
{
	return deep(64) ? 0 : 0;
}

static int stack_beyond(void)
{
	return deep(100000) ? 0 : 0;
}

static int processes(void)
{
	if (getuid() == 0 && setuid(23456) != 0)
		return 0; /* Not allowed to be somebody else: nothing to see. */
	limit(RLIMIT_NPROC, 4);
	for (int n = 0; n < 64; n++) {
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
		if (pid < 0)
			return errno == EAGAIN && n < 4 ? 0 : 1;
	}
	return 2;
}

static int file_size(void)
{
	char block[256] = { 0 };
	limit(RLIMIT_FSIZE, 100);
	signal(SIGXFSZ, SIG_IGN);
	int fd = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, block, sizeof block) != 100)
		return 1;
	if (write(fd, block, 1) != -1 || errno != EFBIG)
		return 2;
	return ftruncate(fd, 101) == -1 && errno == EFBIG ? 0 : 3;
}

static int file_size_kills(void)
{
	limit(RLIMIT_FSIZE, 0);
	int fd = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);
	return write(fd, "x", 1) == 1 ? 1 : 2;
}

static int pending(void)
{
	sigset_t set;
	union sigval value = { .sival_int = 1 };
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	limit(RLIMIT_SIGPENDING, 8);
	int queued = 0;
	while (queued < 100 && sigqueue(getpid(), SIGRTMIN, value) == 0)
		queued++;
	/* The user may have others pending elsewhere. */
	if (queued > 8 || (queued < 100 && errno != EAGAIN))
		return 1;
	/* kill(2) always comes through, without room to queue it. */
	return kill(getpid(), SIGUSR2) == 0 ? 1 : 2;
}

static int mappings(void)
{
	char text[32] = { 0 };
	int fd = open("/proc/sys/vm/max_map_count", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		return 1;
	long most = atol(text), made = 0;
	if (most > 100000)
		return 0; /* A machine that was set up for more; it takes long. */
	/* Every second page has other rights: each is a mapping. */
	char *range = map((most + 64) * PAGE, PROT_NONE, MAP_NORESERVE);
	if (range == MAP_FAILED)
		return 2;
	for (long n = 0; n < most + 64; n += 2) {
		if (mprotect(range + n * PAGE, PAGE, PROT_READ) != 0) {
			if (errno != ENOMEM)
				return 3;
			break;
		}
		made++;
	}
	if (made * 2 < most - 200 || made * 2 > most)
		return 4;
	/* Of what cannot be split any more nothing can be taken out of the middle, only at an end. */
	char *three = range;
	if (munmap(range, 64 * PAGE) != 0)
		return 6;
	if (mmap(three, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != three)
		return 7;
	for (char *more = three + 8 * PAGE; more < three + 64 * PAGE; more += 2 * PAGE)
		if (mmap(more, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			break;
	while (mmap(NULL, PAGE, made++ % 2 ? PROT_READ : PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		;
	if (munmap(three + PAGE, PAGE) != -1 || errno != ENOMEM || madvise(three + PAGE, PAGE, MADV_DONTFORK) != -1 || errno != EAGAIN)
		return 8;
	if (mremap(three + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED || errno != ENOMEM)
		return 9;
	if (munmap(three + 2 * PAGE, PAGE) != 0)
		return 10;
	/* What takes no mapping more still works. */
	return munmap(range, (most + 64) * PAGE) == 0 ? 0 : 5;
}

static void residency(void)
{
	struct rusage before, after;
	long size = 32 * MIB, pages = size / PAGE;
	long start = statm(1), start_total = statm(0);
	REQUIRE(getrusage(RUSAGE_SELF, &before) == 0);
	char *memory = map(size, PROT_READ | PROT_WRITE, 0);
	REQUIRE(memory != MAP_FAILED);
	CHECK_EQ(statm(0) - start_total, pages);
	CHECK(statm(1) - start < pages / 2);
	memset(memory, 1, size);
	CHECK(statm(1) - start >= pages - 64 && statm(1) - start < pages + 64);
	REQUIRE(getrusage(RUSAGE_SELF, &after) == 0);
	CHECK(after.ru_maxrss - before.ru_maxrss > (pages - 1024) * 4);
	CHECK_EQ(madvise(memory, size / 2, MADV_DONTNEED), 0);
	CHECK(statm(1) - start < pages * 3 / 4);
	CHECK_EQ(memory[0], 0);
	CHECK_EQ(memory[size - 1], 1);
	CHECK_EQ(munmap(memory, size), 0);
	CHECK(statm(1) - start < pages / 4);
	/* The most there was stays. */
	REQUIRE(getrusage(RUSAGE_SELF, &before) == 0);
	CHECK(before.ru_maxrss >= after.ru_maxrss);
	char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	start = statm(1);
	memset(shared, 1, size);
	CHECK(statm(1) - start >= pages - 64);
	munmap(shared, size);
}

static int grows(void)
{
	char *memory = map(48 * MIB, PROT_READ | PROT_WRITE, 0);
	memset(memory, 1, 48 * MIB);
	return 0;
}

static int obvious_overcommit(void)
{
	char text[32] = { 0 };
	int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
	if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 && text[0] == '1')
		return 0; /* Everything is given there. */
	if (map(1L << 45, PROT_READ | PROT_WRITE, 0) != MAP_FAILED || errno != ENOMEM)
		return 1;
	if (map(1L << 45, PROT_READ | PROT_WRITE, MAP_NORESERVE) == MAP_FAILED)
		return 2;
	return map(1L << 45, PROT_NONE, 0) == MAP_FAILED ? 3 : 0;
}

int main(void)
{
	struct rusage children;
	tap_directory();
	CHECK_EQ(child(address_space), 0);
	CHECK_EQ(child(data), 0);
	CHECK_EQ(child(stack_within), 0);
	CHECK_EQ(child(stack_beyond), 100 + SIGSEGV);
	CHECK_EQ(child(file_size), 0);
	CHECK_EQ(child(file_size_kills), 100 + SIGXFSZ);
	CHECK_EQ(child(pending), 100 + SIGUSR2);
	CHECK_EQ(child(mappings), 0);
	CHECK_EQ(child(obvious_overcommit), 0);
	residency();
	CHECK_EQ(child(grows), 0);
	CHECK(getrusage(RUSAGE_CHILDREN, &children) == 0 && children.ru_maxrss >= 48 * 1024);
	signal(SIGTERM, SIG_IGN);
	CHECK_EQ(child(processes), 0);
	return tap_done();
}
