/* A thread waits for another one by computing, on plain variables. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int stop;
static volatile long rounds;

static void *waiter(void *unused)
{
	while (!stop)
		rounds++;
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, waiter, NULL);
	usleep(200000);
	stop = 1;
	pthread_join(thread, NULL);
	puts("done");
	fprintf(stderr, "%ld rounds\n", rounds);
	return 0;
}
