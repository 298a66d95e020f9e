/*
 * Token ring: three stations take a token before they send, and put it back. Taking it is a check and a store.
 *
 * Race (check then act): the load of `token` in one station and the store to it in another one. If a station is preempted after
 * it has seen the token and before it has taken it, and another station takes it and is preempted while it sends, both send.
 */
#include "race.h"

enum { WORDS = 4 };

static int token = 1, sending;
MUTEX(lock);

static int take(void)
{
	int mine = 0;
	repaired(LOCK(lock));
	if (token) {
		token = 0;
		mine = 1;
	}
	repaired(UNLOCK(lock));
	return mine;
}

static void put_back(void)
{
	repaired(LOCK(lock));
	token = 1;
	repaired(UNLOCK(lock));
}

static void *station(void *arg)
{
	int number = (int)(long)arg + 1;
	if (take()) {
		for (int word = 0; word < WORDS; word++) {
			sending = number;
			require(sending == number);
		}
		put_back();
	}
	return NULL;
}

int main(void)
{
	pthread_t stations[3];
	for (int n = 0; n < 3; n++)
		stations[n] = start(station, n);
	for (int n = 0; n < 3; n++)
		finish(stations[n]);
	return 0;
}
