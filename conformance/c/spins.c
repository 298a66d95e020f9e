/* Threads and processes that wait for each other without the kernel: spin locks held over sleeps, tickets, tokens. */
#include "tap.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define THREADS 4
#define ROUNDS 9

enum kind { PTHREAD, EXCHANGE, COMPARE, BOUNDED, TICKET, KINDS };

static pthread_spinlock_t spinlock;
static atomic_int word, ticket, served, flag;
static enum kind kind;
static long total;

static void nap(long ns)
{
	struct timespec time = { .tv_nsec = ns };
	nanosleep(&time, NULL);
}

/* A while of spinning, then the CPU for others. */
static void lock_bounded(void)
{
	for (;;) {
		for (int i = 0; i < 100; i++) {
			int zero = 0;
			if (!atomic_load(&word) && atomic_compare_exchange_strong(&word, &zero, 1))
				return;
			__builtin_ia32_pause();
		}
		sched_yield();
	}
}

static void lock(void)
{
	int mine, zero = 0;
	switch (kind) {
	case PTHREAD:
		pthread_spin_lock(&spinlock);
		break;
	case EXCHANGE:
		while (atomic_exchange(&word, 1))
			__builtin_ia32_pause();
		break;
	case COMPARE:
		while (!atomic_compare_exchange_weak(&word, &zero, 1))
			zero = 0;
		break;
	case BOUNDED:
		lock_bounded();
		break;
	default:
		mine = atomic_fetch_add(&ticket, 1);
		while (atomic_load(&served) != mine)
			__builtin_ia32_pause();
	}
}

static void unlock(void)
{
	if (kind == PTHREAD)
		pthread_spin_unlock(&spinlock);
	else if (kind == TICKET)
		atomic_fetch_add(&served, 1);
	else
		atomic_store(&word, 0);
}

/* Some rounds hold the lock over a sleep, some over a short call, some over nothing. */
static void *work(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		lock();
		total++;
		if (i % 3 == 0)
			nap(100000);
		else if (i % 3 == 1)
			sched_yield();
		unlock();
	}
	return NULL;
}

static void run_all(void *(*body)(void *))
{
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_join(threads[i], NULL) == 0);
}

static void locks(void)
{
	REQUIRE(pthread_spin_init(&spinlock, 0) == 0);
	for (kind = 0; kind < KINDS; kind++) {
		total = 0;
		run_all(work);
		CHECK_EQ(total, THREADS * ROUNDS);
	}
}

static void *wait_for_flag(void *unused)
{
	(void)unused;
	while (!flag)
		;
	return NULL;
}

static void *wait_for_clock_and_flag(void *unused)
{
	(void)unused;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	while (!flag)
		;
	return NULL;
}

/* Each looks, and finds nothing, while the one that will set the flag sleeps. */
static void flags(void)
{
	void *(*bodies[])(void *) = { wait_for_flag, wait_for_clock_and_flag };
	for (int i = 0; i < 2; i++) {
		pthread_t threads[THREADS];
		flag = 0;
		for (int j = 0; j < THREADS; j++)
			REQUIRE(pthread_create(&threads[j], NULL, bodies[i], NULL) == 0);
		nap(20000000);
		flag = 1;
		for (int j = 0; j < THREADS; j++)
			CHECK_OK(pthread_join(threads[j], NULL));
	}
}

static void set_flag(int signal)
{
	(void)signal;
	flag = 1;
}

/* The whole process spins until a timer's signal comes. */
static void ended_by_a_signal(void)
{
	timer_t timer;
	struct itimerspec time = { .it_value.tv_nsec = 3000000 };
	flag = 0;
	CHECK(signal(SIGALRM, set_flag) != SIG_ERR);
	REQUIRE(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	CHECK_OK(timer_settime(timer, 0, &time, NULL));
	run_all(wait_for_flag);
	CHECK_EQ(flag, 1);
	CHECK_OK(timer_delete(timer));
}

/* The round lies in memory, so the registers of one wait are those of the next. */
static volatile int rounds[THREADS];
static atomic_int token;

static void *hand_on(void *argument)
{
	long me = (long)argument;
	while (!flag) {
		if (atomic_load(&token) % THREADS != me)
			continue;
		rounds[me]++;
		atomic_fetch_add(&token, 1);
	}
	return NULL;
}

/* A token goes round in memory until somebody who sleeps meanwhile has seen enough: time must go on. */
static void tokens(void)
{
	pthread_t threads[THREADS];
	flag = 0;
	for (long i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, hand_on, (void *)i) == 0);
	while (token < 40)
		nap(1000);
	flag = 1;
	int sum = 0;
	for (int i = 0; i < THREADS; i++) {
		REQUIRE(pthread_join(threads[i], NULL) == 0);
		CHECK(rounds[i] >= 10);
		sum += rounds[i];
	}
	CHECK_EQ(sum, token);
}

static void processes(void)
{
	volatile int *shared =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		for (shared[2] = 0; shared[2] < 20; shared[2]++) {
			while (shared[0] != 2 * shared[2] + 1)
				;
			shared[0] = 2 * shared[2] + 2;
		}
		_exit(7);
	}
	for (shared[1] = 0; shared[1] < 20; shared[1]++) {
		shared[0] = 2 * shared[1] + 1;
		while (shared[0] != 2 * shared[1] + 2)
			;
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
	CHECK_EQ(shared[0], 40);
}

int main(void)
{
	locks();
	flags();
	ended_by_a_signal();
	tokens();
	processes();
	return tap_done();
}
