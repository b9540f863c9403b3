// What a command in a sandbox may try against its host, beyond the calls in attack.c: `breakout VERB [ARG]...` prints
// "VERB OK" or "VERB <errno's name>" and ends with 0 when the thing worked. Harmless where it works: bombs are small
// and end by themselves, and what is left behind is named in an argument, so that its owner can remove it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int argc;
static char **argv;

static const char *arg(int i) { return i + 2 < argc ? argv[i + 2] : ""; }

static int do_nothing(void) { return 0; }

// plant FILE: makes the directories above it, and the file, executable.
static int do_plant(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s", arg(0));
    for (char *c = path + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(path, 0755);
            *c = '/';
        }
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0755);
    if (fd < 0) return -1;
    static const char script[] = "#!/bin/sh\n# planted\n";
    int r = write(fd, script, sizeof script - 1) == sizeof script - 1 ? 0 : -1;
    return close(fd) ? -1 : r;
}

// append FILE TEXT: adds a line to a file that is there.
static int do_append(void) {
    int fd = open(arg(0), O_WRONLY | O_APPEND);
    if (fd < 0) return -1;
    return dprintf(fd, "%s\n", arg(1)) > 0 && close(fd) == 0 ? 0 : -1;
}

// descriptor N TEXT: reads TEXT from a descriptor that nobody meant to give.
static int do_descriptor(void) {
    char page[256];
    size_t wanted = strlen(arg(1));
    ssize_t n = pread(atoi(arg(0)), page, sizeof page, 0);
    if (n < 0) return -1;
    errno = EBADF;
    return (size_t)n >= wanted && memcmp(page, arg(1), wanted) == 0 ? 0 : -1;
}

// variable NAME: reads a variable that the caller has.
static int do_variable(void) {
    errno = ENOENT;
    return getenv(arg(0)) ? 0 : -1;
}

// type: types a letter into the terminal that the caller sits at.
static int do_type(void) {
    if (ioctl(0, TIOCSTI, "x") == 0) return 0;
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    return ioctl(fd, TIOCSTI, "x");
}

// nested_mount: a user namespace of its own, and in it a mount.
static int do_nested_mount(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return -1;
    return mount("none", "/", "tmpfs", 0, NULL);
}

// guard_program: the program of the process that guards the command, open for when it is no longer running
// (CVE-2019-5736): a program that is running cannot be opened for writing (ETXTBSY), but nothing else is in the way.
static int guard(pid_t pid) {
    char path[64];
    struct stat own, other;
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    errno = ENOENT;
    // The command is its own PID 1: nobody guards it from in here.
    if (stat("/proc/self/exe", &own) || fstat(fd, &other)) return -1;
    if (own.st_dev == other.st_dev && own.st_ino == other.st_ino) return errno = ENOENT, -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int writable = open(path, O_WRONLY | O_CLOEXEC);
    return writable >= 0 || errno == ETXTBSY ? 0 : -1;
}
static int do_guard_program(void) {
    if (getppid() > 0 && guard(getppid()) == 0) return 0;
    return guard(1);
}

// idle NAME: waits to be killed, for a minute at most.
static int do_idle(void) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    alarm(60);
    for (;;) pause();
}

// outlive NAME: leaves a process behind, in a session of its own, that ignores what can be ignored.
static int do_outlive(void) {
    pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        setsid();
        if (fork()) _exit(0);
        for (int fd = 0; fd < 256; fd++) close(fd);
        execl("/proc/self/exe", argv[0], "idle", arg(0), NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return 0;
}

// forks N: so many processes at once; all end with this one.
static int do_forks(void) {
    int wanted = atoi(arg(0)), made = 0, e = 0;
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    for (; made < wanted; made++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGTERM, SIG_DFL);
            alarm(30);
            for (;;) pause();
        }
        if (child < 0) {
            e = errno;
            break;
        }
    }
    kill(0, SIGTERM);
    while (wait(NULL) > 0) {}
    errno = e;
    return made == wanted ? 0 : -1;
}

// memory MIB: so much of it, written to.
static int do_memory(void) {
    size_t bytes = (size_t)atoi(arg(0)) << 20;
    char *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return -1;
    for (size_t at = 0; at < bytes; at += 4096) all[at] = 1;
    return 0;
}

// on_terminal PROGRAM ARG...: runs a program on a terminal of its own, as a person at a terminal would start it.
static int on_terminal(void) {
    int master;
    pid_t child = forkpty(&master, NULL, NULL, NULL);
    if (child < 0) return 1;
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    char page[4096];
    ssize_t n;
    while ((n = read(master, page, sizeof page)) > 0)
        if (write(1, page, (size_t)n) != n) break;
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static const struct { const char *name; int (*run)(void); } verbs[] = {
    {"nothing", do_nothing}, {"plant", do_plant}, {"append", do_append}, {"descriptor", do_descriptor},
    {"variable", do_variable}, {"type", do_type}, {"nested_mount", do_nested_mount},
    {"guard_program", do_guard_program}, {"idle", do_idle}, {"outlive", do_outlive}, {"forks", do_forks},
    {"memory", do_memory},
};

int main(int count, char **values) {
    argc = count;
    argv = values;
    if (argc > 2 && !strcmp(argv[1], "on_terminal")) return on_terminal();
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name)) continue;
        errno = 0;
        int r = verbs[i].run();
        const char *name = r == 0 ? "OK" : strerrorname_np(errno);
        printf("%s %s\n", argv[1], name ? name : "?");
        return r == 0 ? 0 : 1;
    }
    fprintf(stderr, "breakout: unknown verb\n");
    return 64;
}
