// Takes what the kernel counts by user or by namespace and not by cgroup.
//
// counted hold KIND MOST: takes up to MOST, says "took=N error=E ready", and keeps them until it is ended.
// counted one KIND: takes one, says the same, and gives it back.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PER_PROCESS 200

static char names[65536][24];
static long named;

static int inotify(void) { return inotify_init1(IN_CLOEXEC); }

static int pending(void) {
    union sigval value = {0};
    return sigqueue(getpid(), SIGRTMIN, value);
}

static int timer(void) {
    timer_t made;
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    return timer_create(CLOCK_MONOTONIC, &none, &made);
}

static int pty(void) { return open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC); }

static int queue(void) {
    struct mq_attr small = {.mq_maxmsg = 1, .mq_msgsize = 1};
    snprintf(names[named], sizeof names[named], "/q-%d-%ld", getpid(), named);
    mqd_t made = mq_open(names[named], O_CREAT | O_EXCL | O_RDWR, 0600, &small);
    if (made >= 0) {
        named++;
        close(made);
    }
    return made;
}

static int aio(void) {
    aio_context_t context = 0;
    return (int)syscall(SYS_io_setup, 1024, &context);
}

// Outside there is no namespace that ends with us: the last one made is removed at the end of "one".
static int last = -1;
static int shm(void) { return last = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); }
static int sem(void) { return last = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600); }
static int msg(void) { return last = msgget(IPC_PRIVATE, IPC_CREAT | 0600); }

static int pipe_pages(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    // Half a mebibyte, which one user can have 128 times by default.
    return fcntl(ends[1], F_SETPIPE_SZ, 1 << 19) < 0 ? -1 : 0;
}

static int huge(void) {
    void *at = mmap(NULL, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? -1 : 0;
}

static int filter(void) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, 0xffff};
    struct sock_fprog program = {1, &allow};
    int socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return -1;
    return setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static int key(void) {
    char name[32];
    snprintf(name, sizeof name, "key-%ld", named++);
    return (int)syscall(SYS_add_key, "user", name, "x", 1, -2);
}

static int space(void) { return unshare(CLONE_NEWUSER); }

static int in_flight(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) < 0) return -1;
    char byte = 0;
    char control[CMSG_SPACE(sizeof(int) * 8)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * 8);
    for (int i = 0; i < 8; i++) ((int *)CMSG_DATA(header))[i] = ends[1];
    int sent = (int)sendmsg(ends[0], &message, MSG_DONTWAIT);
    close(ends[0]);
    return sent < 0 ? -1 : 0;
}

static int any_file(void) { return memfd_create("any", MFD_CLOEXEC); }

// Watches a file that has no other name, so that nothing is left outside.
static int watch(void) {
    static int watching = -1, by = 0;
    if (by != getpid()) {
        by = getpid();
        watching = inotify_init1(IN_CLOEXEC);
    }
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", any_file());
    return inotify_add_watch(watching, path, IN_MODIFY);
}

static int epoll(void) {
    static int waiting = -1, by = 0;
    if (by != getpid()) {
        by = getpid();
        waiting = epoll_create1(EPOLL_CLOEXEC);
    }
    struct epoll_event any = {.events = EPOLLIN};
    return epoll_ctl(waiting, EPOLL_CTL_ADD, eventfd(0, EFD_CLOEXEC), &any);
}

static int file(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

static int whole_lock(void) { return flock(any_file(), LOCK_EX | LOCK_NB); }

static int range_lock(void) {
    static int locked = -1;
    static long start = 0;
    // The kernel looks at all of a file's ranges for each new one.
    if (start == 0) locked = any_file(), start = 200;
    struct flock one = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start -= 2, .l_len = 1};
    return fcntl(locked, F_SETLK, &one);
}

static int lease(void) {
    char path[] = "/tmp/lease-XXXXXX";
    int leased = mkstemp(path), done = fcntl(leased, F_SETLEASE, F_WRLCK);
    unlink(path);
    return done;
}

static int calls(void) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static const struct {
    const char *name;
    int (*take)(void);
    // In one process; else children take them, for they take descriptors.
    int in_one;
} kinds[] = {
    {"inotify", inotify, 0}, {"pending", pending, 1}, {"timer", timer, 1},       {"pty", pty, 0},
    {"queue", queue, 1},     {"aio", aio, 1},         {"shm", shm, 1},           {"sem", sem, 1},
    {"msg", msg, 1},         {"pipe", pipe_pages, 0}, {"huge", huge, 1},         {"filter", filter, 0},
    {"key", key, 1},         {"space", space, 1},     {"in-flight", in_flight, 0},
    {"watch", watch, 0},     {"epoll", epoll, 0},     {"file", file, 0},         {"flock", whole_lock, 0},
    {"range", range_lock, 1}, {"lease", lease, 0},    {"calls", calls, 0},
};

static long take(int kind, long most, int *error) {
    long took = 0;
    *error = 0;
    while (took < most) {
        if (kinds[kind].take() < 0) {
            *error = errno;
            break;
        }
        took++;
    }
    return took;
}

static void give_back(void) {
    for (long i = 0; i < named; i++) mq_unlink(names[i]);
}

int main(int argc, char **argv) {
    int kind = 0, error = 0, total = sizeof kinds / sizeof *kinds;
    while (kind < total && strcmp(kinds[kind].name, argv[2])) kind++;
    if (kind == total) return 2;
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGTERM);
    sigdelset(&all, SIGINT);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (!strcmp(argv[1], "one")) {
        long took = take(kind, 1, &error);
        printf("took=%ld error=%s\n", took, error ? strerrorname_np(error) : "0");
        if (!strcmp(argv[2], "shm")) shmctl(last, IPC_RMID, NULL);
        if (!strcmp(argv[2], "sem")) semctl(last, 0, IPC_RMID);
        if (!strcmp(argv[2], "msg")) msgctl(last, IPC_RMID, NULL);
        give_back();
        return 0;
    }
    long most = atol(argv[3]), took = 0;
    if (kinds[kind].in_one) {
        took = take(kind, most, &error);
    } else {
        while (took < most) {
            int told[2];
            long part[2] = {0, 0};
            if (pipe(told) < 0) break;
            pid_t child = fork();
            if (child < 0) break;
            if (child == 0) {
                int stop = 0;
                part[0] = take(kind, most - took < PER_PROCESS ? most - took : PER_PROCESS, &stop);
                part[1] = stop;
                write(told[1], part, sizeof part);
                for (;;) pause();
            }
            close(told[1]);
            if (read(told[0], part, sizeof part) != sizeof part) break;
            close(told[0]);
            took += part[0];
            error = (int)part[1];
            if (error) break;
        }
    }
    printf("took=%ld error=%s ready\n", took, error ? strerrorname_np(error) : "0");
    fflush(stdout);
    for (;;) pause();
}
