/*
 * A lock for many readers or one writer that is made of two counts. Readers enter under a mutex, but leave without it.
 *
 * Race: the load and the store of `readers` in leave() and those in enter() and leave() of the other reader. It fails if a reader is
 * preempted between that load and that store while the other one enters or leaves: readers are counted wrongly then, so that
 * a writer comes while one reads, or none ever does.
 */
#include "race.h"

static int readers, writers, value;
MUTEX(lock);

static int enter(int *count)
{
	LOCK(lock);
	int may = writers == 0 && (count == &readers || readers == 0);
	if (may)
		*count += 1;
	UNLOCK(lock);
	return may;
}

static void leave(int *count)
{
	repaired(LOCK(lock));
	int left = *count - 1;
	*count = left;
	repaired(UNLOCK(lock));
}

static void *reader(void *arg)
{
	(void)arg;
	if (!enter(&readers))
		return NULL;
	int seen = value;
	require(seen == value);
	leave(&readers);
	return NULL;
}

static void *writer(void *arg)
{
	(void)arg;
	if (!enter(&writers))
		return NULL;
	value = 3;
	leave(&writers);
	return NULL;
}

int main(void)
{
	pthread_t a = start(reader, 0), b = start(reader, 0), c = start(writer, 0);
	finish(a);
	finish(b);
	finish(c);
	require(readers == 0 && writers == 0);
	return 0;
}
