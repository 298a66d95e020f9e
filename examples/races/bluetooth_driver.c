/*
 * A driver that is stopped while a request comes in: requests are counted, and the driver is only stopped when there is none.
 *
 * Race: the load of `stopping` in enter() and the increment of `pending` behind it. It fails if the request is preempted between them
 * and stop() runs then: it finds no request.
 */
#include "race.h"

/* One more than there are requests, until the driver stops. */
static atomic_int pending = 1;
static atomic_int stopping, idle, stopped;

static void leave(void)
{
	if (atomic_fetch_sub(&pending, 1) == 1)
		idle = 1;
}

static int enter(void)
{
	repaired(atomic_fetch_add(&pending, 1));
	if (stopping) {
		repaired(leave());
		return 0;
	}
	faulty(atomic_fetch_add(&pending, 1));
	return 1;
}

static void *request(void *arg)
{
	(void)arg;
	if (!enter())
		return NULL;
	require(!stopped);
	leave();
	return NULL;
}

static void *stop(void *arg)
{
	(void)arg;
	stopping = 1;
	leave();
	if (idle)
		stopped = 1;
	return NULL;
}

int main(void)
{
	pthread_t a = start(request, 0), b = start(stop, 0);
	finish(a);
	finish(b);
	return 0;
}
