/*
 * Stack: whether it is empty is looked at outside of the lock under which an item is taken.
 *
 * Race (check then act): the load of `top` in pop() before the lock and the store to it in the other thread's pop(). It fails if
 * one thread is preempted between check and lock, and the other one takes the last item.
 */
#include "race.h"

static int items[4] = { 7 };
static int top = 1;
MUTEX(lock);

static void *pop(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	if (top > 0) {
		faulty(LOCK(lock));
		top--;
		require(top >= 0);
		items[top] = 0;
		faulty(UNLOCK(lock));
	}
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	pthread_t a = start(pop, 0), b = start(pop, 1);
	finish(a);
	finish(b);
	return 0;
}
