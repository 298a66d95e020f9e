/* A thread waits on an atomic variable; with PAUSE defined, by the processor's hint for such loops. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int stop;
static atomic_long rounds;

static void *waiter(void *unused)
{
	while (!atomic_load(&stop)) {
		atomic_fetch_add(&rounds, 1);
#ifdef PAUSE
		__builtin_ia32_pause();
#endif
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, waiter, NULL);
	usleep(200000);
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	puts("done");
	fprintf(stderr, "%ld rounds\n", atomic_load(&rounds));
	return 0;
}
