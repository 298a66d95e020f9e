/* Two such waits, one after the other, in two loops of one program: the run is made again twice. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int turn;
static volatile long one, two;

static void *other(void *unused)
{
	while (turn != 1)
		one++;
	puts("first");
	fflush(stdout);
	turn = 2;
	usleep(1000);
	turn = 3;
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, other, NULL);
	usleep(50000);
	turn = 1;
	while (turn != 3)
		two += 2;
	pthread_join(thread, NULL);
	puts("second");
	fprintf(stderr, "%ld and %ld rounds\n", one, two);
	return 0;
}
