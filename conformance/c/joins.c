/* Which private mappings are joined: those that have no pages yet, or pages of one set (/proc/PID/maps; anon_vma in the kernel's mm). */
#include "tap.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE 4096
#define FIXED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)

static char *room;
static char shown[256];

/* The mappings between two pages of the room that can be accessed, as "4-6 7-8". */
static const char *between(int from, int to)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	REQUIRE(maps);
	*shown = 0;
	while (fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		REQUIRE(sscanf(line, "%lx-%lx", &start, &end) == 2);
		long first = ((long)start - (long)room) / PAGE, last = ((long)end - (long)room) / PAGE;
		if (last <= from || first >= to || strstr(line, "---p"))
			continue;
		sprintf(shown + strlen(shown), "%s%ld-%ld", *shown ? " " : "", first, last);
	}
	fclose(maps);
	return shown;
}

#define CHECK_MAPS(from, to, wanted) CHECK(strcmp(between(from, to), wanted) == 0)

static void map(int page, int pages, int prot)
{
	REQUIRE(mmap(room + page * PAGE, (size_t)pages * PAGE, prot, FIXED, -1, 0) == room + page * PAGE);
}

static void touch(int page)
{
	room[page * PAGE] = 1;
}

static void fresh(void)
{
	map(0, 64, PROT_NONE);
}

#define RW (PROT_READ | PROT_WRITE)

static void by_pages(void)
{
	/* What has no pages is joined with any neighbour, but joins none that have different ones. */
	fresh();
	map(4, 1, RW), map(5, 1, RW);
	CHECK_MAPS(0, 64, "4-6");
	map(8, 1, RW), touch(8), map(10, 1, RW), touch(10), map(9, 1, RW);
	CHECK_MAPS(8, 64, "8-10 10-11");
	map(16, 1, RW), map(18, 1, RW), touch(18), map(17, 1, RW);
	CHECK_MAPS(16, 64, "16-19");
	/* A page that was only read is none, until it is written. */
	map(30, 1, RW), map(32, 1, RW), touch(32);
	CHECK_EQ(room[30 * PAGE], 0);
	map(31, 1, RW);
	CHECK_MAPS(30, 64, "30-33");
	map(40, 1, RW), map(42, 1, RW), touch(42);
	CHECK_EQ(room[40 * PAGE], 0);
	touch(40), map(41, 1, RW);
	CHECK_MAPS(40, 64, "40-42 42-43");
	/* Of two neighbours that are kept apart by their protection one gets the set of the other. */
	fresh();
	map(4, 1, RW), touch(4), map(5, 1, PROT_READ), mprotect(room + 5 * PAGE, PAGE, RW);
	CHECK_MAPS(4, 64, "4-6");
	mprotect(room + 5 * PAGE, PAGE, PROT_READ);
	CHECK_MAPS(4, 64, "4-5 5-6");
	touch(4), mprotect(room + 5 * PAGE, PAGE, RW), touch(5);
	CHECK_MAPS(4, 64, "4-6");
	map(10, 1, RW), touch(10), map(11, 1, RW | PROT_EXEC), touch(11), mprotect(room + 11 * PAGE, PAGE, RW);
	CHECK_MAPS(10, 64, "10-12");
	/* The set of the next one goes first. */
	map(20, 1, RW), touch(20), map(22, 1, RW), touch(22), map(21, 1, RW | PROT_EXEC), touch(21), mprotect(room + 21 * PAGE, PAGE, RW);
	CHECK_MAPS(20, 64, "20-21 21-23");
	/* What is not changed is not joined. */
	mprotect(room + 20 * PAGE, 3 * PAGE, RW);
	CHECK_MAPS(20, 64, "20-21 21-23");
}

static void by_calls(void)
{
	/* The kernel writes pages as well. */
	fresh();
	int ends[2];
	char buf[8] = "abc";
	REQUIRE(pipe(ends) == 0 && write(ends[1], buf, 6) == 6);
	map(4, 1, RW), map(6, 1, RW);
	CHECK_EQ(read(ends[0], room + 4 * PAGE, 3), 3);
	CHECK_EQ(read(ends[0], room + 6 * PAGE, 3), 3);
	map(5, 1, RW);
	CHECK_MAPS(4, 64, "4-6 6-7");
	close(ends[0]), close(ends[1]);
	/* So do MAP_POPULATE and MADV_POPULATE_WRITE. */
	unsigned char in[4];
	REQUIRE(mmap(room + 10 * PAGE, PAGE, RW, FIXED | MAP_POPULATE, -1, 0) != MAP_FAILED);
	CHECK(mincore(room + 10 * PAGE, PAGE, in) == 0 && in[0] & 1);
	map(12, 1, RW), touch(12), map(11, 1, RW);
	CHECK_MAPS(10, 64, "10-12 12-13");
	REQUIRE(mmap(room + 20 * PAGE, PAGE, RW, FIXED | MAP_POPULATE | MAP_NONBLOCK, -1, 0) != MAP_FAILED);
	CHECK(mincore(room + 20 * PAGE, PAGE, in) == 0 && !(in[0] & 1));
	REQUIRE(mmap(room + 30 * PAGE, PAGE, PROT_NONE, FIXED | MAP_POPULATE, -1, 0) != MAP_FAILED);
}

static void moved(void)
{
	/* Pages keep their place in their set, so what has moved is joined only where it fits. */
	fresh();
	map(4, 1, RW), touch(4), map(10, 1, RW), touch(10);
	REQUIRE(mremap(room + 4 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 30 * PAGE) == room + 30 * PAGE);
	map(31, 1, RW);
	CHECK_MAPS(30, 64, "30-31 31-32");
	/* What had no pages has none in another place. */
	map(20, 1, RW);
	REQUIRE(mremap(room + 20 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 40 * PAGE) == room + 40 * PAGE);
	map(41, 1, RW);
	CHECK_MAPS(40, 64, "40-42");
	/* And back again. */
	REQUIRE(mremap(room + 30 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 4 * PAGE) == room + 4 * PAGE);
	map(5, 1, RW);
	CHECK_MAPS(4, 10, "4-6");
	/* It grows in its place. */
	munmap(room + 11 * PAGE, PAGE);
	CHECK(mremap(room + 10 * PAGE, PAGE, 2 * PAGE, 0) == room + 10 * PAGE);
	CHECK_MAPS(10, 20, "10-12");
}

static void copies(void)
{
	fresh();
	map(4, 1, RW), touch(4), map(10, 1, RW), map(20, 2, RW), touch(20);
	pid_t child = fork();
	if (child == 0) {
		int bad = 0;
		/* Nothing without pages is joined with a copy that has some. */
		map(5, 1, RW), map(11, 1, RW);
		bad |= strcmp(between(4, 10), "4-5 5-6") != 0;
		bad |= strcmp(between(10, 20), "10-12") != 0;
		/* What was one is one again. */
		mprotect(room + 21 * PAGE, PAGE, PROT_READ);
		mprotect(room + 21 * PAGE, PAGE, RW);
		bad |= strcmp(between(20, 30), "20-22") != 0;
		_exit(bad);
	}
	int status;
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	/* The parent is not concerned. */
	map(5, 1, RW);
	CHECK_MAPS(4, 10, "4-6");
	/* Parts of a mapping that are kept apart get different sets. */
	mprotect(room + 21 * PAGE, PAGE, PROT_READ);
	child = fork();
	if (child == 0) {
		mprotect(room + 21 * PAGE, PAGE, RW);
		_exit(strcmp(between(20, 30), "20-21 21-22") != 0);
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	mprotect(room + 21 * PAGE, PAGE, RW);
	CHECK_MAPS(20, 30, "20-22");
}

/* What MADV_DONTFORK and MADV_WIPEONFORK say is apart: each is taken back by its own opposite. */
static void advised(void)
{
	fresh();
	map(4, 3, RW), touch(5);
	REQUIRE(madvise(room + 5 * PAGE, PAGE, MADV_WIPEONFORK) == 0 && madvise(room + 5 * PAGE, PAGE, MADV_DOFORK) == 0);
	CHECK_MAPS(4, 64, "4-5 5-6 6-7");
	REQUIRE(madvise(room + 5 * PAGE, PAGE, MADV_DONTFORK) == 0 && madvise(room + 5 * PAGE, PAGE, MADV_DOFORK) == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(room[5 * PAGE]);
	int status;
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	REQUIRE(madvise(room + 5 * PAGE, PAGE, MADV_DONTFORK) == 0 && madvise(room + 5 * PAGE, PAGE, MADV_KEEPONFORK) == 0);
	CHECK_MAPS(4, 64, "4-5 5-6 6-7");
	REQUIRE(madvise(room + 5 * PAGE, PAGE, MADV_DOFORK) == 0);
	CHECK_MAPS(4, 64, "4-7");
}

static void files(void)
{
	int fd = open("pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
	REQUIRE(fd >= 0 && ftruncate(fd, 16 * PAGE) == 0);
	fresh();
	for (int page = 4; page < 7; page += 2) {
		REQUIRE(mmap(room + page * PAGE, PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, page * PAGE) != MAP_FAILED);
		touch(page);
	}
	REQUIRE(mmap(room + 5 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 5 * PAGE) != MAP_FAILED);
	CHECK_MAPS(4, 64, "4-6 6-7");
	/* Shared ones have no pages of their own. */
	for (int page = 14; page < 17; page++) {
		REQUIRE(mmap(room + page * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, (page - 10) * PAGE) != MAP_FAILED);
		touch(page);
	}
	CHECK_MAPS(14, 64, "14-17");
	close(fd);
}

int main(void)
{
	tap_directory();
	room = mmap(NULL, 66 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(room != MAP_FAILED);
	room += PAGE;
	by_pages();
	by_calls();
	moved();
	copies();
	advised();
	files();
	return tap_done();
}
