/* Exceptions that a program raises itself: arithmetic, the flags register, single steps, breakpoints, instructions that
 * are none, code that changes while it runs. As in escape.c, each act ends as on Linux and harms nobody else. */
#include "act.h"
#include <asm/prctl.h>
#include <pthread.h>

/* The data that arithmetic works on: the largest float, the smallest normal one, half of that, a signalling NaN, 1, 0, 3. */
static const unsigned int floats[] = { 0x7f7fffff, 0x00800000, 0x00400000, 0x7fa00000, 0x3f800000, 0, 0x40400000 };

#define FPE(code, rip, trap) "FPE " code " " rip " at " rip " trap " trap
/* push imm32; ldmxcsr [rsp]. push imm32; fldcw [rsp]. */
#define MXCSR(bytes) "\x68" bytes "\x00\x00\x0f\xae\x14\x24"
#define FCW(bytes) "\x68" bytes "\x00\x00\xd9\x2c\x24"

static void arithmetic(void)
{
	memcpy((void *)DATA, floats, sizeof floats);
	ACT("div by 0", "\x31\xc9\xf7\xf1", FPE("INTDIV", "code+2", "0"), 0);
	ACT("div r64 by memory", "\x48\xf7\x37", FPE("INTDIV", "code+0", "0"), .rdi = DATA + 64);
	ACT("idiv of the lowest number", "\x99\xf7\xf9", FPE("INTDIV", "code+1", "0"), .rax = 0x80000000, .rcx = -1UL);
	ACT("div of too much", "\xf7\xf1", FPE("INTDIV", "code+0", "0"), .rdx = 2, .rcx = 1);
	/* movss xmm0, [rdi + n]; the operation */
	ACT("sse 1 / 0", MXCSR("\x80\x1d") "\xf3\x0f\x10\x47\x10\xf3\x0f\x5e\x47\x14", FPE("FLTDIV", "code+e", "19"),
	    .rdi = DATA);
	ACT("sse 1 / 0, masked", MXCSR("\x80\x1f") "\xf3\x0f\x10\x47\x10\xf3\x0f\x5e\x47\x14", BREAK("code+14"),
	    .rdi = DATA);
	ACT("sse overflow", MXCSR("\x80\x1b") "\xf3\x0f\x10\x07\xf3\x0f\x59\x07", FPE("FLTOVF", "code+d", "19"),
	    .rdi = DATA);
	ACT("sse underflow", MXCSR("\x80\x17") "\xf3\x0f\x10\x47\x04\xf3\x0f\x59\x47\x04", FPE("FLTUND", "code+e", "19"),
	    .rdi = DATA);
	ACT("sse denormal", MXCSR("\x80\x1e") "\xf3\x0f\x10\x47\x08\xf3\x0f\x58\x47\x10", FPE("FLTUND", "code+e", "19"),
	    .rdi = DATA);
	ACT("sse inexact", MXCSR("\x80\x0f") "\xf3\x0f\x10\x47\x10\xf3\x0f\x5e\x47\x18", FPE("FLTRES", "code+e", "19"),
	    .rdi = DATA);
	ACT("sse invalid", MXCSR("\x00\x1f") "\xf3\x0f\x10\x47\x0c\xf3\x0f\x58\xc0", FPE("FLTINV", "code+e", "19"),
	    .rdi = DATA);
	/* vdivps ymm0, ymm0, ymm0 of zeros; cvttss2si of too much */
	ACT("avx invalid", MXCSR("\x00\x1f") "\xc5\xfc\x57\xc0\xc5\xfc\x5e\xc0", FPE("FLTINV", "code+d", "19"), 0);
	ACT("sse conversion", MXCSR("\x00\x1f") "\xf3\x0f\x2c\x07", FPE("FLTINV", "code+9", "19"), .rdi = DATA);
	ACT("mxcsr with a reserved bit", "\x68\x00\x00\x01\x00\x0f\xae\x14\x24", GP("code+5"), 0);
	ACT("misaligned movaps", "\x0f\x28\x47\x04", GP("code+0"), .rdi = DATA);
	ACT("misaligned store", "\x0f\x29\x47\x08", GP("code+0"), .rdi = DATA);
	ACT("misaligned vmovdqa", "\xc5\xfd\x6f\x47\x10", GP("code+0"), .rdi = DATA);
	ACT("misaligned vmovdqu", "\xc5\xfe\x6f\x47\x11", BREAK("code+6"), .rdi = DATA);
	ACT("misaligned cmpxchg16b", "\x48\x0f\xc7\x4f\x08", GP("code+0"), .rdi = DATA);
	/* A software KVM does not look. */
	if (!software_kvm())
		ACT("misaligned fxrstor", "\x0f\xae\x4f\x08", GP("code+0"), .rdi = DATA);
	ACT("misaligned xsave", "\x0f\xae\x67\x08", GP("code+0"), .rax = 7, .rdi = DATA);
	/* mov byte [rdi + 520], 1 (XCOMP_BV, with no bit 63); xrstor [rdi] */
	ACT("xrstor of a bad header", "\xc6\x87\x08\x02\x00\x00\x01\x0f\xae\x2f", GP("code+7"), .rax = 7, .rdi = DATA);
	/* The x87 tells at the next of its instructions. fld1; fldz; fdivp; fwait */
	ACT("x87 1 / 0", FCW("\x7b\x03") "\xd9\xe8\xd9\xee\xde\xf9\x9b", FPE("FLTDIV", "code+e", "16"), 0);
	ACT("x87 1 / 0, masked", FCW("\x7f\x03") "\xd9\xe8\xd9\xee\xde\xf9\x9b", BREAK("code+10"), 0);
	ACT("x87 0 / 0", FCW("\x7e\x03") "\xd9\xee\xd9\xee\xde\xf9\x9b", FPE("FLTINV", "code+e", "16"), 0);
	ACT("x87 stack underflow", FCW("\x7e\x03") "\xdd\xd8\x9b", FPE("FLTINV", "code+a", "16"), 0);
	ACT("x87 inexact", FCW("\x5f\x03") "\xd9\xe8\xd9\x47\x18\xde\xf9\xd9\xd0", FPE("FLTRES", "code+f", "16"),
	    .rdi = DATA);
	/* fldz; fldz; fdivp; movq mm0, mm1: MMX too */
	ACT("x87 told to mmx", FCW("\x7e\x03") "\xd9\xee\xd9\xee\xde\xf9\x0f\x6f\xc1", FPE("FLTINV", "code+e", "16"), 0);
	/* fnclex in time */
	ACT("x87 cleared", FCW("\x7e\x03") "\xd9\xee\xd9\xee\xde\xf9\xdb\xe2\x9b", BREAK("code+12"), 0);
	/* A pending x87 exception is kept by a system call: fldz; fldz; fdivp; syscall; fwait */
	ACT("x87 pending over a call", FCW("\x7e\x03") "\xd9\xee\xd9\xee\xde\xf9\x0f\x05\x9b",
	    FPE("FLTINV", "code+10", "16"), .rax = SYS_getpid);
}

/* push rax; popfq; pushfq; pop rcx: which flags a program can set. */
static void flags(void)
{
	static const unsigned long sets[] = {
		0, 1, 0x10, 0x200, 0x400, 0x800, 0x1000, 0x3000, 0x4000, 0x8000, 0x10000, 0x20000, 0x80000, 0x100000, 0x200000,
		0xfffffffffffbfeff,
	};
	/* CF PF AF ZF SF DF OF NT ID; bit 1 and IF are always set. */
	const unsigned long free = 0x204cd5, fixed = 0x202;
	/* A software KVM loses NT in system calls. */
	const unsigned long lost = software_kvm() ? 0x4000 : 0;
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		char name[48];
		snprintf(name, sizeof name, "flags %#lx", sets[i]);
		ACT(name, "\x50\x9d\x9c\x59", BREAK("code+5"), .rax = sets[i]);
		CHECK_EQ(report->gregs[REG_RCX], (sets[i] & free) | fixed);
		/* System calls keep them: push rax; popfq; mov eax, 39; syscall; mov rdx, r11; pushfq; pop rcx */
		ACT("over a call", "\x50\x9d\xb8\x27\x00\x00\x00\x0f\x05\x4c\x89\xda\x9c\x59", BREAK("code+f"),
		    .rax = sets[i]);
		CHECK_EQ(report->gregs[REG_RCX] & ~lost, (sets[i] & free & ~lost) | fixed);
		CHECK_EQ(report->gregs[REG_RDX] & ~lost, (sets[i] & free & ~lost) | fixed);
		/* The frame of a signal shows them. */
		CHECK_EQ(report->gregs[REG_EFL] & ~0x10000 & ~lost, (sets[i] & free & ~lost) | fixed);
	}
	/* push 0x40000; popfq; mov eax, [rdi + 1] */
	ACT("alignment check", "\x68\x00\x00\x04\x00\x9d\x8b\x47\x01", "BUS ADRALN 0 at code+6 trap 17", .rdi = DATA);
	ACT("alignment check of a store", "\x68\x00\x00\x04\x00\x9d\x66\x89\x47\x01", "BUS ADRALN 0 at code+6 trap 17",
	    .rdi = DATA);
	ACT("alignment check, aligned", "\x68\x00\x00\x04\x00\x9d\x8b\x47\x04", BREAK("code+a"), .rdi = DATA);
	/* Not for the kernel: write(-1, rdi, 1), pipe(rdi) with a misaligned address. */
	ACT("alignment check and a call", "\x68\x00\x00\x04\x00\x9d\x0f\x05", BREAK("code+9"), .rax = SYS_pipe,
	    .rdi = DATA + 1);
	CHECK_EQ(report->gregs[REG_RAX], 0);
	CHECK(report->gregs[REG_EFL] & 0x40000);
	/* With the nested-task flag iret would be a task switch. */
	ACT("iretq with NT", "\x68\x02\x42\x00\x00\x9d\x48\xcf", GP("code+6"), 0);
}

/* Where single steps stopped, in the page of the report. */
static char *trail;

static void on_step(int signal, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	if (signal != SIGTRAP || info->si_code != TRAP_TRACE) {
		on_act(signal, info, context);
		return;
	}
	size_t n = strlen(trail);
	int good = info->si_addr == (void *)uc->uc_mcontext.gregs[REG_RIP] && uc->uc_mcontext.gregs[REG_TRAPNO] == 1;
	/* The handler itself runs without the flag, or this would not end. */
	snprintf(trail + n, 1024 - n, "%s%s%llx", n ? " " : "", good ? "" : "bad ",
		 uc->uc_mcontext.gregs[REG_RIP] - (long long)CODE);
}

static void run_steps(void *argument)
{
	struct act *act = argument;
	trail[0] = 0;
	handle(on_step, SA_ONSTACK);
	put(act->code, act->length);
	start(&act->regs);
}

#define STEPS(name, bytes, want, want_trail, ...) \
	do { \
		struct act act_ = { bytes, sizeof(bytes) - 1, { .rsp = TOP, ##__VA_ARGS__ }, 0 }; \
		const char *got_ = outcome(run_steps, &act_); \
		same(name, got_, want); \
		same("its steps", trail, want_trail); \
	} while (0)

/* push 0x100; popfq */
#define TRACE "\x68\x00\x01\x00\x00\x9d"

static void steps(void)
{
	trail = (char *)report + PAGE / 2;
	STEPS("nops", TRACE "\x90\x90\x66\x90", BREAK("code+b"), "7 8 a");
	/* jmp +2; nop; nop; jz (not taken) */
	STEPS("jumps", TRACE "\xeb\x02\x90\x90\x74\x02\x90", BREAK("code+e"), "a c d", .rax = 0);
	/* A repeated instruction stops after each round. */
	STEPS("rep stosb", TRACE "\xf3\xaa\x90", BREAK("code+a"), "6 6 8 9", .rdi = DATA, .rcx = 3);
	/* The processor comes back from a system call with the flag set, so it is the next instruction that stops. */
	STEPS("a call", TRACE "\x0f\x05\x90\x90", BREAK("code+b"), "9 a", .rax = SYS_getpid);
	/* Answered by the platform or the processor, the instruction is stepped over all the same. */
	if (!software_kvm())
		STEPS("rdtsc", TRACE "\x0f\x31\x90", BREAK("code+a"), "8 9");
	STEPS("cpuid", TRACE "\x0f\xa2\x90", BREAK("code+a"), "8 9");
	/* mov [rdi], eax into a page that is not there yet; pushfq; pop rax; push; popfq without the flag */
	STEPS("a first touch", TRACE "\x89\x07\x90", BREAK("code+a"), "8 9", .rdi = DATA + PAGE);
	STEPS("pushfq", TRACE "\x9c\x58\x90", BREAK("code+a"), "7 8 9");
	CHECK_EQ(report->gregs[REG_RAX] & 0x100, 0x100);
	STEPS("popfq ends it", TRACE "\x6a\x02\x9d\x90\x90", BREAK("code+c"), "8 9");
	/* mov ss holds the step back by one instruction. */
	STEPS("mov ss", TRACE "\x8e\xd0\x90\x90", BREAK("code+b"), "9 a", .rax = 0x2b);
	/* Other exceptions under the flag. */
	STEPS("ud2", TRACE "\x90\x0f\x0b", UD("code+7"), "7");
	CHECK(report->gregs[REG_EFL] & 0x100);
	STEPS("a fault", TRACE "\x90\x8a\x00", FAULT("MAPERR", "0x8", "code+7", "4"), "7", .rax = 8);
	STEPS("to nowhere", TRACE "\xff\xe0", FAULT("MAPERR", "0x8", "0x8", "20"), "ffffffffa0000008", .rax = 8);
}

static void breakpoints(void)
{
	ACT("int3", "\xcc", BREAK("code+1"), 0);
	ACT("int 3 in two bytes", "\xcd\x03", BREAK("code+2"), 0);
	ACT("prefixed int3", "\x66\xf3\x48\xcc", BREAK("code+4"), 0);
	ACT("ud2", "\x0f\x0b", UD("code+0"), 0);
	ACT("ud1", "\x0f\xb9\xc0", UD("code+0"), 0);
	ACT("pusha", "\x60", UD("code+0"), 0);
	ACT("push es", "\x06", UD("code+0"), 0);
	ACT("into", "\xce", UD("code+0"), 0);
	ACT("aaa", "\x37", UD("code+0"), 0);
	ACT("lock nop", "\xf0\x90", UD("code+0"), 0);
	ACT("lock mov", "\xf0\x89\x07", UD("code+0"), .rdi = DATA);
	ACT("lock add to a register", "\xf0\x01\xc0", UD("code+0"), 0);
	ACT("lea of a register", "\x8d\xc0", UD("code+0"), 0);
	ACT("vex behind a prefix", "\x66\xc5\xfc\x57\xc0", UD("code+0"), 0);
	/* 14 prefixes and one byte are an instruction, one prefix more is none. */
	ACT("15 bytes", "\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x90", BREAK("code+10"), 0);
	ACT("16 bytes", "\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x90", GP("code+0"), 0);
	/* An instruction that goes on where nothing is, or nothing may be run. jmp rax */
	memset((void *)(CODE + 2 * PAGE - 1), 0x48, 1);
	ACT("cut off by the end of code", "\xff\xe0", FAULT("MAPERR", "0x60002000", "code+1fff", "20"),
	    .rax = CODE + 2 * PAGE - 1);
	memset((void *)(CODE + 2 * PAGE - 1), 0xcc, 1);
}

/* Code that changes. */
static int self_modifying(unsigned char *written, unsigned char *run)
{
	int (*function)(void) = (int (*)(void))run;
	int sum = 0;
	for (int i = 0; i < 10; i++) {
		/* mov eax, i; ret */
		const unsigned char code[] = { 0xb8, (unsigned char)i, 0, 0, 0, 0xc3 };
		memcpy(written, code, sizeof code);
		__builtin___clear_cache((char *)run, (char *)run + sizeof code);
		sum += function();
	}
	return sum;
}

static void changing(void)
{
	unsigned char *both = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(both != MAP_FAILED);
	CHECK_EQ(self_modifying(both, both), 45);
	/* Over the end of a page. */
	CHECK_EQ(self_modifying(both + PAGE - 3, both + PAGE - 3), 45);
	/* The next instruction: mov byte [rip + 1], 7; mov al, 0; movzx eax, al; ret */
	static const unsigned char next[] = { 0xc6, 0x05, 1, 0, 0, 0, 7, 0xb0, 0, 0x0f, 0xb6, 0xc0, 0xc3 };
	memcpy(both + 64, next, sizeof next);
	CHECK_EQ(((int (*)(void))(both + 64))(), 7);
	/* Two mappings of one file, one to write and one to run. */
	int fd = memfd_create("code", 0);
	REQUIRE(fd >= 0 && ftruncate(fd, PAGE) == 0);
	unsigned char *written = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	unsigned char *run = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	REQUIRE(written != MAP_FAILED && run != MAP_FAILED);
	CHECK_EQ(self_modifying(written, run), 45);
	/* By write(2), and by another process. */
	static const unsigned char three[] = { 0xb8, 3, 0, 0, 0, 0xc3 }, four[] = { 0xb8, 4, 0, 0, 0, 0xc3 };
	CHECK_EQ(pwrite(fd, three, sizeof three, 0), sizeof three);
	CHECK_EQ(((int (*)(void))run)(), 3);
	pid_t pid = fork();
	if (pid == 0) {
		memcpy(written, four, sizeof four);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_EQ(((int (*)(void))run)(), 4);
	/* read(2) into code, and back and forth between writing and running. */
	int fds[2];
	REQUIRE(pipe(fds) == 0 && write(fds[1], three, sizeof three) == sizeof three);
	CHECK_EQ(read(fds[0], both, sizeof three), sizeof three);
	CHECK_EQ(((int (*)(void))both)(), 3);
	int sum = 0;
	for (int i = 0; i < 5; i++) {
		REQUIRE(mprotect(both, PAGE, PROT_READ | PROT_WRITE) == 0);
		both[1] = (unsigned char)i;
		REQUIRE(mprotect(both, PAGE, PROT_READ | PROT_EXEC) == 0);
		sum += ((int (*)(void))both)();
	}
	CHECK_EQ(sum, 10);
	/* After a fork each has its own. */
	REQUIRE(mprotect(both, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	both[1] = 20;
	pid = fork();
	if (pid == 0) {
		both[1] = 30;
		_exit(((int (*)(void))both)());
	}
	both[1] = 40;
	CHECK_EQ(((int (*)(void))both)(), 40);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 30);
	munmap(both, 2 * PAGE), munmap(written, PAGE), munmap(run, PAGE);
	close(fd), close(fds[0]), close(fds[1]);
}

/* A fault in any thread ends the process, or is handled by the thread itself. */
static void *faulting_thread(void *argument)
{
	if (argument)
		handle(on_act, SA_ONSTACK);
	*(volatile int *)0x1234 = 1;
	return NULL;
}

static void run_thread(void *argument)
{
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, faulting_thread, argument) == 0);
	pthread_join(thread, NULL);
}

static void on_nested(int signal, siginfo_t *info, void *context)
{
	if (report->signal)
		on_act(signal, info, context);
	report->signal = signal;
	/* Another fault in the handler. */
	*(volatile int *)0x1234 = 1;
}

static void run_nested(void *argument)
{
	handle(on_nested, SA_ONSTACK | *(int *)argument);
	__asm__ volatile("ud2");
}

static void run_blocked(void *argument)
{
	int how = *(int *)argument;
	sigset_t set;
	sigfillset(&set);
	handle(on_act, SA_ONSTACK);
	if (how == 0)
		REQUIRE(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	else
		REQUIRE(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
	*(volatile int *)0x1234 = 1;
}

static void inescapable(void)
{
	int none = 0, nodefer = SA_NODEFER, one = 1;
	ENDS("a thread's fault", run_thread, NULL, "killed by SEGV");
	outcome(run_thread, &one);
	CHECK(report->signal == SIGSEGV && report->addr == 0x1234);
	CHECK(unharmed());
	/* SIGILL's handler faults: SIGSEGV is not blocked. Within that it is. */
	outcome(run_nested, &none);
	CHECK(report->signal == SIGSEGV && report->code == SEGV_MAPERR && report->addr == 0x1234);
	outcome(run_nested, &nodefer);
	CHECK(report->signal == SIGSEGV && report->addr == 0x1234);
	ENDS("a blocked fault", run_blocked, &none, "killed by SEGV");
	ENDS("an ignored fault", run_blocked, &one, "killed by SEGV");
}

int main(void)
{
	act_begin();
	arithmetic();
	flags();
	steps();
	breakpoints();
	changing();
	inescapable();
	return tap_done();
}
