/* Timers whose first expiry lies long ago, sleeps whose rest cannot be stored, what is no time. */
#include "tap.h"
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

static void overruns(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec set = { { 0, 1 }, { 0, 1 } }, off = { { 0, 0 }, { 0, 0 } }, old;
	siginfo_t info;
	sigset_t mask;
	timer_t timer;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	REQUIRE(timer_create(CLOCK_REALTIME, &event, &timer) == 0);
	CHECK_ERRNO(timer_settime(timer, 0, NULL, &old), EINVAL);
	/* Every nanosecond since 1970. "The maximum [...] is DELAYTIMER_MAX" (timer_getoverrun(2)). */
	CHECK_EQ(timer_settime(timer, TIMER_ABSTIME, &set, NULL), 0);
	CHECK_EQ(sigwaitinfo(&mask, &info), SIGUSR1);
	CHECK_EQ(info.si_overrun, INT_MAX);
	CHECK_EQ(timer_getoverrun(timer), INT_MAX);
	CHECK_EQ(timer_settime(timer, 0, &off, NULL), 0);
	timer_delete(timer);
}

static void expiries(clockid_t clock)
{
	struct timespec now;
	REQUIRE(clock_gettime(clock, &now) == 0);
	unsigned long long count = 0;
	int timer = timerfd_create(clock, 0);
	REQUIRE(timer >= 0);
	/* Every hour from the first second on. */
	struct itimerspec set = { { 3600, 0 }, { 1, 0 } }, got;
	CHECK_EQ(timerfd_settime(timer, TFD_TIMER_ABSTIME, &set, NULL), 0);
	CHECK_EQ(read(timer, &count, 8), 8);
	CHECK_EQ(count, (unsigned long long)(now.tv_sec - 1) / 3600 + 1);
	CHECK(timerfd_gettime(timer, &got) == 0 && got.it_value.tv_sec < 3600 && got.it_interval.tv_sec == 3600);
	/* One that does not repeat has expired once. */
	struct itimerspec once = { { 0, 0 }, { 1, 0 } };
	CHECK_EQ(timerfd_settime(timer, TFD_TIMER_ABSTIME, &once, NULL), 0);
	CHECK_EQ(read(timer, &count, 8), 8);
	CHECK_EQ(count, 1);
	close(timer);
}

static void wake(int signo)
{
	(void)signo;
}

/* An interrupted sleep whose rest cannot be stored fails for that, whether it would go on or not; select(2) does not mind. */
static void rests(void)
{
	struct timespec long_time = { 5, 0 };
	struct itimerval soon = { .it_value = { 0, 20000 } };
	sigaction(SIGALRM, &(struct sigaction){ .sa_handler = wake }, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK_ERRNO(syscall(SYS_nanosleep, &long_time, BAD), EFAULT);
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &long_time, BAD), EFAULT);
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &long_time, &long_time), EINTR);
	CHECK(long_time.tv_sec == 4);
	struct timespec *fixed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(fixed != MAP_FAILED);
	fixed->tv_sec = 5;
	REQUIRE(mprotect(fixed, 4096, PROT_READ) == 0);
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK_ERRNO(syscall(SYS_pselect6, 0, NULL, NULL, NULL, fixed, NULL), EINTR);
	munmap(fixed, 4096);
	signal(SIGALRM, SIG_DFL);
}

/* What is wrong with the arguments comes before who may set the clock. */
static void setting(void)
{
	struct timeval late = { 1, 1000001 }, early = { 1, -1 }, full = { 1, 1000000 }, never = { -1, 0 };
	CHECK_ERRNO(syscall(SYS_settimeofday, BAD, NULL), EFAULT);
	CHECK_ERRNO(syscall(SYS_settimeofday, &late, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_settimeofday, &early, BAD), EINVAL);
	/* Newer kernels look at it before the time zone, too. */
	CHECK_ERRNO(syscall(SYS_settimeofday, &full, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_settimeofday, &never, NULL), EINVAL);
	CHECK_ERRNO(clock_settime(CLOCK_REALTIME, &(struct timespec){ 8277292036, 0 }), EINVAL);
}

/* A timerfd that repeats tells once of its expiries, until somebody reads it or asks when it fires: then it goes on, and those in between are counted
 * (timerfd_tmrproc, timerfd_read_iter, do_timerfd_gettime). */
static void timerfds_wait_for_readers(void)
{
	struct itimerspec every = {{0, 10000000}, {0, 10000000}}, got, zero = {{0, 0}, {0, 0}};
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), epoll = epoll_create1(0);
	unsigned long count;
	REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK_EQ(timerfd_settime(fd, 0, &every, NULL), 0);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 1);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 0);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 0);
	CHECK_EQ(timerfd_gettime(fd, &got), 0);
	CHECK(got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 10000000);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 1);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 0);
	CHECK(read(fd, &count, 8) == 8 && count >= 16);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 1);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 55), 0);
	/* What it shows when it is armed anew is when it would have fired. */
	CHECK_EQ(timerfd_settime(fd, 0, &zero, &got), 0);
	CHECK(got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 10000000 && got.it_interval.tv_nsec == 10000000);
	CHECK(read(fd, &count, 8) == -1 && errno == EAGAIN);
	/* A short interval counts as any other. */
	every.it_interval.tv_nsec = every.it_value.tv_nsec = 100;
	CHECK_EQ(timerfd_settime(fd, 0, &every, NULL), 0);
	usleep(50000);
	CHECK(read(fd, &count, 8) == 8 && count >= 400000);
	close(epoll);
	close(fd);
}

int main(void)
{
	rests();
	setting();
	overruns();
	expiries(CLOCK_REALTIME);
	expiries(CLOCK_MONOTONIC);
	timerfds_wait_for_readers();
	return tap_done();
}
