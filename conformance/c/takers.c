/* Which thread takes a signal of its process (signal(7), kill(2)), and what becomes of one that is ignored but blocked. */
#include "obey.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

static atomic_int taker;
static sem_t taken;

static void tells(int signal)
{
	(void)signal;
	atomic_store(&taker, gettid());
	sem_post(&taken);
}

static long mask(int how, int signal)
{
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, signal);
	return pthread_sigmask(how, &set, NULL);
}

static long blocks(void) { return mask(SIG_BLOCK, SIGUSR1); }
static long unblocks(void) { return mask(SIG_UNBLOCK, SIGUSR1); }

static pid_t takes(pid_t named)
{
	REQUIRE(kill(named, SIGUSR1) == 0);
	while (sem_wait(&taken) != 0)
		;
	return atomic_load(&taker);
}

/* Of several threads it is the one that is named, or the next one that would from the last on that was chosen so. */
static void chosen(void)
{
	/* A thread takes the next one as well while it has not come back from the handler of the one before. */
	struct sigaction action = { .sa_handler = tells, .sa_flags = SA_RESTART | SA_NODEFER };
	struct other second, third;
	sem_init(&taken, 0, 0);
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	begin(&second), begin(&third);
	REQUIRE(blocks() == 0);
	CHECK_EQ(takes(getpid()) - second.tid, 0);
	REQUIRE(tell(&second, blocks) == 0);
	CHECK_EQ(takes(getpid()) - third.tid, 0);
	REQUIRE(tell(&second, unblocks) == 0);
	CHECK_EQ(takes(getpid()) - third.tid, 0);
	CHECK_EQ(takes(second.tid) - second.tid, 0);
	CHECK_EQ(takes(getpid()) - third.tid, 0);
	REQUIRE(tell(&third, blocks) == 0);
	CHECK_EQ(takes(getpid()) - second.tid, 0);
	REQUIRE(tell(&third, unblocks) == 0);
	CHECK_EQ(takes(getpid()) - second.tid, 0);
	/* One that has ended is followed by the next one. */
	REQUIRE(tell(&second, NULL) == 0);
	CHECK_EQ(takes(getpid()) - third.tid, 0);
	REQUIRE(unblocks() == 0);
	CHECK_EQ(takes(getpid()) - getpid(), 0);
	REQUIRE(tell(&third, NULL) == 0);
}

static pid_t named;
static const struct timespec soon = { .tv_nsec = 50000000 };

static long tells_process(void)
{
	siginfo_t info = { .si_code = SI_QUEUE };
	nanosleep(&soon, NULL);
	return syscall(SYS_rt_sigqueueinfo, named, SIGCHLD, &info);
}

static long tells_thread(void)
{
	nanosleep(&soon, NULL);
	return syscall(SYS_tkill, named, SIGCHLD);
}

/* Sleeps in a call that is never restarted, for a signal that never comes, while the other thread does this. */
static int sleeps_while(struct other *other, long (*does)(void), long milliseconds)
{
	struct timespec long_enough = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	sigset_t none;
	sigemptyset(&none);
	other->does = does;
	sem_post(&other->go);
	int result = sigtimedwait(&none, NULL, &long_enough), error = errno;
	while (sem_wait(&other->done) != 0)
		;
	REQUIRE(result == -1 && other->result == 0);
	return error;
}

/* A signal that is ignored is not when the thread that is named blocks it. Another one that does not block it takes it, for nothing but that
 * its sleep ends; one for the thread itself stays there. */
static void ignored(void)
{
	struct other other, blocking;
	sigset_t pending;
	REQUIRE(mask(SIG_BLOCK, SIGCHLD) == 0);
	begin(&other), begin(&blocking);
	REQUIRE(mask(SIG_UNBLOCK, SIGCHLD) == 0);
	named = blocking.tid;
	CHECK_EQ(sleeps_while(&other, tells_process, 10000), EINTR);
	CHECK_EQ(sleeps_while(&other, tells_thread, 200), EAGAIN);
	named = getpid();
	CHECK_EQ(sleeps_while(&other, tells_process, 200), EAGAIN);
	CHECK_EQ(sleeps_while(&other, tells_thread, 200), EAGAIN);
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGCHLD));
	tell(&other, NULL), tell(&blocking, NULL);
}

int main(void)
{
	chosen();
	ignored();
	return tap_done();
}
