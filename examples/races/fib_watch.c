/*
 * Fibonacci with an onlooker: as fib_bench_5.c, but main does not wait for the threads before it looks at the numbers. So it must
 * not run at all while they take turns.
 */
#define ROUNDS 5
#define MOST 144
#define WATCH
#include "fib_bench.c"
