/*
 * Sigma: each of four threads takes the next place of an array and fills it; the sum must be four.
 *
 * Race: the load of `next` in fill() and the store to it in another thread. It fails if a thread is preempted between the two and
 * another one takes the same place. Plain accesses only.
 */
#include "race.h"

enum { THREADS = 4 };

static int array[THREADS], next;
MUTEX(lock);

static void *fill(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	int mine = next;
	next = mine + 1;
	repaired(UNLOCK(lock));
	array[mine] = 1;
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	for (int n = 0; n < THREADS; n++)
		threads[n] = start(fill, n);
	int sum = 0;
	for (int n = 0; n < THREADS; n++)
		finish(threads[n]);
	for (int n = 0; n < THREADS; n++)
		sum += array[n];
	require(sum == THREADS);
	return 0;
}
