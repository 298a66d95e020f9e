/*
 * Deadlock of readers and a writer: a thread that holds the lock for reading takes it for reading once more, and writers go first.
 *
 * Race: the second pthread_rwlock_rdlock(3) of read_twice() and the pthread_rwlock_wrlock(3) of write_once(). It blocks for ever if
 * the writer begins to wait between the two: the reader waits behind the writer, and the writer for the reader.
 */
#include "race.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static int value, read_values;

static void *read_twice(void *arg)
{
	(void)arg;
	pthread_rwlock_rdlock(&lock);
	int first = value;
	repaired(pthread_rwlock_unlock(&lock));
	pthread_rwlock_rdlock(&lock);
	read_values = first + value;
	pthread_rwlock_unlock(&lock);
	faulty(pthread_rwlock_unlock(&lock));
	return NULL;
}

static void *write_once(void *arg)
{
	(void)arg;
	pthread_rwlock_wrlock(&lock);
	value++;
	pthread_rwlock_unlock(&lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(read_twice, 0), b = start(write_once, 0);
	finish(a);
	finish(b);
	return 0;
}
