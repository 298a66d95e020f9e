/* Fails when it has stood still for a while PAUSES times. BUILD makes another program of it that does the same. */
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
    puts(BUILD);
    for (long long last = now();; last = now()) {
        usleep(5000);
        if (now() - last >= 50 && ++pauses == PAUSES)
            return 3;
    }
}
