// Relays its descriptor 0, a stream socket, to the unix socket named by its argument: the gateway at the other
// end sees the identity that this process runs under. Ends when either side does.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int carry(int from, int to) {
    static char page[65536];
    ssize_t n = read(from, page, sizeof page);
    if (n <= 0) return 0;
    for (ssize_t at = 0; at < n;) {
        ssize_t k = write(to, page + at, (size_t)(n - at));
        if (k <= 0) return 0;
        at += k;
    }
    return 1;
}

int main(int argc, char **argv) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (argc < 2 || strlen(argv[1]) >= sizeof a.sun_path) return 64;
    strcpy(a.sun_path, argv[1]);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a)) {
        perror("principal: connect");
        return 1;
    }
    struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.fd = s, .events = POLLIN}};
    for (;;) {
        if (poll(p, 2, -1) < 0) return 1;
        if (p[0].revents && !carry(0, s)) return 0;
        if (p[1].revents && !carry(s, 0)) return 0;
    }
}
