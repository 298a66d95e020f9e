/*
 * Code that is not what it seems: jumps into the middle of instructions, data among code, code that patches itself, that is copied and
 * run elsewhere, that steps itself, libraries that are relocated in their text, closed, opened again and replaced. All that it prints is the
 * same on every machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096UL

static void need(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static unsigned sum(const unsigned char *bytes, size_t length)
{
	unsigned sum = 0;

	while (length--)
		sum = sum * 31 + *bytes++;
	return sum;
}

/* The four bytes of the constant are instructions, which a jump leads to; then an instruction that jumps into itself. */
int hidden(int n);
int hidden_by_register(int n);
__asm__(".text\n"
	".globl hidden\n.type hidden, @function\n"
	"hidden:\n"
	"	mov %edi, %eax\n"
	"	jmp 1f + 1\n"
	"1:	.byte 0xb8, 0x83, 0xc0, 0x07, 0x90\n"
	"	.byte 0xeb, 0xff, 0xc0\n"
	"	test %eax, %eax\n"
	"	jz 2f\n"
	"	add $100, %eax\n"
	"2:	ret\n"
	".size hidden, . - hidden\n"
	".globl hidden_by_register\n.type hidden_by_register, @function\n"
	"hidden_by_register:\n"
	"	mov %edi, %eax\n"
	"	lea 1f + 2(%rip), %rcx\n"
	"	jmp *%rcx\n"
	"1:	.byte 0x48, 0xb8, 0x83, 0xc0, 0x09, 0x83, 0xe8, 0x02, 0xeb, 0x01\n"
	"	nop\n"
	"	jz 2f\n"
	"	add $200, %eax\n"
	"2:	ret\n"
	".size hidden_by_register, . - hidden_by_register\n");

/* Data behind a call that does not come back, and behind a jump. Letters from p to z are conditional jumps. */
const unsigned char *text_behind_call(void);
const unsigned char *text_behind_jump(void);
int chosen(int n);
__asm__(".text\n"
	".globl text_behind_call\n.type text_behind_call, @function\n"
	"text_behind_call:\n"
	"	call 1f\n"
	"	.asciz \"pqrstuvwxyz puts its own text among the code, st\\313\\303\\314\\351\"\n"
	"1:	pop %rax\n"
	"	test %rax, %rax\n"
	"	jz 1b\n"
	"	ret\n"
	".size text_behind_call, . - text_behind_call\n"
	".globl text_behind_jump\n.type text_behind_jump, @function\n"
	"text_behind_jump:\n"
	"	lea 1f(%rip), %rax\n"
	"	jmp 2f\n"
	"1:	.asciz \"tuvw\\302\\017\\204rstu\\350\\353zyx\"\n"
	"2:	test %rax, %rax\n"
	"	jz 2b\n"
	"	ret\n"
	".size text_behind_jump, . - text_behind_jump\n"
	".globl chosen\n.type chosen, @function\n"
	"chosen:\n"
	"	lea 1f(%rip), %rcx\n"
	"	and $3, %edi\n"
	"	movslq (%rcx, %rdi, 4), %rdx\n"
	"	add %rcx, %rdx\n"
	"	jmp *%rdx\n"
	"1:	.long 2f - 1b, 3f - 1b, 4f - 1b, 5f - 1b\n"
	"2:	mov $11, %eax\n	ret\n"
	"3:	mov $22, %eax\n	ret\n"
	"4:	mov $33, %eax\n	ret\n"
	"5:	mov $44, %eax\n	ret\n"
	".size chosen, . - chosen\n");

static void odd_code(void)
{
	printf("hidden %d %d %d\n", hidden(-8), hidden(1), hidden_by_register(5));
	for (int i = 0; i < 4; i++)
		printf("chosen %d\n", chosen(i));
	const unsigned char *text = text_behind_call();
	printf("behind a call %u\n", sum(text, strlen((const char *)text)));
	text = text_behind_jump();
	printf("behind a jump %u\n", sum(text, strlen((const char *)text)));
}

/* Aligned to a page each, so that changing one leaves the other what it was. */
__attribute__((noinline, noclone, aligned(4096))) static int constant(int n)
{
	volatile int m = n;

	if (m > 3)
		return m + 0x1234567;
	return m;
}

__attribute__((noinline, noclone, aligned(4096))) static int after(int n)
{
	return n % 7 ? constant(n) : n;
}

/* Writes another number into the code, with the rights that are given. */
static void patch(uint32_t from, uint32_t to, int rights)
{
	unsigned char *code = (unsigned char *)constant;

	need(mprotect(code, PAGE, rights) == 0, "mprotect");
	for (int i = 0; i < 200; i++) {
		if (memcmp(code + i, &from, sizeof from) == 0) {
			memcpy(code + i, &to, sizeof to);
			i += 3;
		}
	}
	need(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0, "mprotect");
}

static void patching(void)
{
	printf("patched %d", constant(2));
	patch(0x1234567, 0x2345678, PROT_READ | PROT_WRITE);
	printf(" %x %x", constant(4), after(5));
	patch(0x2345678, 0x3456789, PROT_READ | PROT_WRITE | PROT_EXEC);
	printf(" %x %x\n", constant(4), after(14));
}

__attribute__((noinline, noclone)) static int to_copy(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++) {
		if (i % 3 == 0)
			sum += i * 5;
		else if (i % 5 == 0)
			sum ^= 0x55;
		else
			sum -= 1;
	}
	return sum;
}

__attribute__((noinline, noclone)) static int behind_copied(int n)
{
	return n + 1;
}

/* Nothing of the code has run when it is copied. */
static void copying(void)
{
	size_t length = (uintptr_t)behind_copied - (uintptr_t)to_copy;
	int (*copy)(int);
	unsigned char bytes[512];
	int ends[2];

	need(length > 0 && length <= sizeof bytes, "an order of functions");
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(at != MAP_FAILED, "mmap");
	memcpy(at, (void *)to_copy, length);
	need(mprotect(at, PAGE, PROT_READ | PROT_EXEC) == 0, "mprotect");
	copy = (int (*)(int))at;
	printf("copied %d %d\n", copy(50), behind_copied(to_copy(50)));
	/* What the kernel reads. */
	need(pipe(ends) == 0, "pipe");
	need(write(ends[1], (void *)to_copy, length) == (ssize_t)length, "write");
	need(read(ends[0], bytes, sizeof bytes) == (ssize_t)length, "read");
	printf("through a pipe: %u\n", sum(bytes, length));
	close(ends[0]);
	close(ends[1]);
}

static volatile int traps, steps;

static void on_trap(int signal, siginfo_t *info, void *frame)
{
	ucontext_t *context = frame;

	(void)signal;
	if (info->si_code == TRAP_TRACE)
		steps++;
	else
		traps++;
	/* The trap flag. */
	if (steps > 200)
		context->uc_mcontext.gregs[REG_EFL] &= ~0x100L;
}

__attribute__((noinline, noclone)) static int stepped(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += i & 1 ? i : -i;
	return sum;
}

static void stepping(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	int sum;

	need(sigaction(SIGTRAP, &action, NULL) == 0, "sigaction");
	for (int i = 0; i < 3; i++)
		__asm__ volatile("int3");
	__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
	sum = stepped(40);
	__asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
	printf("stepped %d, %d traps, %d steps\n", sum, traps, steps > 200);
	signal(SIGTRAP, SIG_DFL);
}

static void call_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	int (*function)(int);

	if (!library) {
		printf("%s\n", dlerror());
		return;
	}
	*(void **)&function = dlsym(library, "function");
	printf("library %d %d\n", function(1), function(-1));
	dlclose(library);
}

static void copy_file(const char *from, const char *to)
{
	char name[64], bytes[4096];
	FILE *in = fopen(from, "r"), *out;
	size_t got;

	snprintf(name, sizeof name, "%s.new", to);
	out = fopen(name, "w");
	need(in && out, "a file");
	while ((got = fread(bytes, 1, sizeof bytes, in)) > 0)
		fwrite(bytes, 1, got, out);
	fclose(in);
	fclose(out);
	need(chmod(name, 0755) == 0 && rename(name, to) == 0, to);
}

static void libraries(void)
{
	for (int i = 0; i < 3; i++)
		call_library("./one.so");
	call_library("./relocated.so");
	call_library("./relocated.so");
	copy_file("two.so", "one.so");
	call_library("./one.so");
	call_library("./two.so");
}

/* The program is another one while it runs; whoever executes it then gets that. */
static void replaced(void)
{
	int status = 0;

	copy_file("other", "code");
	fflush(stdout);
	if (fork() == 0) {
		execl("./code", "code", "second", (char *)NULL);
		_exit(9);
	}
	wait(&status);
	printf("the other ended with %d; this goes on: %d\n", WEXITSTATUS(status), after(9));
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "second") == 0) {
		printf("not replaced\n");
		return 8;
	}
	copying();
	odd_code();
	patching();
	stepping();
	libraries();
	replaced();
	return 0;
}
