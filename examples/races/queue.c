/*
 * Queue: items are appended and taken under a lock, but the number that says where is read before it.
 *
 * Race: the load of `tail` in append() before the lock and the store to it in the other thread's append(). It fails if a thread
 * is preempted between them and the other one appends: both write to one place, and one item is lost.
 */
#include "race.h"

static int items[8];
static int tail;
MUTEX(lock);

static void *append(void *arg)
{
	int item = (int)(long)arg;
	repaired(LOCK(lock));
	int place = tail;
	faulty(LOCK(lock));
	items[place] = item;
	tail = place + 1;
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(append, 3), b = start(append, 4);
	finish(a);
	finish(b);
	int sum = 0;
	for (int n = 0; n < tail; n++)
		sum += items[n];
	assert(sum == 7);
	return 0;
}
