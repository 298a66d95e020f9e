/*
 * Lamport's bakery without the flag that says that a thread is choosing its number.
 *
 * Race: the load of the other thread's number in enter() and the store of the own one. It fails if thread 0 is preempted between the
 * two, thread 1 draws the same number, sees that thread 0 has none, enters and is preempted inside; thread 0 goes first by its name.
 */
#include "exclusion.h"

static atomic_int number[2], choosing[2];

static void enter(int me)
{
	int other = 1 - me;
	repaired(choosing[me] = 1);
	int most = number[other];
	number[me] = most + 1;
	repaired(choosing[me] = 0);
	while (repaired(choosing[other] ||)
	       (number[other] && (number[other] < number[me] || (number[other] == number[me] && other < me))))
		sched_yield();
}

static void leave(int me)
{
	(void)choosing;
	number[me] = 0;
}
