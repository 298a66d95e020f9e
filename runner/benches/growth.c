/* growth KIND N: does one thing N times, so that what each costs can be seen to stay the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static long n;
static char name[64], other[64];

static void need(int done, const char *what)
{
	if (!done) {
		fprintf(stderr, "growth: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* Mappings that Linux cannot join. */
static char *mapping(long i)
{
	int prot = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
	char *at = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(at != MAP_FAILED, "mmap");
	return at;
}

static void *sleeper(void *nothing)
{
	pause();
	return nothing;
}

static void many_descriptors(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void maps(void) { for (long i = 0; i < n; i++) mapping(i); }

static void unmaps(void)
{
	char **all = malloc(n * sizeof *all);
	for (long i = 0; i < n; i++)
		all[i] = mapping(i);
	for (long i = 0; i < n; i++)
		need(!munmap(all[i], 4096), "munmap");
}

static void threads(void)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	for (long i = 0; i < n; i++) {
		pthread_t thread;
		need(!pthread_create(&thread, &attributes, sleeper, NULL), "pthread_create");
	}
}

static void files(void)
{
	for (long i = 0; i < n; i++) {
		sprintf(name, "f%ld", i);
		need(!close(open(name, O_CREAT | O_RDWR, 0600)), "open");
	}
	for (long i = 0; i < n; i++) {
		sprintf(name, "f%ld", i);
		need(!unlink(name), "unlink");
	}
}

static void links(void)
{
	need(!close(open("target", O_CREAT | O_RDWR, 0600)), "open");
	for (long i = 0; i < n; i++) {
		sprintf(name, "l%ld", i);
		need(!link("target", name), "link");
	}
}

static void symlinks(void)
{
	for (long i = 0; i < n; i++) {
		sprintf(name, "s%ld", i);
		need(!symlink("target", name), "symlink");
	}
}

static void renames(void)
{
	need(!close(open("r0", O_CREAT | O_RDWR, 0600)), "open");
	for (long i = 0; i < n; i++) {
		sprintf(name, "r%ld", i);
		sprintf(other, "r%ld", i + 1);
		need(!rename(name, other), "rename");
	}
}

static void directories(void)
{
	need(!mkdir("d", 0700), "mkdir");
	for (long i = 0; i < n; i++)
		need(!chdir("d") && !chdir(".."), "chdir");
}

static void descriptors(void)
{
	many_descriptors();
	for (long i = 0; i < n; i++)
		need(open("/dev/null", O_RDONLY) >= 0, "open");
}

static void watched(void)
{
	many_descriptors();
	int epoll = epoll_create1(0);
	for (long i = 0; i < n; i++) {
		struct epoll_event event = {.events = EPOLLIN};
		need(!epoll_ctl(epoll, EPOLL_CTL_ADD, eventfd(0, 0), &event), "epoll_ctl");
	}
}

static void processes(void)
{
	for (long i = 0; i < n; i++) {
		pid_t child = fork();
		need(child >= 0, "fork");
		if (!child)
			for (;;)
				pause();
	}
	kill(0, SIGKILL);
}

static void pollers(void)
{
	for (long i = 0; i < n; i++) {
		pid_t child = fork();
		need(child >= 0, "fork");
		if (!child) {
			for (int turn = 0; turn < 5; turn++)
				poll(NULL, 0, 100);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
}

static const struct {
	const char *name;
	void (*run)(void);
} KINDS[] = {
	{"mmap", maps}, {"munmap", unmaps}, {"threads", threads}, {"files", files}, {"link", links},
	{"symlink", symlinks}, {"rename", renames}, {"chdir", directories}, {"descriptors", descriptors},
	{"epoll", watched}, {"fork", processes}, {"poll", pollers},
};

int main(int argc, char **argv)
{
	need(argc == 3, "usage: growth KIND N");
	n = atol(argv[2]);
	for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
		if (!strcmp(argv[1], KINDS[i].name)) {
			KINDS[i].run();
			return 0;
		}
	errno = EINVAL;
	need(0, argv[1]);
}
