/*
 * A buffer of text that is appended to another one while it is cleared. Each function locks what it needs.
 *
 * Race (atomicity violation without a data race): append() asks for the length in one critical section and copies in another one. It
 * fails if it is preempted in between and the buffer is cleared then.
 */
#include "race.h"

struct text {
	pthread_mutex_t lock;
	int length;
	char bytes[16];
};

static struct text source = { .lock = PTHREAD_MUTEX_INITIALIZER, .length = 3, .bytes = "abc" };
static struct text target = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int length(struct text *text)
{
	LOCK(text->lock);
	int length = text->length;
	UNLOCK(text->lock);
	return length;
}

static void copy(struct text *text, int count, char *to)
{
	faulty(LOCK(text->lock));
	require(count <= text->length);
	memcpy(to, text->bytes, count);
	faulty(UNLOCK(text->lock));
}

static void *append(void *arg)
{
	(void)arg;
	LOCK(target.lock);
	faulty(int count = length(&source));
	repaired(LOCK(source.lock));
	repaired(int count = source.length);
	copy(&source, count, target.bytes + target.length);
	repaired(UNLOCK(source.lock));
	target.length += count;
	UNLOCK(target.lock);
	return NULL;
}

static void *clear(void *arg)
{
	(void)arg;
	LOCK(source.lock);
	source.length = 0;
	UNLOCK(source.lock);
	return NULL;
}

int main(void)
{
	pthread_t a = start(append, 0), b = start(clear, 0);
	finish(a);
	finish(b);
	require(length(&target) == 0 || length(&target) == 3);
	return 0;
}
