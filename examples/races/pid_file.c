/*
 * Two processes: each looks whether a lock file is there and makes one if not, in two calls.
 *
 * Race (check then act on a file): access(2) in one process and open(2) in the other one. It fails if a process is preempted between
 * them and the other one makes its file: both take themselves for the only one. Repaired, O_EXCL makes one call of the two.
 */
#include "race.h"
#include <fcntl.h>
#include <sys/wait.h>

static char path[64];

/* 1 if this process has made the file. */
static int claim(void)
{
	if (access(path, F_OK) == 0)
		return 0;
	int file = open(path, O_CREAT | O_WRONLY repaired(| O_EXCL), 0600);
	return file >= 0;
}

int main(void)
{
	snprintf(path, sizeof path, "/tmp/race-pid-file-%d", (int)getpid());
	unlink(path);
	pid_t child = fork();
	if (child == 0)
		_exit(claim());
	int mine = claim(), status = 0;
	waitpid(child, &status, 0);
	unlink(path);
	require(mine + WEXITSTATUS(status) == 1);
	return 0;
}
