/*
 * Deadlock of a lock and a condition variable: who waits for a condition keeps a second lock that the notifying thread needs.
 *
 * Race (order violation): the wait in use() and the lock of `outer` in prepare(). It blocks for ever if use() takes `outer`
 * before prepare() does. On a real machine main has prepared long before the thread that it has just started.
 */
#include "race.h"

static int ready;
MUTEX(outer);
MUTEX(inner);
CONDITION(prepared);

static void prepare(void)
{
	LOCK(outer);
	LOCK(inner);
	ready = 1;
	pthread_cond_signal(&prepared);
	UNLOCK(inner);
	UNLOCK(outer);
}

static void *use(void *arg)
{
	(void)arg;
	compute();
	faulty(LOCK(outer));
	LOCK(inner);
	while (!ready)
		pthread_cond_wait(&prepared, &inner);
	UNLOCK(inner);
	faulty(UNLOCK(outer));
	return NULL;
}

int main(void)
{
	pthread_t b = start(use, 0);
	prepare();
	finish(b);
	return 0;
}
