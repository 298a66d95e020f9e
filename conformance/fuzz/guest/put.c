// Text for the log: numbers, bytes, and the names that stand for what differs from machine to machine.
#include "guest.h"

void put(struct line *line, const char *text)
{
    while (*text && line->length < (int)sizeof line->text - 2)
        line->text[line->length++] = *text++;
}

void put_number(struct line *line, long number)
{
    char digits[24];
    int at = sizeof digits - 1;
    unsigned long rest = number < 0 ? -(unsigned long)number : (unsigned long)number;
    digits[at] = 0;
    do
        digits[--at] = '0' + rest % 10;
    while (rest /= 10);
    if (number < 0)
        digits[--at] = '-';
    put(line, digits + at);
}

void put_hex(struct line *line, unsigned long number)
{
    char digits[20];
    int at = sizeof digits - 1;
    digits[at] = 0;
    do
        digits[--at] = "0123456789abcdef"[number & 15];
    while (number >>= 4);
    put(line, "0x");
    put(line, digits + at);
}

static void put_byte(struct line *line, unsigned char byte)
{
    char two[3] = {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15], 0};
    put(line, two);
}

// Runs of a byte are written as hh*n; of what is long, only the beginning and a hash.
void put_bytes(struct line *line, const unsigned char *bytes, long length)
{
    uint64_t hash = 0xcbf29ce484222325;
    int shown = 0;
    for (long i = 0; i < length;) {
        long run = 1;
        while (i + run < length && bytes[i + run] == bytes[i])
            run++;
        if (shown < 48) {
            put_byte(line, bytes[i]);
            if (run > 2) {
                put(line, "*");
                put_number(line, run);
                put(line, ".");
            } else {
                run = 1;
            }
            shown++;
        }
        for (long k = 0; k < run; k++)
            hash = (hash ^ bytes[i + k]) * 0x100000001b3;
        i += run;
    }
    if (shown >= 48) {
        put(line, "..#");
        put_hex(line, hash);
    }
}

void put_name(struct line *line, const char *kind, struct names *names, long value)
{
    int i = 0;
    while (i < names->count && names->of[i] != value)
        i++;
    if (i == names->count && i < NAMES)
        names->of[names->count++] = value;
    put(line, kind);
    put_number(line, i);
}

void put_address(struct line *line, unsigned long address)
{
    if (address >= ARENA && address <= ARENA + ARENA_SIZE) {
        put(line, "@");
        put_hex(line, address - ARENA);
    } else if (address >= SCRATCH && address < SCRATCH + ACTORS * SCRATCH_SIZE) {
        put(line, "scratch");
    } else if (address < 0x10000) {
        put_hex(line, address);
    } else if (address >= 0x800000000000) {
        put(line, "wild");
    } else {
        put_name(line, "addr", &S->addresses, (long)address);
    }
}

void put_pid(struct line *line, long pid)
{
    if (pid <= 0) {
        put_number(line, pid);
        return;
    }
    for (int i = 0; i < ACTORS; i++)
        if (S->actors[i].there && S->actors[i].tid == pid) {
            put(line, "p");
            put_number(line, i);
            return;
        }
    put_name(line, "pid", &S->pids, pid);
}

int acting;

void to_log(struct line *line)
{
    if (acting && __atomic_load_n(&S->over, __ATOMIC_SEQ_CST)) {
        line->length = 0;
        return;
    }
    line->text[line->length++] = '\n';
    uint32_t at = __atomic_fetch_add(&S->logged, line->length, __ATOMIC_SEQ_CST);
    for (int i = 0; i < line->length && at + i < sizeof S->log; i++)
        S->log[at + i] = line->text[i];
    line->length = 0;
}
