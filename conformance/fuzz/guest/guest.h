// What the parts of the guest share. The guest reads cases (docs/fuzzing.md), carries their operations out, and prints what
// each has answered. Operations use no libc, because they run in threads and children of all kinds, also with a broken
// address space; so calls are made by hand and errors stay negative numbers.
#pragma once
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#define ACTORS 8
#define SLOTS 64
#define NAMES 128

// Fixed addresses: what lies below them is the same in every process of a case, natively and simulated.
#define ARENA 0x10000000000ul
#define ARENA_SIZE (64ul << 20)
#define SCRATCH 0x20000000000ul
#define SCRATCH_SIZE (4ul << 20)
#define SHARED 0x30000000000ul
#define EDGE 16384ul
#define EDGES 4

struct actor {
    uint32_t go;      // counts what the driver has asked for
    uint32_t idle;    // it waits for the driver
    uint32_t calling; // it is within an operation's call
    uint32_t there;   // it was made
    int pid, tid, op;
    unsigned long kept; // bytes of scratch memory that stay as they are
};

struct names {
    long of[NAMES];
    int count;
};

struct shared {
    uint32_t progress; // grows with everything that an actor completes
    struct actor actors[ACTORS];
    long slots[SLOTS];
    struct names pids, inodes, addresses, ids, ports, cookies;
    // Pages that a call has made before it failed with EFAULT may be there or not, and Bloodhound does not count what
    // fallocate(2) reserves: blocks are shown no more.
    uint32_t vague_blocks;
    // The case is over: who is told that another one was ended has nothing more to say.
    uint32_t over;
    uint32_t logged;
    char log[2 << 20];
};

#define S ((struct shared *)SHARED)

static inline long raw(long n, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define RAW(name, ...) RAW_(SYS_##name, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define RAW_(n, a, b, c, d, e, f, ...) raw(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

// A line that is being written; it goes to the log as a whole.
struct line {
    int length;
    char text[4096];
};

void put(struct line *line, const char *text);
void put_number(struct line *line, long number);
void put_hex(struct line *line, unsigned long number);
void put_bytes(struct line *line, const unsigned char *bytes, long length);
void put_name(struct line *line, const char *kind, struct names *names, long value);
void put_address(struct line *line, unsigned long address);
void put_pid(struct line *line, long pid);
void to_log(struct line *line);
// Whether this process is an actor.
extern int acting;

// What is to be shown of memory after the call.
struct shown {
    unsigned char *at;
    long size;
    char format[12];
};

struct arguments {
    const char *rest;
    int self;
    unsigned long free; // next byte of scratch memory
    int edges;
    int keep; // memory is taken from what later operations leave as it is
    struct shown shown[16];
    int count;
};

int word(const char **rest, char *into, int size);
long argument(struct arguments *args);
void show(struct line *line, const struct shown *shown, long result);
void show_siginfo(struct line *line, const void *info);
int call_number(const char *name);
int special(struct line *line, const char *name, struct arguments *args, long *result);
void show_tree(struct line *line, const char *path, int depth);
void plain_handler(int signal);
void handler(int signal, void *info, void *context);
void restorer(void);
void be_actor(int self) __attribute__((noreturn));
int myself(void);
void go_private(void);
void drop_capabilities(void);
