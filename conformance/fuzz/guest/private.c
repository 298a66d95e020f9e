// A place of its own for a native run: namespaces in which nobody else makes processes, IPC objects, sockets or files.
#include "guest.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        perror(path);
    close(fd);
}

static void loopback_up(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
        perror("lo");
    close(fd);
}

// Who may have sockets for echoes: nobody in a new namespace, but all in a container ("net.ipv4.ping_group_range" of engines).
static void let_ping(int uid)
{
    write_file("/proc/sys/net/ipv4/ping_group_range", uid ? "0 0" : "0 2147483647");
}

// Those of an unprivileged container, natively and in Bloodhound.
#define CAPABILITIES 0xa00425fb

void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = CAPABILITIES, .permitted = CAPABILITIES}, {0}};
    for (int cap = 0; cap < 64; cap++)
        if (cap > 31 || !(CAPABILITIES >> cap & 1))
            prctl(PR_CAPBSET_DROP, cap);
    if (RAW(capset, &header, data))
        exit(94);
}

static void need(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(77);
    }
}

static void device(const char *name, int number)
{
    char path[64], source[64];
    snprintf(path, sizeof path, "/tmp/dev/%s", name);
    snprintf(source, sizeof source, "/dev/%s", name);
    umask(0);
    if (!mknod(path, S_IFCHR | 0666, makedev(1, number)))
        return;
    // Who is root in a namespace only makes no devices.
    need(mknod(path, S_IFREG | 0666, 0), path);
    need(mount(source, path, NULL, MS_BIND, NULL), path);
    need(mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), path);
}

// Cases remove and change what they can name, so nothing of this machine is within reach: not even its devices, whose inodes
// all mount namespaces share.
static void own_root(void)
{
    need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount /");
    need(mount("tmpfs", "/tmp", "tmpfs", 0, "mode=755"), "mount /tmp");
    need(mkdir("/tmp/dev", 0755) || mkdir("/tmp/dev/shm", 0755) || mkdir("/tmp/proc", 0755), "mkdir");
    device("null", 3);
    device("zero", 5);
    device("full", 7);
    need(mount("proc", "/tmp/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "mount /proc");
    need(mount("tmpfs", "/tmp/dev/shm", "tmpfs", 0, "size=64G,nr_inodes=4194304,mode=1777"), "mount /dev/shm");
    need(chdir("/tmp") || RAW(pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"), "pivot_root");
}

// Goes on as process 2 of new namespaces; the outer process waits and ends as that one does. Exit code 77: not to be had here.
void go_private(void)
{
    int uid = getuid(), gid = getgid(), status;
    if (unshare((uid ? CLONE_NEWUSER : 0) | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET)) {
        perror("unshare");
        exit(77);
    }
    if (uid) {
        char map[64];
        write_file("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %d 1", uid);
        write_file("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %d 1", gid);
        write_file("/proc/self/gid_map", map);
    }
    pid_t pid = fork();
    if (pid) {
        waitpid(pid, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 93);
    }
    // As programs begin in Bloodhound, however nice the fuzzer is; who is root in a namespace only may not be less nice.
    setpriority(PRIO_PROCESS, 0, 0);
    // Process 1 of a namespace is not an ordinary one: it has no default actions of signals.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid = fork();
    if (pid) {
        while (waitpid(-1, &status, 0) != pid)
            ;
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 93);
    }
    let_ping(uid);
    own_root();
    loopback_up();
}
