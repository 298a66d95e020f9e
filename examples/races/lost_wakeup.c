/*
 * Lost wake-up: a thread waits on a condition variable without a predicate.
 *
 * Race (order violation): pthread_cond_signal(3) in notify() and pthread_cond_wait(3) in main. It blocks for ever if the signal
 * comes before the wait: nobody remembers it. On a real machine the new thread computes for long enough.
 */
#include "race.h"

static int notified;
MUTEX(lock);
CONDITION(done);

static void *notify(void *arg)
{
	(void)arg;
	compute();
	LOCK(lock);
	notified = 1;
	pthread_cond_signal(&done);
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(notify, 0);
	LOCK(lock);
	repaired(while (!notified))
		pthread_cond_wait(&done, &lock);
	UNLOCK(lock);
	finish(a);
	return 0;
}
