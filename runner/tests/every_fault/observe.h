// What the programs of this directory share: each tells by `say` what one of its attempts has come to, whenever that is something else than
// the time before.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static inline long long clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline long long clock_ms(void) { return clock_ns() / 1000000; }

static inline void sleep_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&t, &t)) {}
}

// The name of the error that the last call has left.
static inline const char *error_name(void) {
    switch (errno) {
    case EIO: return "EIO";
    case ENOSPC: return "ENOSPC";
    case EROFS: return "EROFS";
    case EDQUOT: return "EDQUOT";
    case ENOENT: return "ENOENT";
    case ENFILE: return "ENFILE";
    case EMFILE: return "EMFILE";
    case ENOMEM: return "ENOMEM";
    case EAGAIN: return "EAGAIN";
    case EADDRNOTAVAIL: return "EADDRNOTAVAIL";
    case EADDRINUSE: return "EADDRINUSE";
    case ECONNRESET: return "ECONNRESET";
    case ECONNREFUSED: return "ECONNREFUSED";
    case ECONNABORTED: return "ECONNABORTED";
    case EPIPE: return "EPIPE";
    case EPERM: return "EPERM";
    case ENOTCONN: return "ENOTCONN";
    case ETIMEDOUT: return "ETIMEDOUT";
    default: return strerror(errno);
    }
}

// Tells what became of an attempt, unless it is what became of it the time before.
static inline void say(const char *attempt, const char *what) {
    static struct { const char *attempt; char what[32]; } last[32];
    int at = 0;
    while (at < 31 && last[at].attempt && strcmp(last[at].attempt, attempt)) at++;
    if (last[at].attempt && !strcmp(last[at].what, what)) return;
    last[at].attempt = attempt;
    snprintf(last[at].what, sizeof last[at].what, "%s", what);
    printf("%s %s\n", attempt, what);
    fflush(stdout);
}

// The same, for a call that is good if it has not failed.
static inline void say_if(const char *attempt, int good) { say(attempt, good ? "good" : error_name()); }
