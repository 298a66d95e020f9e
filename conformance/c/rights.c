/* What a process may do to files and others: setfsuid(2), privileged ports, kill(2) by the number of any thread, scheduling of
 * others' tasks, nice values of threads. Run by root it has more to show. */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define USER 1000
#define NOBODY (1 << 22)

/* In a child: what holds there. */
static int in_child(int (*holds)(void))
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(holds() ? 0 : 1);
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status == 0;
}

static void become_user(void)
{
	REQUIRE(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
}

static int opens(const char *path)
{
	int fd = open(path, O_RDONLY);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void *opens_secret(void *unused)
{
	(void)unused;
	return opens("secret") ? "yes" : NULL;
}

static int thread_opens_secret(void)
{
	pthread_t thread;
	void *result;
	REQUIRE(pthread_create(&thread, NULL, opens_secret, NULL) == 0 && pthread_join(thread, &result) == 0);
	return result != NULL;
}

static atomic_int turn;

static void *waits_and_opens(void *unused)
{
	while (atomic_load(&turn) != 1)
		sched_yield();
	return opens_secret(unused);
}

/* The line of /proc/self/status that starts with this. */
static int status_shows(const char *line)
{
	static char text[8192];
	int fd = open("/proc/thread-self/status", O_RDONLY);
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	return strstr(text, line) != NULL;
}

static int user_sets_file_ids(void)
{
	become_user();
	return setfsuid(0) == USER && setfsuid(-1) == USER && setfsgid(0) == USER && setfsgid(-1) == USER &&
	       setfsuid(USER) == USER && setresuid(-1, -1, USER) == 0;
}

static void file_ids(void)
{
	CHECK_EQ(setfsuid(-1), geteuid());
	CHECK_EQ(setfsgid(-1), getegid());
	CHECK_EQ(setfsuid(geteuid()), geteuid());
	if (geteuid() != 0)
		return;
	int fd = open("secret", O_RDWR | O_CREAT, 0600);
	REQUIRE(fd >= 0 && mkdir("open", 0777) == 0 && chmod("open", 0777) == 0 && chmod(".", 0755) == 0);
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "socket" };
	int server = socket(AF_UNIX, SOCK_STREAM, 0);
	REQUIRE(bind(server, (void *)&name, sizeof name) == 0 && listen(server, 5) == 0 && chmod("socket", 0600) == 0);

	pthread_t before;
	void *result;
	REQUIRE(pthread_create(&before, NULL, waits_and_opens, NULL) == 0);
	CHECK_EQ(setfsuid(USER), 0);
	CHECK_EQ(setfsgid(USER + 1), 0);
	CHECK(setfsuid(-1) == USER && setfsgid(-1) == USER + 1);
	CHECK(geteuid() == 0 && getegid() == 0);
	CHECK_ERRNO(open("secret", O_RDONLY), EACCES);
	CHECK_ERRNO(chmod("secret", 0644), EPERM);
	CHECK_ERRNO(chown("secret", USER, -1), EPERM);
	CHECK_ERRNO(truncate("secret", 0), EACCES);
	CHECK_ERRNO(mkdir("made", 0777), EACCES);
	CHECK_ERRNO(unlink("secret"), EACCES);
	CHECK_ERRNO(execl("secret", "secret", NULL), EACCES);
	CHECK_ERRNO(faccessat(AT_FDCWD, "secret", R_OK, AT_EACCESS), EACCES);
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_ERRNO(connect(client, (void *)&name, sizeof name), EACCES);
	struct stat st;
	CHECK(mkdir("open/dir", 0700) == 0 && stat("open/dir", &st) == 0 && st.st_uid == USER && st.st_gid == USER + 1);
	CHECK(close(open("open/file", O_CREAT | O_WRONLY, 0600)) == 0 && stat("open/file", &st) == 0 && st.st_uid == USER &&
	      st.st_gid == USER + 1);
	CHECK(status_shows("\nUid:\t0\t0\t0\t1000\n"));
	/* What is its own in /proc stays within reach. */
	CHECK(opens("/proc/self/fd") && opens("/proc/self/exe") && readlink("/proc/self/cwd", (char[9]){ 0 }, 9) > 0);
	CHECK(status_shows("\nGid:\t0\t0\t0\t1001\n"));
	/* They are the thread's own; new threads and processes inherit them. */
	atomic_store(&turn, 1);
	REQUIRE(pthread_join(before, &result) == 0);
	CHECK(result != NULL);
	CHECK(!thread_opens_secret());
	pid_t pid = fork();
	if (pid == 0)
		_exit(opens("secret"));
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* Each call of the setuid kind sets them to the effective id again. */
	CHECK_EQ(setresuid(0, 0, 0), 0);
	CHECK(setfsuid(-1) == 0 && opens("secret"));
	CHECK(setfsuid(USER) == 0 && setuid(0) == 0 && setfsuid(-1) == 0);
	CHECK(setfsuid(USER) == 0 && seteuid(0) == 0 && setfsuid(-1) == 0);
	CHECK(setfsuid(USER) == 0 && setreuid(-1, 0) == 0 && setfsuid(-1) == 0);
	CHECK(setfsgid(-1) == USER + 1 && setegid(0) == 0 && setfsgid(-1) == 0);
	/* But for setresuid and setresgid that change nothing and do not name the effective one. */
	CHECK(setfsuid(USER) == 0 && setresuid(0, -1, 0) == 0 && setfsuid(-1) == USER);
	CHECK(setresuid(-1, 0, -1) == 0 && setfsuid(-1) == 0);
	CHECK(setfsgid(USER) == 0 && setresgid(0, -1, 0) == 0 && setfsgid(-1) == USER);
	CHECK(setresgid(-1, 0, -1) == 0 && setfsgid(-1) == 0);
	CHECK(seteuid(USER) == 0 && setfsuid(-1) == USER && !opens("secret") && seteuid(0) == 0 && opens("secret"));
	/* And execve. */
	pid = fork();
	if (pid == 0) {
		setfsuid(USER);
		execl("/proc/self/exe", "rights", "file-id", NULL);
		_exit(9);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(in_child(user_sets_file_ids));
}

/* Writes into a file and tells its mode then. */
static mode_t mode_after_write(const char *path, mode_t mode)
{
	struct stat st;
	REQUIRE(chmod(path, mode) == 0);
	int fd = open(path, O_WRONLY | O_APPEND);
	REQUIRE(fd >= 0);
	/* Nothing written, nothing taken. */
	REQUIRE(write(fd, "", 0) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == mode);
	REQUIRE(write(fd, "x", 1) == 1 && fstat(fd, &st) == 0);
	close(fd);
	return st.st_mode & 07777;
}

static int user_loses_set_ids(void)
{
	become_user();
	return mode_after_write("set", 04777) == 0777 && mode_after_write("set", 02777) == 0777 &&
	       mode_after_write("set", 02767) == 02767 && mode_after_write("set", 06755) == 0755;
}

static int user_asks_for_rights_first(void)
{
	become_user();
	return fails(setxattr("rooted", "nonsense", "v", 1, 0), EACCES) &&
	       fails(setxattr("rooted", "user.a", "v", 1, 0), EACCES) &&
	       fails(setxattr("rooted", "user.", "v", 1, 0), EACCES) && fails(removexattr("rooted", "other.a"), EACCES) &&
	       fails(getxattr("rooted", "nonsense", NULL, 0), EACCES) &&
	       fails(setxattr("set", "nonsense", "v", 1, 0), EOPNOTSUPP) &&
	       fails(setxattr("set", "user.", "v", 1, 0), EINVAL);
}

/* What a file gives to who executes it goes with a change of the file. */
static void privileges(void)
{
	static const uint32_t capability[5] = { 0x02000000, 1 << 10, 0, 0, 0 };
	const char *name = "security.capability";
	struct stat st;
	if (geteuid() != 0)
		return;
	REQUIRE(close(open("set", O_WRONLY | O_CREAT, 0777)) == 0 && chown("set", USER, USER) == 0);
	REQUIRE(close(open("rooted", O_WRONLY | O_CREAT, 0600)) == 0);
	CHECK(in_child(user_loses_set_ids));
	CHECK(in_child(user_asks_for_rights_first));
	CHECK_EQ(mode_after_write("set", 06777), 06777);
	/* Capabilities go when root writes, too, and with the owner. */
	CHECK_OK(setxattr("set", name, capability, sizeof capability, 0));
	CHECK_EQ(getxattr("set", name, NULL, 0), 20);
	CHECK_EQ(mode_after_write("set", 0755), 0755);
	CHECK_ERRNO(getxattr("set", name, NULL, 0), ENODATA);
	CHECK_OK(setxattr("set", name, capability, sizeof capability, 0));
	CHECK_OK(truncate("set", 0));
	CHECK_ERRNO(getxattr("set", name, NULL, 0), ENODATA);
	CHECK_OK(setxattr("set", name, capability, sizeof capability, 0));
	CHECK_OK(chown("set", USER + 1, -1));
	CHECK_ERRNO(getxattr("set", name, NULL, 0), ENODATA);
	/* Pipes and sockets are those of who made them; what has no inode of its own is root's. */
	int pipes[2], pair[2];
	REQUIRE(setfsuid(USER) == 0 && setfsgid(USER + 1) == 0 && pipe(pipes) == 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	int event = eventfd(0, 0), tcp = socket(AF_INET, SOCK_STREAM, 0);
	setfsuid(0), setfsgid(0);
	int rooted = socket(AF_INET, SOCK_DGRAM, 0);
	for (int i = 0; i < 2; i++) {
		CHECK(fstat(pipes[i], &st) == 0 && st.st_uid == USER && st.st_gid == USER + 1);
		CHECK(fstat(pair[i], &st) == 0 && st.st_uid == USER && st.st_gid == USER + 1);
		close(pipes[i]), close(pair[i]);
	}
	CHECK(fstat(tcp, &st) == 0 && st.st_uid == USER && st.st_gid == USER + 1);
	CHECK(fstat(rooted, &st) == 0 && st.st_uid == 0 && st.st_gid == 0);
	CHECK(fstat(event, &st) == 0 && st.st_uid == 0 && st.st_gid == 0);
	close(event), close(tcp), close(rooted);
}

/* Of the capabilities about files only these count from here on, as far as they are permitted. */
static void only(uint32_t wanted)
{
	const uint32_t about_files =
		1 << CAP_CHOWN | 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH | 1 << CAP_FOWNER | 1 << CAP_FSETID | 1 << CAP_MKNOD;
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];
	REQUIRE(syscall(SYS_capget, &header, caps) == 0);
	caps[0].effective = (caps[0].effective & ~about_files) | (caps[0].permitted & wanted);
	REQUIRE(syscall(SYS_capset, &header, caps) == 0);
}

static int root_without_capabilities(void)
{
	struct stat st;
	only(0);
	int is = opens("secret") && fails(open("theirs", O_RDONLY), EACCES) && fails(open("dir/in", O_RDONLY), EACCES);
	/* access(2) asks what the real user could do, who is root: then what is permitted counts. */
	is = is && access("theirs", R_OK | W_OK) == 0 && fails(faccessat(AT_FDCWD, "theirs", R_OK, AT_EACCESS), EACCES);
	is = is && fails(chmod("theirs", 0600), EPERM) && fails(chown("theirs", 0, -1), EPERM) && fails(chown("secret", USER, -1), EPERM);
	is = is && fails(mknod("device", S_IFCHR | 0600, 0x103), EPERM) && fails(mkdir("dir/made", 0700), EACCES);
	/* Its own file, but not by a privileged one. */
	return is && chmod("secret", 04700) == 0 && mode_after_write("secret", 04700) == 0700 && chmod("secret", 0600) == 0 &&
	       stat("secret", &st) == 0 && st.st_uid == 0;
}

static int root_that_may_search(void)
{
	only(1 << CAP_DAC_READ_SEARCH);
	return opens("theirs") && opens("dir/in") && fails(open("theirs", O_RDWR), EACCES) && fails(mkdir("dir/made", 0700), EACCES) &&
	       fails(chmod("theirs", 0600), EPERM);
}

static int root_that_owns_all(void)
{
	only(1 << CAP_FOWNER);
	return fails(open("theirs", O_RDONLY), EACCES) && chmod("theirs", 0600) == 0 && fails(chown("theirs", 0, -1), EPERM);
}

static int root_that_gives_away(void)
{
	only(1 << CAP_CHOWN);
	return chown("theirs", USER + 1, -1) == 0 && chown("theirs", USER, -1) == 0 && fails(chmod("theirs", 0600), EPERM);
}

static int user_with_capabilities(void)
{
	REQUIRE(prctl(PR_SET_KEEPCAPS, 1) == 0);
	become_user();
	int is = fails(open("secret", O_RDONLY), EACCES);
	only(1 << CAP_DAC_OVERRIDE);
	is = is && opens("secret") && mkdir("dir/made", 0700) == 0 && fails(chmod("secret", 0644), EPERM);
	/* Of the real user, who is not root, access(2) knows no capabilities. */
	return is && fails(access("secret", R_OK), EACCES) && rmdir("dir/made") == 0;
}

/* What the user for files brought stays when that user is another one by way of setresuid(2). */
static int user_with_those_of_another(void)
{
	return setresuid(-1, USER, USER) == 0 && setfsuid(0) == USER && setresuid(-1, -1, 0) == 0 && setfsuid(-1) == USER &&
	       opens("secret") && chmod("secret", 0600) == 0;
}

/* Root's rights to files are its capabilities. */
static void by_capabilities(void)
{
	if (geteuid() != 0)
		return;
	REQUIRE(close(open("theirs", O_WRONLY | O_CREAT, 0600)) == 0 && mkdir("dir", 0700) == 0 && close(creat("dir/in", 0644)) == 0);
	REQUIRE(chown("theirs", USER, USER) == 0 && chown("dir", USER + 1, USER) == 0);
	CHECK(in_child(root_without_capabilities));
	CHECK(in_child(root_that_may_search));
	CHECK(in_child(root_that_owns_all));
	CHECK(in_child(root_that_gives_away));
	CHECK(in_child(user_with_capabilities));
	CHECK(in_child(user_with_those_of_another));
}

/* bind(2) of a port at an address: 0 or the error. */
static int bind_error(int family, int type, const char *address, int port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int fd = socket(family, type, 0);
	REQUIRE(fd >= 0);
	int result;
	if (family == AF_INET) {
		REQUIRE(inet_pton(family, address, &v4.sin_addr) == 1);
		result = bind(fd, (void *)&v4, sizeof v4);
	} else {
		REQUIRE(inet_pton(family, address, &v6.sin6_addr) == 1);
		result = bind(fd, (void *)&v6, sizeof v6);
	}
	int error = result == 0 ? 0 : errno;
	close(fd);
	return error;
}

static int first_free;

static int binds_no_low_port(void)
{
	int low = first_free - 1;
	if (low < 1)
		return 1;
	return bind_error(AF_INET, SOCK_STREAM, "127.0.0.1", low) == EACCES &&
	       bind_error(AF_INET, SOCK_STREAM, "0.0.0.0", 1) == EACCES &&
	       bind_error(AF_INET, SOCK_DGRAM, "127.0.0.1", low) == EACCES &&
	       bind_error(AF_INET6, SOCK_STREAM, "::", low) == EACCES &&
	       bind_error(AF_INET6, SOCK_DGRAM, "::1", low) == EACCES &&
	       bind_error(AF_INET6, SOCK_STREAM, "::ffff:127.0.0.1", low) == EACCES &&
	       bind_error(AF_INET, SOCK_STREAM, "192.0.2.1", low) == EADDRNOTAVAIL;
}

static int user_binds_no_low_port(void)
{
	become_user();
	return binds_no_low_port() && bind_error(AF_INET, SOCK_STREAM, "127.0.0.1", 0) == 0;
}

/* The capability counts, not the user. */
static int without_the_capability(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];
	REQUIRE(syscall(SYS_capget, &header, caps) == 0);
	REQUIRE(caps[0].effective & 1 << CAP_NET_BIND_SERVICE);
	caps[0].effective &= ~(1 << CAP_NET_BIND_SERVICE);
	REQUIRE(syscall(SYS_capset, &header, caps) == 0);
	return binds_no_low_port();
}

static int bound_twice(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(bind(fd, (void *)&address, sizeof address) == 0);
	become_user();
	address.sin_port = htons(first_free - 1);
	return first_free < 2 || fails(bind(fd, (void *)&address, sizeof address), EACCES);
}

static void ports(void)
{
	char text[32] = "";
	int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
	close(fd);
	first_free = atoi(text);
	CHECK(first_free >= 0 && first_free < 65536);
	if (geteuid() != 0)
		return;
	CHECK(in_child(user_binds_no_low_port));
	CHECK(in_child(without_the_capability));
	CHECK(in_child(bound_twice));
	int error = bind_error(AF_INET, SOCK_STREAM, "127.0.0.1", 1);
	CHECK(error == 0 || error == EADDRINUSE);
}

/* A thread that does nothing until it is told to end. */
static atomic_int thread_id, end;

static void *idle(void *unused)
{
	atomic_store(&thread_id, syscall(SYS_gettid));
	while (!atomic_load(&end))
		usleep(1000);
	return unused;
}

static pthread_t start_idle(void)
{
	pthread_t thread;
	atomic_store(&end, 0);
	atomic_store(&thread_id, 0);
	REQUIRE(pthread_create(&thread, NULL, idle, NULL) == 0);
	while (!atomic_load(&thread_id))
		sched_yield();
	return thread;
}

static volatile sig_atomic_t got, got_value;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	got++;
	got_value = info->si_value.sival_int;
}

static long queue(pid_t pid, int signal, int code, int value)
{
	siginfo_t info = { .si_code = code };
	info.si_pid = getpid();
	info.si_value.sival_int = value;
	return syscall(SYS_rt_sigqueueinfo, pid, signal, &info);
}

static void thread_numbers(void)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, NULL);
	sigset_t usr1, pending;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	/* The other thread inherits the mask: what is sent to the process waits for this one. */
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	pthread_t thread = start_idle();
	pid_t tid = atomic_load(&thread_id);
	CHECK_EQ(kill(tid, 0), 0);
	CHECK_EQ(kill(tid, SIGUSR1), 0);
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	CHECK_EQ(got, 1);
	CHECK_EQ(queue(tid, SIGUSR1, SI_QUEUE, 77), 0);
	CHECK(got == 2 && got_value == 77);
	CHECK_EQ(queue(tid, 0, SI_QUEUE, 0), 0);
	/* Only itself may a thread tell that a signal comes from the kernel or from kill(2). */
	CHECK_ERRNO(queue(tid, SIGUSR1, SI_USER, 0), EPERM);
	CHECK_ERRNO(queue(tid, SIGUSR1, SI_TKILL, 0), EPERM);
	CHECK_EQ(queue(getpid(), SIGUSR1, SI_USER, 0), 0);
	CHECK_EQ(queue(getpid(), SIGUSR1, SI_TKILL, 0), 0);
	CHECK_EQ(got, 4);
	siginfo_t info = { .si_code = SI_USER };
	CHECK_ERRNO(syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, SIGUSR1, &info), EPERM);
	CHECK_ERRNO(syscall(SYS_rt_tgsigqueueinfo, getpid(), -1, SIGUSR1, &info), EINVAL);
	CHECK_ERRNO(queue(-5, SIGUSR1, SI_QUEUE, 0), ESRCH);
	CHECK_EQ(getpgid(tid), getpgid(0));
	CHECK_EQ(getsid(tid), getsid(0));
	CHECK_ERRNO(setpgid(tid, 0), EINVAL);
	struct rlimit limit;
	CHECK_EQ(syscall(SYS_prlimit64, tid, RLIMIT_NOFILE, NULL, &limit), 0);
	int status;
	CHECK_ERRNO(waitpid(tid, &status, 0), ECHILD);
	CHECK_ERRNO(kill(tid, 65), EINVAL);
	/* Who is not there is looked for first. */
	CHECK_ERRNO(kill(NOBODY, 65), ESRCH);
	CHECK_ERRNO(syscall(SYS_tkill, NOBODY, 65), ESRCH);
	CHECK_ERRNO(queue(NOBODY, 65, SI_QUEUE, 0), ESRCH);
	atomic_store(&end, 1);
	pthread_join(thread, NULL);
}

/* What a user may do to its parent, which is root's. */
static pid_t parent;

static int user_signals_nobody(void)
{
	become_user();
	return fails(kill(parent, 0), EPERM) && fails(kill(parent, SIGCONT + 100), EINVAL) &&
	       fails(queue(parent, SIGUSR1, SI_QUEUE, 0), EPERM) && kill(getpid(), 0) == 0;
}

struct attributes {
	unsigned size, policy;
	unsigned long long flags;
	int nice;
	unsigned priority;
	unsigned long long runtime, deadline, period;
};

static int user_schedules_nobody(void)
{
	unsigned long cpus[16] = { ~0UL };
	struct sched_param none = { 0 };
	struct attributes attributes = { .size = sizeof attributes, .policy = SCHED_BATCH };
	struct rlimit limit;
	void *head;
	size_t length;
	become_user();
	return fails(syscall(SYS_sched_setaffinity, parent, sizeof cpus, cpus), EPERM) &&
	       fails(syscall(SYS_sched_setaffinity, parent, 0, cpus), EPERM) &&
	       fails(sched_setscheduler(parent, SCHED_BATCH, &none), EPERM) &&
	       fails(sched_setparam(parent, &none), EPERM) &&
	       fails(syscall(SYS_sched_setattr, parent, &attributes, 0), EPERM) &&
	       fails(setpriority(PRIO_PROCESS, parent, 5), EPERM) &&
	       fails(syscall(SYS_prlimit64, parent, RLIMIT_NOFILE, NULL, &limit), EPERM) &&
	       fails(syscall(SYS_get_robust_list, parent, &head, &length), EPERM) &&
	       syscall(SYS_sched_getaffinity, parent, sizeof cpus, cpus) > 0 && sched_getscheduler(parent) == SCHED_OTHER &&
	       getpriority(PRIO_PROCESS, parent) == 0 &&
	       /* Itself and its own processes it may. */
	       syscall(SYS_sched_setaffinity, getpid(), sizeof cpus, cpus) == -1 + 1 &&
	       sched_setscheduler(0, SCHED_BATCH, &none) == 0;
}

static int user_lowers_nothing(void)
{
	struct sched_param none = { 0 };
	become_user();
	return setpriority(PRIO_PROCESS, 0, 3) == 0 && fails(setpriority(PRIO_PROCESS, 0, 2), EACCES) &&
	       setpriority(PRIO_PROCESS, 0, 3) == 0 && getpriority(PRIO_PROCESS, 0) == 3 &&
	       sched_setscheduler(0, SCHED_IDLE, &none) == 0 && fails(sched_setscheduler(0, SCHED_OTHER, &none), EPERM);
}

static int user_keeps_reset(void)
{
	struct sched_param none = { 0 };
	become_user();
	return sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none) == 0 &&
	       fails(sched_setscheduler(0, SCHED_BATCH, &none), EPERM) &&
	       sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK) && fork() >= 0;
}

static void others(void)
{
	parent = getpid();
	struct sched_param none = { 0 }, some = { 1 }, much = { 100 };
	CHECK_ERRNO(sched_setscheduler(0, SCHED_FIFO, &none), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, SCHED_FIFO, &much), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, SCHED_OTHER, &some), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, 4, &none), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, -1, &none), EINVAL);
	CHECK_ERRNO(sched_setparam(0, &some), EINVAL);
	struct attributes attributes = { .size = 20 };
	CHECK_ERRNO(syscall(SYS_sched_setattr, 0, &attributes, 0), E2BIG);
	CHECK(attributes.size >= sizeof attributes);
	CHECK_ERRNO(syscall(SYS_sched_setattr, 0, BAD, 0), EFAULT);
	CHECK_ERRNO(syscall(SYS_sched_setattr, 0, &(struct attributes){ .policy = 77 }, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_sched_setattr, 0, &(struct attributes){ .flags = 1 << 20 }, 0), EINVAL);
	pid_t pid = fork();
	if (pid == 0) {
		attributes = (struct attributes){ .size = sizeof attributes, .policy = SCHED_BATCH, .flags = 1, .nice = 4 };
		REQUIRE(syscall(SYS_sched_setattr, 0, &attributes, 0) == 0);
		REQUIRE(sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK) && getpriority(PRIO_PROCESS, 0) == 4);
		memset(&attributes, 0, sizeof attributes);
		REQUIRE(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0);
		REQUIRE(attributes.size == sizeof attributes && attributes.policy == SCHED_BATCH && attributes.flags == 1 &&
			attributes.nice == 4);
		pid = fork();
		if (pid == 0)
			_exit(sched_getscheduler(0) != SCHED_BATCH || getpriority(PRIO_PROCESS, 0) != 4);
		int status;
		_exit(waitpid(pid, &status, 0) != pid || status != 0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	if (geteuid() != 0)
		return;
	CHECK(in_child(user_signals_nobody));
	CHECK(in_child(user_schedules_nobody));
	CHECK(in_child(user_lowers_nothing));
	CHECK(in_child(user_keeps_reset));
}

static void *lower(void *number)
{
	pid_t tid = syscall(SYS_gettid);
	*(int *)number = setpriority(PRIO_PROCESS, 0, 7) == 0 && getpriority(PRIO_PROCESS, 0) == 7 &&
			 getpriority(PRIO_PROCESS, tid) == 7 && getpriority(PRIO_PROCESS, getpid()) == 2;
	pthread_t thread = start_idle();
	*(int *)number &= getpriority(PRIO_PROCESS, atomic_load(&thread_id)) == 7;
	atomic_store(&end, 1);
	pthread_join(thread, NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(getpriority(PRIO_PROCESS, 0) != 7);
	int status;
	*(int *)number &= waitpid(pid, &status, 0) == pid && status == 0;
	return NULL;
}

static int nice_of_threads(void)
{
	pthread_t thread;
	int held = 0;
	setpgid(0, 0);
	REQUIRE(setpriority(PRIO_PROCESS, 0, 2) == 0);
	REQUIRE(pthread_create(&thread, NULL, lower, &held) == 0 && pthread_join(thread, NULL) == 0);
	held = held && getpriority(PRIO_PROCESS, 0) == 2;
	/* The number of a thread names that thread only, a group all threads of its processes. */
	thread = start_idle();
	pid_t tid = atomic_load(&thread_id);
	held = held && setpriority(PRIO_PROCESS, tid, 9) == 0 && getpriority(PRIO_PROCESS, tid) == 9 &&
	       getpriority(PRIO_PROCESS, getpid()) == 2 && getpriority(PRIO_PGRP, 0) == 2 &&
	       setpriority(PRIO_PGRP, 0, 11) == 0 && getpriority(PRIO_PROCESS, tid) == 11 &&
	       getpriority(PRIO_PROCESS, 0) == 11;
	atomic_store(&end, 1);
	pthread_join(thread, NULL);
	return held;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "file-id") == 0)
		return setfsuid(-1) != 0;
	tap_directory();
	file_ids();
	privileges();
	by_capabilities();
	ports();
	thread_numbers();
	others();
	CHECK(in_child(nice_of_threads));
	CHECK_ERRNO(getpriority(3, 0), EINVAL);
	CHECK_ERRNO(getpriority(PRIO_PROCESS, NOBODY), ESRCH);
	CHECK_ERRNO(setpriority(PRIO_PGRP, NOBODY, 0), ESRCH);
	return tap_done();
}
