/* Computes for seconds, and ends by itself. */
#include <stdio.h>

static volatile unsigned long sum;

int main(void)
{
	for (unsigned long i = 0; i < 1500000000ul; i++)
		sum += i;
	printf("%lu\n", sum);
	return 0;
}
