/*
 * Use before initialisation: a thread uses what its creator sets up after it was started.
 *
 * Race (order violation): the store to `config` in main and the load of it in use(). It fails (SIGSEGV) if main is preempted before
 * the store, and the new thread runs then. On a real machine the new thread computes for long enough.
 */
#include "race.h"

static int *config;

static void *use(void *arg)
{
	(void)arg;
	compute();
	*config = 1;
	return NULL;
}

int main(void)
{
	static int value;
	repaired(config = &value);
	pthread_t a = start(use, 0);
	faulty(config = &value);
	finish(a);
	return 0;
}
