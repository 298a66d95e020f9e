/* Files of /proc as files: lseek(2), readahead(2), attributes, rename(2) to them; the files of namespaces; what programs that
 * watch a machine read. */
#include "tap.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

int main(void)
{
	tap_directory();
	ends();
	attributes();
	names();
	namespaces();
	counters();
	zones();
	tasks();
	return tap_done();
}
