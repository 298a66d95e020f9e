/*
 * Reorder: threads set two variables one after the other, and a further thread expects both or neither to be set.
 *
 * Race: the two stores of set() and the two loads of check(). It fails if a setting thread is preempted between its stores and
 * the checking thread runs then. Plain accesses only. SETTERS threads set (with more of them the checking one is farther away).
 */
#include "race.h"

#ifndef SETTERS
#define SETTERS 2
#endif

static int a, b;
MUTEX(lock);

static void *set(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	a = 1;
	b = -1;
	repaired(UNLOCK(lock));
	return NULL;
}

static void *check(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	int both = a == 1 && b == -1;
	int neither = a == 0 && b == 0;
	repaired(UNLOCK(lock));
	require(both || neither);
	return NULL;
}

int main(void)
{
	pthread_t setters[SETTERS];
	for (int n = 0; n < SETTERS; n++)
		setters[n] = start(set, n);
	pthread_t checker = start(check, 0);
	for (int n = 0; n < SETTERS; n++)
		finish(setters[n]);
	finish(checker);
	return 0;
}
