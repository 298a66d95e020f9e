/* What a blocked call works on is decided when it begins, and what it has not handed over is not lost. Each check runs in a
 * child with an alarm, so that a call that never comes back fails one check only. */
#include "tap.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* A thread that makes one call, and what came of it. */
struct caller {
	long (*call)(struct caller *self);
	int fd, error;
	long result;
	char data[64];
	atomic_int tid, ended;
	pthread_t thread;
};

static void *make_call(void *argument)
{
	struct caller *self = argument;
	atomic_store(&self->tid, syscall(SYS_gettid));
	self->result = self->call(self);
	self->error = errno;
	atomic_store(&self->ended, 1);
	return NULL;
}

/* Starts the call, and returns when its thread sleeps in it, or has ended: after its number is known it sleeps nowhere else. */
static void begin(struct caller *caller)
{
	char path[64], text[512];
	REQUIRE(pthread_create(&caller->thread, NULL, make_call, caller) == 0);
	while (!atomic_load(&caller->tid))
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&caller->tid));
	while (!atomic_load(&caller->ended)) {
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
		close(fd);
		text[n > 0 ? n : 0] = 0;
		char *state = strrchr(text, ')');
		if (state && state[1] == ' ' && state[2] == 'S')
			return;
		sched_yield();
	}
}

static void finish(struct caller *caller)
{
	pthread_join(caller->thread, NULL);
}

/* In a child: whether what must hold does. */
static void check(const char *what, int (*holds)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGPIPE, SIG_IGN);
		alarm(20);
		_exit(holds() ? 0 : 1);
	}
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	tap_true(status == 0, what, __FILE__, __LINE__, 0);
}

static long read_call(struct caller *self)
{
	return read(self->fd, self->data, sizeof self->data);
}

static long write_call(struct caller *self)
{
	static char much[100000];
	return write(self->fd, much, sizeof much);
}

static long accept_call(struct caller *self)
{
	return accept(self->fd, NULL, NULL);
}

static long recv_call(struct caller *self)
{
	return recv(self->fd, self->data, sizeof self->data, 0);
}

static int other_file(void)
{
	int fd = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
	REQUIRE(fd >= 0 && write(fd, "other", 5) == 5 && lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

/* A listening socket on loopback and its address. */
static int listener(struct sockaddr_in *address)
{
	socklen_t length = sizeof *address;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	REQUIRE(bind(fd, (void *)address, length) == 0 && listen(fd, 5) == 0);
	REQUIRE(getsockname(fd, (void *)address, &length) == 0);
	return fd;
}

static void tcp_pair(int fds[2])
{
	struct sockaddr_in address;
	int from = listener(&address);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect(fds[0], (void *)&address, sizeof address) == 0);
	fds[1] = accept(from, NULL, NULL);
	REQUIRE(fds[1] >= 0);
	close(from);
}

static int read_goes_on_with_dup(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0 && dup(fds[0]) >= 0);
	struct caller reader = { .call = read_call, .fd = fds[0] };
	begin(&reader);
	REQUIRE(dup2(other_file(), fds[0]) == fds[0]);
	REQUIRE(write(fds[1], "pipe", 4) == 4);
	finish(&reader);
	return reader.result == 4 && memcmp(reader.data, "pipe", 4) == 0;
}

static int read_goes_on(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	struct caller reader = { .call = read_call, .fd = fds[0] };
	begin(&reader);
	REQUIRE(dup2(other_file(), fds[0]) == fds[0]);
	int wrote = write(fds[1], "pipe", 4) == 4;
	finish(&reader);
	return wrote && reader.result == 4 && memcmp(reader.data, "pipe", 4) == 0;
}

static int write_goes_on(void)
{
	int fds[2], other = other_file();
	REQUIRE(pipe(fds) == 0);
	struct caller writer = { .call = write_call, .fd = fds[1] };
	begin(&writer);
	REQUIRE(dup2(other, fds[1]) == fds[1]);
	char buffer[8192];
	long total = 0, n;
	while ((n = read(fds[0], buffer, sizeof buffer)) > 0)
		total += n;
	finish(&writer);
	return writer.result == 100000 && total == 100000 && lseek(other, 0, SEEK_END) == 5;
}

static int accept_goes_on(void)
{
	struct sockaddr_in address;
	struct caller acceptor = { .call = accept_call, .fd = listener(&address) };
	begin(&acceptor);
	close(acceptor.fd);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int connected = connect(fd, (void *)&address, sizeof address) == 0;
	finish(&acceptor);
	return connected && acceptor.result >= 0;
}

static int recv_goes_on(void)
{
	int fds[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	struct caller receiver = { .call = recv_call, .fd = fds[0] };
	begin(&receiver);
	close(fds[0]);
	int sent = write(fds[1], "late", 4) == 4;
	finish(&receiver);
	return sent && receiver.result == 4;
}

/* EFAULT leaves the data where it is. */
static int keeps_data(int from, int to)
{
	char buffer[16];
	REQUIRE(write(to, "hello", 5) == 5);
	if (read(from, BAD, 8192) != -1 || errno != EFAULT)
		return 0;
	REQUIRE(fcntl(from, F_SETFL, O_NONBLOCK) == 0);
	return read(from, buffer, sizeof buffer) == 5 && memcmp(buffer, "hello", 5) == 0;
}

static int pipe_keeps_data(void)
{
	int fds[2];
	REQUIRE(pipe(fds) == 0);
	return keeps_data(fds[0], fds[1]);
}

static int unix_keeps_data(void)
{
	int fds[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	return keeps_data(fds[0], fds[1]);
}

static int tcp_keeps_data(void)
{
	int fds[2];
	tcp_pair(fds);
	return keeps_data(fds[0], fds[1]);
}

/* "The SO_RCVLOWAT and SO_SNDLOWAT [...] specify the minimum number of bytes in the buffer until the socket layer will pass the
 * data to [...] the user on receiving" (socket(7)). */
static int waits_for_low_water(int fds[2])
{
	int ten = 10;
	REQUIRE(setsockopt(fds[0], SOL_SOCKET, SO_RCVLOWAT, &ten, sizeof ten) == 0);
	REQUIRE(write(fds[1], "1234", 4) == 4);
	struct caller reader = { .call = read_call, .fd = fds[0] };
	begin(&reader);
	int early = atomic_load(&reader.ended);
	/* More than the mark once more: TCP does not count what the call has taken already. */
	REQUIRE(write(fds[1], "567890123456", 12) == 12);
	finish(&reader);
	return !early && reader.result == 16;
}

static int tcp_waits_for_low_water(void)
{
	int fds[2];
	tcp_pair(fds);
	return waits_for_low_water(fds);
}

static int unix_waits_for_low_water(void)
{
	int fds[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	return waits_for_low_water(fds);
}

#define MUCH (8 << 20)

static void *drain(void *argument)
{
	static char buffer[65536];
	while (read(*(int *)argument, buffer, sizeof buffer) > 0)
		;
	return NULL;
}

/* Processor time in ns for 8 MiB through a pipe, in pieces of this size; the least of some rounds. */
static long time_of(size_t piece)
{
	static char data[MUCH];
	long least = -1;
	for (int round = 0; round < 5; round++) {
		int fds[2];
		pthread_t thread;
		struct timespec from, to;
		REQUIRE(pipe(fds) == 0);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
		REQUIRE(pthread_create(&thread, NULL, drain, &fds[0]) == 0);
		for (size_t at = 0; at < sizeof data; at += piece)
			REQUIRE(write(fds[1], data + at, piece) == (ssize_t)piece);
		close(fds[1]);
		pthread_join(thread, NULL);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
		close(fds[0]);
		long ns = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
		if (least < 0 || ns < least)
			least = ns;
	}
	return least;
}

/* Two thousand short writes copy as much as one long write, and make two thousand calls as well. */
static int long_write_costs_no_more(void)
{
	return time_of(MUCH) < 8 * time_of(4096);
}

int main(void)
{
	tap_directory();
	check("read goes on with its pipe when another file is put at the descriptor", read_goes_on_with_dup);
	check("read goes on with its pipe when that was the last descriptor of the end", read_goes_on);
	check("write goes on with its pipe when another file is put at the descriptor", write_goes_on);
	check("accept goes on with its socket when the descriptor is closed", accept_goes_on);
	check("recv goes on with its socket when the descriptor is closed", recv_goes_on);
	check("read with a bad address leaves the data in a pipe", pipe_keeps_data);
	check("read with a bad address leaves the data in a Unix socket", unix_keeps_data);
	check("read with a bad address leaves the data in a TCP socket", tcp_keeps_data);
	check("read waits for SO_RCVLOWAT bytes of a TCP socket", tcp_waits_for_low_water);
	check("read waits for SO_RCVLOWAT bytes of a Unix socket", unix_waits_for_low_water);
	check("a write that blocks costs no more than short ones", long_write_costs_no_more);
	return tap_done();
}
