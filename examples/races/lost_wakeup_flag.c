/*
 * Lost wake-up between a flag and a wait: the flag is looked at before the lock is taken.
 *
 * Race: the load of `ready` in await() and the store to it in announce(). It blocks for ever if await() is preempted after it has
 * seen the flag unset and before it waits, and announce() sets the flag and signals then.
 */
#include "race.h"

static atomic_int ready;
MUTEX(lock);
CONDITION(changed);

static void *await(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	faulty(if) repaired(while) (!ready) {
		faulty(LOCK(lock));
		pthread_cond_wait(&changed, &lock);
		faulty(UNLOCK(lock));
	}
	repaired(UNLOCK(lock));
	return NULL;
}

static void *announce(void *arg)
{
	(void)arg;
	compute();
	LOCK(lock);
	ready = 1;
	pthread_cond_broadcast(&changed);
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(await, 0), b = start(announce, 0);
	finish(a);
	finish(b);
	return 0;
}
