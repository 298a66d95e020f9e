/* Who and where a process is: credentials(7), getrlimit(2), uname(2), sysinfo(2), prctl(2), sched_getaffinity(2). */
#include "tap.h"
#include <linux/capability.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <grp.h>

static void credentials(void)
{
	uid_t r, e, s;
	gid_t gr, ge, gs;
	CHECK(getresuid(&r, &e, &s) == 0 && r == getuid() && e == geteuid() && s == e);
	CHECK(getresgid(&gr, &ge, &gs) == 0 && gr == getgid() && ge == getegid() && gs == ge);
	CHECK(getgroups(0, NULL) >= 0);
	CHECK_EQ(setuid(getuid()), 0);
	CHECK_EQ(setgid(getgid()), 0);
	CHECK_EQ(setresuid(-1, -1, -1), 0);
	CHECK(getauxval(AT_UID) == r && getauxval(AT_EUID) == e && getauxval(AT_GID) == gr && getauxval(AT_SECURE) == 0);
	CHECK(getauxval(AT_PAGESZ) == 4096 && getauxval(AT_RANDOM) != 0 && getauxval(AT_EXECFN) != 0);
	/* The parent is 0 for a process that is the first in its pid namespace. */
	CHECK(getppid() >= 0 && getpgid(0) == getpgrp() && getsid(0) >= 0);
	CHECK_ERRNO(getpgid(1 << 22), ESRCH);
	pid_t pid = fork();
	if (pid == 0) {
		/* Root gives itself up for good. */
		if (geteuid() == 0) {
			gid_t groups[2] = { 5, 7 }, now[4];
			REQUIRE(setgroups(2, groups) == 0 && getgroups(4, now) == 2 && now[0] == 5 && now[1] == 7);
			REQUIRE(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
			REQUIRE(getuid() == 1000 && getegid() == 1000);
		}
		REQUIRE(setuid(0) == -1 && errno == EPERM);
		REQUIRE(setgid(0) == -1 && errno == EPERM);
		REQUIRE(setgroups(0, NULL) == -1 && errno == EPERM);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

#define SETGID_SETUID_SETPCAP (1u << CAP_SETGID | 1u << CAP_SETUID | 1u << CAP_SETPCAP)

static struct __user_cap_data_struct caps[2];

static long capabilities_of(pid_t pid)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, pid };
	return syscall(SYS_capget, &header, caps);
}

static long set_capabilities(pid_t pid)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, pid };
	return syscall(SYS_capset, &header, caps);
}

/* What programs do that start as root and go on as somebody else, setpriv(1) for one. */
static void keep_capabilities(void)
{
	REQUIRE(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0) == 1);
	REQUIRE(setresuid(1000, 1000, 1000) == 0 && capabilities_of(0) == 0);
	/* Kept, but not in effect. */
	REQUIRE(caps[0].effective == 0 && caps[0].permitted & 1u << CAP_SETGID);
	REQUIRE(setresgid(1000, 1000, 1000) == -1 && errno == EPERM);
	caps[0].permitted = caps[0].effective = SETGID_SETUID_SETPCAP;
	caps[1].permitted = caps[1].effective = 0;
	REQUIRE(set_capabilities(0) == 0);
	REQUIRE(setresgid(1000, 1000, 1000) == 0 && setgroups(0, NULL) == 0 && setresuid(1001, 1001, 1001) == 0);
	/* Nothing comes back that was given away. */
	caps[0].permitted |= 1u << CAP_CHOWN;
	REQUIRE(set_capabilities(0) == -1 && errno == EPERM);
	caps[0].permitted = 1u << CAP_SETGID;
	REQUIRE(set_capabilities(0) == -1 && errno == EPERM);
	caps[0].effective = 0;
	REQUIRE(set_capabilities(1 << 22) == -1 && errno == EPERM);
	REQUIRE(set_capabilities(getpid()) == 0 && capabilities_of(getpid()) == 0);
	REQUIRE(caps[0].permitted == 1u << CAP_SETGID && setuid(0) == -1 && errno == EPERM);
}

static void bound_capabilities(void)
{
	REQUIRE(prctl(PR_CAPBSET_READ, CAP_CHOWN, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, CAP_CHOWN, 0, 0, 0) == 0);
	REQUIRE(prctl(PR_CAPBSET_READ, CAP_CHOWN, 0, 0, 0) == 0);
	/* The effective set follows the effective user id. */
	REQUIRE(setresuid(-1, 1000, -1) == 0 && capabilities_of(0) == 0);
	REQUIRE(caps[0].effective == 0 && caps[0].permitted & 1u << CAP_SETUID);
	REQUIRE(prctl(PR_CAPBSET_DROP, CAP_KILL, 0, 0, 0) == -1 && errno == EPERM);
	REQUIRE(setresuid(-1, 0, -1) == 0 && capabilities_of(0) == 0 && caps[0].effective == caps[0].permitted);
	/* Ambient ones need to be permitted and inheritable. */
	REQUIRE(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0, 0) == -1 && errno == EPERM);
	caps[0].inheritable |= 1u << CAP_SETUID;
	REQUIRE(set_capabilities(0) == 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0, 0) == 0);
	REQUIRE(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0, 0) == 1);
	REQUIRE(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 1, 0) == -1 && errno == EINVAL);
	REQUIRE(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0);
	REQUIRE(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SETUID, 0, 0) == 0);
	/* Without its capabilities root is nobody who may take other ids. */
	memset(caps, 0, sizeof caps);
	REQUIRE(set_capabilities(0) == 0 && setresuid(5, 5, 5) == -1 && errno == EPERM);
	REQUIRE(setgroups(0, NULL) == -1 && errno == EPERM);
}

static void capabilities(void)
{
	void (*bodies[])(void) = { keep_capabilities, bound_capabilities };
	struct __user_cap_header_struct header = { 1, 0 };
	CHECK(syscall(SYS_capget, &header, NULL) == 0 && header.version == _LINUX_CAPABILITY_VERSION_3);
	header.version = 1;
	CHECK_ERRNO(syscall(SYS_capget, &header, caps), EINVAL);
	CHECK_ERRNO(capabilities_of(1 << 22), ESRCH);
	CHECK_ERRNO(capabilities_of(-1), EINVAL);
	CHECK_OK(capabilities_of(0));
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t pid = fork();
		if (pid == 0) {
			/* The rest is for root, with what root has in a container. */
			if ((caps[0].effective & SETGID_SETUID_SETPCAP) == SETGID_SETUID_SETPCAP)
				bodies[i]();
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

static void limits(void)
{
	static const int all[] = { RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_CORE, RLIMIT_RSS,
				   RLIMIT_NPROC, RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_AS, RLIMIT_SIGPENDING };
	struct rlimit limit, old;
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		CHECK(getrlimit(all[i], &limit) == 0 && limit.rlim_cur <= limit.rlim_max);
	CHECK_ERRNO(getrlimit(99, &limit), EINVAL);
	REQUIRE(getrlimit(RLIMIT_NOFILE, &old) == 0);
	limit = (struct rlimit){ 100, old.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 100);
	CHECK_EQ(sysconf(_SC_OPEN_MAX), 100);
	limit = (struct rlimit){ 200, 100 };
	CHECK_ERRNO(setrlimit(RLIMIT_NOFILE, &limit), EINVAL);
	CHECK_EQ(prlimit(0, RLIMIT_NOFILE, &old, &limit), 0);
	CHECK_EQ(limit.rlim_cur, 100);
	/* Children inherit. */
	limit = (struct rlimit){ 0, 0 };
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(setrlimit(RLIMIT_CORE, &limit) == 0);
		pid_t inner = fork();
		if (inner == 0)
			_exit(getrlimit(RLIMIT_CORE, &old) == 0 && old.rlim_max == 0 ? 0 : 1);
		int status;
		_exit(waitpid(inner, &status, 0) == inner && status == 0 ? 0 : 1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(getpriority(PRIO_PROCESS, 0) == 0);
}

static void system_facts(void)
{
	struct utsname name;
	CHECK(uname(&name) == 0 && !strcmp(name.sysname, "Linux") && !strcmp(name.machine, "x86_64") && name.release[0] >= '3');
	char host[65];
	CHECK(gethostname(host, sizeof host) == 0 && !strcmp(host, name.nodename));
	CHECK_ERRNO(syscall(SYS_uname, BAD), EFAULT);
	struct sysinfo info;
	CHECK(sysinfo(&info) == 0 && info.totalram > 0 && info.uptime >= 0 && info.procs > 0 && info.mem_unit > 0);
	CHECK_EQ(sysconf(_SC_PAGESIZE), 4096);
	CHECK(sysconf(_SC_NPROCESSORS_ONLN) >= 1 && sysconf(_SC_NPROCESSORS_CONF) >= sysconf(_SC_NPROCESSORS_ONLN));
	CHECK(sysconf(_SC_PHYS_PAGES) > 0);
	double load[1];
	CHECK(getloadavg(load, 1) == 1 && load[0] >= 0);
}

static void scheduling(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
	int count = CPU_COUNT(&set);
	CHECK(count >= 1);
	CHECK_EQ(sched_setaffinity(0, sizeof set, &set), 0);
	int cpu = sched_getcpu();
	CHECK(cpu >= 0 && CPU_ISSET(cpu, &set));
	CPU_ZERO(&set);
	CHECK_ERRNO(sched_setaffinity(0, sizeof set, &set), EINVAL);
	CHECK_ERRNO(syscall(SYS_sched_getaffinity, 0, 1, &set), EINVAL);
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	struct sched_param parameter;
	CHECK(sched_getparam(0, &parameter) == 0 && parameter.sched_priority == 0);
	CHECK(sched_get_priority_min(SCHED_FIFO) == 1 && sched_get_priority_max(SCHED_FIFO) == 99);
	CHECK_EQ(sched_yield(), 0);
	/* Who is not there, and what makes no sense. */
	const pid_t nobody = 4000000;
	CHECK_ERRNO(sched_getscheduler(-1), EINVAL);
	CHECK_ERRNO(sched_getscheduler(nobody), ESRCH);
	CHECK_ERRNO(sched_getparam(-1, &parameter), EINVAL);
	CHECK_ERRNO(sched_getparam(nobody, &parameter), ESRCH);
	CHECK_ERRNO(sched_getparam(0, NULL), EINVAL);
	CHECK_ERRNO(sched_setparam(-1, &parameter), EINVAL);
	CHECK_ERRNO(sched_setparam(nobody, &parameter), ESRCH);
	CPU_SET(0, &set);
	CHECK_ERRNO(sched_getaffinity(-1, sizeof set, &set), ESRCH);
	CHECK_ERRNO(sched_getaffinity(nobody, sizeof set, &set), ESRCH);
	CHECK_ERRNO(sched_setaffinity(-1, sizeof set, &set), ESRCH);
	CHECK_ERRNO(sched_setscheduler(-1, SCHED_OTHER, &parameter), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, 99, &parameter), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, -1, &parameter), EINVAL);
	CHECK_ERRNO(sched_setscheduler(nobody, SCHED_OTHER, &parameter), ESRCH);
	CHECK_EQ(sched_setparam(0, &parameter), 0);
	parameter.sched_priority = 5;
	CHECK_ERRNO(sched_setparam(0, &parameter), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, SCHED_BATCH, &parameter), EINVAL);
	parameter.sched_priority = 0;
	CHECK_EQ(sched_setscheduler(0, SCHED_BATCH, &parameter), 0);
	CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
	pid_t pid = fork();
	if (pid == 0)
		_exit(sched_getscheduler(0));
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == SCHED_BATCH);
	CHECK_EQ(sched_setscheduler(0, SCHED_OTHER, &parameter), 0);
}

static void controls(void)
{
	char name[16] = "";
	CHECK_EQ(prctl(PR_SET_NAME, "a-rather-long-name", 0, 0, 0), 0);
	CHECK(prctl(PR_GET_NAME, name, 0, 0, 0) == 0 && !strcmp(name, "a-rather-long-n"));
	CHECK_EQ(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 1);
	CHECK_EQ(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 0);
	CHECK_ERRNO(prctl(PR_SET_DUMPABLE, 7, 0, 0, 0), EINVAL);
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0), 0);
	int signal = 0;
	CHECK(prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) == 0 && signal == SIGTERM);
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK_ERRNO(prctl(9999, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(9999), ENOSYS);
	/* The default of a child is what its parent has when it makes it. */
	CHECK_EQ(prctl(PR_SET_TIMERSLACK, 70000, 0, 0, 0), 0);
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(prctl(PR_SET_TIMERSLACK, 5000, 0, 0, 0) == 0 && prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) == 5000);
		REQUIRE(prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0) == 0 && prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) == 70000);
		_exit(40);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 40);
	CHECK_EQ(prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 50000);
}

/* What is no id, and what a change of ids takes away. */
static void changes(void)
{
	CHECK_ERRNO(syscall(SYS_setuid, -1), EINVAL);
	CHECK_ERRNO(syscall(SYS_setgid, -1), EINVAL);
	if (getuid() != 0)
		return;
	gid_t groups[] = { 5, -1 };
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(setgroups(2, groups) == -1 && errno == EINVAL);
		int signal = -1;
		REQUIRE(prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
		REQUIRE(setresuid(-1, 0, -1) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
		REQUIRE(seteuid(1000) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1);
		REQUIRE(prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) == 0 && signal == 0);
		/* For good: only an execve(2) gives it back, or the process itself. */
		REQUIRE(seteuid(0) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1);
		_exit(40);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 40);
}

static sigjmp_buf jump;
static siginfo_t seen;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	seen = *info;
	siglongjmp(jump, 1);
}

/* Whether the counter can be read; if not, how the signal says so. */
static int reads(int with_processor)
{
	unsigned low, high, processor = 0;
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	REQUIRE(sigaction(SIGSEGV, &action, NULL) == 0);
	if (sigsetjmp(jump, 1))
		return seen.si_code == SI_KERNEL && seen.si_addr == NULL ? 0 : -1;
	if (with_processor)
		__asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(processor));
	else
		__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return low != 0 || high != 0;
}

/* In a child, as the C library's clocks may need the counter. */
static int counter(void)
{
	int mode = 0, status;
	if (prctl(PR_GET_TSC, &mode, 0, 0, 0) != 0 || mode != PR_TSC_ENABLE || reads(0) != 1)
		return 1;
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0 || prctl(PR_GET_TSC, &mode, 0, 0, 0) != 0 || mode != PR_TSC_SIGSEGV)
		return 2;
	if (reads(0) != 0 || reads(1) != 0)
		return 3;
	pid_t pid = fork();
	if (pid == 0)
		_exit(reads(0) == 0 && prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0) == 0 && reads(0) == 1 ? 42 : 1);
	if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 42)
		return 4;
	if (prctl(PR_SET_TSC, 3, 0, 0, 0) != -1 || errno != EINVAL || reads(1) != 0)
		return 5;
	return prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0) == 0 && reads(0) == 1 && reads(1) == 1 ? 42 : 6;
}

static void policies(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(counter());
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 42);
	CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
	CHECK_EQ(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0), 0);
	CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_EARLY);
	CHECK_EQ(prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
	CHECK_EQ(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_LATE, 0, 0), 0);
	pid = fork();
	if (pid == 0)
		_exit(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), PR_MCE_KILL_LATE);
	CHECK_EQ(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_DEFAULT, 0, 0), 0);
	CHECK_ERRNO(prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 1, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_MCE_KILL, 2, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 3, 0, 0), EINVAL);
	CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_LATE);
	CHECK_EQ(prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0), 0);
}

int main(void)
{
	credentials();
	capabilities();
	limits();
	system_facts();
	scheduling();
	changes();
	controls();
	policies();
	return tap_done();
}
