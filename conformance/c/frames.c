/* Signal frames: what a handler may change in its ucontext_t and what rt_sigreturn(2) makes of garbage there; stacks that
 * take no frame. As in escape.c, each act ends as on Linux and harms nobody else. */
#include "act.h"

/* The kernel's struct. */
struct kernel_action {
	void *handler;
	unsigned long flags;
	void *restorer;
	unsigned long mask;
};
#define RESTORER 0x04000000UL
#define STRICT_SS 4

/* FXSAVE area, then the header of XSAVE. In its software bytes: magic, sizes, features. */
#define FP(uc) ((unsigned char *)(uc)->uc_mcontext.fpregs)
#define MAGIC1 464
#define FEATURES 472
#define STATE_SIZE 480
#define MXCSR 24
#define XMM0 160
#define HEADER 512

static unsigned u32(const unsigned char *at)
{
	unsigned value;
	memcpy(&value, at, sizeof value);
	return value;
}

static void set_u32(unsigned char *at, unsigned value)
{
	memcpy(at, &value, sizeof value);
}

struct edit {
	void (*change)(ucontext_t *uc, unsigned long value);
	unsigned long value;
	const char *code;
	size_t length;
};

static struct edit edit;

static void on_edit(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	ucontext_t *uc = context;
	uc->uc_mcontext.gregs[REG_RIP] = CODE;
	uc->uc_mcontext.gregs[REG_RSP] = TOP;
	uc->uc_mcontext.gregs[REG_RDI] = DATA;
	edit.change(uc, edit.value);
}

static void run_edit(void *argument)
{
	edit = *(struct edit *)argument;
	handle(on_act, SA_ONSTACK);
	put(edit.code, edit.length);
	struct sigaction action = { .sa_sigaction = on_edit, .sa_flags = SA_SIGINFO };
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	/* Register state that is not that of a new process. */
	unsigned mxcsr = 0x3f80;
	__asm__ volatile("ldmxcsr %0\n\tmovq %1, %%xmm0\n\tvinsertf128 $1, %%xmm0, %%ymm0, %%ymm0"
			 :
			 : "m"(mxcsr), "r"(0x1122334455667788)
			 : "xmm0");
	syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
}

/* The handler of SIGUSR1 makes this change; then the code runs. */
#define EDIT(name, change, value, bytes, want) \
	do { \
		struct edit edit_ = { change, value, bytes, sizeof(bytes) - 1 }; \
		ENDS(name, run_edit, &edit_, want); \
	} while (0)

static const char *text(const char *format, unsigned long value)
{
	static char texts[4][128];
	static int next;
	char *out = texts[next++ % 4];
	snprintf(out, sizeof texts[0], format, value, value);
	return out;
}

static void nothing(ucontext_t *uc, unsigned long value)
{
	(void)uc, (void)value;
}

static void all_registers(ucontext_t *uc, unsigned long value)
{
	for (int i = 0; i <= REG_RCX; i++)
		uc->uc_mcontext.gregs[i] = value + i;
}

static void set_rip(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_RIP] = value;
}

static void set_rsp(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_RSP] = value;
}

static void set_flags(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_EFL] = value;
}

/* Of gregs[REG_CSGSFS], 16 bits each: cs, gs, fs, ss. */
static void set_cs(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_CSGSFS] = (uc->uc_mcontext.gregs[REG_CSGSFS] & ~0xffffL) | value;
}

static void set_ss(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_CSGSFS] =
		(uc->uc_mcontext.gregs[REG_CSGSFS] & 0xffffffffffff) | (long)(value << 48);
}

static void set_lax_ss(ucontext_t *uc, unsigned long value)
{
	uc->uc_flags &= ~STRICT_SS;
	set_ss(uc, value);
}

/* gs, fs and the fields that only tell have no effect. */
static void set_told(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_CSGSFS] ^= 0x0000ffffffff0000 & (long)value;
	for (int i = REG_ERR; i < 23; i++)
		uc->uc_mcontext.gregs[i] = (long)value;
	uc->uc_link = (void *)value;
}

static void registers(void)
{
	EDIT("nothing changed", nothing, 0, "\xcc", BREAK("code+1"));
	EDIT("all registers changed", all_registers, 0x1000000010000, "\xcc", BREAK("code+1"));
	long wrong = 0;
	for (int i = 0; i <= REG_RCX; i++)
		wrong += report->gregs[i] != 0x1000000010000 + i;
	CHECK_EQ(wrong, 0);
	EDIT("what only tells changed", set_told, 0x4242424242424242, "\xcc", BREAK("code+1"));
	static const unsigned long rips[] = {
		0x0000800000000000, 0x8000000000000000, 0x4141414141414141, 0xffff7fffffffffff,
	};
	for (size_t i = 0; i < sizeof rips / sizeof *rips; i++)
		EDIT(text("rip %#lx", rips[i]), set_rip, rips[i], "\xcc", text("SEGV KERNEL 0 at %#lx trap 13", rips[i]));
	static const unsigned long high[] = { 0xffffffff81000000, 0xffff888000000000, 0x00007ffffffff000, -1UL };
	for (size_t i = 0; i < sizeof high / sizeof *high; i++)
		EDIT(text("rip %#lx", high[i]), set_rip, high[i], "\xcc",
		     text("SEGV MAPERR %#lx at %#lx trap 14 err 21", high[i]));
	EDIT("rip 0", set_rip, 0, "\xcc", "SEGV MAPERR 0 at 0 trap 14 err 20");
	EDIT("rip in data", set_rip, DATA, "\xcc", FAULT("ACCERR", "data+0", "data+0", "21"));
	EDIT("rsp not canonical", set_rsp, 1UL << 63, "\x50", SS("code+0"));
	EDIT("rsp the kernel's", set_rsp, 0xffff888000000008, "\x50",
	     FAULT("MAPERR", "0xffff888000000000", "code+0", "7"));
	EDIT("rsp not used", set_rsp, 1UL << 63, "\xcc", BREAK("code+1"));
}

static void selectors(void)
{
	static const struct { unsigned cs; int good; } codes[] = {
		{ 0, 0 }, { 8, 0 }, { 0x10, 0 }, { 0x13, 0 }, { 0x18, 0 }, { 0x28, 0 }, { 0x2b, 0 }, { 0x30, 1 }, { 0x33, 1 },
		{ 0x40, 0 }, { 0xffff, 0 },
	};
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		EDIT(text("cs %#lx", codes[i].cs), set_cs, codes[i].cs, "\xcc", codes[i].good ? BREAK("code+1") : GP("code+0"));
		/* What was asked for shows, with the lowest privilege. */
		CHECK_EQ(report->gregs[REG_CSGSFS] & 0xffff, codes[i].cs | 3);
	}
	static const struct { unsigned ss; int good; } stacks[] = {
		{ 0, 0 }, { 0x10, 0 }, { 0x18, 0 }, { 0x28, 1 }, { 0x2b, 1 }, { 0x30, 0 }, { 0x33, 0 }, { 0x40, 0 },
		{ 0xffff, 0 },
	};
	for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
		unsigned ss = stacks[i].ss;
		EDIT(text("ss %#lx", ss), set_ss, ss, "\xcc", stacks[i].good ? BREAK("code+1") : GP("code+0"));
		CHECK_EQ((unsigned long)report->gregs[REG_CSGSFS] >> 48, ss | 3);
	}
	/* Without UC_STRICT_RESTORE_SS, for frames of old programs, a bad one is replaced. */
	EDIT("lax ss 0", set_lax_ss, 0, "\xcc", BREAK("code+1"));
	CHECK_EQ((unsigned long)report->gregs[REG_CSGSFS] >> 48, 0x2b);
	EDIT("lax ss 0x18", set_lax_ss, 0x18, "\xcc", BREAK("code+1"));
	CHECK_EQ((unsigned long)report->gregs[REG_CSGSFS] >> 48, 0x2b);
}

/* popfq of this, then back from the handler. */
static void own_flags(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.gregs[REG_EFL] = 0;
	__asm__ volatile("sub $128, %%rsp\n\tpush %0\n\tpopfq\n\tadd $128, %%rsp" : : "r"(value) : "memory", "cc");
}

static void flags(void)
{
	static const unsigned long sets[] = {
		0, 1, 0x8d5, 0x400, 0x3000, 0x3202, 0x4000, 0x20000, 0x40000, 0x80000, 0x180000, 0x200000,
		0xfffffffffffefeff,
	};
	/* AC OF DF SF ZF AF PF CF are taken, and RF, which an instruction ends. */
	const long free = 0x40cd5, fixed = 0x202;
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		/* pushfq; pop rcx */
		EDIT(text("flags %#lx", sets[i]), set_flags, sets[i], "\x9c\x59\xcc", BREAK("code+3"));
		CHECK_EQ(report->gregs[REG_RCX], ((long)sets[i] & free) | fixed);
	}
	EDIT("the trap flag", set_flags, 0x302, "\x90\x90\xcc", "TRAP TRACE code+1 at code+1 trap 1");
	/* The others stay as the handler left them: NT, ID. */
	long stay = software_kvm() ? 0x200202 : 0x204202;
	EDIT("flags that stay", own_flags, (unsigned long)stay, "\x9c\x59\xcc", BREAK("code+3"));
	CHECK_EQ(report->gregs[REG_RCX], stay);
}

/* The extended state. */
static void fp_pointer(ucontext_t *uc, unsigned long value)
{
	uc->uc_mcontext.fpregs = (void *)value;
}

static void fp_word(ucontext_t *uc, unsigned long value)
{
	/* Offset above, new word below. */
	set_u32(FP(uc) + (value >> 32), (unsigned)value);
}

static void fp_legacy(ucontext_t *uc, unsigned long value)
{
	set_u32(FP(uc) + MAGIC1, 0);
	fp_word(uc, value);
}

static void fp_magic2(ucontext_t *uc, unsigned long value)
{
	set_u32(FP(uc) + u32(FP(uc) + STATE_SIZE), (unsigned)value);
}

static void fp_features(ucontext_t *uc, unsigned long value)
{
	memcpy(FP(uc) + FEATURES, &value, 8);
}

static void fp_header(ucontext_t *uc, unsigned long value)
{
	memcpy(FP(uc) + HEADER, &value, 8);
}

/* The state is moved to the data pages. */
static void fp_moved(ucontext_t *uc, unsigned long value)
{
	memmove((void *)value, FP(uc), u32(FP(uc) + STATE_SIZE) + 4);
	uc->uc_mcontext.fpregs = (void *)value;
}

static void fp_cut(ucontext_t *uc, unsigned long value)
{
	memcpy((void *)value, FP(uc), DATA + 2 * PAGE - value);
	uc->uc_mcontext.fpregs = (void *)value;
}

#define WORD(offset, word) ((unsigned long)(offset) << 32 | (unsigned)(word))
/* stmxcsr [rdi]; fnstcw [rdi + 4]; movq [rdi + 8], xmm0; vextractf128 xmm1, ymm0, 1; movq [rdi + 16], xmm1; then
 * rax, rcx, rdx = those */
#define SHOW \
	"\x0f\xae\x1f\xd9\x7f\x04\x66\x0f\xd6\x47\x08\xc4\xe3\x7d\x19\xc1\x01\x66\x0f\xd6\x4f\x10" \
	"\x48\x8b\x07\x48\x8b\x4f\x08\x48\x8b\x57\x10\xcc"
#define SHOWN BREAK("code+22")
/* A frame that is refused, after its registers have been taken. */
#define REFUSED "SEGV KERNEL 0 at code+0 trap 0"

static void state_is(unsigned mxcsr, unsigned long low, unsigned long high)
{
	CHECK_EQ(report->gregs[REG_RAX] & 0xffffffff, mxcsr);
	CHECK_EQ(report->gregs[REG_RCX], low);
	CHECK_EQ(report->gregs[REG_RDX], high);
}

static void extended_state(void)
{
	const unsigned long value = 0x1122334455667788;
	EDIT("state untouched", nothing, 0, SHOW, SHOWN);
	state_is(0x3f80, value, value);
	EDIT("xmm0 changed", fp_word, WORD(XMM0, 5), SHOW, SHOWN);
	state_is(0x3f80, (value & ~0xffffffffUL) | 5, value);
	EDIT("mxcsr changed", fp_word, WORD(MXCSR, 0x7f80), SHOW, SHOWN);
	state_is(0x7f80, value, value);
	EDIT("no state", fp_pointer, 0, SHOW, SHOWN);
	state_is(0x1f80, 0, 0);
	EDIT("state elsewhere", fp_moved, DATA, SHOW, SHOWN);
	EDIT("no features", fp_features, 0, SHOW, SHOWN);
	state_is(0x1f80, 0, 0);
	EDIT("features without avx", fp_features, 3, SHOW, SHOWN);
	state_is(0x3f80, value, 0);
	EDIT("more features than there are", fp_features, -1UL, SHOW, SHOWN);
	state_is(0x3f80, value, value);
	EDIT("a header without avx", fp_header, 3, SHOW, SHOWN);
	state_is(0x3f80, value, 0);
	EDIT("a header with nothing", fp_header, 0, SHOW, SHOWN);
	state_is(0x3f80, 0, 0);
	/* Without the magic numbers it is the old format, which ends before avx. */
	EDIT("no first magic", fp_legacy, WORD(XMM0, 6), SHOW, SHOWN);
	state_is(0x3f80, (value & ~0xffffffffUL) | 6, 0);
	EDIT("no second magic", fp_magic2, 1, SHOW, SHOWN);
	state_is(0x3f80, value, 0);
	EDIT("a wrong size", fp_word, WORD(STATE_SIZE, 0x100000), SHOW, SHOWN);
	state_is(0x3f80, value, 0);
	EDIT("size 0", fp_word, WORD(STATE_SIZE, 0), SHOW, SHOWN);
	state_is(0x3f80, value, 0);
	/* What the processor would not load, or is not there to be loaded. */
	EDIT("a reserved bit of mxcsr", fp_word, WORD(MXCSR, 0x80001f80), SHOW, REFUSED);
	EDIT("one in the old format", fp_legacy, WORD(MXCSR, 0x80001f80), SHOW, REFUSED);
	EDIT("a header with a reserved bit", fp_header, 7 | 1UL << 62, SHOW, REFUSED);
	EDIT("a header of the other format", fp_word, WORD(HEADER + 8, 7), SHOW, REFUSED);
	EDIT("a header that is not zero behind", fp_word, WORD(HEADER + 16, 1), SHOW, REFUSED);
	EDIT("a misaligned state", fp_moved, DATA + 32, SHOW, REFUSED);
	EDIT("a state at odds", fp_moved, DATA + 1, SHOW, REFUSED);
	EDIT("a state of the kernel's", fp_pointer, 0xffff888000000000, SHOW, REFUSED);
	EDIT("a state at no address", fp_pointer, 1UL << 62, SHOW, REFUSED);
	EDIT("a state in nothing", fp_pointer, 0x1000, SHOW, REFUSED);
	EDIT("a state that is cut off", fp_cut, DATA + 2 * PAGE - 704, SHOW, REFUSED);
	/* Unmasked and pending x87 exceptions: control word, status word; fwait. */
	EDIT("a pending exception", fp_word, WORD(0, 0x0081037e), "\x90\x9b", "FPE FLTINV code+1 at code+1 trap 16");
	EDIT("an unmasked exception", fp_word, WORD(MXCSR, 0x1d80), "\x31\xc0\xf3\x0f\x2a\xc8\xb0\x01\xf3\x0f\x2a\xc0\xf3\x0f\x5e\xc1",
	     "FPE FLTDIV code+c at code+c trap 19");
}

static void set_mask(ucontext_t *uc, unsigned long value)
{
	memcpy(&uc->uc_sigmask, &value, 8);
}

static void set_stack(ucontext_t *uc, unsigned long value)
{
	static const stack_t stacks[] = {
		{ .ss_sp = (void *)DATA, .ss_size = 2 * PAGE },
		{ .ss_sp = (void *)DATA, .ss_size = 2 * PAGE, .ss_flags = 0x1234 },
		{ .ss_sp = (void *)DATA, .ss_size = 100 },
		{ .ss_sp = (void *)0xffff888000000000, .ss_size = 65536 },
		{ .ss_flags = SS_DISABLE },
	};
	uc->uc_stack = stacks[value];
	set_rsp(uc, (unsigned long)STACK + 2 * PAGE);
}

static void masks_and_stacks(void)
{
	EDIT("SIGTRAP blocked", set_mask, 1UL << (SIGTRAP - 1), "\xcc", "killed by TRAP");
	EDIT("all but SIGTRAP blocked", set_mask, ~(1UL << (SIGTRAP - 1)), "\xcc", BREAK("code+1"));
	unsigned long own = (unsigned long)alternate;
	EDIT("another stack", set_stack, 0, "\xcc", BREAK("code+1"));
	CHECK(report->sp - DATA < 2 * PAGE);
	EDIT("a stack with bad flags", set_stack, 1, "\xcc", BREAK("code+1"));
	CHECK(report->sp - own < sizeof alternate);
	EDIT("a stack that is too small", set_stack, 2, "\xcc", BREAK("code+1"));
	CHECK(report->sp - own < sizeof alternate);
	EDIT("a stack in the kernel", set_stack, 3, "\xcc", "killed by SEGV");
	EDIT("no stack", set_stack, 4, "\xcc", BREAK("code+1"));
	CHECK(report->sp - STACK < 2 * PAGE);
}

/* rt_sigreturn(2) without a signal: mov eax, 15; syscall */
#define SIGRETURN "\xb8\x0f\x00\x00\x00\x0f\x05"

static void no_frames(void)
{
	static const unsigned long places[] = { 8, 0, 0x1000, 0xffff888000000008, 1UL << 63, 0x800000000008, CODE + 2 * PAGE };
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		/* xchg rsp, rax comes first, as 0 means another stack pointer to ACT. */
		ACT(text("a frame at %#lx", places[i]), "\x48\x94" SIGRETURN, "SEGV KERNEL 0 at code+9 trap 0",
		    .rax = places[i]);
		CHECK_EQ(report->gregs[REG_RAX], 0);
	}
	ACT("a frame that is cut off", SIGRETURN, "SEGV KERNEL 0 at code+7 trap 0", .rsp = DATA + 2 * PAGE - 100);
	memset((void *)DATA, 0, 2 * PAGE);
	ACT("a frame of zeros", SIGRETURN, "SEGV KERNEL 0 at 0 trap 13", .rsp = DATA + 8);
	memset((void *)DATA, 0xff, 2 * PAGE);
	ACT("a frame of ones", SIGRETURN, "killed by SEGV", .rsp = DATA + 8);
	memset((void *)DATA, 0x41, 2 * PAGE);
	ACT("a frame of As", SIGRETURN, "SEGV KERNEL 0 at 0x4141414141414141 trap 0", .rsp = DATA + 8);
	memset((void *)DATA, 0, 2 * PAGE);
}

struct way {
	void *handler;
	unsigned long flags;
	void *restorer;
	/* Of the process when it sends itself SIGUSR1. */
	unsigned long rsp;
};

static void on_nothing(int signal)
{
	(void)signal;
}

static void restore(void)
{
	__asm__ volatile("mov $15, %eax\n\tsyscall");
}

/* A stack on which there is room for a frame. */
#define LAST (STACK + 2 * PAGE)

static void run_way(void *argument)
{
	struct way *way = argument;
	handle(on_act, SA_ONSTACK);
	struct kernel_action action = { way->handler, way->flags, way->restorer, 0 };
	REQUIRE(syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8) == 0);
	/* syscall */
	put("\x0f\x05", 2);
	struct start s = { .rax = SYS_tgkill, .rdi = (unsigned long)getpid(), .rsi = (unsigned long)getpid(), .rdx = SIGUSR1,
			   .rsp = way->rsp };
	start(&s);
}

#define WAY(name, want, ...) \
	do { \
		struct way way_ = { __VA_ARGS__ }; \
		ENDS(name, run_way, &way_, want); \
	} while (0)

/* A handler on the alternate stack gets a signal. */
static void on_second(int signal, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	if (!report->signal) {
		report->signal = signal;
		report->addr = (unsigned long)uc->uc_stack.ss_flags;
		__asm__ volatile("ud2");
	}
	report->gregs[0] = uc->uc_stack.ss_flags;
	report->sp = (unsigned long)__builtin_frame_address(0);
	(void)info;
	_exit(0);
}

static void run_second(void *argument)
{
	(void)argument;
	handle(on_second, SA_ONSTACK | SA_NODEFER);
	__asm__ volatile("ud2");
}

/* A handler that fills the alternate stack nearly to its low end and faults again. */
static void on_low(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	__asm__ volatile("mov %0, %%rsp\n\tud2" : : "r"(DATA + PAGE + 512) : "memory");
}

static void run_low(void *argument)
{
	(void)argument;
	memset((void *)DATA, 0x5a, PAGE);
	stack_t stack = { .ss_sp = (void *)(DATA + PAGE), .ss_size = PAGE };
	struct sigaction action = { .sa_sigaction = on_low, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	REQUIRE(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGILL, &action, NULL) == 0);
	/* The page below is shared with the parent, who looks. */
	REQUIRE(mmap((void *)DATA, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		(void *)DATA);
	memset((void *)DATA, 0x5a, PAGE);
	REQUIRE(sigaltstack(&stack, NULL) == 0);
	__asm__ volatile("ud2");
}

static void stacks(void)
{
	WAY("an ordinary handler", BREAK("code+3"), (void *)on_nothing, RESTORER, (void *)restore, LAST);
	WAY("no restorer", "SEGV KERNEL 0 at code+2 trap 0", (void *)on_nothing, 0, NULL, LAST);
	WAY("a restorer in data", FAULT("ACCERR", "data+0", "data+0", "21"), (void *)on_nothing, RESTORER, (void *)DATA, LAST);
	WAY("a restorer in the kernel", FAULT("MAPERR", "0xffff888000000000", "0xffff888000000000", "21"),
	    (void *)on_nothing, RESTORER, (void *)0xffff888000000000, LAST);
	WAY("a handler in the kernel", FAULT("MAPERR", "0xffff888000000000", "0xffff888000000000", "21"),
	    (void *)0xffff888000000000, RESTORER, (void *)restore, LAST);
	WAY("a handler at no address", "SEGV KERNEL 0 at 0x8000000000000000 trap 13", (void *)(1UL << 63), RESTORER,
	    (void *)restore, LAST);
	/* No room for the frame: SIGSEGV instead, which has its own stack. */
	static const unsigned long places[] = { 16, 0x1000, CODE + PAGE, 0xffff888000001000, 1UL << 63, 0x800000000000 };
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		WAY(text("a frame below %#lx", places[i]), "SEGV KERNEL 0 at code+2 trap 0", (void *)on_nothing, RESTORER,
		    (void *)restore, places[i]);
	outcome(run_second, NULL);
	/* The stack as it was set: whether it is in use is not in the frame. */
	CHECK(report->addr == 0 && report->gregs[0] == 0 && report->sp - (unsigned long)alternate < sizeof alternate);
	ENDS("the end of the alternate stack", run_low, NULL, "killed by SEGV");
}

/* What a handler begins with. */
static void on_look(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	unsigned long flags;
	unsigned mxcsr;
	unsigned short control;
	__asm__ volatile("sub $128, %%rsp\n\tpushfq\n\tpop %0\n\tadd $128, %%rsp\n\tstmxcsr %1\n\tfnstcw %2"
			 : "=r"(flags), "=m"(mxcsr), "=m"(control));
	_exit((flags & 0x10500) || mxcsr != 0x1f80 || control != 0x37f);
}

static void run_look(void *argument)
{
	(void)argument;
	handle(on_look, SA_ONSTACK);
	/* Direction flag, unmasked exceptions, 53 bits of precision; and the trap flag while the fault comes. */
	unsigned mxcsr = 0x0000;
	unsigned short control = 0x0240;
	__asm__ volatile("ldmxcsr %0\n\tfldcw %1\n\tpushq $0x502\n\tpopfq\n\tud2" : : "m"(mxcsr), "m"(control) : "memory", "cc");
}

/* Without SA_SIGINFO the place for the signal's information is in the frame, and stays as the program left it. */
static void on_plain(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	unsigned char before[sizeof *info];
	memset(before, 0x5a, sizeof before);
	_exit(memcmp(info, before, sizeof before) != 0);
}

static void run_plain(void *argument)
{
	(void)argument;
	static unsigned char stack[16 * PAGE];
	memset(stack, 0x5a, sizeof stack);
	REQUIRE(sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, NULL) == 0);
	struct sigaction action = { .sa_flags = SA_ONSTACK };
	action.sa_handler = (void (*)(int))(void *)on_plain;
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	raise(SIGUSR1);
}

int main(void)
{
	act_begin();
	registers();
	selectors();
	flags();
	extended_state();
	masks_and_stacks();
	no_frames();
	stacks();
	ENDS("what a handler begins with", run_look, NULL, "exit 0");
	ENDS("what a handler without SA_SIGINFO finds", run_plain, NULL, "exit 0");
	return tap_done();
}
