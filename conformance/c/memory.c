/* Memory: mmap(2), munmap(2), mprotect(2), mremap(2), madvise(2), msync(2), mincore(2), brk(2), memfd_create(2). */
#include "tap.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE 4096

static sigjmp_buf back;
static volatile int caught_signal, caught_code;
static void *volatile caught_address;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)context;
	caught_signal = signal;
	caught_code = info->si_code;
	caught_address = info->si_addr;
	siglongjmp(back, 1);
}

/* Whether the access faults with this signal and code at this address. */
#define FAULTS(access, signal_, code, address) \
	({ caught_signal = 0; if (!sigsetjmp(back, 1)) { access; } \
	   caught_signal == (signal_) && caught_code == (code) && caught_address == (void *)(address); })

static void *map(size_t length, int protection)
{
	void *p = mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(p != MAP_FAILED);
	return p;
}

static void anonymous(void)
{
	volatile char *p = map(4 * PAGE, PROT_READ | PROT_WRITE);
	CHECK(((unsigned long)p & (PAGE - 1)) == 0);
	int sum = 0;
	for (int i = 0; i < 4 * PAGE; i += 64)
		sum += p[i];
	CHECK_EQ(sum, 0);
	p[0] = 1, p[PAGE] = 2, p[2 * PAGE] = 3;
	CHECK_EQ(munmap((void *)(p + PAGE), PAGE), 0);
	CHECK(FAULTS(p[PAGE] = 1, SIGSEGV, SEGV_MAPERR, p + PAGE));
	CHECK(p[0] == 1 && p[2 * PAGE] == 3);
	CHECK_EQ(munmap((void *)(p + PAGE), PAGE), 0);
	/* A hole is filled again at the same place, with zeros. */
	CHECK(mmap((void *)(p + PAGE), PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      p + PAGE);
	CHECK_EQ(p[PAGE], 0);
	CHECK_ERRNO((long)mmap((void *)p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_ERRNO(munmap((void *)(p + 1), PAGE), EINVAL);
	CHECK_ERRNO(munmap((void *)p, 0), EINVAL);
	CHECK_EQ(munmap((void *)p, 4 * PAGE), 0);
	CHECK(FAULTS((void)*p, SIGSEGV, SEGV_MAPERR, p));
	CHECK_ERRNO((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERRNO((long)mmap((void *)1, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
	CHECK_ERRNO((long)mmap(NULL, 1UL << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), ENOMEM);
	CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
	/* A large reservation costs nothing. */
	char *huge = mmap(NULL, 8UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(huge != MAP_FAILED);
	CHECK_EQ(mprotect(huge + (4UL << 30), PAGE, PROT_READ | PROT_WRITE), 0);
	huge[4UL << 30] = 5;
	CHECK_EQ(huge[4UL << 30], 5);
	CHECK_EQ(munmap(huge, 8UL << 30), 0);
}

static void protection(void)
{
	volatile char *p = map(3 * PAGE, PROT_READ);
	CHECK_EQ(p[0], 0);
	CHECK(FAULTS(p[5] = 1, SIGSEGV, SEGV_ACCERR, p + 5));
	CHECK_EQ(mprotect((void *)(p + PAGE), PAGE, PROT_READ | PROT_WRITE), 0);
	p[PAGE] = 7;
	CHECK_EQ(p[PAGE], 7);
	CHECK(FAULTS(p[2 * PAGE] = 1, SIGSEGV, SEGV_ACCERR, p + 2 * PAGE));
	CHECK_EQ(mprotect((void *)p, 3 * PAGE, PROT_NONE), 0);
	CHECK(FAULTS((void)p[PAGE], SIGSEGV, SEGV_ACCERR, p + PAGE));
	CHECK_EQ(mprotect((void *)p, 3 * PAGE, PROT_READ), 0);
	CHECK_EQ(p[PAGE], 7);
	CHECK_ERRNO(mprotect((void *)(p + 1), PAGE, PROT_READ), EINVAL);
	CHECK_EQ(munmap((void *)(p + PAGE), PAGE), 0);
	CHECK_ERRNO(mprotect((void *)p, 3 * PAGE, PROT_READ | PROT_WRITE), ENOMEM);
	CHECK_EQ(mprotect((void *)p, 0, PROT_READ), 0);
	munmap((void *)p, 3 * PAGE);
	/* The kernel's own accesses obey the protection too. */
	char *q = map(PAGE, PROT_NONE);
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	CHECK_ERRNO(write(fds[1], q, 1), EFAULT);
	REQUIRE(write(fds[1], "x", 1) == 1);
	REQUIRE(mprotect(q, PAGE, PROT_READ) == 0);
	CHECK_ERRNO(read(fds[0], q, 1), EFAULT);
	REQUIRE(mprotect(q, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK_EQ(read(fds[0], q, 1), 1);
	/* A read into memory of which only the start is writable moves what fits. */
	char *two = map(2 * PAGE, PROT_READ | PROT_WRITE);
	REQUIRE(mprotect(two + PAGE, PAGE, PROT_NONE) == 0);
	CHECK_EQ(write(fds[1], two + PAGE - 4, 4), 4);
	CHECK_EQ(read(fds[0], two + PAGE - 4, 4), 4);
	munmap(two, 2 * PAGE);
	munmap(q, PAGE);
	close(fds[0]);
	close(fds[1]);
	/* Code written at run time. */
	unsigned char *code = map(PAGE, PROT_READ | PROT_WRITE);
	static const unsigned char forty_two[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
	memcpy(code, forty_two, sizeof forty_two);
	CHECK_EQ(mprotect(code, PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(((int (*)(void))code)(), 42);
	CHECK_EQ(mprotect(code, PAGE, PROT_READ | PROT_WRITE), 0);
	code[1] = 43;
	CHECK(FAULTS(((int (*)(void))code)(), SIGSEGV, SEGV_ACCERR, code));
	CHECK_EQ(mprotect(code, PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(((int (*)(void))code)(), 43);
	munmap(code, PAGE);
	CHECK(FAULTS(*(volatile int *)0 = 1, SIGSEGV, SEGV_MAPERR, 0));
	/* An address that is not canonical gives a general protection fault, which carries no address. */
	CHECK(FAULTS(*(volatile int *)0x8000000000000000 = 1, SIGSEGV, SI_KERNEL, 0));
}

static void sharing(void)
{
	volatile int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile int *private = map(PAGE, PROT_READ | PROT_WRITE);
	*private = 1;
	pid_t pid = fork();
	if (pid == 0) {
		*shared = 10;
		*private = 20;
		_exit(*private == 20 ? 0 : 1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(*shared == 10 && *private == 1);
	/* The other way round: the parent's write does not reach the child. */
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {
		char c;
		close(fds[1]);
		REQUIRE(read(fds[0], &c, 1) == 0);
		_exit(*private == 1 && *shared == 11 ? 0 : 1);
	}
	*private = 2;
	*shared = 11;
	close(fds[1]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(fds[0]);
	munmap((void *)shared, PAGE);
	/* MADV_DONTFORK and MADV_WIPEONFORK. */
	CHECK_EQ(madvise((void *)private, PAGE, MADV_WIPEONFORK), 0);
	pid = fork();
	if (pid == 0)
		_exit(*private == 0 ? 0 : 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_EQ(*private, 2);
	munmap((void *)private, PAGE);
}

/* Three processes take turns at one page, which the kernel writes too: each sees what the one before left. */
static void turns(void)
{
	enum { ROUNDS = 12, PLAYERS = 3 };
	volatile unsigned char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ring[PLAYERS][2];
	for (int i = 0; i < PLAYERS; i++)
		REQUIRE(pipe(ring[i]) == 0);
	int me = 0;
	for (int i = 1; i < PLAYERS && me == 0; i++)
		if (fork() == 0)
			me = i;
	int wrong = 0;
	for (int round = 0; round < ROUNDS; round++) {
		int turn = round * PLAYERS + me;
		char c;
		if (turn > 0)
			REQUIRE(read(ring[me][0], &c, 1) == 1);
		/* What is looked at first is another page than the one that is written, and the other way round. */
		wrong += p[turn % 2 * PAGE] != turn / 2 * 2 || p[PAGE + 7] != (turn > 0 ? 'k' : 0);
		/* The next player's byte goes through the kernel and the page. */
		int scratch[2];
		REQUIRE(pipe(scratch) == 0 && write(scratch[1], "k", 1) == 1);
		REQUIRE(read(scratch[0], (void *)(p + PAGE + 7), 1) == 1);
		close(scratch[0]), close(scratch[1]);
		p[turn % 2 * PAGE] = (unsigned char)(turn / 2 * 2 + 2);
		if (turn + 1 < ROUNDS * PLAYERS)
			REQUIRE(write(ring[(me + 1) % PLAYERS][1], "t", 1) == 1);
	}
	if (me != 0)
		_exit(wrong != 0);
	CHECK_EQ(wrong, 0);
	int status, failed = 0;
	for (int i = 1; i < PLAYERS; i++)
		failed += wait(&status) < 0 || status != 0;
	CHECK_EQ(failed, 0);
	/* Taken from one process, the memory is gone from all. */
	if (fork() == 0)
		_exit(madvise((void *)p, 2 * PAGE, MADV_REMOVE) != 0);
	CHECK(wait(&status) > 0 && status == 0);
	CHECK(p[0] == 0 && p[PAGE] == 0 && p[PAGE + 7] == 0);
	munmap((void *)p, 2 * PAGE);
	for (int i = 0; i < PLAYERS; i++)
		close(ring[i][0]), close(ring[i][1]);
}

/* A file becomes shorter: what lies behind its end is gone from all mappings, holes and private copies too. */
static void shortened(void)
{
	char *directory = tap_directory();
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	REQUIRE(fd >= 0);
	for (int how = 0; how < 3; how++) {
		REQUIRE(ftruncate(fd, 3 * PAGE) == 0 && pwrite(fd, "data", 4, PAGE) == 4);
		volatile char *shared = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		volatile char *private = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		volatile char *second = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE);
		CHECK(shared[0] == 0 && shared[PAGE] == 'd' && shared[2 * PAGE] == 0 && second[0] == 0);
		private[0] = private[PAGE] = private[2 * PAGE] = 'p';
		if (how == 0)
			CHECK_EQ(ftruncate(fd, 100), 0);
		else if (how == 1)
			CHECK_EQ(truncate("f", 100), 0);
		else
			CHECK_EQ(close(open("f", O_RDWR | O_TRUNC)), 0);
		int kept = how < 2;
		CHECK(!kept || (shared[0] == 0 && private[0] == 'p'));
		CHECK(kept || FAULTS((void)shared[0], SIGBUS, BUS_ADRERR, shared));
		CHECK(kept || FAULTS((void)private[0], SIGBUS, BUS_ADRERR, private));
		CHECK(FAULTS((void)shared[PAGE], SIGBUS, BUS_ADRERR, shared + PAGE));
		CHECK(FAULTS((void)shared[2 * PAGE], SIGBUS, BUS_ADRERR, shared + 2 * PAGE));
		CHECK(FAULTS((void)second[0], SIGBUS, BUS_ADRERR, second));
		CHECK(FAULTS((void)private[PAGE], SIGBUS, BUS_ADRERR, private + PAGE));
		CHECK(FAULTS((void)private[2 * PAGE], SIGBUS, BUS_ADRERR, private + 2 * PAGE));
		CHECK_EQ(ftruncate(fd, 3 * PAGE), 0);
		CHECK(private[PAGE] == 0 && shared[PAGE] == 0 && second[0] == 0);
		munmap((void *)shared, 3 * PAGE);
		munmap((void *)private, 3 * PAGE);
		munmap((void *)second, PAGE);
	}
	close(fd);
	unlink("f");
	REQUIRE(chdir("/") == 0 && rmdir(directory) == 0);
}

static void of_files(void)
{
	char *directory = tap_directory();
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	REQUIRE(fd >= 0 && write(fd, "0123456789", 10) == 10);
	/* A mapping accesses the file, even before anybody reads it. */
	struct timespec past[2] = { { .tv_sec = 1 }, { .tv_nsec = UTIME_OMIT } };
	struct stat file;
	struct statvfs mounted;
	REQUIRE(fstatvfs(fd, &mounted) == 0);
	CHECK(futimens(fd, past) == 0 && fstat(fd, &file) == 0 && file.st_atim.tv_sec == 1);
	volatile char *shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	volatile char *private = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(fstat(fd, &file) == 0 && (file.st_atim.tv_sec > 1 || mounted.f_flag & ST_NOATIME));
	CHECK(shared[3] == '3' && private[3] == '3' && shared[10] == 0);
	/* What is behind the end of the file, on a page of its own, is a bus error. */
	CHECK(FAULTS((void)shared[PAGE], SIGBUS, BUS_ADRERR, shared + PAGE));
	char c;
	shared[3] = 'x';
	CHECK(pread(fd, &c, 1, 3) == 1 && c == 'x');
	CHECK_EQ(private[3], 'x');
	private[4] = 'y';
	CHECK(pread(fd, &c, 1, 4) == 1 && c == '4');
	CHECK_EQ(shared[4], '4');
	/* The private page is a copy now: it no longer follows the file. */
	CHECK_EQ(pwrite(fd, "zz", 2, 5), 2);
	CHECK(shared[5] == 'z' && private[5] == '5');
	CHECK_EQ(msync((void *)shared, PAGE, MS_SYNC), 0);
	CHECK_ERRNO(msync((void *)(shared + 1), 1, MS_SYNC), EINVAL);
	/* Writing behind the end within the page does not make the file longer. */
	shared[20] = 'q';
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_size == 10);
	/* Growing the file makes the second page appear; truncating takes it away. */
	CHECK_EQ(ftruncate(fd, PAGE + 5), 0);
	shared[PAGE] = 'p';
	CHECK(pread(fd, &c, 1, PAGE) == 1 && c == 'p');
	CHECK_EQ(ftruncate(fd, 5), 0);
	CHECK(FAULTS((void)shared[PAGE], SIGBUS, BUS_ADRERR, shared + PAGE));
	CHECK_EQ(ftruncate(fd, 2 * PAGE), 0);
	CHECK(shared[PAGE] == 0 && shared[7] == 0);
	/* The mapping holds the file, not the descriptor or the name. */
	close(fd);
	unlink("f");
	shared[PAGE] = 'r';
	CHECK_EQ(shared[PAGE], 'r');
	munmap((void *)shared, 2 * PAGE);
	munmap((void *)private, PAGE);

	fd = open("g", O_RDWR | O_CREAT, 0600);
	REQUIRE(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0 && pwrite(fd, "B", 1, PAGE) == 1);
	char *second = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
	CHECK_EQ(second[0], 'B');
	munmap(second, PAGE);
	CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1), EINVAL);
	int read_only = open("g", O_RDONLY), write_only = open("g", O_WRONLY);
	CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, read_only, 0), EACCES);
	CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, write_only, 0), EACCES);
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, read_only, 0);
	CHECK(p != MAP_FAILED && (p[0] = 'w') == 'w');
	munmap(p, PAGE);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, read_only, 0);
	CHECK_ERRNO(mprotect(p, PAGE, PROT_READ | PROT_WRITE), EACCES);
	munmap(p, PAGE);
	int of_directory = open(".", O_RDONLY);
	CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, of_directory, 0), ENODEV);
	close(of_directory);
	/* Reading a file into its own mapping. */
	p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK_EQ(pread(fd, p + 2 * PAGE, PAGE, PAGE), PAGE);
	CHECK_EQ(p[2 * PAGE], 'B');
	munmap(p, 3 * PAGE);
	close(fd), close(read_only), close(write_only);
	unlink("g");
	REQUIRE(chdir("/") == 0 && rmdir(directory) == 0);
}

static void moving(void)
{
	char *p = map(2 * PAGE, PROT_READ | PROT_WRITE);
	strcpy(p, "first");
	strcpy(p + PAGE, "second");
	char *q = mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && !strcmp(q, "first") && !strcmp(q + PAGE, "second"));
	CHECK_EQ(q[63 * PAGE], 0);
	CHECK(mremap(q, 64 * PAGE, PAGE, 0) == q);
	CHECK(FAULTS((void)((volatile char *)q)[PAGE], SIGSEGV, SEGV_MAPERR, q + PAGE));
	char *target = map(PAGE, PROT_NONE);
	CHECK(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
	CHECK(!strcmp(target, "first"));
	CHECK(FAULTS((void)*(volatile char *)q, SIGSEGV, SEGV_MAPERR, q));
	char *wall = map(3 * PAGE, PROT_READ | PROT_WRITE);
	CHECK_ERRNO((long)mremap(wall, PAGE, 2 * PAGE, 0), ENOMEM);
	CHECK_ERRNO((long)mremap(wall + 1, PAGE, PAGE, 0), EINVAL);
	CHECK_ERRNO((long)mremap(wall, PAGE, 0, 0), EINVAL);
	CHECK_ERRNO((long)mremap(q, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	munmap(wall, 3 * PAGE);
	munmap(target, PAGE);
}

static void advising(void)
{
	char *p = map(3 * PAGE, PROT_READ | PROT_WRITE);
	memset(p, 'a', 3 * PAGE);
	CHECK_EQ(madvise(p + PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK(p[0] == 'a' && p[PAGE] == 0 && p[2 * PAGE] == 'a');
	CHECK_EQ(madvise(p, 3 * PAGE, MADV_WILLNEED), 0);
	CHECK_EQ(madvise(p, 3 * PAGE, MADV_NORMAL), 0);
	CHECK_EQ(madvise(p, 3 * PAGE, MADV_HUGEPAGE) == 0 || errno == EINVAL, 1);
	CHECK_ERRNO(madvise(p + 1, PAGE, MADV_DONTNEED), EINVAL);
	CHECK_ERRNO(madvise(p, PAGE, 9999), EINVAL);
	unsigned char resident[3];
	p[PAGE] = 1;
	CHECK_EQ(mincore(p, 3 * PAGE, resident), 0);
	CHECK_EQ(resident[1] & 1, 1);
	/* A page that was never touched, or is given back, is not in memory. */
	CHECK_EQ(madvise(p + PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(mincore(p, 3 * PAGE, resident), 0);
	CHECK((resident[0] & 1) == 1 && (resident[1] & 1) == 0 && (resident[2] & 1) == 1);
	/* MADV_POPULATE_WRITE and MADV_POPULATE_READ make pages, as far as one may. */
	CHECK_EQ(madvise(p, 3 * PAGE, 23), 0);
	CHECK(mincore(p, 3 * PAGE, resident) == 0 && (resident[1] & 1) == 1 && p[PAGE] == 0 && p[0] == 'a');
	REQUIRE(mprotect(p + PAGE, PAGE, PROT_READ) == 0);
	CHECK_EQ(madvise(p, 3 * PAGE, 22), 0);
	CHECK_ERRNO(madvise(p, 3 * PAGE, 23), EINVAL);
	REQUIRE(mprotect(p + PAGE, PAGE, PROT_NONE) == 0);
	CHECK_ERRNO(madvise(p, 3 * PAGE, 22), EINVAL);
	int fd = memfd_create("short", 0);
	REQUIRE(ftruncate(fd, PAGE) == 0);
	char *f = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK_ERRNO(madvise(f, 2 * PAGE, 23), EFAULT);
	CHECK_ERRNO(madvise(f, 2 * PAGE, 22), EFAULT);
	CHECK_EQ(madvise(f, PAGE, 22), 0);
	munmap(f, 2 * PAGE);
	close(fd);
	munmap(p + PAGE, PAGE);
	CHECK_ERRNO(madvise(p, 3 * PAGE, 23), ENOMEM);
	CHECK_ERRNO(mincore(p, 3 * PAGE, resident), ENOMEM);
	CHECK_ERRNO(madvise(p, 3 * PAGE, MADV_DONTNEED), ENOMEM);
	CHECK_EQ(p[0], 0);
	munmap(p, 3 * PAGE);
}

/* MADV_REMOVE punches a hole into what is mapped shared and writable. */
static void removing(void)
{
	int fd = memfd_create("removing", 0);
	CHECK_EQ(ftruncate(fd, 3 * PAGE), 0);
	char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memset(p, 'a', 3 * PAGE);
	CHECK_EQ(madvise(p + PAGE, PAGE, MADV_REMOVE), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_HOLE), PAGE);
	CHECK(p[PAGE - 1] == 'a' && p[PAGE] == 0 && p[2 * PAGE - 1] == 0 && p[2 * PAGE] == 'a');
	struct stat st;
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK_EQ(st.st_size, 3 * PAGE);
	p[PAGE] = 'b';
	char byte;
	CHECK_EQ(pread(fd, &byte, 1, PAGE), 1);
	CHECK_EQ(byte, 'b');
	char *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK_ERRNO(madvise(copy, PAGE, MADV_REMOVE), EACCES);
	char *plain = map(PAGE, PROT_READ | PROT_WRITE);
	CHECK_ERRNO(madvise(plain, PAGE, MADV_REMOVE), EINVAL);
	munmap(p, 3 * PAGE);
	munmap(copy, PAGE);
	munmap(plain, PAGE);
	close(fd);
}

/* remap_file_pages(2): other pages of the file behind a shared mapping. */
static long other_pages(void *at, size_t size, int prot, size_t page)
{
	return syscall(SYS_remap_file_pages, at, size, prot, page, 0);
}

static void turning(void)
{
	int fd = memfd_create("turning", 0);
	CHECK_EQ(ftruncate(fd, 4 * PAGE), 0);
	char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (int i = 0; i < 4; i++)
		p[i * PAGE] = 'a' + i;
	for (int i = 0; i < 4; i++)
		CHECK_EQ(other_pages(p + i * PAGE, PAGE, 0, 3 - i), 0);
	CHECK(p[0] == 'd' && p[PAGE] == 'c' && p[2 * PAGE] == 'b' && p[3 * PAGE] == 'a');
	p[0] = 'D';
	char byte;
	CHECK_EQ(pread(fd, &byte, 1, 3 * PAGE), 1);
	CHECK_EQ(byte, 'D');
	CHECK_EQ(other_pages(p, 4 * PAGE, 0, 0), 0);
	CHECK(p[0] == 'a' && p[3 * PAGE] == 'D');
	CHECK_ERRNO(other_pages(p, PAGE, PROT_READ, 0), EINVAL);
	CHECK_ERRNO(other_pages(p, 0, 0, 0), EINVAL);
	char *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK_ERRNO(other_pages(copy, PAGE, 0, 0), EINVAL);
	char *plain = map(PAGE, PROT_READ | PROT_WRITE);
	CHECK_ERRNO(other_pages(plain, PAGE, 0, 0), EINVAL);
	munmap(plain, PAGE);
	CHECK_ERRNO(other_pages(plain, PAGE, 0, 0), EINVAL);
	munmap(p, 4 * PAGE);
	munmap(copy, PAGE);
	close(fd);
}

static void breaks(void)
{
	char *start = sbrk(0);
	CHECK(sbrk(3 * PAGE) == start);
	CHECK(sbrk(0) == start + 3 * PAGE);
	start[0] = 1, start[3 * PAGE - 1] = 2;
	CHECK(start[0] == 1 && start[PAGE] == 0);
	CHECK(sbrk(-3 * PAGE) == start + 3 * PAGE);
	CHECK(sbrk(3 * PAGE) == start && start[3 * PAGE - 1] == 0);
	CHECK_EQ(brk(start), 0);
}

static void memory_files(void)
{
	int fd = memfd_create("name", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64], link[64] = "";
	struct stat st;
	struct statfs fs;
	CHECK(fd >= 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	CHECK(readlink(path, link, sizeof link) > 0);
	CHECK_EQ(strcmp(link, "/memfd:name (deleted)"), 0);
	CHECK(fstat(fd, &st) == 0 && st.st_mode == (S_IFREG | 0777) && st.st_nlink == 0 && st.st_uid == geteuid());
	CHECK(fstatfs(fd, &fs) == 0 && fs.f_type == 0x01021994);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(ftruncate(fd, PAGE), 0);
	char *a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *b = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	a[9] = 'm';
	CHECK_EQ(b[9], 'm');
	munmap(a, PAGE);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	CHECK_ERRNO(ftruncate(fd, 1), EPERM);
	CHECK_ERRNO(pwrite(fd, "x", 1, PAGE), EPERM);
	munmap(b, PAGE);
	close(fd);
	CHECK_ERRNO(memfd_create("x", 0x8000), EINVAL);
}

/* Seals hold against all ways to change a file, also through its name in /proc. */
static void seals(void)
{
	char path[64];
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	REQUIRE(fd >= 0 && write(fd, "0123456789", 10) == 10 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	CHECK_ERRNO(open(path, O_RDWR | O_TRUNC), EPERM);
	CHECK_ERRNO(open(path, O_WRONLY | O_TRUNC), EPERM);
	CHECK_ERRNO(open(path, O_RDONLY | O_TRUNC), EPERM);
	CHECK_ERRNO(creat(path, 0600), EPERM);
	CHECK_ERRNO(truncate(path, 3), EPERM);
	CHECK_ERRNO(ftruncate(fd, 3), EPERM);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 10);
	int again = open(path, O_RDWR);
	CHECK(again >= 0 && close(again) == 0);
	CHECK_EQ(truncate(path, 20), 0);
	REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
	CHECK_ERRNO(truncate(path, 30), EPERM);
	CHECK_ERRNO(fallocate(fd, 0, 0, 30), EPERM);
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 30), EPERM);
	CHECK_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 20), 0);
	CHECK_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 4), 0);
	REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 4), EPERM);
	CHECK_ERRNO(pwrite(fd, "x", 1, 0), EPERM);
	close(fd);
	/* An empty file cannot shrink. */
	fd = memfd_create("empty", MFD_ALLOW_SEALING);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	REQUIRE(fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	again = open(path, O_RDWR | O_TRUNC);
	CHECK(again >= 0 && close(again) == 0);
	close(fd);
}

/* A hole beyond the end of a file takes the page of its end as a whole, and what was set aside behind it, if it has all of these pages. */
static void holes_beyond_the_end(void)
{
	int fd = memfd_create("holes", 0), kept = FALLOC_FL_KEEP_SIZE, hole = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
	struct stat st;
	REQUIRE(fd >= 0 && pwrite(fd, "x", 1, 25) == 1);
	CHECK(fallocate(fd, hole, 0, 100) == 0 && fstat(fd, &st) == 0 && st.st_blocks == 8);
	CHECK_EQ(lseek(fd, 0, SEEK_DATA), 0);
	CHECK(fallocate(fd, hole, 0, 2 * PAGE) == 0 && fstat(fd, &st) == 0 && st.st_size == 26 && st.st_blocks == 0);
	CHECK_ERRNO(lseek(fd, 0, SEEK_DATA), ENXIO);
	CHECK(fallocate(fd, kept, 0, 4 * PAGE) == 0 && fstat(fd, &st) == 0 && st.st_size == 26 && st.st_blocks == 32);
	CHECK(fallocate(fd, hole, 2 * PAGE, PAGE) == 0 && fstat(fd, &st) == 0 && st.st_blocks == 24);
	CHECK(fallocate(fd, hole, 0, 4 * PAGE) == 0 && fstat(fd, &st) == 0 && st.st_blocks == 0);
	close(fd);
}

/* Which of several errors mmap(2) tells. */
static void refused(void)
{
	int fds[2], fd = memfd_create("m", 0), reader = open("/proc/self/exe", O_RDONLY), place = open("/", O_PATH);
	char page[PAGE] __attribute__((aligned(4096)));
	page[0] = 0;
	REQUIRE(fd >= 0 && reader >= 0 && place >= 0 && pipe(fds) == 0 && ftruncate(fd, PAGE) == 0);
	const int rw = PROT_READ | PROT_WRITE;
#define REFUSED(error, ...) CHECK_ERRNO((long)mmap(__VA_ARGS__), error)
	REFUSED(EBADF, NULL, PAGE, rw, MAP_PRIVATE, -1, 0);
	REFUSED(EBADF, NULL, PAGE, rw, MAP_SHARED, 999, 0);
	REFUSED(EBADF, NULL, PAGE, PROT_READ, MAP_SHARED, place, 0);
	/* The descriptor goes before length, kind, address and huge pages; the offset before it. */
	REFUSED(EBADF, NULL, 0, rw, MAP_PRIVATE, -1, 0);
	REFUSED(EBADF, NULL, PAGE, rw, 0, -1, 0);
	REFUSED(EBADF, (void *)1, PAGE, rw, MAP_PRIVATE | MAP_FIXED, -1, 0);
	REFUSED(EBADF, NULL, PAGE, rw, MAP_PRIVATE | MAP_HUGETLB, -1, 0);
	CHECK_ERRNO(syscall(SYS_mmap, NULL, PAGE, rw, MAP_PRIVATE, -1, 1), EINVAL);
	REFUSED(EINVAL, NULL, 0, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REFUSED(EINVAL, NULL, 0, rw, 0, fd, 0);
	REFUSED(EINVAL, NULL, PAGE, rw, MAP_PRIVATE | MAP_HUGETLB, fd, 0);
	REFUSED(ENOMEM, NULL, -1UL, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REFUSED(ENOMEM, NULL, 1UL << 62, rw, 0, fd, 0);
	REFUSED(EOVERFLOW, NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, -PAGE);
	REFUSED(EOVERFLOW, NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, (off_t)(~0UL >> 1 & -PAGE));
	/* The address before kind and rights. */
	REFUSED(EINVAL, page + 1, PAGE, rw, MAP_SHARED | MAP_FIXED, reader, 0);
	REFUSED(ENOMEM, (void *)-PAGE, PAGE, rw, MAP_FIXED, reader, 0);
	REFUSED(EEXIST, page, PAGE, rw, MAP_SHARED | MAP_FIXED_NOREPLACE, reader, 0);
	/* The kind. */
	REFUSED(EINVAL, NULL, PAGE, rw, 0, fd, 0);
	REFUSED(EINVAL, NULL, PAGE, rw, MAP_ANONYMOUS, -1, 0);
	REFUSED(EINVAL, NULL, PAGE, rw, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0);
	REFUSED(EOPNOTSUPP, NULL, PAGE, rw, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	REFUSED(EOPNOTSUPP, NULL, PAGE, rw, MAP_SHARED_VALIDATE | 1 << 25, fd, 0);
	/* Rights before what cannot be mapped at all. */
	REFUSED(EACCES, NULL, PAGE, rw, MAP_SHARED, reader, 0);
	REFUSED(EACCES, NULL, PAGE, rw, MAP_SHARED, fds[0], 0);
	REFUSED(EACCES, NULL, PAGE, PROT_READ, MAP_PRIVATE, fds[1], 0);
	REFUSED(ENODEV, NULL, PAGE, rw, MAP_PRIVATE, fds[0], 0);
	void *map = mmap(NULL, PAGE, rw, MAP_SHARED_VALIDATE | MAP_NORESERVE, fd, 0);
	CHECK(map != MAP_FAILED && munmap(map, PAGE) == 0);
	map = mmap(NULL, PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS, 999, 0);
	CHECK(map != MAP_FAILED && munmap(map, PAGE) == 0);
	close(fd), close(reader), close(place), close(fds[0]), close(fds[1]);
}

/* The stack grows by itself. */
__attribute__((noinline)) static int deep(int n)
{
	volatile char frame[PAGE];
	frame[0] = (char)n;
	return n == 0 ? frame[0] : deep(n - 1) + (frame[0] != (char)n);
}

/* Whether a line of maps begins at an address, and has this offset and name. */
static int is_shown(const void *at, unsigned long offset, const char *name)
{
	char line[512], path[256];
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;
	while (maps && fgets(line, sizeof line, maps)) {
		unsigned long start, shown;
		path[0] = 0;
		if (sscanf(line, "%lx-%*x %*s %lx %*s %*s %255s", &start, &shown, path) >= 2 && start == (unsigned long)at)
			found = shown == offset && !strcmp(path, name);
	}
	if (maps)
		fclose(maps);
	return found;
}

/* A private mapping of /dev/zero is anonymous memory that keeps its file. */
static void private_zero(void)
{
	int fd = open("/dev/zero", O_RDWR);
	REQUIRE(fd >= 0);
	char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 2 * PAGE);
	REQUIRE(p != MAP_FAILED);
	close(fd);
	p[PAGE] = 'x';
	CHECK(is_shown(p, 2 * PAGE, "/dev/zero"));
	CHECK_ERRNO(madvise(p, PAGE, MADV_REMOVE), EACCES);
	CHECK_ERRNO(madvise(p, PAGE, MADV_WIPEONFORK), EINVAL);
	CHECK_OK(madvise(p, PAGE, MADV_FREE));
	CHECK_OK(munmap(p, PAGE));
	CHECK(is_shown(p + PAGE, 3 * PAGE, "/dev/zero"));
	char *moved = mremap(p + PAGE, 3 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	REQUIRE(moved != MAP_FAILED);
	CHECK(is_shown(moved, 3 * PAGE, "/dev/zero"));
	CHECK(moved[0] == 'x' && moved[5 * PAGE] == 0);
	/* Anonymous memory beside it is another mapping. */
	char *beside = mmap(moved + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (beside != MAP_FAILED) {
		CHECK_ERRNO(madvise(beside, PAGE, MADV_REMOVE), EINVAL);
		munmap(beside, PAGE);
	}
	munmap(moved, 8 * PAGE);
}

/* A shared one of a file that is open for reading only never becomes writable. */
static void shared_zero_for_reading(void)
{
	int fd = open("/dev/zero", O_RDONLY);
	REQUIRE(fd >= 0);
	CHECK_ERRNO(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
	char *p = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	REQUIRE(p != MAP_FAILED);
	CHECK_ERRNO(mprotect(p, PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK_OK(mprotect(p, 2 * PAGE, PROT_READ));
	CHECK(p[0] == 0 && p[PAGE] == 0);
	CHECK(is_shown(p, 0, "/dev/zero"));
	CHECK_ERRNO(madvise(p, PAGE, MADV_REMOVE), EACCES);
	munmap(p, 2 * PAGE);
	/* It has no object, so no end either. */
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 4 * PAGE);
	REQUIRE(p != MAP_FAILED);
	CHECK_EQ(p[0], 0);
	p = mremap(p, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
	REQUIRE(p != MAP_FAILED);
	CHECK(p[0] == 0 && p[2 * PAGE] == 0);
	CHECK_ERRNO(mprotect(p + PAGE, PAGE, PROT_WRITE), EACCES);
	munmap(p, 3 * PAGE);
	p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	REQUIRE(p != MAP_FAILED);
	CHECK_OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	p[0] = 'x';
	munmap(p, PAGE);
	close(fd);
}

int main(void)
{
	static char alternate[65536];
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
	sigaltstack(&stack, NULL);
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	anonymous();
	protection();
	sharing();
	turns();
	of_files();
	shortened();
	moving();
	advising();
	removing();
	turning();
	private_zero();
	shared_zero_for_reading();
	breaks();
	memory_files();
	seals();
	holes_beyond_the_end();
	refused();
	CHECK_EQ(deep(1000), 0);
	return tap_done();
}
