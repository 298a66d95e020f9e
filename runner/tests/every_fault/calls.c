// Asks its kernel for everything that a fault can deny, over and over: files, names, memory, processes, ports, sockets, futexes, pipes,
// watches.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe.h"

static char page[6000];
static int log_file, known_file;
static struct sockaddr_in listener = {.sin_family = AF_INET};
static int talking[2];
static int watcher;

// Writes over what is there, so that it needs no room.
static void write_and_sync(void) {
    ssize_t n = pwrite(log_file, page, sizeof page, 0);
    if (n >= 0 && n < (ssize_t)sizeof page) say("write", "short");
    else say_if("write", n == sizeof page);
    long long begin = clock_ms();
    int failed = fsync(log_file);
    if (!failed && clock_ms() - begin >= 50) say("fsync", "late");
    else say_if("fsync", !failed);
}

static void append(void) {
    int fd = open("/var/tmp/grows", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0) return;
    ssize_t n = write(fd, page, sizeof page);
    if (n >= 0 && n < (ssize_t)sizeof page) say("append", "short");
    else say_if("append", n == sizeof page);
    if (lseek(fd, 0, SEEK_END) > 1000000 && ftruncate(fd, 0)) {}
    close(fd);
}

static void read_back(void) {
    char got[sizeof page];
    memset(got, 0, sizeof got);
    ssize_t n = pread(known_file, got, sizeof got, 0);
    if (n == sizeof got && memcmp(got, page, sizeof got)) say("read", "changed");
    else say_if("read", n == sizeof got);
}

static void names(void) {
    int made = mkdir("/var/tmp/name", 0755);
    say_if("name", !made);
    if (!made) rmdir("/var/tmp/name");
    int fd = open("/var/tmp/known", O_RDONLY);
    say_if("open", fd >= 0);
    if (fd >= 0) close(fd);
}

static void memory(void) {
    void *got = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say_if("mmap", got != MAP_FAILED);
    if (got != MAP_FAILED) munmap(got, 1 << 20);
}

static void processes(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    say_if("fork", child > 0);
    if (child > 0) waitpid(child, NULL, 0);
}

static void ports(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0) return;
    say_if("bind", !bind(s, (struct sockaddr *)&any, sizeof any));
    close(s);
    s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0) return;
    say_if("connect", !connect(s, (struct sockaddr *)&listener, sizeof listener));
    close(s);
}

// All that was sent is there before it is read, without a look at how much it is.
static void streams(void) {
    char got[1000];
    struct pollfd ready = {.fd = talking[1], .events = POLLIN};
    if (send(talking[0], page, sizeof got, 0) != sizeof got || poll(&ready, 1, 1000) != 1) return;
    sleep_ms(2);
    ssize_t n = recv(talking[1], got, sizeof got, 0);
    say("recv", n == sizeof got ? "good" : n < 0 ? error_name() : "short");
    for (ssize_t more = n; more > 0 && n < (ssize_t)sizeof got; n += more) {
        more = recv(talking[1], got, sizeof got - n, 0);
    }
}

static void futexes(void) {
    static int word = 0;
    struct timespec patience = {.tv_nsec = 2000000};
    long woken = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &patience, NULL, 0);
    say("futex", woken == 0 ? "woken" : errno == ETIMEDOUT ? "good" : error_name());
}

static void pipes(void) {
    int pair[2];
    if (pipe(pair)) return;
    say("pipe", fcntl(pair[0], F_GETPIPE_SZ) < 65536 ? "small" : "good");
    say_if("grow", fcntl(pair[0], F_SETPIPE_SZ, 131072) >= 131072);
    close(pair[0]);
    close(pair[1]);
}

// Whether the queue has overflown, of all that is in it; -1 if it is empty.
static int overflows(void) {
    char events[1000] __attribute__((aligned(8)));
    ssize_t n = read(watcher, events, sizeof events);
    if (n <= 0) return -1;
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(events + at);
        if (event->mask & IN_Q_OVERFLOW) return 1;
        at += sizeof *event + event->len;
    }
    return 0;
}

static void watches(void) {
    int fd = inotify_init1(IN_NONBLOCK);
    say_if("inotify", fd >= 0);
    if (fd >= 0) close(fd);
    int wd = inotify_add_watch(watcher, "/var/tmp/known", IN_OPEN);
    say_if("watch", wd >= 0);
    if (wd < 0) return;
    if ((fd = open("/var/tmp/known", O_RDONLY)) >= 0) close(fd);
    int overflown = overflows();
    if (overflown >= 0) say("events", overflown ? "overflow" : "good");
    inotify_rm_watch(watcher, wd);
    overflows(); // takes IN_IGNORED
}

static void open_all(void) {
    memset(page, 'x', sizeof page);
    log_file = open("/var/tmp/log", O_RDWR | O_CREAT | O_TRUNC, 0644);
    known_file = open("/var/tmp/known", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (pwrite(known_file, page, sizeof page, 0) != sizeof page || fsync(known_file)) exit(1);
    if ((watcher = inotify_init1(IN_NONBLOCK)) < 0) exit(1);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof listener;
    listener.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(s, (struct sockaddr *)&listener, sizeof listener) || listen(s, 4096)) exit(1);
    getsockname(s, (struct sockaddr *)&listener, &size);
    talking[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(talking[0], (struct sockaddr *)&listener, sizeof listener)) exit(1);
    talking[1] = accept(s, NULL, NULL);
    if (talking[1] < 0) exit(1);
}

int main(void) {
    open_all();
    for (;;) {
        write_and_sync();
        append();
        read_back();
        names();
        memory();
        processes();
        ports();
        streams();
        futexes();
        pipes();
        watches();
        sleep_ms(50);
    }
}
