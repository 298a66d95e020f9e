// What a program sees of what Linux rarely does: each mode is a side of a test of rare_faults.rs. Everything is printed as it is seen; the test
// judges it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long long ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void rest(int milliseconds) { usleep(milliseconds * 1000); }

static void *whole(int fd, void *at, size_t n) {
    for (size_t got = 0; got < n;) {
        ssize_t more = read(fd, (char *)at + got, n - got);
        if (more <= 0) return NULL;
        got += more;
    }
    return at;
}

static int bound(int kind, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, kind, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (void *)&at, sizeof at)) perror("bind");
    if ((kind & 15) == SOCK_STREAM && listen(fd, 64)) perror("listen");
    return fd;
}

static struct sockaddr_in server(int port) {
    struct addrinfo hints = {.ai_family = AF_INET}, *found;
    while (getaddrinfo("server", NULL, &hints, &found)) rest(100);
    struct sockaddr_in at = *(struct sockaddr_in *)found->ai_addr;
    at.sin_port = htons(port);
    return at;
}

static int connected(int port) {
    struct sockaddr_in at = server(port);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(fd, (void *)&at, sizeof at)) return fd;
        close(fd);
        rest(100);
    }
}

// Accepts connections, each of which sends times until it ends, and has each answered.
static void *serves(void *arg) {
    int fd = (int)(long)arg;
    long long sent, last = 0;
    while (whole(fd, &sent, sizeof sent)) {
        last = sent;
        if (write(fd, &sent, sizeof sent) < 0) break;
    }
    if (last) printf("end %lld\n", ms() - last);
    close(fd);
    return NULL;
}

static void accepts(void) {
    int listener = bound(SOCK_STREAM, 7000);
    printf("up\n");
    for (;;) {
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        int fd = accept(listener, (void *)&peer, &len);
        if (fd < 0) {
            printf("accept %s\n", strerrorname_np(errno));
            continue;
        }
        if (getpeername(fd, (void *)&peer, &len)) {
            int name = errno;
            char byte;
            ssize_t n;
            while ((n = read(fd, &byte, 1)) > 0) continue;
            printf("reset %s %s\n", strerrorname_np(name), n ? strerrorname_np(errno) : "end");
            close(fd);
            continue;
        }
        pthread_t thread;
        pthread_create(&thread, NULL, serves, (void *)(long)fd);
        pthread_detach(thread);
    }
}

static void connects(void) {
    struct sockaddr_in at = server(7000);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        long long begun = ms(), sent;
        if (connect(fd, (void *)&at, sizeof at)) {
            printf("refused %s\n", strerrorname_np(errno));
        } else {
            printf("connect %lld\n", ms() - begun);
            sent = ms();
            if (write(fd, &sent, sizeof sent) < 0 || !whole(fd, &sent, sizeof sent))
                printf("broken %s\n", strerrorname_np(errno));
            else
                printf("answer %lld\n", ms() - sent);
        }
        close(fd);
        rest(50);
    }
}

// Sends messages on a socket that does not block, and waits for the edge of EPOLLOUT after each part.
static void sends(int fd, const char *name, size_t size) {
    int ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
    char *data = malloc(size), answer;
    for (size_t i = 0; i < size; i++) data[i] = i * 7;
    for (int round = 0; round < 150; round++) {
        for (size_t done = 0; done < size;) {
            // Takes the edges that are there, so that the next one is a new one.
            while (epoll_wait(ep, &event, 1, 0) > 0) continue;
            ssize_t n = send(fd, data + done, size - done, MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN) {
                printf("%s %s\n", name, strerrorname_np(errno));
                return;
            }
            if (n > 0) done += n;
            if (done < size) {
                printf("%s part\n", name);
                if (epoll_wait(ep, &event, 1, 3000) != 1) printf("%s no edge\n", name);
            }
        }
        struct pollfd in = {.fd = fd, .events = POLLIN};
        while (poll(&in, 1, -1) < 1) continue;
        if (read(fd, &answer, 1) != 1 || answer != 'y') printf("%s torn\n", name);
        rest(20);
    }
    printf("%s all\n", name);
}

static void sinks(int fd, size_t size) {
    char *data = malloc(size);
    while (whole(fd, data, size)) {
        char answer = 'y';
        for (size_t i = 0; i < size; i++)
            if (data[i] != (char)(i * 7)) answer = 'n';
        if (write(fd, &answer, 1) < 0) return;
    }
}

static void *sink_of_pair(void *arg) {
    sinks((int)(long)arg, 100000);
    return NULL;
}

static void fills(void) {
    int pair[2], fd = connected(7000);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    sends(fd, "tcp", 3000);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    pthread_t thread;
    pthread_create(&thread, NULL, sink_of_pair, (void *)(long)pair[1]);
    sends(pair[0], "unix", 100000);
}

// Two sockets of datagrams: one does not block.
static void *waits(void *arg) {
    int fd = bound(SOCK_DGRAM, 7002), count = 0;
    char data[100];
    (void)arg;
    for (;;) {
        struct pollfd in = {.fd = fd, .events = POLLIN};
        if (poll(&in, 1, 1000) == 1 && recv(fd, data, sizeof data, MSG_DONTWAIT) < 0) printf("blocking %s\n", strerrorname_np(errno));
        else if (in.revents && ++count % 100 == 0) printf("blocking got %d\n", count);
    }
    return NULL;
}

static void hears(void) {
    int fd = bound(SOCK_DGRAM | SOCK_NONBLOCK, 7001), count = 0;
    char data[100];
    pthread_t thread;
    pthread_create(&thread, NULL, waits, NULL);
    printf("up\n");
    for (;;) {
        struct pollfd in = {.fd = fd, .events = POLLIN};
        if (poll(&in, 1, -1) != 1) continue;
        if (recv(fd, data, sizeof data, 0) < 0) printf("spurious %s\n", strerrorname_np(errno));
        else if (++count % 100 == 0) printf("got %d\n", count);
    }
}

static void tells(void) {
    struct sockaddr_in at = server(7001), other = at;
    other.sin_port = htons(7002);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (;;) {
        if (sendto(fd, "word", 4, 0, (void *)&at, sizeof at) != 4) printf("sendto %s\n", strerrorname_np(errno));
        if (sendto(fd, "word", 4, 0, (void *)&other, sizeof other) != 4) printf("sendto %s\n", strerrorname_np(errno));
        rest(10);
    }
}

// Four connections on which a letter each arrives before epoll_wait is called, and a pipe between them.
static void gathers(void) {
    int listener = bound(SOCK_STREAM, 7000), ep = epoll_create1(0), ends[2], fds[4];
    struct epoll_event event = {.events = EPOLLIN}, ready[8];
    printf("up\n");
    for (int i = 0; i < 4; i++) {
        event.data.fd = fds[i] = accept(listener, NULL, NULL);
        epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &event);
    }
    pipe(ends);
    event.data.fd = ends[0];
    epoll_ctl(ep, EPOLL_CTL_ADD, ends[0], &event);
    for (;;) {
        write(ends[1], "-", 1);
        rest(100);
        char order[9] = {0}, letter;
        int n = epoll_wait(ep, ready, 8, 0);
        for (int i = 0; i < n; i++) order[i] = read(ready[i].data.fd, &letter, 1) == 1 ? letter : '?';
        printf("order %s\n", order);
        for (int i = 0; i < 4; i++) write(fds[i], "y", 1);
    }
}

static void spells(void) {
    int fds[4];
    char answer;
    for (int i = 0; i < 4; i++) fds[i] = connected(7000);
    for (;;) {
        rest(20);
        for (int i = 0; i < 4; i++) write(fds[i], &"abcd"[i], 1);
        for (int i = 0; i < 4; i++) whole(fds[i], &answer, 1);
    }
}

// Limits of inotify and of pipes, round after round.
static void limits(void) {
    char buffer[4096] __attribute__((aligned(8)));
    // Faults begin when the service is ready.
    rest(1500);
    for (int round = 0; round < 200; round++, rest(20)) {
        int pair[2], fd = inotify_init1(IN_NONBLOCK);
        if (fd < 0) printf("init %s\n", strerrorname_np(errno));
        if (fd >= 0 && inotify_add_watch(fd, "/tmp", IN_CREATE) < 0) printf("watch %s\n", strerrorname_np(errno));
        for (int i = 0; i < 3; i++) {
            sprintf(buffer, "/tmp/file-%d-%d", round, i);
            close(open(buffer, O_CREAT | O_WRONLY, 0600));
        }
        ssize_t n = fd >= 0 ? read(fd, buffer, sizeof buffer) : 0;
        for (ssize_t at = 0; at < n;) {
            struct inotify_event *event = (void *)(buffer + at);
            if (event->mask & IN_Q_OVERFLOW) printf("overflow %d\n", event->wd);
            at += sizeof *event + event->len;
        }
        if (fd >= 0) close(fd);
        if (pipe(pair)) continue;
        if (fcntl(pair[0], F_GETPIPE_SZ) != 65536) printf("pipe %d\n", fcntl(pair[0], F_GETPIPE_SZ));
        if (fcntl(pair[0], F_SETPIPE_SZ, 131072) < 0) printf("grow %s\n", strerrorname_np(errno));
        close(pair[0]);
        close(pair[1]);
    }
    printf("rounds\n");
    pause();
}

int main(int count, char **args) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *mode = count > 1 ? args[1] : "";
    struct { const char *name; void (*run)(void); } modes[] = {
        {"accepts", accepts}, {"connects", connects}, {"fills", fills}, {"hears", hears}, {"tells", tells},
        {"gathers", gathers}, {"spells", spells}, {"limits", limits},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(mode, modes[i].name)) modes[i].run();
    if (!strcmp(mode, "sinks")) {
        int listener = bound(SOCK_STREAM, 7000);
        printf("up\n");
        for (;;) sinks(accept(listener, NULL, NULL), 3000);
    }
    return 0;
}
