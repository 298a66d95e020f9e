/*
 * Dekker's mutual exclusion without its last look: a thread that had to give way enters when its turn comes, and does not look
 * again whether the other one wants to.
 *
 * Race: the load of `turn` in enter() and the store to `wants` of the other thread. It fails if both want to enter, the one whose
 * turn it is leaves, wants to enter again and is preempted inside. Each thread enters twice here.
 */
#include "race.h"

static atomic_int wants[2], turn;
static volatile int inside;

static void enter(int me)
{
	int other = 1 - me;
	wants[me] = 1;
	faulty(if) repaired(while) (wants[other]) {
		if (turn == other) {
			wants[me] = 0;
			while (turn == other && wants[other])
				sched_yield();
			wants[me] = 1;
		} repaired(else sched_yield());
	}
}

static void leave(int me)
{
	turn = 1 - me;
	wants[me] = 0;
}

static void *worker(void *arg)
{
	int me = (int)(long)arg;
	for (int n = 0; n < 2; n++) {
		enter(me);
		inside = me + 1;
		require(inside == me + 1);
		leave(me);
	}
	return NULL;
}

int main(void)
{
	pthread_t a = start(worker, 0), b = start(worker, 1);
	finish(a);
	finish(b);
	return 0;
}
