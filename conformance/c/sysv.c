/* System V IPC: semaphore sets, message queues, shared memory (sysvipc(7)). */
#include "tap.h"
#include <pthread.h>
#include <limits.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

union semun {
	int val;
	struct semid_ds *buf;
	unsigned short *array;
	struct seminfo *info;
};

static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
}

static int value(int id, int number)
{
	return semctl(id, number, GETVAL);
}

static int op(int id, int number, int add, int flags)
{
	struct sembuf one = { number, add, flags };
	return semop(id, &one, 1);
}

static int ended(pid_t pid)
{
	int status;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A name that nobody else uses. */
static key_t key(int number)
{
	return 0x42480000 + number * 65536 + (getpid() & 0xffff);
}

static void sets(void)
{
	CHECK_ERRNO(semget(key(1), 1, 0600), ENOENT);
	CHECK_ERRNO(semget(IPC_PRIVATE, 0, 0600), EINVAL);
	CHECK_ERRNO(semget(IPC_PRIVATE, -1, 0600), EINVAL);
	CHECK_ERRNO(semget(IPC_PRIVATE, 32001, 0600), EINVAL);
	int id = semget(key(1), 3, IPC_CREAT | IPC_EXCL | 0640);
	REQUIRE(id >= 0);
	CHECK_ERRNO(semget(key(1), 3, IPC_CREAT | IPC_EXCL | 0640), EEXIST);
	CHECK_ERRNO(semget(key(1), 4, 0), EINVAL);
	CHECK(semget(key(1), 2, 0) == id && semget(key(1), 0, 0) == id);
	struct semid_ds ds;
	CHECK_OK(semctl(id, 0, IPC_STAT, (union semun){ .buf = &ds }));
	CHECK(ds.sem_nsems == 3 && ds.sem_otime == 0 && ds.sem_ctime != 0 && (ds.sem_perm.mode & 0777) == 0640);
	CHECK(ds.sem_perm.uid == geteuid() && ds.sem_perm.cuid == geteuid() && ds.sem_perm.__key == key(1));
	ds.sem_perm.mode = 0600;
	CHECK_OK(semctl(id, 0, IPC_SET, (union semun){ .buf = &ds }));
	CHECK_OK(semctl(id, 0, IPC_STAT, (union semun){ .buf = &ds }));
	CHECK_EQ(ds.sem_perm.mode & 0777, 0600);
	struct seminfo info;
	CHECK(semctl(0, 0, IPC_INFO, (union semun){ .info = &info }) >= 0);
	CHECK(info.semvmx == 32767 && info.semmsl >= 250 && info.semopm >= 32);
	int highest = semctl(0, 0, SEM_INFO, (union semun){ .info = &info });
	CHECK(highest >= 0 && info.semusz >= 1 && info.semaem >= 3);
	int found = 0;
	for (int at = 0; at <= highest; at++)
		found |= semctl(at, 0, SEM_STAT, (union semun){ .buf = &ds }) == id;
	CHECK(found);

	CHECK_OK(semctl(id, 1, SETVAL, (union semun){ .val = 5 }));
	CHECK_EQ(value(id, 1), 5);
	CHECK_EQ(semctl(id, 1, GETPID), getpid());
	CHECK_EQ(semctl(id, 0, GETPID), 0);
	CHECK_ERRNO(semctl(id, 1, SETVAL, (union semun){ .val = 32768 }), ERANGE);
	CHECK_ERRNO(semctl(id, 1, SETVAL, (union semun){ .val = -1 }), ERANGE);
	CHECK_ERRNO(semctl(id, 3, SETVAL, (union semun){ .val = 1 }), EINVAL);
	CHECK_ERRNO(semctl(id, -1, GETVAL), EINVAL);
	CHECK_ERRNO(semctl(id, 0, 77), EINVAL);
	CHECK_ERRNO(semctl(-1, 0, GETVAL), EINVAL);
	unsigned short all[3] = { 1, 2, 3 };
	CHECK_OK(semctl(id, 0, SETALL, (union semun){ .array = all }));
	memset(all, 0, sizeof all);
	CHECK_OK(semctl(id, 0, GETALL, (union semun){ .array = all }));
	CHECK(all[0] == 1 && all[1] == 2 && all[2] == 3);
	CHECK_ERRNO(semctl(id, 0, GETALL, (union semun){ .array = BAD }), EFAULT);
	all[2] = 40000;
	CHECK_ERRNO(semctl(id, 0, SETALL, (union semun){ .array = all }), ERANGE);
	CHECK_EQ(value(id, 0), 1);
	CHECK_OK(semctl(id, 0, IPC_RMID));
	CHECK_ERRNO(semctl(id, 0, IPC_RMID), EINVAL);
	CHECK_ERRNO(op(id, 0, 1, 0), EINVAL);
	CHECK_ERRNO(semget(key(1), 1, 0600), ENOENT);
	int next = semget(IPC_PRIVATE, 1, 0600);
	CHECK(next >= 0 && next != id);
	semctl(next, 0, IPC_RMID);
}

static void operations(void)
{
	int id = semget(IPC_PRIVATE, 2, 0600);
	REQUIRE(id >= 0);
	CHECK_ERRNO(semop(id, NULL, 0), EINVAL);
	CHECK_ERRNO(semop(id, BAD, 1), EFAULT);
	struct sembuf many[501] = { 0 };
	CHECK_ERRNO(semop(id, many, 501), E2BIG);
	CHECK_ERRNO(op(id, 2, 1, 0), EFBIG);
	CHECK_ERRNO(op(id, 0, -1, IPC_NOWAIT), EAGAIN);
	CHECK_OK(op(id, 0, 3, 0));
	CHECK_ERRNO(op(id, 0, 0, IPC_NOWAIT), EAGAIN);
	CHECK_ERRNO(op(id, 0, 32767, 0), ERANGE);
	CHECK_EQ(value(id, 0), 3);
	/* All or none. */
	struct sembuf two[2] = { { 0, -3, 0 }, { 1, -1, IPC_NOWAIT } };
	CHECK_ERRNO(semop(id, two, 2), EAGAIN);
	CHECK_EQ(value(id, 0), 3);
	/* In order, each seeing those before. */
	struct sembuf chain[3] = { { 0, -3, 0 }, { 0, 0, 0 }, { 0, 7, 0 } };
	CHECK_OK(semop(id, chain, 3));
	CHECK_EQ(value(id, 0), 7);
	struct timespec soon = { 0, 10000000 }, bad = { 0, -1 };
	struct sembuf less = { 1, -1, 0 };
	CHECK_ERRNO(semtimedop(id, &less, 1, &soon), EAGAIN);
	CHECK_ERRNO(semtimedop(id, &less, 1, &bad), EINVAL);
	CHECK_EQ(semctl(id, 1, GETNCNT), 0);

	/* The one who raises the value carries out what waits for it. */
	pid_t waiter = fork();
	if (waiter == 0)
		_exit(op(id, 1, -2, 0) == 0 ? 10 : errno);
	while (semctl(id, 1, GETNCNT) != 1)
		nap();
	CHECK_OK(op(id, 1, 1, 0));
	CHECK_EQ(semctl(id, 1, GETNCNT), 1);
	CHECK_OK(op(id, 1, 1, 0));
	CHECK_EQ(value(id, 1), 0);
	CHECK_EQ(semctl(id, 1, GETNCNT), 0);
	CHECK_EQ(semctl(id, 1, GETPID), waiter);
	CHECK_EQ(ended(waiter), 10);

	/* Those that wait for zero go first. */
	CHECK_OK(op(id, 1, 1, 0));
	waiter = fork();
	if (waiter == 0)
		_exit(op(id, 1, 0, 0) == 0 ? 11 : errno);
	while (semctl(id, 1, GETZCNT) != 1)
		nap();
	CHECK_EQ(semctl(id, 1, GETNCNT), 0);
	CHECK_OK(op(id, 1, -1, 0));
	CHECK_EQ(ended(waiter), 11);

	/* Removal, signals. */
	waiter = fork();
	if (waiter == 0) {
		struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
		sigaction(SIGUSR1, &action, NULL);
		int first = op(id, 1, -1, 0) == -1 && errno == EINTR && handled == 1;
		_exit(op(id, 1, -1, 0) == -1 && errno == EIDRM && first ? 12 : 1);
	}
	while (semctl(id, 1, GETNCNT) != 1)
		nap();
	kill(waiter, SIGUSR1);
	nap();
	while (semctl(id, 1, GETNCNT) != 1)
		nap();
	CHECK_OK(semctl(id, 0, IPC_RMID));
	CHECK_EQ(ended(waiter), 12);
}

static void undo(void)
{
	int id = semget(IPC_PRIVATE, 2, 0600);
	REQUIRE(id >= 0);
	CHECK_OK(op(id, 0, 1, 0));
	pid_t child = fork();
	if (child == 0) {
		int held = op(id, 0, -1, SEM_UNDO) == 0 && op(id, 1, 4, SEM_UNDO) == 0;
		if (held)
			kill(getpid(), SIGKILL);
		_exit(1);
	}
	CHECK_EQ(ended(child), -SIGKILL);
	CHECK_EQ(value(id, 0), 1);
	CHECK_EQ(value(id, 1), 0);
	/* A lock that is given back by a death wakes who waits for it. */
	int ready[2];
	REQUIRE(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		REQUIRE(op(id, 0, -1, SEM_UNDO) == 0 && write(ready[1], "x", 1) == 1);
		while (semctl(id, 0, GETNCNT) != 1)
			nap();
		_exit(0);
	}
	char byte;
	REQUIRE(read(ready[0], &byte, 1) == 1);
	CHECK_OK(op(id, 0, -1, 0));
	CHECK_EQ(ended(child), 0);
	CHECK_EQ(value(id, 0), 0);
	/* SETVAL forgets. */
	child = fork();
	if (child == 0)
		_exit(op(id, 1, 5, SEM_UNDO) == 0 && semctl(id, 1, SETVAL, (union semun){ .val = 9 }) == 0 ? 0 : 1);
	CHECK_EQ(ended(child), 0);
	CHECK_EQ(value(id, 1), 9);
	semctl(id, 0, IPC_RMID);
}

struct message {
	long kind;
	char text[64];
};

static int send(int id, long kind, const char *text, int flags)
{
	struct message message = { .kind = kind };
	strcpy(message.text, text);
	return msgsnd(id, &message, strlen(text), flags);
}

/* Whether the next message of a selection is this one. */
static int next_is(int id, long select, int flags, long kind, const char *text)
{
	struct message message = { 0 };
	ssize_t length = msgrcv(id, &message, sizeof message.text, select, flags);
	return length == (ssize_t)strlen(text) && message.kind == kind && memcmp(message.text, text, length) == 0;
}

static int awaited;

static void *await(void *got)
{
	struct message message;
	*(pid_t *)got = gettid();
	REQUIRE(msgrcv(awaited, &message, sizeof message.text, 0, 0) == 4);
	return NULL;
}

/* Of a thread that has slept for its message the thread is told, of one that found it there the process. */
static void who_received(void)
{
	struct msqid_ds ds;
	pthread_t thread;
	pid_t tid;
	awaited = msgget(IPC_PRIVATE, 0600);
	REQUIRE(pthread_create(&thread, NULL, await, &tid) == 0);
	nap();
	CHECK_OK(send(awaited, 1, "late", 0));
	pthread_join(thread, NULL);
	CHECK_OK(msgctl(awaited, IPC_STAT, &ds));
	CHECK(tid != getpid() && ds.msg_lrpid == tid);
	CHECK_OK(send(awaited, 1, "soon", 0));
	REQUIRE(pthread_create(&thread, NULL, await, &tid) == 0);
	pthread_join(thread, NULL);
	CHECK_OK(msgctl(awaited, IPC_STAT, &ds));
	CHECK_EQ(ds.msg_lrpid, getpid());
	CHECK_OK(msgctl(awaited, IPC_RMID, NULL));
}

static void messages(void)
{
	struct message message;
	CHECK_ERRNO(msgget(key(2), 0600), ENOENT);
	int id = msgget(key(2), IPC_CREAT | 0600);
	REQUIRE(id >= 0);
	CHECK_ERRNO(msgget(key(2), IPC_CREAT | IPC_EXCL | 0600), EEXIST);
	CHECK_EQ(msgget(key(2), 0), id);
	CHECK_ERRNO(send(id, 0, "x", 0), EINVAL);
	CHECK_ERRNO(msgsnd(id, &message, 8193, 0), EINVAL);
	CHECK_ERRNO(msgsnd(id, BAD, 1, 0), EFAULT);
	CHECK_ERRNO(msgsnd(-1, &message, 1, 0), EINVAL);
	CHECK_ERRNO(msgrcv(id, &message, -1, 0, 0), EINVAL);
	CHECK_ERRNO(msgrcv(id, &message, 64, 0, IPC_NOWAIT), ENOMSG);
	CHECK(send(id, 3, "three", 0) == 0 && send(id, 1, "one", 0) == 0 && send(id, 2, "two", 0) == 0);
	CHECK(send(id, 3, "again", 0) == 0 && send(id, 5, "", 0) == 0);
	struct msqid_ds ds;
	CHECK_OK(msgctl(id, IPC_STAT, &ds));
	CHECK(ds.msg_qnum == 5 && ds.__msg_cbytes == 16 && ds.msg_qbytes == 16384 && ds.msg_lspid == getpid());
	CHECK(ds.msg_stime != 0 && ds.msg_rtime == 0 && ds.msg_lrpid == 0);
	CHECK_ERRNO(msgrcv(id, &message, 2, 3, 0), E2BIG);
	CHECK(next_is(id, 2, 0, 2, "two"));
	CHECK(next_is(id, -2, 0, 1, "one"));
	CHECK_ERRNO(msgrcv(id, &message, 64, -2, IPC_NOWAIT), ENOMSG);
	CHECK(next_is(id, 3, MSG_EXCEPT, 5, ""));
	CHECK(msgrcv(id, &message, 2, 0, MSG_NOERROR) == 2 && memcmp(message.text, "th", 2) == 0);
	CHECK(next_is(id, 0, 0, 3, "again"));
	CHECK(send(id, LONG_MAX, "last", 0) == 0 && next_is(id, LONG_MIN, 0, LONG_MAX, "last"));
	CHECK_OK(msgctl(id, IPC_STAT, &ds));
	CHECK(ds.msg_qnum == 0 && ds.__msg_cbytes == 0 && ds.msg_lrpid == getpid() && ds.msg_rtime != 0);
	struct msginfo info;
	CHECK(msgctl(0, IPC_INFO, (struct msqid_ds *)&info) >= 0 && info.msgmax == 8192 && info.msgmnb == 16384);
	int highest = msgctl(0, MSG_INFO, (struct msqid_ds *)&info), found = 0;
	for (int at = 0; at <= highest; at++)
		found |= msgctl(at, MSG_STAT, &ds) == id;
	CHECK(found);

	/* A full queue. */
	ds.msg_qbytes = 10;
	CHECK_OK(msgctl(id, IPC_SET, &ds));
	CHECK_OK(send(id, 1, "12345678", IPC_NOWAIT));
	CHECK_ERRNO(send(id, 1, "abc", IPC_NOWAIT), EAGAIN);
	CHECK_OK(send(id, 1, "ab", IPC_NOWAIT));
	pid_t sender = fork();
	if (sender == 0)
		_exit(send(id, 7, "seven", 0) == 0 ? 20 : errno);
	nap();
	CHECK(next_is(id, 0, 0, 1, "12345678"));
	CHECK_EQ(ended(sender), 20);
	CHECK(next_is(id, 7, 0, 7, "seven"));
	CHECK(next_is(id, 0, 0, 1, "ab"));

	/* A receiver gets what it waits for, and nobody else does. */
	pid_t receiver = fork();
	if (receiver == 0)
		_exit(next_is(id, 9, 0, 9, "nine") ? 21 : 1);
	nap();
	CHECK_OK(send(id, 8, "eight", 0));
	CHECK_OK(send(id, 9, "nine", 0));
	CHECK_EQ(ended(receiver), 21);
	CHECK(next_is(id, 0, IPC_NOWAIT, 8, "eight"));
	receiver = fork();
	if (receiver == 0) {
		struct message small;
		_exit(msgrcv(id, &small, 1, 0, 0) == -1 && errno == E2BIG ? 22 : 1);
	}
	nap();
	CHECK_OK(send(id, 1, "long", 0));
	CHECK_EQ(ended(receiver), 22);
	CHECK(next_is(id, 0, IPC_NOWAIT, 1, "long"));

	/* Signals, removal. */
	receiver = fork();
	if (receiver == 0) {
		struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
		sigaction(SIGUSR1, &action, NULL);
		REQUIRE(send(id, 50, "ready", 0) == 0);
		int first = msgrcv(id, &message, 64, 1, 0) == -1 && errno == EINTR;
		REQUIRE(send(id, 51, "again", 0) == 0);
		_exit(msgrcv(id, &message, 64, 1, 0) == -1 && errno == EIDRM && first ? 23 : 1);
	}
	CHECK(next_is(id, 50, 0, 50, "ready"));
	nap();
	kill(receiver, SIGUSR1);
	CHECK(next_is(id, 51, 0, 51, "again"));
	nap();
	CHECK_OK(msgctl(id, IPC_RMID, NULL));
	CHECK_EQ(ended(receiver), 23);
	CHECK_ERRNO(msgctl(id, IPC_STAT, &ds), EINVAL);
	CHECK_ERRNO(msgrcv(id, &message, 64, 0, 0), EINVAL);
}

static void memory(void)
{
	struct shmid_ds ds;
	CHECK_ERRNO(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
	CHECK_ERRNO(shmget(key(3), 100, 0600), ENOENT);
	int id = shmget(key(3), 5000, IPC_CREAT | IPC_EXCL | 0600);
	REQUIRE(id >= 0);
	CHECK_ERRNO(shmget(key(3), 5000, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
	CHECK_ERRNO(shmget(key(3), 5001, 0), EINVAL);
	CHECK(shmget(key(3), 0, 0) == id && shmget(key(3), 5000, IPC_CREAT) == id);
	CHECK_OK(shmctl(id, IPC_STAT, &ds));
	CHECK(ds.shm_segsz == 5000 && ds.shm_nattch == 0 && ds.shm_cpid == getpid() && ds.shm_lpid == 0);
	CHECK(ds.shm_atime == 0 && ds.shm_ctime != 0 && (ds.shm_perm.mode & 0777) == 0600);
	char *at = shmat(id, NULL, 0), *other = shmat(id, NULL, SHM_RDONLY);
	REQUIRE(at != (void *)-1 && other != (void *)-1);
	strcpy(at, "hello");
	CHECK(strcmp(other, "hello") == 0 && at[8191] == 0);
	CHECK_OK(shmctl(id, IPC_STAT, &ds));
	CHECK(ds.shm_nattch == 2 && ds.shm_lpid == getpid() && ds.shm_atime != 0 && ds.shm_dtime == 0);
	CHECK_EQ((long)shmat(id, at + 1, 0), -1);
	CHECK(shmat(id, at + 1, 0) == (void *)-1 && errno == EINVAL);
	CHECK(shmat(id, at, 0) == (void *)-1 && errno == EINVAL);
	CHECK(shmat(id, NULL, SHM_REMAP) == (void *)-1 && errno == EINVAL);
	char *room = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	room[0] = 'r';
	CHECK(shmat(id, room, SHM_REMAP) == room && strcmp(room, "hello") == 0);
	CHECK_OK(shmdt(room));
	CHECK_ERRNO(shmdt(room), EINVAL);
	CHECK_ERRNO(shmdt(at + 4096), EINVAL);
	/* What is left of an attachment goes as a whole. */
	CHECK_OK(mprotect(other, 4096, PROT_NONE));
	CHECK_OK(shmdt(other));
	CHECK_OK(shmctl(id, IPC_STAT, &ds));
	CHECK(ds.shm_nattch == 1 && ds.shm_dtime != 0);
	pid_t child = fork();
	if (child == 0) {
		struct shmid_ds seen;
		int held = shmctl(id, IPC_STAT, &seen) == 0 && seen.shm_nattch == 2;
		at[0] = 'j';
		_exit(held && shmdt(at) == 0 ? 30 : 1);
	}
	CHECK_EQ(ended(child), 30);
	CHECK(strcmp(at, "jello") == 0);
	struct shminfo info;
	CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)&info) >= 0 && info.shmmni == 4096 && info.shmmin == 1);
	struct shm_info used;
	int highest = shmctl(0, SHM_INFO, (struct shmid_ds *)&used), found = 0;
	CHECK(used.used_ids >= 1 && used.shm_tot >= 2);
	for (int index = 0; index <= highest; index++)
		found |= shmctl(index, SHM_STAT, &ds) == id;
	CHECK(found);
	/* Marked for removal: without its name, gone with the last attachment. */
	CHECK_OK(shmctl(id, IPC_RMID, NULL));
	CHECK_ERRNO(shmget(key(3), 100, 0), ENOENT);
	CHECK_OK(shmctl(id, IPC_STAT, &ds));
	CHECK(ds.shm_perm.__key == IPC_PRIVATE && (ds.shm_perm.mode & 01000));
	CHECK(strcmp(at, "jello") == 0);
	CHECK_OK(shmdt(at));
	CHECK_ERRNO(shmctl(id, IPC_STAT, &ds), EINVAL);
	CHECK_ERRNO(shmctl(id, 99, &ds), EINVAL);
}

/* Lines of a file below the first one that begin with this key and id. */
static int listed(const char *path, key_t name, int id)
{
	char line[512], wanted[64];
	FILE *file = fopen(path, "r");
	REQUIRE(file);
	snprintf(wanted, sizeof wanted, "%10d %10d  ", name, id);
	int count = 0;
	while (fgets(line, sizeof line, file))
		count += strncmp(line, wanted, strlen(wanted)) == 0;
	fclose(file);
	return count;
}

static void listings(void)
{
	int set = semget(key(4), 2, IPC_CREAT | 0600), queue = msgget(key(5), IPC_CREAT | 0600);
	int segment = shmget(key(6), 4096, IPC_CREAT | 0600);
	CHECK_EQ(listed("/proc/sysvipc/sem", key(4), set), 1);
	CHECK_EQ(listed("/proc/sysvipc/msg", key(5), queue), 1);
	CHECK_EQ(listed("/proc/sysvipc/shm", key(6), segment), 1);
	semctl(set, 0, IPC_RMID);
	msgctl(queue, IPC_RMID, NULL);
	shmctl(segment, IPC_RMID, NULL);
	CHECK_EQ(listed("/proc/sysvipc/sem", key(4), set), 0);
	CHECK_EQ(listed("/proc/sysvipc/msg", key(5), queue), 0);
	CHECK_EQ(listed("/proc/sysvipc/shm", key(6), segment), 0);
}

/* What others may do, as another user. */
static void rights(void)
{
	if (geteuid() != 0)
		return;
	int set = semget(key(7), 1, IPC_CREAT | 0604), queue = msgget(key(8), IPC_CREAT | 0600);
	int segment = shmget(key(9), 4096, IPC_CREAT | 0604);
	key_t names[] = { key(7), key(8), key(9) };
	pid_t child = fork();
	if (child == 0) {
		struct semid_ds ds;
		int held = setgid(65534) == 0 && setuid(65534) == 0;
		held &= semget(names[0], 1, 0400) == set;
		held &= semget(names[0], 1, 0600) == -1 && errno == EACCES;
		held &= value(set, 0) == 0;
		held &= op(set, 0, 1, 0) == -1 && errno == EACCES;
		held &= semctl(set, 0, IPC_RMID) == -1 && errno == EPERM;
		held &= semctl(set, 0, IPC_STAT, (union semun){ .buf = &ds }) == 0;
		held &= msgget(names[1], 0) == queue;
		held &= send(queue, 1, "x", 0) == -1 && errno == EACCES;
		held &= msgctl(queue, IPC_RMID, NULL) == -1 && errno == EPERM;
		held &= shmat(segment, NULL, 0) == (void *)-1 && errno == EACCES;
		held &= shmat(segment, NULL, SHM_RDONLY) != (void *)-1;
		_exit(held ? 40 : 1);
	}
	CHECK_EQ(ended(child), 40);
	semctl(set, 0, IPC_RMID);
	msgctl(queue, IPC_RMID, NULL);
	shmctl(segment, IPC_RMID, NULL);
}

/* The mappings of a segment tell it when they come and go, whoever makes or ends them. */
static void mappings(void)
{
	int segment = shmget(IPC_PRIVATE, 3 * 4096, IPC_CREAT | 0600), to[2], back[2];
	char *at = shmat(segment, NULL, 0), byte;
	struct shmid_ds ds;
	REQUIRE(at != (void *)-1 && pipe(to) == 0 && pipe(back) == 0);
	CHECK(shmctl(segment, IPC_STAT, &ds) == 0 && ds.shm_nattch == 1 && ds.shm_lpid == getpid());
	pid_t child = fork();
	if (child == 0) {
		REQUIRE(read(to[0], &byte, 1) == 1 && munmap(at, 4096) == 0 && write(back[1], "x", 1) == 1);
		REQUIRE(read(to[0], &byte, 1) == 1);
		_exit(0);
	}
	CHECK(shmctl(segment, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2 && ds.shm_lpid == getpid());
	REQUIRE(write(to[1], "x", 1) == 1 && read(back[0], &byte, 1) == 1);
	CHECK(shmctl(segment, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2 && ds.shm_lpid == child);
	/* A part with other rights is a mapping of its own. */
	CHECK(mprotect(at + 4096, 4096, PROT_READ) == 0 && shmctl(segment, IPC_STAT, &ds) == 0);
	CHECK(ds.shm_nattch == 4 && ds.shm_lpid == getpid());
	REQUIRE(write(to[1], "x", 1) == 1 && waitpid(child, NULL, 0) == child);
	CHECK(shmctl(segment, IPC_STAT, &ds) == 0 && ds.shm_nattch == 3 && ds.shm_lpid == child);
	shmctl(segment, IPC_RMID, NULL);
	CHECK(shmdt(at) == 0 && shmctl(segment, IPC_STAT, &ds) == -1);
}

/* So do mappings that take the place of one of the same segment. */
static void mapped_in_place(void)
{
	int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), status;
	char *at = shmat(segment, NULL, 0);
	struct shmid_ds ds;
	REQUIRE(at != (void *)-1);
	pid_t child = fork();
	if (child == 0)
		_exit(shmat(segment, at, SHM_REMAP) != at || shmctl(segment, IPC_STAT, &ds) != 0 || ds.shm_nattch != 2 ||
		      ds.shm_lpid != getpid() || ds.shm_dtime == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* Also where there is more of them, or it covers a part. */
	int larger = shmget(IPC_PRIVATE, 2 * 4096, IPC_CREAT | 0600);
	char *room = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *both = shmat(larger, room, SHM_REMAP);
	REQUIRE(both == room && shmctl(larger, IPC_STAT, &ds) == 0 && ds.shm_dtime == 0);
	CHECK(shmat(larger, both + 4096, SHM_REMAP) == both + 4096 && shmctl(larger, IPC_STAT, &ds) == 0);
	CHECK(ds.shm_nattch == 2 && ds.shm_dtime != 0);
	REQUIRE(shmctl(larger, IPC_RMID, NULL) == 0 && shmdt(both) == 0 && shmdt(both + 4096) == 0);
	REQUIRE(shmctl(segment, IPC_RMID, NULL) == 0 && shmdt(at) == 0);
}

/* The name of a segment stays with its mappings. */
static void name_of_a_mapping(void)
{
	int segment = shmget(key(10), 4096, IPC_CREAT | 0600);
	char *at = shmat(segment, NULL, 0), line[256], wanted[32];
	snprintf(wanted, sizeof wanted, "/SYSV%08x (deleted)", key(10));
	REQUIRE(at != (void *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		found += strstr(line, wanted) != NULL;
	fclose(maps);
	CHECK_EQ(found, 1);
	CHECK_EQ(shmdt(at), 0);
}

int main(void)
{
	mappings();
	mapped_in_place();
	name_of_a_mapping();
	sets();
	operations();
	undo();
	messages();
	who_received();
	memory();
	listings();
	rights();
	return tap_done();
}
