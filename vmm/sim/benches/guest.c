/* What the benchmark of the machine runs, natively and simulated: guest <mode> <count> [address] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ping[2], pong[2];

static void *echo_pipe(void *arg)
{
	char c;
	while (read(ping[0], &c, 1) == 1)
		if (write(pong[1], &c, 1) != 1)
			break;
	return arg;
}

static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7000) };
	inet_pton(AF_INET, text, &to.sin_addr);
	return to;
}

static void serve(void)
{
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in any = address("0.0.0.0");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 8))
		exit(1);
	for (;;) {
		char buffer[512];
		int fd = accept(listener, NULL, NULL);
		long n;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		while ((n = read(fd, buffer, sizeof buffer)) > 0)
			if (write(fd, buffer, n) != n)
				break;
		close(fd);
	}
}

static void ask(const char *server, long count)
{
	int on = 1, fd;
	struct sockaddr_in to = address(server);
	for (;;) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
			break;
		close(fd);
		usleep(1000);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	char buffer[64] = { 1 };
	while (count-- > 0) {
		if (write(fd, buffer, 64) != 64)
			exit(1);
		for (long n = 0, got; n < 64; n += got)
			if ((got = read(fd, buffer, 64 - n)) <= 0)
				exit(1);
	}
}

static void *sleeper(void *arg)
{
	pause();
	return arg;
}

/* A server with many idle threads and connections: `count` threads, ten times as many descriptors, a tenth of them sockets. */
static void crowd(long count)
{
	struct rlimit most = { 20 * count + 100, 20 * count + 100 };
	pthread_attr_t attr;
	pthread_t thread;
	setrlimit(RLIMIT_NOFILE, &most);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	for (long i = 0; i < count; i++)
		if (pthread_create(&thread, &attr, sleeper, NULL))
			exit(1);
	for (long i = 0; i < 10 * count; i++)
		if ((i % 10 ? dup(0) : socket(AF_INET, SOCK_DGRAM, 0)) < 0)
			exit(1);
	for (;;)
		usleep(1000);
}

/* A member of a cluster: 8 MB of memory, and at every millisecond a datagram to the others and 16 dirty pages. */
static void member(long count)
{
	size_t size = 8 << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(memory, 1, size);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in any = address("0.0.0.0");
	if (bind(fd, (struct sockaddr *)&any, sizeof any))
		exit(1);
	for (long round = 0; round < count; round++) {
		char buffer[64] = { 0 }, text[] = "10.0.0.1";
		for (int other = 1; other <= 3; other++) {
			text[7] = '0' + other;
			struct sockaddr_in to = address(text);
			sendto(fd, buffer, 64, 0, (struct sockaddr *)&to, sizeof to);
		}
		while (recv(fd, buffer, 64, 0) > 0)
			;
		for (int page = 0; page < 16; page++)
			memory[(round * 16 + page) * 4096 % size]++;
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	long count = argc > 2 ? atol(argv[2]) : 0;
	if (strcmp(mode, "getppid") == 0) {
		while (count-- > 0)
			syscall(SYS_getppid);
	} else if (strcmp(mode, "clock") == 0) {
		struct timespec t;
		while (count-- > 0)
			clock_gettime(CLOCK_MONOTONIC, &t);
	} else if (strcmp(mode, "files") == 0) {
		static char pages[6000];
		while (count-- > 0) {
			int fd = open("/var/tmp/bench", O_RDWR | O_CREAT, 0644);
			if (fd < 0 || pwrite(fd, pages, sizeof pages, 0) != sizeof pages || fsync(fd))
				return 1;
			if (pread(fd, pages, sizeof pages, 0) != sizeof pages || close(fd))
				return 1;
			void *more = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (more == MAP_FAILED || munmap(more, 4096))
				return 1;
		}
	} else if (strcmp(mode, "pipe") == 0) {
		char buffer[64] = { 0 };
		if (pipe(ping))
			return 1;
		while (count-- > 0)
			if (write(ping[1], buffer, 64) != 64 || read(ping[0], buffer, 64) != 64)
				return 1;
	} else if (strcmp(mode, "pingpong") == 0) {
		pthread_t thread;
		char c = 0;
		if (pipe(ping) || pipe(pong))
			return 1;
		pthread_create(&thread, NULL, echo_pipe, NULL);
		while (count-- > 0)
			if (write(ping[1], &c, 1) != 1 || read(pong[0], &c, 1) != 1)
				return 1;
	} else if (strcmp(mode, "pages") == 0) {
		char *memory = mmap(NULL, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (long page = 0; page < count; page++)
			memory[page * 4096] = 1;
	} else if (strcmp(mode, "fork") == 0) {
		while (count-- > 0) {
			pid_t child = fork();
			if (child == 0)
				_exit(0);
			waitpid(child, NULL, 0);
		}
	} else if (strcmp(mode, "serve") == 0) {
		serve();
	} else if (strcmp(mode, "ask") == 0) {
		ask(argv[3], count);
	} else if (strcmp(mode, "member") == 0) {
		member(count);
	} else if (strcmp(mode, "crowd") == 0) {
		crowd(count);
	} else {
		return 2;
	}
	return 0;
}
