// Writes output in shapes that are hard to carry: known bytes at known offsets, tiny writes, floods,
// streams closed early, children that hold the pipe. Confines nothing, attacks nothing.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void all(int fd, const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0) {
            if (errno == EINTR) continue;
            _exit(70);
        }
        at += n;
        length -= (size_t)n;
    }
}

// The byte at offset i is byte i % 8 of the little-endian number mix(i / 8): any slice can be checked by itself.
static uint64_t mix(uint64_t n) {
    n += 0x9E3779B97F4A7C15u;
    n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9u;
    n = (n ^ (n >> 27)) * 0x94D049BB133111EBu;
    return n ^ (n >> 31);
}

static void pattern(int fd, uint64_t bytes, size_t piece) {
    static uint64_t words[131072];
    if (piece > sizeof words) piece = sizeof words;
    piece -= piece % 8;
    uint64_t done = 0;
    while (done < bytes) {
        uint64_t first = done / 8;
        for (size_t i = 0; i < piece / 8; i++) words[i] = mix(first + i);
        uint64_t now = bytes - done < piece ? bytes - done : piece;
        all(fd, words, now);
        done += now;
    }
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (!strcmp(verb, "pattern")) {
        pattern(1, n, argc > 3 ? strtoull(argv[3], NULL, 10) : 65536);
    } else if (!strcmp(verb, "both")) {
        // The pattern on stdout, n bytes; then on stderr, n bytes.
        pattern(1, n, 65536);
        pattern(2, n, 65536);
    } else if (!strcmp(verb, "single")) {
        // n writes of one byte each.
        for (uint64_t i = 0; i < n; i++) {
            uint64_t word = mix(i / 8);
            all(1, (char *)&word + i % 8, 1);
        }
    } else if (!strcmp(verb, "fill")) {
        // n times the same byte, no newline.
        static char page[1 << 20];
        memset(page, 'a', sizeof page);
        while (n) {
            size_t now = n < sizeof page ? n : sizeof page;
            all(1, page, now);
            n -= now;
        }
    } else if (!strcmp(verb, "flood")) {
        static char page[1 << 16];
        for (size_t i = 0; i < sizeof page; i++) page[i] = i % 2 ? '\n' : 'y';
        for (;;) all(1, page, sizeof page);
    } else if (!strcmp(verb, "alternate")) {
        // o0 e0 o1 e1 ... on stdout and stderr in turn.
        char line[32];
        for (uint64_t i = 0; i < n; i++) {
            int k = snprintf(line, sizeof line, "o%llu\n", (unsigned long long)i);
            all(1, line, (size_t)k);
            k = snprintf(line, sizeof line, "e%llu\n", (unsigned long long)i);
            all(2, line, (size_t)k);
        }
    } else if (!strcmp(verb, "close")) {
        // Says one thing, closes both streams, and runs on until told by the end of stdin.
        all(1, "closing\n", 8);
        close(1);
        close(2);
        char c;
        while (read(0, &c, 1) > 0) {}
        _exit(7);
    } else if (!strcmp(verb, "holder")) {
        // The main process exits with 3 while a child of its own session holds the pipe and says nothing.
        if (fork() == 0) {
            setsid();
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            for (;;) pause();
        }
        all(1, "left\n", 5);
        _exit(3);
    } else if (!strcmp(verb, "late")) {
        // The main process exits; its child writes a little later and ends by itself.
        if (fork() == 0) {
            usleep((useconds_t)n * 1000);
            all(1, "late\n", 5);
            _exit(0);
        }
        all(1, "early\n", 6);
        _exit(0);
    } else if (!strcmp(verb, "echo")) {
        // Copies stdin to stdout until its end.
        char page[65536];
        ssize_t k;
        while ((k = read(0, page, sizeof page)) > 0) all(1, page, (size_t)k);
        _exit(k < 0 ? 71 : 0);
    } else {
        fprintf(stderr, "emit: unknown verb %s\n", verb);
        return 64;
    }
    return 0;
}
