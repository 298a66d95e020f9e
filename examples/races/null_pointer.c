/*
 * Check then act on a pointer: a thread looks whether there is an object and uses it; another one takes it away.
 *
 * Race: the second load of `shared` in use() and the store to it in take_away(). It fails (SIGSEGV) if use() is preempted between
 * its check and its use, and take_away() stores NULL then. Plain accesses only.
 */
#include "race.h"

struct object {
	int value;
};

static struct object object = { 1 };
static struct object *volatile shared = &object;
MUTEX(lock);

static void *use(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	if (shared != NULL)
		shared->value = 2;
	repaired(UNLOCK(lock));
	return NULL;
}

static void *take_away(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	shared = NULL;
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	pthread_t a = start(use, 0), b = start(take_away, 0);
	finish(a);
	finish(b);
	return 0;
}
