/* File leases (fcntl(2), "Leases"). */
#include "tap.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#ifndef F_SETSIG
#define F_SETSIG 10
#endif

static char told[256];

static const char *signals(void)
{
	sigset_t set;
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigemptyset(&set), sigaddset(&set, SIGIO), sigaddset(&set, SIGUSR1);
	told[0] = 0;
	size_t n = 0;
	while (sigtimedwait(&set, &info, &none) > 0)
		n += info.si_code == SI_KERNEL ? snprintf(told + n, sizeof told - n, "IO ")
					       : snprintf(told + n, sizeof told - n, "%s/%d/%d/%lx ",
							  info.si_signo == SIGIO ? "IO" : "USR1", info.si_code,
							  info.si_fd, info.si_band);
	return told;
}

#define CHECK_TEXT(got, want) \
	do { \
		const char *got_ = got; \
		if (!tap_true(strcmp(got_, want) == 0, want[0] ? want : "(nothing)", __FILE__, __LINE__, 0)) \
			tap_print("# got %s\n", got_); \
	} while (0)

static int opened(const char *name, int flags)
{
	int fd = open(name, flags, 0600);
	REQUIRE(fd >= 0);
	return fd;
}

static void taking(void)
{
	int r = opened("f", O_RDONLY | O_CREAT), w, x;
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, F_UNLCK), EAGAIN);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, 3), EINVAL);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, -1), EINVAL);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_EQ(fcntl(r, F_GETLEASE), F_RDLCK);
	CHECK_EQ(fcntl(r, F_GETOWN) == getpid(), 1);
	CHECK_EQ(fcntl(r, F_GETFL) & O_ASYNC, O_ASYNC);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	CHECK_EQ(fcntl(r, F_GETLEASE), F_WRLCK);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	fcntl(r, F_SETSIG, SIGUSR1);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	/* Its end takes owner and signal along. */
	CHECK_EQ(fcntl(r, F_GETOWN), 0);
	CHECK_EQ(fcntl(r, F_GETSIG), 0);
	CHECK_EQ(fcntl(r, F_GETFL) & O_ASYNC, 0);
	/* Other descriptors of the file. */
	x = opened("f", O_RDONLY);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, F_WRLCK), EAGAIN);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_EQ(fcntl(x, F_GETLEASE), F_UNLCK);
	CHECK_EQ(fcntl(x, F_SETLEASE, F_RDLCK), 0);
	CHECK_ERRNO(fcntl(x, F_SETLEASE, F_WRLCK), EAGAIN);
	close(x);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	x = dup(r);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	CHECK_EQ(fcntl(x, F_GETLEASE), F_WRLCK);
	close(r);
	CHECK_EQ(fcntl(x, F_GETLEASE), F_WRLCK);
	close(x);
	w = opened("f", O_RDWR);
	CHECK_ERRNO(fcntl(w, F_SETLEASE, F_RDLCK), EAGAIN);
	CHECK_EQ(fcntl(w, F_SETLEASE, F_WRLCK), 0);
	CHECK_ERRNO(fcntl(w, F_SETLEASE, F_RDLCK), EAGAIN);
	close(w);
	w = opened("f", O_WRONLY), r = opened("f", O_RDONLY);
	CHECK_ERRNO(fcntl(w, F_SETLEASE, F_WRLCK), EAGAIN);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, F_RDLCK), EAGAIN);
	close(r);
	x = open("f", O_PATH);
	CHECK_ERRNO(fcntl(x, F_SETLEASE, F_RDLCK), EBADF);
	CHECK_EQ(fcntl(w, F_SETLEASE, F_WRLCK), 0);
	close(x), close(w);
	/* Regular files only. */
	int p[2];
	REQUIRE(pipe(p) == 0);
	r = opened(".", O_RDONLY);
	CHECK_ERRNO(fcntl(p[0], F_SETLEASE, F_RDLCK), EINVAL);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, F_RDLCK), EINVAL);
	CHECK_EQ(fcntl(p[0], F_GETLEASE), F_UNLCK);
	close(p[0]), close(p[1]), close(r);
	r = opened("/dev/null", O_RDONLY);
	CHECK_ERRNO(fcntl(r, F_SETLEASE, F_RDLCK), EINVAL);
	close(r);
}

/* A child that makes `act`, and what it ended with. */
static pid_t begin(int (*act)(void))
{
	pid_t child = fork();
	if (child == 0)
		_exit(act());
	return child;
}

static int end_of(pid_t child)
{
	int status = -1;
	REQUIRE(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int result(int fd)
{
	return fd >= 0 ? 100 : errno;
}

static int read_only(void) { return result(open("f", O_RDONLY)); }
static int read_now(void) { return result(open("f", O_RDONLY | O_NONBLOCK)); }
static int write_now(void) { return result(open("f", O_WRONLY | O_NONBLOCK)); }
static int write_open(void) { return result(open("f", O_WRONLY)); }
static int path_only(void) { return result(open("f", O_PATH)); }
static int trunc_open(void) { return result(open("f", O_RDONLY | O_TRUNC)); }
static int exclusive(void) { return result(open("f", O_RDONLY | O_CREAT | O_EXCL)); }
static int shorten(void) { return truncate("f", 2) ? errno : 100; }
static int others(void)
{
	struct stat st;
	return stat("f", &st) || chmod("f", 0644) || rename("f", "g") || link("g", "f") || unlink("g") ? errno : 100;
}

static void waits_for(pid_t child)
{
	/* Until it sleeps, as far as can be told. */
	(void)child;
	nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
}

static void breaking(void)
{
	sigset_t set;
	int sig;
	sigemptyset(&set), sigaddset(&set, SIGIO), sigaddset(&set, SIGUSR1);
	int r = opened("f", O_RDONLY);
	REQUIRE(dup2(r, 20) == 20);
	close(r), r = 20;
	/* A read lease: readers do not mind. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_EQ(end_of(begin(read_only)), 100);
	CHECK_EQ(end_of(begin(others)), 100);
	CHECK_EQ(end_of(begin(path_only)), 100);
	CHECK_EQ(end_of(begin(exclusive)), EEXIST);
	CHECK_TEXT(signals(), "");
	CHECK_EQ(fcntl(r, F_GETLEASE), F_RDLCK);
	/* Who does not wait gets EAGAIN, and breaks it all the same. */
	CHECK_EQ(end_of(begin(write_now)), EAGAIN);
	CHECK_TEXT(signals(), "IO ");
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	CHECK_EQ(end_of(begin(write_now)), EAGAIN);
	CHECK_TEXT(signals(), "");
	/* Only the answer ends that. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(end_of(begin(write_now)), 100);
	/* Who waits is woken by the lease's end. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	fcntl(r, F_SETSIG, SIGUSR1);
	pid_t child = begin(write_open);
	REQUIRE(sigwait(&set, &sig) == 0);
	CHECK_EQ(sig, SIGUSR1);
	waits_for(child);
	CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(end_of(child), 100);
	/* Details of the signal. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	fcntl(r, F_SETSIG, SIGUSR1);
	CHECK_EQ(end_of(begin(write_now)), EAGAIN);
	CHECK_TEXT(signals(), "USR1/3/20/441 ");
	/* The last descriptor's end is the lease's. */
	child = begin(write_open);
	waits_for(child);
	/* The child has the description too, so a new lease is needed. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(end_of(child), 100);
	/* A write lease: a reader lets it be downgraded, or wait for that. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	CHECK_EQ(end_of(begin(read_now)), EAGAIN);
	CHECK_TEXT(signals(), "IO ");
	CHECK_EQ(fcntl(r, F_GETLEASE), F_RDLCK);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_EQ(end_of(begin(read_now)), 100);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	child = begin(read_only);
	REQUIRE(sigwait(&set, &sig) == 0);
	waits_for(child);
	CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_EQ(end_of(child), 100);
	/* A downgrade is not enough for who writes. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_WRLCK), 0);
	CHECK_EQ(end_of(begin(read_now)), EAGAIN);
	CHECK_EQ(end_of(begin(write_now)), EAGAIN);
	CHECK_TEXT(signals(), "IO ");
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	/* truncate(2), and a file that is opened to be emptied. */
	int w = opened("f", O_RDWR);
	REQUIRE(write(w, "text", 4) == 4);
	close(w);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	child = begin(shorten);
	REQUIRE(sigwait(&set, &sig) == 0);
	waits_for(child);
	struct stat st;
	REQUIRE(fstat(r, &st) == 0);
	CHECK_EQ(st.st_size, 4);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(end_of(child), 100);
	REQUIRE(fstat(r, &st) == 0);
	CHECK_EQ(st.st_size, 2);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	/* O_TRUNC without the right to write breaks no read lease: only the access mode counts. */
	CHECK_EQ(end_of(begin(trunc_open)), 100);
	CHECK_TEXT(signals(), "");
	CHECK_EQ(fcntl(r, F_GETLEASE), F_RDLCK);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
	REQUIRE(fstat(r, &st) == 0);
	CHECK_EQ(st.st_size, 0);
	/* Its own opens break it too. */
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	CHECK_ERRNO(open("f", O_RDWR | O_NONBLOCK), EAGAIN);
	CHECK_TEXT(signals(), "IO ");
	close(r);
	w = open("f", O_RDWR | O_NONBLOCK);
	CHECK(w >= 0);
	close(w);
}

static int write_both(void) { return result(open("f", O_RDWR)); }

/* Who waits for the end of a lease to write counts as a writer already. */
static void writers_count(void)
{
	int (*acts[])(void) = { write_open, write_both, shorten };
	for (int i = 0; i < 3; i++) {
		int r = opened("f", O_RDONLY);
		REQUIRE(fcntl(r, F_SETLEASE, F_WRLCK) == 0);
		pid_t child = begin(acts[i]);
		waits_for(child);
		signals();
		CHECK_ERRNO(fcntl(r, F_SETLEASE, F_RDLCK), EAGAIN);
		CHECK_EQ(fcntl(r, F_SETLEASE, F_UNLCK), 0);
		CHECK_EQ(end_of(child), 100);
		close(r);
	}
}

static void on_alarm(int sig) { (void)sig; }

/* A signal interrupts the wait; the broken lease stays broken. */
static void interrupted(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	sigaction(SIGALRM, &action, NULL);
	int r = opened("f", O_RDONLY);
	CHECK_EQ(fcntl(r, F_SETLEASE, F_RDLCK), 0);
	alarm(1);
	CHECK_ERRNO(open("f", O_WRONLY), EINTR);
	CHECK_TEXT(signals(), "IO ");
	CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
	CHECK_ERRNO(open("f", O_WRONLY | O_NONBLOCK), EAGAIN);
	close(r);
}

static void shown(void)
{
	char text[128];
	FILE *f = fopen("/proc/sys/fs/lease-break-time", "r");
	CHECK(f && fgets(text, sizeof text, f) && atoi(text) == 45);
	if (f)
		fclose(f);
	f = fopen("/proc/sys/fs/leases-enable", "r");
	CHECK(f && fgets(text, sizeof text, f) && atoi(text) == 1);
	if (f)
		fclose(f);
	/* Rights: the owner's, or CAP_LEASE. */
	if (geteuid() == 0) {
		int r = opened("f", O_RDONLY);
		REQUIRE(fchmod(r, 0644) == 0);
		pid_t child = fork();
		if (child == 0) {
			REQUIRE(setuid(1000) == 0);
			_exit(fcntl(r, F_SETLEASE, F_RDLCK) ? errno : 100);
		}
		CHECK_EQ(end_of(child), EACCES);
		close(r);
	} else {
		CHECK(1);
	}
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGIO), sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	tap_directory();
	taking();
	breaking();
	writers_count();
	interrupted();
	shown();
	return tap_done();
}
