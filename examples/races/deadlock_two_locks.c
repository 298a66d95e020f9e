/*
 * Deadlock of two locks, taken in opposite orders.
 *
 * Race: the lock operations on `left` and `right`. It blocks for ever if each thread is preempted, or waits, after it has taken
 * its first lock and before it has taken its second one.
 */
#include "race.h"

MUTEX(left);
MUTEX(right);

static void *forwards(void *arg)
{
	(void)arg;
	LOCK(left);
	LOCK(right);
	UNLOCK(right);
	UNLOCK(left);
	return NULL;
}

static void *backwards(void *arg)
{
	(void)arg;
	repaired(LOCK(left));
	LOCK(right);
	faulty(LOCK(left));
	UNLOCK(left);
	UNLOCK(right);
	return NULL;
}

int main(void)
{
	pthread_t a = start(forwards, 0), b = start(backwards, 0);
	finish(a);
	finish(b);
	return 0;
}
