/* Code that a program writes at run time, as just-in-time compilers do: it sees the same processor as compiled code does,
 * however its pages became executable. */
#include "tap.h"
#include <cpuid.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <x86intrin.h>

#define PAGE 4096UL
#define RW (PROT_READ | PROT_WRITE)
#define RX (PROT_READ | PROT_EXEC)
#define RWX (RW | PROT_EXEC)

/* push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; mov [r8], eax; mov [r8 + 4], ebx; mov [r8 + 8], ecx;
 * mov [r8 + 12], edx; pop rbx; ret */
static const unsigned char cpuid_code[] = {
	0x53, 0x89, 0xf8, 0x89, 0xf1, 0x49, 0x89, 0xd0, 0x0f, 0xa2, 0x41, 0x89, 0x00, 0x41, 0x89, 0x58, 0x04, 0x41, 0x89,
	0x48, 0x08, 0x41, 0x89, 0x50, 0x0c, 0x5b, 0xc3,
};
#define CPUID_AT 8
/* mov ecx, edi; xgetbv; shl rdx, 32; or rax, rdx; ret */
static const unsigned char xgetbv_code[] = {
	0x89, 0xf9, 0x0f, 0x01, 0xd0, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3,
};
/* lfence; rdtsc; lfence; shl rdx, 32; or rax, rdx; ret */
static const unsigned char rdtsc_code[] = {
	0x0f, 0xae, 0xe8, 0x0f, 0x31, 0x0f, 0xae, 0xe8, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3,
};
/* rdtscp; shl rdx, 32; or rax, rdx; ret */
static const unsigned char rdtscp_code[] = { 0x0f, 0x01, 0xf9, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3 };

typedef void cpuid_function(unsigned leaf, unsigned subleaf, unsigned answer[4]);
typedef unsigned long function(unsigned long);

/* Whether cpuid at run time is cpuid. The leaf with the number of the processor is left out, and its word in leaf 1. */
static int same_processor(const void *at)
{
	static const unsigned leaves[] = { 0, 1, 7, 0x80000000, 0x80000001, 0x80000002, 0x80000003, 0x80000004 };
	int same = 1;
	for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++) {
		unsigned a[4], b[4];
		((cpuid_function *)at)(leaves[i], 0, a);
		__cpuid_count(leaves[i], 0, b[0], b[1], b[2], b[3]);
		if (leaves[i] == 1)
			a[1] = b[1] = 0;
		same = same && memcmp(a, b, sizeof a) == 0;
	}
	return same;
}

static unsigned long compiled_xgetbv(void)
{
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (unsigned long)high << 32 | low;
}

static int same_time(const void *at)
{
	unsigned aux;
	unsigned long before = __rdtscp(&aux), now = ((function *)at)(0), after = __rdtscp(&aux);
	return before <= now && now <= after;
}

static unsigned char *memory(size_t len, int prot)
{
	unsigned char *at = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(at != MAP_FAILED);
	return at;
}

static void all_instructions(void)
{
	unsigned char *at = memory(4 * PAGE, RWX);
	memcpy(at + 100, cpuid_code, sizeof cpuid_code);
	memcpy(at + 200, xgetbv_code, sizeof xgetbv_code);
	memcpy(at + 300, rdtsc_code, sizeof rdtsc_code);
	memcpy(at + 400, rdtscp_code, sizeof rdtscp_code);
	CHECK(same_processor(at + 100));
	CHECK(((function *)(at + 200))(0) == compiled_xgetbv());
	CHECK(same_time(at + 300));
	CHECK(same_time(at + 400));
	/* Nothing but instructions of that kind changes: the neighbours can be read as they were written. */
	CHECK(memcmp(at + 100, cpuid_code, CPUID_AT) == 0);
	CHECK(memcmp(at + 100 + CPUID_AT + 1, cpuid_code + CPUID_AT + 1, sizeof cpuid_code - CPUID_AT - 1) == 0);
	/* mov eax, 0xa20f; ret. mov eax, 0x310f; ret. In one page with the others, and they stay what they are. */
	static const unsigned char numbers[] = { 0xb8, 0x0f, 0xa2, 0, 0, 0xc3, 0xb8, 0x0f, 0x31, 0, 0, 0xc3 };
	memcpy(at + 2 * PAGE, numbers, sizeof numbers);
	CHECK_EQ(((function *)(at + 2 * PAGE))(0), 0xa20f);
	CHECK_EQ(((function *)(at + 2 * PAGE + 6))(0), 0x310f);
	/* Over the end of a page. */
	memcpy(at + 2 * PAGE - CPUID_AT - 1, cpuid_code, sizeof cpuid_code);
	unsigned char *crossing = memory(2 * PAGE, RW);
	memcpy(crossing + PAGE - CPUID_AT - 1, cpuid_code, sizeof cpuid_code);
	REQUIRE(mprotect(crossing, 2 * PAGE, RX) == 0);
	CHECK(same_processor(crossing + PAGE - CPUID_AT - 1));
	munmap(at, 4 * PAGE), munmap(crossing, 2 * PAGE);
}

/* The ways to executable memory. */
static void ways(void)
{
	unsigned char *at = memory(PAGE, RW);
	memcpy(at, cpuid_code, sizeof cpuid_code);
	REQUIRE(mprotect(at, PAGE, RX) == 0);
	CHECK(same_processor(at));
	/* And again, with something else in between. */
	REQUIRE(mprotect(at, PAGE, RW) == 0);
	memcpy(at, xgetbv_code, sizeof xgetbv_code);
	REQUIRE(mprotect(at, PAGE, RX) == 0);
	CHECK(((function *)at)(0) == compiled_xgetbv());
	REQUIRE(mprotect(at, PAGE, RW) == 0);
	memcpy(at, cpuid_code, sizeof cpuid_code);
	REQUIRE(mprotect(at, PAGE, RX) == 0);
	CHECK(same_processor(at));
	/* Moved. */
	unsigned char *to = memory(PAGE, RW);
	REQUIRE(mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(same_processor(to));
	munmap(to, PAGE);
	/* read(2) into memory that has not been executed. */
	int fds[2];
	REQUIRE(pipe(fds) == 0 && write(fds[1], cpuid_code, sizeof cpuid_code) == sizeof cpuid_code);
	at = memory(PAGE, RWX);
	REQUIRE(read(fds[0], at, sizeof cpuid_code) == sizeof cpuid_code);
	CHECK(same_processor(at));
	munmap(at, PAGE);
	/* A private copy of a file, written before it is executed; then the file itself. */
	char name[] = "code.XXXXXX";
	int fd = mkstemp(name);
	REQUIRE(fd >= 0 && unlink(name) == 0);
	REQUIRE(write(fd, xgetbv_code, sizeof xgetbv_code) == sizeof xgetbv_code && ftruncate(fd, PAGE) == 0);
	at = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
	REQUIRE(at != MAP_FAILED);
	memcpy(at + 64, cpuid_code, sizeof cpuid_code);
	REQUIRE(mprotect(at, PAGE, RX) == 0);
	CHECK(same_processor(at + 64));
	CHECK(((function *)at)(0) == compiled_xgetbv());
	munmap(at, PAGE);
	at = mmap(NULL, PAGE, RX, MAP_PRIVATE, fd, 0);
	REQUIRE(at != MAP_FAILED);
	CHECK(((function *)at)(0) == compiled_xgetbv());
	CHECK(memcmp(at + 64, "\0\0\0\0", 4) == 0);
	munmap(at, PAGE);
	close(fd), close(fds[0]), close(fds[1]);
}

/* Many pages of code, some of them written while others have run; and their copies after a fork. */
static void many(void)
{
	enum { PAGES = 80 };
	unsigned char *at = memory(PAGES * PAGE, RWX);
	unsigned long sum = 0;
	for (int i = 0; i < PAGES; i++) {
		/* lea rax, [rdi + i]; ret */
		unsigned char code[] = { 0x48, 0x8d, 0x87, (unsigned char)i, 0, 0, 0, 0xc3 };
		memcpy(at + (unsigned)i * PAGE, code, sizeof code);
		memcpy(at + (unsigned)i * PAGE + 2048, cpuid_code, sizeof cpuid_code);
		sum += ((function *)(at + (unsigned)i / 2 * PAGE))(1);
	}
	CHECK_EQ(sum, 80 + 2 * (39 * 40 / 2));
	int same = 0;
	for (int i = 0; i < PAGES; i += 7)
		same += same_processor(at + (unsigned)i * PAGE + 2048);
	CHECK_EQ(same, 12);
	/* Code in pages that have run already: changed, and another function behind it. */
	at[3] = 100;
	static const unsigned char seven[] = { 0xb8, 7, 0, 0, 0, 0xc3 };
	memcpy(at + 1024, seven, sizeof seven);
	CHECK_EQ(((function *)at)(1), 101);
	CHECK_EQ(((function *)(at + 1024))(0), 7);
	pid_t pid = fork();
	if (pid == 0) {
		at[3] = 50;
		memcpy(at + 60 * PAGE + 1024, seven, sizeof seven);
		int held = ((function *)at)(0) == 50 && ((function *)(at + 60 * PAGE + 1024))(0) == 7 &&
			   same_processor(at + 61 * PAGE + 2048);
		_exit(held);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 1);
	CHECK_EQ(((function *)at)(1), 101);
	CHECK(same_processor(at + 62 * PAGE + 2048));
	/* Other instructions in the place of what has run, by the program and by read(2). */
	unsigned char *one = memory(PAGE, RWX);
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	for (int i = 0; i < 3; i++) {
		memcpy(one, xgetbv_code, sizeof xgetbv_code);
		CHECK(((function *)one)(0) == compiled_xgetbv());
		REQUIRE(write(fds[1], cpuid_code, sizeof cpuid_code) == sizeof cpuid_code);
		REQUIRE(read(fds[0], one, sizeof cpuid_code) == sizeof cpuid_code);
		CHECK(same_processor(one));
	}
	/* Code that writes to its own page: add dword [rip + n], 1; mov eax, [rip + m]; ret */
	static const unsigned char counting[] = {
		0x83, 0x05, 0xf9, 0, 0, 0, 1, 0x8b, 0x05, 0xf3, 0, 0, 0, 0xc3,
	};
	memset(one, 0, PAGE);
	memcpy(one, counting, sizeof counting);
	for (int i = 0; i < 20; i++)
		((function *)one)(0);
	CHECK_EQ(((function *)one)(0), 21);
	/* And to the page behind it, from an instruction that lies in both. */
	unsigned char *two = memory(2 * PAGE, RWX);
	memcpy(two + PAGE - 3, counting, sizeof counting);
	for (int i = 0; i < 20; i++)
		((function *)(two + PAGE - 3))(0);
	CHECK_EQ(((function *)(two + PAGE - 3))(0), 21);
	munmap(one, PAGE), munmap(two, 2 * PAGE);
	close(fds[0]), close(fds[1]);
	/* New memory in the place of the old. */
	REQUIRE(madvise(at, 2 * PAGE, MADV_DONTNEED) == 0);
	memcpy(at, cpuid_code, sizeof cpuid_code);
	CHECK(same_processor(at));
	munmap(at, PAGES * PAGE);
}

static unsigned char *signal_code;
static volatile int right;

static void on_signal(int number)
{
	(void)number;
	right += same_processor(signal_code) && ((function *)(signal_code + 64))(0) == compiled_xgetbv();
}

/* Pages that are code and stack, or code and the kernel's to write to, at once. */
static void shared_pages(void)
{
	unsigned char *at = memory(8 * PAGE, RWX);
	for (int i = 0; i < 4; i++) {
		memcpy(at + (unsigned)i * PAGE, cpuid_code, sizeof cpuid_code);
		memcpy(at + (unsigned)i * PAGE + 64, xgetbv_code, sizeof xgetbv_code);
	}
	/* A signal's frame and its handler's calls go to the page whose code the handler runs. */
	stack_t stack = { .ss_sp = at, .ss_size = 4 * PAGE }, none = { .ss_flags = SS_DISABLE };
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	REQUIRE(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &act, NULL) == 0);
	signal_code = at + 3 * PAGE;
	for (int i = 0; i < 20; i++)
		raise(SIGUSR1);
	CHECK_EQ(right, 20);
	REQUIRE(sigaltstack(&none, NULL) == 0);
	/* Code on the stack, with its return address in the same page. push rax; pop rax; lea eax, [rdi + 7]; ret */
	static const unsigned char pushing[] = { 0x50, 0x58, 0x8d, 0x47, 0x07, 0xc3 };
	unsigned char local[256] __attribute__((aligned(256)));
	REQUIRE(mprotect((void *)((unsigned long)local & -PAGE), PAGE, RWX) == 0);
	memcpy(local, pushing, sizeof pushing);
	memcpy(local + 64, cpuid_code, sizeof cpuid_code);
	CHECK(same_processor(local + 64));
	int sums = 0;
	for (unsigned long i = 0; i < 20; i++)
		sums += ((function *)local)(i) == i + 7;
	CHECK_EQ(sums, 20);
	/* xchg rsp, rdi; push 5; pop rax; xchg rsp, rdi; ret. The push lies in the page of the code and in the one before. */
	static const unsigned char own_stack[] = { 0x48, 0x87, 0xe7, 0x6a, 5, 0x58, 0x48, 0x87, 0xe7, 0xc3 };
	memcpy(at + 5 * PAGE + 16, own_stack, sizeof own_stack);
	int fives = 0;
	for (int i = 0; i < 20; i++)
		fives += ((function *)(at + 5 * PAGE + 16))((unsigned long)at + 5 * PAGE + 4) == 5;
	CHECK_EQ(fives, 20);
	/* rep movsb, which copies its own page to the next one, where it ends. lea rsi, [rdi]; add rdi, 4096; mov ecx, 4096; rep
	 * movsb; mov eax, ecx; ret */
	static const unsigned char moving[] = {
		0x48, 0x8d, 0x37, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xb9, 0, 0x10, 0, 0, 0xf3, 0xa4, 0x89, 0xc8, 0xc3,
	};
	unsigned char *first = at + 6 * PAGE;
	memcpy(first + PAGE - 16, moving, sizeof moving);
	memcpy(first, moving + 16, sizeof moving - 16);
	memcpy(first + 100, cpuid_code, sizeof cpuid_code);
	CHECK_EQ(((function *)(first + PAGE - 16))((unsigned long)first), 0);
	CHECK(same_processor(first + PAGE + 100) && same_processor(first + 100));
	/* What the kernel stores in a page that has run: its code stays what it was. */
	CHECK(same_processor(at));
	struct timespec *now = (struct timespec *)(at + 1024);
	CHECK(clock_gettime(CLOCK_MONOTONIC, now) == 0 && same_processor(at));
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now) == 0 && same_processor(at));
	*(int *)(at + 2048) = 1;
	CHECK(((function *)(at + 64))(0) == compiled_xgetbv());
	/* FUTEX_OP_SET of 7 */
	CHECK_EQ(syscall(SYS_futex, at + 2048, FUTEX_WAKE_OP_PRIVATE, 1, 1, at + 2052, 7 << 12), 0);
	CHECK(*(int *)(at + 2052) == 7 && same_processor(at));
	munmap(at, 8 * PAGE);
}

/* push rbx; xor eax, eax; xor ecx, ecx; cpuid; xor ecx, ecx; xgetbv; rdtsc; pop rbx; ret */
#define OWN_CODE 0x53, 0x31, 0xc0, 0x31, 0xc9, 0x0f, 0xa2, 0x31, 0xc9, 0x0f, 0x01, 0xd0, 0x0f, 0x31, 0x5b, 0xc3
static const unsigned char own_bytes[] = { OWN_CODE };
__asm__(".text\n"
	".globl own_code\n"
	"own_code:\n"
	".byte 0x53, 0x31, 0xc0, 0x31, 0xc9, 0x0f, 0xa2, 0x31, 0xc9, 0x0f, 0x01, 0xd0, 0x0f, 0x31, 0x5b, 0xc3\n");
extern const unsigned char own_code[];

/* What the kernel reads of code for a program is what the program has there, before and after it was executed. */
static int kernel_reads(const unsigned char *at)
{
	unsigned char through_pipe[sizeof own_bytes], from_mem[sizeof own_bytes];
	int fds[2], mem = open("/proc/self/mem", O_RDONLY);
	if (mem < 0 || pipe(fds) != 0)
		return 0;
	int read_all = write(fds[1], at, sizeof own_bytes) == sizeof own_bytes &&
		       read(fds[0], through_pipe, sizeof own_bytes) == sizeof own_bytes &&
		       pread(mem, from_mem, sizeof own_bytes, (off_t)(unsigned long)at) == sizeof own_bytes;
	close(fds[0]), close(fds[1]), close(mem);
	return read_all && memcmp(through_pipe, own_bytes, sizeof own_bytes) == 0 &&
	       memcmp(from_mem, own_bytes, sizeof own_bytes) == 0;
}

static void original_bytes(void)
{
	CHECK(kernel_reads(own_code));
	((function *)(unsigned long)own_code)(0);
	CHECK(kernel_reads(own_code));
	unsigned char *at = memory(PAGE, RWX);
	memcpy(at + 32, own_bytes, sizeof own_bytes);
	((function *)(at + 32))(0);
	CHECK(kernel_reads(at + 32));
	/* The program itself, once it may not execute its page any more. */
	REQUIRE(mprotect(at, PAGE, RW) == 0);
	CHECK(memcmp(at + 32, own_bytes, sizeof own_bytes) == 0);
	munmap(at, PAGE);
	/* A copy of its text in a file. */
	char name[] = "text.XXXXXX";
	int fd = mkstemp(name);
	REQUIRE(fd >= 0 && unlink(name) == 0);
	CHECK_EQ(write(fd, own_code, sizeof own_bytes), sizeof own_bytes);
	at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	REQUIRE(at != MAP_FAILED);
	CHECK(memcmp(at, own_bytes, sizeof own_bytes) == 0);
	munmap(at, PAGE), close(fd);
}

/* Pages that are written and executed in turns for ever, and have instructions that are answered for the processor. */
static void in_turns(void)
{
	unsigned char *at = memory(PAGE, RWX);
	int right_each_time = 0;
	for (int i = 0; i < 40; i++) {
		memcpy(at, i % 2 ? xgetbv_code : cpuid_code, i % 2 ? sizeof xgetbv_code : sizeof cpuid_code);
		right_each_time += i % 2 ? ((function *)at)(0) == compiled_xgetbv() : same_processor(at);
	}
	CHECK_EQ(right_each_time, 40);
	/* Code that counts in its own page and asks for the processor there. add dword [rip + n], 1; jmp to the next */
	static const unsigned char counting[] = { 0x83, 0x05, 0xf9, 0x01, 0, 0, 1 };
	memset(at, 0x90, PAGE / 2);
	memset(at + 512, 0, 64);
	memcpy(at, counting, sizeof counting);
	memcpy(at + 64, cpuid_code, sizeof cpuid_code);
	for (int i = 0; i < 40; i++)
		right_each_time += same_processor(at);
	CHECK_EQ(right_each_time, 80);
	CHECK_EQ(*(int *)(at + 512), 40 * 8);
	munmap(at, PAGE);
}

int main(void)
{
	original_bytes();
	in_turns();
	all_instructions();
	ways();
	many();
	shared_pages();
	return tap_done();
}
