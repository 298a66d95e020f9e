/*
 * Lazy: one thread checks a sum that two others build up under a lock, and relies on being first.
 *
 * Race (order violation): the check in watch() and the additions in add(). Nothing makes the check come first; it fails if both
 * other threads add before it. On a real machine main is there long before the threads that it has just started.
 */
#include "race.h"

static int data;
static int seen UNUSED;
CONDITION(looked);
MUTEX(lock);

static void watch(void)
{
	LOCK(lock);
	require(data < 3);
	repaired(seen = 1; pthread_cond_broadcast(&looked));
	UNLOCK(lock);
}

static void *add(void *arg)
{
	compute();
	LOCK(lock);
	repaired(while (!seen) pthread_cond_wait(&looked, &lock));
	data += (int)(long)arg;
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t b = start(add, 1), c = start(add, 2);
	watch();
	finish(b);
	finish(c);
	return 0;
}
