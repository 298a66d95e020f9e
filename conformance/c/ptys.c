/* Pseudoterminals and job control: pty(7), termios(3), ioctl_tty(2). */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

static int master, slave;
static char name[64];
static volatile sig_atomic_t winched;

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 30000000 }, NULL);
}

/* Opens a pair; the slave is no controlling terminal. */
static void pair(void)
{
	master = posix_openpt(O_RDWR | O_NOCTTY);
	REQUIRE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	REQUIRE(ptsname_r(master, name, sizeof name) == 0);
	slave = open(name, O_RDWR | O_NOCTTY);
	REQUIRE(slave >= 0);
}

static void unpair(void)
{
	close(slave);
	close(master);
}

static void type(const char *text)
{
	REQUIRE(write(master, text, strlen(text)) == (ssize_t)strlen(text));
	nap();
}

static void modes(tcflag_t input, tcflag_t output, tcflag_t local)
{
	struct termios t;
	REQUIRE(tcgetattr(slave, &t) == 0);
	t.c_iflag = input;
	t.c_oflag = output;
	t.c_lflag = local;
	REQUIRE(tcsetattr(slave, TCSANOW, &t) == 0);
}

static void measure(int min, int tenths)
{
	struct termios t;
	REQUIRE(tcgetattr(slave, &t) == 0);
	t.c_cc[VMIN] = min;
	t.c_cc[VTIME] = tenths;
	REQUIRE(tcsetattr(slave, TCSANOW, &t) == 0);
}

/* What can be read of a side at once, as text; "<errno>" for an error. */
static const char *got(int fd)
{
	static char text[4][256];
	static int turn;
	char *room = text[turn++ % 4];
	struct pollfd p = { fd, POLLIN, 0 };
	nap();
	if (poll(&p, 1, 0) == 0)
		return "nothing";
	ssize_t n = read(fd, room, 200);
	if (n < 0)
		sprintf(room, "<%d>", errno);
	else
		room[n] = 0;
	return room;
}

static int said(int fd, const char *want)
{
	const char *have = got(fd);
	if (strcmp(have, want) == 0)
		return 1;
	tap_print("# \"");
	for (const char *p = have; *p; p++)
		tap_print(*p < 32 ? "\\x%02x" : "%c", (unsigned char)*p);
	tap_print("\"\n");
	return 0;
}

static void opening(void)
{
	struct stat st;
	int number, fd;
	fd = open("/dev/ptmx", O_RDWR | O_NOCTTY);
	REQUIRE(fd >= 0);
	CHECK(ioctl(fd, TIOCGPTN, &number) == 0 && number >= 0);
	sprintf(name, "/dev/pts/%d", number);
	CHECK(stat(name, &st) == 0 && S_ISCHR(st.st_mode) && (int)(st.st_rdev & 0xff) == number % 256);
	CHECK_ERRNO(open(name, O_RDWR | O_NOCTTY), EIO);
	int zero = 0, locked = -1;
	CHECK(ioctl(fd, TIOCGPTLCK, &locked) == 0 && locked == 1);
	CHECK(ioctl(fd, TIOCSPTLCK, &zero) == 0);
	int other = open(name, O_RDWR | O_NOCTTY);
	CHECK(other >= 0 && isatty(other) && isatty(fd));
	char own[64];
	CHECK(ttyname_r(other, own, sizeof own) == 0 && strcmp(own, name) == 0);
	CHECK_ERRNO(ioctl(other, TIOCGPTN, &number), ENOTTY);
	close(other);
	close(fd);
	CHECK_ERRNO(stat(name, &st), ENOENT);

	pair();
	int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	CHECK(peer >= 0 && write(peer, "x", 1) == 1 && said(master, "x"));
	close(peer);
	CHECK_ERRNO(lseek(slave, 0, SEEK_SET), ESPIPE);
	unpair();
}

static void defaults(void)
{
	struct termios t, m;
	struct winsize w = { 0 };
	pair();
	REQUIRE(tcgetattr(slave, &t) == 0 && tcgetattr(master, &m) == 0);
	CHECK_EQ(t.c_iflag, ICRNL | IXON);
	CHECK_EQ(t.c_oflag, OPOST | ONLCR);
	CHECK_EQ(t.c_cflag, B38400 | CS8 | CREAD);
	CHECK_EQ(t.c_lflag, ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN);
	CHECK(memcmp(t.c_cc, "\3\34\177\25\4\0\1\0\21\23\32\0\22\17\27\26\0", 17) == 0);
	CHECK(cfgetospeed(&t) == B38400 && cfgetispeed(&t) == B38400);
	CHECK(memcmp(&t, &m, 32) == 0);
	CHECK(ioctl(slave, TIOCGWINSZ, &w) == 0 && w.ws_row == 0 && w.ws_col == 0);
	w.ws_row = 24;
	w.ws_col = 80;
	CHECK(ioctl(master, TIOCSWINSZ, &w) == 0);
	w.ws_row = 0;
	CHECK(ioctl(slave, TIOCGWINSZ, &w) == 0 && w.ws_row == 24 && w.ws_col == 80);
	CHECK_ERRNO(ioctl(slave, TIOCGWINSZ, BAD), EFAULT);
	/* The modes as System V had them. */
	struct termio old;
	CHECK_EQ(ioctl(slave, TCGETA, &old), 0);
	CHECK_EQ(old.c_lflag, (unsigned short)t.c_lflag);
	CHECK(!memcmp(old.c_cc, t.c_cc, NCC));
	old.c_lflag &= ~ECHO;
	old.c_cc[VERASE] = 'x';
	CHECK_EQ(ioctl(slave, TCSETAW, &old), 0);
	struct termios after;
	CHECK_EQ(tcgetattr(slave, &after), 0);
	CHECK_EQ(after.c_lflag, t.c_lflag & ~ECHO);
	CHECK(after.c_iflag == t.c_iflag && after.c_cc[VERASE] == 'x' && after.c_cc[VSUSP] == t.c_cc[VSUSP]);
	CHECK_EQ(tcsetattr(slave, TCSANOW, &t), 0);
	CHECK_ERRNO(ioctl(slave, TCGETA, BAD), EFAULT);
	CHECK_ERRNO(ioctl(slave, TCGETS, BAD), EFAULT);
	t.c_cflag = B9600 | CS7 | PARENB;
	CHECK(tcsetattr(slave, TCSANOW, &t) == 0 || errno == EINVAL);
	CHECK(tcgetattr(slave, &t) == 0 && cfgetospeed(&t) == B9600 && (t.c_cflag & CSIZE) == CS8);
	unpair();
}

static void canonical(void)
{
	char room[16];
	int n = -1;
	pair();
	type("abc");
	CHECK(said(slave, "nothing"));
	CHECK(ioctl(slave, FIONREAD, &n) == 0 && n == 0);
	CHECK(said(master, "abc"));
	type("\r");
	CHECK(ioctl(slave, FIONREAD, &n) == 0 && n == 4);
	CHECK(said(master, "\r\n"));
	CHECK(said(slave, "abc\n"));

	type("one\ntwo\n");
	CHECK(said(slave, "one\n"));
	CHECK(read(slave, room, 2) == 2 && memcmp(room, "tw", 2) == 0);
	CHECK(said(slave, "o\n"));
	CHECK(said(master, "one\r\ntwo\r\n"));

	type("ab\177\177\177c\n");
	CHECK(said(slave, "c\n"));
	CHECK(said(master, "ab\b \b\b \bc\r\n"));
	type("one two_3 \27x\25y\n");
	CHECK(said(slave, "y\n"));
	CHECK(said(master, "one two_3 \b \b\b \b\b \b\b \b\b \b\b \bx\b \b\b \b\b \b\b \b\b \by\r\n"));
	type("a\tb\177\177c\n");
	CHECK(said(slave, "ac\n"));
	CHECK(said(master, "a\tb\b \b\b\b\b\b\b\b\bc\r\n"));
	type("\1\177\26\3\26\177\n");
	CHECK(said(slave, "\3\177\n"));
	CHECK(said(master, "^A\b \b\b \b^\b^C^\b^?\r\n"));
	type("ab\22c\n");
	CHECK(said(slave, "abc\n"));
	CHECK(said(master, "ab^R\r\nabc\r\n"));

	type("half\4");
	CHECK(said(slave, "half"));
	type("\4");
	CHECK(said(slave, ""));
	type("abc\4");
	CHECK(read(slave, room, 3) == 3);
	CHECK(said(slave, "nothing"));
	REQUIRE(fcntl(slave, F_SETFL, O_NONBLOCK) == 0);
	CHECK_ERRNO(read(slave, room, 1), EAGAIN);
	REQUIRE(fcntl(slave, F_SETFL, 0) == 0);
	(void)got(master);

	/* A line that is too long keeps its beginning and its end. */
	static char line[5000];
	memset(line, 'x', sizeof line);
	REQUIRE(write(master, line, sizeof line) == sizeof line);
	type("\n");
	n = read(slave, line, sizeof line);
	CHECK_EQ(n, 4096);
	CHECK_EQ(line[4095], '\n');
	unpair();
}

static void echoes(void)
{
	pair();
	modes(ICRNL, 0, ICANON);
	type("quiet\n");
	CHECK(said(master, "nothing"));
	CHECK(said(slave, "quiet\n"));
	modes(ICRNL, OPOST | ONLCR, ICANON | ECHONL);
	type("a\n");
	CHECK(said(master, "\r\n"));
	(void)got(slave);
	modes(ICRNL, 0, ICANON | ECHO | ECHOE | ECHOK);
	type("ab\25c\n");
	CHECK(said(master, "ab\25\nc\n"));
	CHECK(said(slave, "c\n"));
	modes(ICRNL, 0, ICANON | ECHO | ECHOE | ECHOPRT);
	type("abc\177\177d\n");
	CHECK(said(master, "abc\\cb/d\n"));
	CHECK(said(slave, "ad\n"));
	modes(ICRNL | IUTF8, 0, ICANON | ECHO | ECHOE);
	type("a\303\244\177b\n");
	CHECK(said(master, "a\303\244\b \bb\n"));
	CHECK(said(slave, "ab\n"));
	modes(INLCR, 0, ICANON | ECHO);
	type("a\n");
	CHECK(said(slave, "nothing"));
	unpair();
}

/* What was typed takes a moment to act. */
static int comes_to(struct pollfd *p, int ready)
{
	for (int tries = 0; tries < 1000 && poll(p, 1, 0) != ready; tries++)
		usleep(1000);
	return poll(p, 1, 0) == ready;
}

static void output(void)
{
	pair();
	REQUIRE(write(slave, "a\nb\tc\r", 6) == 6);
	CHECK(said(master, "a\r\nb\tc\r"));
	modes(0, OPOST | ONLCR | XTABS, ICANON);
	REQUIRE(write(slave, "ab\tc\n\td", 7) == 7);
	CHECK(said(master, "ab      c\r\n        d"));
	modes(0, OPOST | OCRNL | ONOCR, ICANON);
	REQUIRE(write(slave, "\n", 1) == 1);
	(void)got(master);
	modes(0, OPOST | OLCUC, ICANON);
	REQUIRE(write(slave, "Shout\n", 6) == 6);
	CHECK(said(master, "SHOUT\n"));
	modes(0, 0, ICANON);
	REQUIRE(write(slave, "a\nb", 3) == 3);
	CHECK(said(master, "a\nb"));

	/* VSTOP and VSTART. */
	modes(IXON, 0, ICANON);
	type("\23");
	struct pollfd p = { slave, POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	REQUIRE(fcntl(slave, F_SETFL, O_NONBLOCK) == 0);
	CHECK_ERRNO(write(slave, "x", 1), EAGAIN);
	REQUIRE(fcntl(slave, F_SETFL, 0) == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(write(slave, "later", 5) != 5);
	CHECK(said(master, "nothing"));
	type("\21");
	CHECK(said(master, "later"));
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(tcflow(slave, TCOOFF) == 0 && poll(&p, 1, 0) == 0);
	CHECK(tcflow(slave, TCOON) == 0 && poll(&p, 1, 0) == 1);
	/* The master's output is what is typed; what it asks the other side for comes as characters. */
	struct pollfd typed = { master, POLLOUT, 0 };
	CHECK(tcflow(master, TCOOFF) == 0 && poll(&typed, 1, 0) == 0);
	CHECK(tcflow(master, TCOON) == 0 && poll(&typed, 1, 0) == 1);
	CHECK(tcflow(master, TCIOFF) == 0 && comes_to(&p, 0));
	CHECK(tcflow(master, TCION) == 0 && comes_to(&p, 1));
	unpair();
}

static void raw(void)
{
	char room[16];
	int n;
	pair();
	modes(0, 0, 0);
	measure(1, 0);
	type("a\r\n\3\4");
	CHECK(ioctl(slave, FIONREAD, &n) == 0 && n == 5);
	CHECK(said(slave, "a\r\n\3\4"));
	CHECK(said(master, "nothing"));

	measure(3, 0);
	type("ab");
	CHECK(said(slave, "nothing"));
	pid_t child = fork();
	if (child == 0) {
		nap();
		REQUIRE(write(master, "cde", 3) == 3);
		_exit(0);
	}
	n = read(slave, room, sizeof room);
	CHECK(n == 5 && memcmp(room, "abcde", 5) == 0);
	REQUIRE(waitpid(child, NULL, 0) == child);

	measure(0, 0);
	CHECK_EQ(read(slave, room, sizeof room), 0);
	measure(0, 1);
	CHECK_EQ(read(slave, room, sizeof room), 0);
	measure(5, 1);
	type("xy");
	CHECK_EQ(read(slave, room, sizeof room), 2);
	measure(1, 0);
	modes(ISTRIP | INLCR, 0, 0);
	type("\341\n");
	CHECK(said(slave, "a\r"));

	/* What is there when lines are asked for is one. */
	modes(0, 0, 0);
	type("left");
	modes(0, 0, ICANON);
	CHECK(said(slave, "left"));
	type("gone\n");
	CHECK(tcflush(slave, TCIFLUSH) == 0);
	CHECK(said(slave, "nothing"));
	unpair();
}

static void hangup(void)
{
	char room[16];
	struct pollfd p;
	pair();
	CHECK(said(master, "nothing"));
	REQUIRE(write(slave, "bye", 3) == 3);
	close(slave);
	nap();
	p = (struct pollfd){ master, POLLIN | POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLHUP));
	CHECK(said(master, "bye"));
	CHECK_ERRNO(read(master, room, 1), EIO);
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLOUT | POLLHUP));
	slave = open(name, O_RDWR | O_NOCTTY);
	CHECK(slave >= 0 && poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	close(master);
	p = (struct pollfd){ slave, POLLIN | POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLERR | POLLHUP));
	CHECK_EQ(read(slave, room, 1), 0);
	CHECK_ERRNO(write(slave, "x", 1), EIO);
	struct termios t;
	CHECK_ERRNO(tcgetattr(slave, &t), EIO);
	CHECK_ERRNO(open(name, O_RDWR | O_NOCTTY), ENOENT);
	close(slave);
}

static void packets(void)
{
	int on = 1;
	char room[16];
	struct pollfd p;
	pair();
	CHECK(ioctl(master, TIOCPKT, &on) == 0);
	REQUIRE(write(slave, "ab", 2) == 2);
	nap();
	CHECK(read(master, room, sizeof room) == 3 && memcmp(room, "\0ab", 3) == 0);
	CHECK(tcflush(slave, TCIFLUSH) == 0);
	p = (struct pollfd){ master, POLLIN | POLLPRI, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLPRI));
	CHECK(read(master, room, sizeof room) == 1 && room[0] == TIOCPKT_FLUSHREAD);
	modes(0, 0, ICANON);
	CHECK(read(master, room, sizeof room) == 1 && room[0] == TIOCPKT_NOSTOP);
	modes(IXON, 0, ICANON);
	CHECK(read(master, room, sizeof room) == 1 && room[0] == TIOCPKT_DOSTOP);
	type("\23");
	CHECK(read(master, room, sizeof room) == 1 && room[0] == TIOCPKT_STOP);
	type("\21");
	CHECK(read(master, room, sizeof room) == 1 && room[0] == TIOCPKT_START);
	unpair();
}

static void on_winch(int signal)
{
	(void)signal;
	winched = 1;
}

/* In a session of its own: what the parent sees of it is its exit status. */
static void session(void)
{
	pid_t pgrp = -1;
	int status;
	REQUIRE(setsid() == getpid());
	if (open("/dev/tty", O_RDWR) >= 0 || errno != ENXIO)
		_exit(1);
	if (tcgetpgrp(slave) >= 0 || errno != ENOTTY)
		_exit(2);
	if (ioctl(slave, TIOCSCTTY, 0) != 0 || tcgetpgrp(slave) != getpid() || tcgetsid(slave) != getpid())
		_exit(3);
	if (ioctl(master, TIOCGPGRP, &pgrp) != 0 || pgrp != getpid())
		_exit(4);
	int tty = open("/dev/tty", O_RDWR);
	if (tty < 0 || write(tty, "tty\n", 4) != 4)
		_exit(5);
	if (tcsetpgrp(slave, 1 << 21) == 0 || errno != ESRCH)
		_exit(6);
	signal(SIGWINCH, on_winch);
	struct winsize w = { 10, 20, 0, 0 };
	if (ioctl(master, TIOCSWINSZ, &w) != 0 || !winched)
		_exit(7);

	/* A job in the background: it stops when it reads, and when it writes with TOSTOP. */
	pid_t job = fork();
	if (job == 0) {
		char room[16];
		setpgid(0, 0);
		nap();
		ssize_t n = read(slave, room, sizeof room);
		_exit(n == 3 ? 0 : 9);
	}
	setpgid(job, job);
	if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTTIN)
		_exit(8);
	if (tcsetpgrp(slave, job) != 0 || kill(-job, SIGCONT) != 0)
		_exit(9);
	if (waitpid(job, &status, WCONTINUED) != job || !WIFCONTINUED(status))
		_exit(10);
	/* Now this one is in the background. */
	signal(SIGTTOU, SIG_IGN);
	type("ok\n");
	if (waitpid(job, &status, 0) != job || status != 0)
		_exit(11);
	if (tcsetpgrp(slave, getpgrp()) != 0)
		_exit(12);

	/* Signals of the keyboard go to the foreground. */
	job = fork();
	if (job == 0) {
		setpgid(0, 0);
		signal(SIGTTOU, SIG_IGN);
		tcsetpgrp(slave, getpid());
		signal(SIGTTOU, SIG_DFL);
		for (;;)
			pause();
	}
	setpgid(job, job);
	nap();
	type("\32");
	if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTSTP)
		_exit(13);
	kill(job, SIGCONT);
	nap();
	type("\3");
	if (waitpid(job, &status, 0) != job || !WIFSIGNALED(status) || WTERMSIG(status) != SIGINT)
		_exit(14);
	tcsetpgrp(slave, getpgrp());

	/* What is flushed, and shown, of a signal's key. */
	signal(SIGINT, SIG_IGN);
	while (strcmp(got(master), "nothing"))
		;
	type("abc\3d\n");
	if (!said(slave, "d\n") || !said(master, "^Cd\r\n"))
		_exit(15);

	/* An orphaned group may not read in the background. */
	int answer[2];
	REQUIRE(pipe(answer) == 0);
	job = fork();
	if (job == 0) {
		if (fork() == 0) {
			char room[4];
			setpgid(0, 0);
			nap();
			nap();
			char ok = read(slave, room, 4) == -1 && errno == EIO;
			REQUIRE(write(answer[1], &ok, 1) == 1);
		}
		_exit(0);
	}
	REQUIRE(waitpid(job, NULL, 0) == job);
	char ok = 0;
	if (read(answer[0], &ok, 1) != 1 || !ok)
		_exit(16);
	signal(SIGHUP, SIG_IGN);
	if (ioctl(slave, TIOCNOTTY) != 0 || open("/dev/tty", O_RDWR) >= 0)
		_exit(17);
	_exit(42);
}

/* The end of a session's leader, and that of the master. */
static void ends(void)
{
	int status, told[2];
	char word = 0;
	REQUIRE(pipe(told) == 0);
	pair();
	pid_t leader = fork();
	if (leader == 0) {
		signal(SIGHUP, SIG_IGN);
		setsid();
		REQUIRE(ioctl(slave, TIOCSCTTY, 0) == 0);
		if (fork() == 0) {
			sigset_t hup;
			sigemptyset(&hup);
			sigaddset(&hup, SIGHUP);
			signal(SIGHUP, SIG_DFL);
			sigprocmask(SIG_BLOCK, &hup, NULL);
			word = sigwaitinfo(&hup, NULL) == SIGHUP && open("/dev/tty", O_RDWR) < 0 ? 'h' : '?';
			REQUIRE(write(told[1], &word, 1) == 1);
			_exit(0);
		}
		nap();
		_exit(0);
	}
	CHECK(waitpid(leader, &status, 0) == leader && status == 0);
	CHECK(read(told[0], &word, 1) == 1 && word == 'h');
	unpair();

	pair();
	leader = fork();
	if (leader == 0) {
		close(master);
		setsid();
		REQUIRE(ioctl(slave, TIOCSCTTY, 0) == 0);
		REQUIRE(write(told[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	REQUIRE(read(told[0], &word, 1) == 1);
	nap();
	close(master);
	CHECK(waitpid(leader, &status, 0) == leader && WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
	close(slave);
}

/* With EXTPROC somebody else edits the lines: reads get what is there, in canonical mode, too. */
static void external(void)
{
	char buf[8];
	int n = -1;
	pair();
	modes(0, 0, EXTPROC | ICANON);
	fcntl(slave, F_SETFL, O_NONBLOCK);
	CHECK_ERRNO(read(slave, buf, 8), EAGAIN);
	type("A\nb");
	CHECK(ioctl(slave, FIONREAD, &n) == 0 && n == 3);
	CHECK(poll(&(struct pollfd){ slave, POLLIN, 0 }, 1, 0) == 1);
	CHECK(read(slave, buf, 1) == 1 && buf[0] == 'A');
	CHECK(ioctl(slave, FIONREAD, &n) == 0 && n == 2);
	CHECK(read(slave, buf, 8) == 2 && memcmp(buf, "\nb", 2) == 0);
	CHECK_ERRNO(read(slave, buf, 8), EAGAIN);
	/* VEOF alone is an end of file, beside something else a character. */
	type("\4");
	CHECK_EQ(read(slave, buf, 8), 0);
	CHECK_ERRNO(read(slave, buf, 8), EAGAIN);
	type("\4x");
	CHECK(read(slave, buf, 8) == 2 && memcmp(buf, "\4x", 2) == 0);
	unpair();

	/* N_DEVELOPMENT, which nobody has, and a number that is none. */
	pair();
	CHECK_ERRNO(ioctl(slave, TIOCSETD, &(int){ 29 }), EINVAL);
	CHECK_ERRNO(ioctl(master, TIOCSETD, &(int){ 99 }), EINVAL);
	CHECK_ERRNO(ioctl(slave, TIOCSETD, &(int){ -1 }), EINVAL);
	CHECK_EQ(ioctl(slave, TIOCSETD, &(int){ 0 }), 0);
	unpair();
}

int main(void)
{
	int status;
	opening();
	defaults();
	canonical();
	echoes();
	output();
	raw();
	external();
	hangup();
	packets();
	pair();
	pid_t child = fork();
	if (child == 0)
		session();
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 42);
	unpair();
	ends();
	return tap_done();
}
