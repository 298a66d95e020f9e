/* A program that takes what it can get of one thing, or of several: memory, processes, files, output, threads, mappings,
 * descriptors, queues. It must never get more than its container has, and never harm what is outside.
 *
 *   exhaust KIND... : each kind in a process of its own, at the same time; the program itself waits for all.
 *   exhaust list    : the names of all kinds.
 *   exhaust mix SEED: some kinds at once, which ones says the seed.
 * A kind ends by itself when it is refused something (the errno is printed), or is killed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static char name[4096];
#define MIB (1ul << 20)

static void refused(const char *what, long count) {
    fprintf(stderr, "%s: %s after %ld\n", what, strerrorname_np(errno), count);
    exit(3);
}

static void more_descriptors(void) {
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

/* Memory. */

static void heap(void) {
    for (long n = 0;; n++) {
        char *p = malloc(MIB);
        if (!p) refused("malloc", n);
        memset(p, 1, MIB);
    }
}

static void sparse(void) {
    for (long n = 0;; n++) {
        char *p = mmap(0, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) refused("mmap", n);
        for (size_t at = 0; at < 64 * MIB; at += 65536) p[at] = 1;
    }
}

static void shared(void) {
    for (long n = 0;; n++) {
        char *p = mmap(0, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) refused("mmap", n);
        memset(p, 1, 8 * MIB);
    }
}

static void segments(void) {
    for (long n = 0;; n++) {
        int id = shmget(IPC_PRIVATE, 4 * MIB, IPC_CREAT | 0600);
        if (id < 0) refused("shmget", n);
        char *p = shmat(id, 0, 0);
        if (p == (void *)-1) refused("shmat", n);
        memset(p, 1, 4 * MIB);
        shmdt(p);
    }
}

static void memfds(void) {
    static char block[MIB];
    memset(block, 1, sizeof block);
    for (long n = 0;; n++) {
        int fd = memfd_create("m", 0);
        if (fd < 0) refused("memfd_create", n);
        for (int i = 0; i < 64; i++)
            if (write(fd, block, sizeof block) != sizeof block) refused("write", n);
    }
}

/* Each child writes what it has from its parent. */
static void copies(void) {
    char *p = mmap(0, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) refused("mmap", 0);
    memset(p, 1, 32 * MIB);
    for (long n = 0;; n++) {
        pid_t pid = fork();
        if (pid < 0) refused("fork", n);
        memset(p, (int)n, 32 * MIB);
        if (pid > 0) for (;;) pause();
    }
}

static int deeper(int n) {
    volatile char frame[65536];
    memset((char *)frame, n, sizeof frame);
    return deeper(n + 1) + frame[0];
}

static void stack(void) {
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_STACK, &most);
    exit(deeper(0));
}

/* Processes and threads. */

static void forks(void) {
    signal(SIGCHLD, SIG_DFL);
    for (long n = 0;; n++)
        if (fork() < 0 && errno != EAGAIN) refused("fork", n);
}

static void zombies(void) {
    for (long n = 0;; n++) {
        pid_t pid = fork();
        if (pid < 0) refused("fork", n);
        if (pid == 0) _exit(0);
    }
}

static void sleepers(void) {
    for (long n = 0;; n++) {
        pid_t pid = fork();
        if (pid < 0) { fprintf(stderr, "fork: after %ld\n", n); for (;;) pause(); }
        if (pid == 0) for (;;) pause();
    }
}

static void programs(void) {
    for (long n = 0; n < 3000; n++) {
        pid_t pid = vfork();
        if (pid < 0) refused("vfork", n);
        if (pid == 0) { execl("/bin/true", "true", (char *)0); _exit(1); }
        if (n % 7) waitpid(pid, 0, 0);
    }
}

static void *waits(void *_) { for (;;) pause(); return _; }

static void threads(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (long n = 0;; n++) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, &attributes, waits, 0))) refused("pthread_create", n);
    }
}

static void orphans(void) {
    for (long n = 0;; n++) {
        pid_t pid = fork();
        if (pid < 0) refused("fork", n);
        if (pid > 0) { if (n) _exit(0); else continue; }
        setsid();
    }
}

/* Files. */

static void file(void) {
    static char block[MIB];
    memset(block, 'f', sizeof block);
    int fd = open("big", O_RDWR | O_CREAT, 0600);
    if (fd < 0) refused("open", 0);
    for (long n = 0;; n++)
        if (write(fd, block, sizeof block) < 0) refused("write", n);
}

static void huge_calls(void) {
    size_t size = 1ul << 30;
    char *p = mmap(0, 8 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) refused("mmap", 0);
    int fd = open("sparse", O_RDWR | O_CREAT, 0600), zero = open("/dev/zero", O_RDONLY);
    if (ftruncate(fd, (off_t)100 << 30)) refused("ftruncate", 0);
    for (long n = 0; n < 20; n++) {
        pwrite(fd, p, size, n * size);
        pread(fd, p + (n % 4) * size, size, n * size);
        read(zero, p + 4 * size + (n % 4) * size, size);
        write(1, p, size);
        process_vm_readv(getpid(), &(struct iovec){p + 5 * size, size}, 1, &(struct iovec){p, size}, 1, 0);
    }
}

static void scattered(void) {
    int fd = open("scattered", O_RDWR | O_CREAT, 0600);
    for (long n = 0;; n++)
        if (pwrite(fd, "x", 1, n * 65536) < 0) refused("pwrite", n);
}

static void small_files(void) {
    for (long n = 0;; n++) {
        sprintf(name, "small-%ld", n);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (fd < 0) refused("open", n);
        if (write(fd, name, 9) < 0) refused("write", n);
        close(fd);
    }
}

static void directories(void) {
    for (long n = 0;; n++) {
        if (mkdir("d", 0700) && errno != EEXIST) refused("mkdir", n);
        if (chdir("d")) refused("chdir", n);
    }
}

static void links(void) {
    close(open("target", O_CREAT | O_WRONLY, 0600));
    for (long n = 0;; n++) {
        sprintf(name, "hard-%ld", n);
        if (link("target", name) && errno != EMLINK) refused("link", n);
        memset(name, 'l', 4000);
        sprintf(name + 4000, "%ld", n);
        char path[64];
        sprintf(path, "soft-%ld", n);
        if (symlink(name, path)) refused("symlink", n);
        if (errno == EMLINK) errno = 0;
    }
}

static void attributes(void) {
    static char value[60000];
    for (long n = 0;; n++) {
        sprintf(name, "with-%ld", n);
        close(open(name, O_CREAT | O_WRONLY, 0600));
        for (int i = 0; i < 8; i++) {
            char key[32];
            sprintf(key, "user.%d", i);
            if (setxattr(name, key, value, sizeof value, 0)) { if (!i) refused("setxattr", n); break; }
        }
    }
}

static void allocated(void) {
    int fd = open("allocated", O_RDWR | O_CREAT, 0600);
    for (long n = 0;; n++)
        if (posix_fallocate(fd, n << 30, 1 << 30)) refused("fallocate", n);
}

static void shm_files(void) {
    static char block[MIB];
    memset(block, 's', sizeof block);
    int fd = open("/dev/shm/big", O_RDWR | O_CREAT, 0600);
    for (long n = 0;; n++)
        if (write(fd, block, sizeof block) < 0) refused("write", n);
}

static void storms(void) {
    for (long n = 0; n < 200000; n++) {
        char from[32], to[32];
        sprintf(from, "s-%ld", n % 100);
        sprintf(to, "t-%ld", (n * 7) % 100);
        close(open(from, O_CREAT | O_WRONLY, 0600));
        rename(from, to);
        if (n % 3 == 0) unlink(to);
    }
}

/* Output. */

static void yes(void) { for (;;) if (write(1, "y\n", 2) < 0) refused("write", 0); }

static void shout(void) {
    static char block[MIB];
    for (size_t i = 0; i < sizeof block; i++) block[i] = i % 80 ? 'a' + i % 26 : '\n';
    for (;;) if (write(2, block, sizeof block) < 0) refused("write", 0);
}

static void one_line(void) {
    static char block[65536];
    memset(block, 'x', sizeof block);
    for (;;) if (write(1, block, sizeof block) < 0) refused("write", 0);
}

/* Mappings. */

static void mappings(void) {
    for (long n = 0;; n++)
        if (mmap(0, 4096, n % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            refused("mmap", n);
}

static void splits(void) {
    size_t size = 1ul << 30;
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; at < size; at += 8192)
        if (mprotect(p + at, 4096, PROT_NONE)) refused("mprotect", at / 8192);
}

static void address_space(void) {
    for (long n = 0;; n++)
        if (mmap(0, 1ul << 38, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
            refused("mmap", n);
}

static void many_spaces(void) {
    for (long n = 0; n < 4000; n++) {
        pid_t pid = fork();
        if (pid < 0) refused("fork", n);
        if (pid == 0) {
            for (int i = 0; i < 50; i++) {
                char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (p != MAP_FAILED) *p = 1;
                usleep(1000);
            }
            for (;;) sleep(1);
        }
    }
    for (;;) sleep(1);
}

#include "objects.h"

/* Queues of the kernel. */

static void signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    for (long n = 0;; n++)
        if (sigqueue(getpid(), SIGRTMIN, (union sigval){0})) refused("sigqueue", n);
}

static void timers(void) {
    for (long n = 0;; n++) {
        timer_t timer;
        struct sigevent none = {.sigev_notify = SIGEV_NONE};
        if (timer_create(CLOCK_MONOTONIC, &none, &timer)) refused("timer_create", n);
        struct itimerspec soon = {{0, 1000}, {0, 1000}};
        timer_settime(timer, 0, &soon, 0);
    }
}

static void messages(void) {
    struct { long type; char text[8000]; } message = {1, {0}};
    for (long n = 0;; n++) {
        int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        if (queue < 0) refused("msgget", n);
        while (!msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT)) {}
    }
}

static void semaphores(void) {
    for (long n = 0;; n++)
        if (semget(IPC_PRIVATE, 250, IPC_CREAT | 0600) < 0) refused("semget", n);
}

static void queues(void) {
    more_descriptors();
    static char text[8192];
    for (long n = 0;; n++) {
        sprintf(name, "/q-%ld", n);
        mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, 0);
        if (queue == (mqd_t)-1) refused("mq_open", n);
        while (!mq_send(queue, text, sizeof text, 0)) {}
    }
}

static void arguments(void) {
    static char *many[40000];
    char *word = malloc(100000);
    memset(word, 'w', 99999);
    word[99999] = 0;
    many[0] = "true";
    for (int i = 1; i < 15; i++) many[i] = word;
    for (long n = 0; n < 300; n++) {
        pid_t pid = fork();
        if (pid < 0) refused("fork", n);
        if (pid == 0) { execv("/bin/true", many); _exit(errno == E2BIG ? 0 : 1); }
        if (n % 10) waitpid(pid, 0, 0);
    }
}

static void kills(void) {
    signal(SIGTERM, SIG_IGN);
    for (long n = 0; n < 10000; n++) { kill(-1, SIGTERM); kill(1, SIGTERM); kill(getppid(), SIGCONT); }
}

static void spins(void) { for (volatile unsigned long n = 0;; n++) {} }

static void yields(void) { for (long n = 0; n < 500000; n++) sched_yield(); }

#define KIND(f) {#f, f}
static const struct { const char *name; void (*run)(void); } KINDS[] = {
    KIND(heap), KIND(sparse), KIND(shared), KIND(segments), KIND(memfds), KIND(copies), KIND(stack),
    KIND(forks), KIND(zombies), KIND(sleepers), KIND(programs), KIND(threads), KIND(orphans),
    KIND(file), KIND(huge_calls), KIND(scattered), KIND(small_files), KIND(directories), KIND(links), KIND(attributes),
    KIND(allocated), KIND(shm_files), KIND(storms),
    KIND(yes), KIND(shout), KIND(one_line),
    KIND(mappings), KIND(splits), KIND(address_space), KIND(many_spaces),
    KIND(descriptors), KIND(pipes), KIND(socket_pairs), KIND(passed), KIND(connections), KIND(datagrams), KIND(epolls),
    KIND(watches), KIND(locks), KIND(many_locks), KIND(polled), KIND(terminals), KIND(in_flight), KIND(cycles),
    KIND(abandoned), KIND(crumbs), KIND(shm_names), KIND(disk_names), KIND(shm_attributes), KIND(herd),
    KIND(signals), KIND(timers), KIND(messages), KIND(semaphores), KIND(queues), KIND(arguments), KIND(kills), KIND(spins),
    KIND(yields),
};
#define COUNT (sizeof KINDS / sizeof *KINDS)

/* Two to five kinds at once, which ones says the seed. */
static void mix(unsigned long seed) {
    unsigned long state = seed * 6364136223846793005ul + 1442695040888963407ul;
#define DRAW(below) ((state = state * 6364136223846793005ul + 1442695040888963407ul) >> 33) % (below)
    int count = 2 + DRAW(4);
    for (int i = 0; i < count; i++) {
        size_t kind = DRAW(COUNT);
        unsigned later = DRAW(3) * 1000;
        fprintf(stderr, "mix %lu: %s\n", seed, KINDS[kind].name);
        if (fork() == 0) { usleep(later); KINDS[kind].run(); _exit(0); }
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "mix")) mix(strtoul(argv[2], 0, 10));
    else for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "list")) for (size_t k = 0; k < COUNT; k++) puts(KINDS[k].name);
        for (size_t k = 0; k < COUNT; k++) {
            if (strcmp(argv[i], KINDS[k].name)) continue;
            if (argc == 2) { KINDS[k].run(); return 0; }
            if (fork() == 0) { KINDS[k].run(); _exit(0); }
        }
    }
    while (wait(0) > 0 || errno == EINTR) {}
    return 0;
}
