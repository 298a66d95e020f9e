/*
 * Double-checked locking: the pointer to an object is published before the object is filled in.
 *
 * Race: the store to `instance` in get() of one thread and the load of it, without the lock, in get() of the other one. It fails if
 * the first thread is preempted between that store and the next one, and the other one uses the object.
 */
#include "race.h"

struct settings {
	int limit;
};

static struct settings storage;
static struct settings *volatile instance;
MUTEX(lock);

static struct settings *get(void)
{
	if (instance == NULL) {
		LOCK(lock);
		if (instance == NULL) {
			faulty(instance = &storage);
			storage.limit = 42;
			repaired(__atomic_store_n(&instance, &storage, __ATOMIC_SEQ_CST));
		}
		UNLOCK(lock);
	}
	return instance;
}

static void *use(void *arg)
{
	(void)arg;
	require(get()->limit == 42);
	return NULL;
}

int main(void)
{
	pthread_t a = start(use, 0), b = start(use, 1);
	finish(a);
	finish(b);
	return 0;
}
