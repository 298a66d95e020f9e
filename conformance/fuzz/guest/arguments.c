// Arguments of operations: numbers, and memory that is made for the call.
#include "guest.h"

static void spaces(const char **rest)
{
    while (**rest == ' ')
        ++*rest;
}

int word(const char **rest, char *into, int size)
{
    int length = 0;
    spaces(rest);
    while (**rest && **rest != ' ' && **rest != '\n' && length < size - 1)
        into[length++] = *(*rest)++;
    into[length] = 0;
    return length;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

static long number(const char **rest)
{
    int negative = **rest == '-', base = 10;
    unsigned long value = 0;
    *rest += negative;
    if ((*rest)[0] == '0' && (*rest)[1] == 'x')
        base = 16, *rest += 2;
    for (; digit(**rest) < base; ++*rest)
        value = value * base + digit(**rest);
    return negative ? -value : value;
}

static unsigned char *reserve(struct arguments *args, long size)
{
    unsigned long at = args->free;
    if (args->keep) {
        // vmsplice(2) hands over pages, which must not change while they are in the pipe.
        unsigned long kept = S->actors[args->self].kept;
        S->actors[args->self].kept += (size + 4095) & ~4095ul;
        return (unsigned char *)SCRATCH + args->self * SCRATCH_SIZE + SCRATCH_SIZE / 2 + kept % (SCRATCH_SIZE / 4);
    }
    unsigned long end = SCRATCH + (args->self + 1) * SCRATCH_SIZE - EDGES * EDGE;
    args->free = (at + size + 15) & ~15ul;
    return args->free <= end ? (unsigned char *)at : (unsigned char *)(end - 4096);
}

// Moves what was made to the end of a page that nothing follows, so that the call sees what touches one byte more.
static unsigned char *at_edge(struct arguments *args, const unsigned char *from, long size)
{
    unsigned long end = SCRATCH + (args->self + 1) * SCRATCH_SIZE - (args->edges++ % EDGES) * EDGE - 4096;
    if (size > (long)EDGE - 4096)
        return (unsigned char *)from;
    unsigned char *to = (unsigned char *)(end - size);
    for (long i = 0; i < size; i++)
        to[i] = from[i];
    return to;
}

// The bytes of a text in quotes.
static long text(const char **rest, unsigned char *into)
{
    long length = 0;
    ++*rest;
    while (**rest && **rest != '"' && **rest != '\n') {
        if (**rest == '\\') {
            into[length++] = digit((*rest)[1]) * 16 + digit((*rest)[2]);
            *rest += 3;
        } else {
            into[length++] = *(*rest)++;
        }
    }
    *rest += **rest == '"';
    return length;
}

static void to_show(struct arguments *args, unsigned char *at, long size, char mark)
{
    if (args->count == 16)
        return;
    struct shown *shown = &args->shown[args->count++];
    int length = 0;
    shown->at = at;
    shown->size = size;
    if (*args->rest == mark) {
        args->rest++;
        while (*args->rest >= 'a' && *args->rest <= 'z' && length < 11)
            shown->format[length++] = *args->rest++;
    }
    shown->format[length] = 0;
}

static long structure(struct arguments *args, int edge)
{
    unsigned char *at = reserve(args, 2048);
    long size = 0;
    args->rest++;
    for (spaces(&args->rest); *args->rest && *args->rest != ']' && *args->rest != '\n' && size < 2000; spaces(&args->rest)) {
        char c = *args->rest;
        long value;
        int width = 8, big = 0;
        if (c == '"') {
            size += text(&args->rest, at + size);
            continue;
        }
        if (c == 'z') {
            args->rest++;
            for (long zeros = number(&args->rest); zeros > 0 && size < 2000; zeros--)
                at[size++] = 0;
            continue;
        }
        if (c == '*') {
            args->rest++;
        } else if (args->rest[1] == ':') {
            big = c == 'n' || c == 'N';
            width = c == 'n' ? 2 : c == 'N' ? 4 : c - '0';
            args->rest += 2;
        } else {
            break;
        }
        value = argument(args);
        for (int i = 0; i < width && i < 8; i++)
            at[size + i] = value >> 8 * (big ? width - 1 - i : i);
        size += width;
    }
    args->rest += *args->rest == ']';
    if (edge)
        at = at_edge(args, at, size);
    if (*args->rest == '?')
        to_show(args, at, size, '?');
    return (long)at;
}

static long output(struct arguments *args, int edge)
{
    args->rest++;
    long size = number(&args->rest);
    unsigned char *at = reserve(args, size);
    for (long i = 0; i < size; i++)
        at[i] = 0xee;
    if (edge)
        at = at_edge(args, at, size);
    to_show(args, at, size, ':');
    return (long)at;
}

static long pattern(struct arguments *args, int edge)
{
    args->rest++;
    long size = number(&args->rest), seed = 0;
    if (*args->rest == ':') {
        args->rest++;
        seed = number(&args->rest);
    }
    unsigned char *at = reserve(args, size);
    for (long i = 0; i < size; i++)
        at[i] = 'a' + (seed + i / 64 + i % 7) % 26;
    return (long)(edge ? at_edge(args, at, size) : at);
}

long argument(struct arguments *args)
{
    int edge = 0;
    spaces(&args->rest);
    if (*args->rest == '|')
        edge = 1, args->rest++;
    args->keep = *args->rest == '!';
    args->rest += args->keep;
    switch (*args->rest) {
    case '"': {
        unsigned char *at = reserve(args, 5000);
        long size = text(&args->rest, at);
        at[size] = 0;
        return (long)(edge ? at_edge(args, at, size + 1) : at);
    }
    case '[':
        return structure(args, edge);
    case '<':
        return output(args, edge);
    case '%':
        return pattern(args, edge);
    case '$': {
        args->rest++;
        long slot = number(&args->rest), value = slot >= 0 && slot < SLOTS ? S->slots[slot] : -1;
        if (*args->rest == '+') {
            args->rest++;
            value += number(&args->rest);
        }
        return value;
    }
    case '@':
        args->rest++;
        return ARENA + number(&args->rest);
    case 'p':
    case '~': {
        int negative = *args->rest++ == '~';
        long actor = number(&args->rest);
        int pid = actor >= 0 && actor < ACTORS && S->actors[actor].there ? S->actors[actor].tid : 0x3ffffff;
        return negative ? -pid : pid;
    }
    case 'h':
        args->rest++;
        return (long)handler;
    case 'H':
        args->rest++;
        return (long)plain_handler;
    case 'r':
        args->rest++;
        return (long)restorer;
    default:
        return number(&args->rest);
    }
}
