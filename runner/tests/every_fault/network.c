// Two nodes: `two` sends back what it gets, and `one` tells what becomes of its datagrams, connections and questions for a name.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "observe.h"

enum { PORT = 7000, PEERS = 62, PATIENCE = 300, LATE = 20 };

static struct sockaddr_in server = {.sin_family = AF_INET};

static void serve(void) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct pollfd all[PEERS + 2];
    char piece[4096];
    int udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), count = 2;
    if (bind(udp, (struct sockaddr *)&own, sizeof own) || bind(tcp, (struct sockaddr *)&own, sizeof own) || listen(tcp, 64)) exit(1);
    all[0] = (struct pollfd){.fd = udp, .events = POLLIN};
    all[1] = (struct pollfd){.fd = tcp, .events = POLLIN};
    for (;;) {
        poll(all, count, -1);
        if (all[0].revents) {
            struct sockaddr_in from;
            socklen_t size = sizeof from;
            ssize_t n = recvfrom(udp, piece, sizeof piece, 0, (struct sockaddr *)&from, &size);
            if (n > 0) sendto(udp, piece, n, 0, (struct sockaddr *)&from, size);
        }
        for (int i = count - 1; i >= 2; i--) {
            if (!all[i].revents) continue;
            ssize_t n = recv(all[i].fd, piece, sizeof piece, 0);
            if (n > 0 && send(all[i].fd, piece, n, 0) == n) continue;
            close(all[i].fd);
            all[i] = all[--count];
        }
        if (all[1].revents && count < PEERS + 2) {
            all[count].revents = 0;
            all[count].events = POLLIN;
            struct sockaddr_in peer;
            socklen_t size = sizeof peer;
            if ((all[count].fd = accept(tcp, NULL, NULL)) < 0) continue;
            say_if("accepted", !getpeername(all[count].fd, (struct sockaddr *)&peer, &size));
            count++;
        }
    }
}

// Waits for something to read, for so long from `begin` on.
static int comes(int s, long long begin, long long patience) {
    struct pollfd ready = {.fd = s, .events = POLLIN};
    long long left = begin + patience - clock_ms();
    return left > 0 && poll(&ready, 1, left) == 1;
}

// Two datagrams at once, and what comes back of them within 100 ms.
static void datagrams(int s) {
    static int round;
    int last = -1, got = 0, changed = 0, overtaken = 0, late = 0, spurious = 0;
    char sent[100], piece[200];
    long long begin = clock_ms();
    round++;
    for (int i = 0; i < 2; i++) {
        memset(sent, 'x', sizeof sent);
        snprintf(sent, 12, "%05d %d", round, i);
        sendto(s, sent, sizeof sent, 0, (struct sockaddr *)&server, sizeof server);
    }
    // Whether a second copy comes shows only later.
    while (comes(s, begin, 100)) {
        ssize_t n = recv(s, piece, sizeof piece, 0);
        if (n < 0) { spurious = 1; continue; }
        int of = 0, nth = 0, rest = n == sizeof sent;
        for (int i = 8; rest && i < n; i++) rest = piece[i] == 'x';
        rest = rest && piece[7] == 0 && sscanf(piece, "%05d %d", &of, &nth) == 2;
        if (!rest || of > round || nth > 1) { changed = 1; continue; }
        if (of < round) continue;
        got++;
        overtaken |= nth < last;
        late |= clock_ms() - begin >= LATE;
        last = nth;
    }
    say("udp", spurious ? "spurious" : changed ? "changed" : got > 2 ? "twice" : overtaken ? "overtaken" : got < 2 ? "lost" : late ? "late" : "good");
}

// A connection, or -1; what became of it is told.
static int connected(const char *attempt) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    long long begin = clock_ms();
    connect(s, (struct sockaddr *)&server, sizeof server);
    struct pollfd ready = {.fd = s, .events = POLLOUT};
    int there = poll(&ready, 1, PATIENCE) == 1;
    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    if (!there) say(attempt, "silent");
    else say(attempt, error ? error_name() : clock_ms() - begin >= LATE ? "late" : "good");
    if (there && !error) return s;
    close(s);
    return -1;
}

// Sends so much, and has it all sent back.
static int echoes(int s, const char *attempt, int count) {
    static char sent[30000], got[30000];
    memset(sent, 'y', count);
    long long begin = clock_ms();
    int out = 0, in = 0;
    while (in < count) {
        struct pollfd ready = {.fd = s, .events = POLLIN | (out < count ? POLLOUT : 0)};
        long long left = begin + PATIENCE - clock_ms();
        if (left <= 0 || poll(&ready, 1, left) != 1) return say(attempt, "silent"), 0;
        if (ready.revents & POLLOUT) {
            ssize_t n = send(s, sent + out, count - out, MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN) return say(attempt, error_name()), 0;
            if (n > 0) say("send", n < count - out ? "part" : "good");
            if (n > 0) out += n;
        }
        if (ready.revents & ~POLLOUT) {
            ssize_t n = recv(s, got + in, count - in, 0);
            if (n == 0) return say(attempt, "closed"), 0;
            if (n < 0 && errno != EAGAIN) return say(attempt, error_name()), 0;
            if (n > 0) in += n;
        }
    }
    int same = !memcmp(sent, got, count);
    say(attempt, !same ? "changed" : clock_ms() - begin >= LATE ? "late" : "good");
    return same;
}

// Says that it sends no more, and waits for the other end to say the same.
static void ends(int s) {
    char byte;
    long long begin = clock_ms();
    shutdown(s, SHUT_WR);
    if (!comes(s, begin, PATIENCE)) say("end", "silent");
    else if (recv(s, &byte, 1, 0)) say("end", error_name());
    else say("end", clock_ms() - begin >= LATE ? "late" : "good");
}

// One datagram on each of three sockets, and in which order epoll tells of the answers, which come one after the other.
static void gathers(void) {
    int all[3], epoll = epoll_create1(0);
    struct epoll_event ready[3];
    for (int i = 0; i < 3; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        all[i] = socket(AF_INET, SOCK_DGRAM, 0);
        connect(all[i], (struct sockaddr *)&server, sizeof server);
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i], &event);
        send(all[i], "z", 1, 0);
        sleep_ms(2);
    }
    sleep_ms(5);
    if (epoll_wait(epoll, ready, 3, 0) == 3) {
        int in_order = ready[0].data.u32 == 0 && ready[1].data.u32 == 1 && ready[2].data.u32 == 2;
        say("epoll", in_order ? "good" : "reordered");
    }
    for (int i = 0; i < 3; i++) close(all[i]);
    close(epoll);
}

static void ask_for_a_name(void) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    long long begin = clock_ms();
    int failed = getaddrinfo("two", "7000", &hints, &found);
    say("name", failed == EAI_AGAIN ? "again" : failed ? gai_strerror(failed) : clock_ms() - begin >= LATE ? "late" : "good");
    if (!failed) freeaddrinfo(found);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && !strcmp(argv[1], "two")) serve();
    // One question for each name, so that what becomes of it shows soon.
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    while (getaddrinfo("two", "7000", &hints, &found)) sleep_ms(10);
    memcpy(&server, found->ai_addr, sizeof server);
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), kept = -1;
    for (;;) {
        datagrams(udp);
        if (kept < 0) kept = connected("kept");
        if (kept >= 0 && !echoes(kept, "tcp", 10)) close(kept), kept = -1;
        int other = connected("connect");
        if (other >= 0 && echoes(other, "large", 30000)) ends(other);
        if (other >= 0) close(other);
        gathers();
        ask_for_a_name();
        sleep_ms(20);
    }
}
