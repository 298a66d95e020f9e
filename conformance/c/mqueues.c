/* POSIX message queues (mq_overview(7)). */
#include "tap.h"
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static char name[64];
static volatile sig_atomic_t handled, value;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	handled++;
	value = info->si_code == SI_MESGQ ? info->si_value.sival_int : -1;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
}

static int ended(pid_t pid)
{
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Whether the next message is this one. */
static int next_is(mqd_t queue, const char *text, unsigned priority)
{
	char room[8192];
	unsigned got = 99999;
	ssize_t length = mq_receive(queue, room, sizeof room, &got);
	return length == (ssize_t)strlen(text) && memcmp(room, text, length) == 0 && got == priority;
}

static int send(mqd_t queue, const char *text, unsigned priority)
{
	return mq_send(queue, text, strlen(text), priority);
}

static struct timespec in(long ms)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += ms * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	return end;
}

static void opening(void)
{
	struct mq_attr attr = { .mq_maxmsg = 3, .mq_msgsize = 16 };
	CHECK_ERRNO(mq_open(name, O_RDWR), ENOENT);
	CHECK_ERRNO(mq_open("no-slash", O_RDWR), EINVAL);
	CHECK_ERRNO(mq_open("/a/b", O_RDWR | O_CREAT, 0600, NULL), EACCES);
	CHECK_ERRNO(mq_open("/", O_RDWR | O_CREAT, 0600, NULL), ENOENT);
	struct mq_attr bad = { .mq_maxmsg = 0, .mq_msgsize = 16 };
	CHECK_ERRNO(mq_open(name, O_RDWR | O_CREAT, 0600, &bad), EINVAL);
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
	REQUIRE(queue != -1);
	CHECK_ERRNO(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr), EEXIST);
	CHECK(fcntl(queue, F_GETFD) == FD_CLOEXEC && (fcntl(queue, F_GETFL) & ~0100000) == O_RDWR);
	CHECK(mq_getattr(queue, &attr) == 0 && attr.mq_maxmsg == 3 && attr.mq_msgsize == 16 && attr.mq_curmsgs == 0);
	struct mq_attr calm = { .mq_flags = O_NONBLOCK };
	CHECK_OK(mq_setattr(queue, &calm, &attr));
	CHECK(attr.mq_flags == 0 && mq_getattr(queue, &attr) == 0 && attr.mq_flags == O_NONBLOCK);
	calm.mq_flags = O_APPEND;
	CHECK_ERRNO(mq_setattr(queue, &calm, NULL), EINVAL);
	CHECK_ERRNO(mq_getattr(1000, &attr), EBADF);
	CHECK_ERRNO(mq_getattr(1, &attr), EBADF);

	mqd_t reader = mq_open(name, O_RDONLY), writer = mq_open(name, O_WRONLY);
	char room[64];
	CHECK_ERRNO(send(reader, "x", 0), EBADF);
	CHECK_ERRNO(mq_receive(writer, room, sizeof room, NULL), EBADF);
	CHECK_ERRNO(send(queue, "12345678901234567", 0), EMSGSIZE);
	CHECK_ERRNO(mq_receive(queue, room, 15, NULL), EMSGSIZE);
	CHECK_ERRNO(send(queue, "x", 32768), EINVAL);
	CHECK_ERRNO(mq_receive(queue, room, sizeof room, NULL), EAGAIN);
	CHECK(send(queue, "low", 1) == 0 && send(queue, "high", 9) == 0 && send(writer, "also", 1) == 0);
	CHECK_ERRNO(send(queue, "full", 9), EAGAIN);
	CHECK(next_is(reader, "high", 9) && next_is(reader, "low", 1) && next_is(queue, "also", 1));
	CHECK(send(queue, "", 32767) == 0 && next_is(queue, "", 32767));
	/* Without its name it lives on as long as it is open. */
	CHECK_OK(mq_unlink(name));
	CHECK_ERRNO(mq_unlink(name), ENOENT);
	CHECK_ERRNO(mq_open(name, O_RDWR), ENOENT);
	CHECK(send(writer, "still", 0) == 0 && next_is(reader, "still", 0));
	CHECK(mq_close(queue) == 0 && mq_close(reader) == 0 && mq_close(writer) == 0);
	CHECK_ERRNO(mq_close(writer), EBADF);
}

static void waiting(void)
{
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 64 };
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &attr);
	char room[64];
	REQUIRE(queue != -1);
	struct timespec soon = in(5), past = { 1, 0 }, bad = { 1, -1 };
	CHECK_ERRNO(mq_timedreceive(queue, room, sizeof room, NULL, &soon), ETIMEDOUT);
	CHECK_ERRNO(mq_timedreceive(queue, room, sizeof room, NULL, &past), ETIMEDOUT);
	CHECK_ERRNO(mq_timedreceive(queue, room, sizeof room, NULL, &bad), EINVAL);
	CHECK_OK(send(queue, "one", 0));
	soon = in(5);
	CHECK_ERRNO(mq_timedsend(queue, "two", 3, 0, &soon), ETIMEDOUT);
	CHECK_OK(mq_timedreceive(queue, room, sizeof room, NULL, &past) == 3 ? 0 : 1);

	pid_t pid = fork();
	if (pid == 0)
		_exit(next_is(queue, "for you", 7) ? 3 : 1);
	nap();
	CHECK_OK(send(queue, "for you", 7));
	CHECK_EQ(ended(pid), 3);
	CHECK_OK(send(queue, "first", 0));
	pid = fork();
	if (pid == 0)
		_exit(send(queue, "second", 5) == 0 ? 4 : 1);
	nap();
	/* Whoever takes a message out puts in that of the sender who waits. */
	CHECK(next_is(queue, "first", 0) && mq_getattr(queue, &attr) == 0 && attr.mq_curmsgs == 1);
	CHECK_EQ(ended(pid), 4);

	struct pollfd one = { queue, POLLIN | POLLOUT, 0 };
	CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
	CHECK(next_is(queue, "second", 5));
	CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLOUT);

	/* A handler without SA_RESTART. */
	pid = fork();
	if (pid == 0) {
		struct sigaction action = { .sa_sigaction = on_signal };
		sigaction(SIGUSR1, &action, NULL);
		_exit(mq_receive(queue, room, sizeof room, NULL) == -1 && errno == EINTR ? 5 : 1);
	}
	nap();
	kill(pid, SIGUSR1);
	CHECK_EQ(ended(pid), 5);
	mq_close(queue);
	mq_unlink(name);
}

static void notification(void)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, NULL);
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
	REQUIRE(queue != -1);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77 };
	struct sigevent wrong = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 65 };
	handled = 0;
	CHECK_ERRNO(mq_notify(queue, &wrong), EINVAL);
	CHECK_OK(mq_notify(queue, &event));
	CHECK_ERRNO(mq_notify(queue, &event), EBUSY);
	char text[128] = "";
	CHECK(pread(queue, text, sizeof text - 1, 0) > 0 && strncmp(text, "QSIZE:0 ", 8) == 0);
	CHECK_OK(send(queue, "x", 0));
	CHECK(handled == 1 && value == 77);
	/* Once, and only into an empty queue. */
	CHECK_OK(mq_notify(queue, &event));
	CHECK_OK(send(queue, "y", 0));
	CHECK_EQ(handled, 1);
	CHECK(next_is(queue, "x", 0) && next_is(queue, "y", 0));
	CHECK_OK(mq_notify(queue, NULL));
	CHECK_OK(send(queue, "z", 0));
	CHECK_EQ(handled, 1);
	CHECK(next_is(queue, "z", 0));
	/* A receiver that waits gets the message; nobody is told. */
	CHECK_OK(mq_notify(queue, &event));
	pid_t pid = fork();
	if (pid == 0)
		_exit(next_is(queue, "taken", 0) ? 6 : 1);
	nap();
	CHECK_OK(send(queue, "taken", 0));
	CHECK_EQ(ended(pid), 6);
	CHECK_EQ(handled, 1);
	/* Closing a descriptor takes the request back. */
	mqd_t other = mq_open(name, O_RDWR);
	mq_close(other);
	CHECK_OK(mq_notify(queue, &event));
	mq_close(queue);
	mq_unlink(name);
}

static sem_t called;
static int calls, passed;

static void call(union sigval v)
{
	calls++;
	passed = v.sival_int;
	sem_post(&called);
}

/* By a thread of the C library, which waits on a netlink socket. */
static void by_thread(void)
{
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = call, .sigev_value.sival_int = 5 };
	char text[128] = "";
	REQUIRE(queue != -1);
	sem_init(&called, 0, 0);
	CHECK_OK(mq_notify(queue, &event));
	CHECK(pread(queue, text, sizeof text - 1, 0) > 0 && strstr(text, "NOTIFY:2 ") && strstr(text, "SIGNO:0 "));
	CHECK_ERRNO(mq_notify(queue, &event), EBUSY);
	CHECK_OK(send(queue, "x", 0));
	sem_wait(&called);
	CHECK(calls == 1 && passed == 5);
	CHECK(next_is(queue, "x", 0));
	/* Once each. */
	CHECK_OK(send(queue, "y", 0));
	CHECK(next_is(queue, "y", 0));
	event.sigev_value.sival_int = 6;
	CHECK_OK(mq_notify(queue, &event));
	CHECK_OK(mq_notify(queue, NULL));
	CHECK_OK(mq_notify(queue, &event));
	CHECK_OK(send(queue, "z", 0));
	sem_wait(&called);
	CHECK(calls == 2 && passed == 6);
	/* The call itself. */
	char cookie[32] = "cookie";
	struct { void *value; int signo, how, rest[12]; } raw = { cookie, 0, SIGEV_THREAD, { 0 } };
	/* AF_NETLINK with SOCK_RAW and SOCK_NONBLOCK; AF_UNIX with SOCK_STREAM. <sys/socket.h> has another send. */
	int socket_ = syscall(SYS_socket, 16, 3 | O_NONBLOCK, 0), plain = syscall(SYS_socket, 1, 1, 0);
	CHECK(next_is(queue, "z", 0));
	raw.signo = 99;
	CHECK_ERRNO(syscall(SYS_mq_notify, queue, &raw), EBADF);
	raw.signo = queue;
	CHECK_ERRNO(syscall(SYS_mq_notify, queue, &raw), ENOTSOCK);
	raw.signo = plain;
	CHECK_ERRNO(syscall(SYS_mq_notify, queue, &raw), EINVAL);
	raw.value = BAD;
	CHECK_ERRNO(syscall(SYS_mq_notify, queue, &raw), EFAULT);
	raw.value = cookie, raw.signo = socket_;
	CHECK_OK(syscall(SYS_mq_notify, queue, &raw));
	CHECK_ERRNO(read(socket_, text, sizeof text), EAGAIN);
	CHECK_OK(send(queue, "w", 0));
	CHECK_EQ(read(socket_, text, sizeof text), 32);
	CHECK(strcmp(text, "cookie") == 0 && text[31] == 1);
	CHECK(next_is(queue, "w", 0));
	CHECK_OK(syscall(SYS_mq_notify, queue, &raw));
	CHECK_OK(mq_notify(queue, NULL));
	CHECK_EQ(read(socket_, text, sizeof text), 32);
	CHECK(strcmp(text, "cookie") == 0 && text[31] == 2);
	close(socket_), close(plain);
	mq_close(queue);
	mq_unlink(name);
}

static void rights(void)
{
	if (geteuid() != 0)
		return;
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0640, NULL);
	REQUIRE(queue != -1);
	pid_t pid = fork();
	if (pid == 0) {
		int held = setgid(65534) == 0 && setuid(65534) == 0;
		held &= mq_open(name, O_RDONLY) == -1 && errno == EACCES;
		held &= mq_unlink(name) == -1 && errno == EACCES;
		struct mq_attr attr = { .mq_maxmsg = 11, .mq_msgsize = 16 };
		held &= mq_open("/bloodhound-other", O_RDWR | O_CREAT, 0600, &attr) == -1 && errno == EINVAL;
		_exit(held ? 7 : 1);
	}
	CHECK_EQ(ended(pid), 7);
	mq_close(queue);
	mq_unlink(name);
}

/* Each queue is a file of its own, with locks of its own. */
static void files(void)
{
	char second[72];
	struct stat st[3];
	snprintf(second, sizeof second, "%s-2", name);
	mqd_t one = mq_open(name, O_RDWR | O_CREAT, 0600, NULL), two = mq_open(second, O_RDWR | O_CREAT, 0600, NULL);
	mqd_t again = mq_open(name, O_RDWR);
	REQUIRE(one != -1 && two != -1 && again != -1);
	REQUIRE(fstat(one, st) == 0 && fstat(two, st + 1) == 0 && fstat(again, st + 2) == 0);
	CHECK(st[0].st_ino != st[1].st_ino && st[0].st_ino == st[2].st_ino && st[0].st_dev == st[1].st_dev);
	CHECK_EQ(flock(one, LOCK_EX), 0);
	CHECK_ERRNO(flock(again, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK_EQ(flock(two, LOCK_EX | LOCK_NB), 0);
	/* A regular file, of a file system without fallocate(2) and with sizes of 31 bits. */
	CHECK_ERRNO(fallocate(one, 0, 0, 1), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(one, 0, 0, 0x7fffffff), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(one, 0, 0, 0x80000000), EFBIG);
	/* Whoever wants to be told by signal 0 is told by none, once. */
	struct sigevent nothing = { .sigev_notify = SIGEV_SIGNAL };
	char text[128] = "";
	CHECK_EQ(mq_notify(one, &nothing), 0);
	CHECK(pread(one, text, sizeof text - 1, 0) > 0 && strstr(text, " NOTIFY:0     SIGNO:0 ") != NULL);
	CHECK_ERRNO(mq_notify(again, &nothing), EBUSY);
	CHECK_EQ(send(one, "a", 0), 0);
	CHECK_EQ(mq_notify(again, &nothing), 0);
	mq_close(one), mq_close(two), mq_close(again);
	mq_unlink(name), mq_unlink(second);
}

int main(void)
{
	snprintf(name, sizeof name, "/bloodhound-%d", getpid());
	opening();
	waiting();
	notification();
	by_thread();
	rights();
	files();
	return tap_done();
}
