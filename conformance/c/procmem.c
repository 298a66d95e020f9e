/* /proc/PID/mem (proc(5)): a process's memory as a file, by the right of a debugger: protection does not count. */
#include "tap.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PAGE 4096

static int memory;

static char *map(int protection, int flags)
{
	char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return at;
	memcpy(at, "before", 7);
	return mprotect(at, 2 * PAGE, protection) ? MAP_FAILED : at;
}

static void reads(void)
{
	char *hidden = map(PROT_NONE, MAP_PRIVATE), *empty = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char got[8] = "";
	CHECK(pread(memory, got, 7, (off_t)hidden) == 7 && !strcmp(got, "before"));
	CHECK(pread(memory, got, 1, (off_t)empty) == 1 && got[0] == 0);
	CHECK(lseek(memory, (off_t)hidden + 2, SEEK_SET) == (off_t)hidden + 2);
	CHECK(read(memory, got, 3) == 3 && !memcmp(got, "for", 3));
	CHECK(read(memory, got, 1) == 1 && got[0] == 'e');
	/* Up to the end of what is mapped. */
	munmap(hidden + PAGE, PAGE);
	CHECK_EQ(pread(memory, got, 8, (off_t)hidden + PAGE - 3), 3);
	CHECK_ERRNO(pread(memory, got, 8, (off_t)hidden + PAGE), EIO);
	CHECK_EQ(pread(memory, got, 0, (off_t)hidden + PAGE), 0);
}

static void writes(void)
{
	char *still = map(PROT_READ, MAP_PRIVATE), *hidden = map(PROT_NONE, MAP_PRIVATE), *shared = map(PROT_READ, MAP_SHARED);
	CHECK_EQ(pwrite(memory, "AFTER", 5, (off_t)still), 5);
	CHECK(!strcmp(still, "AFTERe"));
	CHECK_EQ(pwrite(memory, "AFTER", 5, (off_t)hidden), 5);
	CHECK(mprotect(hidden, PAGE, PROT_READ) == 0 && !strcmp(hidden, "AFTERe"));
	/* What others see as well is written by those only who may. */
	CHECK_ERRNO(pwrite(memory, "AFTER", 5, (off_t)shared), EIO);
	CHECK(!strcmp(shared, "before"));
	CHECK(mprotect(shared, PAGE, PROT_READ | PROT_WRITE) == 0 && pwrite(memory, "AFTER", 5, (off_t)shared) == 5);
	CHECK(!strcmp(shared, "AFTERe"));
	/* The position moves along. */
	CHECK(lseek(memory, (off_t)still, SEEK_SET) == (off_t)still && write(memory, "xy", 2) == 2 && write(memory, "z", 1) == 1);
	CHECK(!strcmp(still, "xyzERe"));
	CHECK_EQ(write(memory, "", 0), 0);
	/* A page that there is not yet. */
	char *empty = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(pwrite(memory, "x", 1, (off_t)empty + 5), 1);
	CHECK(mprotect(empty, PAGE, PROT_READ) == 0 && empty[5] == 'x' && empty[4] == 0);
	/* Over the edge of a page, and up to the end. */
	CHECK(pwrite(memory, "1234", 4, (off_t)still + PAGE - 2) == 4 && !memcmp(still + PAGE - 2, "1234", 4));
	munmap(still + PAGE, PAGE);
	CHECK_EQ(pwrite(memory, "1234", 4, (off_t)still + PAGE - 2), 2);
	CHECK_ERRNO(pwrite(memory, "1", 1, (off_t)still + PAGE), EIO);
}

static void files(void)
{
	int file = open("procmem-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	REQUIRE(file >= 0 && write(file, "content", 7) == 7);
	int reader = open("procmem-file", O_RDONLY);
	char *private = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, 0), *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
	REQUIRE(private != MAP_FAILED && shared != MAP_FAILED);
	CHECK_EQ(pwrite(memory, "private", 7, (off_t)private), 7);
	CHECK(!memcmp(private, "private", 7) && !memcmp(shared, "content", 7));
	CHECK_ERRNO(pwrite(memory, "other", 5, (off_t)shared), EIO);
	char got[8] = "";
	CHECK(pread(file, got, 7, 0) == 7 && !strcmp(got, "content"));
	unlink("procmem-file");
}

/* Instructions that were executed already. */
static void code(void)
{
	static const unsigned char one[] = { 0xb8, 1, 0, 0, 0, 0xc3 };
	unsigned char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(page, one, sizeof one);
	REQUIRE(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
	int (*call)(void) = (int (*)(void))(void *)page;
	CHECK_EQ(call(), 1);
	CHECK_EQ(pwrite(memory, "\2", 1, (off_t)page + 1), 1);
	CHECK_EQ(call(), 2);
}

int main(void)
{
	memory = open("/proc/self/mem", O_RDWR);
	REQUIRE(memory >= 0);
	reads();
	writes();
	files();
	code();
	return tap_done();
}
