/* Breakpoints in a thread, in a signal handler, in a child, in a loop without side effects, at a system call that is restarted and right behind it, and
 * in a library that is opened late (its path is the argument; none in a static program). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int flag, sum;
static int ends[2];

#define SEPARATE __attribute__((noinline))

SEPARATE void compute(int n) { for (int i = 0; i < n; i++) sum += i; }
SEPARATE void in_child(void) { compute(2); }
SEPARATE int look(void) { return flag; }
SEPARATE void never(void) { compute(9); }

SEPARATE void handler(int signal)
{
	(void)signal;
	compute(1);
	if (write(ends[1], "x", 1) != 1)
		abort();
}

static void *waiter(void *argument)
{
	while (!look())
		;
	compute(3);
	return argument;
}

/* read(2): the place of the instruction, and the one behind it. */
long read_now(int fd, void *buffer, long length);
asm(".text\n"
    ".globl read_now\n.type read_now,@function\nread_now: xor %eax, %eax\n"
    ".type the_call,@function\nthe_call: syscall\n.size the_call, . - the_call\n"
    ".type behind_call,@function\nbehind_call: nop\n ret\n.size behind_call, . - behind_call\n"
    ".size read_now, . - read_now\n");

static void *sender(void *target)
{
	usleep(1000);
	pthread_kill(*(pthread_t *)target, SIGUSR1);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread, self = pthread_self();
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	char byte = 0;
	int status;

	if (argc > 2)
		never();
	setvbuf(stdout, NULL, _IONBF, 0);
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, waiter, NULL);
	usleep(1000);
	if (fork() == 0) {
		in_child();
		_exit(3);
	}
	wait(&status);
	flag = 1;
	pthread_join(thread, NULL);
	if (pipe(ends))
		return 1;
	pthread_create(&thread, NULL, sender, &self);
	if (read_now(ends[0], &byte, 1) != 1)
		return 2;
	pthread_join(thread, NULL);
	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW);
		int (*late)(int) = library ? (int (*)(int))dlsym(library, "late") : NULL;
		if (!late || late(4) != 5)
			return 3;
	}
	printf("%d %d %c\n", sum, WEXITSTATUS(status), byte);
	return 0;
}
