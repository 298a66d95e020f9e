/* What belongs to a thread, what to a process, and what to memory: ids and capabilities (credentials(7), capabilities(7)), no_new_privs, the
 * "dumpable" attribute and its kin, and what of them a program gets that is executed. Run by root it has more to show. */
#include "obey.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define USER 1000

/* In a child: what holds there. */
#define IN_CHILD(condition) \
	({ pid_t child_ = fork(); int status_ = -1; \
	   if (child_ == 0) \
		   _exit((condition) ? 0 : 1); \
	   waitpid(child_, &status_, 0) == child_ && status_ == 0; })

static long control(int option, unsigned long argument)
{
	return syscall(SYS_prctl, option, argument, 0, 0, 0);
}

/* The C library would change the ids of all threads. */
static int own_ids(int uid)
{
	return syscall(SYS_setresgid, uid, uid, uid) | syscall(SYS_setresuid, uid, uid, uid);
}

static int shows(const char *path, const char *line)
{
	static char text[8192];
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	return strstr(text, line) != NULL;
}

static int writes(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int held = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return held;
}

static long no_new_privs(void) { return control(PR_GET_NO_NEW_PRIVS, 0); }
static long set_no_new_privs(void) { return control(PR_SET_NO_NEW_PRIVS, 1); }
static long keeps(void) { return control(PR_GET_KEEPCAPS, 0); }
static long slack(void) { return control(PR_GET_TIMERSLACK, 0); }
static long becomes_user(void) { return own_ids(USER); }
static long user(void) { return syscall(SYS_getuid) == USER && syscall(SYS_getegid) == USER ? USER : 0; }
static long has_no_rights(void) { return syscall(SYS_setgroups, 0, NULL) == -1 && errno == EPERM; }

static long synchronizes(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { .len = 1, .filter = &allow };
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static int thread_shows(struct other *other, const char *line)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/status", other->tid);
	return shows(path, line);
}

/* In a child: nobody takes no_new_privs back. */
static int of_threads(void)
{
	struct other before, after;
	begin(&before);
	int held = tell(&before, no_new_privs) == 0 && set_no_new_privs() == 0 && tell(&before, no_new_privs) == 0;
	begin(&after);
	held &= tell(&after, no_new_privs) == 1 && IN_CHILD(no_new_privs() == 1);
	held &= thread_shows(&after, "NoNewPrivs:\t1\n") && thread_shows(&before, "NoNewPrivs:\t0\n");
	/* Who synchronizes filters passes it on; who gets one only does not. */
	held &= synchronizes() == 0 && tell(&before, no_new_privs) == 1;
	tell(&before, NULL), tell(&after, NULL);
	return held;
}

static int of_another_thread(void)
{
	struct other other;
	begin(&other);
	int held = tell(&other, set_no_new_privs) == 0 && no_new_privs() == 0 && shows("/proc/self/status", "NoNewPrivs:\t0\n");
	tell(&other, NULL);
	return held && no_new_privs() == 0;
}

static int slack_of_threads(void)
{
	struct other other;
	begin(&other);
	int held = control(PR_SET_TIMERSLACK, 70000) == 0 && tell(&other, slack) == 50000 && slack() == 70000;
	/* A number without a sign, whatever the manual says of those below zero. */
	held &= control(PR_SET_TIMERSLACK, -5000) == 0 && slack() == -5000;
	held &= control(PR_SET_TIMERSLACK, 0) == 0 && slack() == 50000;
	tell(&other, NULL);
	return held;
}

static struct __user_cap_data_struct caps[2];

static int capabilities_of(int tid)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3, .pid = tid };
	return syscall(SYS_capget, &header, caps);
}

static int keep_of_permitted(uint32_t kept)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	if (capabilities_of(0) != 0)
		return -1;
	caps[0].permitted &= kept, caps[0].effective &= kept;
	caps[1].permitted = caps[1].effective = 0;
	return syscall(SYS_capset, &header, caps);
}

static long has_some(void) { return capabilities_of(0) == 0 ? (long)caps[0].effective : -1; }
static long gives_all_up(void) { return keep_of_permitted(0); }

static int ids_of_threads(void)
{
	struct other other;
	begin(&other);
	int held = tell(&other, becomes_user) == 0 && tell(&other, user) == USER && tell(&other, has_no_rights);
	held &= syscall(SYS_getuid) == 0 && syscall(SYS_geteuid) == 0 && syscall(SYS_getegid) == 0 && has_some() != 0;
	held &= thread_shows(&other, "Uid:\t1000\t1000\t1000\t1000\n") && shows("/proc/self/status", "Uid:\t0\t0\t0\t0\n");
	held &= capabilities_of(other.tid) == 0 && caps[0].effective == 0 && capabilities_of(getpid()) == 0 && caps[0].effective != 0;
	/* The C library's function does it in all threads. */
	held &= setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0 && user() == USER;
	tell(&other, NULL);
	return held;
}

static int capabilities_of_threads(void)
{
	struct other other;
	begin(&other);
	int held = control(PR_SET_KEEPCAPS, 1) == 0 && tell(&other, keeps) == 0 && keeps() == 1;
	held &= tell(&other, gives_all_up) == 0 && tell(&other, has_some) == 0 && has_some() != 0;
	tell(&other, NULL);
	return held;
}

/* The user for files takes the capabilities about files along (CAP_FS_SET), and the calls of the setuid kind do not give them back. */
static int capabilities_of_files(void)
{
	const long about_files = 1 << CAP_CHOWN | 1 << CAP_DAC_OVERRIDE | 1 << CAP_FOWNER | 1 << CAP_FSETID;
	long all = has_some();
	int held = (all & about_files) == about_files && syscall(SYS_setfsuid, USER) == 0 && (has_some() & about_files) == 0;
	held &= (has_some() | about_files) == (all & ~(1 << CAP_DAC_READ_SEARCH | 1 << CAP_LINUX_IMMUTABLE | 1 << CAP_MKNOD));
	held &= syscall(SYS_setfsuid, 0) == USER && has_some() == all;
	return held && syscall(SYS_setfsuid, USER) == 0 && syscall(SYS_setresuid, 0, 0, 0) == 0 && (has_some() & about_files) == 0;
}

/* A process whose first thread is another user than the second one: who may send it signals, and what its files say. */
static int first_thread_counts(void)
{
	int pipes[2][2];
	char byte;
	REQUIRE(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct other other;
		begin(&other);
		REQUIRE(tell(&other, becomes_user) == 0);
		REQUIRE(write(pipes[0][1], &other.tid, sizeof other.tid) == sizeof other.tid);
		REQUIRE(read(pipes[1][0], &byte, 1) == 1);
		_exit(0);
	}
	pid_t tid;
	REQUIRE(read(pipes[0][0], &tid, sizeof tid) == sizeof tid);
	int held = IN_CHILD(own_ids(USER) == 0 && kill(pid, 0) == -1 && errno == EPERM && syscall(SYS_tkill, tid, 0) == 0 &&
			    syscall(SYS_tgkill, pid, tid, 0) == 0 && syscall(SYS_tkill, pid, 0) == -1 && errno == EPERM);
	char path[64];
	struct stat process, thread;
	snprintf(path, sizeof path, "/proc/%d", pid);
	held &= stat(path, &process) == 0 && process.st_uid == 0;
	snprintf(path, sizeof path, "/proc/%d/task/%d", pid, tid);
	held &= stat(path, &thread) == 0 && thread.st_uid == USER && thread.st_gid == USER;
	REQUIRE(write(pipes[1][1], "", 1) == 1 && waitpid(pid, NULL, 0) == pid);
	for (int i = 0; i < 4; i++)
		close(pipes[i / 2][i % 2]);
	return held;
}

static char stack[65536] __attribute__((aligned(16)));

static int changes_memory(void *unused)
{
	(void)unused;
	_exit(control(PR_SET_DUMPABLE, 0) || control(PR_SET_THP_DISABLE, 1) || !writes("/proc/self/coredump_filter", "7") ||
	      !writes("/proc/self/oom_score_adj", "123"));
}

/* What is kept of memory, all see who have it; only for who is to be killed first a child of vfork(2) speaks for itself. */
static int of_memory(int flags, const char *adjusted)
{
	int status;
	pid_t pid = clone(changes_memory, stack + sizeof stack, flags | CLONE_VM | SIGCHLD, NULL);
	REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
	return status == 0 && control(PR_GET_DUMPABLE, 0) == 0 && control(PR_GET_THP_DISABLE, 0) == 1 &&
	       shows("/proc/self/coredump_filter", "00000007\n") && shows("/proc/self/oom_score_adj", adjusted) &&
	       IN_CHILD(control(PR_GET_DUMPABLE, 0) == 0 && control(PR_GET_THP_DISABLE, 0) == 1);
}

/* Files of what is not dumpable are root's, but for directories that all may search. */
static int owners(void)
{
	struct stat st;
	int held = own_ids(USER) == 0 && control(PR_GET_DUMPABLE, 0) != 1;
	held &= stat("/proc/self/", &st) == 0 && st.st_uid == USER && stat("/proc/self/task", &st) == 0 && st.st_uid == USER;
	held &= stat("/proc/self/status", &st) == 0 && st.st_uid == 0 && stat("/proc/self/fd", &st) == 0 && st.st_uid == 0;
	held &= open("/proc/self/environ", O_RDONLY) == -1 && errno == EACCES;
	held &= open("/proc/self/oom_score_adj", O_WRONLY) == -1 && errno == EACCES;
	int fd = open("/proc/self/fd", O_RDONLY);
	held &= fd >= 0 && close(fd) == 0 && access("/proc/self/exe", F_OK) == 0;
	held &= control(PR_SET_DUMPABLE, 1) == 0 && stat("/proc/self/status", &st) == 0 && st.st_uid == USER;
	return held && (fd = open("/proc/self/environ", O_RDONLY)) >= 0;
}

/* Memory of other users' processes, links to their files and their descriptors are not for everybody. */
static int looks_at_parent(void)
{
	char path[64], text[64];
	int held = own_ids(USER) == 0;
	snprintf(path, sizeof path, "/proc/%d/maps", getppid());
	held &= open(path, O_RDONLY) == -1 && errno == EACCES;
	snprintf(path, sizeof path, "/proc/%d/exe", getppid());
	held &= readlink(path, text, sizeof text) == -1 && errno == EACCES;
	snprintf(path, sizeof path, "/proc/%d/cwd", getppid());
	held &= readlink(path, text, sizeof text) == -1 && errno == EACCES;
	snprintf(path, sizeof path, "/proc/%d/fdinfo", getppid());
	held &= open(path, O_RDONLY) == -1 && errno == EACCES;
	snprintf(path, sizeof path, "/proc/%d/stat", getppid());
	return held && open(path, O_RDONLY) >= 0;
}

/* "si_uid: The real user ID of the child" (wait(2)). */
static int real_user_of_child(void)
{
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set), sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_setresuid, -1, USER, -1));
	int held = sigwaitinfo(&set, &info) == SIGCHLD && info.si_uid == 0 && info.si_pid == pid;
	memset(&info, 0, sizeof info);
	return held && waitid(P_PID, pid, &info, WEXITED) == 0 && info.si_uid == 0;
}

/* The status of a child that asked for a signal when its parent ends, and that has become the caller's: if it came, 1 more than a
 * hundredth of the user id of the sender. */
static int signalled_by_parent_of(int real, int effective)
{
	int ready[2], status = -1;
	char byte = 0;
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGUSR1);
	REQUIRE(pipe(ready) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	pid_t reaper = getpid(), parent = fork();
	if (parent == 0) {
		pid_t child = fork();
		if (child == 0) {
			siginfo_t info;
			const struct timespec none = {0};
			REQUIRE(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && write(ready[1], &byte, 1) == 1);
			while (getppid() != reaper)
				usleep(1000);
			int came = sigtimedwait(&set, &info, &none) == SIGUSR1;
			_exit(!came ? 0 : info.si_code == SI_USER ? info.si_uid / 100 + 1 : 99);
		}
		REQUIRE(read(ready[0], &byte, 1) == 1 && write(ready[1], &child, sizeof child) == sizeof child);
		_exit(syscall(SYS_setresuid, real, effective, effective) != 0);
	}
	pid_t child = -1;
	REQUIRE(waitpid(parent, &status, 0) == parent && status == 0 && read(ready[0], &child, sizeof child) == sizeof child);
	REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* What a program tells of itself that is executed again, as bits of its status. */
enum { SECURE = 1, ROOT = 2, RIGHTS = 4, DUMPABLE = 8, NO_RANDOM = 16, PARENT = 32, HELD = 64 };

static int tells(void)
{
	int signal = 0;
	return (getauxval(AT_SECURE) ? SECURE : 0) | (geteuid() == 0 && getauxval(AT_EUID) == 0 ? ROOT : 0) |
	       (capabilities_of(0) == 0 && caps[0].effective ? RIGHTS : 0) | (prctl(PR_GET_DUMPABLE) == 1 ? DUMPABLE : 0) |
	       (personality(0xffffffff) & ADDR_NO_RANDOMIZE ? NO_RANDOM : 0) | (prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal ? PARENT : 0) |
	       (no_new_privs() ? HELD : 0);
}

static const char *program;

/* The status of the program, executed by a child that is so prepared. */
static int status_of(const char *path, int (*prepared)(void))
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(prctl(PR_SET_PDEATHSIG, SIGURG) == 0 && personality(ADDR_NO_RANDOMIZE) != -1);
		if (!prepared())
			_exit(99);
		execl(path, path, "tells", NULL);
		_exit(98);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int nothing(void) { return 1; }
static int holds(void) { return set_no_new_privs() == 0; }
/* The signal is gone by that, so it is asked for again. */
static int is_user(void) { return own_ids(USER) == 0 && prctl(PR_SET_PDEATHSIG, SIGURG) == 0; }
static int is_held_user(void) { return is_user() && holds(); }
static int gave_up(void) { return keep_of_permitted(1 << CAP_KILL) == 0; }
static int gave_up_for_good(void) { return gave_up() && holds(); }
static int looks_like_user(void) { return syscall(SYS_setresuid, -1, USER, -1) == 0 && prctl(PR_SET_PDEATHSIG, SIGURG) == 0; }
static int works_as_root(void) { return syscall(SYS_setresuid, USER, 0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGURG) == 0; }
static int held_works_as_root(void) { return works_as_root() && holds(); }

static int copied(const char *from, const char *to, mode_t mode)
{
	static char block[65536];
	int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY, 0700);
	ssize_t n;
	while ((n = read(in, block, sizeof block)) > 0)
		REQUIRE(write(out, block, n) == n);
	return n == 0 && close(in) == 0 && close(out) == 0 && chmod(to, mode) == 0;
}

static void executions(void)
{
	const int usual = DUMPABLE | NO_RANDOM | PARENT;
	CHECK_EQ(status_of(program, holds) & (SECURE | HELD | DUMPABLE), HELD | DUMPABLE);
	if (geteuid() != 0)
		return;
	REQUIRE(copied(program, "by-root", 04755) && copied(program, "by-group", 02745) && copied(program, "unreadable", 0711));
	REQUIRE(chmod(".", 0755) == 0);
	CHECK_EQ(status_of(program, nothing), usual | ROOT | RIGHTS);
	/* Who gets what it did not have is another one: it is not dumpable, at addresses that vary, and nobody's child. */
	CHECK_EQ(status_of(program, gave_up), ROOT | RIGHTS);
	CHECK_EQ(status_of(program, gave_up_for_good), DUMPABLE | PARENT | ROOT | RIGHTS | HELD);
	struct statvfs fs;
	REQUIRE(statvfs(".", &fs) == 0);
	CHECK(fs.f_flag & ST_NOSUID || (status_of("./by-root", is_user) & ~RIGHTS) == (SECURE | ROOT));
	CHECK_EQ(status_of("./by-root", is_held_user), usual | HELD);
	CHECK_EQ(status_of("./by-group", is_user), usual);
	CHECK_EQ(status_of("./unreadable", is_user), NO_RANDOM | PARENT);
	CHECK_EQ(status_of("./unreadable", nothing), usual | ROOT | RIGHTS);
	CHECK_EQ(status_of("/proc/self/exe", looks_like_user), SECURE | NO_RANDOM);
	CHECK_EQ(status_of(program, works_as_root), SECURE | ROOT | RIGHTS | NO_RANDOM);
	/* Since Linux 6.16 an effective user that is not the real one stays. */
	CHECK_EQ(status_of(program, held_works_as_root) & ~ROOT, SECURE | RIGHTS | NO_RANDOM | HELD);
}

/* A program that is executed has no locks: those who wait for them are told that their owner is gone. */
static int robust_over_execve(void)
{
	struct shared { struct robust_list next; uint32_t word; } *shared;
	struct robust_list_head head;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shared != MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0) {
		head.list.next = &shared->next, shared->next.next = &head.list;
		head.futex_offset = offsetof(struct shared, word), head.list_op_pending = NULL;
		shared->word = getpid();
		REQUIRE(syscall(SYS_set_robust_list, &head, sizeof head) == 0);
		execl(program, program, "tells", NULL);
		_exit(98);
	}
	REQUIRE(waitpid(pid, NULL, 0) == pid);
	return shared->word == FUTEX_OWNER_DIED;
}

int main(int argc, char **argv __attribute__((unused)))
{
	if (argc > 1)
		return tells();
	static char self[4096];
	program = realpath("/proc/self/exe", self);
	REQUIRE(program);
	tap_directory();
	CHECK(IN_CHILD(of_threads()));
	CHECK(IN_CHILD(of_another_thread()));
	CHECK(IN_CHILD(slack_of_threads()));
	CHECK(IN_CHILD(of_memory(0, "123\n")));
	CHECK(IN_CHILD(of_memory(CLONE_VFORK, "0\n")));
	CHECK(IN_CHILD(robust_over_execve()));
	if (geteuid() == 0) {
		CHECK(IN_CHILD(ids_of_threads()));
		CHECK(IN_CHILD(capabilities_of_threads()));
		CHECK(IN_CHILD(capabilities_of_files()));
		CHECK(first_thread_counts());
		CHECK(IN_CHILD(owners()));
		CHECK(IN_CHILD(looks_at_parent()));
		CHECK(IN_CHILD(real_user_of_child()));
		/* The end of a parent signals whom it might signal by kill(2). */
		CHECK(IN_CHILD(signalled_by_parent_of(0, 0) == 1));
		CHECK(IN_CHILD(signalled_by_parent_of(USER, 0) == USER / 100 + 1));
		CHECK(IN_CHILD(signalled_by_parent_of(USER, USER) == 0));
	}
	executions();
	return tap_done();
}
