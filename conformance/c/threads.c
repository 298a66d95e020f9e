/* Threads and futexes: pthreads(7), futex(2), clone(2), set_tid_address(2), tls. */
#include "tap.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define THREADS 4
#define ROUNDS 1000

static long futex(void *word, int op, unsigned value, const void *timeout, void *word2, unsigned value3)
{
	return syscall(SYS_futex, word, op, value, timeout, word2, value3);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long total;
static atomic_long atomic_total;
static int once_runs, turn;
static __thread int local = 5;
static pthread_key_t key;
static atomic_int destroyed;

static void *add(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		total++;
		pthread_mutex_unlock(&mutex);
		atomic_total++;
		if (i % 100 == 0)
			sched_yield();
	}
	return NULL;
}

static void run_all(void *(*body)(void *))
{
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_join(threads[i], NULL) == 0);
}

static void *take_turns(void *argument)
{
	long me = (long)argument;
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&mutex);
		while (turn % THREADS != me)
			pthread_cond_wait(&condition, &mutex);
		turn++;
		pthread_cond_broadcast(&condition);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void once_body(void)
{
	once_runs++;
}

static void *meet(void *argument)
{
	static long slots[THREADS];
	long me = (long)argument, serial = 0;
	pthread_once(&once, once_body);
	for (long round = 1; round <= 20; round++) {
		slots[me] = round;
		serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
		for (int i = 0; i < THREADS; i++)
			REQUIRE(slots[i] == round);
		pthread_barrier_wait(&barrier);
	}
	atomic_total += serial;
	return NULL;
}

static void *read_or_write(void *argument)
{
	static long a, b;
	for (int i = 0; i < 200; i++) {
		if ((long)argument == 0) {
			pthread_rwlock_wrlock(&rwlock);
			a++, sched_yield(), b++;
		} else {
			pthread_rwlock_rdlock(&rwlock);
			REQUIRE(a == b);
		}
		pthread_rwlock_unlock(&rwlock);
	}
	return NULL;
}

static void destroy(void *value)
{
	destroyed += (int)(long)value;
}

static void *use_local(void *argument)
{
	REQUIRE(local == 5);
	local = (int)(long)argument;
	pthread_setspecific(key, argument);
	sched_yield();
	REQUIRE(local == (int)(long)argument && pthread_getspecific(key) == argument);
	return (void *)(long)local;
}

static void pthreads(void)
{
	run_all(add);
	CHECK_EQ(total, THREADS * ROUNDS);
	CHECK_EQ(atomic_total, THREADS * ROUNDS);
	run_all(take_turns);
	CHECK_EQ(turn, THREADS * 50);
	atomic_total = 0;
	CHECK_OK(pthread_barrier_init(&barrier, NULL, THREADS));
	run_all(meet);
	CHECK_EQ(once_runs, 1);
	CHECK_EQ(atomic_total, 20);
	run_all(read_or_write);
	CHECK_OK(pthread_key_create(&key, destroy));
	run_all(use_local);
	CHECK_EQ(destroyed, 0 + 1 + 2 + 3);
	CHECK_EQ(local, 5);

	pthread_t thread;
	void *result;
	REQUIRE(pthread_create(&thread, NULL, use_local, (void *)9) == 0);
	CHECK_OK(pthread_join(thread, &result));
	CHECK((long)result == 9);
	CHECK_EQ(pthread_join(pthread_self(), NULL), EDEADLK);

	pthread_mutexattr_t attribute;
	pthread_mutex_t checked;
	pthread_mutexattr_init(&attribute);
	pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&checked, &attribute);
	CHECK_EQ(pthread_mutex_unlock(&checked), EPERM);
	CHECK_OK(pthread_mutex_lock(&checked));
	CHECK_EQ(pthread_mutex_lock(&checked), EDEADLK);
	CHECK_EQ(pthread_mutex_trylock(&checked), EBUSY);
	CHECK_OK(pthread_mutex_unlock(&checked));
	pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&checked, &attribute);
	CHECK_OK(pthread_mutex_lock(&checked));
	CHECK_OK(pthread_mutex_lock(&checked));
	CHECK_OK(pthread_mutex_unlock(&checked));
	CHECK_OK(pthread_mutex_unlock(&checked));

	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 10000000;
	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	pthread_mutex_lock(&mutex);
	CHECK_EQ(pthread_cond_timedwait(&condition, &mutex, &until), ETIMEDOUT);
	pthread_mutex_unlock(&mutex);
	sem_t semaphore;
	sem_init(&semaphore, 0, 1);
	CHECK_EQ(sem_wait(&semaphore), 0);
	CHECK_ERRNO(sem_trywait(&semaphore), EAGAIN);
	CHECK_ERRNO(sem_timedwait(&semaphore, &until), ETIMEDOUT);
	CHECK_EQ(sem_post(&semaphore), 0);
	CHECK_EQ(sem_wait(&semaphore), 0);
}

static atomic_int cleaned;
static sem_t started;

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *wait_for_cancel(void *unused)
{
	(void)unused;
	pthread_cleanup_push(clean, NULL);
	sem_post(&started);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return NULL;
}

static void unlock(void *held)
{
	pthread_mutex_unlock(held);
}

static void *wait_on_condition(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, &mutex);
	sem_post(&started);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *detached(void *unused)
{
	(void)unused;
	sem_post(&started);
	return NULL;
}

static void ends_of_threads(void)
{
	pthread_t thread;
	void *result;
	sem_init(&started, 0, 0);
	REQUIRE(pthread_create(&thread, NULL, wait_for_cancel, NULL) == 0);
	sem_wait(&started);
	CHECK_OK(pthread_cancel(thread));
	CHECK_OK(pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED && cleaned == 1);
	REQUIRE(pthread_create(&thread, NULL, wait_on_condition, NULL) == 0);
	sem_wait(&started);
	CHECK_OK(pthread_cancel(thread));
	CHECK_OK(pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
	CHECK_OK(pthread_mutex_trylock(&mutex));
	pthread_mutex_unlock(&mutex);
	REQUIRE(pthread_create(&thread, NULL, detached, NULL) == 0);
	CHECK_OK(pthread_detach(thread));
	sem_wait(&started);
	/* The main thread's end is not the process's: the last thread's is. */
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(pthread_create(&thread, NULL, detached, NULL) == 0);
		pthread_exit(NULL);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* exit_group ends all threads. */
	pid = fork();
	if (pid == 0) {
		REQUIRE(pthread_create(&thread, NULL, wait_for_cancel, NULL) == 0);
		sem_wait(&started);
		_exit(21);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 21);
	/* exec ends all other threads. */
	pid = fork();
	if (pid == 0) {
		REQUIRE(pthread_create(&thread, NULL, wait_for_cancel, NULL) == 0);
		sem_wait(&started);
		execl("/bin/true", "true", NULL);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* A robust mutex whose owner has died. */
	pthread_mutexattr_t attribute;
	pthread_mutex_t *robust = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attribute);
	pthread_mutexattr_setrobust(&attribute, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(robust, &attribute);
	pid = fork();
	if (pid == 0)
		_exit(pthread_mutex_lock(robust));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_EQ(pthread_mutex_lock(robust), EOWNERDEAD);
	CHECK_OK(pthread_mutex_consistent(robust));
	CHECK_OK(pthread_mutex_unlock(robust));
	CHECK_OK(pthread_mutex_lock(robust));
	CHECK_OK(pthread_mutex_unlock(robust));
	munmap(robust, 4096);
}

static unsigned word;
static atomic_int awake;

static void *wait_on_word(void *unused)
{
	(void)unused;
	sem_post(&started);
	REQUIRE(futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0 || errno == EAGAIN);
	awake++;
	return NULL;
}

static void futexes(void)
{
	struct timespec ten_ms = { 0, 10000000 }, past = { 1, 0 };
	word = 0;
	CHECK_ERRNO(futex(&word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0), EAGAIN);
	CHECK_ERRNO(futex(&word, FUTEX_WAIT_PRIVATE, 0, &ten_ms, NULL, 0), ETIMEDOUT);
	CHECK_ERRNO(futex(&word, FUTEX_WAIT, 0, &ten_ms, NULL, 0), ETIMEDOUT);
	CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, &past, NULL, ~0u), ETIMEDOUT);
	CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &past, NULL, ~0u), ETIMEDOUT);
	CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, &past, NULL, 0), EINVAL);
	CHECK_ERRNO(futex((char *)&word + 1, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(BAD, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EFAULT);
	struct timespec bad = { 0, 2000000000 };
	CHECK_ERRNO(futex(&word, FUTEX_WAIT_PRIVATE, 0, &bad, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&word, 99, 0, NULL, NULL, 0), ENOSYS);
	CHECK_EQ(futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0), 0);
	/* However often it is woken one by one, in the end exactly those who waited have been. */
	pthread_t threads[THREADS];
	sem_init(&started, 0, 0);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, wait_on_word, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		sem_wait(&started);
	int woken = 0;
	while (woken < THREADS) {
		int n = futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		REQUIRE(n == 0 || n == 1);
		woken += n;
		sched_yield();
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(awake, THREADS);
	/* Requeue: the wake on the second word reaches those who slept on the first. */
	static unsigned second;
	awake = 0;
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, wait_on_word, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		sem_wait(&started);
	int moved = 0;
	while (moved < THREADS) {
		long n = futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)(long)INT_MAX, &second, 0);
		REQUIRE(n >= 0);
		moved += (int)n;
		sched_yield();
	}
	CHECK_EQ(moved, THREADS);
	CHECK_ERRNO(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)1L, &second, 5), EAGAIN);
	CHECK_EQ(futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&second, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0), THREADS);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(awake, THREADS);
	/* Between processes, through shared memory. */
	unsigned *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = fork();
	if (pid == 0) {
		while (__atomic_load_n(shared, __ATOMIC_SEQ_CST) == 0)
			futex(shared, FUTEX_WAIT, 0, NULL, NULL, 0);
		_exit(*shared);
	}
	__atomic_store_n(shared, 6, __ATOMIC_SEQ_CST);
	futex(shared, FUTEX_WAKE, 1, NULL, NULL, 0);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6);
	munmap(shared, 4096);
}

static void *identify(void *result)
{
	*(pid_t *)result = (pid_t)syscall(SYS_gettid);
	return (void *)(long)getpid();
}

static void identities(void)
{
	pthread_t thread;
	pid_t tid = 0;
	void *pid;
	CHECK(syscall(SYS_gettid) == getpid());
	REQUIRE(pthread_create(&thread, NULL, identify, &tid) == 0);
	CHECK_OK(pthread_join(thread, &pid));
	CHECK(tid != getpid() && (long)pid == getpid());
	CHECK_ERRNO(syscall(SYS_tgkill, getpid(), tid, 0), ESRCH);
	CHECK(syscall(SYS_set_tid_address, &tid) == getpid());
	CHECK_ERRNO(syscall(SYS_set_robust_list, &tid, 1), EINVAL);
	char name[16] = "";
	CHECK_OK(pthread_setname_np(pthread_self(), "a name"));
	CHECK_OK(pthread_getname_np(pthread_self(), name, sizeof name));
	CHECK(!strcmp(name, "a name"));
}

/* A private word is its address: nobody looks whether anything is there, so that who has been woken may free it. */
static void words_that_are_gone(void)
{
	unsigned *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone, 4096);
	CHECK_EQ(syscall(SYS_futex, gone, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0), 0);
	CHECK_EQ(syscall(SYS_futex, NULL, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0), 0);
	CHECK_ERRNO(syscall(SYS_futex, gone, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	CHECK_ERRNO(syscall(SYS_futex, gone, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0), EFAULT);
	CHECK_ERRNO(syscall(SYS_futex, -4096L, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0), EFAULT);
}

static pthread_mutex_t *left_behind;

static void *waits_for_it(void *unused)
{
	pthread_mutex_lock(left_behind);
	return unused;
}

/* Who waits for a lock whose owner ends with a whole process is told, also where a thread of that process waits before it. */
static void owners_that_end(void)
{
	pthread_mutexattr_t attr;
	left_behind = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(left_behind != MAP_FAILED && pthread_mutexattr_init(&attr) == 0);
	REQUIRE(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
	REQUIRE(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
	REQUIRE(pthread_mutex_init(left_behind, &attr) == 0);
	int status, locked[2];
	char byte = 0;
	REQUIRE(pipe(locked) == 0);
	pid_t owner = fork();
	if (owner == 0) {
		pthread_t thread;
		REQUIRE(pthread_mutex_lock(left_behind) == 0 && pthread_create(&thread, NULL, waits_for_it, NULL) == 0);
		usleep(20000);
		REQUIRE(write(locked[1], &byte, 1) == 1);
		usleep(60000);
		_exit(0);
	}
	REQUIRE(read(locked[0], &byte, 1) == 1);
	pid_t heir = fork();
	if (heir == 0) {
		alarm(20);
		_exit(pthread_mutex_lock(left_behind) == EOWNERDEAD ? 41 : 1);
	}
	CHECK(waitpid(owner, &status, 0) == owner && status == 0);
	CHECK(waitpid(heir, &status, 0) == heir && WIFEXITED(status) && WEXITSTATUS(status) == 41);
	close(locked[0]), close(locked[1]);
}

int main(void)
{
	words_that_are_gone();
	owners_that_end();
	pthreads();
	ends_of_threads();
	futexes();
	identities();
	return tap_done();
}
