/* futex_waitv(2). */
#include "tap.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

struct word { unsigned long long val, addr; unsigned flags, reserved; };
#define SIZE_U32 2
#define PRIVATE 128

static unsigned words[130] __attribute__((aligned(8)));
static struct word w[130];

static long waitv(void *list, unsigned n, unsigned flags, void *timeout, int clock)
{
	return syscall(449, list, n, flags, timeout, clock);
}

static struct word one(unsigned *at, unsigned val, unsigned flags)
{
	return (struct word){ val, (unsigned long)at, flags, 0 };
}

static long futex(unsigned *at, int op, unsigned val, unsigned long val2, unsigned *other, unsigned val3)
{
	return syscall(SYS_futex, at, op, val, val2, other, val3);
}

static void arguments(void)
{
	struct timespec past = { 1, 0 }, bad = { 1, 1000000000 };
	for (int i = 0; i < 130; i++)
		w[i] = one(&words[i], 0, SIZE_U32 | PRIVATE);
	CHECK_ERRNO(waitv(w, 0, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(w, 129, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(NULL, 1, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(BAD, 1, 0, NULL, 0), EFAULT);
	CHECK_ERRNO(waitv(w, 1, 1, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(w, 1, 0, &past, 2), EINVAL);
	CHECK_ERRNO(waitv(w, 1, 0, BAD, 0), EFAULT);
	CHECK_ERRNO(waitv(w, 1, 0, &bad, 0), EINVAL);
	CHECK_ERRNO(waitv(w, 1, 0, &past, CLOCK_REALTIME), ETIMEDOUT);
	CHECK_ERRNO(waitv(w, 128, 0, &past, CLOCK_MONOTONIC), ETIMEDOUT);
	words[5] = 7;
	CHECK_ERRNO(waitv(w, 8, 0, &past, CLOCK_REALTIME), EAGAIN);
	words[5] = 0;
	w[1].flags = PRIVATE;
	CHECK_ERRNO(waitv(w, 2, 0, &past, CLOCK_REALTIME), EINVAL);
	w[1].flags = SIZE_U32 | 256;
	CHECK_ERRNO(waitv(w, 2, 0, &past, CLOCK_REALTIME), EINVAL);
	w[1] = one(&words[1], 0, SIZE_U32 | PRIVATE);
	w[1].reserved = 1;
	CHECK_ERRNO(waitv(w, 2, 0, &past, CLOCK_REALTIME), EINVAL);
	w[1].reserved = 0;
	w[1].addr++;
	CHECK_ERRNO(waitv(w, 2, 0, &past, CLOCK_REALTIME), EINVAL);
	w[1].addr = 0;
	CHECK_ERRNO(waitv(w, 2, 0, &past, CLOCK_REALTIME), EFAULT);
	w[1] = one(&words[1], 0, SIZE_U32 | PRIVATE);
	struct timespec soon;
	clock_gettime(CLOCK_MONOTONIC, &soon);
	soon.tv_nsec += 20000000;
	if (soon.tv_nsec >= 1000000000)
		soon.tv_sec++, soon.tv_nsec -= 1000000000;
	CHECK_ERRNO(waitv(w, 3, 0, &soon, CLOCK_MONOTONIC), ETIMEDOUT);
	/* Nothing stays behind. */
	CHECK_EQ(futex(&words[1], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 10, 0, NULL, 0), 0);
}

struct waiter { int count; long got; int error; };

static void *wait_any(void *arg)
{
	struct waiter *x = arg;
	errno = 0;
	x->got = waitv(w, x->count, 0, NULL, 0);
	x->error = errno;
	return NULL;
}

/* Wakes until somebody has been. */
static void wake(unsigned *at, int flags)
{
	while (futex(at, FUTEX_WAKE | flags, 1, 0, NULL, 0) == 0)
		usleep(1000);
}

static void waking(void)
{
	pthread_t t;
	struct waiter x = { 5, 0, 0 };
	REQUIRE(pthread_create(&t, NULL, wait_any, &x) == 0);
	wake(&words[3], FUTEX_PRIVATE_FLAG);
	pthread_join(t, NULL);
	CHECK_EQ(x.got, 3);
	CHECK_EQ(futex(&words[2], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 10, 0, NULL, 0), 0);
	/* The most words there can be; private and shared words together. */
	x.count = 128;
	w[100].flags = SIZE_U32;
	REQUIRE(pthread_create(&t, NULL, wait_any, &x) == 0);
	wake(&words[100], 0);
	pthread_join(t, NULL);
	CHECK_EQ(x.got, 100);
	w[100].flags = SIZE_U32 | PRIVATE;
	REQUIRE(pthread_create(&t, NULL, wait_any, &x) == 0);
	wake(&words[127], FUTEX_PRIVATE_FLAG);
	pthread_join(t, NULL);
	CHECK_EQ(x.got, 127);
	/* A word twice: the first counts. */
	x.count = 3;
	w[0] = w[2] = one(&words[7], 0, SIZE_U32 | PRIVATE);
	REQUIRE(pthread_create(&t, NULL, wait_any, &x) == 0);
	wake(&words[7], FUTEX_PRIVATE_FLAG);
	pthread_join(t, NULL);
	CHECK_EQ(x.got, 0);
	w[0] = one(&words[0], 0, SIZE_U32 | PRIVATE), w[2] = one(&words[2], 0, SIZE_U32 | PRIVATE);
	/* Moved to another word, and woken there. */
	x.count = 4;
	REQUIRE(pthread_create(&t, NULL, wait_any, &x) == 0);
	while (futex(&words[1], FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 0, 1, &words[20], 0) == 0)
		usleep(1000);
	CHECK_EQ(futex(&words[1], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, NULL, 0), 0);
	CHECK_EQ(futex(&words[20], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, NULL, 0), 1);
	pthread_join(t, NULL);
	CHECK_EQ(x.got, 1);
}

static void nothing(int sig)
{
	(void)sig;
}

static void interrupted(int flags, int want, const char *what)
{
	pthread_t t;
	struct waiter x = { 3, 0, 0 };
	struct sigaction act = { .sa_handler = nothing, .sa_flags = flags };
	sigaction(SIGUSR1, &act, NULL);
	REQUIRE(pthread_create(&t, NULL, wait_any, &x) == 0);
	usleep(50000);
	pthread_kill(t, SIGUSR1);
	usleep(50000);
	if (want == 0)
		wake(&words[2], FUTEX_PRIVATE_FLAG);
	pthread_join(t, NULL);
	tap_true(x.got == (want ? -1 : 2) && (!want || x.error == want), what, __FILE__, __LINE__, x.error);
}

static void between_processes(void)
{
	unsigned *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct word s[3] = { one(&shared[0], 0, SIZE_U32), one(&shared[1], 0, SIZE_U32), one(&words[0], 0, SIZE_U32 | PRIVATE) };
	pid_t child = fork();
	if (child == 0)
		_exit(waitv(s, 3, 0, NULL, 0));
	wake(&shared[1], 0);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	munmap(shared, 4096);
}

int main(void)
{
	arguments();
	waking();
	interrupted(0, EINTR, "a handler interrupts");
	interrupted(SA_RESTART, 0, "SA_RESTART begins again");
	between_processes();
	return tap_done();
}
