/* `parcel send HOST` sends numbered datagrams, one of which pays; `parcel take` fails if it was that one which did not come. `parcel old` fails when it
 * is two seconds old, whatever happens. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 60, PAYS = 20 };

static int send_all(const char *host) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *there;
    if (getaddrinfo(host, "7000", &hints, &there))
        return 2;
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    for (int n = 0; n < MANY; n++) {
        char text[32];
        int length = snprintf(text, sizeof text, "%s %d", n == PAYS ? "pay" : "parcel", n);
        sendto(s, text, length, 0, there->ai_addr, there->ai_addrlen);
        usleep(100000);
    }
    for (;;)
        pause();
}

static int take_all(void) {
    int s = socket(AF_INET, SOCK_DGRAM, 0), paid = 0;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_PASSIVE}, *here;
    if (getaddrinfo(NULL, "7000", &hints, &here) || bind(s, here->ai_addr, here->ai_addrlen))
        return 2;
    for (;;) {
        char text[64] = "";
        if (recv(s, text, sizeof text - 1, 0) < 0)
            return 2;
        paid |= !strncmp(text, "pay ", 4);
        if (!paid && atoi(strchr(text, ' ') + 1) > PAYS) {
            puts("nobody has paid");
            fflush(stdout);
            return 3;
        }
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "send"))
        return send_all(argv[2]);
    if (argc > 1 && !strcmp(argv[1], "take"))
        return take_all();
    sleep(2);
    return 3;
}
