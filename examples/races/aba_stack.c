/*
 * ABA: a stack without locks, whose nodes are used again.
 *
 * Race: the compare-and-swap of `head` in take_one() and the three of take_two_put_one(). It fails if take_one() is preempted after
 * it has read the head A and its successor B; the other thread takes A and B and puts A back. The swap of A for B then succeeds,
 * and B, which is in use, is the head.
 */
#include "race.h"

struct node {
	int next; /* number of a node; 0 is the end */
	atomic_int used;
};

static struct node nodes[4];
/* The number of the first node, and in the repaired variant how often it was changed. */
static _Atomic unsigned long head;

static unsigned long tagged(unsigned long old, int number)
{
	(void)old;
	return (unsigned long)number repaired(| ((old >> 8) + 1) << 8);
}

static int pop(void)
{
	unsigned long seen = atomic_load(&head);
	for (;;) {
		int first = (int)(seen & 255);
		if (first == 0)
			return 0;
		int next = nodes[first].next;
		if (atomic_compare_exchange_strong(&head, &seen, tagged(seen, next)))
			break;
	}
	int taken = (int)(seen & 255);
	require(atomic_exchange(&nodes[taken].used, 1) == 0);
	return taken;
}

static void push(int number)
{
	nodes[number].used = 0;
	unsigned long seen = atomic_load(&head);
	do
		nodes[number].next = (int)(seen & 255);
	while (!atomic_compare_exchange_strong(&head, &seen, tagged(seen, number)));
}

static void *take_one(void *arg)
{
	(void)arg;
	pop();
	return NULL;
}

static void *take_two_put_one(void *arg)
{
	(void)arg;
	int a = pop();
	int b = pop();
	(void)b;
	if (a)
		push(a);
	return NULL;
}

int main(void)
{
	for (int n = 3; n >= 1; n--)
		push(n);
	pthread_t a = start(take_one, 0), b = start(take_two_put_one, 0);
	finish(a);
	finish(b);
	/* What is left must be unused. */
	while (pop())
		;
	return 0;
}
