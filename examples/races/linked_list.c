/*
 * Linked list: two threads put nodes in front of a list without a lock.
 *
 * Race: the load of `head` in insert() and the store to it in the other thread. It fails if a thread is preempted between its load
 * and its store and the other one inserts: that node is lost. Plain accesses only.
 */
#include "race.h"

struct node {
	struct node *next;
};

static struct node nodes[2];
static struct node *head;
MUTEX(lock);

static void *insert(void *arg)
{
	struct node *mine = &nodes[(long)arg];
	repaired(LOCK(lock));
	mine->next = head;
	head = mine;
	repaired(UNLOCK(lock));
	return NULL;
}

int main(void)
{
	pthread_t a = start(insert, 0), b = start(insert, 1);
	finish(a);
	finish(b);
	int length = 0;
	for (struct node *n = head; n; n = n->next)
		length++;
	require(length == 2);
	return 0;
}
