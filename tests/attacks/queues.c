// Uses POSIX message queues. "use": sends and receives one message. "fill": makes queues until it is refused, and says
// how many there were and by which errno.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int make(const char *name) {
    struct mq_attr a = {.mq_maxmsg = 10, .mq_msgsize = 1024};
    return (int)syscall(SYS_mq_open, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, &a);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "use")) {
        int q = make("use");
        char b[1024];
        if (q < 0) return perror("mq_open"), 1;
        if (syscall(SYS_mq_timedsend, q, "hello", 6UL, 0U, NULL)) return perror("send"), 1;
        if (syscall(SYS_mq_timedreceive, q, b, sizeof b, NULL, NULL) != 6 || strcmp(b, "hello")) return 1;
        if (syscall(SYS_mq_unlink, "use")) return perror("unlink"), 1;
        return 0;
    }
    for (int n = 0; n < 100000; n++) {
        char name[32];
        snprintf(name, sizeof name, "fill%d", n);
        int q = make(name);
        if (q < 0) {
            printf("%d %s\n", n, strerrorname_np(errno));
            return 0;
        }
        close(q);
    }
    return 1;
}
