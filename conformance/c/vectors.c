/* Vector registers: the whole x87, SSE and AVX state of a task survives calls, signals, fork, vfork, execve, threads and the
 * switches between them, and is nobody else's. Each round loads a state of its own, makes a system call, and compares what is in the
 * registers then. */
#include "tap.h"
#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* An XSAVE area in standard format (Intel SDM 13.4): legacy 512 bytes, header 64, upper halves of ymm 256. */
struct area {
	unsigned char bytes[4096];
} __attribute__((aligned(64)));

#define MXCSR 24
#define ST 32
#define XMM 160
#define HEADER 512
#define YMM 576
#define END 832

static int has_avx(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) && (c & bit_AVX);
}

/* A state that no other seed has: every register is full. */
static void make(struct area *area, unsigned seed)
{
	memset(area, 0, sizeof *area);
	unsigned char *at = area->bytes;
	uint32_t x = seed * 2654435761u + 12345;
#define NEXT (x = x * 1664525u + 1013904223u, (unsigned char)((x >> 24) | 1))
	/* Control word: all exceptions masked, rounding and precision by seed. Top of stack 0, nothing pending, all full. */
	uint16_t control = 0x037f | (seed & 3) << 10;
	memcpy(at, &control, 2);
	at[4] = 0xff;
	uint32_t mxcsr = 0x1f80 | (seed >> 2 & 3) << 13;
	memcpy(at + MXCSR, &mxcsr, 4);
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < 8; j++)
			at[ST + 16 * i + j] = NEXT;
	for (int i = 0; i < 8; i++) {
		/* An ordinary number: integer bit set, exponent of about 1. */
		at[ST + 16 * i + 7] |= 0x80;
		at[ST + 16 * i + 9] = 0x3f;
		at[ST + 16 * i + 8] = 0xff;
	}
	for (int i = XMM; i < XMM + 256; i++)
		at[i] = NEXT;
	if (has_avx())
		for (int i = YMM; i < END; i++)
			at[i] = NEXT;
	at[HEADER] = has_avx() ? 7 : 3;
}

/* Where `got` differs from what was loaded, or -1. What the last x87 instruction was is left out. */
static int differs(const struct area *want, const struct area *got)
{
	for (int i = 0; i < END; i++) {
		int compared = i < 6 || (i >= MXCSR && i < MXCSR + 4) || (i >= ST && i < ST + 128 && i % 16 < 10) ||
			       (i >= XMM && i < XMM + 256) || i >= YMM;
		if (compared && want->bytes[i] != got->bytes[i])
			return i;
	}
	return -1;
}

/* Puts the x87 and the control registers back as the compiler expects them. */
#define TIDY "fninit\n\tldmxcsr %[initial]\n\t"
static const uint32_t initial_mxcsr = 0x1f80;
#define VECTORS "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", \
	"xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* Loads `want`, makes a system call, stores the registers to `got`. */
static long __attribute__((noinline)) across(const struct area *want, struct area *got, long nr, long a, long b, long c)
{
	long result;
	memset(got, 0, sizeof *got);
	register long r_nr __asm__("r12") = nr;
	register const void *r_want __asm__("r13") = want;
	register void *r_got __asm__("r14") = got;
	register long r_a __asm__("rdi") = a;
	register long r_b __asm__("rsi") = b;
	register long r_c __asm__("r15") = c;
	__asm__ volatile("mov %[mask], %%eax\n\txor %%edx, %%edx\n\txrstor64 (%[want])\n\t"
			 "mov %[c], %%rdx\n\tmov %[nr], %%rax\n\tsyscall\n\tmov %%rax, %[result]\n\t"
			 "mov $7, %%eax\n\txor %%edx, %%edx\n\txsave64 (%[got])\n\t" TIDY
			 : [result] "=&b"(result), "+r"(r_a), "+r"(r_b)
			 : [mask] "i"(7), [nr] "r"(r_nr), [want] "r"(r_want), [got] "r"(r_got), [c] "r"(r_c),
			   [initial] "m"(initial_mxcsr)
			 : "rax", "rcx", "rdx", "r11", "memory", "cc", VECTORS);
	return result;
}

/* vfork(2) with `want` in the registers; the child loads `other` and executes a program, or ends. */
static long __attribute__((noinline)) across_vfork(const struct area *want, struct area *got, const struct area *other,
						   const char *path, char *const argv[], char *const envp[])
{
	long result;
	memset(got, 0, sizeof *got);
	register const void *r_want __asm__("r12") = want;
	register void *r_got __asm__("r13") = got;
	register const void *r_other __asm__("r14") = other;
	register const char *r_path __asm__("r8") = path;
	register char *const *r_argv __asm__("r9") = argv;
	register char *const *r_envp __asm__("r10") = envp;
	__asm__ volatile("mov $7, %%eax\n\txor %%edx, %%edx\n\txrstor64 (%[want])\n\t"
			 "mov %[vfork], %%eax\n\tsyscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\t"
			 "mov $7, %%eax\n\txor %%edx, %%edx\n\txrstor64 (%[other])\n\t"
			 "mov %[path], %%rdi\n\ttest %%rdi, %%rdi\n\tjz 2f\n\t"
			 "mov %[argv], %%rsi\n\tmov %[envp], %%rdx\n\tmov %[execve], %%eax\n\tsyscall\n\t"
			 "2:\n\tmov %[getppid], %%eax\n\tsyscall\n\t"
			 "xor %%edi, %%edi\n\tmov %[exit], %%eax\n\tsyscall\n\thlt\n\t"
			 "1:\n\tmov %%rax, %[result]\n\t"
			 "mov $7, %%eax\n\txor %%edx, %%edx\n\txsave64 (%[got])\n\t" TIDY
			 : [result] "=&b"(result)
			 : [want] "r"(r_want), [got] "r"(r_got), [other] "r"(r_other), [path] "r"(r_path),
			   [argv] "r"(r_argv), [envp] "r"(r_envp), [vfork] "i"(SYS_vfork), [execve] "i"(SYS_execve),
			   [getppid] "i"(SYS_getppid), [exit] "i"(SYS_exit), [initial] "m"(initial_mxcsr)
			 : "rax", "rcx", "rdx", "rdi", "rsi", "r11", "memory", "cc", VECTORS);
	return result;
}

/* Rounds of harmless calls; how many lost a register. */
static int rounds(unsigned seed, int count, long nr)
{
	static __thread struct area want, got;
	int lost = 0;
	for (int i = 0; i < count; i++) {
		make(&want, seed + i);
		across(&want, &got, nr, 0, 0, 0);
		int at = differs(&want, &got);
		if (at >= 0) {
			tap_print("# seed %u round %d: byte %d of the state is %d, was %d\n", seed, i, at, got.bytes[at],
				  want.bytes[at]);
			lost++;
		}
	}
	return lost;
}

static void *thread(void *argument)
{
	unsigned seed = (unsigned)(long)argument;
	return (void *)(long)(rounds(seed, 20, SYS_getppid) + rounds(seed + 100, 10, SYS_sched_yield) +
			      rounds(seed + 200, 10, SYS_gettid));
}

/* What an executed program does: several threads, and its first one all the while as well. */
static int threads(unsigned seed, int count)
{
	pthread_t all[8];
	long lost = 0;
	for (long i = 0; i < count; i++)
		REQUIRE(pthread_create(&all[i], NULL, thread, (void *)(seed + (i + 1) * 1000)) == 0);
	lost += (long)thread((void *)(long)seed);
	for (int i = 0; i < count; i++) {
		void *one;
		REQUIRE(pthread_join(all[i], &one) == 0);
		lost += (long)one;
	}
	return lost != 0;
}

static struct area in_handler, seen_by_handler;
static volatile int handled, handler_lost;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
	across(&in_handler, &seen_by_handler, SYS_getppid, 0, 0, 0);
	if (differs(&in_handler, &seen_by_handler) >= 0)
		handler_lost++;
}

static int status_of(pid_t pid)
{
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status;
}

extern char **environ;

static void check_vfork(const char *self)
{
	static struct area want, other, got;
	char count[2] = "0";
	char *const argv[] = { (char *)self, "threads", count, NULL };
	int lost = 0, failed = 0;
	for (int i = 0; i < 12; i++) {
		count[0] = '0' + i % 5;
		make(&want, 5000 + i);
		make(&other, 6000 + i);
		pid_t pid = across_vfork(&want, &got, &other, self, argv, environ);
		lost += differs(&want, &got) >= 0;
		/* While the child runs. */
		lost += rounds(5500 + i, 5, SYS_sched_yield) != 0;
		REQUIRE(pid > 0);
		failed += status_of(pid) != 0;
	}
	CHECK_EQ(lost, 0);
	CHECK_EQ(failed, 0);
	for (int i = 0; i < 8; i++) {
		make(&want, 7000 + i);
		make(&other, 7500 + i);
		pid_t pid = across_vfork(&want, &got, &other, NULL, NULL, NULL);
		lost += differs(&want, &got) >= 0;
		REQUIRE(pid > 0);
		failed += status_of(pid) != 0;
	}
	CHECK_EQ(lost, 0);
	CHECK_EQ(failed, 0);
	/* What programs use. */
	for (int i = 0; i < 4; i++) {
		pid_t pid;
		count[0] = '1' + i;
		REQUIRE(posix_spawn(&pid, self, NULL, NULL, argv, environ) == 0);
		lost += rounds(8000 + i, 5, SYS_getppid) != 0;
		failed += status_of(pid) != 0;
	}
	CHECK_EQ(lost, 0);
	CHECK_EQ(failed, 0);
}

static void check_fork(const char *self)
{
	static struct area want, got;
	int failed = 0;
	for (int i = 0; i < 4; i++) {
		make(&want, 9000 + i);
		pid_t pid = across(&want, &got, SYS_fork, 0, 0, 0);
		REQUIRE(pid >= 0);
		/* Both have the same registers. */
		int lost = differs(&want, &got) >= 0;
		if (pid == 0) {
			if (lost || rounds(9500, 5, SYS_getppid))
				_exit(1);
			if (i & 1)
				execl(self, self, "threads", "2", NULL);
			_exit(0);
		}
		failed += lost + (rounds(9600, 5, SYS_getppid) != 0) + (status_of(pid) != 0);
	}
	CHECK_EQ(failed, 0);
}

static void check_signals(void)
{
	static struct area want, got;
	int lost = 0;
	struct sigaction action = { .sa_handler = on_signal };
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		make(&want, 10000 + i);
		make(&in_handler, 11000 + i);
		REQUIRE(across(&want, &got, SYS_kill, getpid(), SIGUSR1, 0) == 0);
		lost += differs(&want, &got) >= 0;
	}
	CHECK_EQ(handled, 8);
	CHECK_EQ(handler_lost, 0);
	CHECK_EQ(lost, 0);
}

/* Threads that vfork while the others run on in the same memory. */
static void *spawner(void *argument)
{
	static __thread struct area want, other, got;
	long seed = (long)argument, lost = 0;
	for (int i = 0; i < 4; i++) {
		make(&want, seed + i);
		make(&other, seed + 500 + i);
		pid_t pid = across_vfork(&want, &got, &other, NULL, NULL, NULL);
		lost += differs(&want, &got) >= 0;
		REQUIRE(pid > 0);
		lost += status_of(pid) != 0;
		lost += rounds(seed + 700, 5, SYS_getppid);
	}
	return (void *)lost;
}

static void check_vfork_of_threads(void)
{
	pthread_t all[4];
	long lost = 0;
	for (long i = 0; i < 4; i++)
		REQUIRE(pthread_create(&all[i], NULL, i & 1 ? thread : spawner, (void *)(20000 + i * 1000)) == 0);
	lost += rounds(30000, 30, SYS_sched_yield);
	for (int i = 0; i < 4; i++) {
		void *one;
		REQUIRE(pthread_join(all[i], &one) == 0);
		lost += (long)one;
	}
	CHECK_EQ(lost, 0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "threads") == 0)
		return threads(40000, argv[2][0] - '0');
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	REQUIRE(n > 0);
	self[n] = 0;
	CHECK_EQ(rounds(1, 10, SYS_getppid), 0);
	CHECK_EQ(threads(2000, 4), 0);
	check_signals();
	check_fork(self);
	check_vfork(self);
	check_vfork_of_threads();
	CHECK_EQ(rounds(100, 10, SYS_getppid), 0);
	return tap_done();
}
