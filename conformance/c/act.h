/* Hostile acts for the conformance programs: pieces of code that a child process runs, and what its signal handler saw.
 *
 * An act's code lies at CODE, with int3 behind it; there are two pages of data, and one for its own stack. The handlers run
 * on an alternate stack. The outcome is a text such as "SEGV MAPERR 0x10 at code+2 trap 14 err 4": signal, si_code,
 * si_addr, rip, and the exception's number, with the error code if that is a page fault. After each act another process,
 * which lives all the time, must be unharmed. */
#ifndef ACT_H
#define ACT_H

#include "tap.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#define PAGE 4096UL
/* Far pointers with 32 bits reach it, and no heap does. */
#define CODE 0x60000000UL
#define DATA 0x60010000UL
#define STACK 0x60020000UL
/* Initial stack pointer of acts. */
#define TOP (STACK + PAGE / 2)

/* What an act starts with. */
struct start {
	unsigned long rax, rcx, rdx, rsi, rdi, rsp;
};

/* What the first handler that ran saw. */
struct report {
	int signal, code;
	unsigned long addr;
	/* The handler's own stack. */
	unsigned long sp;
	long gregs[23];
};

/* Set where a virtual machine that is done in software runs the program: some instructions end otherwise there, which
 * nobody else can change. */
__attribute__((unused)) static int software_kvm(void)
{
	return getenv("SOFTWARE_KVM") != NULL;
}

/* Set where the processor is QEMU's TCG, which is none in some corners: far returns read the stack as the kernel does, and
 * addresses that are not canonical or not aligned end otherwise or not at all. What is different there is said and not
 * counted. */
__attribute__((unused)) static int emulated_processor(void)
{
	return getenv("EMULATED_PROCESSOR") != NULL;
}

static struct report *report;
static char alternate[65536] __attribute__((aligned(64)));

static const char *region(unsigned long addr)
{
	static char texts[4][40];
	static int next;
	char *text = texts[next++ % 4];
	const struct { unsigned long base; const char *name; } regions[] = {
		{ CODE, "code" }, { DATA, "data" }, { STACK, "stack" }
	};
	for (int i = 0; i < 3; i++)
		if (addr - regions[i].base < 2 * PAGE) {
			snprintf(text, sizeof texts[0], "%s+%lx", regions[i].name, addr - regions[i].base);
			return text;
		}
	snprintf(text, sizeof texts[0], "%#lx", addr);
	return text;
}

static const char *signal_name(int signal)
{
	static char text[16];
	switch (signal) {
	case SIGSEGV: return "SEGV";
	case SIGBUS: return "BUS";
	case SIGILL: return "ILL";
	case SIGFPE: return "FPE";
	case SIGTRAP: return "TRAP";
	case SIGUSR1: return "USR1";
	}
	snprintf(text, sizeof text, "signal %d", signal);
	return text;
}

static const char *code_name(int signal, int code)
{
	static char text[16];
	static const char *const fpe[] = { "", "INTDIV", "INTOVF", "FLTDIV", "FLTOVF", "FLTUND", "FLTRES", "FLTINV" };
	if (code == SI_KERNEL)
		return "KERNEL";
	if (code == SI_TKILL)
		return "TKILL";
	if (signal == SIGSEGV && (code == SEGV_MAPERR || code == SEGV_ACCERR))
		return code == SEGV_MAPERR ? "MAPERR" : "ACCERR";
	if (signal == SIGBUS && (code == BUS_ADRALN || code == BUS_ADRERR))
		return code == BUS_ADRALN ? "ADRALN" : "ADRERR";
	if (signal == SIGILL && code == ILL_ILLOPN)
		return "ILLOPN";
	if (signal == SIGFPE && code >= FPE_INTDIV && code <= FPE_FLTINV)
		return fpe[code];
	if (signal == SIGTRAP && code == TRAP_TRACE)
		return "TRACE";
	snprintf(text, sizeof text, "code %d", code);
	return text;
}

/* The report as text. */
__attribute__((unused)) static const char *describe(int status)
{
	static char text[160];
	int n = 0;
	if (!report->signal) {
		if (WIFSIGNALED(status))
			snprintf(text, sizeof text, "killed by %s", signal_name(WTERMSIG(status)));
		else
			snprintf(text, sizeof text, "exit %d", WEXITSTATUS(status));
		return text;
	}
	n += snprintf(text + n, sizeof text - n, "%s %s %s", signal_name(report->signal),
		      code_name(report->signal, report->code), region(report->addr));
	n += snprintf(text + n, sizeof text - n, " at %s trap %ld", region(report->gregs[REG_RIP]),
		      (long)report->gregs[REG_TRAPNO]);
	if (report->gregs[REG_TRAPNO] == 14)
		n += snprintf(text + n, sizeof text - n, " err %ld", (long)report->gregs[REG_ERR]);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		snprintf(text + n, sizeof text - n, ", then status %#x", status);
	return text;
}

/* Reports and ends the child. */
__attribute__((unused)) static void on_act(int signal, siginfo_t *info, void *context)
{
	/* A handler begins with the alignment check that was on; nobody says that the C library bears it. */
	__asm__ volatile("sub $128, %%rsp\n\tpushfq\n\tandq $~0x40000, (%%rsp)\n\tpopfq\n\tadd $128, %%rsp" ::: "memory", "cc");
	ucontext_t *uc = context;
	report->signal = signal;
	report->sp = (unsigned long)__builtin_frame_address(0);
	report->code = info->si_code;
	report->addr = (unsigned long)info->si_addr;
	for (int i = 0; i < 23; i++)
		report->gregs[i] = uc->uc_mcontext.gregs[i];
	/* The C library may have lost its thread pointer. */
	syscall(SYS_exit_group, 0);
}

__attribute__((unused)) static void handle(void (*handler)(int, siginfo_t *, void *), int flags)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
	REQUIRE(sigaltstack(&stack, NULL) == 0);
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };
	const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP };
	for (int i = 0; i < 5; i++)
		REQUIRE(sigaction(signals[i], &action, NULL) == 0);
}

__attribute__((unused)) static void put(const void *code, size_t length)
{
	memcpy((void *)CODE, code, length);
	REQUIRE(mprotect((void *)CODE, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
}

/* Takes the registers and goes to CODE; rbx, rbp and r8 to r15 are zero but r9, which holds CODE. */
__attribute__((noreturn, unused)) static void start(const struct start *s)
{
	__asm__ volatile("mov %0, %%rbx\n\t"
			 "mov 0(%%rbx), %%rax\n\tmov 8(%%rbx), %%rcx\n\tmov 16(%%rbx), %%rdx\n\t"
			 "mov 24(%%rbx), %%rsi\n\tmov 32(%%rbx), %%rdi\n\tmov 40(%%rbx), %%rsp\n\t"
			 "mov %1, %%r9d\n\txor %%ebp, %%ebp\n\txor %%r8d, %%r8d\n\txor %%r10d, %%r10d\n\t"
			 "xor %%r11d, %%r11d\n\txor %%r12d, %%r12d\n\txor %%r13d, %%r13d\n\txor %%r14d, %%r14d\n\t"
			 "xor %%r15d, %%r15d\n\txor %%ebx, %%ebx\n\tjmp *%%r9"
			 :
			 : "r"(s), "i"(CODE)
			 : "memory");
	__builtin_unreachable();
}

/* The process that nothing may happen to. */
static int to_sibling[2], from_sibling[2];

static void sibling(void)
{
	enum { WORDS = 8 * PAGE / sizeof(long) };
	unsigned long *memory = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long turn = 0, in, out, result;
	double third = 1.0 / 3, back;
	for (;; turn++) {
		for (unsigned long i = 0; i < WORDS; i++)
			memory[i] = turn * 1000003 + i;
		in = turn * 7 + 0x123456789;
		char c;
		/* A vector and an x87 register are live across the sleep. */
		__asm__ volatile("movq %4, %%xmm11\n\tfldl %5\n\tsyscall\n\tfstpl %2\n\tmovq %%xmm11, %1"
				 : "=a"(result), "=r"(out), "=m"(back)
				 : "0"((long)SYS_read), "r"(in), "m"(third), "D"((long)to_sibling[0]), "S"(&c), "d"(1L)
				 : "rcx", "r11", "memory", "xmm11");
		if (result != 1)
			_exit(0);
		unsigned long sum = 0;
		for (unsigned long i = 0; i < WORDS; i++)
			sum += memory[i] != turn * 1000003 + i;
		char good = sum == 0 && in == out && back == third ? 'y' : 'n';
		REQUIRE(write(from_sibling[1], &good, 1) == 1);
	}
}

__attribute__((unused)) static int unharmed(void)
{
	char c = 0;
	return write(to_sibling[1], "?", 1) == 1 && read(from_sibling[0], &c, 1) == 1 && c == 'y';
}

/* Maps the pages and starts the sibling. */
__attribute__((unused)) static void act_begin(void)
{
	report = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(report != MAP_FAILED);
	const unsigned long places[] = { CODE, DATA, STACK };
	for (int i = 0; i < 3; i++)
		REQUIRE(mmap((void *)places[i], 2 * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)places[i]);
	memset((void *)CODE, 0xcc, 2 * PAGE);
	REQUIRE(pipe(to_sibling) == 0 && pipe(from_sibling) == 0);
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		close(to_sibling[1]);
		sibling();
	}
	close(to_sibling[0]);
	CHECK(unharmed());
}

/* One line of output: what was to come, and whether it came and the sibling is well. */
__attribute__((unused)) static void same(const char *name, const char *got, const char *want)
{
	int well = unharmed();
	char line[256];
	snprintf(line, sizeof line, "%s: %s", name, want);
	tap_count++;
	if (well && !strcmp(got, want)) {
		tap_print("ok %d - %s\n", tap_count, line);
		return;
	}
	if (well && emulated_processor()) {
		tap_print("ok %d - %s # SKIP emulated processor: %s\n", tap_count, line, got);
		return;
	}
	tap_failed++;
	tap_print("not ok %d - %s\n# got %s%s\n", tap_count, line, got, well ? "" : "; the sibling is harmed");
}

/* Runs `run` in a child; how it ended. */
__attribute__((unused)) static const char *outcome(void (*run)(void *), void *argument)
{
	memset(report, 0, sizeof *report);
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		alarm(30);
		run(argument);
		_exit(99);
	}
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return describe(status);
}

/* The child must end so. */
#define ENDS(name, run, argument, want) same(name, outcome(run, argument), want)

struct act {
	const char *code;
	size_t length;
	struct start regs;
	int flags;
};

__attribute__((unused)) static void run_act(void *argument)
{
	struct act *act = argument;
	handle(on_act, act->flags);
	put(act->code, act->length);
	if (!act->regs.rsp)
		act->regs.rsp = TOP;
	start(&act->regs);
}

/* Code (a string literal), with registers as in `ACT("...", "...", want, .rax = 5)`. */
#define ACT(name, bytes, want, ...) \
	do { \
		struct act act_ = { bytes, sizeof(bytes) - 1, { __VA_ARGS__ }, SA_ONSTACK }; \
		ENDS(name, run_act, &act_, want); \
	} while (0)

/* General protection, page faults (user 4, write 2, fetch 16, present or the kernel's 1), and so on. */
#define GP(rip) "SEGV KERNEL 0 at " rip " trap 13"
#define SS(rip) "BUS KERNEL 0 at " rip " trap 12"
#define UD(rip) "ILL ILLOPN " rip " at " rip " trap 6"
#define BREAK(rip) "TRAP KERNEL 0 at " rip " trap 3"
#define FAULT(code, addr, rip, err) "SEGV " code " " addr " at " rip " trap 14 err " err

#endif
