/* personality(2), ioprio_set(2), capget(2) and capset(2). */
#include "tap.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

static char text[256];

static const char *shown(const char *path)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	close(fd);
	return text;
}

/* The rights of the mapping at an address, as /proc/self/maps has them. */
static const char *rights(void *at)
{
	static char line[512], found[8];
	FILE *maps = fopen("/proc/self/maps", "r");
	found[0] = 0;
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;
		char r[8];
		if (sscanf(line, "%lx-%lx %4s", &from, &to, r) == 3 && (unsigned long)at >= from && (unsigned long)at < to)
			strcpy(found, r);
	}
	fclose(maps);
	return found;
}

static int has(int cap)
{
	unsigned hdr[2] = { 0x20080522, 0 }, data[6];
	REQUIRE(syscall(SYS_capget, hdr, data) == 0);
	return data[3 * (cap / 32)] >> cap % 32 & 1;
}

static int in_child(int (*act)(void))
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(act());
	REQUIRE(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int child_persona(void)
{
	return personality(0xffffffff) >> 16;
}

static int executed(void)
{
	int p[2];
	REQUIRE(pipe(p) == 0);
	if (fork() == 0) {
		dup2(p[1], 1);
		execlp("cat", "cat", "/proc/self/personality", NULL);
		_exit(1);
	}
	char got[32] = "";
	wait(NULL);
	return read(p[0], got, 31) != 9 || strcmp(got, "00040000\n");
}

static void personas(void)
{
	struct utsname plain, other;
	REQUIRE(uname(&plain) == 0);
	CHECK_EQ(personality(0xffffffff), 0);
	CHECK_EQ(strcmp(shown("/proc/self/personality"), "00000000\n"), 0);
	CHECK_EQ(personality(ADDR_NO_RANDOMIZE), 0);
	CHECK_EQ(personality(0xffffffff), ADDR_NO_RANDOMIZE);
	CHECK_EQ(strcmp(shown("/proc/self/personality"), "00040000\n"), 0);
	CHECK_EQ(in_child(child_persona), 4);
	CHECK_EQ(in_child(executed), 0);
	CHECK_EQ(personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC), ADDR_NO_RANDOMIZE);
	char *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(strcmp(rights(at), "r-xp"), 0);
	CHECK_EQ(mprotect(at, 4096, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(strcmp(rights(at), "rwxp"), 0);
	CHECK_EQ(mprotect(at, 4096, PROT_WRITE), 0);
	CHECK_EQ(strcmp(rights(at), "-w-p"), 0);
	munmap(at, 4096);
	/* Forgotten by a program that begins. */
	CHECK_EQ(in_child(executed), 0);
	CHECK_EQ(personality(UNAME26), ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC);
	CHECK_EQ(uname(&other), 0);
	CHECK_EQ(strncmp(other.release, "2.6.", 4), 0);
	CHECK_EQ(personality(PER_LINUX32), UNAME26);
	CHECK_EQ(uname(&other), 0);
	CHECK_EQ(strcmp(other.machine, "i686"), 0);
	CHECK_EQ(strcmp(other.release, plain.release), 0);
	CHECK_EQ(personality(0), PER_LINUX32);
	CHECK_EQ(uname(&other), 0);
	CHECK_EQ(memcmp(&other, &plain, sizeof plain), 0);
}

static long prio_get(int which, int who)
{
	return syscall(SYS_ioprio_get, which, who);
}

static long prio_set(int which, int who, int value)
{
	return syscall(SYS_ioprio_set, which, who, value);
}

static int child_priority(void)
{
	return prio_get(1, 0) == (2 << 13 | 6) ? 0 : 1;
}

static void priorities(void)
{
	CHECK_EQ(prio_get(1, 0), 0);
	CHECK_EQ(prio_get(1, getpid()), 0);
	CHECK_ERRNO(prio_get(0, 0), EINVAL);
	CHECK_ERRNO(prio_get(4, 0), EINVAL);
	CHECK_ERRNO(prio_get(1, 999999), ESRCH);
	CHECK_ERRNO(prio_set(0, 0, 0), EINVAL);
	CHECK_ERRNO(prio_set(1, 999999, 0), ESRCH);
	CHECK_ERRNO(prio_set(1, 0, 1), EINVAL);
	CHECK_ERRNO(prio_set(1, 0, 4 << 13), EINVAL);
	CHECK_ERRNO(prio_set(1, 0, 7 << 13), EINVAL);
	CHECK_EQ(prio_set(1, 0, 2 << 13 | 6), 0);
	CHECK_EQ(prio_get(1, 0), 2 << 13 | 6);
	CHECK_EQ(in_child(child_priority), 0);
	REQUIRE(getpgrp() == getpid() || setpgid(0, 0) == 0);
	CHECK_EQ(prio_get(2, 0), 2 << 13 | 6);
	CHECK_EQ(prio_get(2, getpgrp()), 2 << 13 | 6);
	CHECK_EQ(prio_set(2, 0, 3 << 13), 0);
	CHECK_EQ(prio_get(1, 0), 3 << 13);
	/* Without a value of its own the nice value tells. */
	CHECK_EQ(prio_set(1, 0, 0), 0);
	CHECK_EQ(prio_get(1, 0), 0);
	CHECK_EQ(prio_get(2, 0), 2 << 13 | 4);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 10), 0);
	CHECK_EQ(prio_get(2, 0), 2 << 13 | 6);
	CHECK_EQ(prio_get(1, 0), 0);
	int real_time = prio_set(1, 0, 1 << 13 | 4) == 0;
	CHECK_EQ(real_time, has(23) || has(21));
}

static void capabilities(void)
{
	unsigned hdr[2] = { 0x19980330, 0 }, data[6] = { 0 }, all[6];
	unsigned now[2] = { 0x20080522, 0 };
	memset(data, 0x55, sizeof data);
	CHECK_EQ(syscall(SYS_capget, now, all), 0);
	CHECK_EQ(syscall(SYS_capget, hdr, data), 0);
	CHECK_EQ(hdr[0], 0x19980330);
	CHECK(data[0] == all[0] && data[1] == all[1] && data[2] == all[2]);
	CHECK(data[3] == 0x55555555 && data[5] == 0x55555555);
	hdr[0] = 0x20071026;
	CHECK_EQ(syscall(SYS_capget, hdr, data), 0);
	CHECK_EQ(memcmp(data, all, sizeof all), 0);
	hdr[0] = 1;
	CHECK_ERRNO(syscall(SYS_capget, hdr, data), EINVAL);
	CHECK_EQ(hdr[0], 0x20080522);
	hdr[0] = 1;
	CHECK_EQ(syscall(SYS_capget, hdr, NULL), 0);
	CHECK_EQ(hdr[0], 0x20080522);
	hdr[1] = 999999;
	CHECK_EQ(syscall(SYS_capget, hdr, NULL), 0);
	CHECK_ERRNO(syscall(SYS_capget, hdr, data), ESRCH);
	hdr[1] = -1;
	CHECK_ERRNO(syscall(SYS_capget, hdr, data), EINVAL);
	hdr[1] = 0;
	CHECK_ERRNO(syscall(SYS_capget, hdr, BAD), EFAULT);
	CHECK_ERRNO(syscall(SYS_capget, BAD, data), EFAULT);
	hdr[0] = 1;
	CHECK_ERRNO(syscall(SYS_capset, hdr, NULL), EINVAL);
	hdr[0] = 0x20080522;
	CHECK_ERRNO(syscall(SYS_capset, hdr, NULL), EFAULT);
	hdr[1] = 1 << 20;
	CHECK_ERRNO(syscall(SYS_capset, hdr, all), EPERM);
	hdr[1] = getpid();
	CHECK_EQ(syscall(SYS_capset, hdr, all), 0);
	/* The old structure clears what it does not have. */
	hdr[0] = 0x19980330;
	CHECK_EQ(syscall(SYS_capset, hdr, all), 0);
	CHECK_EQ(syscall(SYS_capget, now, data), 0);
	CHECK(data[0] == all[0] && data[1] == all[1] && data[3] == 0 && data[4] == 0);
}

int main(void)
{
	tap_directory();
	personas();
	priorities();
	capabilities();
	return tap_done();
}
