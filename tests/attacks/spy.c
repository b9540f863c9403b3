// Looks for a text wherever one process can find what another one holds: environments, arguments, memory (by
// /proc/PID/mem, by process_vm_readv and after an attach), open files, and the files that both can reach.
//
// spy REVERSED [PID]: the text backwards, so that the looking one has it in no argument; all processes or one.
// A "found WAY PLACE" line for each finding, then "looked N processes M files".
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST (1 << 20)

static char text[256];
static size_t length;
static char page[MOST];
static long processes, files;
static int everywhere;

static int has(size_t n) { return n >= length && memmem(page, n, text, length) != NULL; }

static void look_at(const char *way, const char *path) {
    struct stat st;
    if (stat(path, &st) < 0 || S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) return;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    files++;
    ssize_t n = read(fd, page, sizeof page);
    if (n > 0 && has((size_t)n)) printf("found %s %s\n", way, path);
    close(fd);
}

static int each(const char *path, const struct stat *st, int kind, struct FTW *at) {
    if (kind == FTW_F) look_at("file", path);
    return 0;
}

static void memory(pid_t pid) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int mem = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx rw", &from, &to) != 2) continue;
        size_t n = to - from < MOST ? to - from : MOST;
        // The stack's end has the environment.
        unsigned long at = strstr(line, "[stack]") ? to - n : from;
        if (mem >= 0 && pread(mem, page, n, (off_t)at) > 0 && has(n)) printf("found mem %d\n", pid);
        struct iovec here = {page, n}, there = {(void *)at, n};
        if (process_vm_readv(pid, &here, 1, &there, 1, 0) > 0 && has(n)) printf("found vm %d\n", pid);
    }
    if (maps) fclose(maps);
    if (mem >= 0) close(mem);
}

static void look_into(pid_t pid) {
    static const char *const names[] = {"environ", "cmdline", "auxv", "comm", "stack", "syscall"};
    char path[300];
    if (pid == getpid()) return;
    processes++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, names[i]);
        look_at(names[i], path);
    }
    memory(pid);
    // Attached, what was closed may be open.
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) == 0) {
        memory(pid);
        ptrace(PTRACE_DETACH, pid, 0, 0);
    }
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *fds = opendir(path);
    for (struct dirent *one; fds && (one = readdir(fds));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, one->d_name);
        if (isdigit((unsigned char)*one->d_name)) look_at("fd", path);
    }
    if (fds) closedir(fds);
    if (!everywhere) return;
    for (const char *const *below = (const char *const[]){"tmp", "dev/shm", "home", NULL}; *below; below++) {
        snprintf(path, sizeof path, "/proc/%d/root/%s", pid, *below);
        if (access(path, R_OK) == 0) nftw(path, each, 16, FTW_PHYS);
    }
}

int main(int argc, char **argv) {
    length = strlen(argv[1]);
    for (size_t i = 0; i < length; i++) text[i] = argv[1][length - 1 - i];
    if (argc > 2) {
        look_into(atoi(argv[2]));
    } else {
        everywhere = 1;
        DIR *proc = opendir("/proc");
        for (struct dirent *one; proc && (one = readdir(proc));)
            if (isdigit((unsigned char)*one->d_name)) look_into(atoi(one->d_name));
        // Those that are not listed.
        for (pid_t pid = 1; pid < 300; pid++) look_into(pid);
        const char *places[] = {"/tmp", "/dev", "/run", "/var/tmp", "/home", getenv("HOME")};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++)
            if (places[i]) nftw(places[i], each, 16, FTW_PHYS);
    }
    printf("looked %ld processes %ld files\n", processes, files);
    return 0;
}
