// The system calls that cases may name.
#include "guest.h"
#include <string.h>

#define CALL(name) {#name, SYS_##name}
static const struct {
    const char *name;
    int number;
} calls[] = {
    CALL(read), CALL(write), CALL(open), CALL(close), CALL(stat), CALL(fstat), CALL(lstat), CALL(poll), CALL(lseek), CALL(mmap),
    CALL(mprotect), CALL(munmap), CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(ioctl), CALL(pread64), CALL(pwrite64),
    CALL(readv), CALL(writev), CALL(access), CALL(pipe), CALL(select), CALL(mremap), CALL(msync), CALL(mincore), CALL(madvise),
    CALL(shmget), CALL(shmat), CALL(shmctl), CALL(dup), CALL(dup2), CALL(nanosleep), CALL(getitimer), CALL(alarm),
    CALL(setitimer), CALL(getpid), CALL(sendfile), CALL(socket), CALL(connect), CALL(accept), CALL(sendto), CALL(recvfrom),
    CALL(sendmsg), CALL(recvmsg), CALL(shutdown), CALL(bind), CALL(listen), CALL(getsockname), CALL(getpeername),
    CALL(socketpair), CALL(setsockopt), CALL(getsockopt), CALL(exit), CALL(wait4), CALL(kill), CALL(semget), CALL(semop),
    CALL(semctl), CALL(shmdt), CALL(msgget), CALL(msgsnd), CALL(msgrcv), CALL(msgctl), CALL(fcntl), CALL(flock), CALL(fsync),
    CALL(fdatasync), CALL(truncate), CALL(ftruncate), CALL(getcwd), CALL(chdir), CALL(fchdir), CALL(rename), CALL(mkdir),
    CALL(rmdir), CALL(creat), CALL(link), CALL(unlink), CALL(symlink), CALL(readlink), CALL(chmod), CALL(fchmod), CALL(chown),
    CALL(fchown), CALL(lchown), CALL(umask), CALL(getrlimit), CALL(getuid), CALL(getgid), CALL(setuid), CALL(setgid),
    CALL(setpgid), CALL(getppid), CALL(getpgrp), CALL(setsid), CALL(setreuid), CALL(setregid), CALL(getgroups), CALL(setgroups),
    CALL(setresuid), CALL(getresuid), CALL(setresgid), CALL(getresgid), CALL(getpgid), CALL(setfsuid), CALL(setfsgid),
    CALL(getsid), CALL(capget), CALL(rt_sigpending), CALL(rt_sigtimedwait), CALL(rt_sigqueueinfo), CALL(rt_sigsuspend),
    CALL(sigaltstack), CALL(mknod), CALL(statfs), CALL(fstatfs), CALL(getpriority), CALL(setpriority), CALL(prctl), CALL(sync),
    CALL(gettid), CALL(setxattr), CALL(lsetxattr), CALL(fsetxattr), CALL(getxattr), CALL(lgetxattr), CALL(fgetxattr),
    CALL(listxattr), CALL(llistxattr), CALL(flistxattr), CALL(removexattr), CALL(lremovexattr), CALL(fremovexattr), CALL(tkill),
    CALL(futex), CALL(epoll_create), CALL(getdents64), CALL(semtimedop), CALL(fadvise64), CALL(epoll_wait), CALL(epoll_ctl),
    CALL(tgkill), CALL(exit_group), CALL(mq_open), CALL(mq_unlink), CALL(mq_timedsend), CALL(mq_timedreceive), CALL(mq_notify),
    CALL(mq_getsetattr), CALL(waitid), CALL(inotify_add_watch), CALL(inotify_rm_watch), CALL(openat), CALL(mkdirat),
    CALL(mknodat), CALL(fchownat), CALL(newfstatat), CALL(unlinkat), CALL(renameat), CALL(linkat), CALL(symlinkat),
    CALL(readlinkat), CALL(fchmodat), CALL(faccessat), CALL(pselect6), CALL(ppoll), CALL(splice), CALL(tee),
    CALL(sync_file_range), CALL(vmsplice), CALL(utimensat), CALL(epoll_pwait), CALL(signalfd), CALL(timerfd_create),
    CALL(eventfd), CALL(fallocate), CALL(timerfd_settime), CALL(timerfd_gettime), CALL(accept4), CALL(signalfd4),
    CALL(eventfd2), CALL(epoll_create1), CALL(dup3), CALL(pipe2), CALL(inotify_init1), CALL(preadv), CALL(pwritev),
    CALL(rt_tgsigqueueinfo), CALL(recvmmsg), CALL(prlimit64), CALL(sendmmsg), CALL(renameat2), CALL(memfd_create), CALL(mlock2), CALL(munlock),
    CALL(copy_file_range), CALL(preadv2), CALL(pwritev2), CALL(statx), CALL(pidfd_send_signal), CALL(pidfd_open),
    CALL(close_range), CALL(openat2), CALL(pidfd_getfd), CALL(faccessat2), CALL(epoll_pwait2), CALL(pause), CALL(vfork),
    CALL(sched_yield),
};

int call_number(const char *name)
{
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name))
            return calls[i].number;
    return -1;
}
