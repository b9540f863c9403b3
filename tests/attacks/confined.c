// Says everything that the kernel tells a process about its own confinement, before any library has had its
// say: one "== NAME" line for each part. Looks only; changes nothing.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void part(const char *name) { printf("== %s\n", name); }

static void file(const char *name, const char *path) {
    char page[4096];
    part(name);
    fflush(stdout);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        printf("!%s\n", strerrorname_np(errno));
        return;
    }
    ssize_t n;
    while ((n = read(fd, page, sizeof page)) > 0) fwrite(page, 1, (size_t)n, stdout);
    close(fd);
    printf("\n");
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void directory(const char *name, const char *path) {
    struct dirent **entries;
    part(name);
    int n = scandir(path, &entries, NULL, by_name);
    if (n < 0) {
        printf("!%s\n", strerrorname_np(errno));
        return;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(entries[i]->d_name, ".") && strcmp(entries[i]->d_name, "..")) printf("%s\n", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

// How many landlock domains this process is in: as many as are missing to the most that there can be, 16. In a child,
// which is then in all of them.
static int landlock_layers(void) {
    int ends[2], layers = -1;
    if (pipe(ends)) return -1;
    pid_t child = fork();
    if (child == 0) {
        uint64_t handled[3] = {1, 0, 0};
        int rules = (int)syscall(444, handled, sizeof handled[0], 0);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        int added = 0;
        while (rules >= 0 && added <= 16 && syscall(446, rules, 0) == 0) added++;
        layers = rules < 0 || errno != E2BIG ? -1 : 16 - added;
        ssize_t ignored = write(ends[1], &layers, sizeof layers);
        (void)ignored;
        _exit(0);
    }
    close(ends[1]);
    if (read(ends[0], &layers, sizeof layers) != sizeof layers) layers = -1;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return layers;
}

int main(int argc, char **argv) {
    part("fds");
    for (int fd = 0; fd < 65536; fd++) {
        char path[64], to[512];
        if (fcntl(fd, F_GETFD) < 0) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n < 0) n = 0;
        to[n] = 0;
        printf("%d %s %o\n", fd, to, (unsigned)fcntl(fd, F_GETFL) & O_ACCMODE);
    }
    part("env");
    for (char **e = environ; *e; e++) printf("%s\n", *e);
    part("ids");
    uid_t r, e, s;
    getresuid(&r, &e, &s);
    printf("uid %u %u %u\n", r, e, s);
    getresgid(&r, &e, &s);
    printf("gid %u %u %u\n", r, e, s);
    gid_t groups[64];
    int n = getgroups(64, groups);
    printf("groups %d", n);
    for (int i = 0; i < n; i++) printf(" %u", groups[i]);
    printf("\npid %d ppid %d sid %d pgid %d\n", getpid(), getppid(), getsid(0), getpgid(0));
    part("flags");
    printf("securebits %#x\n", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
    printf("dumpable %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    printf("no_new_privs %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf("personality %#lx\n", syscall(SYS_personality, 0xffffffff));
    printf("keepcaps %d\n", prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    printf("umask %o\n", umask(022));
    printf("nice %ld\n", 20 - syscall(SYS_getpriority, 0, 0));
    printf("landlock_abi %ld\n", syscall(444, NULL, 0, 1));
    printf("landlock_layers %d\n", landlock_layers());
    part("ns");
    static const char *kinds[] = {"user", "pid", "mnt", "ipc", "uts", "cgroup", "net", "time"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[64], to[128];
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        ssize_t k = readlink(path, to, sizeof to - 1);
        printf("%s %.*s\n", kinds[i], (int)(k < 0 ? 0 : k), to);
    }
    part("rlimits");
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit l;
        if (getrlimit(i, &l) == 0) printf("%d %lld %lld\n", i, (long long)l.rlim_cur, (long long)l.rlim_max);
    }
    file("status", "/proc/self/status");
    file("mountinfo", "/proc/self/mountinfo");
    file("cgroup", "/proc/self/cgroup");
    file("keys", "/proc/keys");
    file("uid_map", "/proc/self/uid_map");
    file("gid_map", "/proc/self/gid_map");
    file("netdev", "/proc/self/net/dev");
    file("unix", "/proc/self/net/unix");
    directory("root", "/");
    directory("dev", "/dev");
    directory("home", "/home");
    directory("proc", "/proc");
    directory("run", "/run");
    directory("tmp", "/tmp");
    part("end");
    return argc > 1 ? atoi(argv[1]) : 0;
}
