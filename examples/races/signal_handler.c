/*
 * Signal handler: main and a handler that interrupts it change one counter.
 *
 * Race: the load of `counter` in count(), called by main, and the store to it in the handler. It fails if the other thread sends
 * the signal while main is between its load and its store: what the handler added is lost. Repaired, the signal is blocked meanwhile.
 */
#include "race.h"
#include <signal.h>

static volatile int counter;
static pthread_t main_thread;

static void handle(int number)
{
	(void)number;
	counter = counter + 1;
}

static void count(void)
{
	int seen = counter;
	counter = seen + 1;
}

static void *send_signal(void *arg)
{
	(void)arg;
	pthread_kill(main_thread, SIGUSR1);
	return NULL;
}

int main(void)
{
	sigset_t set UNUSED;
	struct sigaction action = { .sa_handler = handle };
	sigaction(SIGUSR1, &action, NULL);
	main_thread = pthread_self();
	repaired(sigemptyset(&set); sigaddset(&set, SIGUSR1); pthread_sigmask(SIG_BLOCK, &set, NULL));
	pthread_t a = start(send_signal, 0);
	count();
	repaired(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
	finish(a);
	require(counter == 2);
	return 0;
}
