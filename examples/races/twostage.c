/*
 * Two stages: a value is stored under one lock, and a second one that follows from it under another lock.
 *
 * Race (atomicity violation without a data race): store() between its two critical sections, and load(), which reads both values
 * in two critical sections as well. It fails if the storing thread is preempted after the first stage and load() runs then.
 */
#include "race.h"

#ifndef STORING
#define STORING 1
#endif

static int first, second;
MUTEX(first_lock);
MUTEX(second_lock);
MUTEX(both);

static void *store(void *arg)
{
	(void)arg;
	repaired(LOCK(both));
	LOCK(first_lock);
	first = 1;
	UNLOCK(first_lock);
	LOCK(second_lock);
	second = first + 1;
	UNLOCK(second_lock);
	repaired(UNLOCK(both));
	return NULL;
}

static void *load(void *arg)
{
	(void)arg;
	repaired(LOCK(both));
	LOCK(first_lock);
	int one = first;
	UNLOCK(first_lock);
	LOCK(second_lock);
	int two = second;
	UNLOCK(second_lock);
	repaired(UNLOCK(both));
	require(one == 0 || two == one + 1);
	return NULL;
}

int main(void)
{
	pthread_t storing[STORING];
	for (int i = 0; i < STORING; i++)
		storing[i] = start(store, i);
	pthread_t loading = start(load, 0);
	for (int i = 0; i < STORING; i++)
		finish(storing[i]);
	finish(loading);
	return 0;
}
