/*
 * What the programs of this directory share: threads, and a check that ends the program with status 1.
 *
 * Each program has one fault. With -DFIXED it is repaired: faulty(...) stands for code that only the faulty variant has,
 * repaired(...) for code that only the repaired one has.
 */
#ifndef RACE_H
#define RACE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FIXED
#define faulty(...)
#define repaired(...) __VA_ARGS__
#else
#define faulty(...) __VA_ARGS__
#define repaired(...)
#endif

#define UNUSED __attribute__((unused))

/* Ends the program with status 1 if the condition does not hold. */
#define require(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1); \
		} \
	} while (0)

/* Starts a thread, which gets a number. */
UNUSED static pthread_t start(void *(*body)(void *), long number)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, body, (void *)number);
	if (error) {
		fprintf(stderr, "pthread_create: %s\n", strerror(error));
		_exit(99);
	}
	return thread;
}

/* Waits for the end of a thread. */
UNUSED static void finish(pthread_t thread)
{
	pthread_join(thread, NULL);
}

/* Some work that touches nothing shared. On a real machine it gives another thread the time to go first. */
UNUSED static void compute(void)
{
	for (int i = 0; i < 50000; i++)
		__asm__ volatile("");
}

#define LOCK(mutex) pthread_mutex_lock(&(mutex))
#define UNLOCK(mutex) pthread_mutex_unlock(&(mutex))
#define MUTEX(name) UNUSED static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER
#define CONDITION(name) UNUSED static pthread_cond_t name = PTHREAD_COND_INITIALIZER

#endif
