// Operations that are no calls: actors, touching memory, looking at what there is.
#include "guest.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

// One byte of memory is read or written by an instruction that a handler can step over.
long touch_read(unsigned long at);
long touch_write(unsigned long at, long byte);
extern char touch_reads[], touch_writes[], touch_recovers[];
__asm__(".text\n"
        ".globl touch_read, touch_write, touch_reads, touch_writes, touch_recovers\n"
        "touch_read: touch_reads: movzbl (%rdi), %eax\n ret\n"
        "touch_write: touch_writes: movb %sil, (%rdi)\n xorl %eax, %eax\n ret\n"
        "touch_recovers: movq $-999, %rax\n ret\n"
        ".globl restorer\n"
        "restorer: movl $15, %eax\n syscall\n");

int myself(void)
{
    int tid = RAW(gettid);
    for (int i = 0; i < ACTORS; i++)
        if (S->actors[i].tid == tid)
            return i;
    return -1;
}

// Of a handler without SA_SIGINFO: there is nothing to look at.
void plain_handler(int signal)
{
    struct line line = {0};
    put(&line, "  ");
    put_number(&line, myself());
    put(&line, " handler ");
    put_number(&line, signal);
    to_log(&line);
    __atomic_fetch_add(&S->progress, 1, __ATOMIC_SEQ_CST);
}

void handler(int signal, void *info, void *context)
{
    struct line line = {0};
    ucontext_t *user = context;
    int self = myself();
    put(&line, "  ");
    put_number(&line, self);
    put(&line, " handler ");
    put_number(&line, signal);
    put(&line, ": ");
    show_siginfo(&line, info);
    put(&line, " mask ");
    put_hex(&line, *(unsigned long *)&user->uc_sigmask);
    unsigned long here = (unsigned long)&line;
    if (here >= ARENA && here < ARENA + ARENA_SIZE)
        put(&line, " in arena");
    to_log(&line);
    greg_t *ip = &user->uc_mcontext.gregs[REG_RIP];
    if ((signal == SIGSEGV || signal == SIGBUS) && (*ip == (greg_t)touch_reads || *ip == (greg_t)touch_writes))
        *ip = (greg_t)touch_recovers;
    __atomic_fetch_add(&S->progress, 1, __ATOMIC_SEQ_CST);
}

static long make_actor(int actor, long flags, int thread)
{
    if (actor < 1 || actor >= ACTORS || S->actors[actor].there)
        return -1000;
    unsigned long stack = SCRATCH + actor * SCRATCH_SIZE + SCRATCH_SIZE / 2;
    S->actors[actor].idle = 0;
    S->actors[actor].calling = 0;
    if (thread)
        flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    else
        flags |= SIGCHLD;
    long result;
    if (!thread) {
        result = RAW(clone, flags, 0);
        if (!result) {
            S->actors[actor].tid = RAW(gettid);
            S->actors[actor].pid = RAW(getpid);
            be_actor(actor);
        }
    } else {
        // The thread begins with its number on its stack.
        stack = (stack & ~15ul) - 16;
        *(long *)stack = actor;
        register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
        __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n"
                         "xorl %%ebp, %%ebp\n popq %%rdi\n subq $8, %%rsp\n andq $-16, %%rsp\n call begin_thread\n hlt\n"
                         "1:"
                         : "=a"(result)
                         : "0"((long)SYS_clone), "D"(flags), "S"(stack), "d"(0l), "r"(r10), "r"(r8)
                         : "rcx", "r11", "memory");
    }
    if (result > 0) {
        S->actors[actor].pid = thread ? RAW(getpid) : result;
        S->actors[actor].tid = result;
        S->actors[actor].there = 1;
        return actor;
    }
    return result;
}

__attribute__((used, noreturn)) void begin_thread(long actor)
{
    S->actors[actor].tid = RAW(gettid);
    be_actor(actor);
}

static long open_read(const char *path, char *into, long size)
{
    long fd = RAW(open, path, O_RDONLY, 0), length = 0, got;
    if (fd < 0)
        return fd;
    while (length < size - 1 && (got = RAW(read, fd, into + length, size - 1 - length)) > 0)
        length += got;
    RAW(close, fd);
    into[length] = 0;
    return length;
}

// /proc/self/maps of the arena: where, rights, sharing, offset.
static void show_maps(struct line *line)
{
    static char text[65536];
    open_read("/proc/self/maps", text, sizeof text);
    for (char *at = text; *at;) {
        unsigned long from = 0, to = 0;
        for (; *at && *at != '-'; at++)
            from = from * 16 + (*at >= 'a' ? *at - 'a' + 10 : *at - '0');
        for (at++; *at && *at != ' '; at++)
            to = to * 16 + (*at >= 'a' ? *at - 'a' + 10 : *at - '0');
        char rest[20] = {0};
        for (int i = 0; i < 19 && at[i] && at[i] != '\n'; i++)
            rest[i] = at[i];
        if (from >= ARENA && to <= ARENA + ARENA_SIZE) {
            rest[14] = 0;
            put(line, " {");
            put_hex(line, from - ARENA);
            put(line, "-");
            put_hex(line, to - ARENA);
            put(line, rest);
            put(line, "}");
        }
        while (*at && *at != '\n')
            at++;
        at += *at == '\n';
    }
}

static void show_fds(struct line *line)
{
    for (int fd = 0; fd < 64; fd++) {
        long flags = RAW(fcntl, fd, F_GETFL);
        if (flags < 0)
            continue;
        put(line, " {");
        put_number(line, fd);
        put(line, " fl ");
        put_hex(line, flags);
        put(line, " fd ");
        put_number(line, RAW(fcntl, fd, F_GETFD));
        put(line, " at ");
        put_number(line, RAW(lseek, fd, 0, SEEK_CUR));
        put(line, "}");
    }
}

// Lines of /proc/self/status that speak of signals.
static void show_signals(struct line *line)
{
    static char text[8192];
    open_read("/proc/self/status", text, sizeof text);
    for (char *at = text; *at; at += *at == '\n') {
        int wanted = (at[0] == 'S' && (at[3] == 'P' || at[3] == 'B' || at[3] == 'I' || at[3] == 'C' || at[3] == 'd')) &&
                     (at[1] == 'i' || at[1] == 'h') && (at[2] == 'g' || at[2] == 'd');
        char one[2] = {0};
        if (wanted)
            put(line, " ");
        for (; *at && *at != '\n'; at++)
            if (wanted && *at != '\t')
                one[0] = *at, put(line, one);
    }
}

int special(struct line *line, const char *name, struct arguments *args, long *result)
{
    *result = 0;
    if (same(name, ".fork") || same(name, ".thread")) {
        int actor = argument(args);
        *result = make_actor(actor, argument(args), same(name, ".thread"));
    } else if (same(name, ".vfork")) {
        long code = argument(args);
        *result = RAW(vfork);
        if (!*result)
            RAW(exit_group, code);
        // The parent goes on when the child has let go of its memory, which may be before its end can be waited for.
        while (*result > 0 && RAW(waitid, P_PID, *result, NULL, WEXITED | WNOWAIT, NULL) == -EINTR)
            ;
    } else if (same(name, ".peek")) {
        *result = touch_read(argument(args));
    } else if (same(name, ".poke")) {
        unsigned long at = argument(args);
        *result = touch_write(at, argument(args));
    } else if (same(name, ".maps")) {
        show_maps(line);
    } else if (same(name, ".fds")) {
        show_fds(line);
    } else if (same(name, ".signals")) {
        show_signals(line);
    } else {
        return 0;
    }
    return 1;
}

struct entry {
    unsigned long ino;
    long off;
    unsigned short length;
    unsigned char type;
    char name[];
};

static int before(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a < (unsigned char)*b;
}

static void show_content(struct line *line, const char *path, const struct stat *st)
{
    static char text[1 << 20];
    if (S_ISREG(st->st_mode)) {
        long length = open_read(path, text, sizeof text);
        put(line, " content ");
        put_bytes(line, (void *)text, length > 0 ? length : 0);
    } else if (S_ISLNK(st->st_mode)) {
        long length = RAW(readlink, path, text, 4096);
        put(line, " -> ");
        put_bytes(line, (void *)text, length > 0 ? length : 0);
    }
}

// The whole directory of the case, in the order of names.
void show_tree(struct line *line, const char *path, int depth)
{
    static char buffers[6][32768];
    static char paths[6][4096];
    struct entry *list[256];
    int count = 0;
    long fd = RAW(open, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || depth >= 5)
        return;
    long got = RAW(getdents64, fd, buffers[depth], sizeof buffers[0]);
    RAW(close, fd);
    for (long at = 0; at < got;) {
        struct entry *entry = (void *)(buffers[depth] + at);
        at += entry->length;
        if (entry->name[0] == '.' && (!entry->name[1] || (entry->name[1] == '.' && !entry->name[2])))
            continue;
        int place = count < 255 ? count++ : 255;
        for (; place && before(entry->name, list[place - 1]->name); place--)
            list[place] = list[place - 1];
        list[place] = entry;
    }
    for (int i = 0; i < count; i++) {
        struct stat st = {0};
        struct shown shown = {(void *)&st, sizeof st, "stat"};
        char *full = paths[depth];
        int length = 0;
        for (const char *from = path; *from && length < 3800; from++)
            full[length++] = *from;
        full[length++] = '/';
        for (const char *from = list[i]->name; *from && length < 4090; from++)
            full[length++] = *from;
        full[length] = 0;
        RAW(lstat, full, &st);
        put(line, "tree ");
        put_bytes(line, (void *)full, 0);
        put(line, full);
        show(line, &shown, 0);
        put(line, " type ");
        put_number(line, list[i]->type);
        show_content(line, full, &st);
        to_log(line);
        if (S_ISDIR(st.st_mode))
            show_tree(line, full, depth + 1);
    }
}
