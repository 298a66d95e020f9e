/* What LLVM's coverage mapping has of its own: macros, skipped source, short circuits, code that nothing reaches. */
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#define TWICE(x) ((x) + (x))
#define CHECK(c) do { if (!(c)) { puts("no"); } } while (0)
static int f(int n) {
    if (n > 3) {
        return TWICE(n);
    } else if (n == 2)
        return 1;

    // comment
    return 0;
}
static int unused(int a) { return a; }
__attribute__((noinline)) int never(int a)
{
    return a && f(a);
}
#if 0
int skipped;
#endif
int main(int argc, char **argv)
{
    int s = 0;
    if (argc > 1)
        raise(SIGKILL);
    puts("here");
    for (int i = 0; i < 10; i++)
        s += f(i);
    CHECK(s > 5);
    switch (argc) {
    case 1: s++; break;
    case 2:
        s--;
        break;
    default:
        abort();
    }
    s = argc > 1 ? never(s)
                 : s;
    printf("%d\n", s); return 0;
}
