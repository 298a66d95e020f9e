/*
 * Use after free: a thread takes the pointer to a session and reads it; another one ends the session and frees it.
 *
 * Race: the load of the session's `open` in read_session() and free(3) in end_session(). It fails if read_session() is preempted
 * after it has loaded the pointer, and the session is ended then: what it reads is not the session any more.
 */
#include "race.h"

struct session {
	long padding[4];
	int open;
};

static struct session *session;
MUTEX(lock);

static void *read_session(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	struct session *mine = session;
	if (mine != NULL)
		require(mine->open == 1);
	repaired(UNLOCK(lock));
	return NULL;
}

static void *end_session(void *arg)
{
	(void)arg;
	repaired(LOCK(lock));
	struct session *old = session;
	session = NULL;
	old->open = 0;
	free(old);
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	session = calloc(1, sizeof *session);
	session->open = 1;
	pthread_t a = start(read_session, 0), b = start(end_session, 0);
	finish(a);
	finish(b);
	return 0;
}
