/*
 * Work-stealing queue (Chase and Lev) whose owner takes the last item without competing for it.
 *
 * Race: the load of `top` in take() and the compare-and-swap of it in steal(). It fails if the owner is preempted after it has loaded
 * `top`, and the thief steals the last item then: both have it.
 */
#include "race.h"

static int items[8];
static atomic_long top, bottom;
static atomic_int taken[3];

static void give(int item)
{
	long b = bottom;
	items[b % 8] = item;
	bottom = b + 1;
}

static int take(void)
{
	long b = bottom - 1;
	bottom = b;
	long t = top;
	if (t > b) {
		bottom = t;
		return 0;
	}
	int item = items[b % 8];
	repaired(if (t == b) {
		if (!atomic_compare_exchange_strong(&top, &t, t + 1))
			item = 0;
		bottom = b + 1;
	});
	return item;
}

static int steal(void)
{
	long t = top;
	long b = bottom;
	if (t >= b)
		return 0;
	int item = items[t % 8];
	return atomic_compare_exchange_strong(&top, &t, t + 1) ? item : 0;
}

static void *owner(void *arg)
{
	(void)arg;
	for (int n = 0; n < 2; n++) {
		int item = take();
		require(item == 0 || atomic_fetch_add(&taken[item], 1) == 0);
	}
	return NULL;
}

static void *thief(void *arg)
{
	(void)arg;
	int item = steal();
	require(item == 0 || atomic_fetch_add(&taken[item], 1) == 0);
	return NULL;
}

int main(void)
{
	give(1);
	give(2);
	pthread_t a = start(owner, 0), b = start(thief, 0);
	finish(a);
	finish(b);
	return 0;
}
