/* Returns from signal handlers with garbage in their frames: frames FIRST LAST. Each number is a seed of what is changed;
 * a line tells how the child ended and with which registers. Linux's answers are compared with ours. */
#include "act.h"

static unsigned long state;

/* xorshift64 */
static unsigned long draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static unsigned long word(void)
{
	static const unsigned long words[] = {
		0, 1, 8, -1UL, 1UL << 63, 0x7ffffffff000, 0x7fffffffefff, 0x800000000000, 0xffff800000000000,
		0xffffffff81000000, CODE, CODE + 1, CODE + 100, DATA, DATA + 1, DATA + 64, DATA + 4096, DATA + 8192, DATA + 8191,
		STACK, STACK + 8000, STACK + 8192, 0x1000, 0x33, 0x2b, 0x10, 0x202, 0x246, 0x302, 0x40202,
	};
	if (draw() % 4)
		return words[draw() % (sizeof words / sizeof *words)];
	unsigned long any = draw() >> (draw() % 64);
	/* The program and its heap are there, or not. */
	return any - 0x400000 < 0x50000000 ? 0 : any;
}

static void put32(unsigned char *at, unsigned value)
{
	memcpy(at, &value, sizeof value);
}

static void put64(unsigned char *at, unsigned long value)
{
	memcpy(at, &value, sizeof value);
}

static void change(ucontext_t *uc, unsigned char *fp)
{
	greg_t *regs = uc->uc_mcontext.gregs;
	unsigned long value;
	unsigned at;
	switch (draw() % 12) {
	case 0: regs[REG_RIP] = (greg_t)word(); break;
	case 1: regs[REG_RSP] = (greg_t)word(); break;
	case 2: regs[REG_EFL] = (greg_t)(draw() % 2 ? draw() : word()); break;
	case 3:
		/* 32-bit code is left out. */
		value = draw() % 2 ? draw() & 0xff : 0x33;
		regs[REG_CSGSFS] = (regs[REG_CSGSFS] & ~0xffffL) | (greg_t)((value | 3) == 0x23 ? 0 : value);
		break;
	case 4:
		regs[REG_CSGSFS] = (regs[REG_CSGSFS] & 0xffffffffffff) | (greg_t)((draw() & 0xff) << 48);
		/* UC_STRICT_RESTORE_SS */
		uc->uc_flags &= draw() % 2 ? ~4UL : ~0UL;
		break;
	case 5:
		/* x87 and SSE registers, but not MXCSR, and not its mask, which is the processor's. */
		at = (unsigned)(draw() % 104 * 4);
		value = draw();
		if (at != 24 && at != 28)
			put32(fp + at, (unsigned)value);
		break;
	case 6: put32(fp + 24, (unsigned)(draw() % 2 ? 0x1f80 | (draw() & 0xffff) : draw())); break;
	/* Components of the XSAVE area, the rest of its header, the components that the frame claims. */
	case 7: put64(fp + 512, draw() & 7); break;
	case 8:
		at = (unsigned)(520 + draw() % 16);
		fp[at] = (unsigned char)(fp[at] ^ 1 << draw() % 8);
		/* The compact format, which some processors have. */
		fp[527] &= 0x7f;
		break;
	case 9: put64(fp + 472, draw() & 7); break;
	case 10: uc->uc_mcontext.fpregs = (void *)word(); break;
	/* The magic number. */
	case 11: put32(fp + 464, (unsigned)(draw() % 3 ? 0 : draw())); break;
	}
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	ucontext_t *uc = context;
	greg_t *regs = uc->uc_mcontext.gregs;
	unsigned char *fp = (unsigned char *)uc->uc_mcontext.fpregs;
	for (int i = 0; i <= REG_RCX; i++)
		regs[i] = (greg_t)word();
	regs[REG_RIP] = CODE, regs[REG_RSP] = STACK + 8192, regs[REG_RDI] = DATA;
	for (unsigned long n = 1 + draw() % 3; n > 0; n--)
		change(uc, fp);
	if (draw() % 3 == 0)
		put64((unsigned char *)&uc->uc_sigmask, draw());
}

/* stmxcsr [rdi + 256]; fnstcw [rdi + 260]; vmovups [rdi + 288], ymm0; fwait; divss xmm0, xmm1; push rax; pushfq; pop rdx;
 * mov rax, [rdi + 288]; mov rcx, [rdi + 304]; mov rsi, [rdi + 256]; int3 */
static const char code[] =
	"\x0f\xae\x9f\x00\x01\x00\x00\xd9\xbf\x04\x01\x00\x00\xc5\xfc\x11\x87\x20\x01\x00\x00\x9b\xf3\x0f\x5e\xc1"
	"\x50\x9c\x5a\x48\x8b\x87\x20\x01\x00\x00\x48\x8b\x8f\x30\x01\x00\x00\x48\x8b\xb7\x00\x01\x00\x00\xcc";

static void run(void *argument)
{
	(void)argument;
	handle(on_act, SA_ONSTACK);
	put(code, sizeof code - 1);
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	unsigned mxcsr = 0x3f80;
	__asm__ volatile("ldmxcsr %0\n\tmovq %1, %%xmm0\n\tvinsertf128 $1, %%xmm0, %%ymm0, %%ymm0"
			 :
			 : "m"(mxcsr), "r"(0x1122334455667788)
			 : "xmm0");
	syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	act_begin();
	for (long seed = atol(argv[1]); seed < atol(argv[2]); seed++) {
		state = 0x9e3779b97f4a7c15 * ((unsigned long)seed + 1);
		draw();
		const char *end = outcome(run, NULL);
		char line[700];
		int n = snprintf(line, sizeof line, "%ld: %s", seed, end);
		for (int i = 0; report->signal && i <= REG_EFL; i++)
			/* The resume flag says whether the processor tried before. */
			n += snprintf(line + n, sizeof line - (size_t)n, " %llx",
				      report->gregs[i] & (i == REG_EFL ? ~0x10000LL : ~0LL));
		tap_print("%s%s\n", line, unharmed() ? "" : " and the sibling is harmed");
	}
	return 0;
}
