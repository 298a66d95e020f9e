/*
 * Two groups of threads use a resource in turns: the first of a group takes it, the last one gives it back.
 *
 * Deadlock: the lock under which the members of both groups are counted. It fails if a thread has the resource, and one of the other
 * group waits for it with the lock, which the first one needs to give it back.
 */
#include <semaphore.h>

#include "race.h"

static pthread_mutex_t counting[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static int inside[2];
static sem_t resource;

static pthread_mutex_t *lock_of(long group)
{
	faulty(return &counting[group * 0]);
	repaired(return &counting[group]);
}

static void *use(void *arg)
{
	long group = (long)arg;
	pthread_mutex_lock(lock_of(group));
	if (++inside[group] == 1)
		sem_wait(&resource);
	pthread_mutex_unlock(lock_of(group));
	require(inside[1 - group] == 0 || inside[group] > 0);
	pthread_mutex_lock(lock_of(group));
	if (--inside[group] == 0)
		sem_post(&resource);
	pthread_mutex_unlock(lock_of(group));
	return NULL;
}

int main(void)
{
	sem_init(&resource, 0, 1);
	pthread_t threads[4];
	for (long n = 0; n < 4; n++)
		threads[n] = start(use, n / 2);
	for (int n = 0; n < 4; n++)
		finish(threads[n]);
	return 0;
}
