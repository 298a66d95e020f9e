/*
 * Account: a deposit and a withdrawal change one balance without a lock.
 *
 * Race: the load of `balance` in deposit() and the store to it in withdraw(), or the other way round. If one thread is preempted
 * between load and store, what the other one booked is lost. The balance is read again before the check, through a function.
 */
#include "race.h"

struct account {
	long balance;
	int bookings;
};

static struct account account = { 100, 0 };
MUTEX(lock);

static long read_balance(struct account *of)
{
	return of->balance;
}

static void book(struct account *of, long amount)
{
	repaired(LOCK(lock));
	of->balance = read_balance(of) + amount;
	of->bookings = of->bookings + 1;
	repaired(UNLOCK(lock));
}

static void *deposit(void *arg)
{
	(void)arg;
	book(&account, 50);
	return NULL;
}

static void *withdraw(void *arg)
{
	(void)arg;
	book(&account, -30);
	return NULL;
}

int main(void)
{
	pthread_t a = start(deposit, 0), b = start(withdraw, 0);
	finish(a);
	finish(b);
	assert(account.balance == 120);
	assert(account.bookings == 2);
	return 0;
}
