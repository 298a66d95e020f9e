/*
 * Bounded buffer: a consumer that was woken takes an item without looking again whether there is one (`if` in the place of
 * `while`).
 *
 * Race: the check of `count` before pthread_cond_wait(3) in one consumer, and the store to it in the other consumer. It fails if a
 * consumer waits, the producer puts an item and wakes it, and the other consumer takes the item before the woken one has the lock.
 */
#include "race.h"

static int count;
static int closed;
CONDITION(filled);
MUTEX(lock);

static void *consume(void *arg)
{
	(void)arg;
	LOCK(lock);
	faulty(if) repaired(while) (count == 0 && !closed)
		pthread_cond_wait(&filled, &lock);
	if (!closed || count > 0) {
		count--;
		require(count >= 0);
	}
	UNLOCK(lock);
	return NULL;
}

static void *produce(void *arg)
{
	(void)arg;
	LOCK(lock);
	count++;
	pthread_cond_signal(&filled);
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(consume, 0), p = start(produce, 0), b = start(consume, 1);
	finish(p);
	LOCK(lock);
	count++;
	pthread_cond_signal(&filled);
	UNLOCK(lock);
	finish(a);
	finish(b);
	return 0;
}
