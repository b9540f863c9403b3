// Uses up what can be used up: processes, memory, threads, descriptors, the space and inodes of a directory.
// Every verb is bounded by its arguments, so that it can also be run outside.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// They all begin together: those that burn would leave no time to make the rest.
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *spin(void *unused) {
    (void)unused;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    for (volatile unsigned long i = 0;; i++) {}
    return NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? atol(argv[2]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(verb, "fork")) {
        // Up to n children that stay. Says how many could be made and what stopped it.
        long made = 0;
        int error = 0;
        while (made < n) {
            pid_t p = fork();
            if (p < 0) {
                error = errno;
                break;
            }
            if (p == 0)
                for (;;) pause();
            made++;
        }
        printf("made=%ld error=%s\n", made, error ? strerrorname_np(error) : "0");
        if (argc > 3 && !strcmp(argv[3], "stay"))
            for (;;) pause();
        signal(SIGTERM, SIG_IGN);
        kill(0, SIGTERM);
    } else if (!strcmp(verb, "forkforever")) {
        // The classic: every process forks for ever.
        puts("ready");
        for (;;)
            // A fork that fails has taken memory that the kernel gives back later: faster than this, and the memory
            // limit ends the bomb before anybody else can.
            if (fork() < 0) usleep(10000);
    } else if (!strcmp(verb, "heap")) {
        // n MiB of touched memory.
        for (long i = 0; i < n; i++) {
            char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) {
                printf("mapped=%ld error=%s\n", i, strerrorname_np(errno));
                return 1;
            }
            memset(p, 0x5a, 1 << 20);
        }
        printf("touched=%ld\n", n);
    } else if (!strcmp(verb, "file")) {
        // n MiB into the file argv[3].
        static char page[1 << 20];
        memset(page, 0x5a, sizeof page);
        int fd = open(argv[3], O_CREAT | O_WRONLY | O_TRUNC, 0600);
        if (fd < 0) {
            printf("written=0 error=%s\n", strerrorname_np(errno));
            return 1;
        }
        for (long i = 0; i < n; i++)
            if (write(fd, page, sizeof page) != (ssize_t)sizeof page) {
                printf("written=%ld error=%s\n", i, strerrorname_np(errno));
                if (argc > 4) unlink(argv[3]);
                return 1;
            }
        printf("written=%ld error=0\n", n);
        if (argc > 4) unlink(argv[3]);
    } else if (!strcmp(verb, "inodes")) {
        // n empty files in the directory argv[3], removed again.
        char path[4096];
        long i;
        int error = 0;
        for (i = 0; i < n; i++) {
            snprintf(path, sizeof path, "%s/i%ld", argv[3], i);
            int fd = open(path, O_CREAT | O_WRONLY, 0600);
            if (fd < 0) {
                error = errno;
                break;
            }
            close(fd);
        }
        printf("made=%ld error=%s\n", i, error ? strerrorname_np(error) : "0");
        while (i-- > 0) {
            snprintf(path, sizeof path, "%s/i%ld", argv[3], i);
            unlink(path);
        }
    } else if (!strcmp(verb, "threads")) {
        // n threads that burn the processors for argv[3] seconds.
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        long made = 0;
        int error = 0;
        pthread_mutex_lock(&gate);
        while (made < n) {
            pthread_t t;
            error = pthread_create(&t, &small, spin, NULL);
            if (error) break;
            made++;
        }
        printf("made=%ld error=%s\n", made, error ? strerrorname_np(error) : "0");
        pthread_mutex_unlock(&gate);
        double until = now() + (argc > 3 ? atof(argv[3]) : 1.0);
        while (now() < until) usleep(20000);
        _exit(0);
    } else if (!strcmp(verb, "fds")) {
        // n descriptors.
        long made = 0;
        int error = 0;
        while (made < n) {
            if (open("/dev/null", O_RDONLY) < 0) {
                error = errno;
                break;
            }
            made++;
        }
        printf("made=%ld error=%s\n", made, error ? strerrorname_np(error) : "0");
    } else if (!strcmp(verb, "shm")) {
        // n MiB of a memfd: memory that belongs to no process's size.
        int fd = memfd_create("bomb", 0);
        static char page[1 << 20];
        memset(page, 0x5a, sizeof page);
        for (long i = 0; i < n; i++)
            if (write(fd, page, sizeof page) != (ssize_t)sizeof page) {
                printf("written=%ld error=%s\n", i, strerrorname_np(errno));
                return 1;
            }
        printf("written=%ld error=0\n", n);
    } else {
        fprintf(stderr, "bomb: unknown verb %s\n", verb);
        return 64;
    }
    return 0;
}
