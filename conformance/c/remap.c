/* mremap(2) that leaves the old mapping, or makes a second one; mappings that grow down. */
#include "tap.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define P 4096ul
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static char *map(size_t pages, int flags)
{
	char *at = mmap(NULL, pages * P, PROT_READ | PROT_WRITE, flags, -1, 0);
	REQUIRE(at != MAP_FAILED);
	return at;
}

static sigjmp_buf back;
static void *fault_at;
static int fault_code;

static void caught(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	fault_at = info->si_addr;
	fault_code = info->si_code;
	siglongjmp(back, 1);
}

/* Whether a byte can be written. */
static int writable(char *at)
{
	if (sigsetjmp(back, 1))
		return 0;
	*(volatile char *)at = 1;
	return 1;
}

/* The size of the mapping at an address, in pages. */
static long size_of(void *at)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	long size = -1;
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (unsigned long)at >= from && (unsigned long)at < to)
			size = (to - from) / P;
	}
	fclose(maps);
	return size;
}

static void leaving(void)
{
	char *area = map(16, ANON), *at = area, *to;
	strcpy(at, "first"), strcpy(at + P, "second");
	CHECK_ERRNO((long)mremap(at, 2 * P, 2 * P, MREMAP_DONTUNMAP), EINVAL);
	CHECK_ERRNO((long)mremap(at, 2 * P, 3 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP), EINVAL);
	CHECK_ERRNO((long)mremap(at, 2 * P, P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP), EINVAL);
	CHECK_ERRNO((long)mremap(at, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, at + P), EINVAL);
	CHECK_ERRNO((long)mremap(at, 2 * P, 2 * P, 8 | MREMAP_MAYMOVE), EINVAL);
	to = mremap(at, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(to != MAP_FAILED && to != at);
	CHECK_EQ(strcmp(to, "first") || strcmp(to + P, "second"), 0);
	CHECK_EQ(at[0] | at[P], 0);
	at[0] = 5;
	CHECK_EQ(to[0], 'f');
	munmap(to, 2 * P);
	/* To a place of one's choice. */
	strcpy(at + 2 * P, "third");
	to = mremap(at + 2 * P, P, P, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, at + 8 * P);
	CHECK(to == at + 8 * P);
	CHECK_EQ(strcmp(to, "third"), 0);
	CHECK_EQ(at[2 * P], 0);
	/* More than one mapping. */
	CHECK_EQ(mprotect(at + 4 * P, P, PROT_READ), 0);
	CHECK_ERRNO((long)mremap(at + 3 * P, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EFAULT);
	munmap(area, 16 * P);
	CHECK_ERRNO((long)mremap(area, P, P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EFAULT);
	/* Shared memory is seen twice then. */
	at = map(2, MAP_SHARED | MAP_ANONYMOUS);
	strcpy(at, "shared");
	to = mremap(at, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(to != MAP_FAILED && strcmp(to, "shared") == 0 && strcmp(at, "shared") == 0);
	strcpy(to + P, "both");
	CHECK_EQ(strcmp(at + P, "both"), 0);
	munmap(at, 2 * P), munmap(to, 2 * P);
	/* Of a file a private mapping shows the file again. */
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	REQUIRE(write(fd, "content", 8) == 8 && ftruncate(fd, 2 * P) == 0);
	at = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	at[0] = 'C';
	to = mremap(at, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(to != MAP_FAILED && strcmp(to, "Content") == 0);
	CHECK_EQ(strcmp(at, "content"), 0);
	munmap(at, 2 * P), munmap(to, 2 * P);
	close(fd);
}

/* What lay where a mapping should go is gone also when that fails, and so is the end of what should have become smaller; since Linux 6.17
 * nothing is done before all is known, and several mappings may move. */
static void failing(void)
{
	char *at = map(8, ANON), *to = at + 4 * P;
	struct sigaction act = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &act, NULL);
	REQUIRE(mprotect(at + P, P, PROT_READ) == 0);
	int moved = mremap(at, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, error = errno;
	CHECK(moved || (error == EFAULT && !writable(to) && fault_code == SEGV_MAPERR && !writable(to + P) && writable(at)));
	munmap(at, 8 * P);
	at = map(8, ANON), to = at + 4 * P;
	REQUIRE(mprotect(at + P, P, PROT_READ) == 0);
	CHECK_ERRNO((long)mremap(at, 3 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, to), EFAULT);
	CHECK(writable(at + 2 * P) == writable(to) && writable(to) == writable(to + P));
	munmap(at, 8 * P);
	/* There has to be something at the beginning; what else is wrong comes first since Linux 6.17. */
	CHECK(mremap(at, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, at + P + 1) == MAP_FAILED && (errno == EFAULT || errno == EINVAL));
	at = map(1, MAP_SHARED | MAP_ANONYMOUS);
	to = mremap(at, -1, P, MREMAP_MAYMOVE);
	CHECK(to != MAP_FAILED || errno == EINVAL);
	if (to != MAP_FAILED)
		CHECK(to != at && writable(to) && *at == 1);
	munmap(at, P);
	signal(SIGSEGV, SIG_DFL);
}

static void twice(void)
{
	char *at = map(4, MAP_SHARED | MAP_ANONYMOUS), *to;
	strcpy(at + P, "one");
	CHECK_ERRNO((long)mremap(at + P, 0, 2 * P, 0), ENOMEM);
	to = mremap(at + P, 0, 2 * P, MREMAP_MAYMOVE);
	CHECK(to != MAP_FAILED && strcmp(to, "one") == 0);
	strcpy(to + P, "two");
	CHECK_EQ(strcmp(at + 2 * P, "two"), 0);
	munmap(at, 4 * P);
	CHECK_EQ(strcmp(to + P, "two"), 0);
	char *room = map(4, ANON);
	CHECK(mremap(to, 0, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, room + P) == room + P);
	CHECK_EQ(strcmp(room + 2 * P, "two"), 0);
	munmap(room, 4 * P), munmap(to, 2 * P);
	at = map(1, ANON);
	CHECK_ERRNO((long)mremap(at, 0, P, MREMAP_MAYMOVE), EINVAL);
	CHECK_ERRNO((long)mremap(at, P, 0, MREMAP_MAYMOVE), EINVAL);
	munmap(at, P);
}

static void growing(void)
{
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
	struct sigaction act = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &act, NULL);
	/* 4 MiB of room with a mapping at its end. */
	size_t room = 1024;
	char *low = map(room, ANON), *top = low + room * P;
	munmap(low, room * P);
	char *at = mmap(top - 2 * P, 2 * P, PROT_READ | PROT_WRITE, ANON | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	CHECK(at == top - 2 * P);
	CHECK_EQ(size_of(at), 2);
	CHECK(writable(at - 1));
	CHECK_EQ(size_of(at), 3);
	CHECK(writable(at - 100 * P));
	CHECK_EQ(size_of(at), 102);
	/* Calls make it grow, too. */
	int p[2];
	REQUIRE(pipe(p) == 0 && write(p[1], "abc", 3) == 3);
	CHECK_EQ(read(p[0], at - 102 * P, 3), 3);
	CHECK_EQ(size_of(at), 104);
	CHECK_EQ(memcmp(at - 102 * P, "abc", 3), 0);
	CHECK_EQ(write(p[1], at - 104 * P, 3), 3);
	CHECK_EQ(size_of(at), 106);
	/* Not into the gap before another mapping, of 256 pages. */
	char *below = mmap(top - 700 * P, P, PROT_READ | PROT_WRITE, ANON | MAP_FIXED, -1, 0);
	CHECK(below == top - 700 * P);
	CHECK(writable(below + P + 256 * P));
	CHECK(!writable(below + P + 255 * P));
	CHECK(fault_at == below + P + 255 * P);
	CHECK_EQ(fault_code, SEGV_MAPERR);
	CHECK_ERRNO(read(p[0], below + 200 * P, 3), EFAULT);
	/* Where nothing can be accessed there is no need of a gap. */
	CHECK_EQ(mprotect(below, P, PROT_NONE), 0);
	CHECK(writable(below + P));
	CHECK_EQ(size_of(at), 699);
	CHECK(!writable(below));
	CHECK_EQ(fault_code, SEGV_ACCERR);
	munmap(below, 700 * P);
	/* The limit is that of the stack. */
	struct rlimit old, limit;
	getrlimit(RLIMIT_STACK, &old);
	limit = old;
	limit.rlim_cur = 100 * P;
	at = mmap(top - 2 * P, 2 * P, PROT_READ | PROT_WRITE, ANON | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	pid_t child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_STACK, &limit);
		_exit(writable(top - 100 * P) + 2 * writable(top - 101 * P));
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(WEXITSTATUS(status), 1);
	/* A part of it does not become smaller or stop to grow by a change of the rest. */
	CHECK_EQ(mprotect(at, P, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
	CHECK(writable(at - P));
	CHECK_EQ(munmap(at - P, P), 0);
	CHECK(writable(at - P));
	/* Anonymous and private only. */
	int fd = open("f", O_RDWR);
	CHECK_ERRNO((long)mmap(NULL, P, PROT_READ, MAP_SHARED | MAP_GROWSDOWN, fd, 0), EINVAL);
	CHECK_ERRNO((long)mmap(NULL, P, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0), EINVAL);
	char *private = mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0);
	CHECK(private == MAP_FAILED);
	munmap(at - P, top - at + P);
	/* mprotect to the beginning. */
	at = mmap(top - 4 * P, 4 * P, PROT_READ | PROT_WRITE, ANON | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	CHECK_EQ(mprotect(top - P, P, PROT_READ | PROT_GROWSDOWN), 0);
	CHECK(!writable(at));
	CHECK_EQ(size_of(at), 4);
	CHECK_ERRNO(mprotect(low, P, PROT_READ | PROT_GROWSDOWN), ENOMEM);
	munmap(at, 4 * P);
	char *plain = map(2, ANON);
	CHECK_ERRNO(mprotect(plain, P, PROT_READ | PROT_GROWSDOWN), EINVAL);
	munmap(plain, 2 * P);
	/* Neighbours that do not grow stay apart from it. */
	at = mmap(top - 2 * P, 2 * P, PROT_READ | PROT_WRITE, ANON | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	CHECK(mmap(top - 3 * P, P, PROT_READ | PROT_WRITE, ANON | MAP_FIXED, -1, 0) == top - 3 * P);
	CHECK_EQ(size_of(at), 2);
	CHECK(!writable(at - 2 * P));
	munmap(at - P, 3 * P);
}

/* What could be written once has memory set aside for it: it does not become one with a neighbour that never could. */
static void set_aside(void)
{
	char *at = mmap(NULL, 3 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED && size_of(at) >= 3);
	CHECK_EQ(mprotect(at + P, P, PROT_READ), 0);
	CHECK_EQ(size_of(at + P), 1);
	CHECK_EQ(mprotect(at + P, P, PROT_NONE), 0);
	CHECK(size_of(at) >= 3);
	CHECK_EQ(mprotect(at + P, P, PROT_READ | PROT_WRITE), 0);
	at[P] = 1;
	CHECK_EQ(mprotect(at + P, P, PROT_NONE), 0);
	CHECK_EQ(size_of(at + P), 1);
	munmap(at, 3 * P);
}

int main(void)
{
	tap_directory();
	leaving();
	set_aside();
	failing();
	twice();
	growing();
	return tap_done();
}
