/*
 * A barrier of one's own, whose last thread lets the others pass before it has filled in what they wait for.
 *
 * Race: the stores to `open` and `result` in the last thread and the loads of them in the other ones. It fails if the last thread is
 * preempted between its two stores and another one passes.
 */
#include "race.h"

enum { THREADS = 3 };

static int arrived;
static atomic_int open;
static volatile int result;
MUTEX(lock);

static void *arrive(void *arg)
{
	(void)arg;
	LOCK(lock);
	int last = ++arrived == THREADS;
	UNLOCK(lock);
	if (last) {
		faulty(open = 1);
		result = 9;
		repaired(open = 1);
	}
	while (!open)
		sched_yield();
	require(result == 9);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	for (int n = 0; n < THREADS; n++)
		threads[n] = start(arrive, n);
	for (int n = 0; n < THREADS; n++)
		finish(threads[n]);
	return 0;
}
