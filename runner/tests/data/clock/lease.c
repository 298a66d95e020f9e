// A lease of two seconds, which a server gives and two holders use for one and a half. The server tells its end by CLOCK_REALTIME, which
// is a bug, or (-DFIXED) by CLOCK_MONOTONIC, and is the judge: it stops if somebody uses a lease that was given to another meanwhile.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifdef FIXED
#define CLOCK CLOCK_MONOTONIC
#else
#define CLOCK CLOCK_REALTIME
#endif

static long long ms(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void serve(int s) {
    char holder = 0;
    long long end = 0;
    for (;;) {
        char message[2];
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        if (recvfrom(s, message, 2, 0, (struct sockaddr *)&from, &len) != 2) continue;
        if (message[0] == 'g') {
            int free = !holder || ms(CLOCK) >= end;
            if (free) holder = message[1], end = ms(CLOCK) + 2000;
            sendto(s, free ? "y" : "n", 1, 0, (struct sockaddr *)&from, len);
        } else if (message[1] != holder) {
            printf("%c uses the lease of %c\n", message[1], holder);
            fflush(stdout);
            abort();
        }
    }
}

int main(int argc, char **argv) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(4000)};
    if (argc < 2 || bind(s, (struct sockaddr *)&own, sizeof own)) return 1;
    if (!strcmp(argv[1], "server")) serve(s);
    struct timeval patience = {.tv_usec = 200000};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *server = NULL;
    while (getaddrinfo("server", "4000", &hints, &server)) usleep(100000);
    for (;;) {
        char get[2] = {'g', argv[1][0]}, use[2] = {'u', argv[1][0]}, answer = 'n';
        long long asked = ms(CLOCK_MONOTONIC);
        sendto(s, get, 2, 0, server->ai_addr, server->ai_addrlen);
        recv(s, &answer, 1, 0);
        while (answer == 'y' && ms(CLOCK_MONOTONIC) < asked + 1500) {
            sendto(s, use, 2, 0, server->ai_addr, server->ai_addrlen);
            usleep(100000);
        }
        usleep(300000);
    }
}
