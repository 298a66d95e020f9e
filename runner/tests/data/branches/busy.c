// Changes memory and a file for ever, and starts children: what a snapshot has to keep.
#include <stdlib.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    char *memory = calloc(64, 4096);
    FILE *file = fopen("/tmp/log", "w");
    if (!memory || !file)
        return 1;
    for (unsigned round = 0;; round++) {
        memory[round % 64 * 4096] = (char)round;
        fprintf(file, "round %u\n", round);
        fflush(file);
        if (round % 16 == 0) {
            if (fork() == 0)
                _exit(0);
            wait(NULL);
        }
        usleep(5000);
    }
}
