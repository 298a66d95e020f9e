/*
 * C++: a cache that is looked at in one critical section and filled in another one.
 *
 * Race (atomicity violation): find() and insert() of two threads. It fails if a thread is preempted between the two and the other one
 * fills the cache: the value is made twice.
 */
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>

static std::map<std::string, int> cache;
static std::mutex mutex;
static int made;

static int make()
{
	return ++made;
}

static void look_up()
{
#ifdef FIXED
	std::lock_guard<std::mutex> guard(mutex);
	if (!cache.count("key"))
		cache["key"] = make();
#else
	bool found;
	{
		std::lock_guard<std::mutex> guard(mutex);
		found = cache.count("key") != 0;
	}
	if (!found) {
		std::lock_guard<std::mutex> guard(mutex);
		cache["key"] = make();
	}
#endif
}

int main()
{
	std::thread a(look_up), b(look_up);
	a.join();
	b.join();
	if (made != 1) {
		std::fprintf(stderr, "made %d times\n", made);
		return 1;
	}
	return 0;
}
