/* Watches on files and directories (inotify(7)). */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#ifndef IN_MASK_CREATE
#define IN_MASK_CREATE 0x10000000
#endif

static char told[8192];
static unsigned last_cookie;

static const char *const names[] = { "ACCESS",     "MODIFY", "ATTRIB", "CLOSE_WRITE", "CLOSE_NOWRITE", "OPEN",
				     "MOVED_FROM", "MOVED_TO", "CREATE", "DELETE",     "DELETE_SELF",   "MOVE_SELF" };

static void tell(const struct inotify_event *event)
{
	char *end = told + strlen(told);
	size_t room = told + sizeof told - end;
	int n = snprintf(end, room, "%s%d:", *told ? " " : "", event->wd);
	for (unsigned i = 0; i < 12; i++)
		if (event->mask & 1u << i)
			n += snprintf(end + n, room - n, "%s", names[i]);
	if (event->mask & IN_UNMOUNT)
		n += snprintf(end + n, room - n, "UNMOUNT");
	if (event->mask & IN_Q_OVERFLOW)
		n += snprintf(end + n, room - n, "Q_OVERFLOW");
	if (event->mask & IN_IGNORED)
		n += snprintf(end + n, room - n, "IGNORED");
	if (event->mask & IN_ISDIR)
		n += snprintf(end + n, room - n, "/");
	if (event->len)
		n += snprintf(end + n, room - n, "(%s)", event->name);
	if (event->cookie) {
		n += snprintf(end + n, room - n, event->cookie == last_cookie ? "=" : "+");
		last_cookie = event->cookie;
	}
}

/* All events that are there: "wd:MASK(name)", + for a new cookie, = for that of the event before. */
static const char *events(int fd)
{
	static char room[65536] __attribute__((aligned(8)));
	told[0] = 0;
	ssize_t n;
	while ((n = read(fd, room, sizeof room)) > 0)
		for (ssize_t at = 0; at < n;) {
			struct inotify_event *event = (void *)(room + at);
			tell(event);
			at += sizeof *event + event->len;
		}
	return told;
}

#define CHECK_TOLD(fd, want) \
	do { \
		const char *got_ = events(fd); \
		if (!tap_true(strcmp(got_, want) == 0, want, __FILE__, __LINE__, 0)) \
			tap_print("# got %s\n", got_); \
	} while (0)

static int instance(void)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	REQUIRE(fd >= 0);
	return fd;
}

static void make(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	REQUIRE(fd >= 0);
	if (*text)
		REQUIRE(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void errors(void)
{
	CHECK_ERRNO(inotify_init1(1), EINVAL);
	int fd = inotify_init1(0);
	CHECK_EQ(fcntl(fd, F_GETFL), O_RDONLY);
	CHECK_EQ(fcntl(fd, F_GETFD), 0);
	close(fd);
	fd = instance();
	CHECK_EQ(fcntl(fd, F_GETFL), O_RDONLY | O_NONBLOCK);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_ERRNO(write(fd, "x", 1), EBADF);
	CHECK_EQ(lseek(fd, 5, SEEK_SET), 0);
	char room[256];
	CHECK_ERRNO(read(fd, room, sizeof room), EAGAIN);
	CHECK_ERRNO(read(fd, room, 1), EAGAIN);
	CHECK_ERRNO(inotify_add_watch(fd, ".", 0), EINVAL);
	CHECK_EQ(inotify_add_watch(fd, ".", IN_ONLYDIR), 1);
	CHECK_ERRNO(inotify_add_watch(fd, ".", 0x00800000), EINVAL);
	CHECK_ERRNO(inotify_add_watch(99, ".", IN_ALL_EVENTS), EBADF);
	CHECK_ERRNO(inotify_add_watch(1, ".", IN_ALL_EVENTS | IN_MASK_ADD | IN_MASK_CREATE), EINVAL);
	int other[2];
	REQUIRE(pipe(other) == 0);
	CHECK_ERRNO(inotify_add_watch(other[0], ".", IN_ALL_EVENTS), EINVAL);
	CHECK_ERRNO(inotify_rm_watch(other[0], 1), EINVAL);
	close(other[0]);
	close(other[1]);
	CHECK_ERRNO(inotify_add_watch(fd, "nowhere", IN_ALL_EVENTS), ENOENT);
	CHECK_ERRNO(inotify_add_watch(fd, "", IN_ALL_EVENTS), ENOENT);
	CHECK_ERRNO(inotify_add_watch(fd, BAD, IN_ALL_EVENTS), EFAULT);
	make("plain", "");
	CHECK_ERRNO(inotify_add_watch(fd, "plain", IN_ALL_EVENTS | IN_ONLYDIR), ENOTDIR);
	CHECK_ERRNO(inotify_add_watch(fd, "plain/x", IN_ALL_EVENTS), ENOTDIR);
	CHECK_ERRNO(inotify_rm_watch(fd, 99), EINVAL);
	CHECK_ERRNO(inotify_rm_watch(99, 1), EBADF);
	int wd = inotify_add_watch(fd, "plain", IN_ALL_EVENTS);
	CHECK_EQ(wd, 2);
	CHECK_EQ(inotify_add_watch(fd, "./plain", IN_MODIFY), wd);
	CHECK_ERRNO(inotify_add_watch(fd, "plain", IN_MODIFY | IN_MASK_CREATE), EEXIST);
	CHECK_EQ(inotify_rm_watch(fd, wd), 0);
	CHECK_TOLD(fd, "2:IGNORED");
	CHECK_ERRNO(inotify_rm_watch(fd, wd), EINVAL);
	CHECK_EQ(inotify_add_watch(fd, "plain", IN_MODIFY | IN_MASK_CREATE), 3);
	close(fd);
	unlink("plain");
}

static void files_in_a_directory(void)
{
	int fd = instance();
	CHECK_EQ(inotify_add_watch(fd, ".", IN_ALL_EVENTS), 1);
	make("a", "text");
	CHECK_TOLD(fd, "1:CREATE(a) 1:OPEN(a) 1:MODIFY(a) 1:CLOSE_WRITE(a)");
	make("a", "");
	CHECK_TOLD(fd, "1:OPEN(a) 1:MODIFY(a) 1:CLOSE_WRITE(a)");
	int a = open("a", O_RDWR);
	char room[8];
	REQUIRE(read(a, room, 4) == 0);
	CHECK_TOLD(fd, "1:OPEN(a)");
	REQUIRE(write(a, "12345678", 8) == 8 && pwrite(a, "x", 1, 2) == 1);
	CHECK_TOLD(fd, "1:MODIFY(a)");
	REQUIRE(pread(a, room, 4, 0) == 4 && pread(a, room, 4, 4) == 4);
	CHECK_TOLD(fd, "1:ACCESS(a)");
	REQUIRE(write(a, "", 0) == 0);
	CHECK_TOLD(fd, "");
	REQUIRE(ftruncate(a, 3) == 0 && fchmod(a, 0600) == 0);
	CHECK_TOLD(fd, "1:MODIFY(a) 1:ATTRIB(a)");
	REQUIRE(chown("a", -1, getegid()) == 0);
	CHECK_TOLD(fd, "1:ATTRIB(a)");
	struct timespec both[2] = { { 1, 0 }, { 2, 0 } };
	REQUIRE(futimens(a, both) == 0);
	CHECK_TOLD(fd, "1:ATTRIB(a)");
	both[1].tv_nsec = UTIME_OMIT;
	REQUIRE(futimens(a, both) == 0);
	CHECK_TOLD(fd, "1:ACCESS(a)");
	both[0].tv_nsec = UTIME_OMIT, both[1].tv_nsec = 0;
	REQUIRE(futimens(a, both) == 0);
	CHECK_TOLD(fd, "1:MODIFY(a)");
	int copy = dup(a);
	close(a);
	CHECK_TOLD(fd, "");
	close(copy);
	CHECK_TOLD(fd, "1:CLOSE_WRITE(a)");
	REQUIRE(link("a", "b") == 0);
	CHECK_TOLD(fd, "1:CREATE(b)");
	REQUIRE(symlink("a", "s") == 0 && unlink("s") == 0);
	CHECK_TOLD(fd, "1:CREATE(s) 1:DELETE(s)");
	REQUIRE(mkfifo("f", 0600) == 0 && unlink("f") == 0);
	CHECK_TOLD(fd, "1:CREATE(f) 1:DELETE(f)");
	REQUIRE(unlink("a") == 0 && unlink("b") == 0);
	CHECK_TOLD(fd, "1:DELETE(a) 1:DELETE(b)");
	close(open(".", O_RDONLY | O_DIRECTORY));
	CHECK_TOLD(fd, "1:OPEN/ 1:CLOSE_NOWRITE/");
	close(open(".", O_PATH));
	struct stat status;
	REQUIRE(stat(".", &status) == 0);
	CHECK_TOLD(fd, "");
	close(fd);
}

static void directories(void)
{
	int fd = instance();
	CHECK_EQ(inotify_add_watch(fd, ".", IN_ALL_EVENTS), 1);
	REQUIRE(mkdir("d", 0700) == 0);
	CHECK_TOLD(fd, "1:CREATE/(d)");
	CHECK_EQ(inotify_add_watch(fd, "d", IN_ALL_EVENTS), 2);
	make("d/x", "");
	CHECK_TOLD(fd, "2:CREATE(x) 2:OPEN(x) 2:CLOSE_WRITE(x)");
	close(open("d", O_RDONLY));
	CHECK_TOLD(fd, "1:OPEN/(d) 2:OPEN/ 1:CLOSE_NOWRITE/(d) 2:CLOSE_NOWRITE/");
	REQUIRE(chmod("d", 0755) == 0);
	CHECK_TOLD(fd, "1:ATTRIB/(d) 2:ATTRIB/");
	REQUIRE(rename("d", "e") == 0);
	CHECK_TOLD(fd, "1:MOVED_FROM/(d)+ 1:MOVED_TO/(e)= 2:MOVE_SELF");
	REQUIRE(rename("e/x", "x") == 0);
	CHECK_TOLD(fd, "2:MOVED_FROM(x)+ 1:MOVED_TO(x)=");
	REQUIRE(unlink("x") == 0);
	REQUIRE(rmdir("e") == 0);
	CHECK_TOLD(fd, "1:DELETE(x) 2:DELETE_SELF 2:IGNORED 1:DELETE/(e)");
	CHECK_ERRNO(inotify_rm_watch(fd, 2), EINVAL);
	close(fd);
}

static void the_file_itself(void)
{
	int fd = instance();
	make("a", "");
	CHECK_EQ(inotify_add_watch(fd, "a", IN_ALL_EVENTS), 1);
	CHECK_EQ(inotify_add_watch(fd, ".", IN_ALL_EVENTS), 2);
	make("a", "1");
	CHECK_TOLD(fd, "2:OPEN(a) 1:OPEN 2:MODIFY(a) 1:MODIFY 2:MODIFY(a) 1:MODIFY 2:CLOSE_WRITE(a) 1:CLOSE_WRITE");
	REQUIRE(link("a", "b") == 0);
	CHECK_TOLD(fd, "1:ATTRIB 2:CREATE(b)");
	REQUIRE(unlink("b") == 0);
	CHECK_TOLD(fd, "1:ATTRIB 2:DELETE(b)");
	REQUIRE(rename("a", "c") == 0);
	CHECK_TOLD(fd, "2:MOVED_FROM(a)+ 2:MOVED_TO(c)= 1:MOVE_SELF");
	make("new", "");
	events(fd);
	REQUIRE(rename("new", "c") == 0);
	CHECK_TOLD(fd, "2:MOVED_FROM(new)+ 2:MOVED_TO(c)= 1:ATTRIB 1:DELETE_SELF 1:IGNORED");
	CHECK_EQ(inotify_add_watch(fd, "c", IN_ALL_EVENTS), 3);
	int c = open("c", O_RDWR);
	events(fd);
	REQUIRE(unlink("c") == 0);
	CHECK_TOLD(fd, "3:ATTRIB 2:DELETE(c)");
	REQUIRE(write(c, "x", 1) == 1);
	CHECK_TOLD(fd, "2:MODIFY(c) 3:MODIFY");
	CHECK_EQ(inotify_add_watch(fd, ".", IN_ALL_EVENTS | IN_EXCL_UNLINK), 2);
	REQUIRE(write(c, "x", 1) == 1);
	CHECK_TOLD(fd, "3:MODIFY");
	close(c);
	CHECK_TOLD(fd, "3:CLOSE_WRITE 3:DELETE_SELF 3:IGNORED");
	make("c", "");
	CHECK_EQ(inotify_add_watch(fd, "c", IN_DELETE_SELF), 4);
	events(fd);
	REQUIRE(unlink("c") == 0);
	CHECK_TOLD(fd, "4:DELETE_SELF 4:IGNORED 2:DELETE(c)");
	close(fd);
}

static void masks(void)
{
	int fd = instance();
	make("a", "");
	CHECK_EQ(inotify_add_watch(fd, "a", IN_MODIFY), 1);
	CHECK_EQ(inotify_add_watch(fd, "a", IN_OPEN | IN_MASK_ADD), 1);
	make("a", "1");
	CHECK_TOLD(fd, "1:OPEN 1:MODIFY");
	CHECK_EQ(inotify_add_watch(fd, "a", IN_CLOSE), 1);
	make("a", "1");
	CHECK_TOLD(fd, "1:CLOSE_WRITE");
	CHECK_EQ(inotify_add_watch(fd, "a", IN_OPEN | IN_ONESHOT), 1);
	/* All of the mask is shown, since Linux 5.19. */
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	int info = open(path, O_RDONLY);
	ssize_t n = read(info, text, sizeof text - 1);
	CHECK(n > 0 && (text[n] = 0, strstr(text, " mask:80000020 ")));
	close(info);
	make("a", "1");
	CHECK_TOLD(fd, "1:OPEN 1:IGNORED");
	REQUIRE(symlink("a", "s") == 0);
	CHECK_EQ(inotify_add_watch(fd, "s", IN_ATTRIB | IN_DELETE_SELF | IN_DONT_FOLLOW), 2);
	REQUIRE(chmod("a", 0600) == 0);
	CHECK_TOLD(fd, "");
	REQUIRE(unlink("s") == 0);
	CHECK_TOLD(fd, "2:ATTRIB 2:DELETE_SELF 2:IGNORED");
	close(fd);
	unlink("a");
}

static void several_instances(void)
{
	int one = instance(), two = instance();
	CHECK_EQ(inotify_add_watch(one, ".", IN_CREATE | IN_MOVE), 1);
	CHECK_EQ(inotify_add_watch(two, ".", IN_DELETE | IN_MOVE), 1);
	make("a", "");
	REQUIRE(rename("a", "b") == 0);
	make("a", "");
	CHECK_TOLD(one, "1:CREATE(a) 1:MOVED_FROM(a)+ 1:MOVED_TO(b)= 1:CREATE(a)");
	CHECK_TOLD(two, "1:MOVED_FROM(a)= 1:MOVED_TO(b)=");
	REQUIRE(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) == 0);
	CHECK_TOLD(one, "1:MOVED_FROM(a)+ 1:MOVED_TO(b)= 1:MOVED_FROM(b)+ 1:MOVED_TO(a)=");
	REQUIRE(unlink("a") == 0 && unlink("b") == 0);
	CHECK_TOLD(one, "");
	events(two);
	close(one);
	close(two);
}

static void reading(void)
{
	int fd = instance();
	REQUIRE(inotify_add_watch(fd, ".", IN_CREATE | IN_DELETE) == 1);
	int ready = epoll_create1(0), count;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	REQUIRE(epoll_ctl(ready, EPOLL_CTL_ADD, fd, &event) == 0);
	struct pollfd poller = { fd, POLLIN | POLLOUT, 0 };
	CHECK_EQ(poll(&poller, 1, 0), 0);
	CHECK_EQ(epoll_wait(ready, &event, 1, 0), 0);
	make("a", "");
	make("seventeen-letters", "");
	CHECK_EQ(poll(&poller, 1, 0), 1);
	CHECK_EQ(poller.revents, POLLIN);
	CHECK_EQ(epoll_wait(ready, &event, 1, 0), 1);
	CHECK_EQ(epoll_wait(ready, &event, 1, 0), 0);
	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 32 + 48);
	char room[79];
	CHECK_ERRNO(read(fd, room, 31), EINVAL);
	CHECK_EQ(read(fd, room, sizeof room), 32);
	CHECK(((struct inotify_event *)room)->len == 16 && strcmp(((struct inotify_event *)room)->name, "a") == 0);
	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 48);
	CHECK_EQ(read(fd, room, sizeof room), 48);
	CHECK(((struct inotify_event *)room)->len == 32);
	REQUIRE(unlink("a") == 0 && unlink("seventeen-letters") == 0);
	CHECK_TOLD(fd, "1:DELETE(a) 1:DELETE(seventeen-letters)");
	/* Each buffer of a vector is a read of its own, the first one also if it is empty. */
	struct iovec vectors[] = { { room, 0 }, { room, 32 }, { room + 32, 47 } };
	CHECK_ERRNO(readv(fd, vectors, 3), EAGAIN);
	make("a", ""), make("b", "");
	CHECK_ERRNO(readv(fd, vectors, 3), EINVAL);
	CHECK_EQ(readv(fd, vectors + 1, 2), 64);
	CHECK(strcmp(((struct inotify_event *)(room + 32))->name, "b") == 0);
	REQUIRE(unlink("a") == 0 && unlink("b") == 0);
	vectors[1].iov_len = 33;
	CHECK_EQ(readv(fd, vectors + 1, 2), 32);
	CHECK_TOLD(fd, "1:DELETE(b)");
	close(ready);
	close(fd);
}

static void blocking(void)
{
	int fd = inotify_init1(0);
	REQUIRE(inotify_add_watch(fd, ".", IN_CREATE | IN_ONLYDIR) == 1);
	pid_t child = fork();
	if (child == 0) {
		nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
		make("late", "");
		_exit(0);
	}
	char room[512];
	CHECK_EQ(read(fd, room, sizeof room), 32);
	CHECK(strcmp(((struct inotify_event *)room)->name, "late") == 0);
	REQUIRE(waitpid(child, NULL, 0) == child);
	close(fd);
	unlink("late");
}

static void overflow(void)
{
	int fd = instance(), count = 0, limit;
	FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
	REQUIRE(file && fscanf(file, "%d", &limit) == 1);
	fclose(file);
	REQUIRE(inotify_add_watch(fd, ".", IN_ATTRIB | IN_OPEN) == 1);
	make("a", "");
	int a = open("a", O_RDWR);
	events(fd);
	for (int i = 0; i < limit / 2 + 10; i++) {
		REQUIRE(fchmod(a, 0600) == 0);
		close(open("a", O_RDONLY));
	}
	struct inotify_event room[2];
	(void)room;
	char big[32];
	int last = 0, wd = 0;
	while (read(fd, big, sizeof big) > 0) {
		count++;
		last = ((struct inotify_event *)big)->mask;
		wd = ((struct inotify_event *)big)->wd;
	}
	CHECK_EQ(count, limit + 1);
	CHECK_EQ(last, IN_Q_OVERFLOW);
	CHECK_EQ(wd, -1);
	close(a);
	close(fd);
	unlink("a");
}

int main(void)
{
	char *directory = tap_directory();
	errors();
	files_in_a_directory();
	directories();
	the_file_itself();
	masks();
	several_instances();
	reading();
	blocking();
	overflow();
	REQUIRE(chdir("/") == 0);
	CHECK_EQ(rmdir(directory), 0);
	return tap_done();
}
