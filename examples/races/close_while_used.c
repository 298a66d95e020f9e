/*
 * Check then act on a file descriptor: a thread looks whether a file is open and writes to it; another one closes it.
 *
 * Race: the load of `file` in report() and close(2) in shut(). It fails if report() is preempted between its check and write(2),
 * and shut() closes the file then: EBADF.
 */
#include "race.h"

static int file = -1;
static int pipes[2];
MUTEX(lock);

static void *report(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	int to = file;
	if (to >= 0)
		require(write(to, "x", 1) == 1);
	repaired(UNLOCK(lock));
	return NULL;
}

static void *shut(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	int was = file;
	file = -1;
	close(was);
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	require(pipe(pipes) == 0);
	file = pipes[1];
	pthread_t a = start(report, 0), b = start(shut, 0);
	finish(a);
	finish(b);
	return 0;
}
