/* Fails when a random number of four bytes is 0, which no seed comes to by chance: the bug that only another input shows. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    for (;;) {
        unsigned number = 1;
        usleep(100000);
        if (syscall(SYS_getrandom, &number, sizeof number, 0) != sizeof number)
            return 4;
        if (number == 0)
            return 3;
    }
}
