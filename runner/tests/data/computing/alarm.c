/* Counts until SIGALRM. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t stop;
static volatile unsigned long rounds;

static void handler(int signal)
{
	(void)signal;
	stop = 1;
}

int main(void)
{
	signal(SIGALRM, handler);
	alarm(1);
	while (!stop)
		rounds++;
	puts(rounds > 0 ? "counted" : "not counted");
	fprintf(stderr, "%lu rounds\n", rounds);
	return 0;
}
