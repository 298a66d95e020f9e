/* Time: clock_gettime(2), nanosleep(2), clock_nanosleep(2), gettimeofday(2), time(2), times(2), getrusage(2). */
#include "tap.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>

static long long now(clockid_t clock)
{
	struct timespec t;
	REQUIRE(clock_gettime(clock, &t) == 0 && t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void reading(void)
{
	static const clockid_t clocks[] = { CLOCK_REALTIME,	   CLOCK_MONOTONIC,	  CLOCK_PROCESS_CPUTIME_ID,
					    CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
					    CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME };
	struct timespec t;
	for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		CHECK_EQ(clock_gettime(clocks[i], &t), 0);
		CHECK(clock_getres(clocks[i], &t) == 0 && t.tv_sec == 0 && t.tv_nsec > 0);
		long long before = now(clocks[i]);
		int backwards = 0;
		for (int n = 0; n < 1000; n++) {
			long long after = now(clocks[i]);
			backwards += after < before;
			before = after;
		}
		CHECK_EQ(backwards, 0);
	}
	/* A loop that waits for the clock ends. */
	long long start = now(CLOCK_MONOTONIC);
	while (now(CLOCK_MONOTONIC) < start + 2000000)
		;
	CHECK(now(CLOCK_MONOTONIC) >= start + 2000000);
	CHECK_ERRNO(clock_gettime(99, &t), EINVAL);
	CHECK_ERRNO(clock_getres(99, &t), EINVAL);
	CHECK_ERRNO(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, BAD), EFAULT);
	/* The library's way and the system call agree. */
	long long a = now(CLOCK_MONOTONIC);
	CHECK_EQ(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t), 0);
	long long b = t.tv_sec * 1000000000LL + t.tv_nsec, c = now(CLOCK_MONOTONIC);
	CHECK(a <= b && b <= c);
	struct timeval tv;
	long long real = now(CLOCK_REALTIME);
	CHECK_EQ(gettimeofday(&tv, NULL), 0);
	CHECK(tv.tv_sec * 1000000000LL + tv.tv_usec * 1000 >= real - 1000 && tv.tv_usec < 1000000);
	time_t seconds = time(NULL), stored = 0;
	CHECK(seconds >= real / 1000000000 - 1 && seconds <= now(CLOCK_REALTIME) / 1000000000);
	CHECK(time(&stored) == stored);
	CHECK(seconds > 1500000000);
}

static pid_t waiting_child(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	REQUIRE(pid > 0);
	return pid;
}

static pid_t other_thread;

static void *show_id(void *unused)
{
	__atomic_store_n(&other_thread, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&other_thread, __ATOMIC_SEQ_CST))
		sched_yield();
	return unused;
}

/* Clocks below 0: of processes and threads, ~number << 3 | thread << 2 | kind, and of descriptors, ~fd << 3 | 3. */
#define PROCESS_CLOCK(pid, kind) ((clockid_t)(~(unsigned)(pid) << 3 | (kind)))
#define THREAD_CLOCK(tid, kind) ((clockid_t)(~(unsigned)(tid) << 3 | 4 | (kind)))
#define FD_CLOCK(fd) PROCESS_CLOCK(fd, 3)

static void numbered(void)
{
	struct timespec t, tick;
	for (int kind = 0; kind < 3; kind++) {
		CHECK_EQ(clock_gettime(PROCESS_CLOCK(0, kind), &t), 0);
		CHECK_EQ(clock_gettime(PROCESS_CLOCK(getpid(), kind), &t), 0);
		CHECK_EQ(clock_gettime(THREAD_CLOCK(0, kind), &t), 0);
		CHECK_EQ(clock_gettime(THREAD_CLOCK(getpid(), kind), &t), 0);
		CHECK(clock_getres(PROCESS_CLOCK(getpid(), kind), &tick) == 0 && tick.tv_sec == 0);
		CHECK((tick.tv_nsec == 1) == (kind == 2));
	}
	/* What no clock has as its kind; -1 is of this sort. */
	static const clockid_t none[] = { -1,		   -5,		       FD_CLOCK(0),	     FD_CLOCK(1),
					  FD_CLOCK(99),	   THREAD_CLOCK(0, 3), PROCESS_CLOCK(0, 3),  PROCESS_CLOCK(1 << 22, 2),
					  THREAD_CLOCK(1 << 22, 2), 12, 99, 1 << 30, (clockid_t)0x80000003 };
	int refused = 1;
	for (unsigned i = 0; i < sizeof none / sizeof *none; i++) {
		refused &= clock_gettime(none[i], &t) == -1 && errno == EINVAL;
		refused &= syscall(SYS_clock_gettime, none[i], BAD) == -1 && errno == EINVAL;
		refused &= clock_getres(none[i], &t) == -1 && errno == EINVAL;
		/* What has a descriptor's form has no sleep and no timers; a number is looked at after the time. */
		int fd_like = none[i] < 0 && (none[i] & 7) == 3, number = none[i] < 0 && !fd_like;
		struct timespec soon = { 0, 1 };
		refused &= syscall(SYS_clock_nanosleep, none[i], 0, &soon, NULL) == -1 &&
			   errno == (fd_like ? EOPNOTSUPP : EINVAL);
		refused &= syscall(SYS_clock_nanosleep, none[i], 0, BAD, NULL) == -1 &&
			   errno == (fd_like ? EOPNOTSUPP : number ? EFAULT : EINVAL);
		timer_t timer;
		refused &= timer_create(none[i], NULL, &timer) == -1 && errno == (fd_like ? EOPNOTSUPP : EINVAL);
		refused &= clock_settime(none[i], &soon) == -1 && errno == EINVAL;
	}
	CHECK(refused);
	/* A process has a clock until it was waited for; its threads have theirs for themselves only. */
	pid_t pid = waiting_child();
	clockid_t clock;
	CHECK_EQ(clock_getcpuclockid(pid, &clock), 0);
	CHECK_EQ(clock, PROCESS_CLOCK(pid, 2));
	CHECK_EQ(clock_gettime(clock, &t), 0);
	CHECK_ERRNO(clock_gettime(THREAD_CLOCK(pid, 2), &t), EINVAL);
	kill(pid, SIGKILL);
	siginfo_t info;
	REQUIRE(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0);
	CHECK_EQ(clock_gettime(clock, &t), 0);
	REQUIRE(waitpid(pid, NULL, 0) == pid);
	CHECK_ERRNO(clock_gettime(clock, &t), EINVAL);
	CHECK_ERRNO(clock_getres(clock, &t), EINVAL);
	/* The number of a thread that leads no process is no process's. */
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, show_id, NULL) == 0);
	while (!__atomic_load_n(&other_thread, __ATOMIC_SEQ_CST))
		sched_yield();
	CHECK_EQ(clock_gettime(THREAD_CLOCK(other_thread, 2), &t), 0);
	CHECK_ERRNO(clock_gettime(PROCESS_CLOCK(other_thread, 2), &t), EINVAL);
	__atomic_store_n(&other_thread, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	/* Clocks that only tell the time. */
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_RAW, 0, BAD, NULL), EOPNOTSUPP);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_COARSE, 0, BAD, NULL), EOPNOTSUPP);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, BAD, NULL), EOPNOTSUPP);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, BAD, NULL), EFAULT);
	struct timespec soon = { 0, 1 };
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, THREAD_CLOCK(0, 2), 0, &soon, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, THREAD_CLOCK(getpid(), 2), 0, &soon, NULL), EINVAL);
	/* And only one can be set. */
	CHECK_ERRNO(clock_settime(CLOCK_MONOTONIC, &soon), EINVAL);
	CHECK_ERRNO(clock_settime(CLOCK_BOOTTIME, &soon), EINVAL);
	CHECK_ERRNO(clock_settime(CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
	CHECK_ERRNO(clock_settime(PROCESS_CLOCK(0, 2), &soon), EPERM);
	CHECK_ERRNO(syscall(SYS_clock_settime, CLOCK_REALTIME, BAD), EFAULT);
	soon.tv_nsec = 1000000000;
	CHECK_ERRNO(clock_settime(CLOCK_REALTIME, &soon), EINVAL);
	timer_t timer;
	CHECK_ERRNO(timer_create(CLOCK_REALTIME_COARSE, NULL, &timer), EOPNOTSUPP);
}

static void sleeping(void)
{
	struct timespec ms = { 0, 3000000 }, remaining = { 7, 7 };
	long long before = now(CLOCK_MONOTONIC);
	CHECK_EQ(nanosleep(&ms, &remaining), 0);
	CHECK(now(CLOCK_MONOTONIC) >= before + 3000000 && remaining.tv_sec == 7);
	CHECK_ERRNO(nanosleep(&(struct timespec){ 0, -1 }, NULL), EINVAL);
	CHECK_ERRNO(nanosleep(&(struct timespec){ 0, 1000000000 }, NULL), EINVAL);
	CHECK_ERRNO(nanosleep(&(struct timespec){ -1, 0 }, NULL), EINVAL);
	CHECK_EQ(nanosleep(&(struct timespec){ 0, 0 }, NULL), 0);
	CHECK_ERRNO(nanosleep(BAD, NULL), EFAULT);
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	long long target = until.tv_sec * 1000000000LL + until.tv_nsec + 4000000;
	until = (struct timespec){ target / 1000000000, target % 1000000000 };
	CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
	CHECK(now(CLOCK_MONOTONIC) >= target);
	CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
	CHECK_EQ(clock_nanosleep(CLOCK_REALTIME, 0, &ms, NULL), 0);
	CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &ms, NULL), EINVAL);
	CHECK_EQ(clock_nanosleep(99, 0, &ms, NULL), EINVAL);
	before = now(CLOCK_MONOTONIC);
	CHECK_EQ(usleep(2000), 0);
	CHECK(now(CLOCK_MONOTONIC) >= before + 2000000);
	/* Real time and monotonic time run alike. */
	long long r = now(CLOCK_REALTIME), m = now(CLOCK_MONOTONIC);
	usleep(20000);
	long long difference = (now(CLOCK_REALTIME) - r) - (now(CLOCK_MONOTONIC) - m);
	CHECK(difference < 5000000 && difference > -5000000);
}

static void accounting(void)
{
	struct tms t;
	CHECK(times(&t) != (clock_t)-1);
	CHECK_EQ(sysconf(_SC_CLK_TCK), 100);
	struct rusage usage;
	CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
	CHECK(usage.ru_utime.tv_usec < 1000000 && usage.ru_maxrss >= 0);
	CHECK_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
	CHECK_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
	CHECK_ERRNO(getrusage(99, &usage), EINVAL);
	CHECK(clock() != (clock_t)-1);
}

/* Two threads hand over by spinning: what one has read of the clock is not later than what the other reads. */
static volatile int published, released;
static volatile long long before, after;

static void *reader(void *argument)
{
	while (!published)
		__builtin_ia32_pause();
	after = now(CLOCK_MONOTONIC);
	released = 1;
	return argument;
}

static void spinning(void)
{
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, reader, NULL) == 0);
	for (int i = 0; i < 60; i++)
		before = now(CLOCK_MONOTONIC);
	published = 1;
	while (!released)
		__builtin_ia32_pause();
	REQUIRE(pthread_join(thread, NULL) == 0);
	CHECK(after >= before);
}

static volatile sig_atomic_t profiled;

static void on_profile(int signal)
{
	(void)signal;
	profiled++;
}

/* setitimer(2): "ITIMER_PROF counts down against the total CPU time consumed by the process". */
static void profiling(void)
{
	REQUIRE(signal(SIGPROF, on_profile) != SIG_ERR && signal(SIGVTALRM, on_profile) != SIG_ERR);
	static const int timers[] = { ITIMER_PROF, ITIMER_VIRTUAL };
	for (int i = 0; i < 2; i++) {
		struct itimerval set = { .it_value = { 0, 2000 } }, left;
		profiled = 0;
		CHECK_EQ(setitimer(timers[i], &set, &left), 0);
		CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
		CHECK_EQ(getitimer(timers[i], &left), 0);
		CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec > 0);
		/* A child has none of its parent's timers. */
		pid_t pid = fork();
		REQUIRE(pid >= 0);
		if (pid == 0)
			_exit(getitimer(timers[i], &left) == 0 && left.it_value.tv_usec == 0 ? 0 : 1);
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		while (!profiled)
			for (int n = 0; n < 100; n++)
				syscall(SYS_getppid);
		CHECK_EQ(profiled, 1);
		CHECK_EQ(getitimer(timers[i], &left), 0);
		CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
		/* With an interval it goes on until it is set anew; sleeping takes no CPU time. */
		set = (struct itimerval){ .it_value = { 1000, 0 }, .it_interval = { 5, 0 } };
		CHECK_EQ(setitimer(timers[i], &set, NULL), 0);
		nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
		CHECK_EQ(setitimer(timers[i], &(struct itimerval){ 0 }, &left), 0);
		CHECK(left.it_value.tv_sec >= 998 && left.it_interval.tv_sec == 5);
		CHECK_EQ(profiled, 1);
	}
	CHECK_ERRNO(setitimer(3, NULL, NULL), EINVAL);
}

static volatile sig_atomic_t alarms;
static volatile int alarm_value;

static void on_alarm(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	alarms++;
	alarm_value = info->si_code == SI_TIMER ? info->si_value.sival_int : -1;
}

/* Uses CPU time until so many alarms have come. */
static void *use_time(void *wanted)
{
	while (alarms < (int)(long)wanted)
		getppid();
	return NULL;
}

static void *idle(void *until)
{
	while (!*(volatile int *)until)
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	return NULL;
}

/* Timers on CPU clocks, of the process, the thread and another thread. */
static void cpu_timers(void)
{
	struct sigaction action = { .sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO };
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42 };
	struct itimerspec once = { .it_value.tv_nsec = 2000000 }, shown;
	static const clockid_t clocks[] = { CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID };
	timer_t timer;
	for (int i = 0; i < 2; i++) {
		alarms = 0;
		REQUIRE(timer_create(clocks[i], &event, &timer) == 0);
		CHECK(timer_gettime(timer, &shown) == 0 && shown.it_value.tv_nsec == 0);
		long long begin = now(clocks[i]);
		CHECK_EQ(timer_settime(timer, 0, &once, NULL), 0);
		CHECK(timer_gettime(timer, &shown) == 0 && shown.it_value.tv_nsec > 0 &&
		      shown.it_value.tv_nsec <= 2000000);
		/* Sleeping uses none. */
		nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
		CHECK_EQ(alarms, 0);
		use_time((void *)1);
		CHECK(alarm_value == 42 && now(clocks[i]) - begin >= 2000000);
		CHECK(timer_gettime(timer, &shown) == 0 && shown.it_value.tv_nsec == 0);
		CHECK_EQ(timer_delete(timer), 0);
	}

	/* Again and again, until it is disarmed; an absolute time. */
	alarms = 0;
	REQUIRE(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
	struct itimerspec often = { .it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 1000000 };
	CHECK_EQ(timer_settime(timer, 0, &often, NULL), 0);
	use_time((void *)3);
	CHECK(timer_settime(timer, 0, &(struct itimerspec){ 0 }, &shown) == 0 && shown.it_interval.tv_nsec == 1000000);
	long long end = now(CLOCK_PROCESS_CPUTIME_ID) + 2000000;
	struct itimerspec at = { .it_value = { end / 1000000000, end % 1000000000 } };
	alarms = 0;
	CHECK_EQ(timer_settime(timer, TIMER_ABSTIME, &at, NULL), 0);
	use_time((void *)1);
	CHECK(now(CLOCK_PROCESS_CPUTIME_ID) >= end);
	CHECK_EQ(timer_delete(timer), 0);

	/* The clock of another thread stands still while that one sleeps. */
	int stop = 0;
	pthread_t sleeper, busy;
	clockid_t theirs;
	REQUIRE(pthread_create(&sleeper, NULL, idle, &stop) == 0 && pthread_getcpuclockid(sleeper, &theirs) == 0);
	alarms = 0;
	REQUIRE(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
	CHECK_EQ(timer_settime(timer, 0, &once, NULL), 0);
	REQUIRE(pthread_create(&busy, NULL, use_time, (void *)1) == 0);
	pthread_join(busy, NULL);
	CHECK(now(theirs) < now(CLOCK_PROCESS_CPUTIME_ID));
	stop = 1;
	pthread_join(sleeper, NULL);
	CHECK_EQ(timer_delete(timer), 0);
}

static volatile int enough;

/* Uses the processor by calls until it is enough. */
static void *works(void *arg)
{
	(void)arg;
	while (!enough)
		syscall(SYS_getppid);
	return NULL;
}

static void woken(int sig)
{
	(void)sig;
}

static void *interrupts(void *arg)
{
	usleep(50000);
	pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return NULL;
}

/* Sleeping on CPU clocks. */
static void cpu_sleeping(void)
{
	pthread_t worker, other, self = pthread_self();
	clockid_t theirs;
	struct timespec ms = { 0, 1000000 }, past = { 0, 1 }, left = { 7, 7 }, end;
	CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &past, NULL), 0);
	CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &(struct timespec){ 0, 1000000000 }, NULL), EINVAL);
	REQUIRE(pthread_create(&worker, NULL, works, NULL) == 0 && pthread_getcpuclockid(worker, &theirs) == 0);
	long long start = now(CLOCK_PROCESS_CPUTIME_ID);
	CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &ms, NULL), 0);
	CHECK(now(CLOCK_PROCESS_CPUTIME_ID) >= start + 1000000);
	start = now(theirs);
	CHECK_EQ(clock_nanosleep(theirs, 0, &ms, NULL), 0);
	CHECK(now(theirs) >= start + 1000000);
	start = now(theirs) + 2000000;
	end = (struct timespec){ start / 1000000000, start % 1000000000 };
	CHECK_EQ(clock_nanosleep(theirs, TIMER_ABSTIME, &end, NULL), 0);
	CHECK(now(theirs) >= start);
	enough = 1;
	pthread_join(worker, NULL);
	/* Nobody works: only a signal ends it. */
	struct sigaction act = { .sa_handler = woken, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &act, NULL);
	REQUIRE(pthread_create(&other, NULL, interrupts, &self) == 0);
	struct timespec hour = { 3600, 0 };
	CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &hour, &left), EINTR);
	CHECK(left.tv_sec == 3599 || (left.tv_sec == 3600 && left.tv_nsec == 0));
	pthread_join(other, NULL);
	REQUIRE(pthread_create(&other, NULL, interrupts, &self) == 0);
	left.tv_sec = 7;
	CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &hour, &left), EINTR);
	CHECK_EQ(left.tv_sec, 7);
	pthread_join(other, NULL);
}

/* Timers that notify nobody, numbers of timers, and how many there may be. */
static void silent_timers(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	struct itimerspec set = { { 0, 0 }, { 0, 2000000 } }, got;
	struct timespec nap = { 0, 5000000 };
	timer_t timer, next, again;
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	CHECK_EQ(timer_settime(timer, 0, &set, NULL), 0);
	nanosleep(&nap, NULL);
	/* "A single shot SIGEV_NONE timer must return 0, when it is expired" (common_timer_get). */
	CHECK_EQ(timer_gettime(timer, &got), 0);
	CHECK(got.it_value.tv_sec == 0 && got.it_value.tv_nsec == 0);
	set.it_interval.tv_nsec = 3000000;
	timer_settime(timer, 0, &set, NULL);
	nanosleep(&nap, NULL);
	timer_gettime(timer, &got);
	CHECK(got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 3000000 && got.it_interval.tv_nsec == 3000000);
	CHECK_EQ(timer_getoverrun(timer), 0);
	/* The interval of a timer that is switched off is not kept. */
	set.it_value.tv_nsec = 0;
	timer_settime(timer, 0, &set, &got);
	CHECK_EQ(got.it_interval.tv_nsec, 3000000);
	timer_gettime(timer, &got);
	CHECK_EQ(got.it_interval.tv_nsec, 0);
	/* A number is not given again at once. */
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &next) == 0);
	timer_delete(next);
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &again) == 0);
	CHECK(again != next);
	timer_delete(again);
	/* RLIMIT_SIGPENDING counts them. */
	pid_t child = fork();
	if (child == 0) {
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_SIGPENDING, &none);
		_exit(timer_create(CLOCK_MONOTONIC, &event, &timer) == -1 && errno == EAGAIN ? 7 : 8);
	}
	int status;
	waitpid(child, &status, 0);
	CHECK_EQ(WEXITSTATUS(status), 7);
	timer_delete(timer);
}

/* Takes a signal of the set if one is pending; 0 if none is. */
static int taken(const sigset_t *set, siginfo_t *info)
{
	struct timespec none = { 0, 0 };
	int signo = sigtimedwait(set, info, &none);
	return signo == -1 && errno == EAGAIN ? 0 : signo;
}

/* timer_getoverrun(2): "only a single signal is queued to the process for a given timer at any point in time". */
static void overruns(int signo)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = signo, .sigev_value.sival_int = 1 };
	struct itimerspec set = { { 0, 2000000 }, { 0, 2000000 } }, got;
	struct itimerspec once = { { 0, 0 }, { 0, 1000000 } };
	struct timespec nap = { 0, 11000000 };
	siginfo_t info;
	sigset_t mask, before;
	timer_t timer, second;
	sigemptyset(&mask);
	sigaddset(&mask, signo);
	sigprocmask(SIG_BLOCK, &mask, &before);
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	event.sigev_value.sival_int = 2;
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &second) == 0);
	CHECK_EQ(timer_settime(timer, 0, &set, NULL), 0);
	nanosleep(&nap, NULL);
	CHECK_EQ(timer_getoverrun(timer), 0);
	/* It shows when it would expire next, although it waits for its signal to be taken. */
	CHECK(timer_gettime(timer, &got) == 0 && got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 2000000);
	REQUIRE(taken(&mask, &info) == signo);
	CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 1);
	CHECK(info.si_overrun >= 4);
	CHECK_EQ(timer_getoverrun(timer), info.si_overrun);
	/* Then it goes on. */
	CHECK_EQ(sigwaitinfo(&mask, &info), signo);
	CHECK_EQ(timer_getoverrun(timer), info.si_overrun);
	/* What is queued when a timer is set again stays (Linux 6.1) or goes (6.13). */
	timer_settime(timer, 0, &once, NULL);
	nanosleep(&nap, NULL);
	taken(&mask, &info);
	/* Each timer has a signal of its own, also of a number that does not queue. */
	timer_settime(timer, 0, &once, NULL);
	timer_settime(second, 0, &once, NULL);
	nanosleep(&nap, NULL);
	CHECK_EQ(taken(&mask, &info), signo);
	int sum = info.si_value.sival_int;
	CHECK_EQ(taken(&mask, &info), signo);
	CHECK_EQ(sum + info.si_value.sival_int, 3);
	CHECK_EQ(taken(&mask, &info), 0);
	timer_delete(second);
	/* While the signal is ignored, expiries are counted and the timer goes on. */
	struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
	sigaction(signo, &ignore, &old);
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	timer_settime(timer, 0, &set, NULL);
	nanosleep(&nap, NULL);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	sigaction(signo, &old, NULL);
	CHECK_EQ(timer_getoverrun(timer), 0);
	CHECK_EQ(sigwaitinfo(&mask, &info), signo);
	CHECK(info.si_overrun >= 4);
	timer_delete(timer);
	while (taken(&mask, &info) != 0) {
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static long used(int who)
{
	struct rusage usage;
	getrusage(who, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

/* Uses 100 ms of CPU time by calls that do not sleep. */
static void *busy_for_long(void *result)
{
	struct timespec now;
	do {
		fsync(*(int *)result);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while (now.tv_sec == 0 && now.tv_nsec < 100000000);
	*(int *)result = used(RUSAGE_THREAD) >= 50000;
	return NULL;
}

/* getrusage(2): "RUSAGE_THREAD: Return resource usage statistics for the calling thread." */
static void of_a_thread(void)
{
	pthread_t thread;
	int file = memfd_create("file", 0), held = file;
	long own = used(RUSAGE_THREAD), all = used(RUSAGE_SELF);
	CHECK_EQ(pthread_create(&thread, NULL, busy_for_long, &held), 0);
	pthread_join(thread, NULL);
	CHECK(held == 1);
	CHECK(used(RUSAGE_SELF) - all >= 50000);
	CHECK(used(RUSAGE_THREAD) - own < 50000);
	close(file);
}

int main(void)
{
	silent_timers();
	overruns(SIGRTMIN + 1);
	overruns(SIGUSR2);
	reading();
	numbered();
	spinning();
	sleeping();
	accounting();
	profiling();
	cpu_timers();
	cpu_sleeping();
	of_a_thread();
	return tap_done();
}
