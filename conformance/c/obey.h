/* Threads that do something when they are told to. */
#ifndef OBEY_H
#define OBEY_H

#include "tap.h"
#include <pthread.h>
#include <semaphore.h>

struct other {
	pthread_t thread;
	sem_t go, done;
	long (*does)(void);
	long result;
	pid_t tid;
};

static void *obeys(void *argument)
{
	struct other *me = argument;
	me->tid = gettid();
	sem_post(&me->done);
	for (;;) {
		while (sem_wait(&me->go) != 0)
			;
		if (!me->does)
			return NULL;
		me->result = me->does();
		sem_post(&me->done);
	}
}

static void begin(struct other *other)
{
	sem_init(&other->go, 0, 0), sem_init(&other->done, 0, 0);
	REQUIRE(pthread_create(&other->thread, NULL, obeys, other) == 0);
	while (sem_wait(&other->done) != 0)
		;
}

/* What the thread's function returned; with none the thread ends. */
static long tell(struct other *other, long (*does)(void))
{
	other->does = does;
	sem_post(&other->go);
	if (!does)
		return pthread_join(other->thread, NULL);
	while (sem_wait(&other->done) != 0)
		;
	return other->result;
}

#endif
