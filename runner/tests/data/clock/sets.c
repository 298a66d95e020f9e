// Sets the clock of its machine, so it runs in simulations only, which say so by SIMULATED in its environment.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define SEC 1000000000LL
#define CHECK(what) do { if (!(what)) { printf("%d: %s\n", __LINE__, #what); exit(1); } } while (0)

static long long now(int clock) {
    struct timespec t;
    CHECK(!clock_gettime(clock, &t));
    return t.tv_sec * SEC + t.tv_nsec;
}

static struct timespec at(long long ns) { return (struct timespec){ns / SEC, ns % SEC}; }

static void set(long long ns) {
    struct timespec t = at(ns);
    CHECK(!clock_settime(CLOCK_REALTIME, &t));
}

static void step(long long by) { set(now(CLOCK_REALTIME) + by); }

static int close_to(long long a, long long b) { return llabs(a - b) < SEC / 50; }

// A wait in a thread: how it is made, and how long it took by CLOCK_MONOTONIC.
struct wait { void (*how)(long long); long long by, took; };

static void *waits(void *p) {
    struct wait *wait = p;
    long long begin = now(CLOCK_MONOTONIC);
    wait->how(wait->by);
    wait->took = now(CLOCK_MONOTONIC) - begin;
    return NULL;
}

static void until_real(long long by) {
    struct timespec t = at(now(CLOCK_REALTIME) + by);
    CHECK(!clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL));
}

static void until_mono(long long by) {
    struct timespec t = at(now(CLOCK_MONOTONIC) + by);
    CHECK(!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
}

static void period(long long by) {
    struct timespec t = at(by);
    CHECK(!clock_nanosleep(CLOCK_REALTIME, 0, &t, NULL));
}

static void condition(long long by) {
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    struct timespec t = at(now(CLOCK_REALTIME) + by);
    pthread_mutex_lock(&m);
    CHECK(pthread_cond_timedwait(&c, &m, &t) == ETIMEDOUT);
}

static void semaphore(long long by) {
    sem_t s;
    struct timespec t = at(now(CLOCK_REALTIME) + by);
    sem_init(&s, 0, 0);
    CHECK(sem_timedwait(&s, &t) == -1 && errno == ETIMEDOUT);
}

static void queue(long long by) {
    char name[32], text[8192];
    snprintf(name, sizeof name, "/clock-%d", getpid());
    mqd_t q = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
    struct timespec t = at(now(CLOCK_REALTIME) + by);
    CHECK(q != -1 && mq_timedreceive(q, text, sizeof text, NULL, &t) == -1 && errno == ETIMEDOUT);
    mq_close(q), mq_unlink(name);
}

// How long a wait for ten seconds takes if the clock is set by so much after one second.
static long long took(void (*how)(long long), long long set_by) {
    struct wait wait = {how, 10 * SEC, 0};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, waits, &wait));
    sleep(1);
    step(set_by);
    pthread_join(thread, NULL);
    return wait.took;
}

static void deadlines(void) {
    void (*follow[])(long long) = {until_real, condition, semaphore, queue};
    for (int i = 0; i < 4; i++) {
        CHECK(close_to(took(follow[i], 60 * SEC), SEC));
        CHECK(close_to(took(follow[i], 4 * SEC), 6 * SEC));
        CHECK(close_to(took(follow[i], -5 * SEC), 15 * SEC));
    }
    void (*stay[])(long long) = {until_mono, period};
    for (int i = 0; i < 2; i++) {
        CHECK(close_to(took(stay[i], 60 * SEC), 10 * SEC));
        CHECK(close_to(took(stay[i], -5 * SEC), 10 * SEC));
    }
    puts("deadlines");
}

static void timers(void) {
    int fd = timerfd_create(CLOCK_REALTIME, 0), mono = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec spec = {.it_value = at(now(CLOCK_REALTIME) + 100 * SEC)}, zero = {0};
    unsigned long long n;
    CHECK(!timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &spec, NULL));
    spec.it_value = at(now(CLOCK_MONOTONIC) + 100 * SEC);
    CHECK(!timerfd_settime(mono, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &spec, NULL));
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 0);
    step(-SEC);
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
    CHECK(read(fd, &n, 8) == -1 && errno == ECANCELED);
    CHECK(poll(&p, 1, 0) == 0);
    CHECK(read(mono, &n, 8) == -1 && errno == EAGAIN);
    step(SEC);
    CHECK(read(fd, &n, 8) == -1 && errno == ECANCELED);
    CHECK(!timerfd_settime(fd, 0, &zero, NULL));
    // A period of a second, from ten seconds on: it is there six times when the clock goes forward by fifteen.
    spec = (struct itimerspec){.it_interval = at(SEC), .it_value = at(now(CLOCK_REALTIME) + 10 * SEC)};
    CHECK(!timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL));
    step(15 * SEC);
    CHECK(read(fd, &n, 8) == 8 && n == 6);
    // "[...] relative timers are unaffected by discontinuous changes in the clock" (timer_settime(2)).
    spec = (struct itimerspec){.it_value = at(2 * SEC)};
    long long begin = now(CLOCK_MONOTONIC);
    CHECK(!timerfd_settime(fd, 0, &spec, NULL));
    step(60 * SEC);
    CHECK(read(fd, &n, 8) == 8 && close_to(now(CLOCK_MONOTONIC) - begin, 2 * SEC));
    timer_t id;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    CHECK(!timer_create(CLOCK_REALTIME, &event, &id));
    spec.it_value = at(now(CLOCK_REALTIME) + 50 * SEC);
    CHECK(!timer_settime(id, TIMER_ABSTIME, &spec, NULL));
    step(-25 * SEC);
    CHECK(!timer_gettime(id, &spec) && spec.it_value.tv_sec == 74);
    puts("timers");
}

static void everywhere(void) {
    long long mono = now(CLOCK_MONOTONIC);
    set(1800000000 * SEC);
    CHECK(close_to(now(CLOCK_MONOTONIC), mono));
    struct timespec t;
    struct timeval tv;
    CHECK(!syscall(SYS_clock_gettime, CLOCK_REALTIME, &t) && t.tv_sec == 1800000000);
    CHECK(!gettimeofday(&tv, NULL) && tv.tv_sec == 1800000000 && time(NULL) == 1800000000);
    CHECK(now(CLOCK_REALTIME_COARSE) / SEC >= 1799999999 && now(CLOCK_TAI) / SEC == 1800000000);
    struct stat st;
    int fd = open("/tmp/made", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && !fstat(fd, &st) && st.st_mtim.tv_sec == 1800000000);
    int pair[2], on = 1;
    CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    CHECK(!setsockopt(pair[1], SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) && write(pair[0], "x", 1) == 1);
    char control[64], byte;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(pair[1], &msg, 0) == 1 && CMSG_FIRSTHDR(&msg));
    memcpy(&tv, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof tv);
    CHECK(tv.tv_sec == 1800000000);
    t = at(1000 * SEC);
    CHECK(clock_settime(CLOCK_REALTIME, &t) == -1 && errno == EINVAL);
    t = at(-SEC);
    CHECK(clock_settime(CLOCK_REALTIME, &t) == -1 && errno == EINVAL);
    CHECK(clock_settime(CLOCK_MONOTONIC, &t) == -1 && errno == EINVAL);
    puts("everywhere");
}

static void leap(void) {
    // 2026-12-31T23:59:58.5Z
    set(1798761598LL * SEC + SEC / 2);
    struct timex tx = {.modes = ADJ_STATUS, .status = STA_PLL | STA_INS};
    CHECK(adjtimex(&tx) == TIME_INS && tx.tai == 0);
    long long mono = now(CLOCK_MONOTONIC), tai = now(CLOCK_TAI);
    sleep(2);
    memset(&tx, 0, sizeof tx);
    CHECK(adjtimex(&tx) == TIME_OOP && tx.tai == 1 && tx.time.tv_sec == 1798761599);
    CHECK(now(CLOCK_REALTIME) / SEC == 1798761599);
    CHECK(close_to(now(CLOCK_TAI) - tai, now(CLOCK_MONOTONIC) - mono));
    sleep(1);
    CHECK(adjtimex(&tx) == TIME_WAIT && now(CLOCK_REALTIME) / SEC == 1798761600);
    tx = (struct timex){.modes = ADJ_SETOFFSET | ADJ_NANO, .time = {-2, SEC / 2}};
    long long real = now(CLOCK_REALTIME);
    CHECK(adjtimex(&tx) == TIME_WAIT && close_to(now(CLOCK_REALTIME), real - 3 * SEC / 2));
    puts("leap");
}

int main(void) {
    if (!getenv("SIMULATED")) return 77;
    deadlines();
    timers();
    everywhere();
    leap();
    return 0;
}
