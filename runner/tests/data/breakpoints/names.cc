/* Functions whose names end alike. */
#include <cstdio>

#define SEPARATE __attribute__((noinline))

struct Store {
	int value;
	SEPARATE int get(int more) const { asm(""); return value + more; }
};

namespace other {
template <typename T> SEPARATE T get(T value) { asm(""); return value; }
}

int main(int argc, char **)
{
	Store store{argc};
	std::printf("%d %d\n", store.get(2), other::get<int>(argc));
}
