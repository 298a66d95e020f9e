/*
 * Circular buffer: sender and receiver both change the number of items without a lock.
 *
 * Race: the load of `size` in send() and the store to it in receive(), or the other way round. If one of them is preempted
 * between load and store, the other one's change is lost, and at the end the number does not agree with the indices.
 */
#include "race.h"

enum { ROOM = 4 };

static int buffer[ROOM];
static int in = 1, out, size = 1;
MUTEX(lock);

static void *sender(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	if (size < ROOM) {
		buffer[in] = 2;
		in = (in + 1) % ROOM;
		size = size + 1;
	}
	repaired(UNLOCK(lock));
	return NULL;
}

static void *receiver(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	if (size > 0) {
		buffer[out] = 0;
		out = (out + 1) % ROOM;
		size = size - 1;
	}
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	buffer[0] = 1;
	pthread_t a = start(sender, 0), b = start(receiver, 0);
	finish(a);
	finish(b);
	require((out + size) % ROOM == in);
	return 0;
}
