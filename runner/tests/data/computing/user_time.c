/* Counts until SIGVTALRM: time in which a program computes without a call is its own, not the kernel's for it. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>

static volatile sig_atomic_t stop;
static volatile unsigned long rounds;

static void handler(int signal)
{
	(void)signal;
	stop = 1;
}

static long microseconds(struct timeval time)
{
	return time.tv_sec * 1000000 + time.tv_usec;
}

int main(void)
{
	struct itimerval timer = { .it_value = { 1, 0 } };
	struct rusage usage;
	signal(SIGVTALRM, handler);
	setitimer(ITIMER_VIRTUAL, &timer, NULL);
	while (!stop)
		rounds++;
	getrusage(RUSAGE_SELF, &usage);
	long user = microseconds(usage.ru_utime), system = microseconds(usage.ru_stime);
	puts(user >= 900000 && user < 1200000 ? "one second of its own" : "another time");
	puts(system < 500000 ? "little of the kernel's" : "much of the kernel's");
	fprintf(stderr, "user %ld us, system %ld us\n", user, system);
	return 0;
}
