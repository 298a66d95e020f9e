/*
 * Reference count dropped twice: the count is lowered, and then looked at again.
 *
 * Race: the load of `references` for the comparison in drop() and the store to it in the other thread's drop(). It fails (free(3)
 * aborts) if a thread is preempted between its decrement and its comparison, and the other one drops its reference: both find 0.
 */
#include "race.h"

struct shared {
	atomic_int references;
	char *text;
};

static struct shared shared;

static void *drop(void *arg)
{
	(void)arg;
	faulty(atomic_fetch_sub(&shared.references, 1));
	if (faulty(shared.references == 0) repaired(atomic_fetch_sub(&shared.references, 1) == 1))
		free(shared.text);
	return NULL;
}

int main(void)
{
	shared.text = malloc(100);
	shared.references = 2;
	pthread_t a = start(drop, 0), b = start(drop, 1);
	finish(a);
	finish(b);
	return 0;
}
