/*
 * Two locks that are taken in one order before a change of phase, and in the other one after it.
 *
 * Deadlock: the load of `phase` before the locks are taken. It fails if a thread is preempted behind that load, the other one goes
 * through its first phase and takes the first lock of its second phase, and the first thread then goes on with the old order.
 */
#include "race.h"

MUTEX(x);
MUTEX(y);
static atomic_int phase;

static void *work(void *arg)
{
	(void)arg;
	for (int round = 0; round < 2; round++) {
		int backwards = faulty(phase) repaired(0);
		LOCK(*(backwards ? &y : &x));
		LOCK(*(backwards ? &x : &y));
		UNLOCK(x);
		UNLOCK(y);
		phase = 1;
	}
	return NULL;
}

int main(void)
{
	pthread_t a = start(work, 0), b = start(work, 0);
	finish(a);
	finish(b);
	return 0;
}
