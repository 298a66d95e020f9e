/*
 * For the programs with a mutual exclusion of their own: enter(0) or enter(1), a critical section that notices a second thread in it, and
 * leave(). Waiting threads give way (sched_yield(2)).
 */
#include "race.h"

static void enter(int me);
static void leave(int me);

static volatile int inside;
static volatile int entered;

static void *worker(void *arg)
{
	int me = (int)(long)arg;
	enter(me);
	inside = me + 1;
	entered = entered + 1;
	require(inside == me + 1);
	leave(me);
	return NULL;
}

int main(void)
{
	pthread_t a = start(worker, 0), b = start(worker, 1);
	finish(a);
	finish(b);
	require(entered == 2);
	return 0;
}
