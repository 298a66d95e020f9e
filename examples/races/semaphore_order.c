/*
 * Semaphores: each thread posts the other one's semaphore only after its own came, if it found the shared flag unset.
 *
 * Race: the load of `first` in meet() and the store to it in the other thread. Whoever is first must not wait before it has posted;
 * if a thread is preempted between the two accesses, both take themselves for the first and wait for each other for ever.
 */
#include "race.h"
#include <semaphore.h>

static sem_t come[2];
static int taken;
MUTEX(lock);

static void *meet(void *arg)
{
	int me = (int)(long)arg;
	repaired(LOCK(lock));
	int first = !taken;
	taken = 1;
	repaired(UNLOCK(lock));
	if (first) {
		sem_wait(&come[me]);
		sem_post(&come[1 - me]);
	} else {
		sem_post(&come[1 - me]);
		sem_wait(&come[me]);
	}
	return NULL;
}

int main(void)
{
	sem_init(&come[0], 0, 0);
	sem_init(&come[1], 0, 0);
	pthread_t a = start(meet, 0), b = start(meet, 1);
	finish(a);
	finish(b);
	return 0;
}
