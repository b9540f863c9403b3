// Sets S_ISGID and S_ISUID by every call and every way to name what is changed.
//
// `set_group_id each DIRECTORY` makes a directory, a file, a hard link and links there, and prints for each of them, each mode and each
// way a line "OBJECT MODE WAY ERROR BITS": the errno's name or OK, and which of the two bits it has then, in octal.
// `set_group_id race DIRECTORY MILLISECONDS` has threads change what the calls of others name while they are made, between a directory and a
// file, and prints how many changes were done, and which bits the file has: "changed N file BITS".
// `set_group_id many DIRECTORY PROCESSES CALLS` has processes set and clear the bit of a directory each, and prints how many times it was
// there when it should be: "set N". With 0 calls it goes on for ever, and prints "begun" first.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static const char *root;
static const char *path_of(const char *name) {
    static _Thread_local char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}
static const char *fd_path(const char *process, int fd) {
    static _Thread_local char path[64];
    snprintf(path, sizeof path, "/proc/%s/fd/%d", process, fd);
    return path;
}
static int fchmodat2(int at, const char *path, unsigned mode, int flags) {
    return (int)syscall(__NR_fchmodat2, at, path, mode, flags);
}
static int closing(int fd, int result) {
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

// --- Each way -----------------------------------------------------------------------------------------

static int by_path(const char *name, unsigned mode) { return chmod(path_of(name), mode); }
static int by_name(const char *name, unsigned mode) { return chmod(name, mode); }
static int with_suffix(const char *name, const char *suffix, unsigned mode) {
    char path[64];
    snprintf(path, sizeof path, "%s%s", name, suffix);
    return chmod(path, mode);
}
static int by_slash(const char *name, unsigned mode) { return with_suffix(name, "/", mode); }
static int by_dot(const char *name, unsigned mode) { return with_suffix(name, "/.", mode); }
static int by_detour(const char *name, unsigned mode) {
    char path[64];
    snprintf(path, sizeof path, "./d/in/../../%s", name);
    return chmod(path, mode);
}
static int by_fchmodat(const char *name, unsigned mode) {
    return (int)syscall(SYS_fchmodat, AT_FDCWD, name, mode);
}
static int by_directory(const char *name, unsigned mode) {
    int at = open(root, O_RDONLY | O_DIRECTORY);
    return closing(at, (int)syscall(SYS_fchmodat, at, name, mode));
}
static int by_directory_path(const char *name, unsigned mode) {
    int at = open(root, O_PATH);
    return closing(at, (int)syscall(SYS_fchmodat, at, name, mode));
}
static int by_fchmodat2(const char *name, unsigned mode) { return fchmodat2(AT_FDCWD, name, mode, 0); }
static int by_nofollow(const char *name, unsigned mode) {
    return fchmodat2(AT_FDCWD, name, mode, AT_SYMLINK_NOFOLLOW);
}
static int opened_as(const char *name, int flags, unsigned mode, int empty) {
    int fd = open(name, flags);
    if (fd < 0) return -1;
    return closing(fd, empty ? fchmodat2(fd, "", mode, AT_EMPTY_PATH) : fchmod(fd, mode));
}
static int by_empty(const char *name, unsigned mode) { return opened_as(name, O_RDONLY, mode, 1); }
static int by_empty_path(const char *name, unsigned mode) { return opened_as(name, O_PATH, mode, 1); }
static int by_fchmod(const char *name, unsigned mode) { return opened_as(name, O_RDONLY, mode, 0); }
static int by_fchmod_path(const char *name, unsigned mode) { return opened_as(name, O_PATH, mode, 0); }
static int by_link_of(const char *process, const char *name, int flags, unsigned mode) {
    int fd = open(name, flags);
    if (fd < 0) return -1;
    return closing(fd, chmod(fd_path(process, fd), mode));
}
static int by_self(const char *name, unsigned mode) { return by_link_of("self", name, O_RDONLY, mode); }
static int by_self_path(const char *name, unsigned mode) { return by_link_of("self", name, O_PATH, mode); }
static int by_thread(const char *name, unsigned mode) { return by_link_of("thread-self", name, O_PATH, mode); }
static int by_number(const char *name, unsigned mode) {
    char number[16];
    snprintf(number, sizeof number, "%d", getpid());
    return by_link_of(number, name, O_PATH, mode);
}
static int by_cwd(const char *name, unsigned mode) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/cwd/%s", name);
    return chmod(path, mode);
}
static int by_glibc(const char *name, unsigned mode) { return fchmodat(AT_FDCWD, name, mode, AT_SYMLINK_NOFOLLOW); }
static void *in_a_thread(void *argument) {
    char **call = argument;
    static atomic_int error;
    error = chmod(call[0], (unsigned)(size_t)call[1]) ? errno : 0;
    return &error;
}
static int by_thread_of_ours(const char *name, unsigned mode) {
    void *call[2] = {(void *)name, (void *)(size_t)mode}, *error;
    pthread_t thread;
    pthread_create(&thread, NULL, in_a_thread, call);
    pthread_join(thread, &error);
    errno = *(atomic_int *)error;
    return errno ? -1 : 0;
}

static const struct { const char *name; int (*change)(const char *, unsigned); } ways[] = {
    {"path", by_path}, {"name", by_name}, {"slash", by_slash}, {"dot", by_dot}, {"detour", by_detour},
    {"fchmodat", by_fchmodat}, {"directory", by_directory}, {"directory_path", by_directory_path},
    {"fchmodat2", by_fchmodat2}, {"nofollow", by_nofollow}, {"empty", by_empty}, {"empty_path", by_empty_path},
    {"fchmod", by_fchmod}, {"fchmod_path", by_fchmod_path}, {"self", by_self}, {"self_path", by_self_path},
    {"thread_self", by_thread}, {"number", by_number}, {"cwd", by_cwd}, {"glibc", by_glibc},
    {"thread", by_thread_of_ours},
};

static int must(int result, const char *what) {
    if (result < 0) perror(what), exit(65);
    return result;
}

static void each(void) {
    static const char *objects[] = {"d", "f", "hard", "to_d", "to_f"};
    static const unsigned modes[] = {02755, 04755, 06755};
    must(mkdir("d", 0755), "mkdir");
    must(mkdir("d/in", 0755), "mkdir");
    close(must(open("f", O_CREAT | O_WRONLY, 0755), "open"));
    must(link("f", "hard"), "link");
    must(symlink("d", "to_d"), "symlink");
    must(symlink(path_of("f"), "to_f"), "symlink");
    for (size_t object = 0; object < 5; object++)
        for (size_t mode = 0; mode < 3; mode++)
            for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
                const char *name = objects[object];
                // What a failed call leaves must not be taken for its doing, nor the bit of the last one.
                must(chmod(name, 0755), "chmod");
                errno = 0;
                int result = ways[way].change(name, modes[mode]), error = errno;
                struct stat seen;
                must(stat(name, &seen), "stat");
                const char *said = result ? strerrorname_np(error) : "OK";
                printf("%s %o %s %s %o\n", name, modes[mode], ways[way].name, said ? said : "?", seen.st_mode & 06000);
                // chmod(1) of a directory keeps the bit, chmod(2) takes it away.
                must(chmod(name, 0755), "chmod");
            }
}

// --- The race -----------------------------------------------------------------------------------------

static atomic_int over;
static atomic_long changed;
static volatile char flipped[] = "x0";
static int number, of_directory, of_file;

static void *swap_names(void *unused) {
    while (!over) syscall(SYS_renameat2, AT_FDCWD, "x0", AT_FDCWD, "x1", RENAME_EXCHANGE);
    return unused;
}
static void *swap_links(void *unused) {
    for (int turn = 0; !over; turn++) {
        symlink(turn % 2 ? "x0" : "x1", "new");
        rename("new", "link");
    }
    return unused;
}
static void *swap_letters(void *unused) {
    for (int turn = 0; !over; turn++) flipped[1] = '0' + turn % 2;
    return unused;
}
static void *swap_descriptors(void *unused) {
    for (int turn = 0; !over; turn++) dup2(turn % 2 ? of_directory : of_file, number);
    return unused;
}
static void *change(void *way) {
    while (!over) {
        int result = 0;
        switch ((size_t)way) {
        case 0: result = chmod("x0", 02755); break;
        case 1: result = chmod("link", 02755); break;
        case 2: result = chmod((char *)flipped, 02755); break;
        case 3: result = fchmod(number, 02755); break;
        case 4: result = chmod(fd_path("self", number), 02755); break;
        case 5: result = fchmodat2(number, "", 02755, AT_EMPTY_PATH); break;
        }
        if (!result) changed++;
    }
    return NULL;
}

static void race(long milliseconds) {
    must(mkdir("x0", 0755), "mkdir");
    of_file = must(open("x1", O_CREAT | O_RDWR, 0755), "open");
    of_directory = must(open("x0", O_RDONLY | O_DIRECTORY), "open");
    number = dup(of_file);
    must(symlink("x0", "link"), "symlink");
    void *(*swaps[])(void *) = {swap_names, swap_links, swap_letters, swap_descriptors};
    pthread_t threads[10];
    for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, swaps[i], NULL);
    for (size_t i = 0; i < 6; i++) pthread_create(&threads[4 + i], NULL, change, (void *)i);
    struct timespec wait = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&wait, NULL);
    over = 1;
    for (size_t i = 0; i < 10; i++) pthread_join(threads[i], NULL);
    struct stat seen;
    fstat(of_file, &seen);
    // Nobody has taken the bit away.
    printf("changed %ld file %o\n", (long)changed, seen.st_mode & 06000);
}

static int set_and_clear(int number, long calls) {
    char name[32];
    snprintf(name, sizeof name, "many%d", number);
    must(mkdir(name, 0755), "mkdir");
    int set = 0;
    for (long call = 0; !calls || call < calls; call++) {
        struct stat seen;
        if (!chmod(name, 02755) && !stat(name, &seen) && seen.st_mode & 02000) set++;
        chmod(name, 0755);
    }
    return set;
}

static void many(int processes, long calls) {
    int ends[2], set = 0, all = 0;
    must(pipe(ends), "pipe");
    for (int number = 0; number < processes; number++)
        if (!must(fork(), "fork")) {
            set = set_and_clear(number, calls);
            _exit(write(ends[1], &set, sizeof set) != sizeof set);
        }
    close(ends[1]);
    if (!calls) printf("begun\n"), fflush(stdout);
    while (read(ends[0], &set, sizeof set) == sizeof set) all += set;
    while (wait(NULL) > 0) {}
    printf("set %d\n", all);
}

int main(int count, char **values) {
    if (count < 3) return 64;
    root = values[2];
    umask(0);
    must(chdir(root), "chdir");
    if (!strcmp(values[1], "each")) return each(), 0;
    if (!strcmp(values[1], "race") && count > 3) return race(atol(values[3])), 0;
    if (!strcmp(values[1], "many") && count > 4) return many(atoi(values[3]), atol(values[4])), 0;
    return 64;
}
