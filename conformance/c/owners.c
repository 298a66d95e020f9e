/* Locks whose futex word names their owner (FUTEX_LOCK_PI): as pthread mutexes with priority inheritance, and by themselves. */
#include "tap.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *end)
{
	return syscall(SYS_futex, word, op, value, end, NULL, 0);
}

static pthread_mutex_t *mutex(pthread_mutex_t *m, int kind, int robust, int shared)
{
	pthread_mutexattr_t attr;
	REQUIRE(pthread_mutexattr_init(&attr) == 0);
	REQUIRE(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT) == 0);
	REQUIRE(pthread_mutexattr_settype(&attr, kind) == 0);
	if (robust)
		REQUIRE(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
	if (shared)
		REQUIRE(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
	REQUIRE(pthread_mutex_init(m, &attr) == 0);
	return m;
}

static pthread_mutex_t lock;
static int counter;

static void *count(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&lock);
		int seen = counter;
		if (i % 16 == 0)
			sched_yield();
		counter = seen + 1;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void contended(void)
{
	pthread_t threads[4];
	mutex(&lock, PTHREAD_MUTEX_NORMAL, 0, 0);
	for (int i = 0; i < 4; i++)
		REQUIRE(pthread_create(&threads[i], NULL, count, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(counter, 800);
	CHECK_OK(pthread_mutex_destroy(&lock));
}

static void *hold(void *m)
{
	pthread_mutex_lock(m);
	nap();
	nap();
	pthread_mutex_unlock(m);
	return NULL;
}

static void *die_with(void *m)
{
	pthread_mutex_lock(m);
	nap();
	return NULL;
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

static void mutexes(void)
{
	pthread_mutex_t m;
	pthread_t thread;
	mutex(&m, PTHREAD_MUTEX_ERRORCHECK, 0, 0);
	CHECK_OK(pthread_mutex_lock(&m));
	CHECK_EQ(pthread_mutex_lock(&m), EDEADLK);
	CHECK_OK(pthread_mutex_unlock(&m));
	CHECK_EQ(pthread_mutex_unlock(&m), EPERM);
	REQUIRE(pthread_create(&thread, NULL, hold, &m) == 0);
	while (pthread_mutex_trylock(&m) == 0) {
		pthread_mutex_unlock(&m);
		sched_yield();
	}
	struct timespec end = in(1);
	CHECK_EQ(pthread_mutex_trylock(&m), EBUSY);
	CHECK_EQ(pthread_mutex_timedlock(&m, &end), ETIMEDOUT);
	CHECK_OK(pthread_mutex_lock(&m));
	CHECK_OK(pthread_mutex_unlock(&m));
	pthread_join(thread, NULL);

	mutex(&m, PTHREAD_MUTEX_NORMAL, 1, 0);
	REQUIRE(pthread_create(&thread, NULL, die_with, &m) == 0);
	while (pthread_mutex_trylock(&m) == 0) {
		pthread_mutex_unlock(&m);
		sched_yield();
	}
	CHECK_EQ(pthread_mutex_lock(&m), EOWNERDEAD);
	pthread_join(thread, NULL);
	CHECK_OK(pthread_mutex_consistent(&m));
	CHECK_OK(pthread_mutex_unlock(&m));
	CHECK_OK(pthread_mutex_lock(&m));
	CHECK_OK(pthread_mutex_unlock(&m));
}

static void between_processes(void)
{
	pthread_mutex_t *m =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int *held = (int *)(m + 1), status;
	mutex(m, PTHREAD_MUTEX_NORMAL, 1, 1);
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(pthread_mutex_lock(m) == 0);
		__atomic_store_n(held, 1, __ATOMIC_SEQ_CST);
		nap();
		kill(getpid(), SIGKILL);
	}
	while (!__atomic_load_n(held, __ATOMIC_SEQ_CST))
		nap();
	CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
	CHECK_OK(pthread_mutex_consistent(m));
	REQUIRE(waitpid(pid, &status, 0) == pid);
	pid = fork();
	if (pid == 0)
		_exit(pthread_mutex_lock(m) == 0 && pthread_mutex_unlock(m) == 0 ? 5 : 1);
	nap();
	CHECK_OK(pthread_mutex_unlock(m));
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 5);
}

static uint32_t word;
static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void *wait_for_word(void *unused)
{
	(void)unused;
	long got = futex(&word, FUTEX_LOCK_PI_PRIVATE, 0, NULL);
	int mine = got == 0 && (word & FUTEX_TID_MASK) == (uint32_t)syscall(SYS_gettid);
	futex(&word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL);
	return (void *)(long)mine;
}

static void words(void)
{
	uint32_t me = syscall(SYS_gettid);
	pthread_t thread;
	void *mine;
	CHECK_ERRNO(futex(&word, FUTEX_UNLOCK_PI, 0, NULL), EPERM);
	CHECK_OK(futex(&word, FUTEX_LOCK_PI, 0, NULL));
	CHECK(word == me);
	CHECK_ERRNO(futex(&word, FUTEX_LOCK_PI, 0, NULL), EDEADLK);
	CHECK_ERRNO(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL), EDEADLK);
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL));
	CHECK(word == 0);
	CHECK_OK(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL));
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL));
	CHECK_ERRNO(futex(BAD, FUTEX_LOCK_PI, 0, NULL), EFAULT);
	CHECK_ERRNO(futex((uint32_t *)((char *)&word + 1), FUTEX_LOCK_PI, 0, NULL), EINVAL);
	word = 0x3ffffff0;
	CHECK_ERRNO(futex(&word, FUTEX_LOCK_PI, 0, NULL), ESRCH);
	/* An owner that died, as a robust list leaves it. */
	word = FUTEX_OWNER_DIED;
	CHECK_OK(futex(&word, FUTEX_LOCK_PI, 0, NULL));
	CHECK(word == (FUTEX_OWNER_DIED | me));
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL));

	/* The lock goes from hand to hand; a handler in between ends nothing. */
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGUSR1, &action, NULL);
	CHECK_OK(futex(&word, FUTEX_LOCK_PI_PRIVATE, 0, NULL));
	REQUIRE(pthread_create(&thread, NULL, wait_for_word, NULL) == 0);
	while (!(__atomic_load_n(&word, __ATOMIC_SEQ_CST) & FUTEX_WAITERS))
		nap();
	pthread_kill(thread, SIGUSR1);
	while (!handled)
		nap();
	nap();
	CHECK_OK(futex(&word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL));
	CHECK((__atomic_load_n(&word, __ATOMIC_SEQ_CST) & FUTEX_TID_MASK) != me);
	pthread_join(thread, &mine);
	CHECK(mine != NULL);
	CHECK_EQ(word, 0);
}

/* Waits for a condition that end with a lock. */
static uint32_t *condition, *owned;

struct waiter {
	pthread_t thread;
	uint32_t *condition, *owned;
	const struct timespec *end;
	int op;
	volatile uint32_t tid, seen;
	long got;
	int error;
};

static long wait_move(int op, uint32_t value, const struct timespec *end, uint32_t *at, uint32_t *to)
{
	return syscall(SYS_futex, at, op, value, end, to, 0);
}

static long move(uint32_t wake, uint32_t more, uint32_t value)
{
	return syscall(SYS_futex, condition, FUTEX_CMP_REQUEUE_PI, wake, (unsigned long)more, owned, value);
}

static void *waits(void *argument)
{
	struct waiter *w = argument;
	w->tid = syscall(SYS_gettid);
	w->got = wait_move(w->op, 0, w->end, w->condition, w->owned);
	w->error = errno;
	w->seen = __atomic_load_n(w->owned, __ATOMIC_SEQ_CST);
	if (w->got == 0 && w->op == FUTEX_WAIT_REQUEUE_PI)
		futex(w->owned, FUTEX_UNLOCK_PI, 0, NULL);
	return NULL;
}

static struct waiter *begin_to_wait(struct waiter *w, int op, const struct timespec *end)
{
	*w = (struct waiter){ .condition = condition, .owned = owned, .op = op, .end = end };
	REQUIRE(pthread_create(&w->thread, NULL, waits, w) == 0);
	while (!w->tid)
		nap();
	return w;
}

/* What the move gives that finds somebody. */
static long moved(uint32_t more)
{
	long got;
	while ((got = move(1, more, 0)) == 0)
		nap();
	return got;
}

static int is_mine(const struct waiter *w)
{
	return (w->seen & FUTEX_TID_MASK) == w->tid;
}

static void refused_moves(void)
{
	struct timespec past = { 1, 0 }, bad = { 0, 1000000000 }, end = in(1);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 0, NULL, condition, condition), EINVAL);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 1, NULL, condition, owned), EAGAIN);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 1, &bad, condition, owned), EINVAL);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 0, BAD, condition, owned), EFAULT);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 0, NULL, BAD, owned), EFAULT);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 0, NULL, condition, BAD), EFAULT);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 0, NULL, condition, (uint32_t *)((char *)owned + 2)), EINVAL);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI, 0, &past, condition, owned), ETIMEDOUT);
	CHECK_ERRNO(wait_move(FUTEX_WAIT_REQUEUE_PI | FUTEX_CLOCK_REALTIME, 0, &end, condition, owned), ETIMEDOUT);
	CHECK_ERRNO(wait_move(FUTEX_CMP_REQUEUE_PI | FUTEX_CLOCK_REALTIME, 0, NULL, condition, owned), ENOSYS);
	CHECK_ERRNO(move(0, 0, 0), EINVAL);
	CHECK_ERRNO(move(2, 0, 0), EINVAL);
	CHECK_ERRNO(move(1, -1, 0), EINVAL);
	CHECK_ERRNO(move(1, 0, 1), EAGAIN);
	CHECK_ERRNO(syscall(SYS_futex, condition, FUTEX_CMP_REQUEUE_PI, 1, 0, condition, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_futex, condition, FUTEX_CMP_REQUEUE_PI, 1, 0, BAD, 0), EFAULT);
	CHECK_EQ(move(1, 5, 0), 0);
}

static void moves(void)
{
	struct waiter one, two;
	uint32_t me = syscall(SYS_gettid);
	/* Nobody has the lock: the waiter does, and its word tells whether others may wait. */
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	CHECK_EQ(moved(0), 1);
	pthread_join(one.thread, NULL);
	CHECK(one.got == 0 && one.seen == one.tid);
	CHECK_EQ(*owned, 0);
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	CHECK_EQ(moved(7), 1);
	pthread_join(one.thread, NULL);
	CHECK(one.got == 0 && one.seen == (one.tid | FUTEX_WAITERS));
	CHECK_EQ(*owned, 0);

	/* The caller has it. */
	CHECK_OK(futex(owned, FUTEX_LOCK_PI, 0, NULL));
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	CHECK_EQ(moved(0), 1);
	CHECK_EQ(*owned, me | FUTEX_WAITERS);
	begin_to_wait(&two, FUTEX_WAIT_REQUEUE_PI, NULL);
	CHECK_EQ(moved(0), 1);
	CHECK_ERRNO(futex(owned, FUTEX_WAKE, 1, NULL), EINVAL);
	CHECK_OK(futex(owned, FUTEX_UNLOCK_PI, 0, NULL));
	pthread_join(one.thread, NULL);
	pthread_join(two.thread, NULL);
	CHECK(one.got == 0 && two.got == 0 && is_mine(&one) && is_mine(&two));
	CHECK_EQ(*owned, 0);

	/* One gets it, the other waits for it. */
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	begin_to_wait(&two, FUTEX_WAIT_REQUEUE_PI, NULL);
	nap();
	nap();
	long both = moved(9);
	if (both == 1)
		both += moved(9);
	CHECK_EQ(both, 2);
	pthread_join(one.thread, NULL);
	pthread_join(two.thread, NULL);
	CHECK(one.got == 0 && two.got == 0 && is_mine(&one) && is_mine(&two));
}

static void mixed_waits(void)
{
	struct waiter one;
	static uint32_t other;
	/* One that waits to be moved is not woken, and moves to its lock only. */
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	while (futex(condition, FUTEX_WAKE, 1, NULL) == 0)
		nap();
	CHECK_ERRNO(futex(condition, FUTEX_WAKE, 1, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_futex, condition, FUTEX_REQUEUE, 0, 1, &other, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_futex, condition, FUTEX_CMP_REQUEUE_PI, 1, 0, &other, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_futex, &other, FUTEX_WAKE_OP, 1, 1, condition, FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)),
		    EINVAL);
	CHECK_ERRNO(futex(condition, FUTEX_LOCK_PI, 0, NULL), EINVAL);
	CHECK_EQ(moved(0), 1);
	pthread_join(one.thread, NULL);
	CHECK_EQ(one.got, 0);
	/* A lock that its own waiter has. */
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	while (futex(condition, FUTEX_WAKE, 1, NULL) == 0)
		nap();
	*owned = one.tid;
	CHECK_ERRNO(move(1, 0, 0), EDEADLK);
	*owned = 0x3ffffff0;
	CHECK_ERRNO(move(1, 0, 0), ESRCH);
	*owned = 0;
	CHECK_EQ(moved(0), 1);
	pthread_join(one.thread, NULL);
	/* An ordinary one does not move. */
	begin_to_wait(&one, FUTEX_WAIT, NULL);
	CHECK(moved(0) == -1);
	CHECK_ERRNO(move(1, 0, 0), EINVAL);
	CHECK_EQ(futex(condition, FUTEX_WAKE, 1, NULL), 1);
	pthread_join(one.thread, NULL);
	CHECK_EQ(one.got, 0);
}

static void interrupted_moves(void)
{
	struct waiter one;
	struct timespec end;
	/* Before the move a handler ends nothing, also without SA_RESTART. */
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGUSR1, &action, NULL);
	handled = 0;
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	while (futex(condition, FUTEX_WAKE, 1, NULL) == 0)
		nap();
	pthread_kill(one.thread, SIGUSR1);
	while (!handled)
		nap();
	CHECK_EQ(moved(0), 1);
	pthread_join(one.thread, NULL);
	CHECK_EQ(one.got, 0);
	/* After it, the call has failed: its value would have changed. */
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	CHECK_OK(futex(owned, FUTEX_LOCK_PI, 0, NULL));
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, NULL);
	CHECK_EQ(moved(0), 1);
	pthread_kill(one.thread, SIGUSR1);
	pthread_join(one.thread, NULL);
	CHECK(one.got == -1 && one.error == EAGAIN);
	/* The deadline holds for the lock too. */
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec++;
	begin_to_wait(&one, FUTEX_WAIT_REQUEUE_PI, &end);
	CHECK_EQ(moved(0), 1);
	pthread_join(one.thread, NULL);
	CHECK(one.got == -1 && one.error == ETIMEDOUT);
	CHECK_OK(futex(owned, FUTEX_UNLOCK_PI, 0, NULL));
	CHECK_EQ(*owned, 0);
}

static void *try_it(void *unused)
{
	(void)unused;
	long got = futex(owned, FUTEX_TRYLOCK_PI, 0, NULL);
	return (void *)(long)(got == -1 ? errno : 0);
}

static void counts(void)
{
	/* Counts of waiters are looked at after one has been woken. */
	struct waiter one, two;
	static uint32_t other;
	void *error;
	begin_to_wait(&one, FUTEX_WAIT, NULL);
	begin_to_wait(&two, FUTEX_WAIT, NULL);
	nap();
	nap();
	CHECK_EQ(futex(condition, FUTEX_WAKE, -1, NULL), 1);
	CHECK_EQ(syscall(SYS_futex, condition, FUTEX_WAKE_OP, 0, 0, &other, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)), 1);
	pthread_join(one.thread, NULL);
	pthread_join(two.thread, NULL);
	CHECK_EQ(other, 1);
	/* Who tries in vain leaves FUTEX_WAITERS. */
	CHECK_OK(futex(owned, FUTEX_LOCK_PI, 0, NULL));
	REQUIRE(pthread_create(&one.thread, NULL, try_it, NULL) == 0);
	pthread_join(one.thread, &error);
	CHECK_EQ((long)error, EAGAIN);
	CHECK(*owned & FUTEX_WAITERS);
	CHECK_OK(futex(owned, FUTEX_UNLOCK_PI, 0, NULL));
	CHECK_EQ(*owned, 0);
}

/* A word in memory of one process is another one to those that say that it is private. */
static void private_or_not(void)
{
	static uint32_t word;
	struct waiter one = { .condition = &word, .owned = owned, .op = FUTEX_WAIT_PRIVATE };
	REQUIRE(pthread_create(&one.thread, NULL, waits, &one) == 0);
	nap();
	nap();
	CHECK_EQ(futex(&word, FUTEX_WAKE, 1, NULL), 0);
	CHECK_EQ(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL), 1);
	pthread_join(one.thread, NULL);
	one = (struct waiter){ .condition = &word, .owned = owned, .op = FUTEX_WAIT };
	REQUIRE(pthread_create(&one.thread, NULL, waits, &one) == 0);
	nap();
	nap();
	CHECK_EQ(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL), 0);
	CHECK_EQ(futex(&word, FUTEX_WAKE, 1, NULL), 1);
	pthread_join(one.thread, NULL);
}

/* What the kernel does with the locks of a thread that ends. */
struct entry {
	struct entry *next;
	uint32_t word;
};

static struct robust_list_head list = { { &list.list }, offsetof(struct entry, word), NULL };
static struct entry entries[4];

static void *ends_with_list(void *how)
{
	uint32_t me = syscall(SYS_gettid);
	REQUIRE(syscall(SYS_set_robust_list, &list, sizeof list) == 0);
	for (int i = 0; i < 4; i++)
		entries[i].word |= me;
	/* A lock that is being unlocked: its word is clear, and who waits has not been woken. */
	if (how)
		entries[3].word = 0;
	syscall(SYS_exit, 0);
	return NULL;
}

static void end_with_list(void *how)
{
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, ends_with_list, how) == 0);
	pthread_join(thread, NULL);
}

static void lists(void)
{
	struct waiter one;
	struct entry *tail = (struct entry *)&list;
	/* Two in the list, one that is pending; the last is in no list. */
	list.list.next = (struct robust_list *)&entries[0];
	entries[0] = (struct entry){ &entries[1], FUTEX_WAITERS };
	entries[1] = (struct entry){ tail, 0 };
	list.list_op_pending = (struct robust_list *)&entries[2];
	end_with_list(NULL);
	CHECK_EQ(entries[0].word, FUTEX_WAITERS | FUTEX_OWNER_DIED);
	CHECK_EQ(entries[1].word, FUTEX_OWNER_DIED);
	CHECK_EQ(entries[2].word, FUTEX_OWNER_DIED);
	CHECK(entries[3].word != 0 && !(entries[3].word & FUTEX_OWNER_DIED));
	/* Where the list is broken, the pending one is left alone too. */
	entries[0] = (struct entry){ BAD, 0 };
	entries[2].word = 0;
	end_with_list(NULL);
	CHECK_EQ(entries[0].word, FUTEX_OWNER_DIED);
	CHECK(entries[2].word != 0 && !(entries[2].word & FUTEX_OWNER_DIED));
	/* A lock that is free by now. */
	list.list.next = &list.list;
	list.list_op_pending = (struct robust_list *)&entries[3];
	one = (struct waiter){ .condition = &entries[3].word, .owned = owned, .op = FUTEX_WAIT };
	entries[3].word = 0;
	REQUIRE(pthread_create(&one.thread, NULL, waits, &one) == 0);
	nap();
	nap();
	end_with_list(&list);
	pthread_join(one.thread, NULL);
	CHECK_EQ(one.got, 0);
	CHECK_EQ(entries[3].word, 0);
}

static void moved_between_processes(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		long got = wait_move(FUTEX_WAIT_REQUEUE_PI, 0, NULL, condition, owned);
		uint32_t seen = *owned & FUTEX_TID_MASK;
		kill(getpid(), got == 0 && seen == (uint32_t)getpid() ? SIGKILL : SIGTERM);
	}
	CHECK_EQ(moved(0), 1);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WTERMSIG(status), SIGKILL);
	CHECK_ERRNO(futex(owned, FUTEX_LOCK_PI, 0, NULL), ESRCH);
	*owned = 0;
}

int main(void)
{
	contended();
	mutexes();
	between_processes();
	words();
	condition = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	owned = condition + 1;
	REQUIRE(condition != MAP_FAILED);
	refused_moves();
	moves();
	mixed_waits();
	interrupted_moves();
	counts();
	private_or_not();
	lists();
	moved_between_processes();
	return tap_done();
}
