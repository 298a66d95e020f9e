/* One thread computes and never comes to an end, while the other one makes calls again and again. */
#include <pthread.h>
#include <time.h>

static volatile unsigned long rounds;

static void __attribute__((noinline)) compute_for_ever(void)
{
	for (;;)
		rounds += rounds % 7 + 1;
}

static void *worker(void *unused)
{
	compute_for_ever();
	return unused;
}

int main(int argc, char **argv)
{
	(void)argv;
	pthread_t thread;
	if (argc > 1)
		compute_for_ever();
	pthread_create(&thread, NULL, worker, NULL);
	for (;;) {
		struct timespec pause = { 0, 250000000 };
		nanosleep(&pause, NULL);
	}
}
