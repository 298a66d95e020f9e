/*
 * Szymanski's mutual exclusion without the last wait of a thread for those with a lower number.
 *
 * Race: the store to `state` in enter() of thread 1 and the loads of it in thread 0. It fails if both pass the door, one enters and is
 * preempted inside, and thread 1 does not wait for thread 0 (or thread 0 was inside already).
 */
#include "exclusion.h"

enum { OUT, WANTS, WAITS_FOR_OTHERS, AT_THE_DOOR, IN };

static atomic_int state[2];

static void enter(int me)
{
	int other = 1 - me;
	state[me] = WANTS;
	while (state[other] >= AT_THE_DOOR)
		sched_yield();
	state[me] = AT_THE_DOOR;
	if (state[other] == WANTS) {
		state[me] = WAITS_FOR_OTHERS;
		while (state[other] != IN && state[other] != OUT)
			sched_yield();
	}
	state[me] = IN;
	repaired(while (other < me && state[other] > WANTS) sched_yield());
}

static void leave(int me)
{
	int other = 1 - me;
	while (other > me && (state[other] == WAITS_FOR_OTHERS || state[other] == AT_THE_DOOR))
		sched_yield();
	state[me] = OUT;
}
