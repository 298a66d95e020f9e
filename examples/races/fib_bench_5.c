/*
 * Fibonacci with five rounds: as fib_bench.c, where only one schedule of all lets a number become 144. The threads have to take turns
 * at each of their ten additions.
 */
#define ROUNDS 5
#define MOST 144
#include "fib_bench.c"
