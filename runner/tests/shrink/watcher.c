/* Fails when it has stood still for a while twice: the bug that only two pauses show. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

int main(void) {
    int pauses = 0;
    for (long long last = now();; last = now()) {
        usleep(5000);
        long long gap = now() - last;
        if (gap < 50)
            continue;
        printf("stood still for %lld ms\n", gap);
        fflush(stdout);
        if (++pauses == 2)
            return 3;
    }
}
