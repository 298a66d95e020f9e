/* The vDSO: vdso(7). Its functions are found as C libraries find them and agree with the system calls. */
#include "tap.h"
#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static const char *image;
static const Elf64_Sym *symbols;
static const char *strings;
static const Elf64_Half *versions;
static const Elf64_Verdef *definitions;
static const uint32_t *gnu_hash, *sysv_hash;

static void parse(void)
{
	const Elf64_Ehdr *header = (const void *)image;
	const Elf64_Phdr *segments = (const void *)(image + header->e_phoff);
	const Elf64_Dyn *dynamic = NULL;
	const char *base = image;
	for (int i = 0; i < header->e_phnum; i++) {
		if (segments[i].p_type == PT_LOAD)
			base = image + segments[i].p_offset - segments[i].p_vaddr;
		if (segments[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(image + segments[i].p_offset);
	}
	REQUIRE(dynamic);
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		const void *at = base + dynamic->d_un.d_ptr;
		switch (dynamic->d_tag) {
		case DT_SYMTAB: symbols = at; break;
		case DT_STRTAB: strings = at; break;
		case DT_VERSYM: versions = at; break;
		case DT_VERDEF: definitions = at; break;
		case DT_GNU_HASH: gnu_hash = at; break;
		case DT_HASH: sysv_hash = at; break;
		}
	}
	REQUIRE(symbols && strings && versions && definitions);
}

static int matches(uint32_t index, const char *name)
{
	if (strcmp(strings + symbols[index].st_name, name) || symbols[index].st_shndx == SHN_UNDEF)
		return 0;
	const Elf64_Verdef *definition = definitions;
	while (definition->vd_ndx != (versions[index] & 0x7fff)) {
		if (!definition->vd_next)
			return 0;
		definition = (const void *)((const char *)definition + definition->vd_next);
	}
	const Elf64_Verdaux *aux = (const void *)((const char *)definition + definition->vd_aux);
	return strcmp(strings + aux->vda_name, "LINUX_2.6") == 0;
}

static uint32_t find_gnu(const char *name)
{
	uint32_t hash = 5381;
	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	uint32_t buckets = gnu_hash[0], first = gnu_hash[1], words = gnu_hash[2], shift = gnu_hash[3];
	const uint64_t *filter = (const void *)(gnu_hash + 4);
	const uint32_t *bucket = (const void *)(filter + words), *chain = bucket + buckets;
	uint64_t word = filter[hash / 64 % words];
	if (!(word >> hash % 64 & word >> (hash >> shift) % 64 & 1))
		return 0;
	for (uint32_t i = bucket[hash % buckets]; i; i++) {
		if ((chain[i - first] | 1) == (hash | 1) && matches(i, name))
			return i;
		if (chain[i - first] & 1)
			return 0;
	}
	return 0;
}

static uint32_t find_sysv(const char *name)
{
	uint32_t hash = 0;
	for (const char *c = name; *c; c++) {
		hash = (hash << 4) + (unsigned char)*c;
		hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
	}
	const uint32_t *bucket = sysv_hash + 2, *chain = bucket + sysv_hash[0];
	for (uint32_t i = bucket[hash % sysv_hash[0]]; i; i = chain[i])
		if (matches(i, name))
			return i;
	return 0;
}

static void *function(const char *name)
{
	uint32_t gnu = gnu_hash ? find_gnu(name) : 0, sysv = sysv_hash ? find_sysv(name) : 0;
	CHECK(gnu || sysv);
	/* Both tables, where there are both. */
	CHECK(!gnu_hash || !sysv_hash || gnu == sysv);
	uint32_t index = gnu ? gnu : sysv;
	return index ? (void *)(image + symbols[index].st_value) : NULL;
}

static int (*vdso_gettime)(clockid_t, struct timespec *);

static long long now(clockid_t clock)
{
	struct timespec t;
	REQUIRE(vdso_gettime(clock, &t) == 0 && t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long called(clockid_t clock)
{
	struct timespec t;
	REQUIRE(syscall(SYS_clock_gettime, clock, &t) == 0);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void values(void)
{
	static const clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
					    CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID };
	int (*getres)(clockid_t, struct timespec *) = function("__vdso_clock_getres");
	for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		int wrong = 0;
		for (int n = 0; n < 300; n++) {
			long long a = now(clocks[i]), b = called(clocks[i]), c = now(clocks[i]);
			wrong += !(a <= b && b <= c);
		}
		CHECK_EQ(wrong, 0);
		struct timespec t, u;
		if (getres) {
			CHECK(getres(clocks[i], &t) == 0 && syscall(SYS_clock_getres, clocks[i], &u) == 0);
			CHECK(t.tv_sec == u.tv_sec && t.tv_nsec == u.tv_nsec);
			CHECK_EQ(getres(clocks[i], NULL), 0);
		}
	}
	struct timespec t;
	CHECK_EQ(vdso_gettime(99, &t), -EINVAL);
	long long start = now(CLOCK_MONOTONIC);
	while (now(CLOCK_MONOTONIC) < start + 3000000)
		;
	CHECK(called(CLOCK_MONOTONIC) >= start + 3000000);

	int (*getday)(struct timeval *, struct timezone *) = function("__vdso_gettimeofday");
	time_t (*gettime)(time_t *) = function("__vdso_time");
	int (*cpu)(unsigned *, unsigned *, void *) = function("__vdso_getcpu");
	REQUIRE(getday && gettime && cpu);
	struct timeval tv;
	struct timezone tz = { 7, 7 };
	long long before = now(CLOCK_REALTIME);
	CHECK_EQ(getday(&tv, &tz), 0);
	long long after = now(CLOCK_REALTIME), day = tv.tv_sec * 1000000LL + tv.tv_usec;
	CHECK(tv.tv_usec >= 0 && tv.tv_usec < 1000000 && before / 1000 <= day && day <= after / 1000);
	CHECK_EQ(tz.tz_minuteswest, 0);
	CHECK_EQ(getday(NULL, NULL), 0);
	time_t stored = 0, seconds = gettime(&stored);
	CHECK(seconds == stored && seconds >= after / 1000000000 - 1 && seconds <= now(CLOCK_REALTIME) / 1000000000);
	CHECK(gettime(NULL) >= seconds);
	unsigned number = 99, node = 99, called_number = 98;
	CHECK_EQ(cpu(&number, &node, NULL), 0);
	CHECK(number < 4096 && node < 4096);
	CHECK_EQ(cpu(NULL, NULL, NULL), 0);
	CHECK_EQ(syscall(SYS_getcpu, &called_number, NULL, NULL), 0);
}

/* The last time that anyone has seen, and whether someone saw an earlier one later. */
struct shared {
	pthread_mutex_t mutex;
	long long last;
	int backwards;
};
static struct shared *shared;

static void *look(void *arg)
{
	for (int n = 0; n < 2000; n++) {
		pthread_mutex_lock(&shared->mutex);
		long long t = now(CLOCK_MONOTONIC);
		shared->backwards += t < shared->last;
		shared->last = t;
		pthread_mutex_unlock(&shared->mutex);
		if (n % 50 == 0)
			sched_yield();
	}
	return arg;
}

static void together(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &attributes);
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, look, NULL));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(shared->backwards, 0);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			look(NULL);
			_exit(0);
		}
	}
	look(NULL);
	int status, failed = 0;
	while (wait(&status) > 0)
		failed += status != 0;
	CHECK_EQ(failed, 0);
	CHECK_EQ(shared->backwards, 0);
}

static void in_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int vdso = 0, vvar = 0;
	REQUIRE(maps);
	while (fgets(line, sizeof line, maps)) {
		unsigned long start = strtoul(line, NULL, 16);
		vdso += strstr(line, " r-xp ") && strstr(line, "[vdso]") && start == (unsigned long)image;
		vvar += strstr(line, "[vvar]") && start < (unsigned long)image;
	}
	fclose(maps);
	CHECK_EQ(vdso, 1);
	CHECK_EQ(vvar, 1);
}

static void segv(int signal)
{
	_exit(signal == SIGSEGV ? 7 : 8);
}

/* Unlike the system call, the function does not check the address. */
static void bad_address(void)
{
	pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		signal(SIGSEGV, segv);
		vdso_gettime(CLOCK_MONOTONIC, BAD);
		_exit(0);
	}
	int status;
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void)
{
	image = (const char *)getauxval(AT_SYSINFO_EHDR);
	CHECK(image && memcmp(image, ELFMAG, SELFMAG) == 0);
	REQUIRE(image);
	parse();
	vdso_gettime = function("__vdso_clock_gettime");
	REQUIRE(vdso_gettime);
	CHECK(function("clock_gettime") == (void *)vdso_gettime);
	values();
	together();
	in_maps();
	bad_address();
	return tap_done();
}
