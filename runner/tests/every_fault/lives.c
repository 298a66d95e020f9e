// A service with a second thread and a worker, which tells of which version it is, whether its root file system is new, how often it was started, what
// its files kept, whether it was asked to end, and when its threads did not run in time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe.h"

enum { FILES = 32, SIZE = 8192, LATE = 200 };

static pthread_mutex_t speaking = PTHREAD_MUTEX_INITIALIZER;

static void tell(const char *attempt, const char *what) {
    pthread_mutex_lock(&speaking);
    say(attempt, what);
    pthread_mutex_unlock(&speaking);
}

static void asked(int signal) {
    (void)signal;
    if (write(STDOUT_FILENO, "life asked\n", 11) == 11) _exit(0);
    _exit(1);
}

// Makes files anew.
static void make(const char *kind, int sync) {
    char name[64], content[SIZE];
    memset(content, 'z', sizeof content);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "/data/%s-%d", kind, i);
        unlink(name);
        int fd = open(name, O_WRONLY | O_CREAT, 0644);
        if (fd < 0 || write(fd, content, sizeof content) != sizeof content) exit(1);
        if (sync && fsync(fd)) exit(1);
        close(fd);
    }
    int directory = open("/data", O_RDONLY | O_DIRECTORY);
    if (sync && fsync(directory)) exit(1);
    close(directory);
}

// Whether all of them are there, and whole.
static void look(const char *kind) {
    char name[64], content[SIZE], whole[SIZE];
    memset(whole, 'z', sizeof whole);
    int kept = 0;
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "/data/%s-%d", kind, i);
        int fd = open(name, O_RDONLY);
        kept += fd >= 0 && read(fd, content, SIZE) == SIZE && !memcmp(content, whole, SIZE);
        if (fd >= 0) close(fd);
    }
    tell(kind, kept == FILES ? "kept" : "lost");
}

// How many lives it has had with this one, by a file that is synced.
static int lives(void) {
    int fd = open("/data/lives", O_RDWR | O_CREAT, 0644), count = 0;
    if (pread(fd, &count, sizeof count, 0) < 0) exit(1);
    count++;
    if (pwrite(fd, &count, sizeof count, 0) != sizeof count || fsync(fd)) exit(1);
    close(fd);
    return count;
}

// Sleeps a little, over and over, and tells when it was much longer.
static void tick(const char *who) {
    long long begin = clock_ms();
    sleep_ms(20);
    tell(who, clock_ms() - begin >= LATE ? "late" : "good");
}

static void *second(void *unused) {
    (void)unused;
    for (;;) tick("second");
    return NULL;
}

static pid_t worker(void) {
    // Nobody else holds the lock at the fork.
    pthread_mutex_lock(&speaking);
    pid_t child = fork();
    pthread_mutex_unlock(&speaking);
    if (child) return child;
    signal(SIGTERM, SIG_DFL);
    // So that the kernel takes it first.
    FILE *score = fopen("/proc/self/oom_score_adj", "w");
    if (score) fprintf(score, "500"), fclose(score);
    for (;;) tick("worker");
}

static int oom_kills(void) {
    char line[64];
    int count = 0;
    FILE *events = fopen("/sys/fs/cgroup/memory.events", "r");
    while (events && fgets(line, sizeof line, events)) sscanf(line, "oom_kill %d", &count);
    if (events) fclose(events);
    return count;
}

static long long work(void) {
    long long begin = clock_ns();
    for (int i = 0; i < 50; i++) syscall(SYS_getppid);
    return clock_ns() - begin;
}

// Whether its root file system is another one than that of its last life.
static void look_at_root(void) {
    const char *mark = "/var/tmp/mark";
    int is_new = access(mark, F_OK) != 0, fd = open(mark, O_WRONLY | O_CREAT, 0644);
    if (fd < 0) exit(1);
    close(fd);
    tell("root", is_new ? "new" : "kept");
}

int main(int argc, char **argv) {
    char life[16];
    signal(SIGTERM, asked);
    tell("version", argc > 1 ? argv[1] : "first");
    look_at_root();
    int count = lives();
    snprintf(life, sizeof life, "%d", count);
    tell("life", life);
    if (count > 1) look("synced"), look("unsynced");
    make("synced", 1);
    make("unsynced", 0);
    long long usual = work();
    pid_t child = worker();
    pthread_t thread;
    pthread_create(&thread, NULL, second, NULL);
    for (;;) {
        int status;
        tick("first");
        tell("work", work() > 3 * usual ? "slow" : "good");
        if (waitpid(child, &status, WNOHANG) == child) {
            tell("child", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? "killed" : "ended");
            tell("memory", oom_kills() ? "out" : "good");
            child = worker();
        }
    }
}
