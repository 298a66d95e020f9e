/*
 * Lost update: two threads add to a counter without a lock.
 *
 * Race: the load of `counter` in one thread and the store to it in the other one. If a thread is preempted between its load and
 * its store, and the other one adds meanwhile, that addition is lost. Plain accesses only, no call near.
 */
#include "race.h"

static int counter;
MUTEX(lock);

static void *add(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	int seen = counter;
	counter = seen + 1;
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	pthread_t a = start(add, 0), b = start(add, 1);
	finish(a);
	finish(b);
	require(counter == 2);
	return 0;
}
