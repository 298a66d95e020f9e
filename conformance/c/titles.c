/* What /proc/PID/cmdline and /proc/PID/environ show of a program that writes over its arguments (proc(5), setproctitle(3)). */
#include "tap.h"
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

static char shown[8192];

static int read_of(pid_t pid, const char *name)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY), n = 0, got;
	REQUIRE(fd >= 0);
	while ((got = read(fd, shown + n, sizeof shown - n)) > 0)
		n += got;
	close(fd);
	return n;
}

#define SHOWS(name, text) (read_of(getpid(), name) == sizeof(text) - 1 && memcmp(shown, text, sizeof(text) - 1) == 0)
#define TITLE(text) SHOWS("cmdline", text)

/* Fields 45 and on of /proc/self/stat. */
static void places(char **argv, char **envp)
{
	unsigned long heap, arguments, ends, environment, last;
	read_of(getpid(), "stat");
	char *at = strrchr(shown, ')');
	for (int field = 2; field < 47; field++)
		at = strchr(at + 1, ' ');
	REQUIRE(sscanf(at, "%lu %lu %lu %lu %lu", &heap, &arguments, &ends, &environment, &last) == 5);
	CHECK(heap > 0);
	CHECK(arguments == (unsigned long)argv[0]);
	CHECK(ends == (unsigned long)envp[0] && environment == ends);
	CHECK(last == (unsigned long)envp[1] + strlen(envp[1]) + 1);
}

static int child_shows(const char *text, int len)
{
	pid_t pid = fork();
	if (pid == 0) {
		sleep(10);
		_exit(0);
	}
	int n = read_of(pid, "cmdline");
	int same = n == len && memcmp(shown, text, len) == 0;
	kill(pid, SIGKILL);
	/* Of one that has ended nothing is shown. */
	siginfo_t info;
	waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
	same = same && read_of(pid, "cmdline") == 0;
	waitpid(pid, NULL, 0);
	return same;
}

int main(int argc, char **argv, char **envp)
{
	char *own[] = {"titles", "first", "second", NULL}, *with[] = {"ONE=1", "ANOTHER=other", NULL};
	if (argc == 1) {
		execve("/proc/self/exe", own, with);
		return 1;
	}
	CHECK(TITLE("titles\0first\0second\0"));
	CHECK(SHOWS("environ", "ONE=1\0ANOTHER=other\0"));
	places(argv, envp);

	/* Where the last byte is still 0, all is shown. */
	strcpy(argv[0], "short");
	CHECK(TITLE("short\0\0first\0second\0"));
	memset(argv[0], 0, 20);
	strcpy(argv[0], "a: title");
	CHECK(TITLE("a: title\0\0\0\0\0\0\0\0\0\0\0\0"));
	CHECK(child_shows("a: title\0\0\0\0\0\0\0\0\0\0\0\0", 20));

	/* A longer one goes on into the environment, to its first 0. */
	char *end = envp[1] + strlen(envp[1]);
	memset(argv[0], ' ', end - argv[0]);
	memcpy(argv[0], "a much longer title", 19);
	CHECK(read_of(getpid(), "cmdline") == end - argv[0] + 1 && memcmp(shown, "a much longer title ", 20) == 0);
	argv[0][24] = 0;
	CHECK(TITLE("a much longer title     \0"));
	CHECK(child_shows("a much longer title     ", 25));
	argv[0][5] = 0;
	CHECK(TITLE("a muc\0"));
	CHECK(read_of(getpid(), "environ") == end + 1 - envp[0] && shown[end - envp[0]] == 0);
	return tap_done();
}
