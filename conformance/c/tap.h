/*
 * Checks for the conformance programs, in the manner of TAP: one "ok" or "not ok" line per check, the plan last, exit
 * status 0 if all held. Lines hold nothing that may differ between runs (no ids, times, addresses) unless a check
 * fails. They are written unbuffered, so that forks do not repeat them.
 */
#ifndef TAP_H
#define TAP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int tap_count, tap_failed;

/* An address where nothing is mapped, which the compiler does not see through. */
__attribute__((unused)) static void *volatile tap_bad = (void *)8;
#define BAD (tap_bad)

/* For conditions that ask for several errors. */
__attribute__((unused)) static int fails(long result, int error)
{
	return result == -1 && errno == error;
}

__attribute__((format(printf, 1, 2))) static void tap_print(const char *format, ...)
{
	char line[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (n > (int)sizeof line - 1)
		n = sizeof line - 1;
	for (int done = 0; done < n;) {
		ssize_t w = write(1, line + done, n - done);
		if (w <= 0)
			_exit(99);
		done += w;
	}
}

__attribute__((unused)) static int tap_true(int held, const char *what, const char *file, int line, int error)
{
	tap_count++;
	if (held) {
		tap_print("ok %d - %s\n", tap_count, what);
	} else {
		tap_failed++;
		tap_print("not ok %d - %s\n# %s:%d errno %d (%s)\n", tap_count, what, file, line, error, strerror(error));
	}
	return held;
}

__attribute__((unused)) static int tap_equal(long long got, long long want, const char *what, const char *file, int line,
					     int error)
{
	tap_count++;
	if (got == want) {
		tap_print("ok %d - %s\n", tap_count, what);
	} else {
		tap_failed++;
		tap_print("not ok %d - %s\n# %s:%d got %lld, expected %lld, errno %d (%s)\n", tap_count, what, file, line, got,
			  want, error, strerror(error));
	}
	return got == want;
}

/* The condition holds. */
#define CHECK(condition) \
	({ errno = 0; int held_ = !!(condition); tap_true(held_, #condition, __FILE__, __LINE__, errno); })

/* The expression has the value. */
#define CHECK_EQ(expression, value) \
	({ errno = 0; long long got_ = (long long)(expression); \
	   tap_equal(got_, (long long)(value), #expression " == " #value, __FILE__, __LINE__, errno); })

/* The call returns -1 and sets errno. */
#define CHECK_ERRNO(call, error) \
	({ errno = 0; long long got_ = (long long)(call); int errno_ = errno; \
	   got_ == -1 ? tap_equal(errno_, error, #call " fails with " #error, __FILE__, __LINE__, errno_) \
		      : tap_equal(got_, -1, #call " fails with " #error, __FILE__, __LINE__, errno_); })

/* The call returns an error number itself, as the pthread functions do. */
#define CHECK_OK(call) CHECK_EQ(call, 0)

/* In a child process or for set-up: the condition holds, or all is lost. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			int errno_ = errno; \
			dprintf(1, "# %s:%d required: %s: errno %d (%s)\n", __FILE__, __LINE__, #condition, errno_, \
				strerror(errno_)); \
			_exit(98); \
		} \
	} while (0)

__attribute__((unused)) static int tap_done(void)
{
	tap_print("1..%d\n", tap_count);
	return tap_failed ? 1 : 0;
}

/* A fresh directory, made the current one. */
__attribute__((unused)) static char *tap_directory(void)
{
	static char path[128];
	const char *base = getenv("TMPDIR");
	snprintf(path, sizeof path, "%.80s/conformance-XXXXXX", base && *base ? base : "/tmp");
	REQUIRE(mkdtemp(path));
	REQUIRE(chdir(path) == 0);
	return path;
}

#endif
