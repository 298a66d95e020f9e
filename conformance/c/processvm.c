/* Memory of other processes (process_vm_readv(2), process_madvise(2)). */
#include "tap.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char shown[16] = "of the parent";
static char *pages;

static struct iovec at(void *base, size_t length)
{
	return (struct iovec){ base, length };
}

static void arguments(pid_t child)
{
	char room[16];
	struct iovec local = at(room, 4), remote = at(shown, 4), negative = at(shown, -1), none = at(BAD, 0);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, &remote, 1, 1), EINVAL);
	CHECK_ERRNO(process_vm_readv(child, &local, 1025, &remote, 1, 0), EINVAL);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, &remote, 1025, 0), EINVAL);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, &negative, 1, 0), EINVAL);
	CHECK_ERRNO(process_vm_readv(child, BAD, 1, &remote, 1, 0), EFAULT);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, BAD, 1, 0), EFAULT);
	CHECK_EQ(process_vm_readv(child, &none, 1, &remote, 1, 0), 0);
	CHECK_EQ(process_vm_readv(child, &local, 0, BAD, 1, 0), 0);
	CHECK_EQ(process_vm_readv(child, &local, 1, &none, 1, 0), 0);
	CHECK_EQ(process_vm_readv(0, &local, 1, &none, 1, 0), 0);
	CHECK_ERRNO(process_vm_readv(0, &local, 1, &remote, 1, 0), ESRCH);
	CHECK_ERRNO(process_vm_readv(-1, &local, 1, &remote, 1, 0), ESRCH);
	CHECK_ERRNO(process_vm_readv(4000000, &local, 1, &remote, 1, 0), ESRCH);
}

static void moving(pid_t child)
{
	char room[16] = "", other[16] = "";
	struct iovec local[2] = { at(room, 3), at(other, 4) }, remote[2] = { at(shown, 2), at(shown + 7, 6) };
	CHECK_EQ(process_vm_readv(child, local, 2, remote, 2, 0), 7);
	CHECK(strcmp(room, "ofc") == 0);
	CHECK(strcmp(other, "hild") == 0);
	CHECK(strcmp(shown, "of the parent") == 0);
	struct iovec new = at("IN", 2);
	CHECK_EQ(process_vm_writev(child, &new, 1, remote, 1, 0), 2);
	CHECK_EQ(process_vm_readv(child, local, 1, remote, 1, 0), 2);
	CHECK(memcmp(room, "IN", 2) == 0);
	CHECK_EQ(shown[0], 'o');
	struct iovec self = at(shown, 3);
	CHECK_EQ(process_vm_readv(getpid(), local, 1, &self, 1, 0), 3);
	CHECK(memcmp(room, "of ", 3) == 0);
}

static void holes(pid_t child)
{
	char room[8192];
	struct iovec local = at(room, sizeof room), remote[2] = { at(pages + 4000, 8192), at(shown, 4) };
	/* The second page may not be read: what lies before it is moved, and nothing of the next vector. */
	CHECK_EQ(process_vm_readv(child, &local, 1, remote, 2, 0), 96);
	remote[0] = at(pages + 4096, 1);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, remote, 2, 0), EFAULT);
	remote[0] = at(BAD, 1);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, remote, 1, 0), EFAULT);
	remote[0] = at(pages + 8192, 4);
	CHECK_EQ(process_vm_readv(child, &local, 1, remote, 1, 0), 4);
	CHECK_ERRNO(process_vm_writev(child, &local, 1, remote, 1, 0), EFAULT);
	struct iovec bad = at(BAD, 4), good = at(shown, 4);
	CHECK_ERRNO(process_vm_readv(child, &bad, 1, &good, 1, 0), EFAULT);
	CHECK_ERRNO(process_vm_writev(child, &bad, 1, &good, 1, 0), EFAULT);
}

/* Hints about memory (process_madvise(2)). */
static long advise(int pidfd, const struct iovec *ranges, size_t count, int advice, unsigned flags)
{
	return syscall(SYS_process_madvise, pidfd, ranges, count, advice, flags);
}

static void hints(pid_t child)
{
	int pidfd = syscall(SYS_pidfd_open, child, 0), self = syscall(SYS_pidfd_open, getpid(), 0), status, fd;
	struct iovec pair[3] = { at(pages, 4096), at(NULL, 0), at(pages + 4096, 4096) };
	struct iovec odd = at(pages + 1, 4096), none = at((void *)0x10000, 4096), wild = at((void *)-4096UL, 4096);
	REQUIRE(pidfd >= 0 && self >= 0);
	CHECK_ERRNO(advise(pidfd, pair, 1, MADV_COLD, 1), EINVAL);
	CHECK_ERRNO(advise(pidfd, pair, 1025, MADV_COLD, 0), EINVAL);
	CHECK_ERRNO(advise(pidfd, BAD, 1, MADV_COLD, 0), EFAULT);
	CHECK_ERRNO(advise(pidfd, &wild, 1, MADV_COLD, 0), EFAULT);
	CHECK_ERRNO(advise(-1, pair, 1, MADV_COLD, 0), EBADF);
	CHECK_ERRNO(advise(0, pair, 1, MADV_COLD, 0), EBADF);
	CHECK_ERRNO(advise(pidfd, pair, 1, MADV_DONTNEED, 0), EINVAL);
	CHECK_ERRNO(advise(pidfd, pair, 1, 99, 0), EINVAL);
	if (advise(pidfd, pair, 1, MADV_COLD, 0) == -1 && errno == EPERM) {
		/* CAP_SYS_NICE, which a container's root has not. */
		close(pidfd), close(self);
		return;
	}
	CHECK_EQ(advise(pidfd, pair, 3, MADV_COLD, 0), 8192);
	CHECK_EQ(advise(pidfd, pair, 3, MADV_PAGEOUT, 0), 8192);
	CHECK_EQ(advise(pidfd, pair, 1, MADV_WILLNEED, 0), 4096);
	CHECK_EQ(advise(self, pair, 1, MADV_WILLNEED, 0), 4096);
	CHECK_EQ(advise(pidfd, pair, 0, MADV_COLD, 0), 0);
	CHECK_EQ(advise(pidfd, pair + 1, 1, MADV_COLD, 0), 0);
	CHECK_ERRNO(advise(pidfd, &odd, 1, MADV_COLD, 0), EINVAL);
	CHECK_ERRNO(advise(pidfd, &none, 1, MADV_COLD, 0), ENOMEM);
	/* What was done before an error counts. */
	struct iovec parts[2] = { pair[0], none };
	CHECK_EQ(advise(pidfd, parts, 2, MADV_COLD, 0), 4096);
	/* Whose memory one may not look at; whose hints count for nothing. */
	pid_t other = fork();
	if (other == 0) {
		if (setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
			_exit(3);
		long looked = advise(pidfd, pair, 1, MADV_COLD, 0);
		int error = errno;
		fd = syscall(SYS_pidfd_open, getpid(), 0);
		long mine = advise(fd, pair, 1, MADV_COLD, 0);
		/* Later kernels let everybody advise about memory of its own. */
		_exit((looked == -1 && error == EACCES) | ((mine == -1 && errno == EPERM) || mine == 4096) << 1);
	}
	REQUIRE(waitpid(other, &status, 0) == other);
	CHECK_EQ(WEXITSTATUS(status), 3);
	other = fork();
	if (other == 0)
		_exit(0);
	siginfo_t info;
	REQUIRE(waitid(P_PID, other, &info, WEXITED | WNOWAIT) == 0);
	fd = syscall(SYS_pidfd_open, other, 0);
	CHECK_ERRNO(advise(fd, pair, 1, MADV_COLD, 0), ESRCH);
	REQUIRE(waitpid(other, &status, 0) == other);
	CHECK_ERRNO(advise(fd, pair, 1, MADV_COLD, 0), ESRCH);
	close(fd), close(pidfd), close(self);
}

int main(void)
{
	int ready[2];
	pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(pages != MAP_FAILED && pipe(ready) == 0);
	REQUIRE(mprotect(pages + 4096, 4096, PROT_NONE) == 0 && mprotect(pages + 8192, 4096, PROT_READ) == 0);
	pid_t child = fork();
	if (child == 0) {
		strcpy(shown, "of the child!");
		REQUIRE(write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	char byte;
	REQUIRE(read(ready[0], &byte, 1) == 1);
	arguments(child);
	moving(child);
	holes(child);
	hints(child);
	REQUIRE(kill(child, SIGKILL) == 0);
	siginfo_t info;
	REQUIRE(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
	struct iovec local = at(&byte, 1), remote = at(shown, 1);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, &remote, 1, 0), ESRCH);
	REQUIRE(waitpid(child, NULL, 0) == child);
	CHECK_ERRNO(process_vm_readv(child, &local, 1, &remote, 1, 0), ESRCH);
	return tap_done();
}
