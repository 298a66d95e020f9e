// What a call has left in memory, by format. Only what Linux defines is shown, with names for what differs between machines.
#include "guest.h"
#include <linux/stat.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static void field(struct line *line, const char *name, long value)
{
    put(line, " ");
    put(line, name);
    put(line, " ");
    put_number(line, value);
}

// Times that a case has set are small; those of clocks are not shown.
static void time_of(struct line *line, const char *name, long seconds, long nanoseconds)
{
    put(line, " ");
    put(line, name);
    if (seconds > 1500000000 && seconds < 2140000000) {
        put(line, " now");
        return;
    }
    put(line, " ");
    put_number(line, seconds);
    put(line, ".");
    put_number(line, nanoseconds);
}

static void show_stat(struct line *line, const struct stat *st)
{
    put_name(line, "ino", &S->inodes, st->st_ino);
    put(line, " mode ");
    put_hex(line, st->st_mode);
    field(line, "links", st->st_nlink);
    field(line, "uid", st->st_uid);
    field(line, "gid", st->st_gid);
    if (!S_ISDIR(st->st_mode)) {
        field(line, "size", st->st_size);
        if (!S->vague_blocks)
            field(line, "blocks", st->st_blocks);
    }
    field(line, "blksize", st->st_blksize);
    time_of(line, "atime", st->st_atim.tv_sec, st->st_atim.tv_nsec);
    time_of(line, "mtime", st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static void show_statx(struct line *line, const struct statx *st)
{
    // Later kernels have more bits; what is asked for is in those of Linux 6.1.
    put_name(line, "ino", &S->inodes, st->stx_ino);
    put(line, " mask ");
    put_hex(line, st->stx_mask & 0x7ff);
    put(line, " mode ");
    put_hex(line, st->stx_mode);
    field(line, "links", st->stx_nlink);
    field(line, "uid", st->stx_uid);
    if ((st->stx_mode & S_IFMT) != S_IFDIR) {
        field(line, "size", st->stx_size);
        if (!S->vague_blocks)
            field(line, "blocks", st->stx_blocks);
    }
    time_of(line, "mtime", st->stx_mtime.tv_sec, st->stx_mtime.tv_nsec);
}

static void show_address(struct line *line, const unsigned char *at, long size)
{
    const struct sockaddr *any = (const void *)at;
    if (size < 2) {
        put_bytes(line, at, size);
        return;
    }
    if (any->sa_family == AF_INET && size >= 16) {
        const struct sockaddr_in *in = (const void *)at;
        put(line, "inet ");
        put_bytes(line, (const void *)&in->sin_addr, 4);
        put(line, ":");
        if (!in->sin_port)
            put(line, "0");
        else
            put_name(line, "port", &S->ports, ntohs(in->sin_port));
    } else if (any->sa_family == AF_INET6 && size >= 28) {
        const struct sockaddr_in6 *in = (const void *)at;
        put(line, "inet6 ");
        put_bytes(line, (const void *)&in->sin6_addr, 16);
        put(line, ":");
        if (!in->sin6_port)
            put(line, "0");
        else
            put_name(line, "port", &S->ports, ntohs(in->sin6_port));
    } else if (any->sa_family == AF_UNIX && size > 2 && !at[2]) {
        put(line, "abstract");
    } else {
        while (size > 2 && at[size - 1] == 0xee)
            size--;
        put_bytes(line, at, size);
    }
}

void show_siginfo(struct line *line, const void *info)
{
    const siginfo_t *si = info;
    put(line, "sig ");
    put_number(line, si->si_signo);
    field(line, "code", si->si_code);
    if (si->si_errno)
        field(line, "errno", si->si_errno);
    if (si->si_code <= 0) {
        put(line, " pid ");
        put_pid(line, si->si_pid);
        field(line, "uid", si->si_uid);
        if (si->si_code == SI_QUEUE || si->si_code == SI_MESGQ)
            field(line, "value", si->si_int);
    } else if (si->si_signo == SIGCHLD) {
        put(line, " pid ");
        put_pid(line, si->si_pid);
        field(line, "uid", si->si_uid);
        field(line, "status", si->si_status);
    } else if (si->si_signo == SIGSEGV || si->si_signo == SIGBUS) {
        put(line, " addr ");
        put_address(line, (unsigned long)si->si_addr);
    } else if (si->si_signo == SIGIO && si->si_code < 7) {
        field(line, "band", si->si_band);
        field(line, "fd", si->si_fd);
    }
}

static void show_signalfd(struct line *line, const unsigned char *at, long got)
{
    for (; got >= (long)sizeof(struct signalfd_siginfo); got -= sizeof(struct signalfd_siginfo)) {
        const struct signalfd_siginfo *si = (const void *)at;
        field(line, "sig", si->ssi_signo);
        field(line, "code", si->ssi_code);
        put(line, " pid ");
        put_pid(line, si->ssi_pid);
        field(line, "status", si->ssi_status);
        field(line, "int", si->ssi_int);
        at += sizeof *si;
    }
}

static void show_message(struct line *line, const struct msghdr *message)
{
    field(line, "namelen", message->msg_namelen);
    field(line, "controllen", message->msg_controllen);
    put(line, " flags ");
    put_hex(line, (unsigned)message->msg_flags);
    if (!message->msg_control)
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR((struct msghdr *)message, c)) {
        field(line, "cmsg", c->cmsg_level);
        field(line, "type", c->cmsg_type);
        field(line, "len", c->cmsg_len);
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            for (unsigned i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / 4; i++)
                field(line, "fd", ((int *)CMSG_DATA(c))[i]);
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
            put(line, " pid ");
            put_pid(line, ((struct ucred *)CMSG_DATA(c))->pid);
        }
    }
}

static void show_inotify(struct line *line, const unsigned char *at, long got)
{
    while (got >= (long)sizeof(struct inotify_event)) {
        const struct inotify_event *event = (const void *)at;
        field(line, "wd", event->wd);
        put(line, " mask ");
        put_hex(line, event->mask);
        if (event->cookie)
            put_name(line, " cookie", &S->cookies, event->cookie);
        put(line, " '");
        if (event->len)
            put(line, event->name);
        put(line, "'");
        field(line, "len", event->len);
        at += sizeof *event + event->len;
        got -= sizeof *event + event->len;
    }
}

static void show_perm(struct line *line, const struct ipc_perm *perm)
{
    field(line, "uid", perm->uid);
    field(line, "gid", perm->gid);
    put(line, " mode ");
    put_hex(line, perm->mode);
}

// Structures of System V objects, but for their times.
static void show_ipc(struct line *line, const struct shown *shown)
{
    show_perm(line, (const void *)shown->at);
    if (same(shown->format, "shm")) {
        const struct shmid_ds *ds = (const void *)shown->at;
        field(line, "size", ds->shm_segsz);
        field(line, "attached", ds->shm_nattch);
        put(line, " made by ");
        put_pid(line, ds->shm_cpid);
        put(line, " last ");
        put_pid(line, ds->shm_lpid);
    } else if (same(shown->format, "sem")) {
        field(line, "count", ((const struct semid_ds *)shown->at)->sem_nsems);
    } else {
        const struct msqid_ds *ds = (const void *)shown->at;
        field(line, "messages", ds->msg_qnum);
        field(line, "bytes", ds->__msg_cbytes);
        field(line, "limit", ds->msg_qbytes);
        put(line, " sent by ");
        put_pid(line, ds->msg_lspid);
        put(line, " read by ");
        put_pid(line, ds->msg_lrpid);
    }
}

static void show_raw(struct line *line, const struct shown *shown)
{
    long size = shown->size;
    while (size && shown->at[size - 1] == 0xee)
        size--;
    put_bytes(line, shown->at, size);
    if (size < shown->size)
        put(line, "~");
}

static int show_named(struct line *line, const struct shown *shown, long result)
{
    const char *format = shown->format;
    if (same(format, "stat"))
        show_stat(line, (const void *)shown->at);
    else if (same(format, "statx"))
        show_statx(line, (const void *)shown->at);
    else if (same(format, "sock"))
        show_address(line, shown->at, shown->size);
    else if (same(format, "siginfo"))
        show_siginfo(line, shown->at);
    else if (same(format, "signalfd"))
        show_signalfd(line, shown->at, result);
    else if (same(format, "msg"))
        show_message(line, (const void *)shown->at);
    else if (same(format, "inotify"))
        show_inotify(line, shown->at, result);
    else if (same(format, "shm") || same(format, "sem") || same(format, "queue"))
        show_ipc(line, shown);
    else
        return 0;
    return 1;
}

void show(struct line *line, const struct shown *shown, long result)
{
    int untouched = 1;
    for (long i = 0; i < shown->size && untouched; i++)
        untouched = shown->at[i] == 0xee;
    put(line, " [");
    if (untouched) {
        put(line, "untouched");
    } else if (result >= 0 && show_named(line, shown, result)) {
        // shown
    } else if (same(shown->format, "pid")) {
        put_pid(line, *(int *)shown->at);
    } else if (same(shown->format, "lock")) {
        put_bytes(line, shown->at, 4);
        field(line, "start", *(long *)(shown->at + 8));
        field(line, "length", *(long *)(shown->at + 16));
        put(line, " pid ");
        put_pid(line, *(int *)(shown->at + 24));
    } else if (same(shown->format, "action")) {
        // Not the handler and the restorer, which are addresses.
        put(line, "flags ");
        put_hex(line, ((unsigned long *)shown->at)[1]);
        put(line, " mask ");
        put_hex(line, ((unsigned long *)shown->at)[3]);
    } else if (same(shown->format, "part")) {
        // Bytes beyond the result, up to where the memory ends, are not defined.
        put_bytes(line, shown->at, result < 0 ? 0 : result < shown->size ? result : shown->size);
    } else if (same(shown->format, "hidden")) {
        put(line, "hidden");
    } else if (same(shown->format, "time")) {
        put(line, "time");
    } else {
        show_raw(line, shown);
    }
    put(line, "]");
}
