/* Locks whose futex word names their owner (FUTEX_LOCK_PI): as pthread mutexes with priority inheritance, and by themselves. */
#include "tap.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *end)
{
	return syscall(SYS_futex, word, op, value, end, NULL, 0);
}

static pthread_mutex_t *mutex(pthread_mutex_t *m, int kind, int robust, int shared)
{
	pthread_mutexattr_t attr;
	REQUIRE(pthread_mutexattr_init(&attr) == 0);
	REQUIRE(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT) == 0);
	REQUIRE(pthread_mutexattr_settype(&attr, kind) == 0);
	if (robust)
		REQUIRE(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
	if (shared)
		REQUIRE(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
	REQUIRE(pthread_mutex_init(m, &attr) == 0);
	return m;
}

static pthread_mutex_t lock;
static int counter;

static void *count(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&lock);
		int seen = counter;
		if (i % 16 == 0)
			sched_yield();
		counter = seen + 1;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void contended(void)
{
	pthread_t threads[4];
	mutex(&lock, PTHREAD_MUTEX_NORMAL, 0, 0);
	for (int i = 0; i < 4; i++)
		REQUIRE(pthread_create(&threads[i], NULL, count, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(counter, 800);
	CHECK_OK(pthread_mutex_destroy(&lock));
}

static void *hold(void *m)
{
	pthread_mutex_lock(m);
	nap();
	nap();
	pthread_mutex_unlock(m);
	return NULL;
}

static void *die_with(void *m)
{
	pthread_mutex_lock(m);
	nap();
	return NULL;
}

static struct timespec in(long ms)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += ms * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	return end;
}

static void mutexes(void)
{
	pthread_mutex_t m;
	pthread_t thread;
	mutex(&m, PTHREAD_MUTEX_ERRORCHECK, 0, 0);
	CHECK_OK(pthread_mutex_lock(&m));
	CHECK_EQ(pthread_mutex_lock(&m), EDEADLK);
	CHECK_OK(pthread_mutex_unlock(&m));
	CHECK_EQ(pthread_mutex_unlock(&m), EPERM);
	REQUIRE(pthread_create(&thread, NULL, hold, &m) == 0);
	while (pthread_mutex_trylock(&m) == 0) {
		pthread_mutex_unlock(&m);
		sched_yield();
	}
	struct timespec end = in(1);
	CHECK_EQ(pthread_mutex_trylock(&m), EBUSY);
	CHECK_EQ(pthread_mutex_timedlock(&m, &end), ETIMEDOUT);
	CHECK_OK(pthread_mutex_lock(&m));
	CHECK_OK(pthread_mutex_unlock(&m));
	pthread_join(thread, NULL);

	mutex(&m, PTHREAD_MUTEX_NORMAL, 1, 0);
	REQUIRE(pthread_create(&thread, NULL, die_with, &m) == 0);
	while (pthread_mutex_trylock(&m) == 0) {
		pthread_mutex_unlock(&m);
		sched_yield();
	}
	CHECK_EQ(pthread_mutex_lock(&m), EOWNERDEAD);
	pthread_join(thread, NULL);
	CHECK_OK(pthread_mutex_consistent(&m));
	CHECK_OK(pthread_mutex_unlock(&m));
	CHECK_OK(pthread_mutex_lock(&m));
	CHECK_OK(pthread_mutex_unlock(&m));
}

static void between_processes(void)
{
	pthread_mutex_t *m =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int *held = (int *)(m + 1), status;
	mutex(m, PTHREAD_MUTEX_NORMAL, 1, 1);
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(pthread_mutex_lock(m) == 0);
		__atomic_store_n(held, 1, __ATOMIC_SEQ_CST);
		nap();
		kill(getpid(), SIGKILL);
	}
	while (!__atomic_load_n(held, __ATOMIC_SEQ_CST))
		nap();
	CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
	CHECK_OK(pthread_mutex_consistent(m));
	REQUIRE(waitpid(pid, &status, 0) == pid);
	pid = fork();
	if (pid == 0)
		_exit(pthread_mutex_lock(m) == 0 && pthread_mutex_unlock(m) == 0 ? 5 : 1);
	nap();
	CHECK_OK(pthread_mutex_unlock(m));
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 5);
}

static uint32_t word;
static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void *wait_for_word(void *unused)
{
	(void)unused;
	long got = futex(&word, FUTEX_LOCK_PI_PRIVATE, 0, NULL);
	int mine = got == 0 && (word & FUTEX_TID_MASK) == (uint32_t)syscall(SYS_gettid);
	futex(&word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL);
	return (void *)(long)mine;
}

static void words(void)
{
	uint32_t me = syscall(SYS_gettid);
	pthread_t thread;
	void *mine;
	CHECK_ERRNO(futex(&word, FUTEX_UNLOCK_PI, 0, NULL), EPERM);
	CHECK_OK(futex(&word, FUTEX_LOCK_PI, 0, NULL));
	CHECK(word == me);
	CHECK_ERRNO(futex(&word, FUTEX_LOCK_PI, 0, NULL), EDEADLK);
	CHECK_ERRNO(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL), EDEADLK);
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL));
	CHECK(word == 0);
	CHECK_OK(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL));
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL));
	CHECK_ERRNO(futex(BAD, FUTEX_LOCK_PI, 0, NULL), EFAULT);
	CHECK_ERRNO(futex((uint32_t *)((char *)&word + 1), FUTEX_LOCK_PI, 0, NULL), EINVAL);
	word = 0x3ffffff0;
	CHECK_ERRNO(futex(&word, FUTEX_LOCK_PI, 0, NULL), ESRCH);
	/* An owner that died, as a robust list leaves it. */
	word = FUTEX_OWNER_DIED;
	CHECK_OK(futex(&word, FUTEX_LOCK_PI, 0, NULL));
	CHECK(word == (FUTEX_OWNER_DIED | me));
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL));

	/* The lock goes from hand to hand; a handler in between ends nothing. */
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGUSR1, &action, NULL);
	CHECK_OK(futex(&word, FUTEX_LOCK_PI_PRIVATE, 0, NULL));
	REQUIRE(pthread_create(&thread, NULL, wait_for_word, NULL) == 0);
	while (!(__atomic_load_n(&word, __ATOMIC_SEQ_CST) & FUTEX_WAITERS))
		nap();
	pthread_kill(thread, SIGUSR1);
	while (!handled)
		nap();
	nap();
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL));
	CHECK((__atomic_load_n(&word, __ATOMIC_SEQ_CST) & FUTEX_TID_MASK) != me);
	pthread_join(thread, &mine);
	CHECK(mine != NULL);
	CHECK_EQ(word, 0);
}

int main(void)
{
	contended();
	mutexes();
	between_processes();
	words();
	return tap_done();
}
