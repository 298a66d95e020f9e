/*
 * Wrong lock: all threads lock something before they change the value, but not all of them the same lock.
 *
 * Race: the load of `value` under `lock` in good() and the store to it under `other` in wrong(). It fails if good() is preempted
 * between the load of `value` and the check, and wrong() runs then.
 */
#include "race.h"

static int value;
MUTEX(lock);
MUTEX(other);

static void *good(void *arg)
{
	(void)arg;
	LOCK(lock);
	int before = value;
	value = before + 1;
	require(value == before + 1);
	UNLOCK(lock);
	return NULL;
}

static void *wrong(void *arg)
{
	(void)arg;
	faulty(LOCK(other));
	repaired(LOCK(lock));
	int before = value;
	value = before + 1;
	require(value == before + 1);
	faulty(UNLOCK(other));
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	pthread_t a = start(good, 0), b = start(wrong, 0), c = start(good, 0);
	finish(a);
	finish(b);
	finish(c);
	require(value == 3);
	return 0;
}
