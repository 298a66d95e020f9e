/*
 * Thread pool: the shut-down sets a flag and wakes the workers without holding their lock.
 *
 * Race: the load of `stopping` in work() and the store to it in main. It blocks for ever if a worker is preempted between its look
 * at the flag and its wait, and main sets the flag and wakes then: nobody waits yet, and nobody wakes the worker again.
 */
#include "race.h"

static volatile int stopping;
static int jobs = 3, done;
MUTEX(lock);
CONDITION(changed);

static void *work(void *arg)
{
	(void)arg;
	LOCK(lock);
	for (;;) {
		while (jobs > 0) {
			jobs--;
			done++;
		}
		if (stopping)
			break;
		pthread_cond_wait(&changed, &lock);
	}
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t workers[2] = { start(work, 0), start(work, 1) };
	compute();
	repaired(LOCK(lock));
	stopping = 1;
	pthread_cond_broadcast(&changed);
	repaired(UNLOCK(lock));
	finish(workers[0]);
	finish(workers[1]);
	require(done == 3);
	return 0;
}
