// A service that counts with two threads, each second anew. The bug: the count is read and written without a lock, so that it is
// wrong when both read it before one writes. No system call, lock or atomic instruction lies between the two accesses.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static volatile long count;

static void *add(void *unused)
{
    count = count + 1;
    return unused;
}

int main(void)
{
    for (long round = 1;; round++) {
        pthread_t one, other;
        if (pthread_create(&one, NULL, add, NULL) || pthread_create(&other, NULL, add, NULL))
            return 2;
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        if (count != 2 * round)
            abort();
        sleep(1);
    }
}
