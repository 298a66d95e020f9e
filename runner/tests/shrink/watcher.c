/* Fails when it has stood still for a while PAUSES times: the bug that only so many pauses show. BUILD makes another program of it that does
   the same. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#ifndef PAUSES
#define PAUSES 2
#endif

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

int main(void) {
    int pauses = 0;
#ifdef BUILD
    puts(BUILD);
#endif
    for (long long last = now();; last = now()) {
        usleep(5000);
        long long gap = now() - last;
        if (gap < 50)
            continue;
        printf("stood still for %lld ms\n", gap);
        fflush(stdout);
        if (++pauses == PAUSES)
            return 3;
    }
}
