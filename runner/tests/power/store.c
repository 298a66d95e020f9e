/* Small stores that keep what they promise over a power failure, and ("careless") ones that do not. At its start each checks what an
 * earlier life left in /data, and ends with 1 if it is not what was promised. See runner/tests/power.rs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MUST(what) \
    do { \
        if (!(what)) { \
            printf("failed: %s: %s\n", #what, strerror(errno)); \
            fflush(stdout); \
            exit(3); \
        } \
    } while (0)

static int careful;
/* Milliseconds between what a client asks. */
static long pause_ms = 5;

static void broken(const char *what, long number)
{
    printf("BROKEN: %s %ld\n", what, number);
    fflush(stdout);
    exit(1);
}

static void rest(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void sync_path(const char *path)
{
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0 && fsync(fd) == 0);
    close(fd);
}

/* Writes a file under another name and moves it to its place. */
static void put(const char *path, const void *bytes, size_t size, int syncs_file, int syncs_dir)
{
    int fd = open("/data/new", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    MUST(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    if (syncs_file)
        MUST(fsync(fd) == 0);
    close(fd);
    MUST(rename("/data/new", path) == 0);
    if (syncs_dir)
        sync_path("/data");
}

static void segment(long number, char *path, unsigned char *bytes, size_t size)
{
    sprintf(path, "/data/segment.%ld", number);
    memset(bytes, (int)(number % 255) + 1, size);
}

/* Whether the segment is there and whole. */
static int whole(long number)
{
    static unsigned char is[5000], should[5000];
    char path[64];
    segment(number, path, should, sizeof should);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t size = read(fd, is, sizeof is);
    close(fd);
    return size == sizeof is && memcmp(is, should, sizeof is) == 0;
}

/* Files that come to their names when they are whole. Careless: without fsync(2) before rename(2). */
static void rename_store(void)
{
    static unsigned char bytes[5000];
    char path[64];
    long number = 0;
    for (long at = 0; at < 3000; at++)
        if (whole(at) == 0)
            broken("segment", at);
        else if (whole(at) == 1)
            number = at + 1;
    for (;; number++) {
        segment(number, path, bytes, sizeof bytes);
        put(path, bytes, sizeof bytes, careful, 0);
        rest(40);
    }
}

/* One file that is replaced again and again. Careless: without fsync(2), which only ext4 forgives. */
static void replace_store(void)
{
    static unsigned char bytes[5000];
    int fd = open("/data/config", O_RDONLY);
    if (fd >= 0) {
        ssize_t size = read(fd, bytes, sizeof bytes);
        if (size != sizeof bytes)
            broken("config has bytes:", size);
        for (size_t at = 1; at < sizeof bytes; at++)
            if (bytes[at] != bytes[0])
                broken("config differs at", at);
        close(fd);
    }
    for (int number = 0;; number++) {
        memset(bytes, number % 255 + 1, sizeof bytes);
        put("/data/config", bytes, sizeof bytes, careful, 0);
        rest(40);
    }
}

/* Files that are counted when they are durable. Careless: their directory is never synced. */
static void directory_store(void)
{
    static unsigned char bytes[5000];
    char path[64];
    long count = 0;
    int fd = open("/data/count", O_RDWR);
    if (fd < 0) {
        fd = open("/data/count", O_CREAT | O_RDWR, 0644);
        MUST(fd >= 0 && pwrite(fd, &count, sizeof count, 0) == sizeof count && fsync(fd) == 0);
        sync_path("/data");
    }
    MUST(pread(fd, &count, sizeof count, 0) == sizeof count);
    for (long at = 0; at < count; at++)
        if (whole(at) != 1)
            broken("segment", at);
    for (;;) {
        segment(count, path, bytes, sizeof bytes);
        put(path, bytes, sizeof bytes, 1, careful);
        count++;
        MUST(pwrite(fd, &count, sizeof count, 0) == sizeof count && fsync(fd) == 0);
        rest(40);
    }
}

#define RECORD 8192
#define RECORDS 16

struct redo {
    long place, generation, sum;
    unsigned char bytes[RECORD];
};

static long sum_of(const struct redo *redo)
{
    long sum = redo->place * 31 + redo->generation + 1;
    for (size_t at = 0; at < RECORD; at++)
        sum = sum * 31 + redo->bytes[at];
    return sum;
}

/* Records that are overwritten in place. Careless: as if 8 KiB were written at once or not at all. `mapped`: through a mapping. */
static void record_store(int mapped)
{
    static struct redo redo;
    static unsigned char bytes[RECORD];
    int records = open("/data/records", O_CREAT | O_RDWR, 0644), log = open("/data/redo", O_CREAT | O_RDWR, 0644);
    MUST(records >= 0 && log >= 0);
    if (lseek(records, 0, SEEK_END) < RECORD * RECORDS) {
        for (int at = 0; at < RECORDS; at++)
            MUST(pwrite(records, bytes, RECORD, (off_t)at * RECORD) == RECORD);
        MUST(fsync(records) == 0);
        sync_path("/data");
    }
    if (careful && pread(log, &redo, sizeof redo, 0) == sizeof redo && redo.sum == sum_of(&redo))
        MUST(pwrite(records, redo.bytes, RECORD, redo.place * RECORD) == RECORD && fsync(records) == 0);
    for (int at = 0; at < RECORDS; at++) {
        MUST(pread(records, bytes, RECORD, (off_t)at * RECORD) == RECORD);
        for (int byte = 1; byte < RECORD; byte++)
            if (bytes[byte] != bytes[0])
                broken("torn record", at);
    }
    unsigned char *map = mmap(NULL, RECORD * RECORDS, PROT_READ | PROT_WRITE, MAP_SHARED, records, 0);
    MUST(map != MAP_FAILED);
    for (long number = redo.generation + 1;; number++) {
        long place = number * 7 % RECORDS;
        redo.place = place, redo.generation = number;
        memset(redo.bytes, (int)(number % 255) + 1, RECORD);
        redo.sum = sum_of(&redo);
        if (careful)
            MUST(pwrite(log, &redo, sizeof redo, 0) == sizeof redo && fsync(log) == 0);
        if (mapped) {
            memcpy(map + place * RECORD, redo.bytes, RECORD);
            MUST(msync(map + place * RECORD, RECORD, MS_SYNC) == 0);
        } else {
            MUST(pwrite(records, redo.bytes, RECORD, place * RECORD) == RECORD && fsync(records) == 0);
        }
        rest(1);
    }
}

/* Makes a file durable in one of the ways that Linux has. */
static void make_durable(int fd, const char *how)
{
    if (!strcmp(how, "fsync"))
        MUST(fsync(fd) == 0);
    else if (!strcmp(how, "fdatasync"))
        MUST(fdatasync(fd) == 0);
    else if (!strcmp(how, "sync"))
        sync();
    else if (!strcmp(how, "syncfs"))
        MUST(syncfs(fd) == 0);
    else if (!strcmp(how, "range"))
        /* "This system call does not flush disk write caches and thus does not provide any data integrity" (sync_file_range(2)). */
        MUST(sync_file_range(fd, 0, 0, 7) == 0);
}

/* A log of numbers over TCP: "a" appends the next, "l" asks for the last. Careless: acknowledged before it is durable. */
static void log_server(const char *how)
{
    int flags = !strcmp(how, "O_SYNC") ? O_SYNC : !strcmp(how, "O_DSYNC") ? O_DSYNC : 0;
    int log = open("/data/log", O_CREAT | O_RDWR | O_APPEND | flags, 0644), on = 1;
    MUST(log >= 0 && fsync(log) == 0);
    sync_path("/data");
    uint64_t last = lseek(log, 0, SEEK_END) / 8;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7000)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    MUST(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 5) == 0);
    for (;;) {
        int peer = accept(listener, NULL, NULL);
        char asked;
        while (read(peer, &asked, 1) == 1) {
            if (asked == 'a') {
                struct iovec part = {&(uint64_t){++last}, 8};
                if (!strcmp(how, "RWF_DSYNC"))
                    MUST(pwritev2(log, &part, 1, -1, RWF_DSYNC) == 8);
                else
                    MUST(writev(log, &part, 1) == 8);
                make_durable(log, how);
            }
            if (write(peer, &last, 8) != 8)
                break;
        }
        close(peer);
    }
}

static int ask(int fd, char what, uint64_t *last)
{
    if (write(fd, &what, 1) != 1)
        return 0;
    ssize_t n = read(fd, last, 8);
    /* The server never ends a connection: who loses its power says nothing. */
    if (n == 0)
        broken("the end of a connection after", *last);
    return n == 8;
}

/* The same of a Redis server, as a counter. */
static int ask_redis(int fd, char what, uint64_t *last)
{
    const char *command = what == 'a' ? "INCRBY n 1\r\n" : "INCRBY n 0\r\n";
    char answer[64];
    size_t size = 0;
    if (write(fd, command, strlen(command)) != (ssize_t)strlen(command))
        return 0;
    while (size < sizeof answer - 1 && !memchr(answer, '\n', size)) {
        ssize_t n = read(fd, answer + size, sizeof answer - 1 - size);
        if (n <= 0)
            return 0;
        size += n;
    }
    answer[size] = 0;
    /* What it has not loaded yet it says with a -. */
    return sscanf(answer, ":%lu", (long unsigned *)last) == 1;
}

static void log_client(int (*ask)(int, char, uint64_t *))
{
    uint64_t acknowledged = 0, last;
    for (;; rest(50)) {
        struct addrinfo *server;
        if (getaddrinfo("db", "7000", NULL, &server) != 0)
            continue;
        struct timeval patience = {0, 300000};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(fd, server->ai_addr, server->ai_addrlen) == 0 && ask(fd, 'l', &last)) {
            if (last < acknowledged) {
                printf("acknowledged %lu, there is %lu\n", (long)acknowledged, (long)last);
                broken("lost", acknowledged - last);
            }
            for (acknowledged = last; ask(fd, 'a', &last); rest(pause_ms))
                acknowledged = last;
        }
        freeaddrinfo(server);
        close(fd);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    careful = strcmp(how, "careless") != 0;
    if (!strcmp(what, "rename"))
        rename_store();
    if (!strcmp(what, "replace"))
        replace_store();
    if (!strcmp(what, "directory"))
        directory_store();
    if (!strcmp(what, "record"))
        record_store(0);
    if (!strcmp(what, "mapped"))
        record_store(1);
    if (!strcmp(what, "log"))
        log_server(how);
    /* Most failures come while something is under way. */
    if (!strcmp(how, "busy"))
        pause_ms = 0;
    if (!strcmp(what, "client"))
        log_client(strcmp(how, "redis") ? ask : ask_redis);
    return 4;
}
