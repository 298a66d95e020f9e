/* Files of /proc as files: lseek(2), readahead(2), attributes, rename(2) to them; the files of namespaces; what programs that
 * watch a machine read. */
#include "tap.h"
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>

static struct stat st;

static long end_of(const char *path, int whence)
{
	int fd = open(path, O_RDONLY);
	REQUIRE(fd >= 0);
	errno = 0;
	long end = lseek(fd, 0, whence);
	int error = errno;
	close(fd);
	errno = error;
	return end;
}

static int ahead(const char *path, size_t count)
{
	int fd = open(path, O_RDONLY);
	REQUIRE(fd >= 0);
	int result = readahead(fd, 0, count), error = errno;
	close(fd);
	errno = error;
	return result;
}

/* Those that are written anew for each reader know no end (seq_lseek); others are empty files. */
static void ends(void)
{
	CHECK_ERRNO(end_of("/proc/version", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/meminfo", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/self/maps", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/self/status", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/self/comm", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/self/mem", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/self/net/tcp", SEEK_END), EINVAL);
	CHECK_ERRNO(end_of("/proc/self/stat", SEEK_DATA), EINVAL);
	CHECK_EQ(end_of("/proc/sys/kernel/ostype", SEEK_END), 0);
	CHECK_EQ(end_of("/proc/self/cmdline", SEEK_END), 0);
	CHECK_EQ(end_of("/proc/self/oom_score_adj", SEEK_END), 0);
	CHECK_ERRNO(end_of("/proc/self/environ", SEEK_DATA), ENXIO);
	CHECK_EQ(ahead("/proc/self/maps", 100), 0);
	CHECK_EQ(ahead("/proc/self/exe", 100), 0);
	CHECK_ERRNO(ahead("/proc/self/exe", -1), EINVAL);
	CHECK_ERRNO(ahead("/proc/self", 100), EINVAL);
	int fd = open("/proc/self/comm", O_RDWR);
	CHECK_ERRNO(fallocate(fd, 0, 0, 1), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, 0, 0, 0x80000000), EFBIG);
	close(fd);
}

static void attributes(void)
{
	struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
	CHECK_EQ(utimensat(AT_FDCWD, "/proc/self/maps", times, 0), 0);
	CHECK_EQ(chown("/proc/self/maps", geteuid(), getegid()), 0);
	CHECK_EQ(lchown("/proc/self/exe", -1, -1), 0);
	CHECK_ERRNO(chmod("/proc/self/maps", 0400), EPERM);
	CHECK_ERRNO(chmod("/proc/self", 0555), EPERM);
	CHECK_ERRNO(chown("/proc/self", geteuid(), getegid()), EPERM);
	CHECK_ERRNO(utimensat(AT_FDCWD, "/proc/self", times, 0), EPERM);
	if (geteuid() == 0) {
		CHECK_EQ(chmod("/proc/version", 0444), 0);
		CHECK_EQ(chown("/proc/version", 0, 0), 0);
	}
	/* Of others nobody else changes anything. */
	pid_t pid = fork();
	if (pid == 0) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/maps", getppid());
		if (geteuid() == 0)
			REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
		else
			_exit(0);
		REQUIRE(chown(path, 65534, -1) == -1 && errno == EPERM);
		REQUIRE(utimensat(AT_FDCWD, path, times, 0) == -1 && errno == EPERM);
		REQUIRE(utimensat(AT_FDCWD, path, NULL, 0) == -1 && errno == EACCES);
		REQUIRE(chmod("/proc/version", 0444) == -1 && errno == EPERM);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Which file system a name is on is told before it is looked up. */
static void names(void)
{
	REQUIRE(close(creat("f", 0600)) == 0);
	CHECK_ERRNO(rename("f", "/proc/none"), EXDEV);
	CHECK_ERRNO(rename("none", "/proc/none"), EXDEV);
	CHECK_ERRNO(rename("f", "/proc/self/none"), EXDEV);
	CHECK_ERRNO(rename("f", "/proc/version"), EXDEV);
	CHECK_ERRNO(rename("/proc/version", "g"), EXDEV);
	CHECK_ERRNO(rename("/proc/none", "g"), EXDEV);
	CHECK_ERRNO(rename("f", "/proc/none/none"), ENOENT);
	CHECK_ERRNO(rename("f", "/proc/version/none"), ENOTDIR);
	REQUIRE(unlink("f") == 0);
}

static void namespaces(void)
{
	static const struct { const char *name; int kind; } all[] = {
		{ "cgroup", CLONE_NEWCGROUP }, { "ipc", CLONE_NEWIPC }, { "mnt", CLONE_NEWNS },   { "net", CLONE_NEWNET },
		{ "pid", CLONE_NEWPID },       { "time", 0x80 },	{ "user", CLONE_NEWUSER }, { "uts", CLONE_NEWUTS },
	};
	char path[64], link[64], text[64];
	struct statfs fs;
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof path, "/proc/self/ns/%s", all[i].name);
		ssize_t n = readlink(path, link, sizeof link - 1);
		REQUIRE(n > 0);
		link[n] = 0;
		int fd = open(path, O_RDONLY);
		REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
		snprintf(text, sizeof text, "%s:[%lu]", all[i].name, (unsigned long)st.st_ino);
		CHECK(strcmp(text, link) == 0 && st.st_mode == (S_IFREG | 0444) && st.st_size == 0);
		CHECK_EQ(ioctl(fd, 0xb703), all[i].kind);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof link - 1);
		CHECK(n > 0 && (link[n] = 0, strcmp(text, link) == 0));
		close(fd);
	}
	CHECK(statfs("/proc/self/ns/net", &fs) == 0 && fs.f_type == 0x6e736673);
	REQUIRE(stat("/proc/self/ns/net", &st) == 0);
	dev_t device = st.st_dev;
	CHECK(stat("/proc/self", &st) == 0 && st.st_dev != device);
	CHECK_EQ(access("/proc/self/ns/net", R_OK), 0);
	CHECK_ERRNO(access("/proc/self/ns/net", W_OK), EPERM);
	CHECK_ERRNO(access("/proc/self/ns/net", X_OK), EACCES);
	CHECK_ERRNO(open("/proc/self/ns/net", O_RDWR), EPERM);
	CHECK_ERRNO(open("/proc/self/ns/net", O_RDONLY | O_TRUNC), EPERM);
	CHECK_ERRNO(open("/proc/self/ns/net", O_DIRECTORY), ENOTDIR);
	CHECK_ERRNO(open("/proc/self/ns/net/", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open("/proc/self/ns/net", O_RDONLY | O_NOFOLLOW), ELOOP);
	CHECK_ERRNO(open("/proc/self/ns/none", O_RDONLY), ENOENT);
	int fd = open("/proc/self/ns/uts", O_RDONLY);
	CHECK_ERRNO(read(fd, text, 1), EINVAL);
	CHECK_ERRNO(write(fd, text, 1), EBADF);
	CHECK_ERRNO(lseek(fd, 0, SEEK_SET), ESPIPE);
	CHECK_ERRNO(fchmod(fd, 0444), EPERM);
	CHECK_ERRNO(ioctl(fd, 0xb702), EINVAL);
	CHECK_ERRNO(ioctl(fd, 0xb704, text), EINVAL);
	close(fd);
}

static char text[65536];

static int read_whole(const char *path)
{
	int fd = open(path, O_RDONLY), n = 0, r;
	while ((r = read(fd, text + n, sizeof text - 1 - n)) > 0)
		n += r;
	close(fd);
	text[n] = 0;
	return n > 0;
}

static int begins(const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static int words(const char *line)
{
	int n = 0;
	for (; *line && *line != '\n'; line++)
		n += *line == ' ';
	return n;
}

/* Pairs of lines, of names and of as many values. */
static int paired(const char *group, const char *name)
{
	char *first = strstr(text, group), *second = first ? strchr(first, '\n') : NULL;
	return second && strncmp(second + 1, group, strlen(group)) == 0 && words(first) == words(second + 1) &&
	       (*second = 0, strstr(first, name)) && (*second = '\n');
}

static long counted(const char *name)
{
	char *at = strstr(text, name);
	return at ? atol(at + strlen(name)) : -1;
}

/* What programs read that watch a machine. */
static void counters(void)
{
	CHECK(read_whole("/proc/net/snmp") && paired("Ip: ", " DefaultTTL ") && paired("Icmp: ", " InMsgs ") &&
	      paired("Tcp: ", " CurrEstab ") && paired("Udp: ", " NoPorts ") && paired("UdpLite: ", " MemErrors"));
	CHECK(strncmp(text, "Ip: Forwarding DefaultTTL InReceives ", 37) == 0);
	CHECK(read_whole("/proc/net/netstat") && paired("TcpExt: ", " TCPTimeouts ") && paired("IpExt: ", " InOctets "));
	CHECK(read_whole("/proc/net/snmp6") && counted("Ip6InReceives                   \t") >= 0 &&
	      counted("\nUdp6InDatagrams                 \t") >= 0);
	CHECK(read_whole("/proc/net/softnet_stat") && words(text) >= 12 && strspn(text, "0123456789abcdef") == 8);
	CHECK(read_whole("/proc/softirqs") && strncmp(text, "                    CPU0 ", 25) == 0 &&
	      strstr(text, "\n          HI: ") && strstr(text, "\n         RCU: "));
	CHECK(read_whole("/proc/vmstat") && strncmp(text, "nr_free_pages ", 14) == 0);
	CHECK(counted("nr_free_pages ") > 0 && counted("\npgpgin ") >= 0 && counted("\npswpout ") >= 0 &&
	      counted("\npgfault ") >= 0 && counted("\noom_kill ") >= 0 && counted("\nnr_dirty_threshold ") > 0);
}

/*
 * What is kept from whom ("Ptrace access mode checking", ptrace(2); "dumpable", prctl(2)). Each answer is a bit of a mask: those
 * that were other ones.
 */
static char secret[8] = "secret";

static char *of(pid_t pid, const char *name)
{
	static char paths[4][64];
	static int next;
	char *path = paths[next++ % 4];
	snprintf(path, sizeof paths[0], "/proc/%d/%s", pid, name);
	return path;
}

/* 0, or the error. */
static int opens(pid_t pid, const char *name)
{
	int fd = open(of(pid, name), O_RDONLY);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int reads(pid_t pid, const char *name)
{
	int fd = open(of(pid, name), O_RDONLY);
	if (fd < 0)
		return -errno;
	int error = read(fd, text, sizeof text) < 0 ? errno : 0;
	close(fd);
	return error;
}

static int links(pid_t pid, const char *name)
{
	return readlink(of(pid, name), text, sizeof text) < 0 ? errno : 0;
}

static int peeks(pid_t pid)
{
	char got[8];
	struct iovec local = { got, 8 }, remote = { secret, 8 };
	return process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 ? errno : 0;
}

static int takes(pid_t pid)
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0), fd = syscall(SYS_pidfd_getfd, pidfd, 1, 0), error = errno;
	close(pidfd), close(fd);
	return fd < 0 ? error : 0;
}

static int compares(pid_t pid)
{
	return syscall(SYS_kcmp, getpid(), pid, 1, 0, 0) < 0 ? errno : 0;
}

static int robust(pid_t pid)
{
	void *head;
	size_t len;
	return syscall(SYS_get_robust_list, pid, &head, &len) < 0 ? errno : 0;
}

/* The number of a field of /proc/PID/stat, from 1. */
static long field(pid_t pid, int number)
{
	REQUIRE(reads(pid, "stat") == 0);
	char *at = strrchr(text, ')');
	for (int i = 2; i < number; i++)
		at = strchr(at + 1, ' ');
	return atol(at);
}

/* What another process of the same user may. */
static int stranger(pid_t pid, int may)
{
	int no = may ? 0 : EACCES, never = may ? 0 : EPERM, mask = 0;
	const char *files[] = { "environ", "maps", "mem", "auxv", "smaps", "pagemap", "fd", "fdinfo/1" };
	for (int i = 0; i < 8; i++)
		mask |= (opens(pid, files[i]) != no) << i;
	const char *paths[] = { "exe", "cwd", "root", "ns/mnt" };
	for (int i = 0; i < 4; i++)
		mask |= (links(pid, paths[i]) != no) << (8 + i);
	mask |= (reads(pid, "io") != -no) << 12 | (reads(pid, "personality") != -no) << 13;
	mask |= (peeks(pid) != never) << 14 | (takes(pid) != never) << 15 | (compares(pid) != never) << 16;
	mask |= (robust(pid) != never) << 17 | (opens(pid, "status") != 0) << 18 | (opens(pid, "cmdline") != 0) << 19;
	mask |= ((field(pid, 28) != 0) != may) << 20;
	return mask;
}

/* What root without capabilities may with root that has some: the files are its own, what is in them is not. */
static int powerless(pid_t pid)
{
	int mask = 0;
	mask |= (opens(pid, "environ") != EACCES) | (opens(pid, "maps") != EACCES) << 1 | (opens(pid, "mem") != EACCES) << 2;
	mask |= (opens(pid, "fd") != 0) << 3 | (links(pid, "fd/1") != EACCES) << 4 | (opens(pid, "fdinfo/1") != EACCES) << 5;
	mask |= (reads(pid, "io") != EACCES) << 6 | (reads(pid, "personality") != EPERM) << 7;
	mask |= (links(pid, "exe") != EACCES) << 8 | (peeks(pid) != EPERM) << 9 | (field(pid, 28) != 0) << 10;
	return mask;
}

static int own(int may)
{
	pid_t me = getpid();
	int mask = 0;
	mask |= (opens(me, "environ") != (may ? 0 : EACCES)) | (opens(me, "maps") != 0) << 1 | (opens(me, "fd") != 0) << 2;
	mask |= (links(me, "exe") != 0) << 3 | (links(me, "fd/1") != 0) << 4 | (peeks(me) != 0) << 5;
	return mask;
}

static int mask_of(int (*run)(pid_t, int), pid_t pid, int may, uid_t user)
{
	int ends[2], mask = -1, status;
	REQUIRE(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		REQUIRE(setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
		if (!user) {
			struct { uint32_t version; int pid; } header = { 0x20080522, 0 };
			uint32_t none[6] = { 0 };
			REQUIRE(syscall(SYS_capset, &header, none) == 0);
		}
		mask = run(pid, may);
		REQUIRE(write(ends[1], &mask, sizeof mask) == sizeof mask);
		_exit(0);
	}
	REQUIRE(read(ends[0], &mask, sizeof mask) == sizeof mask);
	REQUIRE(waitpid(child, &status, 0) == child);
	close(ends[0]), close(ends[1]);
	return mask;
}

static int run_powerless(pid_t pid, int unused)
{
	(void)unused;
	return powerless(pid);
}

static int run_own(pid_t unused, int may)
{
	(void)unused;
	prctl(PR_SET_DUMPABLE, may);
	return own(may);
}

static int owned(pid_t pid, const char *name)
{
	return stat(of(pid, name), &st) == 0 && st.st_uid == st.st_gid ? (int)st.st_uid : -1;
}

static void secrets(void)
{
	int command[2], answer[2], status;
	char c;
	if (getuid() != 0)
		return;
	REQUIRE(pipe(command) == 0 && pipe(answer) == 0);
	pid_t target = fork();
	if (target == 0) {
		REQUIRE(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		close(command[1]);
		while (write(answer[1], "x", 1) == 1 && read(command[0], &c, 1) == 1)
			prctl(PR_SET_DUMPABLE, c == '1');
		_exit(0);
	}
	close(command[0]);
	REQUIRE(read(answer[0], &c, 1) == 1);
	/* A change of ids makes a process one that is not dumpable: its files are root's. */
	CHECK_EQ(owned(target, ""), 1000);
	CHECK_EQ(owned(target, "task"), 1000);
	CHECK_EQ(owned(target, "environ"), 0);
	CHECK_EQ(owned(target, "stat"), 0);
	CHECK_EQ(owned(target, "fd"), 0);
	CHECK_EQ(owned(target, "ns"), 0);
	CHECK_EQ(owned(target, "net/dev"), 0);
	CHECK_EQ(mask_of(stranger, target, 0, 1000), 0);
	REQUIRE(write(command[1], "1", 1) == 1 && read(answer[0], &c, 1) == 1);
	CHECK_EQ(owned(target, ""), 1000);
	CHECK_EQ(owned(target, "environ"), 1000);
	CHECK_EQ(owned(target, "fd"), 1000);
	CHECK_EQ(owned(target, "net/dev"), 0);
	CHECK_EQ(mask_of(stranger, target, 1, 1000), 0);
	CHECK_EQ(mask_of(stranger, target, 0, 1001), 0);
	REQUIRE(write(command[1], "0", 1) == 1 && read(answer[0], &c, 1) == 1);
	CHECK_EQ(owned(target, "environ"), 0);
	CHECK_EQ(mask_of(stranger, target, 0, 1000), 0);
	close(command[1]);
	/* Nor has one that is dead anything of its own. */
	siginfo_t info;
	REQUIRE(waitid(P_PID, target, &info, WEXITED | WNOWAIT) == 0);
	CHECK_EQ(owned(target, ""), 1000);
	CHECK_EQ(owned(target, "environ"), 0);
	REQUIRE(waitpid(target, &status, 0) == target);
	close(answer[0]), close(answer[1]);

	CHECK_EQ(mask_of(run_powerless, getpid(), 0, 0), 0);
	CHECK_EQ(mask_of(run_own, 0, 0, 1000), 0);
	CHECK_EQ(mask_of(run_own, 0, 1, 1000), 0);
}

/* The numbers in a line behind `at`; how many. */
static int numbers(const char *at, unsigned long *out, int most)
{
	int n = 0;
	for (char *end; n < most; n++, at = end) {
		while (*at == ' ')
			at++;
		out[n] = strtoul(at, &end, 10);
		if (end == at)
			break;
	}
	return n;
}

/* Memory by zones: all of them have what the machine has. */
static void zones(void)
{
	unsigned long counts[16], free = 0, pages = 0, managed = 0, total;
	CHECK(read_whole("/proc/meminfo"));
	total = counted("MemTotal:") / 4;
	CHECK(counted("\nDirectMap2M:") >= 0);
	CHECK(read_whole("/proc/zoneinfo") && begins("Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon "));
	for (char *at = text; (at = strstr(at, "\n  pages free ")); at++)
		free += strtoul(at + 15, NULL, 10);
	for (char *at = text; (at = strstr(at, "\n        managed ")); at++)
		managed += strtoul(at + 17, NULL, 10);
	CHECK_EQ(managed, total);
	CHECK(free > 0 && free < managed);
	CHECK(strstr(text, "\n        protection: (0, ") && strstr(text, "\n  pagesets\n    cpu: 0\n              count: ") &&
	      strstr(text, "\n  start_pfn:           1\n") && strstr(text, "\n      nr_free_pages "));
	CHECK(read_whole("/proc/buddyinfo") && begins("Node 0, zone      DMA "));
	for (char *at = text; at && *at; at = strchr(at, '\n') + 1) {
		int n = numbers(at + 22, counts, 16);
		REQUIRE(n >= 11);
		for (int order = 0; order < n; order++)
			pages += counts[order] << order;
	}
	CHECK(pages > 0 && pages <= managed);
	struct stat st;
	CHECK(stat("/proc/pagetypeinfo", &st) == 0 && (st.st_mode & 07777) == 0400);
	if (getuid() == 0)
		CHECK(read_whole("/proc/pagetypeinfo") && begins("Page block order: ") &&
		      strstr(text, "\nFree pages count per migrate type at order       0 ") &&
		      strstr(text, "\nNode    0, zone      DMA, type    Unmovable ") && strstr(text, "\nNumber of blocks type     Unmovable "));
	CHECK(stat("/proc/kmsg", &st) == 0 && (st.st_mode & 07777) == 0400);
	pid_t pid = fork();
	if (pid == 0) {
		/* Whose file it is not, and without the capability. */
		if (getuid() == 0 && (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0))
			_exit(1);
		_exit(open("/proc/kmsg", O_RDONLY) == -1 && errno == EACCES ? 42 : 2);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42);
}

/* What is told of a task by its scheduler, its children and its nodes of memory. */
static void tasks(void)
{
	char path[64], expected[64];
	snprintf(expected, sizeof expected, "procfiles (%d, #threads: 1)\n---------", getpid());
	CHECK(read_whole("/proc/self/sched") && begins(expected));
	CHECK(strstr(text, "\nse.exec_start                                :") && strstr(text, "\npolicy                                       :                    0\n") &&
	      strstr(text, "\nprio                                         :                  120\n"));
	CHECK_EQ(counted("\nse.load.weight                               :"), 1048576);
	int fd = open("/proc/self/sched", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "0", 1) == 1);
	close(fd);
	/* Kernels are built without some of these. */
	if (access("/proc/self/autogroup", F_OK) == 0) {
		CHECK(read_whole("/proc/self/autogroup") && begins("/autogroup-") && strstr(text, " nice 0\n"));
		CHECK(access("/proc/thread-self/autogroup", F_OK) == -1 && errno == ENOENT);
	}
	CHECK(access("/proc/self/timens_offsets", F_OK) != 0 ||
	      (read_whole("/proc/self/timens_offsets") && !strcmp(text, "monotonic           0         0\nboottime            0         0\n")));
	CHECK(access("/proc/self/coredump_filter", F_OK) == 0 && access("/proc/thread-self/coredump_filter", F_OK) == -1);
	snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
	if (access(path, F_OK) == 0) {
		int ends[2];
		pid_t pids[2];
		REQUIRE(pipe(ends) == 0);
		for (int i = 0; i < 2; i++) {
			pids[i] = fork();
			if (pids[i] == 0)
				_exit(read(ends[0], &fd, 1) != 1);
		}
		snprintf(expected, sizeof expected, "%d %d ", pids[0], pids[1]);
		CHECK(read_whole(path) && strcmp(text, expected) == 0);
		REQUIRE(write(ends[1], "xx", 2) == 2 && wait(NULL) > 0 && wait(NULL) > 0);
		CHECK(!read_whole(path));
		CHECK(access("/proc/self/children", F_OK) == -1);
	}
	if (access("/proc/self/numa_maps", F_OK) == 0)
		CHECK(read_whole("/proc/self/numa_maps") && strstr(text, " default file=/") && strstr(text, " default stack anon=") &&
		      strstr(text, " kernelpagesize_kB=4\n"));
}

/* O_PATH | O_NOFOLLOW names a link itself, those that lead to a process's files as well. */
static void links_themselves(void)
{
	static const char *links[] = { "/proc/self", "/proc/self/cwd", "/proc/self/root", "/proc/self/exe", "/proc/self/fd/0", "/proc/self/ns/net" };
	char to[256], same[256];
	struct stat st;
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		int fd = open(links[i], O_PATH | O_NOFOLLOW);
		REQUIRE(fd >= 0);
		CHECK(fstat(fd, &st) == 0 && S_ISLNK(st.st_mode));
		ssize_t length = readlinkat(fd, "", to, sizeof to);
		CHECK(length > 0 && readlink(links[i], same, sizeof same) == length && memcmp(to, same, length) == 0);
		CHECK_ERRNO(read(fd, to, 1), EBADF);
		CHECK_ERRNO(lseek(fd, 0, SEEK_SET), EBADF);
		CHECK_ERRNO(fsync(fd), EBADF);
		CHECK_ERRNO(ioctl(fd, FIONREAD, to), EBADF);
		CHECK_ERRNO(ftruncate(fd, 0), EBADF);
		CHECK_EQ(fcntl(fd, F_GETFL), O_PATH | O_NOFOLLOW);
		CHECK_ERRNO(fchdir(fd), ENOTDIR);
		CHECK_ERRNO(openat(fd, "x", O_RDONLY), ENOTDIR);
		close(fd);
		CHECK_ERRNO(open(links[i], O_PATH | O_NOFOLLOW | O_DIRECTORY), ENOTDIR);
		CHECK_ERRNO(open(links[i], O_RDONLY | O_NOFOLLOW), ELOOP);
	}
}

static ssize_t put(const char *path, const char *text, size_t length)
{
	int fd = open(path, O_WRONLY);
	REQUIRE(fd >= 0);
	ssize_t n = write(fd, text, length);
	int error = errno;
	close(fd);
	errno = error;
	return n;
}

/* A text that is written ends at a 0; a name keeps the end of its line. */
static void texts_that_are_written(void)
{
	char before[16], name[16];
	REQUIRE(prctl(PR_GET_NAME, before) == 0);
	CHECK(put("/proc/self/oom_score_adj", "6\0", 2) == 2 && read_whole("/proc/self/oom_score_adj") && begins("6\n"));
	CHECK(put("/proc/self/oom_score_adj", "7\n\0", 3) == 3 && read_whole("/proc/self/oom_score_adj") && begins("7\n"));
	CHECK(put("/proc/self/oom_score_adj", "1000\0", 5) == 5 && read_whole("/proc/self/oom_score_adj") && begins("1000\n"));
	CHECK(put("/proc/self/coredump_filter", "8\0x", 3) == 3 && read_whole("/proc/self/coredump_filter") && begins("00000008\n"));
	CHECK(put("/proc/self/timerslack_ns", "6\n\0", 3) == 3 && read_whole("/proc/self/timerslack_ns") && begins("6\n"));
	CHECK_ERRNO(put("/proc/self/oom_score_adj", "\0", 1), EINVAL);
	CHECK_ERRNO(put("/proc/self/oom_score_adj", "1x\0", 3), EINVAL);
	CHECK(put("/proc/self/comm", "foo\n", 4) == 4 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "foo\n") == 0);
	CHECK(read_whole("/proc/self/comm") && begins("foo\n\n"));
	CHECK(put("/proc/self/comm", "bar\0more", 8) == 8 && read_whole("/proc/self/comm") && begins("bar\n"));
	REQUIRE(prctl(PR_SET_NAME, before) == 0 && put("/proc/self/oom_score_adj", "0", 1) == 1);
}

static ssize_t spliced(const char *path)
{
	int fd = open(path, O_RDONLY), ends[2];
	REQUIRE(fd >= 0 && pipe(ends) == 0);
	ssize_t n = splice(fd, NULL, ends[1], NULL, 64, 0);
	int error = errno;
	close(fd), close(ends[0]), close(ends[1]);
	errno = error;
	return n;
}

/* Files of a process cannot be spliced, but for its mounts, nor can those of its network; others of /proc can. */
static void moved_by_reference(void)
{
	static const char *refuse[] = { "/proc/self/limits", "/proc/self/comm", "/proc/self/status", "/proc/self/maps", "/proc/self/cmdline",
					"/proc/self/environ", "/proc/self/cgroup", "/proc/self/stat", "/proc/self/fdinfo/0",
					"/proc/net/tcp", "/proc/sysvipc/shm", "/proc/swaps" };
	static const char *give[] = { "/proc/self/mounts", "/proc/self/mountinfo", "/proc/meminfo", "/proc/stat", "/proc/cpuinfo", "/proc/uptime",
				      "/proc/version", "/proc/sys/kernel/hostname" };
	for (size_t i = 0; i < sizeof refuse / sizeof *refuse; i++) {
		CHECK_ERRNO(spliced(refuse[i]), EINVAL);
		int in = open(refuse[i], O_RDONLY), out = open("out", O_RDWR | O_CREAT, 0600);
		CHECK_ERRNO(sendfile(out, in, NULL, 64), EINVAL);
		close(in), close(out);
	}
	for (size_t i = 0; i < sizeof give / sizeof *give; i++)
		CHECK(spliced(give[i]) > 0);
}

int main(void)
{
	tap_directory();
	links_themselves();
	moved_by_reference();
	texts_that_are_written();
	ends();
	attributes();
	names();
	namespaces();
	counters();
	secrets();
	zones();
	tasks();
	return tap_done();
}
