/*
 * Signals: signal(7), sigaction(2), sigprocmask(2), sigsuspend(2), sigwaitinfo(2), sigaltstack(2), signalfd(2),
 * alarm(2), setitimer(2), kill(2), tgkill(2), restart_syscall(2).
 */
#include "tap.h"
#include <fcntl.h>
#include <immintrin.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

static volatile int count, last, depth, deepest, order[8], orders;
static siginfo_t last_info;
static void *volatile stack_address;

static void on_signal(int signal)
{
	count++;
	last = signal;
}

static void on_info(int signal, siginfo_t *info, void *context)
{
	(void)context;
	int here;
	stack_address = &here;
	last = signal;
	last_info = *info;
	count++;
}

static void on_nested(int signal)
{
	if (++depth > deepest)
		deepest = depth;
	if (count++ == 0)
		raise(signal);
	depth--;
}

static void on_order(int signal)
{
	order[orders++] = signal;
}

static void set(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	REQUIRE(sigaction(signal, &action, NULL) == 0);
	count = last = 0;
}

static void set_info(int signal, int flags)
{
	struct sigaction action = { .sa_sigaction = on_info, .sa_flags = SA_SIGINFO | flags };
	REQUIRE(sigaction(signal, &action, NULL) == 0);
	count = last = 0;
	memset(&last_info, 0, sizeof last_info);
}

static sigset_t just(int signal)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, signal);
	return mask;
}

static void actions(void)
{
	struct sigaction old, action = { .sa_handler = on_signal };
	set(SIGUSR1, on_signal, SA_RESTART);
	CHECK_EQ(sigaction(SIGUSR1, NULL, &old), 0);
	CHECK(old.sa_handler == on_signal && (old.sa_flags & SA_RESTART));
	CHECK_EQ(raise(SIGUSR1), 0);
	CHECK(count == 1 && last == SIGUSR1);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	CHECK_EQ(count, 2);
	CHECK_ERRNO(sigaction(SIGKILL, &action, NULL), EINVAL);
	CHECK_ERRNO(sigaction(SIGSTOP, &action, NULL), EINVAL);
	CHECK_EQ(sigaction(SIGKILL, NULL, &old), 0);
	CHECK_ERRNO(sigaction(0, &action, NULL), EINVAL);
	CHECK_ERRNO(sigaction(65, &action, NULL), EINVAL);
	CHECK_ERRNO(kill(getpid(), 65), EINVAL);
	CHECK_ERRNO(kill(getpid(), -1), EINVAL);
	CHECK_EQ(kill(getpid(), 0), 0);
	set(SIGUSR1, SIG_IGN, 0);
	CHECK_EQ(raise(SIGUSR1), 0);
	CHECK_EQ(count, 0);
	/* SA_RESETHAND: once only. */
	set(SIGUSR1, on_signal, SA_RESETHAND);
	raise(SIGUSR1);
	REQUIRE(sigaction(SIGUSR1, NULL, &old) == 0);
	CHECK(count == 1 && old.sa_handler == SIG_DFL);
	/* A signal is blocked in its own handler, unless SA_NODEFER says otherwise. */
	set(SIGUSR1, on_nested, 0);
	depth = deepest = 0;
	raise(SIGUSR1);
	CHECK(count == 2 && deepest == 1);
	set(SIGUSR1, on_nested, SA_NODEFER);
	depth = deepest = 0;
	raise(SIGUSR1);
	CHECK(count == 2 && deepest == 2);
	set_info(SIGUSR1, 0);
	kill(getpid(), SIGUSR1);
	CHECK(last_info.si_signo == SIGUSR1 && last_info.si_code == SI_USER && last_info.si_pid == getpid() &&
	      last_info.si_uid == getuid());
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
	CHECK(last_info.si_code == SI_TKILL && last_info.si_pid == getpid());
	CHECK_ERRNO(syscall(SYS_tgkill, getpid(), 0, SIGUSR1), EINVAL);
	CHECK_ERRNO(syscall(SYS_tgkill, getpid() + 100000, getpid(), SIGUSR1), ESRCH);
	CHECK_EQ(sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 77 }), 0);
	CHECK(last_info.si_code == SI_QUEUE && last_info.si_value.sival_int == 77);
	set(SIGUSR1, SIG_DFL, 0);
	/* A pending signal goes where SIG_DFL does nothing with it: SIGCONT has done its work when it was sent. */
	static const int mild[] = { SIGCONT, SIGCHLD, SIGURG, SIGWINCH };
	sigset_t pending, all;
	sigfillset(&all);
	REQUIRE(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	for (int i = 0; i < 4; i++) {
		set(mild[i], on_signal, 0);
		REQUIRE(raise(mild[i]) == 0 && kill(getpid(), mild[i]) == 0 && sigpending(&pending) == 0);
		CHECK_EQ(sigismember(&pending, mild[i]), 1);
		set(mild[i], SIG_DFL, 0);
		CHECK(sigpending(&pending) == 0 && sigismember(&pending, mild[i]) == 0);
	}
	set(SIGUSR1, on_signal, 0);
	REQUIRE(raise(SIGUSR1) == 0);
	set(SIGUSR1, SIG_DFL, 0);
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
	set(SIGUSR1, SIG_IGN, 0), set(SIGUSR1, SIG_DFL, 0);
	sigemptyset(&all);
	REQUIRE(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
}

static void masks(void)
{
	sigset_t usr1 = just(SIGUSR1), old, pending;
	set(SIGUSR1, on_signal, 0);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &usr1, &old), 0);
	raise(SIGUSR1);
	raise(SIGUSR1);
	CHECK_EQ(count, 0);
	CHECK_EQ(sigpending(&pending), 0);
	CHECK(sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGUSR2));
	CHECK_EQ(sigprocmask(SIG_SETMASK, &old, NULL), 0);
	/* Standard signals do not queue. */
	CHECK_EQ(count, 1);
	CHECK_EQ(sigpending(&pending), 0);
	CHECK(!sigismember(&pending, SIGUSR1));
	CHECK_ERRNO(sigprocmask(77, &usr1, NULL), EINVAL);
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigset_t now;
	sigprocmask(SIG_SETMASK, &old, &now);
	CHECK(!sigismember(&now, SIGKILL) && !sigismember(&now, SIGSTOP) && sigismember(&now, SIGTERM));
	/* Real-time signals queue, in order, and the lowest number comes first. */
	sigset_t rt = just(SIGRTMIN + 1);
	sigaddset(&rt, SIGRTMIN + 2);
	set_info(SIGRTMIN + 1, 0);
	sigprocmask(SIG_BLOCK, &rt, NULL);
	for (int i = 1; i <= 3; i++)
		sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = i });
	sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = 9 });
	siginfo_t info;
	struct timespec zero = { 0, 0 };
	CHECK_EQ(sigtimedwait(&rt, &info, &zero), SIGRTMIN + 1);
	CHECK_EQ(info.si_value.sival_int, 9);
	for (int i = 1; i <= 3; i++)
		CHECK(sigwaitinfo(&rt, &info) == SIGRTMIN + 2 && info.si_value.sival_int == i);
	CHECK_ERRNO(sigtimedwait(&rt, &info, &zero), EAGAIN);
	struct timespec ten_ms = { 0, 10000000 };
	CHECK_ERRNO(sigtimedwait(&rt, &info, &ten_ms), EAGAIN);
	CHECK_EQ(count, 0);
	sigprocmask(SIG_UNBLOCK, &rt, NULL);
	/* sigsuspend takes a mask for the time of the wait, and puts the old one back. */
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	raise(SIGUSR1);
	sigset_t none;
	sigemptyset(&none);
	count = 0;
	CHECK_ERRNO(sigsuspend(&none), EINTR);
	CHECK_EQ(count, 1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	CHECK(sigismember(&now, SIGUSR1));
	/* Ignoring a pending signal discards it. */
	raise(SIGUSR1);
	set(SIGUSR1, SIG_IGN, 0);
	set(SIGUSR1, on_signal, 0);
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	CHECK_EQ(count, 0);
	/* sa_mask blocks more during the handler; both then come in turn. */
	struct sigaction action = { .sa_handler = on_order };
	sigaction(SIGUSR2, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigset_t both = just(SIGUSR1);
	sigaddset(&both, SIGUSR2);
	sigprocmask(SIG_BLOCK, &both, NULL);
	raise(SIGUSR2);
	raise(SIGUSR1);
	orders = 0;
	sigprocmask(SIG_UNBLOCK, &both, NULL);
	CHECK_EQ(orders, 2);
	/* Both frames are set up before any handler runs, so the last one delivered runs first. */
	CHECK(order[0] == SIGUSR2 && order[1] == SIGUSR1);
	set(SIGUSR1, SIG_DFL, 0);
	set(SIGUSR2, SIG_DFL, 0);
}

static int fds[2];

/* A child which sends the signal when this process is asleep in its call, then (if a pipe is waited for) a byte. */
static pid_t prod(int signal, int then_write)
{
	pid_t parent = getpid(), pid = fork();
	if (pid)
		return pid;
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/%d/stat", parent);
	for (;;) {
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, sizeof text - 1);
		close(fd);
		REQUIRE(n > 0);
		text[n] = 0;
		if (strrchr(text, ')')[2] == 'S')
			break;
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	}
	kill(parent, signal);
	if (then_write) {
		nanosleep(&(struct timespec){ 0, 30000000 }, NULL);
		REQUIRE(write(fds[1], "x", 1) == 1);
	}
	_exit(0);
}

static void reap(pid_t pid)
{
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
}

/* Which calls a handler interrupts, and which go on after it: "Interruption of system calls" in signal(7). */
static void interruption(void)
{
	char c;
	REQUIRE(pipe(fds) == 0);
	set(SIGUSR1, on_signal, 0);
	pid_t pid = prod(SIGUSR1, 0);
	CHECK_ERRNO(read(fds[0], &c, 1), EINTR);
	CHECK_EQ(count, 1);
	reap(pid);
	set(SIGUSR1, on_signal, SA_RESTART);
	pid = prod(SIGUSR1, 1);
	CHECK_EQ(read(fds[0], &c, 1), 1);
	CHECK_EQ(count, 1);
	reap(pid);
	/* poll, select, epoll_wait, sleeps and sigtimedwait fail in spite of SA_RESTART. */
	struct pollfd p = { fds[0], POLLIN, 0 };
	pid = prod(SIGUSR1, 0);
	CHECK_ERRNO(poll(&p, 1, -1), EINTR);
	reap(pid);
	fd_set set_of_fds;
	FD_ZERO(&set_of_fds);
	FD_SET(fds[0], &set_of_fds);
	pid = prod(SIGUSR1, 0);
	CHECK_ERRNO(select(fds[0] + 1, &set_of_fds, NULL, NULL, NULL), EINTR);
	reap(pid);
	struct timespec remaining = { 0, 0 };
	pid = prod(SIGUSR1, 0);
	CHECK_ERRNO(nanosleep(&(struct timespec){ 1000, 0 }, &remaining), EINTR);
	/* The remainder counts in the timer's slack. */
	CHECK(remaining.tv_sec >= 900 && remaining.tv_sec <= 1000);
	reap(pid);
	pid = prod(SIGUSR1, 0);
	CHECK_ERRNO(pause(), EINTR);
	reap(pid);
	/* wait is restarted; the child whose end it waits for is the one that prods. */
	pid = prod(SIGUSR1, 0);
	count = 0;
	reap(pid);
	CHECK_EQ(count, 1);
	/* A signal that is ignored, or whose default is to be, interrupts nothing; nor do stop and continue read. */
	set(SIGUSR1, SIG_IGN, 0);
	pid = prod(SIGUSR1, 1);
	CHECK_EQ(read(fds[0], &c, 1), 1);
	reap(pid);
	pid = prod(SIGCONT, 1);
	CHECK_EQ(poll(&p, 1, -1), 1);
	REQUIRE(read(fds[0], &c, 1) == 1);
	reap(pid);
	pid = prod(SIGWINCH, 1);
	CHECK_EQ(poll(&p, 1, -1), 1);
	REQUIRE(read(fds[0], &c, 1) == 1);
	reap(pid);
	set(SIGUSR1, SIG_DFL, 0);
	/* ppoll and pselect with a mask. */
	sigset_t usr1 = just(SIGUSR1), none, now;
	sigemptyset(&none);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	set(SIGUSR1, on_signal, 0);
	raise(SIGUSR1);
	CHECK_ERRNO(ppoll(&p, 1, NULL, &none), EINTR);
	CHECK_EQ(count, 1);
	raise(SIGUSR1);
	CHECK_ERRNO(pselect(0, NULL, NULL, NULL, NULL, &none), EINTR);
	CHECK_EQ(count, 2);
	raise(SIGUSR1);
	CHECK_EQ(ppoll(&p, 1, &(struct timespec){ 0, 0 }, &usr1), 0);
	CHECK_EQ(count, 2);
	sigprocmask(SIG_UNBLOCK, &usr1, &now);
	CHECK(sigismember(&now, SIGUSR1) && count == 3);
	set(SIGUSR1, SIG_DFL, 0);
	close(fds[0]);
	close(fds[1]);
}

static void stacks(void)
{
	static char alternate[65536];
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate }, old;
	CHECK_EQ(sigaltstack(NULL, &old), 0);
	CHECK_EQ(old.ss_flags, SS_DISABLE);
	CHECK_EQ(sigaltstack(&stack, NULL), 0);
	set_info(SIGUSR1, SA_ONSTACK);
	raise(SIGUSR1);
	CHECK((char *)stack_address >= alternate && (char *)stack_address < alternate + sizeof alternate);
	set_info(SIGUSR1, 0);
	raise(SIGUSR1);
	CHECK((char *)stack_address < alternate || (char *)stack_address >= alternate + sizeof alternate);
	stack.ss_size = 100;
	CHECK_ERRNO(sigaltstack(&stack, NULL), ENOMEM);
	stack.ss_flags = 77;
	CHECK_ERRNO(sigaltstack(&stack, NULL), EINVAL);
	stack.ss_flags = SS_DISABLE;
	CHECK_EQ(sigaltstack(&stack, NULL), 0);
	set(SIGUSR1, SIG_DFL, 0);
}

/* Registers, vector registers included, are what they were before the handler. */
static void clobber(int signal)
{
	(void)signal;
	count++;
	__asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0\n vpcmpeqd %%ymm7, %%ymm7, %%ymm7\n"
			 "vpcmpeqd %%ymm15, %%ymm15, %%ymm15\n fninit\n fldpi\n" ::
				 : "xmm0", "xmm7", "xmm15");
}

static void change_result(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	ucontext_t *u = context;
	u->uc_mcontext.gregs[REG_RBX] = 1234;
	count++;
}

static void registers(void)
{
	if (__builtin_cpu_supports("avx2")) {
		static int in[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out0[8], out7[8], out15[8];
		static double x87;
		set(SIGUSR1, clobber, 0);
		long pid = getpid(), result;
		__asm__ volatile("vmovdqu %[in], %%ymm0\n vmovdqu %[in], %%ymm7\n vmovdqu %[in], %%ymm15\n fld1\n"
				 "syscall\n"
				 "vmovdqu %%ymm0, %[out0]\n vmovdqu %%ymm7, %[out7]\n vmovdqu %%ymm15, %[out15]\n"
				 "fstpl %[x87]\n"
				 : "=a"(result), [out0] "=m"(out0), [out7] "=m"(out7), [out15] "=m"(out15), [x87] "=m"(x87)
				 : "a"(SYS_kill), "D"(pid), "S"((long)SIGUSR1), [in] "m"(in)
				 : "rcx", "r11", "xmm0", "xmm7", "xmm15", "memory");
		CHECK(result == 0 && count == 1);
		CHECK(!memcmp(in, out0, sizeof in) && !memcmp(in, out7, sizeof in) && !memcmp(in, out15, sizeof in));
		CHECK(x87 == 1.0);
	} else {
		for (int i = 0; i < 3; i++)
			CHECK(1);
	}
	struct sigaction action = { .sa_sigaction = change_result, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, NULL);
	long rbx = 1, result;
	__asm__ volatile("syscall" : "=a"(result), "+b"(rbx) : "0"((long)SYS_kill), "D"((long)getpid()), "S"((long)SIGUSR1)
			 : "rcx", "r11", "memory");
	/* What a handler writes into the context is in the registers afterwards. */
	CHECK_EQ(rbx, 1234);
	CHECK_EQ(result, 0);
	set(SIGUSR1, SIG_DFL, 0);
}

static sigjmp_buf back;
static volatile int fault_trap, fault_code;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	fault_trap = ((ucontext_t *)context)->uc_mcontext.gregs[REG_TRAPNO];
	fault_code = info->si_code;
	siglongjmp(back, signal);
}

static void faults(void)
{
	static const int signals[] = { SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	for (int i = 0; i < 4; i++)
		sigaction(signals[i], &action, NULL);
	volatile int got = sigsetjmp(back, 1);
	if (!got)
		__asm__ volatile("xor %%ecx, %%ecx\n idivl %%ecx" ::: "eax", "ecx", "edx");
	CHECK(got == SIGFPE && fault_code == FPE_INTDIV && fault_trap == 0);
	got = sigsetjmp(back, 1);
	if (!got)
		__asm__ volatile("ud2");
	CHECK(got == SIGILL && fault_code == ILL_ILLOPN && fault_trap == 6);
	got = sigsetjmp(back, 1);
	if (!got)
		__asm__ volatile("int3");
	CHECK(got == SIGTRAP && fault_code == SI_KERNEL && fault_trap == 3);
	got = sigsetjmp(back, 1);
	if (!got)
		__asm__ volatile("hlt");
	CHECK(got == SIGSEGV && fault_code == SI_KERNEL && fault_trap == 13);
	got = sigsetjmp(back, 1);
	if (!got)
		*(volatile int *)BAD = 1;
	CHECK(got == SIGSEGV && fault_code == SEGV_MAPERR && fault_trap == 14);
	for (int i = 0; i < 4; i++)
		set(signals[i], SIG_DFL, 0);
	/* A blocked or ignored fault ends the process all the same. */
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_IGN);
		*(volatile int *)BAD = 1;
		_exit(0);
	}
	int status;
	waitpid(pid, &status, 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	pid = fork();
	if (pid == 0) {
		sigset_t segv = just(SIGSEGV);
		signal(SIGSEGV, on_signal);
		sigprocmask(SIG_BLOCK, &segv, NULL);
		*(volatile int *)BAD = 1;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void descriptors(void)
{
	sigset_t usr1 = just(SIGUSR1);
	struct signalfd_siginfo info[2];
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	int fd = signalfd(-1, &usr1, SFD_NONBLOCK | SFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_ERRNO(read(fd, info, sizeof info), EAGAIN);
	struct pollfd p = { fd, POLLIN, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 5 });
	CHECK_EQ(poll(&p, 1, -1), 1);
	CHECK_ERRNO(read(fd, info, 10), EINVAL);
	CHECK_EQ(read(fd, info, sizeof info), (long)sizeof info[0]);
	CHECK(info[0].ssi_signo == SIGUSR1 && info[0].ssi_code == SI_QUEUE && info[0].ssi_int == 5 &&
	      info[0].ssi_pid == (unsigned)getpid());
	CHECK_ERRNO(read(fd, info, sizeof info), EAGAIN);
	sigset_t usr2 = just(SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	CHECK_EQ(signalfd(fd, &usr2, 0), fd);
	raise(SIGUSR2);
	CHECK_EQ(read(fd, info, sizeof info), (long)sizeof info[0]);
	CHECK_EQ(info[0].ssi_signo, SIGUSR2);
	CHECK_ERRNO(signalfd(-1, &usr1, 77), EINVAL);
	close(fd);
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	sigprocmask(SIG_UNBLOCK, &usr2, NULL);
}

static void timers(void)
{
	set(SIGALRM, on_signal, 0);
	CHECK_EQ(alarm(1000), 0);
	CHECK(alarm(0) > 900);
	struct itimerval t = { .it_value = { 0, 20000 } }, old;
	CHECK_EQ(setitimer(ITIMER_REAL, &t, NULL), 0);
	CHECK_ERRNO(pause(), EINTR);
	CHECK_EQ(count, 1);
	CHECK_EQ(getitimer(ITIMER_REAL, &old), 0);
	CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_usec == 0);
	t = (struct itimerval){ .it_value = { 0, 10000 }, .it_interval = { 0, 10000 } };
	CHECK_EQ(setitimer(ITIMER_REAL, &t, NULL), 0);
	while (count < 4)
		pause();
	t = (struct itimerval){ 0 };
	CHECK_EQ(setitimer(ITIMER_REAL, &t, &old), 0);
	CHECK_EQ(old.it_interval.tv_usec, 10000);
	CHECK_ERRNO(setitimer(99, &t, NULL), EINVAL);
	set_info(SIGUSR1, 0);
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 3 };
	CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	struct itimerspec spec = { .it_value = { 0, 5000000 } };
	CHECK_EQ(timer_settime(timer, 0, &spec, NULL), 0);
	while (!count)
		pause();
	CHECK(last_info.si_code == SI_TIMER && last_info.si_value.sival_int == 3);
	CHECK_EQ(timer_gettime(timer, &spec), 0);
	CHECK_EQ(timer_getoverrun(timer), 0);
	CHECK_EQ(timer_delete(timer), 0);
	set(SIGALRM, SIG_DFL, 0);
	set(SIGUSR1, SIG_DFL, 0);
}

static void children(void)
{
	sigset_t chld = just(SIGCHLD), old;
	set_info(SIGCHLD, SA_RESTART | SA_NOCLDSTOP);
	sigprocmask(SIG_BLOCK, &chld, &old);
	pid_t pid = fork();
	if (pid == 0)
		_exit(33);
	sigset_t wait_mask = old;
	sigdelset(&wait_mask, SIGCHLD);
	CHECK_ERRNO(sigsuspend(&wait_mask), EINTR);
	CHECK(last_info.si_signo == SIGCHLD && last_info.si_code == CLD_EXITED && last_info.si_pid == pid &&
	      last_info.si_status == 33);
	CHECK(waitpid(pid, NULL, WNOHANG) == pid);
	count = 0;
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	kill(pid, SIGSTOP);
	int status;
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	sigset_t pending;
	sigpending(&pending);
	CHECK(!sigismember(&pending, SIGCHLD));
	kill(pid, SIGKILL);
	CHECK_ERRNO(sigsuspend(&wait_mask), EINTR);
	CHECK(last_info.si_code == CLD_KILLED && last_info.si_status == SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
	sigprocmask(SIG_SETMASK, &old, NULL);
	set(SIGCHLD, SIG_DFL, 0);
}

static pthread_t target;
static volatile int ran_in_target;

static void on_thread(int signal)
{
	(void)signal;
	ran_in_target = pthread_equal(pthread_self(), target);
	count++;
}

static void *wait_for_signal(void *unused)
{
	sigset_t usr1 = just(SIGUSR1);
	int signal = 0;
	(void)unused;
	REQUIRE(sigwait(&usr1, &signal) == 0 && signal == SIGUSR1);
	sigset_t none;
	sigemptyset(&none);
	while (!count)
		sigsuspend(&none);
	return NULL;
}

static void threads(void)
{
	sigset_t usr1 = just(SIGUSR1);
	set(SIGUSR1, on_thread, 0);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	REQUIRE(pthread_create(&target, NULL, wait_for_signal, NULL) == 0);
	/* The process's signal goes to the thread that waits for it; then one for that thread alone. */
	kill(getpid(), SIGUSR1);
	CHECK_OK(pthread_kill(target, SIGUSR1));
	/* The process's and the thread's pending signals are two queues: one ends sigwait, the other runs the handler. */
	CHECK_OK(pthread_join(target, NULL));
	CHECK(count == 1 && ran_in_target);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	set(SIGUSR1, SIG_DFL, 0);
}

static volatile int is_blocked;

/* Whether the main thread sleeps in a call. */
static int main_sleeps(void)
{
	char name[64], text[256] = "";
	snprintf(name, sizeof name, "/proc/self/task/%d/stat", getpid());
	FILE *stat = fopen(name, "r");
	if (!stat)
		return 0;
	char *state = fgets(text, sizeof text, stat) ? strrchr(text, ')') : NULL;
	fclose(stat);
	return state && state[2] == 'S';
}

static void *send_term(void *unused)
{
	(void)unused;
	while (!is_blocked || !main_sleeps())
		usleep(1000);
	kill(getpid(), SIGTERM);
	/* By now it has gone back to user mode with the signal sent and, on one processor, not taken yet. */
	usleep(20000);
	return NULL;
}

/* The main thread alone blocks a signal and waits for it: it takes it, though it would end the process elsewhere, where it is not blocked. */
static void waited_for_by_one(void)
{
	sigset_t term = just(SIGTERM);
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t thread;
		siginfo_t info;
		if (pthread_create(&thread, NULL, send_term, NULL) != 0)
			_exit(2);
		sigprocmask(SIG_BLOCK, &term, NULL);
		is_blocked = 1;
		int signal = sigwaitinfo(&term, &info);
		pthread_join(thread, NULL);
		_exit(signal == SIGTERM && info.si_pid == getpid() ? 0 : 1);
	}
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static volatile int handled_by_other;

static void on_second(int signal)
{
	(void)signal;
	handled_by_other = !pthread_equal(pthread_self(), target);
}

static void *take_second(void *unused)
{
	(void)unused;
	sigset_t usr2 = just(SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &usr2, NULL);
	while (!handled_by_other)
		usleep(1000);
	return NULL;
}

/* Of two signals that come while it waits for both, a thread takes one; the other goes to a thread that does not block it. */
static void waited_for_once(void)
{
	sigset_t both = just(SIGUSR1);
	sigaddset(&both, SIGUSR2);
	int ready[2];
	REQUIRE(pipe(ready) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t thread;
		alarm(20);
		set(SIGUSR2, on_second, 0);
		target = pthread_self();
		sigprocmask(SIG_BLOCK, &both, NULL);
		if (pthread_create(&thread, NULL, take_second, NULL) != 0 || write(ready[1], "", 1) != 1)
			_exit(2);
		int signal = sigwaitinfo(&both, NULL);
		pthread_join(thread, NULL);
		_exit(signal == SIGUSR1 && handled_by_other ? 0 : 1);
	}
	char byte;
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	usleep(20000);
	kill(pid, SIGUSR1);
	kill(pid, SIGUSR2);
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	actions();
	masks();
	interruption();
	stacks();
	registers();
	faults();
	descriptors();
	timers();
	children();
	threads();
	waited_for_by_one();
	waited_for_once();
	return tap_done();
}
