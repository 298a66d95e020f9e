/* A thread that waits by computing, which is preempted at a counted loop. With FAILS the program crashes in the end. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int stop;
static volatile unsigned long turns;

__attribute__((noinline)) void turn(void) { turns++; }

static void *waiter(void *argument)
{
	while (!stop)
		turn();
	return argument;
}

int main(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, waiter, NULL);
	usleep(1000);
	stop = 1;
	pthread_join(thread, NULL);
	printf("%d\n", turns > 0);
#ifdef FAILS
	usleep(1500000);
	__builtin_trap();
#endif
	return 0;
}
