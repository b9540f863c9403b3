// Tries to outlive a kill: other sessions, double forks, ignored and blocked signals, stops, fork storms.
// Every process carries the same command line, so that a marker given as the last argument finds them all.
// Prints "ready" when everything is in place.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *text) {
    ssize_t ignored = write(1, text, strlen(text));
    (void)ignored;
}

static void ignore_all(void) {
    for (int s = 1; s < 65; s++)
        if (s != SIGKILL && s != SIGSTOP && s != SIGCHLD) signal(s, SIG_IGN);
}

static void forever(void) {
    for (;;) pause();
}

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void on_term_say_and_exit(int s) {
    (void)s;
    say("got TERM\n");
    _exit(9);
}

static void on_term_say(int s) {
    (void)s;
    say("got TERM\n");
}

static void on_cont_stop_again(int s) {
    (void)s;
    raise(SIGSTOP);
}

// One process of a fork storm: makes the next one and goes away, until the time is over.
static void rabbit(long until, useconds_t pause_us) {
    for (;;) {
        if (now_ms() > until) _exit(0);
        if (pause_us) usleep(pause_us);
        pid_t p = fork();
        if (p > 0) _exit(0);
        if (p == 0) setsid();
        // On failure (EAGAIN) try again: there is nothing to lose.
    }
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? atol(argv[2]) : 0;
    signal(SIGCHLD, SIG_DFL);
    if (!strcmp(verb, "idle")) {
        // One process that does nothing at all.
        say("ready\n");
        forever();
    } else if (!strcmp(verb, "setsid")) {
        if (fork() == 0) {
            setsid();
            say("ready\n");
            forever();
        }
        forever();
    } else if (!strcmp(verb, "doublefork")) {
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                ignore_all();
                close(0);
                say("ready\n");
                close(1);
                close(2);
                forever();
            }
            _exit(0);
        }
        wait(NULL);
        forever();
    } else if (!strcmp(verb, "nohup")) {
        signal(SIGHUP, SIG_IGN);
        if (fork() == 0) {
            setsid();
            say("ready\n");
            forever();
        }
        forever();
    } else if (!strcmp(verb, "ignore")) {
        ignore_all();
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        say("ready\n");
        forever();
    } else if (!strcmp(verb, "stopself")) {
        say("ready\n");
        raise(SIGSTOP);
        forever();
    } else if (!strcmp(verb, "stopagain")) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGCONT, on_cont_stop_again);
        say("ready\n");
        raise(SIGSTOP);
        forever();
    } else if (!strcmp(verb, "vfork")) {
        // The main process sleeps uninterruptibly in vfork(2) for as long as its child does not exec.
        ignore_all();
        say("ready\n");
        if (vfork() == 0)
            for (;;) pause();
        forever();
    } else if (!strcmp(verb, "storm")) {
        // n processes, each replaced by its child all the time, for argv[3] milliseconds, with a pause of
        // argv[4] microseconds: meanwhile PID 1 of its namespace must keep up with the reaping.
        useconds_t pause_us = argc > 4 ? (useconds_t)atol(argv[4]) : 0;
        long until = now_ms() + (argc > 3 ? atol(argv[3]) : 10000);
        ignore_all();
        signal(SIGCHLD, SIG_IGN);
        for (long i = 0; i < n; i++)
            if (fork() == 0) {
                setsid();
                rabbit(until, pause_us);
            }
        say("ready\n");
        while (now_ms() < until) usleep(10000);
    } else if (!strcmp(verb, "leave")) {
        // The main process exits with 5; children in sessions of their own stay, without any of its pipes.
        // Before they are made: none may be ended in between.
        ignore_all();
        for (int i = 0; i < 3; i++)
            if (fork() == 0) {
                setsid();
                close(0);
                close(1);
                close(2);
                forever();
            }
        say("ready\n");
        _exit(5);
    } else if (!strcmp(verb, "subreaper")) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        ignore_all();
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                say("ready\n");
                forever();
            }
            _exit(0);
        }
        forever();
    } else if (!strcmp(verb, "threads")) {
        // The main thread is gone, another one goes on: a zombie leader.
        pid_t p = fork();
        (void)p;
        ignore_all();
        if (p) say("ready\n");
        forever();
    } else if (!strcmp(verb, "orphans")) {
        // n processes that end as orphans: PID 1 of their namespace must reap them.
        for (long made = 0; made < n;) {
            pid_t parent = fork();
            if (parent < 0) {
                usleep(1000);
                continue;
            }
            if (parent == 0) {
                for (int i = 0; i < 50; i++)
                    if (fork() == 0) _exit(0);
                _exit(0);
            }
            waitpid(parent, NULL, 0);
            made += 50;
        }
        say("ready\n");
        if (argc > 3 && !strcmp(argv[3], "stay")) forever();
    } else if (!strcmp(verb, "trap")) {
        // TERM is answered and obeyed.
        signal(SIGTERM, on_term_say_and_exit);
        say("ready\n");
        forever();
    } else if (!strcmp(verb, "defy")) {
        // TERM is answered and not obeyed.
        struct sigaction a = {.sa_handler = on_term_say};
        sigaction(SIGTERM, &a, NULL);
        say("ready\n");
        forever();
    } else if (!strcmp(verb, "cgroup")) {
        // Every cgroup tree that can be seen: make a group in it, move into its root. Says what each try gave.
        char line[8192];
        int tries = 0, won = 0;
        FILE *mounts = fopen("/proc/self/mountinfo", "r");
        while (mounts && fgets(line, sizeof line, mounts)) {
            char at[4096], kind[64];
            char *dash = strstr(line, " - ");
            if (!dash || sscanf(dash + 3, "%63s", kind) != 1) continue;
            if (strncmp(kind, "cgroup", 6)) continue;
            if (sscanf(line, "%*s %*s %*s %*s %4095s", at) != 1) continue;
            char path[4200];
            tries++;
            snprintf(path, sizeof path, "%s/provost-test-escape-%d", at, (int)getpid());
            if (mkdir(path, 0755) == 0) {
                won++;
                rmdir(path);
            }
            snprintf(path, sizeof path, "%s/cgroup.procs", at);
            int fd = open(path, O_WRONLY);
            if (fd >= 0 && write(fd, "0", 1) == 1) won++;
            if (fd >= 0) close(fd);
        }
        snprintf(line, sizeof line, "trees=%d won=%d\n", tries, won);
        say(line);
    } else {
        fprintf(stderr, "escape: unknown verb %s\n", verb);
        return 64;
    }
    return 0;
}
