/*
 * Ring: the index of a new item is published before the item is written.
 *
 * Race: the store to `head` in produce() and the load of it in consume(). It fails if produce() is preempted between the store to
 * `head` and the store to the slot, and consume() reads the slot then. Plain accesses only in the faulty order.
 */
#include "race.h"

static int ring[4];
static volatile unsigned head;

static void *produce(void *arg)
{
	(void)arg;
	faulty(head = 1);
	ring[0] = 5;
	repaired(__atomic_store_n(&head, 1, __ATOMIC_SEQ_CST));
	return NULL;
}

static void *consume(void *arg)
{
	(void)arg;
	if (__atomic_load_n(&head, __ATOMIC_SEQ_CST) > 0)
		require(ring[0] == 5);
	return NULL;
}

int main(void)
{
	pthread_t a = start(produce, 0), b = start(consume, 0);
	finish(a);
	finish(b);
	return 0;
}
