/* In which order sleepers go on: each tells its name through a pipe. */
#include <poll.h>

/* Who tells next, or 0 for nobody. */
static char next_of(int names)
{
	struct pollfd ask = {names, POLLIN, 0};
	char name = 0;
	if (poll(&ask, 1, 100) == 1)
		REQUIRE(read(names, &name, 1) == 1);
	return name;
}
