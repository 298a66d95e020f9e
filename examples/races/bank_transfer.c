/*
 * Bank transfer: money is taken from one account and put into another one in two critical sections instead of one.
 *
 * Race (atomicity violation without a data race): transfer() between its two critical sections, and audit(), which takes both
 * locks. If the thread of transfer() is preempted after it has taken the money, the audit finds too little.
 */
#include "race.h"

static long accounts[2] = { 500, 500 };
static pthread_mutex_t locks[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };

static void *transfer(void *arg)
{
	(void)arg;
	LOCK(locks[0]);
	repaired(LOCK(locks[1]));
	accounts[0] -= 200;
	faulty(UNLOCK(locks[0]); LOCK(locks[1]));
	accounts[1] += 200;
	UNLOCK(locks[1]);
	repaired(UNLOCK(locks[0]));
	return NULL;
}

static void *audit(void *arg)
{
	(void)arg;
	LOCK(locks[0]);
	LOCK(locks[1]);
	long sum = accounts[0] + accounts[1];
	UNLOCK(locks[1]);
	UNLOCK(locks[0]);
	require(sum == 1000);
	return NULL;
}

int main(void)
{
	pthread_t a = start(transfer, 0), b = start(audit, 0);
	finish(a);
	finish(b);
	return 0;
}
