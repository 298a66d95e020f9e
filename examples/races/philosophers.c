/*
 * Deadlock of three locks: each of three philosophers takes the left fork and then the right one.
 *
 * Race: the lock operations on `forks`. It blocks for ever if the first two are each preempted after their first fork, and the
 * third then takes its own.
 */
#include "race.h"

enum { SEATS = 3 };

static pthread_mutex_t forks[SEATS] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static int meals[SEATS];

static void *dine(void *arg)
{
	int seat = (int)(long)arg;
	int left = seat, right = (seat + 1) % SEATS;
	repaired(if (left > right) { left = right; right = seat; });
	LOCK(forks[left]);
	LOCK(forks[right]);
	meals[seat]++;
	UNLOCK(forks[right]);
	UNLOCK(forks[left]);
	return NULL;
}

int main(void)
{
	pthread_t threads[SEATS];
	for (int n = 0; n < SEATS; n++)
		threads[n] = start(dine, n);
	for (int n = 0; n < SEATS; n++)
		finish(threads[n]);
	require(meals[0] + meals[1] + meals[2] == SEATS);
	return 0;
}
