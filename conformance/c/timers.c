/* Timers whose first expiry lies long ago: timer_settime(2), timerfd_settime(2). */
#include "tap.h"
#include <limits.h>
#include <signal.h>
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

int main(void)
{
	overruns();
	expiries(CLOCK_REALTIME);
	expiries(CLOCK_MONOTONIC);
	return tap_done();
}
