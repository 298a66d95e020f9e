/*
 * A sort by several threads, which share the ranges that are left to sort. It is over when there is no range and nobody works.
 *
 * Race: a worker takes a range and says that it works in two critical sections. It fails if it is preempted in between and main looks then:
 * there is no range, and nobody works.
 */
#include "race.h"

enum { LENGTH = 6, WORKERS = 2 };

static int numbers[LENGTH] = { 4, 1, 5, 0, 3, 2 };
static int from[LENGTH + 1], until[LENGTH + 1], ranges, working, over;
MUTEX(lock);
CONDITION(changed);

static void offer(int begin, int end)
{
	if (end - begin < 2)
		return;
	from[ranges] = begin;
	until[ranges++] = end;
}

/* Puts what is less than the last number of a range to the left of it; where that is then. */
static int divide(int begin, int end)
{
	int middle = begin, last = numbers[end - 1];
	for (int n = begin; n < end; n++) {
		if (numbers[n] > last)
			continue;
		int other = numbers[middle];
		numbers[middle++] = numbers[n];
		numbers[n] = other;
	}
	return middle - 1;
}

static void *work(void *arg)
{
	(void)arg;
	LOCK(lock);
	while (!over) {
		if (!ranges) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		int begin = from[--ranges], end = until[ranges];
		faulty(UNLOCK(lock));
		faulty(LOCK(lock));
		working++;
		UNLOCK(lock);
		int middle = divide(begin, end);
		LOCK(lock);
		offer(begin, middle);
		offer(middle + 1, end);
		working--;
		pthread_cond_broadcast(&changed);
	}
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t workers[WORKERS];
	offer(0, LENGTH);
	for (int n = 0; n < WORKERS; n++)
		workers[n] = start(work, n);
	LOCK(lock);
	while (ranges || working)
		pthread_cond_wait(&changed, &lock);
	for (int n = 1; n < LENGTH; n++)
		require(numbers[n - 1] < numbers[n]);
	over = 1;
	pthread_cond_broadcast(&changed);
	UNLOCK(lock);
	for (int n = 0; n < WORKERS; n++)
		finish(workers[n]);
	return 0;
}
