/*
 * What root may do with a machine: policies of real time (sched(7)), its names, its log, types of file systems, parameters of the
 * kernel, comparison of processes. Without the capabilities, as in a container, the checks hold for nothing: CAN says so.
 */
#include "tap.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

static int effective(int capability)
{
	unsigned long long bits = 0;
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(line, sizeof line, status))
		sscanf(line, "CapEff: %llx", &bits);
	if (status)
		fclose(status);
	return bits >> capability & 1;
}

#define DAC_READ_SEARCH 2
#define SYS_PTRACE 19
#define SYS_ADMIN 21
#define SYS_NICE 23
#define SYS_RESOURCE 24
#define TTY_CONFIG 26
#define SYSLOG 34
/* A check that holds for whoever has a capability. */
#define CAN(capability, condition) CHECK(!effective(capability) || (condition))

static int be(int policy, int priority)
{
	struct sched_param parameter = {priority};
	return sched_setscheduler(0, policy, &parameter);
}

/* Whether a child finds this to be so. */
#define IN_CHILD(condition) \
	({ pid_t pid_ = fork(); if (pid_ == 0) _exit(!(condition)); int status_ = -1; waitpid(pid_, &status_, 0); status_ == 0; })

static int priority(void)
{
	struct sched_param parameter = {-1};
	sched_getparam(0, &parameter);
	return parameter.sched_priority;
}

/* struct sched_attr of sched_setattr(2). */
struct attributes {
	unsigned size, policy;
	unsigned long long flags;
	int nice;
	unsigned priority;
	unsigned long long runtime, deadline, period;
};

static sem_t gate, started;
static int order[3], ended;

static void *waiter(void *number)
{
	sem_post(&started);
	sem_wait(&gate);
	order[__atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST)] = (int)(long)number;
	return NULL;
}

/* "sem_post() [...] If the Process Scheduling option is supported, the highest priority thread shall be chosen". */
static int wakes_by_priority(void)
{
	pthread_attr_t attributes;
	pthread_t threads[3];
	int priorities[3] = {5, 30, 10};
	sem_init(&gate, 0, 0);
	sem_init(&started, 0, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	for (int i = 0; i < 3; i++) {
		struct sched_param parameter = {priorities[i]};
		pthread_attr_setschedparam(&attributes, &parameter);
		if (pthread_create(&threads[i], &attributes, waiter, (void *)(long)priorities[i]))
			return 0;
		sem_wait(&started);
		usleep(50000);
	}
	for (int i = 0; i < 3; i++) {
		sem_post(&gate);
		usleep(50000);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return order[0] == 30 && order[1] == 10 && order[2] == 5;
}

static volatile int other_has_run;

static void *other(void *arg)
{
	other_has_run = 1;
	return arg;
}

/* "5% of the CPU time is reserved for processes that don't run under a real-time or deadline scheduling policy" (sched(7)). */
static int leaves_some(void)
{
	pthread_t thread;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	if (be(SCHED_FIFO, 10) || pthread_create(&thread, &attributes, other, NULL))
		return 0;
	/* Calls that take long but do not sleep, so that a second goes by after few of them. */
	int file = memfd_create("file", 0);
	struct timespec now, begun;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		if (fsync(file))
			break;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!other_has_run && now.tv_sec - begun.tv_sec < 5);
	int has_run = other_has_run;
	be(SCHED_OTHER, 0);
	pthread_join(thread, NULL);
	close(file);
	return has_run;
}

static void real_time(void)
{
	struct timespec turn;
	CAN(SYS_NICE, be(SCHED_FIFO, 10) == 0 && sched_getscheduler(0) == SCHED_FIFO && priority() == 10);
	CAN(SYS_NICE, sched_rr_get_interval(0, &turn) == 0 && turn.tv_sec == 0 && turn.tv_nsec == 0);
	CAN(SYS_NICE, be(SCHED_RR, 7) == 0 && sched_rr_get_interval(0, &turn) == 0 && turn.tv_nsec > 0);
	CAN(SYS_NICE, IN_CHILD(sched_getscheduler(0) == SCHED_RR && priority() == 7));
	CAN(SYS_NICE, sched_setparam(0, &(struct sched_param){20}) == 0 && priority() == 20);
	CHECK_ERRNO(be(SCHED_FIFO, 0), EINVAL);
	CHECK_ERRNO(be(SCHED_FIFO, 100), EINVAL);
	CHECK_ERRNO(be(SCHED_OTHER, 1), EINVAL);
	CAN(SYS_NICE, be(SCHED_FIFO | SCHED_RESET_ON_FORK, 3) == 0);
	CAN(SYS_NICE, IN_CHILD(sched_getscheduler(0) == SCHED_OTHER && priority() == 0));
	struct attributes got = {0}, want = {.size = 48, .policy = 6, .runtime = 10000000, .deadline = 30000000};
	CAN(SYS_NICE, syscall(SYS_sched_setattr, 0, &want, 0) == 0);
	CAN(SYS_NICE, syscall(SYS_sched_getattr, 0, &got, 48, 0) == 0 && got.policy == 6 && got.period == 30000000);
	CAN(SYS_NICE, fork() == -1 && errno == EAGAIN);
	CHECK_EQ(be(SCHED_OTHER, 0), 0);
	/* Without the capability, and with the limit that RLIMIT_RTPRIO is. */
	CHECK(IN_CHILD(setgid(65534) || setuid(65534) || (be(SCHED_FIFO, 1) == -1 && errno == EPERM)));
	CAN(SYS_NICE, wakes_by_priority());
	CAN(SYS_NICE, leaves_some());
}

static void names(void)
{
	struct utsname name;
	CHECK(uname(&name) == 0);
	CAN(SYS_ADMIN, sethostname(name.nodename, strlen(name.nodename)) == 0);
	CAN(SYS_ADMIN, sethostname(name.nodename, 65) == -1 && errno == EINVAL);
	CAN(SYS_ADMIN, syscall(SYS_sethostname, name.nodename, -1) == -1 && errno == EINVAL);
	CAN(SYS_ADMIN, syscall(SYS_sethostname, BAD, 4) == -1 && errno == EFAULT);
	CAN(SYS_ADMIN, setdomainname(name.domainname, strlen(name.domainname)) == 0);
	CAN(SYS_ADMIN, syscall(SYS_setdomainname, BAD, 4) == -1 && errno == EFAULT);
	CHECK(IN_CHILD(setuid(65534) || (sethostname("a", 1) == -1 && errno == EPERM)));
	CHECK(IN_CHILD(setuid(65534) || (setdomainname("a", 1) == -1 && errno == EPERM)));
}

/* "fs.pipe-max-size" is for those without the capability, and for growing only; beyond 256 MiB there is no room for the array. */
static void pipes(void)
{
	int ends[2];
	REQUIRE(pipe(ends) == 0);
	CAN(SYS_RESOURCE, fcntl(ends[1], F_SETPIPE_SZ, 1048577) == 2097152);
	CAN(SYS_RESOURCE, fcntl(ends[1], F_SETPIPE_SZ, 1u << 31) == -1 && errno == ENOMEM);
	CHECK(effective(SYS_RESOURCE) || (fcntl(ends[1], F_SETPIPE_SZ, 1048577) == -1 && errno == EPERM));
	CHECK_EQ(fcntl(ends[1], F_SETPIPE_SZ, 1048576), 1048576);
	close(ends[0]);
	close(ends[1]);
}

static void logs(void)
{
	char text[64];
	CAN(SYSLOG, klogctl(3, NULL, 10) == -1 && errno == EINVAL);
	CAN(SYSLOG, klogctl(3, text, -1) == -1 && errno == EINVAL);
	CAN(SYSLOG, klogctl(3, text, 0) == 0);
	CAN(SYSLOG, klogctl(3, text, sizeof text) >= 0);
	CAN(SYSLOG, klogctl(8, NULL, 9) == -1 && errno == EINVAL);
	CAN(SYSLOG, klogctl(9, NULL, 0) >= 0 && klogctl(10, NULL, 0) > 0);
	CAN(SYSLOG, klogctl(11, NULL, 0) == -1 && errno == EINVAL);
	CHECK(IN_CHILD(setuid(65534) || (klogctl(9, NULL, 0) == -1 && errno == EPERM)));
}

static void file_systems(void)
{
	char text[64];
	struct stat root;
	/* A runtime of containers may refuse both calls. */
	int allowed = syscall(SYS_sysfs, 3) > 0;
	long number = syscall(SYS_sysfs, 1, "proc");
	CHECK(!allowed || (syscall(SYS_sysfs, 2, number, text) == 0 && strcmp(text, "proc") == 0));
	CHECK(!allowed || (syscall(SYS_sysfs, 1, "no such") == -1 && errno == EINVAL));
	CHECK(!allowed || (syscall(SYS_sysfs, 2, 10000, text) == -1 && errno == EINVAL));
	CHECK(!allowed || (syscall(SYS_sysfs, 4) == -1 && errno == EINVAL));
	CHECK(!allowed || (syscall(SYS_sysfs, 2, 0, BAD) == -1 && errno == EFAULT));
	CHECK(!allowed || (stat("/", &root) == 0 && syscall(SYS_ustat, (unsigned)root.st_dev, text) == 0));
	CHECK(!allowed || (syscall(SYS_ustat, 0xfffe, text) == -1 && errno == EINVAL));
	CHECK(!allowed || (syscall(SYS_ustat, (unsigned)root.st_dev, BAD) == -1 && errno == EFAULT));
	CHECK(IN_CHILD(setuid(65534) || (syscall(SYS_vhangup) == -1 && errno == EPERM)));
	CAN(TTY_CONFIG, IN_CHILD(setsid() == getpid() && syscall(SYS_vhangup) == 0));
}

static long compare(pid_t one, pid_t other, int kind, unsigned long first, unsigned long second)
{
	return syscall(SYS_kcmp, one, other, kind, first, second);
}

static void comparisons(void)
{
	pid_t me = getpid(), child;
	int copy = dup(1), other = open("/dev/null", O_RDONLY);
	CAN(SYS_PTRACE, compare(me, me, KCMP_FILE, 1, copy) == 0);
	CAN(SYS_PTRACE, compare(me, me, KCMP_FILE, 1, other) == 1 || compare(me, me, KCMP_FILE, 1, other) == 2);
	CAN(SYS_PTRACE, compare(me, me, KCMP_FILE, 1, 9999) == -1 && errno == EBADF);
	CAN(SYS_PTRACE, compare(me, 1 << 28, KCMP_FILE, 1, 1) == -1 && errno == ESRCH);
	CAN(SYS_PTRACE, compare(me, me, KCMP_TYPES, 1, 1) == -1 && errno == EINVAL);
	if ((child = fork()) == 0) {
		pause();
		_exit(0);
	}
	CAN(SYS_PTRACE, compare(me, child, KCMP_FILE, 1, copy) == 0);
	CAN(SYS_PTRACE, compare(me, child, KCMP_VM, 0, 0) > 0 && compare(me, child, KCMP_FILES, 0, 0) > 0);
	CAN(SYS_PTRACE, compare(me, child, KCMP_FS, 0, 0) > 0 && compare(me, child, KCMP_SIGHAND, 0, 0) > 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	int epoll = epoll_create1(0), ends[2];
	struct epoll_event event = {.events = EPOLLIN};
	CHECK(pipe(ends) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
	struct kcmp_epoll_slot slot = {epoll, ends[0], 0}, none = {epoll, ends[1], 0}, wrong = {copy, ends[0], 0};
	CAN(SYS_PTRACE, compare(me, me, KCMP_EPOLL_TFD, ends[0], (unsigned long)&slot) == 0);
	CAN(SYS_PTRACE, compare(me, me, KCMP_EPOLL_TFD, ends[0], (unsigned long)&none) == -1 && errno == ENOENT);
	CAN(SYS_PTRACE, compare(me, me, KCMP_EPOLL_TFD, ends[0], (unsigned long)&wrong) == -1 && errno == EINVAL);
	close(copy);
	close(other);
}

/* Files of tmpfs have handles: those of /dev/shm. */
static void handles(void)
{
	struct {
		struct file_handle head;
		unsigned char bytes[128];
	} handle;
	int mount, fd = open("/dev/shm/handles", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, "abc", 3) == 3);
	handle.head.handle_bytes = 0;
	CHECK_ERRNO(name_to_handle_at(AT_FDCWD, "/dev/shm/handles", &handle.head, &mount, 0), EOVERFLOW);
	CHECK_EQ(handle.head.handle_bytes, 12);
	handle.head.handle_bytes = 129;
	CHECK_ERRNO(name_to_handle_at(AT_FDCWD, "/dev/shm/handles", &handle.head, &mount, 0), EINVAL);
	handle.head.handle_bytes = 128;
	CHECK_ERRNO(name_to_handle_at(AT_FDCWD, "/dev/shm/none", &handle.head, &mount, 0), ENOENT);
	CHECK_ERRNO(name_to_handle_at(AT_FDCWD, "/dev/shm/handles", &handle.head, &mount, 0x4000), EINVAL);
	CHECK_ERRNO(name_to_handle_at(-1, "handles", &handle.head, &mount, 0), EBADF);
	CHECK_ERRNO(name_to_handle_at(AT_FDCWD, "/proc/self/stat", &handle.head, &mount, 0), EOPNOTSUPP);
	CHECK_EQ(name_to_handle_at(fd, "", &handle.head, &mount, AT_EMPTY_PATH), 0);
	char text[4] = "";
	int again = open_by_handle_at(fd, &handle.head, O_RDONLY);
	CAN(DAC_READ_SEARCH, again >= 0 && read(again, text, 3) == 3 && strcmp(text, "abc") == 0);
	CHECK(IN_CHILD(setuid(65534) || (open_by_handle_at(fd, &handle.head, O_RDONLY) == -1 && errno == EPERM)));
	CAN(DAC_READ_SEARCH, open_by_handle_at(-1, &handle.head, O_RDONLY) == -1 && errno == EBADF);
	CHECK(unlink("/dev/shm/handles") == 0 && close(again) == 0);
	int directory = open("/dev/shm", O_RDONLY);
	close(fd);
	CAN(DAC_READ_SEARCH, open_by_handle_at(directory, &handle.head, O_RDONLY) == -1 && errno == ESTALE);
	handle.head.handle_bytes = 0;
	CAN(DAC_READ_SEARCH, open_by_handle_at(directory, &handle.head, O_RDONLY) == -1 && errno == EINVAL);
	close(directory);
}

static volatile sig_atomic_t signalled;

static void note(int signo)
{
	signalled = signo;
}

/* A loop uses CPU time, which timers of it and RLIMIT_CPU count. */
static int spins_until(int which, int signo)
{
	struct itimerval timer = {.it_value = {0, 20000}};
	signalled = 0;
	signal(signo, note);
	if (setitimer(which, &timer, NULL))
		return 0;
	while (!signalled)
		;
	return signalled == signo;
}

static int spins_on(clockid_t clock)
{
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec time = {.it_value = {0, 20000000}};
	signalled = 0;
	signal(SIGUSR1, note);
	if (timer_create(clock, &event, &timer) || timer_settime(timer, 0, &time, NULL))
		return 0;
	while (!signalled)
		;
	timer_delete(timer);
	return signalled == SIGUSR1;
}

static int ended_by_limit(void)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit limit = {1, 1}, none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		setrlimit(RLIMIT_CPU, &limit);
		for (;;)
			;
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void processor_time(void)
{
	alarm(30);
	CHECK(spins_until(ITIMER_VIRTUAL, SIGVTALRM));
	CHECK(spins_until(ITIMER_PROF, SIGPROF));
	CHECK(spins_on(CLOCK_PROCESS_CPUTIME_ID));
	CHECK(spins_on(CLOCK_THREAD_CPUTIME_ID));
	CHECK(ended_by_limit());
	alarm(0);
}

static int holds(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);
	int held = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
	close(fd);
	return held;
}

static long default_messages(void)
{
	struct mq_attr attr = { 0 };
	mqd_t queue = mq_open("/parameters", O_CREAT | O_RDWR, 0600, NULL);
	mq_getattr(queue, &attr);
	mq_close(queue);
	mq_unlink("/parameters");
	return attr.mq_maxmsg;
}

/* mq_overview(7): "If msg_default exceeds msg_max, a new queue's default mq_maxmsg value is capped to the msg_max limit." */
static int limits_queues(void)
{
#define QUEUES "/proc/sys/fs/mqueue/"
	/* The parameters of a real machine are not touched: with the capability they are those of a namespace of its own. */
	int alone = effective(SYS_ADMIN);
	unshare(CLONE_NEWIPC);
	if (!alone || access(QUEUES "msg_max", W_OK) == -1)
		return 1;
	int held = holds(QUEUES "msg_max", "20") && holds(QUEUES "msg_default", "15") && default_messages() == 15;
	held = held && holds(QUEUES "msg_max", "12") && default_messages() == 12;
	return held && !holds(QUEUES "msg_max", "0") && !holds(QUEUES "msgsize_max", "127");
}

static void parameters(void)
{
	char text[64] = "", link[64];
	int fd = open("/proc/sys/kernel/msgmni", O_RDONLY);
	CHECK(read(fd, text, sizeof text - 1) > 0);
	close(fd);
	/* What is there already; root of a container has read-only parameters. */
	CHECK(access("/proc/sys/kernel/msgmni", W_OK) == -1 || holds("/proc/sys/kernel/msgmni", text));
	CHECK(access("/proc/sys/kernel/msgmni", W_OK) == -1 || !holds("/proc/sys/kernel/msgmni", "nonsense"));
	CHECK(readlink("/proc/self/ns/pid", link, sizeof link) > 5 && strncmp(link, "pid:[", 5) == 0);
	CHECK(readlink("/proc/self/ns/mnt", link, sizeof link) > 5 && strncmp(link, "mnt:[", 5) == 0);
	CHECK(IN_CHILD(limits_queues()));
	unsigned long words[2];
	fd = open("/proc/self/auxv", O_RDONLY);
	CHECK(read(fd, words, sizeof words) == sizeof words && words[0] != 0);
	close(fd);
}

static int dumped(int dumpable)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit limit = {1 << 20, 1 << 20};
		if (chdir("/") || setrlimit(RLIMIT_CORE, &limit) || prctl(PR_SET_DUMPABLE, dumpable))
			_exit(9);
		raise(SIGQUIT);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? !!WCOREDUMP(status) : -1;
}

static void errors(void)
{
	CHECK(IN_CHILD(setresuid(1, 2, 3) || (setreuid(3, 1) == -1 && errno == EPERM)));
	CHECK(IN_CHILD(setresuid(1, 2, 3) || (setreuid(2, 3) == 0)));
	/* setuid(2) knows the real and the saved one only. */
	CHECK(IN_CHILD(setresuid(1, 2, 3) || (setuid(2) == -1 && errno == EPERM && setuid(3) == 0 && setuid(1) == 0)));
	CHECK(IN_CHILD(setresgid(1, 2, 3) || setresuid(9, 9, 9) || (setgid(2) == -1 && errno == EPERM && setgid(3) == 0)));
	struct rlimit limit = {1 << 30, 1 << 30};
	CHECK_ERRNO(setrlimit(RLIMIT_NOFILE, &limit), EPERM);
	struct itimerspec wrong = {.it_value = {0, -1}};
	CHECK_ERRNO(timerfd_settime(-1, 0, &wrong, NULL), EINVAL);
	char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_ERRNO(madvise(shared, 4096, MADV_FREE), EINVAL);
	munmap(shared, 4096);
	int ends[2], sockets[2];
	CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	CHECK_ERRNO(fsetxattr(ends[0], "user.a", "1", 1, 0), EPERM);
	CHECK_ERRNO(fsetxattr(sockets[0], "user.a", "1", 1, 0), EPERM);
	CHECK_ERRNO(fgetxattr(ends[0], "user.a", NULL, 0), ENODATA);
	CHECK_EQ(dumped(0), 0);
}

int main(void)
{
	real_time();
	names();
	pipes();
	logs();
	file_systems();
	comparisons();
	parameters();
	handles();
	processor_time();
	errors();
	return tap_done();
}
