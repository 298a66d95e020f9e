// Reads all blocks of a file again and again. Of one that cannot be read it says what read(2), a mapping and write(2) of a part give, and
// writes it anew.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 8 };

static sigjmp_buf back;

static void on_bus(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)context;
    siglongjmp(back, info->si_code == BUS_ADRERR ? 1 : 2);
}

static const char *of(long result) {
    static char text[40];
    if (result < 0)
        snprintf(text, sizeof text, "%s", errno == EIO ? "EIO" : errno == EFAULT ? "EFAULT" : strerror(errno));
    else
        snprintf(text, sizeof text, "%ld", result);
    return text;
}

// Reads a byte of memory; not 0 if that is SIGBUS.
static int touch(const volatile char *byte) {
    int how = sigsetjmp(back, 1);
    if (how == 0) (void)*byte;
    return how;
}

int main(void) {
    char page[BLOCK];
    struct sigaction act = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &act, 0);
    setvbuf(stdout, 0, _IOLBF, 0);
    int fd = open("/var/tmp/data", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int block = 0; block < BLOCKS; block++) {
        memset(page, 'a' + block, BLOCK);
        if (pwrite(fd, page, BLOCK, block * BLOCK) != BLOCK) return 1;
    }
    if (fsync(fd)) return 1;
    char *shared = mmap(0, BLOCKS * BLOCK, PROT_READ, MAP_SHARED, fd, 0);
    char *private = mmap(0, BLOCKS * BLOCK, PROT_READ, MAP_PRIVATE, fd, 0);
    for (int block = 0; block < BLOCKS; block++)
        if (touch(shared + block * BLOCK) || touch(private + block * BLOCK)) return 1;
    for (;;) {
        usleep(10000);
        for (int block = 0; block < BLOCKS; block++) {
            long at = block * BLOCK;
            if (pread(fd, page, BLOCK, at) == BLOCK)
                continue;
            printf("read %ld %s\n", at, of(-1));
            printf("mapped %ld %s\n", at, touch(shared + at + 100) == 1 ? "SIGBUS" : "there");
            printf("mapped %ld %s\n", at, touch(private + at + 100) == 1 ? "SIGBUS" : "there");
            printf("memory %ld %s\n", at, of(write(fd, shared + at, 10)));
            printf("part %ld %s\n", at, of(pwrite(fd, "x", 1, at + 1)));
            memset(page, 'a' + block, BLOCK);
            printf("whole %ld %s\n", at, of(pwrite(fd, page, BLOCK, at)));
            int good = pread(fd, page, BLOCK, at) == BLOCK && page[1] == 'a' + block && shared[at] == 'a' + block;
            printf("then %ld %s\n", at, good && private[at] == 'a' + block ? "good" : "bad");
        }
    }
}
