/* Answers each connection with an HTTP response that has the names that musl's resolver finds. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

int main(void) {
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(7000)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 16)) {
        perror("listen");
        return 1;
    }
    puts("listening");
    fflush(stdout);
    for (;;) {
        char request[1024], body[256], answer[512];
        int peer = accept(listener, 0, 0);
        if (peer < 0) continue;
        ssize_t got = read(peer, request, sizeof request - 1);
        if (got > 0) {
            struct addrinfo *found = 0;
            int code = getaddrinfo("localhost", "7000", 0, &found);
            snprintf(body, sizeof body, "musl %s\n", code ? gai_strerror(code) : "resolves");
            if (!code) freeaddrinfo(found);
            snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\nconnection: close\r\n\r\n%s", strlen(body), body);
            if (write(peer, answer, strlen(answer)) < 0) perror("write");
        }
        close(peer);
    }
}
