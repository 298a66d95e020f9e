#include "table.h"

#include <stdio.h>
#include <string.h>

static int unused_branch(int x)
{
    if (x > 100) {
        x = x / 2;
        puts("large");
    }
    return x + 1;
}

static inline __attribute__((always_inline)) int twice(int x)
{
    int y = x * 2;
    if (y == 7)
        puts("never");
    return y;
}

int dispatch(int kind, int x)
{
    switch (kind) {
    case 0:
        return x;
    case 1:
        return x + 1;
    case 2:
        return unused_branch(x);
    case 3:
        return twice(x) + 3;
    case 4:
        return table_get(x);
    case 5:
        return twice(x + 1) - 5;
    default:
        return -1;
    }
}

int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 0; i < argc; i++)
        sum += dispatch((int)strlen(argv[i]) % 7, i);
    printf("%d\n", sum);
    return 0;
}
