/* Filters of system calls: seccomp(2). */
#include "tap.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
/* If the call is this one, the answer. */
#define ON(number, value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), RETURN(value)
#define INSTALL(flags, ...) \
	install(flags, (struct sock_filter[]){ __VA_ARGS__ }, \
		sizeof((struct sock_filter[]){ __VA_ARGS__ }) / sizeof(struct sock_filter))

static int call(unsigned op, unsigned flags, const void *args)
{
	return syscall(SYS_seccomp, op, flags, args);
}

static int install(unsigned flags, struct sock_filter *code, unsigned short n)
{
	struct sock_fprog program = { n, code };
	return call(SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* How a child ends that does this: its exit status, or the negative number of its signal. */
static int child(void (*what)(void))
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		what();
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static long status_line(const char *key)
{
	char line[256];
	long value = -1;
	FILE *f = fopen("/proc/self/status", "r");
	REQUIRE(f != NULL);
	while (fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0)
			value = atol(line + strlen(key));
	fclose(f);
	return value;
}

static void questions(void)
{
	unsigned actions[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO,
			       SECCOMP_RET_TRACE,	 SECCOMP_RET_LOG,	  SECCOMP_RET_ALLOW };
	for (unsigned i = 0; i < 7; i++)
		CHECK_OK(call(SECCOMP_GET_ACTION_AVAIL, 0, &actions[i]));
	unsigned none = 0x12340000;
	CHECK_ERRNO(call(SECCOMP_GET_ACTION_AVAIL, 0, &none), EOPNOTSUPP);
	CHECK_ERRNO(call(SECCOMP_GET_ACTION_AVAIL, 1, &none), EINVAL);
	CHECK_ERRNO(call(SECCOMP_GET_ACTION_AVAIL, 0, BAD), EFAULT);
	CHECK_ERRNO(call(99, 0, NULL), EINVAL);
	CHECK_ERRNO(call(SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
	CHECK_ERRNO(prctl(PR_SET_SECCOMP, 2, NULL, 0, 0), EFAULT);
	CHECK_ERRNO(prctl(PR_SET_SECCOMP, 7, NULL, 0, 0), EINVAL);
	CHECK_ERRNO(call(SECCOMP_SET_MODE_STRICT, 1, NULL), EINVAL);
	CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
	CHECK_EQ(status_line("Seccomp:"), 0);
}

static void programs(void)
{
	CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	struct sock_filter one = RETURN(SECCOMP_RET_ALLOW);
	CHECK_ERRNO(install(0, &one, 0), EINVAL);
	CHECK_ERRNO(install(0, BAD, 1), EFAULT);
	CHECK_ERRNO(install(1 << 20, &one, 1), EINVAL);
	/* No end; a load that is not aligned, or too far; unknown codes; jumps out; memory that was not stored. */
	CHECK_ERRNO(INSTALL(0, LOAD(nr)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 3), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 1, 0), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_LD | BPF_MEM, 0), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_ERRNO(INSTALL(0, BPF_STMT(BPF_ST, 16), RETURN(SECCOMP_RET_ALLOW)), EINVAL);
	CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
}

static void arithmetic(void)
{
	/* ((nr * 3 - 5) ^ 0xff) >> 1, over memory and X; it is allowed if the sum fits. */
	unsigned want = ((SYS_getppid * 3u - 5) ^ 0xff) >> 1;
	REQUIRE(INSTALL(0, LOAD(nr), BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 3), BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 5),
			BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LDX | BPF_IMM, 0xff), BPF_STMT(BPF_LD | BPF_MEM, 3),
			BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 1),
			BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_IMM, want),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1), RETURN(SECCOMP_RET_ERRNO | 77),
			RETURN(SECCOMP_RET_ALLOW)) == 0);
	errno = 0;
	long got = syscall(SYS_getppid);
	_exit(got == -1 && errno == 77 && getpid() > 0 ? 42 : 1);
}

static void answers(void)
{
	/* By number, by argument, by two filters: the gravest counts. */
	REQUIRE(INSTALL(0, LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
			RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr), ON(SYS_getppid, SECCOMP_RET_ERRNO | 5000),
			ON(SYS_getuid, SECCOMP_RET_TRACE | 1), ON(SYS_getgid, SECCOMP_RET_LOG), ON(SYS_getsid, SECCOMP_RET_ERRNO),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup, 0, 3), LOAD(args[0]),
			BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 100, 0, 1), RETURN(SECCOMP_RET_ERRNO | EXDEV),
			RETURN(SECCOMP_RET_ALLOW)) == 0);
	REQUIRE(INSTALL(0, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_ERRNO | 7), ON(SYS_getgid, SECCOMP_RET_ERRNO | 9),
			ON(SYS_gettid, SECCOMP_RET_ERRNO | 512), RETURN(SECCOMP_RET_ALLOW)) == 0);
	if (prctl(PR_GET_SECCOMP) != 2 || status_line("Seccomp:") != 2 || status_line("Seccomp_filters:") != 2)
		_exit(1);
	if (syscall(SYS_getppid) != -1 || errno != 7)
		_exit(2);
	if (syscall(SYS_getuid) != -1 || errno != ENOSYS)
		_exit(3);
	if (syscall(SYS_getgid) != -1 || errno != 9)
		_exit(4);
	/* The number with which the kernel keeps interrupted calls (ERESTARTSYS) is one like others here. */
	if (syscall(SYS_gettid) != -1 || errno != 512)
		_exit(14);
	if (syscall(SYS_getsid, 0) != 0)
		_exit(5);
	if (dup(100) != -1 || errno != EXDEV || dup(99) != -1 || errno != EBADF)
		_exit(6);
	/* A child has them, and a program that is executed. */
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_getppid) == -1 && errno == 7 ? 0 : 1);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		_exit(7);
	execl("/proc/self/exe", "filters", "executed", NULL);
	_exit(8);
}

static volatile sig_atomic_t trapped;

static void on_sys(int signal, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	trapped = signal == SIGSYS && info->si_code == 1 && info->si_errno == 33 && info->si_syscall == SYS_getppid &&
		  info->si_arch == AUDIT_ARCH_X86_64 && (greg_t)info->si_call_addr == regs[REG_RIP] &&
		  regs[REG_RAX] == SYS_getppid;
	regs[REG_RAX] = 4711;
}

static void traps(void)
{
	struct sigaction action = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
	REQUIRE(sigaction(SIGSYS, &action, NULL) == 0);
	REQUIRE(INSTALL(0, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_TRAP | 33), RETURN(SECCOMP_RET_ALLOW)) == 0);
	long got = syscall(SYS_getppid);
	_exit(trapped && got == 4711 ? 42 : 1);
}

static void traps_by_default(void)
{
	signal(SIGSYS, SIG_IGN);
	REQUIRE(INSTALL(0, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_TRAP), RETURN(SECCOMP_RET_ALLOW)) == 0);
	syscall(SYS_getppid);
}

static void kills(void)
{
	REQUIRE(INSTALL(0, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_KILL_PROCESS), RETURN(SECCOMP_RET_ALLOW)) == 0);
	syscall(SYS_getppid);
}

static void kills_alone(void)
{
	REQUIRE(INSTALL(0, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_KILL_THREAD), RETURN(SECCOMP_RET_ALLOW)) == 0);
	syscall(SYS_getppid);
}

static void divides_by_zero(void)
{
	REQUIRE(INSTALL(0, LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 2),
			BPF_STMT(BPF_LDX | BPF_IMM, 0), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0),
			RETURN(SECCOMP_RET_ALLOW)) == 0);
	syscall(SYS_getppid);
}

static void *in_thread(void *unused)
{
	(void)unused;
	syscall(SYS_getppid);
	return NULL;
}

static void kills_a_thread(void)
{
	pthread_t thread;
	REQUIRE(INSTALL(0, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_KILL_THREAD), RETURN(SECCOMP_RET_ALLOW)) == 0);
	REQUIRE(pthread_create(&thread, NULL, in_thread, NULL) == 0);
	pthread_join(thread, NULL);
	_exit(42);
}

static pthread_barrier_t barrier;

static void *waits(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	long got = syscall(SYS_getppid);
	return (void *)(long)(got == -1 && errno == 3);
}

static void *filters_itself(void *unused)
{
	(void)unused;
	REQUIRE(INSTALL(0, RETURN(SECCOMP_RET_ALLOW)) == 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void synchronizes(void)
{
	pthread_t thread;
	void *result;
	pthread_barrier_init(&barrier, NULL, 2);
	REQUIRE(pthread_create(&thread, NULL, waits, NULL) == 0);
	pthread_barrier_wait(&barrier);
	if (INSTALL(SECCOMP_FILTER_FLAG_TSYNC, LOAD(nr), ON(SYS_getppid, SECCOMP_RET_ERRNO | 3), RETURN(SECCOMP_RET_ALLOW)) != 0)
		_exit(1);
	pthread_barrier_wait(&barrier);
	REQUIRE(pthread_join(thread, &result) == 0);
	if (result == NULL)
		_exit(2);
	/* A thread with a filter of its own cannot be made the same. */
	REQUIRE(pthread_create(&thread, NULL, filters_itself, NULL) == 0);
	pthread_barrier_wait(&barrier);
	if (INSTALL(SECCOMP_FILTER_FLAG_TSYNC, RETURN(SECCOMP_RET_ALLOW)) <= 0)
		_exit(3);
	if (INSTALL(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, RETURN(SECCOMP_RET_ALLOW)) != -1 || errno != ESRCH)
		_exit(4);
	pthread_barrier_wait(&barrier);
	REQUIRE(pthread_join(thread, NULL) == 0);
	_exit(42);
}

static void strict(void)
{
	REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
	syscall(SYS_exit, 42);
}

static void strict_breach(void)
{
	REQUIRE(call(SECCOMP_SET_MODE_STRICT, 0, NULL) == 0);
	getppid();
}

static void no_strict_after(void)
{
	REQUIRE(INSTALL(0, RETURN(SECCOMP_RET_ALLOW)) == 0);
	_exit(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == -1 && errno == EINVAL ? 42 : 1);
}

static void too_many(void)
{
	static struct sock_filter code[4096];
	for (int i = 0; i < 4096; i++)
		code[i] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
	for (int i = 0; i < 3; i++)
		if (install(0, code, 4096) != 0)
			_exit(1);
	_exit(install(0, code, 4096) == -1 && errno == ENOMEM ? 42 : 2);
}

static void without_rights(void)
{
	struct sock_filter one = RETURN(SECCOMP_RET_ALLOW);
	REQUIRE(setresuid(1000, 1000, 1000) == 0);
	_exit(install(0, &one, 1) == -1 && errno == EACCES ? 42 : 1);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "executed") == 0)
		_exit(syscall(SYS_getppid) == -1 && errno == 7 ? 42 : 9);
	questions();
	if (getuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)
		CHECK_EQ(child(without_rights), 42);
	else
		CHECK(1);
	programs();
	CHECK_EQ(child(arithmetic), 42);
	CHECK_EQ(child(answers), 42);
	CHECK_EQ(child(traps), 42);
	CHECK_EQ(child(traps_by_default), -SIGSYS);
	CHECK_EQ(child(kills), -SIGSYS);
	CHECK_EQ(child(kills_alone), -SIGSYS);
	CHECK_EQ(child(divides_by_zero), -SIGSYS);
	CHECK_EQ(child(kills_a_thread), 42);
	CHECK_EQ(child(synchronizes), 42);
	CHECK_EQ(child(strict), 42);
	CHECK_EQ(child(strict_breach), -SIGKILL);
	CHECK_EQ(child(no_strict_after), 42);
	CHECK_EQ(child(too_many), 42);
	return tap_done();
}
