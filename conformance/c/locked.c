/* Locked memory: mlock(2), mlock2(2), mlockall(2), RLIMIT_MEMLOCK; /proc/self/pagemap. */
#include "tap.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif
#define P 4096ul
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

/* VmLck in pages. */
static long locked(void)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, status))
		if (sscanf(line, "VmLck: %ld kB", &kib) == 1)
			break;
	fclose(status);
	return kib / 4;
}

/* The flags of the mapping at an address that concern locks. */
static const char *flags(void *at)
{
	static char line[512], found[16];
	FILE *smaps = fopen("/proc/self/smaps", "r");
	int here = 0;
	found[0] = 0;
	while (fgets(line, sizeof line, smaps)) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (unsigned long)at >= from && (unsigned long)at < to;
		else if (here && strncmp(line, "VmFlags:", 8) == 0) {
			if (strstr(line, " lo "))
				strcat(found, "lo");
			if (strstr(line, " lf "))
				strcat(found, "lf");
		}
	}
	fclose(smaps);
	return found;
}

/* Whether a page is there: bit 63 of its entry. */
static int present(void *at)
{
	unsigned long long entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	REQUIRE(pread(fd, &entry, 8, (unsigned long)at / P * 8) == 8);
	close(fd);
	return entry >> 63;
}

static void limit(rlim_t bytes)
{
	struct rlimit r;
	REQUIRE(getrlimit(RLIMIT_MEMLOCK, &r) == 0);
	r.rlim_cur = bytes;
	REQUIRE(setrlimit(RLIMIT_MEMLOCK, &r) == 0);
}

static char *map(size_t pages, int more)
{
	char *at = mmap(NULL, pages * P, PROT_READ | PROT_WRITE, ANON | more, -1, 0);
	REQUIRE(at != MAP_FAILED);
	return at;
}

static void single(void)
{
	char *at = map(1000, 0);
	CHECK_EQ(locked(), 0);
	CHECK_EQ(mlock(at + 500 * P, 3 * P), 0);
	CHECK_EQ(locked(), 3);
	CHECK_EQ(strcmp(flags(at + 500 * P), "lo"), 0);
	CHECK_EQ(strcmp(flags(at), ""), 0);
	CHECK(present(at + 500 * P) && present(at + 502 * P));
	CHECK(!present(at + 800 * P));
	/* Not twice, and by whole pages. */
	CHECK_EQ(mlock(at + 501 * P + 100, 2 * P), 0);
	CHECK_EQ(locked(), 4);
	CHECK_EQ(munlock(at + 501 * P, 1), 0);
	CHECK_EQ(locked(), 3);
	CHECK_EQ(mlock(at, 0), 0);
	CHECK_EQ(locked(), 3);
	CHECK_ERRNO(mlock((void *)-P, 3 * P), EINVAL);
	/* Up to what is not mapped. */
	CHECK_EQ(munmap(at + 600 * P, P), 0);
	CHECK_ERRNO(mlock(at + 598 * P, 4 * P), ENOMEM);
	CHECK_EQ(locked(), 5);
	CHECK_ERRNO(munlock(at + 599 * P, 4 * P), ENOMEM);
	CHECK_EQ(locked(), 4);
	CHECK_ERRNO(mlock(at + 600 * P, P), ENOMEM);
	CHECK_EQ(locked(), 4);
	/* Nothing, mapped or not. */
	CHECK_EQ(mlock(at + 10 * P, 0), 0);
	CHECK_EQ(syscall(SYS_mlock2, at + 600 * P, 0, 0), 0);
	CHECK_EQ(munlock(at + 10 * P, 0), 0);
	CHECK_EQ(mlock(at + 10 * P, ~0UL), 0);
	CHECK_EQ(locked(), 4);
	/* What cannot be read cannot be made. */
	CHECK_EQ(mprotect(at + 700 * P, P, PROT_NONE), 0);
	CHECK_ERRNO(mlock(at + 700 * P, P), ENOMEM);
	CHECK_EQ(locked(), 5);
	/* When they are touched. */
	CHECK_ERRNO(syscall(SYS_mlock2, at, P, 2), EINVAL);
	CHECK_EQ(syscall(SYS_mlock2, at + 800 * P, 100 * P, MLOCK_ONFAULT), 0);
	CHECK_EQ(locked(), 105);
	CHECK_EQ(strcmp(flags(at + 800 * P), "lolf"), 0);
	CHECK(!present(at + 850 * P));
	CHECK_EQ(syscall(SYS_mlock2, at + 800 * P, 100 * P, 0), 0);
	CHECK_EQ(strcmp(flags(at + 800 * P), "lo"), 0);
	CHECK(present(at + 850 * P));
	/* What locks forbid. */
	CHECK_ERRNO(madvise(at + 800 * P, P, MADV_DONTNEED), EINVAL);
	CHECK_ERRNO(madvise(at + 800 * P, P, MADV_FREE), EINVAL);
	CHECK_EQ(madvise(at + 800 * P, P, 24), 0);
	CHECK_ERRNO(msync(at + 800 * P, P, MS_SYNC | MS_INVALIDATE), EBUSY);
	CHECK_EQ(msync(at + 800 * P, P, MS_SYNC), 0);
	/* Children have none; what is unmapped is not locked. */
	pid_t child = fork();
	if (child == 0)
		_exit(locked() != 0);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(munmap(at + 850 * P, 10 * P), 0);
	CHECK_EQ(locked(), 95);
	munmap(at, 1000 * P);
	CHECK_EQ(locked(), 0);
	at = map(4, MAP_LOCKED);
	CHECK_EQ(locked(), 4);
	CHECK(present(at) && present(at + 3 * P));
	/* It moves with its lock. */
	char *to = mremap(at, 4 * P, 8 * P, MREMAP_MAYMOVE);
	CHECK(to != MAP_FAILED);
	CHECK_EQ(locked(), 8);
	CHECK_EQ(strcmp(flags(to + 7 * P), "lo"), 0);
	munmap(to, 8 * P);
	CHECK_EQ(locked(), 0);
}

static void limits(void)
{
	limit(10 * P + 5);
	char *at = map(100, 0);
	CHECK_ERRNO(mlock(at, 11 * P), ENOMEM);
	CHECK_EQ(mlock(at, 10 * P), 0);
	CHECK_EQ(mlock(at + 2 * P, 5 * P), 0);
	CHECK_ERRNO(mlock(at + 10 * P, P), ENOMEM);
	CHECK_ERRNO(mlock(at + 1 * P, 10 * P), ENOMEM);
	CHECK_EQ(locked(), 10);
	CHECK_ERRNO((long)mmap(NULL, P, PROT_READ, ANON | MAP_LOCKED, -1, 0), EAGAIN);
	CHECK_ERRNO((long)mremap(at, 10 * P, 200 * P, MREMAP_MAYMOVE), EAGAIN);
	CHECK_EQ(munlock(at, 5 * P), 0);
	CHECK((char *)mmap(NULL, 5 * P, PROT_READ, ANON | MAP_LOCKED, -1, 0) != MAP_FAILED);
	CHECK_EQ(locked(), 10);
	CHECK_ERRNO(mlockall(MCL_CURRENT), ENOMEM);
	CHECK_EQ(munlockall(), 0);
	CHECK_EQ(locked(), 0);
	limit(0);
	CHECK_ERRNO(mlock(at, P), EPERM);
	CHECK_ERRNO(mlock(at, 0), EPERM);
	CHECK_ERRNO(mlockall(MCL_FUTURE), EPERM);
	CHECK_ERRNO((long)mmap(NULL, P, PROT_READ, ANON | MAP_LOCKED, -1, 0), EPERM);
	CHECK_EQ(munlock(at, P), 0);
	CHECK_EQ(munlockall(), 0);
	munmap(at, 100 * P);
}

static void all(void)
{
	CHECK_ERRNO(mlockall(0), EINVAL);
	CHECK_ERRNO(mlockall(MCL_ONFAULT), EINVAL);
	CHECK_ERRNO(mlockall(8), EINVAL);
	limit(8ul << 20);
	CHECK_EQ(mlockall(MCL_FUTURE), 0);
	CHECK_EQ(locked(), 0);
	char *at = map(4, 0);
	CHECK_EQ(locked(), 4);
	CHECK(present(at + 3 * P));
	CHECK_EQ(mlockall(MCL_FUTURE | MCL_ONFAULT), 0);
	char *lazy = map(1000, 0);
	CHECK(locked() >= 1000);
	CHECK_EQ(strcmp(flags(lazy), "lolf"), 0);
	CHECK(!present(lazy + 500 * P));
	CHECK_ERRNO((long)mmap(NULL, 2000 * P, PROT_READ, ANON, -1, 0), EAGAIN);
	CHECK_EQ(munlockall(), 0);
	CHECK_EQ(locked(), 0);
	munmap(at, 4 * P), munmap(lazy, 1000 * P);
	at = map(4, 0);
	CHECK_EQ(locked(), 0);
	CHECK_EQ(mlockall(MCL_CURRENT), 0);
	CHECK(locked() >= 4 && present(at + 3 * P));
	lazy = map(3, 0);
	CHECK_EQ(strcmp(flags(lazy), ""), 0);
	CHECK_EQ(munlockall(), 0);
	CHECK_EQ(locked(), 0);
	munmap(lazy, 3 * P), munmap(at, 4 * P);
	CHECK_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0);
	pid_t child = fork();
	if (child == 0) {
		if (locked() != 0)
			_exit(1);
		map(4, 0);
		_exit(locked() != 0);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(munlockall(), 0);
}

/* Without CAP_IPC_LOCK, which containers do not have. */
static void drop(void)
{
	unsigned hdr[2] = { 0x20080522, 0 }, data[6];
	REQUIRE(syscall(SYS_capget, hdr, data) == 0);
	data[0] &= ~(1u << 14);
	REQUIRE(syscall(SYS_capset, hdr, data) == 0);
}

static void pagemap(void)
{
	char *at = map(3000, 0);
	unsigned long long entry[4];
	int fd = open("/proc/self/pagemap", O_RDONLY);
	CHECK(fd >= 0);
	at[1000 * P] = 1;
	CHECK(present(at + 1000 * P));
	CHECK(!present(at + 2500 * P));
	CHECK_EQ(pread(fd, entry, 32, (unsigned long)at / P * 8), 32);
	CHECK_ERRNO(pread(fd, entry, 8, (unsigned long)at / P * 8 + 1), EINVAL);
	CHECK_ERRNO(pread(fd, entry, 7, (unsigned long)at / P * 8), EINVAL);
	CHECK_EQ(pread(fd, entry, 0, 0), 0);
	CHECK_EQ(pread(fd, entry, 8, 0), 8);
	CHECK_EQ(entry[0], 0);
	/* Behind the last address. */
	CHECK_EQ(pread(fd, entry, 8, 1ll << 50), 0);
	CHECK_EQ(lseek(fd, (unsigned long)at / P * 8, SEEK_SET), (unsigned long)at / P * 8);
	CHECK_EQ(read(fd, entry, 16), 16);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), (unsigned long)at / P * 8 + 16);
	CHECK_ERRNO(write(fd, entry, 8), EBADF);
	/* A page of a file. */
	int file = open("f", O_RDWR | O_CREAT, 0600);
	REQUIRE(write(file, "x", 1) == 1);
	char *mapped = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	mapped[0]++;
	CHECK_EQ(pread(fd, entry, 8, (unsigned long)mapped / P * 8), 8);
	CHECK_EQ(entry[0] >> 61 & 7, 5);
	mapped = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	mapped[0]++;
	CHECK_EQ(pread(fd, entry, 8, (unsigned long)mapped / P * 8), 8);
	CHECK_EQ(entry[0] >> 61 & 7, 4);
	close(file), close(fd);
	munmap(at, 3000 * P);
}

int main(void)
{
	tap_directory();
	pagemap();
	drop();
	limit(8ul << 20);
	single();
	limits();
	/* The limit was lowered for good if it is the hard one. */
	all();
	return tap_done();
}
