/*
 * A slot that one thread fills twice and two others empty, with one condition variable for both.
 *
 * Lost wake-up: a signal reaches one thread of all that wait. It fails if both consumers wait before the producer fills the slot for
 * the first time, the producer then waits as well, and the consumer that empties the slot wakes the other consumer.
 */
#include "race.h"

static int full;
MUTEX(lock);
CONDITION(changed);

static void tell(void)
{
	faulty(pthread_cond_signal(&changed));
	repaired(pthread_cond_broadcast(&changed));
}

static void *produce(void *arg)
{
	(void)arg;
	for (int n = 0; n < 2; n++) {
		LOCK(lock);
		while (full)
			pthread_cond_wait(&changed, &lock);
		full = 1;
		tell();
		UNLOCK(lock);
	}
	return NULL;
}

static void *consume(void *arg)
{
	(void)arg;
	LOCK(lock);
	while (!full)
		pthread_cond_wait(&changed, &lock);
	full = 0;
	tell();
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(produce, 0), b = start(consume, 0), c = start(consume, 0);
	finish(a);
	finish(b);
	finish(c);
	return 0;
}
