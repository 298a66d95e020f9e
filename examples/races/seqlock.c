/*
 * Sequence lock without a retry: the reader looks at the sequence number before it reads, and not again afterwards.
 *
 * Race: the loads of `low` and `high` in read_pair() and the stores to them in write_pair(). It fails if read_pair() is preempted
 * between its two loads and write_pair() runs then.
 */
#include "race.h"

static atomic_uint sequence;
static atomic_int low = 1, high = 1;

static void *write_pair(void *arg)
{
	(void)arg;
	atomic_fetch_add(&sequence, 1);
	low = 2;
	high = 2;
	atomic_fetch_add(&sequence, 1);
	return NULL;
}

static void *read_pair(void *arg)
{
	(void)arg;
	for (;;) {
		unsigned before = sequence;
		if (before & 1) {
			sched_yield();
			continue;
		}
		int one = low, other = high;
		repaired(if (sequence != before) continue);
		require(one == other);
		return NULL;
	}
}

int main(void)
{
	pthread_t a = start(read_pair, 0), b = start(write_pair, 0);
	finish(a);
	finish(b);
	return 0;
}
