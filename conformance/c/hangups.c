/* Hangups of terminals, line disciplines, bytes that are typed by ioctl(2): vhangup(2), ioctl_tty(2). */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

#define N_NULL 27
#define N_TTY 0
#define ALL (POLLIN | POLLOUT | POLLERR | POLLHUP)

static int master, slave;
static char name[64];

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 30000000 }, NULL);
}

static void pair(void)
{
	struct termios t;
	master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
	REQUIRE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	REQUIRE(ptsname_r(master, name, sizeof name) == 0);
	slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK);
	REQUIRE(slave >= 0 && tcgetattr(slave, &t) == 0);
	t.c_oflag = 0;
	t.c_lflag = 0;
	REQUIRE(tcsetattr(slave, TCSANOW, &t) == 0);
}

static void unpair(void)
{
	close(slave);
	close(master);
}

static int line(int fd, int number)
{
	return ioctl(fd, TIOCSETD, &number);
}

static int ready(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };
	REQUIRE(poll(&p, 1, 0) >= 0);
	return p.revents;
}

/* Whether this process has a capability. */
static int can(int capability)
{
	char text[256];
	unsigned long long set = 0;
	FILE *f = fopen("/proc/self/status", "r");
	REQUIRE(f != NULL);
	while (fgets(text, sizeof text, f))
		sscanf(text, "CapEff: %llx", &set);
	fclose(f);
	return set >> capability & 1;
}

static int ended(pid_t pid)
{
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void disciplines(void)
{
	struct termios t;
	char buf[8];
	int n = -1;
	pair();
	CHECK_OK(ioctl(slave, TIOCGETD, &n));
	CHECK_EQ(n, N_TTY);
	REQUIRE(write(master, "ab", 2) == 2);
	nap();
	CHECK_OK(line(slave, N_NULL));
	CHECK(ioctl(slave, TIOCGETD, &n) == 0 && n == N_NULL);
	CHECK_ERRNO(read(slave, buf, 8), EOPNOTSUPP);
	CHECK_ERRNO(write(slave, "x", 1), EOPNOTSUPP);
	CHECK_ERRNO(tcgetattr(slave, &t), EINVAL);
	CHECK_ERRNO(ioctl(slave, FIONREAD, &n), EINVAL);
	CHECK_ERRNO(ioctl(slave, TIOCOUTQ, &n), EINVAL);
	CHECK_ERRNO(ioctl(slave, TCXONC, 0), EINVAL);
	CHECK_EQ(ready(slave), 0);
	struct winsize size = { 10, 20, 0, 0 };
	CHECK_OK(ioctl(slave, TIOCSWINSZ, &size));
	CHECK(ioctl(slave, TIOCGWINSZ, &size) == 0 && size.ws_row == 10);
	/* The master has one of its own. */
	CHECK(ioctl(master, TIOCGETD, &n) == 0 && n == N_TTY);
	CHECK_OK(tcgetattr(master, &t));
	CHECK_EQ(t.c_line, N_NULL);
	/* What is typed meanwhile waits for a line discipline; what had come to the other is lost. */
	REQUIRE(write(master, "cd", 2) == 2);
	nap();
	CHECK_OK(line(slave, N_TTY));
	nap();
	CHECK(read(slave, buf, 8) == 2 && memcmp(buf, "cd", 2) == 0);
	CHECK_ERRNO(read(slave, buf, 8), EAGAIN);
	CHECK(tcgetattr(slave, &t) == 0 && t.c_line == N_TTY);
	CHECK_OK(line(master, N_NULL));
	CHECK_ERRNO(read(master, buf, 8), EOPNOTSUPP);
	CHECK_ERRNO(write(master, "x", 1), EOPNOTSUPP);
	CHECK_EQ(ready(master), 0);
	CHECK_EQ(write(slave, "ef", 2), 2);
	nap();
	CHECK_OK(line(master, N_TTY));
	nap();
	CHECK(read(master, buf, 8) == 2 && memcmp(buf, "ef", 2) == 0);
	CHECK_ERRNO(line(slave, 29), EINVAL);
	CHECK_ERRNO(ioctl(slave, TIOCSETD, BAD), EFAULT);
	unpair();
}

/* The byte, typed at the terminal of its session by a child, which then reads it. */
static int types(int own)
{
	char c = 0;
	setsid();
	if (own && ioctl(slave, TIOCSCTTY, 0) != 0)
		return 1;
	if (setresuid(65534, 65534, 65534) != 0 && getuid() == 0)
		return 2;
	if (ioctl(slave, TIOCSTI, "q") != 0)
		return errno == EPERM ? 3 : errno == EIO ? 4 : 5;
	nap();
	return read(slave, &c, 1) == 1 && c == 'q' ? 42 : 6;
}

static void typing(void)
{
	/* Linux 6.2 and later can forbid it. */
	char allowed = '1';
	int fd = open("/proc/sys/dev/tty/legacy_tiocsti", O_RDONLY);
	if (fd >= 0) {
		REQUIRE(read(fd, &allowed, 1) == 1);
		close(fd);
	}
	pair();
	pid_t pid = fork();
	if (pid == 0)
		_exit(types(1));
	CHECK_EQ(ended(pid), allowed == '1' ? 42 : 4);
	unpair();
	pair();
	pid = fork();
	if (pid == 0)
		_exit(types(0));
	CHECK_EQ(ended(pid), allowed == '1' ? 3 : 4);
	unpair();
}

static volatile sig_atomic_t hups, conts;

static void on_signal(int signal)
{
	if (signal == SIGHUP)
		hups++;
	else
		conts++;
}

/* What is left of a descriptor. */
static int is_dead(int fd)
{
	struct termios t;
	char c;
	int group = getpgrp();
	return read(fd, &c, 1) == 0 && fails(write(fd, "x", 1), EIO) && fails(tcgetattr(fd, &t), EIO) &&
	       fails(ioctl(fd, FIONREAD, &group), EIO) && fails(ioctl(fd, TIOCSPGRP, &group), ENOTTY) && ready(fd) == ALL;
}

/* A session that hangs its terminal up, and opens it anew, as getty(8) does. */
static int session(int by_ioctl)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct termios t;
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGCONT, &action, NULL);
	if (setsid() != getpid() || ioctl(slave, TIOCSCTTY, 0) != 0)
		return 1;
	int other = open("/dev/tty", O_RDWR | O_NONBLOCK);
	if (other < 0 || (by_ioctl ? ioctl(slave, TIOCVHANGUP, 0) : syscall(SYS_vhangup)) != 0)
		return 2;
	if (hups != 1 || conts != 1)
		return 3;
	if (!is_dead(slave) || !is_dead(other) || open("/dev/tty", O_RDWR) != -1 || errno != ENXIO)
		return 4;
	int fd = open(name, O_RDWR | O_NONBLOCK);
	if (fd < 0 || is_dead(fd) || !is_dead(slave))
		return 5;
	/* It has the modes of a new terminal, and is the session's again. */
	if (tcgetattr(fd, &t) != 0 || !(t.c_lflag & ICANON) || !(t.c_lflag & ECHO) || tcgetsid(fd) != getpid())
		return 6;
	if (write(fd, "new", 3) != 3)
		return 7;
	/* Who sleeps in a read while the terminal is hung up finds an end. */
	char c;
	signal(SIGHUP, SIG_IGN);
	pid_t pid = fork();
	if (pid == 0) {
		nap();
		_exit(by_ioctl ? ioctl(fd, TIOCVHANGUP, 0) : syscall(SYS_vhangup));
	}
	int waits = open(name, O_RDWR | O_NOCTTY);
	if (waits < 0 || read(waits, &c, 1) != 0 || !is_dead(waits) || !is_dead(fd) || ended(pid) != 0)
		return 9;
	fd = open(name, O_RDWR | O_NONBLOCK);
	if (fd < 0 || tcgetsid(fd) != getpid())
		return 10;
	/* A hangup of no terminal is none. */
	if (ioctl(fd, TIOCNOTTY, 0) != 0 || (by_ioctl ? 0 : syscall(SYS_vhangup)) != 0 || is_dead(fd))
		return 8;
	return 42;
}

static int refused(void)
{
	if (setresuid(65534, 65534, 65534) != 0 && getuid() == 0)
		return 1;
	return fails(syscall(SYS_vhangup), EPERM) && fails(ioctl(slave, TIOCVHANGUP, 0), EPERM) &&
			       fails(ioctl(slave, TIOCCONS, 0), EPERM) && fails(ioctl(master, TIOCCONS, 0), EINVAL) ?
		       42 :
		       2;
}

static void hangups(void)
{
	char buf[8];
	pair();
	pid_t pid = fork();
	if (pid == 0)
		_exit(refused());
	CHECK_EQ(ended(pid), 42);
	unpair();
	for (int by_ioctl = 0; by_ioctl < 2; by_ioctl++) {
		/* CAP_SYS_ADMIN, CAP_SYS_TTY_CONFIG. */
		if (!can(by_ioctl ? 21 : 26))
			continue;
		pair();
		pid = fork();
		if (pid == 0)
			_exit(session(by_ioctl));
		CHECK_EQ(ended(pid), 42);
		nap();
		/* The master does not mind, and neither does a descriptor of another process. */
		CHECK(is_dead(slave));
		CHECK(read(master, buf, 8) == 3 && memcmp(buf, "new", 3) == 0);
		CHECK_ERRNO(read(master, buf, 8), EAGAIN);
		close(slave);
		CHECK_ERRNO(read(master, buf, 8), EIO);
		CHECK(ready(master) & POLLHUP);
		slave = open(name, O_RDWR | O_NOCTTY);
		CHECK(slave >= 0 && write(slave, "z", 1) == 1);
		nap();
		CHECK(read(master, buf, 8) == 1 && buf[0] == 'z');
		/* Who sleeps in a read is told otherwise. */
		pid = fork();
		if (pid == 0) {
			close(master);
			_exit(fails(read(slave, buf, 1), EIO) && is_dead(slave) ? 42 : 1);
		}
		nap();
		close(master);
		CHECK_EQ(ended(pid), 42);
		close(slave);
	}
}

int main(void)
{
	disciplines();
	typing();
	hangups();
	return tap_done();
}
