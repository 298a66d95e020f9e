/*
 * Log buffer: a place is reserved under a lock, and the text is copied there after the lock was given back; who prints takes the
 * lock and prints all that is reserved.
 *
 * Race: the copy into `text` in append() and the read of it in print_all(). It fails if append() is preempted between its
 * reservation and its copy, and print_all() runs then: it finds a hole.
 */
#include "race.h"

static char text[64];
static int used;
MUTEX(lock);

static void *append(void *arg)
{
	(void)arg;
	LOCK(lock);
	int at = used;
	used += 4;
	faulty(UNLOCK(lock));
	memcpy(text + at, "line", 4);
	repaired(UNLOCK(lock));
	return NULL;
}

static void *print_all(void *arg)
{
	(void)arg;
	LOCK(lock);
	for (int n = 0; n < used; n++)
		require(text[n] != 0);
	UNLOCK(lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(append, 0), b = start(append, 1), c = start(print_all, 0);
	finish(a);
	finish(b);
	finish(c);
	return 0;
}
