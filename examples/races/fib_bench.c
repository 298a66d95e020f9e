/*
 * Fibonacci: two threads add two numbers to each other in turns.
 *
 * Race: the accesses to `i` and `j` in both threads. One thread after the other gives at most 7; only if they take turns exactly
 * (first, second, first, second: three switches, each at its place) one number becomes 8.
 */
#include "race.h"

#ifndef ROUNDS
#define ROUNDS 2
#define MOST 8
#endif

static int i = 1, j = 1;
MUTEX(lock);

static void *first(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	for (int k = 0; k < ROUNDS; k++)
		i += j;
	repaired(UNLOCK(lock));
	return NULL;
}

static void *second(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	for (int k = 0; k < ROUNDS; k++)
		j += i;
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	pthread_t a = start(first, 0), b = start(second, 0);
#ifdef WATCH
	require(i < MOST && j < MOST);
#endif
	finish(a);
	finish(b);
#ifndef WATCH
	require(i < MOST && j < MOST);
#endif
	return 0;
}
