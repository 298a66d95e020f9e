/* One thread waits for another one that computes for a while: both loops are counted, and the one that ends is let go. */
#include <pthread.h>
#include <stdio.h>

static volatile int ready, seen;
static volatile long waited, sum;

static void *waiter(void *unused)
{
	while (!ready)
		waited++;
	seen = 1;
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, waiter, NULL);
	for (long i = 0; i < 50000000; i++)
		sum += i;
	ready = 1;
	while (!seen)
		sum++;
	pthread_join(thread, NULL);
	puts("done");
	fprintf(stderr, "%ld rounds\n", waited);
	return 0;
}
