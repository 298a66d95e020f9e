/* Code that tries to break out of its process, or to break what runs it. Each act ends in the signal that Linux gives,
 * with its si_code, si_addr and rip, and harms nobody else. What depends on the processor's vendor is left out (int1,
 * sysenter, what a UMIP processor emulates), and so is 32-bit code. */
#include "act.h"
#include <asm/prctl.h>
#include <sys/mman.h>

/* Of the kernel's half, and of user space's where nothing is mapped: a page at 0, the processor's interrupt controllers,
 * frame buffers, what lies behind the memory of small machines, the last user page. */
static const unsigned long kernel[] = {
	0xffff800000000000, 0xffff888000000000, 0xffff8880deadbeef, 0xffffc90000000000, 0xffffea0000000000,
	0xfffffe0000000000, 0xffffffff80000000, 0xffffffff81000000, 0xffffffffc0000000, 0xffffffffff5fd000,
	0xffffffffff601000, 0xfffffffffffff000, 0xfffffffffffffff0, 0x00007ffffffff000,
};
static const unsigned long nowhere[] = {
	0, 0x10, 0xa0000, 0xb8000, 0xf0000000, 0xfec00000, 0xfee00000, 0xfee000b0, 0x100000000, 0x8000000000,
	0x400000000000,
};
static const unsigned long non_canonical[] = {
	0x0000800000000000, 0x0000800000001000, 0x8000000000000000, 0xdeadbeefdeadbeef, 0xffff7fffffffffff,
	0x4141414141414141, 0x00ffffffffffffff,
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *text(const char *format, ...)
{
	static char texts[4][160];
	static int next;
	char *out = texts[next++ % 4];
	va_list args;
	va_start(args, format);
	vsnprintf(out, sizeof texts[0], format, args);
	va_end(args);
	return out;
}

static void wild_addresses(void)
{
	for (size_t i = 0; i < COUNT(kernel) + COUNT(nowhere); i++) {
		int high = i < COUNT(kernel);
		unsigned long at = high ? kernel[i] : nowhere[i - COUNT(kernel)];
		/* Linux says of its own addresses that something is there, whether it is or not. */
		const char *const err[] = { high ? "5" : "4", high ? "7" : "6", high ? "21" : "20" };
		/* mov rax, [rax] */
		ACT(text("load from %#lx", at), "\x48\x8b\x00",
		    text("SEGV MAPERR %s at code+0 trap 14 err %s", region(at), err[0]), .rax = at);
		/* nop; mov [rax], cl */
		ACT(text("store to %#lx", at), "\x90\x88\x08",
		    text("SEGV MAPERR %s at code+1 trap 14 err %s", region(at), err[1]), .rax = at);
		ACT(text("jump to %#lx", at), "\xff\xe0",
		    text("SEGV MAPERR %s at %s trap 14 err %s", region(at), region(at), err[2]), .rax = at);
	}
	/* Atomic, string and vector accesses, cache flushes; prefetches fault never. */
	unsigned long at = kernel[2];
	const char *read = text("SEGV MAPERR %#lx at code+0 trap 14 err 5", at);
	const char *write = text("SEGV MAPERR %#lx at code+0 trap 14 err 7", at);
	ACT("lock inc of the kernel's", "\xf0\x48\xff\x00", write, .rax = at);
	ACT("cmpxchg of the kernel's", "\xf0\x48\x0f\xb1\x08", write, .rax = at);
	ACT("rep stosb into the kernel", "\xf3\xaa", write, .rdi = at, .rcx = 100);
	ACT("rep movsb out of the kernel", "\xf3\xa4", read, .rsi = at, .rdi = DATA, .rcx = 100);
	ACT("movups from the kernel", "\x0f\x10\x00", read, .rax = at);
	ACT("movntps to the kernel", "\x0f\x2b\x00", text("SEGV MAPERR %#lx at code+0 trap 14 err 7", at & -16),
	    .rax = at & -16);
	ACT("clflush of the kernel's", "\x0f\xae\x38", read, .rax = at);
	ACT("prefetch", "\x0f\x18\x08\x0f\x0d\x08", BREAK("code+7"), .rax = at);
	/* rep stosb that runs out of its page: what it has done is done, and rcx tells how much that is. */
	ACT("rep stosb over the end", "\xf3\xaa", FAULT("MAPERR", "0x60012000", "code+0", "6"), .rdi = DATA + 0x1ff0,
	    .rcx = 100);
	CHECK(report->gregs[REG_RCX] == 100 - 16 && report->gregs[REG_RDI] == (long)(DATA + 2 * PAGE));
	/* call [rax] and push [rax] read first. */
	ACT("call through the kernel", "\xff\x10", read, .rax = at);
	ACT("push from the kernel", "\xff\x30", read, .rax = at);
	ACT("pop into the kernel", "\x8f\x00", write, .rax = at);
	ACT("run data", "\xff\xe0", FAULT("ACCERR", "data+0", "data+0", "21"), .rax = DATA);
	ACT("run the stack", "\xff\xe4", FAULT("ACCERR", "stack+800", "stack+800", "21"), .rax = DATA);
	ACT("write to code", "\x41\x88\x01", FAULT("ACCERR", "code+0", "code+0", "7"), .rax = DATA);
	ACT("run out of code", "\xff\xe0", FAULT("MAPERR", "0x60002000", "0x60002000", "20"), .rax = CODE + 2 * PAGE);
}

static void no_addresses(void)
{
	for (size_t i = 0; i < COUNT(non_canonical); i++) {
		unsigned long at = non_canonical[i];
		ACT(text("load from %#lx", at), "\x48\x8b\x00", GP("code+0"), .rax = at);
		ACT(text("store to %#lx", at), "\x90\x88\x08", GP("code+1"), .rax = at);
		ACT(text("jump to %#lx", at), "\x90\xff\xe0", GP("code+1"), .rax = at);
		/* push rax; ret */
		ACT(text("return to %#lx", at), "\x50\xc3", GP("code+1"), .rax = at);
		/* Through the stack it is another exception: mov rax, [rbp] with rbp from rax; push; pop; call */
		ACT(text("load from %#lx by rbp", at), "\x48\x89\xc5\x48\x8b\x45\x00", SS("code+3"), .rax = at);
		/* The eight bytes below the first of them are still user space. */
		at |= 8;
		ACT(text("push at %#lx", at), "\x50", SS("code+0"), .rsp = at);
		ACT(text("pop at %#lx", at), "\x90\x58", SS("code+1"), .rsp = at);
		ACT(text("call at %#lx", at), "\xff\xd0", SS("code+0"), .rax = CODE + 64, .rsp = at);
	}
}

/* The stack pointer is anywhere; there is an alternate stack or none. */
static void run_without_stack(void *argument)
{
	struct act *act = argument;
	act->flags = 0;
	run_act(act);
}

static void wild_stacks(void)
{
	static const struct { unsigned long rsp; const char *addr, *err; } places[] = {
		{ 8, "0", "6" },
		{ 0xfee00000, "0xfedffff8", "6" },
		{ 0xffff888000000000 + 8, "0xffff888000000000", "7" },
		{ 0xffffffff81000008, "0xffffffff81000000", "7" },
	};
	for (size_t i = 0; i < COUNT(places); i++) {
		struct act act = { "\x50", 1, { .rsp = places[i].rsp }, SA_ONSTACK };
		const char *want = text("SEGV MAPERR %s at code+0 trap 14 err %s", places[i].addr, places[i].err);
		ENDS(text("push below %#lx", places[i].rsp), run_act, &act, want);
		ENDS(text("push below %#lx without another stack", places[i].rsp), run_without_stack, &act,
		     "killed by SEGV");
	}
	/* A stack at 0 grows down from the top of all addresses. */
	ACT("push below 0", "\x31\xe4\x50", FAULT("MAPERR", "0xfffffffffffffff8", "code+2", "7"), .rax = 0);
	ACT("call below code", "\xff\xd0", FAULT("ACCERR", "code+8", "code+0", "7"), .rax = CODE + 64, .rsp = CODE + 16);
	/* Without a use of it any stack pointer will do: system calls, exceptions, signals. */
	ACT("getpid without a stack", "\x0f\x05\xcc", BREAK("code+3"), .rax = SYS_getpid, .rsp = 1);
	CHECK(report->gregs[REG_RSP] == 1 && report->gregs[REG_RAX] > 0);
	ACT("getpid on no address", "\x0f\x05\xcc", BREAK("code+3"), .rax = SYS_getpid, .rsp = 1UL << 63);
	CHECK(report->gregs[REG_RSP] == (long)(1UL << 63));
	ACT("ud2 on the kernel's stack", "\x0f\x0b", UD("code+0"), .rsp = kernel[6]);
	CHECK(report->gregs[REG_RSP] == (long)kernel[6]);
	/* leave; ret with a wild frame pointer; enter beyond the stack */
	ACT("leave", "\x48\x89\xc5\xc9\xc3", FAULT("MAPERR", "0xfee00000", "code+3", "4"), .rax = 0xfee00000);
	ACT("enter", "\xc8\x00\x00\x00", FAULT("MAPERR", "0x6001fff8", "code+0", "6"), .rsp = STACK);
}

/* "#GP(0) if the current privilege level is not 0", whatever the operands. */
static void privileged(void)
{
	static const struct { const char *name, *code; size_t length; } acts[] = {
#define I(name, code) { name, code, sizeof(code) - 1 }
		I("hlt", "\xf4"), I("cli", "\xfa"), I("sti", "\xfb"), I("in al, 0x60", "\xe4\x60"),
		I("in eax, dx", "\xed"), I("out 0x80, al", "\xe6\x80"), I("out dx, eax", "\xef"), I("insb", "\x6c"),
		I("outsd", "\x6f"), I("rep insb", "\xf3\x6c"), I("mov rax, cr0", "\x0f\x20\xc0"),
		I("mov rax, cr2", "\x0f\x20\xd0"), I("mov rax, cr3", "\x0f\x20\xd8"), I("mov rax, cr4", "\x0f\x20\xe0"),
		I("mov rax, cr8", "\x44\x0f\x20\xc0"), I("mov cr0, rax", "\x0f\x22\xc0"),
		I("mov cr3, rax", "\x0f\x22\xd8"), I("mov cr4, rax", "\x0f\x22\xe0"), I("mov rax, dr0", "\x0f\x21\xc0"),
		I("mov rax, dr7", "\x0f\x21\xf8"), I("mov dr7, rax", "\x0f\x23\xf8"), I("lgdt", "\x0f\x01\x17"),
		I("lidt", "\x0f\x01\x1f"), I("lldt", "\x0f\x00\xd0"), I("ltr", "\x0f\x00\xd8"),
		I("lmsw", "\x0f\x01\xf0"), I("clts", "\x0f\x06"), I("invlpg", "\x0f\x01\x3f"), I("invd", "\x0f\x08"),
		I("wbinvd", "\x0f\x09"), I("rdmsr", "\x0f\x32"), I("wrmsr", "\x0f\x30"), I("rdpmc", "\x0f\x33"),
		I("swapgs", "\x0f\x01\xf8"), I("sysret", "\x0f\x07"), I("sysretq", "\x48\x0f\x07"),
		I("xsetbv", "\x0f\x01\xd1"), I("nop; hlt", "\x90\xf4"),
	};
	for (size_t i = 0; i < COUNT(acts); i++) {
		struct act act = { acts[i].code, acts[i].length, { 0x80050033, 0xc0000082, 0xcf8, DATA, DATA, 0 }, SA_ONSTACK };
		ENDS(acts[i].name, run_act, &act, acts[i].code[0] == '\x90' ? GP("code+1") : GP("code+0"));
	}
}

/* All vectors in one process, whose handler goes on behind each. */
static volatile unsigned long missed, seen;

static void on_interrupt(int signal, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	unsigned long at = uc->uc_mcontext.gregs[REG_RIP];
	unsigned char n = ((unsigned char *)CODE)[1];
	int breakpoint = n == 3 && signal == SIGTRAP && info->si_code == SI_KERNEL && at == CODE + 2;
	/* The overflow trap can be asked for by anybody. */
	int overflow = n == 4 && signal == SIGSEGV && info->si_code == SI_KERNEL;
	int refused = signal == SIGSEGV && info->si_code == SI_KERNEL && !info->si_addr && at == CODE;
	seen++;
	missed += !(n == 3 ? breakpoint : n == 4 ? overflow : refused);
	/* To the return instruction. */
	uc->uc_mcontext.gregs[REG_RIP] = CODE + 2;
}

static void run_interrupts(void *argument)
{
	(void)argument;
	handle(on_interrupt, SA_ONSTACK);
	/* int n; ret */
	unsigned char *code = (unsigned char *)CODE;
	REQUIRE(mprotect(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	code[0] = 0xcd, code[2] = 0xc3;
	unsigned long made = 0;
	for (int n = 0; n < 256; n++) {
		/* The 32-bit system call. Three others are a software KVM's own. */
		if (n == 0x80 || (software_kvm() && (n == 23 || n == 25 || n == 26)))
			continue;
		code[1] = (unsigned char)n;
		__builtin___clear_cache((char *)code, (char *)code + 3);
		((void (*)(void))code)();
		made++;
	}
	_exit(missed || seen != made);
}

static void segments(void)
{
	static const unsigned short selectors[] = { 0, 8, 0x10, 0x13, 0x18, 0x1b, 0x28, 0x2b, 0x33, 0x38, 0x40, 0x48, 0xfff8, 0xffff };
	for (size_t i = 0; i < COUNT(selectors); i++) {
		unsigned selector = selectors[i];
		int code = selector == 0x33, data = selector == 0x2b;
		/* Far pointer in rax: 32 bits of offset, 16 of selector. mov [rdi], rax; jmp far [rdi] */
		unsigned long pointer = (unsigned long)selector << 32 | (CODE + 0x100);
		ACT(text("far jump to %#x", selector), "\x48\x89\x07\xff\x2f", code ? BREAK("code+101") : GP("code+3"),
		    .rax = pointer, .rdi = DATA);
		ACT(text("far call to %#x", selector), "\x48\x89\x07\xff\x1f", code ? BREAK("code+101") : GP("code+3"),
		    .rax = pointer, .rdi = DATA);
		/* push rax; push rcx; retf */
		ACT(text("far return to %#x", selector), "\x50\x51\x48\xcb", code ? BREAK("code+101") : GP("code+2"),
		    .rax = selector, .rcx = CODE + 0x100);
		/* mov ss, eax. Of the others 0 and user code are right as well. */
		ACT(text("ss = %#x", selector), "\x8e\xd0", data ? BREAK("code+3") : GP("code+0"), .rax = selector);
		if (selector != 0x38)
			ACT(text("ds = %#x", selector), "\x8e\xd8",
			    selector == 0 || selector == 0x28 || data || code ? BREAK("code+3") : GP("code+0"),
			    .rax = selector);
		/* push ss, rsp, flags, cs, rip; iretq. First with this cs, then with this ss. */
#define IRETQ "\x68\x02\x02\x00\x00\x51\x50\x48\xcf"
		/* A software KVM takes some others. */
		if (software_kvm() && (selector == 0x2b || selector == 0x33))
			continue;
		ACT(text("iretq with cs %#x", selector), "\x6a\x2b\x68\x00\x08\x02\x60" IRETQ,
		    code ? BREAK("code+101") : GP("code+e"), .rax = CODE + 0x100, .rcx = selector);
		ACT(text("iretq with ss %#x", selector), "\x51\x68\x00\x08\x02\x60\x6a\x33\x59" IRETQ,
		    data ? BREAK("code+101") : GP("code+10"), .rax = CODE + 0x100, .rcx = selector);
	}
	ACT("direct far call", "\x9a\x00\x00\x00\x00\x33\x00", UD("code+0"), 0);
	ACT("mov cs, eax", "\x8e\xc8", UD("code+0"), .rax = 0x33);
	/* A base that is the kernel's: refused. */
	CHECK_ERRNO(syscall(SYS_arch_prctl, ARCH_SET_FS, 0xffff888000000000), EPERM);
	CHECK_ERRNO(syscall(SYS_arch_prctl, ARCH_SET_GS, 1UL << 63), EPERM);
}

int main(void)
{
	act_begin();
	wild_addresses();
	no_addresses();
	wild_stacks();
	privileged();
	ENDS("int n", run_interrupts, NULL, "exit 0");
	segments();
	return tap_done();
}
