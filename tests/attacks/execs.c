/* Executes in many ways, and races against a process that looks at an exec before the kernel does it.
   execs plain FILE ARG...            execve
   execs fd FILE ARG...               execveat of a descriptor
   execs at DIRECTORY NAME ARG...     execveat relative to a directory
   execs memfd FILE ARG...            of a copy in memory
   execs selffd FILE ARG...           through /proc/self/fd
   execs argv SECONDS FILE            posix_spawn while a thread flips the argument between "good" and "evil"
   execs path SECONDS GOOD EVIL       a thread flips the path
   execs swap SECONDS LINK GOOD EVIL  a thread flips to which directory a link leads, in which "echo" is executed
   execs sibling SECONDS FILE         a process that shares the memory flips the argument
   execs mem SECONDS FILE             another process writes the argument with process_vm_writev
   execs env SECONDS FILE             a thread flips the variable W, which the program prints
   execs rewrite SECONDS SCRIPT       a thread flips the argument of the interpreter in the script's first line, in place
   execs check FILE ARG...            asks whether FILE may be executed (AT_EXECVE_CHECK)
   execs threads COUNT FILE           leader and thread execute at once
   execs failing THREADS COUNT FILE   each thread executes so often what the kernel refuses
   execs waiting COUNT FILE           after each exec that the kernel refuses it waits for a signal: how often that is interrupted
   execs changed SECONDS FILE OTHER   executes FILE while a thread changes its mode, links it, and replaces it by copies of OTHER: how
                                      many were killed
   execs listener                     tries to install a listener of its own
   execs many COUNT FILE              so many in turn
   execs judged SECONDS FILE          as argv, under a listener that reads the argument, refuses all but "good" and lets the
                                      kernel go on: what a gate would be that does not verify
   execs kills SECONDS FILE           kills what executes after a random time
   execs traced FILE                  by a child that the parent traces
   execs empty FILE                   with no argument at all
   execs time COUNT FILE              how long each of so many takes: median and 99th percentile, in microseconds
   execs judgedtime COUNT FILE        the same under the listener that does not verify
   Prints what ran, and "errno N" for an exec that failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile int stop_racing;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void pause_a_little(void) {
    for (volatile int i = 0; i < 200; i++) {}
}

struct words {
    volatile char *at;
    const char *one, *other;
};

static void put(volatile char *at, const char *text) {
    for (size_t i = 0; i <= strlen(text); i++) at[i] = text[i];
}

static void *flip_words(void *argument) {
    struct words *words = argument;
    while (!stop_racing) {
        put(words->at, words->other);
        pause_a_little();
        put(words->at, words->one);
        pause_a_little();
    }
    return NULL;
}

static int flip_words_in_process(void *argument) {
    flip_words(argument);
    return 0;
}

struct links {
    const char *link, *one, *other;
};

static void *flip_links(void *argument) {
    struct links *links = argument;
    char aside[4096];
    snprintf(aside, sizeof aside, "%s.aside", links->link);
    for (int i = 0; !stop_racing; i++) {
        unlink(aside);
        if (symlink(i % 2 ? links->one : links->other, aside) == 0) rename(aside, links->link);
    }
    return NULL;
}

/* "#!/bin/echo good": a file that is being executed cannot be written, so that some turns are lost. */
static void *flip_first_line(void *argument) {
    for (int i = 0; !stop_racing; i++) {
        int fd = open(argument, O_WRONLY | O_CLOEXEC);
        if (fd < 0) continue;
        if (pwrite(fd, i % 2 ? "good" : "evil", 4, 12) != 4) perror("pwrite");
        close(fd);
        pause_a_little();
    }
    return NULL;
}

/* Spawns until the time is over; how many started. */
static int spawn_for(double seconds, const char *path, char **argv) {
    int started = 0;
    double end = now() + seconds;
    while (now() < end) {
        pid_t child;
        if (posix_spawn(&child, path, NULL, NULL, argv, environ) == 0) {
            started++;
            waitpid(child, NULL, 0);
        }
    }
    stop_racing = 1;
    return started;
}

static int copy_file(const char *from, const char *to) {
    char part[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    ssize_t count = -1;
    while (in >= 0 && out >= 0 && (count = read(in, part, sizeof part)) > 0)
        if (write(out, part, count) != count) break;
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    return count == 0 ? 0 : -1;
}

struct change {
    const char *file, *copied;
};

static void *change_file(void *argument) {
    struct change *change = argument;
    char aside[4096];
    snprintf(aside, sizeof aside, "%s.aside", change->file);
    for (int i = 0; !stop_racing; i++) {
        if (i % 8 == 0) {
            /* The copy is made by a process of its own: a program that is open for writing cannot be executed. */
            pid_t child = fork();
            if (child == 0) _exit(copy_file(change->copied, aside) ? 1 : 0);
            int status = 1;
            waitpid(child, &status, 0);
            if (status == 0) rename(aside, change->file);
        } else if (i % 2) chmod(change->file, i % 4 == 1 ? 0755 : 0555);
        else {
            unlink(aside);
            if (link(change->file, aside) == 0) unlink(aside);
        }
        pause_a_little();
    }
    return NULL;
}

static void say_errno(void) {
    printf("errno %d\n", errno);
    fflush(stdout);
}

/* Judges by what is in the caller's memory when it looks, until no process is left under the filter. */
static void judge(int listener) {
    struct seccomp_notif call;
    struct seccomp_notif_resp answer;
    for (;;) {
        struct pollfd ready = {listener, POLLIN};
        if (poll(&ready, 1, -1) < 0 || !(ready.revents & POLLIN)) return;
        memset(&call, 0, sizeof call);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) continue;
        char *argument = NULL, word[5] = {0};
        struct iovec local = {&argument, sizeof argument}, remote = {(void *)(call.data.args[1] + 8), sizeof argument};
        process_vm_readv(call.pid, &local, 1, &remote, 1, 0);
        local = (struct iovec){word, 4};
        remote = (struct iovec){argument, 4};
        process_vm_readv(call.pid, &local, 1, &remote, 1, 0);
        memset(&answer, 0, sizeof answer);
        answer.id = call.id;
        if (strcmp(word, "good")) answer.error = -EACCES;
        else answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int install_listener(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *execute_in_thread(void *argument) {
    char *argv[] = {argument, "thread", NULL};
    execve(argument, argv, environ);
    return NULL;
}

static int refused_count;
static int refused;

static void *execute_often(void *file) {
    char *arguments[] = {file, NULL};
    for (int i = 0; i < refused_count; i++) {
        execve(file, arguments, environ);
        if (errno == ENOEXEC) __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "plain")) {
        execve(argv[2], argv + 2, environ);
        say_errno();
    } else if (!strcmp(mode, "fd")) {
        int fd = open(argv[2], O_PATH);
        syscall(SYS_execveat, fd, "", argv + 2, environ, AT_EMPTY_PATH);
        say_errno();
    } else if (!strcmp(mode, "at")) {
        int fd = open(argv[2], O_PATH | O_DIRECTORY);
        syscall(SYS_execveat, fd, argv[3], argv + 3, environ, 0);
        say_errno();
    } else if (!strcmp(mode, "selffd")) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", open(argv[2], O_PATH));
        execve(path, argv + 2, environ);
        say_errno();
    } else if (!strcmp(mode, "memfd")) {
        int from = open(argv[2], O_RDONLY), to = syscall(SYS_memfd_create, "copy", 1);
        char part[65536];
        for (ssize_t count; (count = read(from, part, sizeof part)) > 0;) write(to, part, count);
        syscall(SYS_execveat, to, "", argv + 2, environ, AT_EMPTY_PATH);
        say_errno();
    } else if (!strcmp(mode, "judged") || !strcmp(mode, "judgedtime")) {
        /* The judge is cloned with the descriptors of the one that installs the filter, before that. */
        int *listener = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        *listener = -1;
        if (syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0) == 0) {
            while (*(volatile int *)listener < 0) usleep(100);
            judge(*listener);
            _exit(0);
        }
        int made = install_listener();
        if (made < 0) return say_errno(), 1;
        *listener = made;
        argv[1] = !strcmp(mode, "judged") ? "argv" : "time";
        return main(argc, argv);
    } else if (!strcmp(mode, "argv") || !strcmp(mode, "sibling") || !strcmp(mode, "mem")) {
        char *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct words words = {word, "good", "evil"};
        strcpy(word, "good");
        char *arguments[] = {argv[3], word, NULL};
        pthread_t thread;
        pid_t racer = 0;
        if (!strcmp(mode, "argv")) {
            pthread_create(&thread, NULL, flip_words, &words);
        } else if (!strcmp(mode, "sibling")) {
            char *stack = malloc(65536);
            racer = clone(flip_words_in_process, stack + 65536, CLONE_VM | SIGCHLD, &words);
        } else {
            pid_t parent = getpid();
            prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
            racer = fork();
            if (racer == 0) {
                /* Not of the shared page that both have: by the parent's number. */
                for (int i = 0;; i++) {
                    struct iovec local = {i % 2 ? "good" : "evil", 4}, remote = {word, 4};
                    if (process_vm_writev(parent, &local, 1, &remote, 1, 0) != 4) _exit(1);
                    pause_a_little();
                }
            }
        }
        int started = spawn_for(atof(argv[2]), argv[3], arguments);
        if (racer) {
            kill(racer, SIGKILL);
            waitpid(racer, NULL, __WALL);
        } else {
            pthread_join(thread, NULL);
        }
        printf("started %d\n", started);
    } else if (!strcmp(mode, "env")) {
        char *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct words words = {word + 2, "good", "evil"};
        strcpy(word, "W=good");
        char *variables[] = {word, NULL}, *arguments[] = {argv[3], "W", NULL};
        environ = variables;
        pthread_t thread;
        pthread_create(&thread, NULL, flip_words, &words);
        printf("started %d\n", spawn_for(atof(argv[2]), argv[3], arguments));
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "rewrite")) {
        char *arguments[] = {argv[3], NULL};
        pthread_t thread;
        pthread_create(&thread, NULL, flip_first_line, argv[3]);
        printf("started %d\n", spawn_for(atof(argv[2]), argv[3], arguments));
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "check")) {
        if (syscall(SYS_execveat, AT_FDCWD, argv[2], argv + 2, environ, 0x10000) == 0) printf("checked\n");
        else say_errno();
    } else if (!strcmp(mode, "path")) {
        static char path[4096];
        struct words words = {path, argv[3], argv[4]};
        strcpy(path, argv[3]);
        char *arguments[] = {"x", "ran", NULL};
        pthread_t thread;
        pthread_create(&thread, NULL, flip_words, &words);
        printf("started %d\n", spawn_for(atof(argv[2]), path, arguments));
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "swap")) {
        struct links links = {argv[3], argv[4], argv[5]};
        char *arguments[] = {"x", "ran", NULL}, path[4096];
        snprintf(path, sizeof path, "%s/echo", argv[3]);
        pthread_t thread;
        pthread_create(&thread, NULL, flip_links, &links);
        printf("started %d\n", spawn_for(atof(argv[2]), path, arguments));
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "threads")) {
        int ran = 0;
        for (int i = 0; i < atoi(argv[2]); i++) {
            pid_t child = fork();
            if (child == 0) {
                pthread_t thread;
                char *arguments[] = {argv[3], "leader", NULL};
                pthread_create(&thread, NULL, execute_in_thread, argv[3]);
                execve(argv[3], arguments, environ);
                pthread_join(thread, NULL);
                _exit(9);
            }
            int status;
            waitpid(child, &status, 0);
            ran += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        printf("ran %d\n", ran);
    } else if (!strcmp(mode, "failing")) {
        int threads = atoi(argv[2]);
        pthread_t others[16];
        refused_count = atoi(argv[3]);
        /* clone(2) with CLONE_FS is EAGAIN while another thread is in its exec. */
        for (int i = 1; i < threads; i++)
            while (pthread_create(&others[i], NULL, execute_often, argv[4]) == EAGAIN) sched_yield();
        execute_often(argv[4]);
        for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
        printf("failed %d\n", refused);
    } else if (!strcmp(mode, "waiting")) {
        int interrupted = 0;
        char *arguments[] = {argv[3], NULL};
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR2);
        sigprocmask(SIG_BLOCK, &signals, NULL);
        for (int i = 0; i < atoi(argv[2]); i++) {
            struct timespec moment = {0, 1000000};
            execve(argv[3], arguments, environ);
            if (sigtimedwait(&signals, NULL, &moment) < 0 && errno == EINTR) interrupted++;
        }
        printf("interrupted %d\n", interrupted);
    } else if (!strcmp(mode, "changed")) {
        struct change change = {argv[3], argv[4]};
        int ran = 0, killed = 0;
        pthread_t changes;
        pthread_create(&changes, NULL, change_file, &change);
        char *arguments[] = {argv[3], NULL};
        for (double end = now() + atof(argv[2]); now() < end;) {
            pid_t child;
            int status;
            if (posix_spawn(&child, argv[3], NULL, NULL, arguments, environ)) continue;
            waitpid(child, &status, 0);
            if (WIFSIGNALED(status)) killed++;
            else ran += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        stop_racing = 1;
        pthread_join(changes, NULL);
        printf("killed %d, %s\n", killed, ran > 10 ? "others ran" : "nothing ran");
    } else if (!strcmp(mode, "listener")) {
        struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {1, allow};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        for (int flags = 8; flags <= 8 + 32; flags += 32) {
            long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
            if (listener >= 0) printf("listener\n"), close(listener);
            else say_errno();
        }
    } else if (!strcmp(mode, "kills")) {
        int killed = 0, ended = 0;
        double end = now() + atof(argv[2]);
        char *arguments[] = {argv[3], "killed", NULL};
        for (unsigned i = 1; now() < end; i++) {
            pid_t child = fork();
            if (child == 0) {
                execve(argv[3], arguments, environ);
                _exit(9);
            }
            i = i * 1103515245 + 12345;
            for (volatile unsigned wait = (i >> 8) % 200000; wait; wait--) {}
            kill(child, SIGKILL);
            int status;
            if (waitpid(child, &status, 0) != child) return printf("lost\n"), 1;
            if (WIFSIGNALED(status)) killed++;
            else ended++;
        }
        printf("killed %d ended %d\n", killed, ended);
    } else if (!strcmp(mode, "traced")) {
        pid_t child = fork();
        if (child == 0) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            char *arguments[] = {argv[2], "traced", NULL};
            execve(argv[2], arguments, environ);
            say_errno();
            _exit(9);
        }
        int status;
        while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) ptrace(PTRACE_CONT, child, 0, 0);
    } else if (!strcmp(mode, "empty")) {
        char *none[] = {NULL};
        syscall(SYS_execve, argv[2], none, environ);
        say_errno();
    } else if (!strcmp(mode, "time")) {
        int count = atoi(argv[2]);
        double *took = malloc(count * sizeof *took);
        char *arguments[] = {argv[3], "good", NULL};
        for (int i = 0; i < count; i++) {
            double begun = now();
            pid_t child;
            int failed = posix_spawn(&child, argv[3], NULL, NULL, arguments, environ), status = 1;
            if (!failed) waitpid(child, &status, 0);
            if (failed || status) return printf("failed\n"), 1;
            took[i] = (now() - begun) * 1e6;
        }
        qsort(took, count, sizeof *took, compare);
        printf("median %.1f p99 %.1f\n", took[count / 2], took[count * 99 / 100]);
    } else if (!strcmp(mode, "many")) {
        int started = 0;
        char *arguments[] = {argv[3], NULL};
        for (int i = 0; i < atoi(argv[2]); i++) {
            pid_t child;
            if (posix_spawn(&child, argv[3], NULL, NULL, arguments, environ) == 0) {
                int status;
                waitpid(child, &status, 0);
                started += WIFEXITED(status) && WEXITSTATUS(status) == 0;
            }
        }
        printf("started %d\n", started);
    }
    return 0;
}
