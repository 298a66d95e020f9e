// Tells of its clocks: when CLOCK_REALTIME was set, by its own look at two clocks, and how far it and CLOCK_MONOTONIC are from those of
// another service, which sends what its clocks show every half second.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }

static long long now(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return ns(t);
}

static long long trapped(int clock) {
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return ns(t);
}

int main(int argc, char **argv) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *peer = NULL;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(4000)};
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (argc != 2 || bind(s, (struct sockaddr *)&own, sizeof own)) return 1;
    struct timeval patience = {.tv_usec = 10000};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (getaddrinfo(argv[1], "4000", &hints, &peer)) usleep(100000);
    long long offset = now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC), next = 0, last = 0;
    for (;;) {
        long long mono = now(CLOCK_MONOTONIC), real = now(CLOCK_REALTIME), went = real - mono - offset;
        if (mono < last) { printf("back\n"); fflush(stdout); abort(); }
        last = mono;
        if (llabs(went) > 1000000) {
            struct timeval tv;
            gettimeofday(&tv, NULL);
            long long day = tv.tv_sec * 1000000000LL + tv.tv_usec * 1000LL, real2 = trapped(CLOCK_REALTIME);
            int alike = llabs(real2 - real) < 1000000 && llabs(day - real) < 1000000 && llabs(time(NULL) - real2 / 1000000000) < 2;
            printf("step %lld ms %s\n", went / 1000000, alike ? "alike" : "DIFFERENT");
            fflush(stdout);
            offset += went;
        }
        if (mono >= next) {
            long long message[2] = {mono, real};
            sendto(s, message, sizeof message, 0, peer->ai_addr, peer->ai_addrlen);
            next = mono + 500000000;
        }
        long long theirs[2];
        if (recv(s, theirs, sizeof theirs, 0) == sizeof theirs) {
            mono = now(CLOCK_MONOTONIC), real = now(CLOCK_REALTIME);
            printf("apart %lld %lld us\n", (mono - theirs[0]) / 1000, (real - theirs[1]) / 1000);
            fflush(stdout);
        }
    }
}
