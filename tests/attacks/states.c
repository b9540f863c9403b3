// Puts itself into a state in which tasks are hard to kill, ignores every signal that can be ignored, prints "ready",
// and stays. Every process carries the same command line, so that a marker given as the last argument finds them all.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static void *stay(void *nothing) {
    (void)nothing;
    forever();
    return NULL;
}

static void *say_and_stay(void *leader) {
    // Ready when the main thread is a zombie.
    char path[64], state[512];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", (long)leader);
    for (;;) {
        int file = open(path, O_RDONLY);
        ssize_t got = file < 0 ? -1 : read(file, state, sizeof state - 1);
        if (file >= 0) close(file);
        state[got > 0 ? got : 0] = 0;
        char *after = strrchr(state, ')');
        if (after && after[2] == 'Z') break;
        usleep(1000);
    }
    say("ready\n");
    forever();
    return NULL;
}

static void thread(void *(*body)(void *), void *with) {
    pthread_t one;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    while (pthread_create(&one, &small, body, with)) usleep(1000);
}

static void *execute_again(void *arguments) {
    execv("/proc/self/exe", arguments);
    _exit(70);
}

static void report(const char *call, long result) {
    char line[64];
    snprintf(line, sizeof line, "%s=%s\n", call, result < 0 ? strerrorname_np(errno) : "done");
    say(line);
}

// All that the kernel lets a process do to another one of its user without any privilege, and that slows it down.
static void hinder(pid_t target) {
    struct rlimit none = {0, 0};
    struct sched_param plain = {0};
    struct {
        unsigned size, policy;
        unsigned long long flags;
        int nice;
        unsigned priority;
        unsigned long long runtime, deadline, period;
    } attributes = {48, SCHED_IDLE, 0, 0, 0, 0, 0, 0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    // Set for a user, with the value that all have already.
    report("setpriority_user", syscall(SYS_setpriority, PRIO_USER, 0, getpriority(PRIO_PROCESS, 0)));
    report("ioprio_set_user", syscall(SYS_ioprio_set, 3, getuid(), 0));
    report("prlimit", syscall(SYS_prlimit64, target, RLIMIT_NOFILE, &none, NULL));
    report("sched_setparam", syscall(SYS_sched_setparam, target, &plain));
    report("sched_setaffinity", syscall(SYS_sched_setaffinity, target, sizeof one, &one));
    report("sched_setscheduler", syscall(SYS_sched_setscheduler, target, SCHED_IDLE, &plain));
    report("sched_setattr", syscall(SYS_sched_setattr, target, &attributes, 0));
    report("setpriority", syscall(SYS_setpriority, PRIO_PROCESS, target, 19));
    report("ioprio_set", syscall(SYS_ioprio_set, 1, target, 3 << 13));
}

static void exit_this_thread(void) {
    syscall(SYS_exit, 0);
}

int main(int argc, char **argv) {
    const char *state = argc > 1 ? argv[1] : "";
    ignore_all();
    if (!strcmp(state, "leader")) {
        // The main thread has exited, another one goes on.
        thread(say_and_stay, (void *)(long)getpid());
        exit_this_thread();
    } else if (!strcmp(state, "leaders")) {
        // The same of a child in a session of its own, and of the main process.
        if (fork() == 0) {
            setsid();
            thread(stay, NULL);
            exit_this_thread();
        }
        thread(say_and_stay, (void *)(long)getpid());
        exit_this_thread();
    } else if (!strcmp(state, "left")) {
        // The main process exits with 5; a child without its main thread stays, without any pipe.
        int both[2];
        if (pipe(both)) return 70;
        if (fork() == 0) {
            setsid();
            close(1);
            dup2(both[1], 1);
            close(2);
            thread(say_and_stay, (void *)(long)getpid());
            exit_this_thread();
        }
        char word;
        if (read(both[0], &word, 1) != 1) return 70;
        say("ready\n");
        _exit(5);
    } else if (!strcmp(state, "threads")) {
        // n threads, and no main thread.
        for (long n = argc > 2 ? atol(argv[2]) : 1000; n > 1; n--) thread(stay, NULL);
        thread(say_and_stay, (void *)(long)getpid());
        exit_this_thread();
    } else if (!strcmp(state, "stopped")) {
        say("ready\n");
        for (;;) raise(SIGSTOP);
    } else if (!strcmp(state, "traced")) {
        // A child that is stopped for its tracer, the main process, which never looks at it.
        pid_t child = fork();
        if (child == 0) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
            forever();
        }
        int status;
        waitpid(child, &status, WUNTRACED);
        say(WIFSTOPPED(status) ? "ready\n" : "it does not stop\n");
        forever();
    } else if (!strcmp(state, "tracee")) {
        // Lets anybody trace it.
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        char line[64];
        snprintf(line, sizeof line, "pid=%d ready\n", (int)getpid());
        say(line);
        forever();
    } else if (!strcmp(state, "tracer")) {
        // Traces the process of that number and never waits for it: its death is kept from its parent.
        if (ptrace(PTRACE_SEIZE, atoi(argv[2]), 0, 0)) {
            perror("PTRACE_SEIZE");
            return 70;
        }
        say("ready\n");
        forever();
    } else if (!strcmp(state, "vfork")) {
        say("ready\n");
        if (vfork() == 0)
            for (;;) pause();
        forever();
    } else if (!strcmp(state, "hinder")) {
        // Hinders another process as far as it may; stays, with a child in a session of its own.
        hinder(atoi(argv[2]));
        if (fork() == 0) {
            setsid();
            forever();
        }
        say("ready\n");
        forever();
    } else if (!strcmp(state, "trace_exit")) {
        // Asks for a stop before the end of what it traces.
        pid_t child = fork();
        if (child == 0) forever();
        report("seize", ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACEEXIT));
        report("seize_plainly", ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACEEXEC));
        // As ptrace(2) has it, and by the older number of x86 that is in no manual.
        int status;
        ptrace(PTRACE_INTERRUPT, child, 0, 0);
        waitpid(child, &status, 0);
        report("set", ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEEXIT));
        report("set_plainly", ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEEXEC));
        report("set_old", syscall(SYS_ptrace, 21, child, 0, PTRACE_O_TRACEEXIT));
        kill(child, SIGKILL);
        return 0;
    } else if (!strcmp(state, "execs")) {
        // Executes itself again and again, from a thread that is not the main one.
        if (!getenv("STATES_AGAIN")) say("ready\n");
        setenv("STATES_AGAIN", "1", 1);
        thread(execute_again, argv);
        forever();
    } else {
        fprintf(stderr, "states: unknown state %s\n", state);
        return 64;
    }
    return 0;
}
