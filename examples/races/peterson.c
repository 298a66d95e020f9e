/*
 * Peterson's mutual exclusion with two lines exchanged: a thread gives way before it says that it wants to enter.
 *
 * Race: the stores to `turn` and `wants` in enter() of both threads. It fails if a thread is preempted between the two, the other
 * one enters and is preempted inside: the first one finds the turn to be its own.
 */
#include "exclusion.h"

static atomic_int wants[2], turn;

static void enter(int me)
{
	int other = 1 - me;
	repaired(wants[me] = 1);
	turn = other;
	faulty(wants[me] = 1);
	while (wants[other] && turn == other)
		sched_yield();
}

static void leave(int me)
{
	wants[me] = 0;
}
