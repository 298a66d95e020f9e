/* Tables of mounts, which can be polled (proc(5), /proc/PID/mounts). */
#include "tap.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#define ALL (POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLWRNORM)

static void table(const char *path)
{
	int fd = open(path, O_RDONLY), ep = epoll_create1(0);
	struct pollfd p = { fd, ALL, 0 };
	struct epoll_event want = { .events = EPOLLIN | EPOLLPRI | EPOLLET }, got;
	char buffer[8192];
	CHECK(fd >= 0);
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLIN | POLLRDNORM);
	CHECK_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &want), 0);
	CHECK_EQ(epoll_wait(ep, &got, 1, 0), 1);
	CHECK_EQ(got.events, EPOLLIN);
	CHECK_EQ(epoll_wait(ep, &got, 1, 0), 0);
	while (read(fd, buffer, sizeof buffer) > 0)
		;
	p.events = POLLPRI;
	CHECK_EQ(poll(&p, 1, 10), 0);
	CHECK_EQ(epoll_wait(ep, &got, 1, 10), 0);
	close(ep), close(fd);
}

int main(void)
{
	struct epoll_event want = { .events = EPOLLIN };
	int ep = epoll_create1(0), fd = open("/proc/self/status", O_RDONLY);
	table("/proc/self/mounts");
	table("/proc/self/mountinfo");
	table("/proc/mounts");
	/* Other files of /proc are always ready. */
	struct pollfd p = { fd, ALL, 0 };
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &want), EPERM);
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
	return tap_done();
}
