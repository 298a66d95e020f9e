/*
 * Nondeterministic on purpose: prints whatever differs natively from run to run, or from machine to machine. Under a
 * deterministic simulation it prints the same whenever the seed is the same.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cpuid.h>
#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define THREADS 4
#define ROUNDS 2000

extern char **environ;
static volatile long counter, winner = -1;
static volatile char trace[64];
static volatile int traced;

static void hexadecimal(const char *name, const void *data, size_t length)
{
	printf("%s ", name);
	for (size_t i = 0; i < length; i++)
		printf("%02x", ((const unsigned char *)data)[i]);
	printf("\n");
}

/* Threads race on a plain counter: updates get lost. */
static void *race(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		long old = counter;
		if (i % 16 == 0)
			sched_yield();
		counter = old + 1;
		if (i % 100 == 0 && traced < 64)
			trace[traced++] = (char)('a' + (long)argument);
	}
	if (winner < 0)
		winner = (long)argument;
	return argument;
}

static void threads(void)
{
	pthread_t all[THREADS];
	for (long i = 0; i < THREADS; i++)
		pthread_create(&all[i], NULL, race, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
	printf("counter %ld of %d, first done %ld, trace %.64s\n", counter, THREADS * ROUNDS, winner, (const char *)trace);
}

static void processes(void)
{
	int fds[2];
	char line[17] = "";
	printf("pid %d ppid %d pgrp %d sid %d tid %d\n", getpid(), getppid(), getpgrp(), getsid(0), gettid());
	fflush(stdout);
	if (pipe(fds) != 0)
		return;
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			for (int n = 0; n < 4; n++) {
				char c = (char)('0' + i);
				if (write(fds[1], &c, 1) != 1)
					_exit(1);
				sched_yield();
			}
			_exit(0);
		}
	close(fds[1]);
	for (int n = 0; n < 16 && read(fds[0], line + n, 1) == 1; n++)
		;
	printf("children wrote %s, ended", line);
	for (pid_t pid; (pid = wait(NULL)) > 0;)
		printf(" %d", pid);
	printf("\n");
	close(fds[0]);
}

static void times_of_day(void)
{
	static const clockid_t clocks[] = { CLOCK_REALTIME,	   CLOCK_MONOTONIC,	  CLOCK_PROCESS_CPUTIME_ID,
					    CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
					    CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME };
	struct timespec t;
	for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		clock_gettime(clocks[i], &t);
		printf("clock %d %lld.%09ld\n", clocks[i], (long long)t.tv_sec, t.tv_nsec);
	}
	struct timeval tv;
	gettimeofday(&tv, NULL);
	printf("gettimeofday %lld.%06ld time %lld\n", (long long)tv.tv_sec, (long)tv.tv_usec, (long long)time(NULL));
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	clock_gettime(CLOCK_MONOTONIC, &after);
	printf("slept %lld ns\n", (long long)(after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec);
	volatile long passes = 0;
	clock_gettime(CLOCK_MONOTONIC, &before);
	do {
		passes++;
		clock_gettime(CLOCK_MONOTONIC, &after);
	} while ((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec < 1000000);
	printf("passes in a millisecond %ld\n", passes);
	struct tms tms;
	struct rusage usage;
	printf("times %ld", (long)times(&tms));
	getrusage(RUSAGE_SELF, &usage);
	printf(" user %ld.%06ld faults %ld switches %ld\n", (long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec,
	       usage.ru_minflt, usage.ru_nvcsw + usage.ru_nivcsw);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	(void)signal;
	alarms++;
}

static void interrupted(void)
{
	struct itimerval t = { .it_value = { 0, 2000 }, .it_interval = { 0, 2000 } };
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &t, NULL);
	long steps = 0;
	while (alarms < 5) {
		steps++;
		(void)getppid();
	}
	memset(&t, 0, sizeof t);
	setitimer(ITIMER_REAL, &t, NULL);
	printf("calls until the fifth alarm %ld\n", steps);
}

static void randomness(void)
{
	unsigned char bytes[16];
	int fd = open("/dev/urandom", O_RDONLY);
	if (fd >= 0 && read(fd, bytes, sizeof bytes) == sizeof bytes)
		hexadecimal("urandom", bytes, sizeof bytes);
	close(fd);
	if (getrandom(bytes, sizeof bytes, 0) == sizeof bytes)
		hexadecimal("getrandom", bytes, sizeof bytes);
	if (getentropy(bytes, sizeof bytes) == 0)
		hexadecimal("getentropy", bytes, sizeof bytes);
	hexadecimal("AT_RANDOM", (void *)getauxval(AT_RANDOM), 16);
	char text[64] = "";
	fd = open("/proc/sys/kernel/random/uuid", O_RDONLY);
	if (fd >= 0 && read(fd, text, 36) == 36)
		printf("uuid %s\n", text);
	close(fd);
	char name[] = "/tmp/nondet-XXXXXX";
	fd = mkstemp(name);
	printf("mkstemp %s\n", name);
	close(fd);
	unlink(name);
}

static void instructions(void)
{
	unsigned aux = 0;
	unsigned long long first = __rdtsc(), second = __rdtscp(&aux);
	printf("rdtsc %llu rdtscp %llu aux %u difference %lld\n", first, second, aux, (long long)(second - first));
	static const unsigned bases[] = { 0, 0x40000000, 0x80000000 };
	for (int b = 0; b < 3; b++) {
		unsigned a, bx, c, d;
		__cpuid(bases[b], a, bx, c, d);
		unsigned last = a;
		/* A base that does not exist answers something else. */
		if (last < bases[b] || last > bases[b] + 0x40)
			last = bases[b];
		for (unsigned leaf = bases[b]; leaf <= last; leaf++) {
			unsigned subleaves = leaf == 4 || leaf == 7 || leaf == 0xb || leaf == 0xd || leaf == 0x1f ? 4 : 1;
			for (unsigned sub = 0; sub < subleaves; sub++) {
				__cpuid_count(leaf, sub, a, bx, c, d);
				printf("cpuid %08x/%u %08x %08x %08x %08x\n", leaf, sub, a, bx, c, d);
			}
		}
	}
	printf("cpu %d, xgetbv", sched_getcpu());
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	printf(" %x%08x\n", high, low);
	unsigned short gs;
	__asm__ volatile("mov %%gs, %0" : "=r"(gs));
	printf("gs %x mxcsr %x\n", gs, _mm_getcsr());
}

static int module(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	printf("module %s at %p\n", info->dlpi_name, (void *)info->dlpi_addr);
	return 0;
}

static void addresses(char **argv)
{
	int local;
	void *small = malloc(10), *large = malloc(1 << 20);
	void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("stack %p heap %p large %p mmap %p brk %p code %p data %p libc %p\n", (void *)&local, small, large, map, sbrk(0),
	       (void *)addresses, (void *)&counter, (void *)&environ[0]);
	printf("argv %p environ %p vdso %lx execfn %lx phdr %lx base %lx self %p\n", (void *)argv, (void *)environ,
	       getauxval(AT_SYSINFO_EHDR), getauxval(AT_EXECFN), getauxval(AT_PHDR), getauxval(AT_BASE), (void *)pthread_self());
	free(small);
	free(large);
	dl_iterate_phdr(module, NULL);
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		printf("map %s", line);
	if (maps)
		fclose(maps);
}

__attribute__((noinline)) static void uninitialised(void)
{
	unsigned char garbage[256];
	volatile unsigned char *p = garbage;
	unsigned sum = 0;
	unsigned char copy[32];
	for (int i = 0; i < 256; i++)
		sum = sum * 31 + p[i];
	for (int i = 0; i < 32; i++)
		copy[i] = p[i * 8];
	printf("garbage %08x ", sum);
	hexadecimal("bytes", copy, sizeof copy);
	unsigned char *heap = malloc(4000);
	sum = 0;
	for (int i = 0; i < 4000; i++)
		sum = sum * 31 + ((volatile unsigned char *)heap)[i];
	printf("heap garbage %08x\n", sum);
	free(heap);
}

static void entries(const char *path)
{
	DIR *directory = opendir(path);
	printf("%s:", path);
	int n = 0;
	for (struct dirent *entry; directory && n < 40 && (entry = readdir(directory)); n++)
		printf(" %s(%llu,%lld)", entry->d_name, (unsigned long long)entry->d_ino, (long long)entry->d_off);
	printf("\n");
	if (directory)
		closedir(directory);
}

static void files(void)
{
	char name[] = "/tmp/nondet-dir-XXXXXX", path[64];
	struct stat st;
	if (!mkdtemp(name))
		return;
	static const char *const names[] = { "one", "two", "three", "four", "five", "six", "seven", "eight" };
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof path, "%s/%s", name, names[i]);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	entries(name);
	entries("/");
	if (stat(path, &st) == 0)
		printf("file dev %llx ino %llu mtime %lld.%09ld blksize %ld\n", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_blksize);
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof path, "%s/%s", name, names[i]);
		unlink(path);
	}
	rmdir(name);
}

static void machine(void)
{
	struct utsname u;
	struct sysinfo info;
	uname(&u);
	sysinfo(&info);
	printf("uname %s %s %s %s\n", u.sysname, u.nodename, u.release, u.version);
	printf("uptime %ld processes %d memory %lu free %lu cpus %ld load %lu\n", info.uptime, info.procs, info.totalram,
	       info.freeram, sysconf(_SC_NPROCESSORS_ONLN), info.loads[0]);
	char line[256];
	FILE *stat = fopen("/proc/self/stat", "r");
	if (stat && fgets(line, sizeof line, stat))
		printf("stat %s", line);
	if (stat)
		fclose(stat);
}

int main(int argc, char **argv)
{
	(void)argc;
	uninitialised();
	threads();
	processes();
	times_of_day();
	interrupted();
	randomness();
	instructions();
	addresses(argv);
	files();
	machine();
	return 0;
}
