// The driver: reads cases from standard input and has their operations carried out, one at a time, by actors: processes and
// threads that wait for their turn. Before the next one begins, everything is at rest: each actor waits for its turn, or sleeps in
// its call, or is stopped, or has ended. So what is printed does not depend on who is faster.
#include "guest.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPS 512
#define DIRECTORY "/dev/shm/bloodhound-fuzz"

static const char *ops[OPS];
static int op_count;
static int alone; // in namespaces of our own, so natively
static int lies = -1; // the operation that is answered wrongly, to show that this is seen

static void wait_for(uint32_t *word, uint32_t seen, long nanoseconds)
{
    struct timespec limit = {0, nanoseconds};
    RAW(futex, word, FUTEX_WAIT, seen, nanoseconds ? &limit : 0, 0, 0);
}

// Keeps a result in its slot, or the two descriptors that the call has written to memory in two ("3,4").
static void keep(const char *slot, long result, const struct arguments *args)
{
    const char *second = strchr(slot, ',');
    if (slot[0] < '0' || slot[0] > '9')
        return;
    if (second) {
        int *pair = (int *)args->shown[0].at;
        S->slots[atoi(slot) % SLOTS] = result < 0 ? -1 : pair[0];
        S->slots[atoi(second + 1) % SLOTS] = result < 0 ? -1 : pair[1];
    } else {
        S->slots[atoi(slot) % SLOTS] = result;
    }
}

static void carry_out(int self, const char *op)
{
    struct line line = {0};
    struct arguments args = {.rest = op, .self = self, .free = SCRATCH + self * SCRATCH_SIZE};
    char slot[16], name[32];
    long a[6] = {0}, result;
    word(&args.rest, slot, sizeof slot); // the actor
    word(&args.rest, slot, sizeof slot);
    word(&args.rest, name, sizeof name);
    if (name[0] == '.') {
        if (!special(&line, name, &args, &result))
            put(&line, " unknown");
    } else {
        int number = call_number(name);
        for (int i = 0; i < 6; i++) {
            while (*args.rest == ' ')
                args.rest++;
            if (!*args.rest || *args.rest == '\n' || *args.rest == '#')
                break;
            a[i] = argument(&args);
        }
        if (number == -1)
            put(&line, " unknown");
        S->actors[self].calling = 1;
        result = raw(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        S->actors[self].calling = 0;
    }
    if (S->actors[self].op == lies)
        result ^= 1;
    // What a call has written before it failed with EFAULT is not defined.
    if (result == -EFAULT)
        args.count = 0, S->vague_blocks = 1;
    if (!strcmp(name, "fallocate") || (strstr(name, "write") && result >= 0 && result != a[2]))
        S->vague_blocks = 1;
    // Whether a hole that is read through a mapping costs blocks is a matter of the file system: it does for tmpfs only.
    if (!strcmp(name, "mmap") && a[4] >= 0 && result > 0)
        S->vague_blocks = 1;
    // What was shown on the way comes after the result.
    struct line after = line;
    line.length = 0;
    put_number(&line, S->actors[self].op);
    put(&line, " ");
    put_number(&line, self);
    put(&line, " ");
    put(&line, name);
    put(&line, " = ");
    const char *kind = strchr(slot, ':');
    if (result < 0 && result > -4096)
        put_number(&line, result);
    else if (kind && kind[1] == 'p')
        put_pid(&line, result);
    else if (kind && kind[1] == 'a')
        put_address(&line, result);
    else if (kind && kind[1] == 'i')
        // Equal numbers of different kinds are different objects.
        put_name(&line, "id", &S->ids, result | (long)name[1] << 32);
    else
        put_number(&line, result);
    after.text[after.length] = 0;
    put(&line, after.text);
    for (int i = 0; i < args.count; i++)
        show(&line, &args.shown[i], result);
    keep(slot, result, &args);
    to_log(&line);
}

// Waits for turns, for ever.
void be_actor(int self)
{
    struct actor *me = &S->actors[self];
    acting = 1;
    for (uint32_t seen = 0;; seen++) {
        me->idle = 1;
        while (__atomic_load_n(&me->go, __ATOMIC_SEQ_CST) == seen)
            wait_for(&me->go, seen, 0);
        me->idle = 0;
        carry_out(self, ops[me->op]);
        __atomic_fetch_add(&S->progress, 1, __ATOMIC_SEQ_CST);
        // Set before the driver is woken: what it sees after this is an actor that waits.
        me->idle = 1;
        RAW(futex, &S->progress, FUTEX_WAKE, 1);
    }
}

// What a task does, as /proc tells it: R, S, D, T, Z; 0 if it is gone.
static char state_of(const struct actor *actor)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", actor->pid, actor->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = 0;
    char *end = strrchr(text, ')');
    return end ? end[2] : 0;
}

// Whether a task that is about to sleep still runs: in its call it says that it sleeps before it looks for what it waits for
// (set_current_state), so that nothing is missed. This file of /proc waits until the task is off its processor. Simulated, nobody is
// half asleep.
static int half_asleep(const struct actor *actor)
{
    char path[64], text[8] = {0};
    if (!alone)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", actor->pid, actor->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 && !strncmp(text, "running", 7);
}

// Whether nothing goes on; `states` gets what the actors do: i(dle), b(locked), t (stopped), z (ended).
static int at_rest(char *states)
{
    for (int i = 0; i < ACTORS; i++) {
        const struct actor *actor = &S->actors[i];
        states[i] = '-';
        if (!actor->there)
            continue;
        char state = state_of(actor);
        if (state == 'T' || state == 't')
            states[i] = 't';
        // A thread that has ended is gone soon, and before it is gone its process is not waited for.
        else if (state == 0 || ((state == 'Z' || state == 'X') && actor->pid == actor->tid))
            states[i] = 'z';
        else if (state == 'S' && actor->idle)
            states[i] = 'i';
        else if (state == 'S' && actor->calling && !half_asleep(actor))
            states[i] = 'b';
        else
            return 0;
    }
    return 1;
}

// Waits until nothing goes on; false if that takes too long.
static int settle(char *states)
{
    char again[ACTORS];
    for (int tries = 0; tries < 4000; tries++) {
        uint32_t before = __atomic_load_n(&S->progress, __ATOMIC_SEQ_CST);
        if (at_rest(states) && at_rest(again) && !memcmp(states, again, ACTORS) &&
            before == __atomic_load_n(&S->progress, __ATOMIC_SEQ_CST))
            return 1;
        if (tries < 4)
            sched_yield();
        else
            wait_for(&S->progress, before, tries < 20 ? 50000 : 1000000);
    }
    return 0;
}

static void start_actor(void)
{
    if (fork())
        return;
    setsid();
    struct rlimit files = {1024, 1024}, core = {0, 0};
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_CORE, &core);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    close_range(3, ~0u, 0);
    umask(022);
    drop_capabilities();
    // By hand: libc keeps two of them for itself.
    for (int signal = 1; signal < 65; signal++) {
        unsigned long action[4] = {0};
        RAW(rt_sigaction, signal, action, 0, 8);
    }
    mmap((void *)SCRATCH, ACTORS * SCRATCH_SIZE, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    for (int actor = 0; actor < ACTORS; actor++)
        for (int edge = 0; edge < (int)EDGES; edge++)
            mprotect((void *)(SCRATCH + (actor + 1) * SCRATCH_SIZE - edge * EDGE - 4096), 4096, PROT_NONE);
    S->actors[0].pid = S->actors[0].tid = getpid();
    S->actors[0].there = 1;
    be_actor(0);
}

static void say(const char *what, int op, int actor)
{
    struct line line = {0};
    put_number(&line, op);
    put(&line, " ");
    put_number(&line, actor);
    put(&line, what);
    to_log(&line);
}

static void one_op(int op, char *states)
{
    int actor = ops[op][0] - '0';
    if (actor < 0 || actor >= ACTORS || states[actor] != 'i') {
        say(" does nothing", op, actor);
        return;
    }
    S->actors[actor].op = op;
    S->actors[actor].idle = 0;
    __atomic_fetch_add(&S->actors[actor].go, 1, __ATOMIC_SEQ_CST);
    RAW(futex, &S->actors[actor].go, FUTEX_WAKE, 1);
    char after[ACTORS];
    if (!settle(after)) {
        say(" does not come to rest", op, actor);
        memset(after, 'z', ACTORS);
    }
    for (int i = 0; i < ACTORS; i++) {
        if (after[i] == states[i] || (after[i] == 'i' && states[i] == '-'))
            continue;
        say(after[i] == 'b' ? " sleeps" : after[i] == 't' ? " is stopped" : after[i] == 'z' ? " has ended" : " goes on", op, i);
    }
    memcpy(states, after, ACTORS);
}

static void remove_ids(void)
{
    for (int i = 0; i < S->ids.count; i++) {
        int id = (int)S->ids.of[i];
        RAW(shmctl, id, 0, 0);
        RAW(semctl, id, 0, 0, 0);
        RAW(msgctl, id, 0, 0);
    }
    for (int i = 0; i < 4; i++) {
        char name[8] = {'/', 'q', '0' + i, 0};
        mq_unlink(name);
    }
}

static void end_actors(void)
{
    int status;
    __atomic_store_n(&S->over, 1, __ATOMIC_SEQ_CST);
    // The first actor first: how it ends is shown, and must not depend on what it learns of the end of others.
    for (int i = 0; i < ACTORS; i++)
        if (S->actors[i].there)
            kill(S->actors[i].pid, SIGKILL);
    for (int tries = 0; tries < 2000; tries++) {
        pid_t pid = waitpid(-1, &status, tries ? WNOHANG : 0);
        if (pid < 0 && errno == ECHILD)
            break;
        if (pid > 0 && pid == S->actors[0].pid) {
            struct line line = {0};
            put(&line, "end 0 status ");
            put_hex(&line, status & ~0x80);
            to_log(&line);
        }
        if (pid == 0)
            usleep(100);
    }
}

static int removed(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

// What the last case may have changed outside of its directory.
static void reset_devices(void)
{
    static const char *const paths[] = {"/dev/null", "/dev/zero", "/dev/full"};
    for (int i = 0; i < 3; i++)
        if (chmod(paths[i], 0666) || chown(paths[i], 0, 0))
            errno = 0; // they are mounted read-only
}

static void one_case(const char *title, int title_length)
{
    struct line line = {0};
    char states[ACTORS];
    reset_devices();
    memset(S, 0, offsetof(struct shared, log));
    memset(S->slots, -1, sizeof S->slots);
    if (mkdir(DIRECTORY, 0755) || chdir(DIRECTORY))
        exit(90);
    start_actor();
    // The actor says who it is before it waits.
    while (!__atomic_load_n(&S->actors[0].there, __ATOMIC_SEQ_CST))
        sched_yield();
    settle(states);
    for (int op = 0; op < op_count; op++)
        one_op(op, states);
    end_actors();
    show_tree(&line, ".", 0);
    remove_ids();
    if (chdir("/") || nftw(DIRECTORY, removed, 16, FTW_DEPTH | FTW_PHYS))
        exit(91);
    printf("%.*s\n%.*senough\n", title_length, title, (int)S->logged, S->log);
    fflush(stdout);
}

static char *read_all(void)
{
    size_t length = 0, room = 1 << 16;
    char *text = malloc(room);
    ssize_t got;
    while ((got = read(0, text + length, room - length - 1)) > 0)
        if ((length += got) >= room - 1)
            text = realloc(text, room *= 2);
    text[length] = 0;
    return text;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--private"))
            alone = 1, go_private();
        else if (!strcmp(argv[i], "--lie") && i + 1 < argc)
            lies = atoi(argv[++i]);
    }
    struct utsname name;
    uname(&name);
    if (!alone && !strstr(name.release, "bloodhound")) {
        fputs("cases remove what they can name: natively only with --private\n", stderr);
        return 96;
    }
    if (mmap((void *)SHARED, sizeof *S, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return 92;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    char *title = NULL, *end;
    for (char *at = read_all(); *at; at = end + (*end == '\n')) {
        end = strchrnul(at, '\n');
        if (!strncmp(at, "case", 4)) {
            if (title)
                one_case(title, strcspn(title, "\n"));
            title = at;
            op_count = 0;
        } else if (at[0] >= '0' && at[0] < '0' + ACTORS && op_count < OPS) {
            ops[op_count++] = at;
        }
    }
    if (title)
        one_case(title, strcspn(title, "\n"));
    return 0;
}
