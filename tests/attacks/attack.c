// One forbidden thing per call: `attack VERB [ARG]...` prints "VERB OK" or "VERB <errno's name>" and ends with
// 0 when the thing worked. Run outside first, to show that it is the sandbox that refuses. Nothing here
// damages the machine: files are opened and not written, signals are signal 0, calls get harmless arguments.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif

static int argc;
static char **argv;

static const char *arg(int i) { return i + 2 < argc ? argv[i + 2] : ""; }
static pid_t pid_arg(int i) { return (pid_t)atol(arg(i)); }

static int opened(int fd) {
    if (fd < 0) return -1;
    close(fd);
    return 0;
}

// --- Devices and kernel files -------------------------------------------------------------------------

static int do_mknod_char(void) {
    if (mknod(arg(0), S_IFCHR | 0600, makedev(1, 3))) return -1;
    int r = opened(open(arg(0), O_RDWR)), e = errno;
    unlink(arg(0));
    errno = e;
    return r;
}
static int do_mknod_block(void) {
    if (mknod(arg(0), S_IFBLK | 0600, makedev(7, 0))) return -1;
    unlink(arg(0));
    return 0;
}
static int do_open_read(void) { return opened(open(arg(0), O_RDONLY)); }
static int do_open_write(void) { return opened(open(arg(0), O_WRONLY)); }
static int do_read_some(void) {
    char c[16];
    int fd = open(arg(0), O_RDONLY);
    if (fd < 0) return -1;
    ssize_t n = read(fd, c, sizeof c);
    if (n == 0) errno = ENODATA;
    return n > 0 ? 0 : -1;
}
static int do_create(void) {
    int fd = open(arg(0), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0) return -1;
    close(fd);
    unlink(arg(0));
    return 0;
}
static int do_list(void) {
    int fd = open(arg(0), O_RDONLY | O_DIRECTORY);
    return opened(fd);
}

// --- Other processes ----------------------------------------------------------------------------------

static int do_signal(void) { return kill(pid_arg(0), 0); }
static int do_pidfd(void) { return opened((int)syscall(SYS_pidfd_open, pid_arg(0), 0)); }
static int do_ptrace(void) {
    pid_t p = pid_arg(0);
    if (ptrace(PTRACE_SEIZE, p, 0, 0)) return -1;
    ptrace(PTRACE_DETACH, p, 0, 0);
    return 0;
}
static int do_ptrace_own(void) {
    pid_t p = fork();
    if (p == 0)
        for (;;) pause();
    int r = ptrace(PTRACE_SEIZE, p, 0, 0) ? -1 : 0, e = errno;
    kill(p, SIGKILL);
    waitpid(p, NULL, 0);
    errno = e;
    return r;
}
static int do_vm_read(void) {
    char to[8];
    char path[64], line[256];
    unsigned long from = 0;
    snprintf(path, sizeof path, "/proc/%s/maps", arg(0));
    FILE *f = fopen(path, "r");
    if (f) {
        if (fgets(line, sizeof line, f)) from = strtoul(line, NULL, 16);
        fclose(f);
    }
    struct iovec l = {to, 8}, r = {(void *)(from ? from : 0x1000), 8};
    return process_vm_readv(pid_arg(0), &l, 1, &r, 1, 0) < 0 ? -1 : 0;
}
static int do_proc_file(void) {
    // attack proc_file PID NAME: reads /proc/PID/NAME.
    char path[128], page[64];
    snprintf(path, sizeof path, "/proc/%s/%s", arg(0), arg(1));
    int fd = open(path, O_RDONLY);
    if (fd < 0) return -1;
    ssize_t n = read(fd, page, sizeof page);
    if (n == 0) errno = ENODATA;
    return n > 0 ? 0 : -1;
}
static int do_proc_mem(void) {
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/mem", arg(0));
    return opened(open(path, O_RDWR));
}
static int do_proc_link(void) {
    // attack proc_link PID NAME: follows /proc/PID/NAME (root, cwd, exe, fd/0, ns/mnt).
    char path[128], to[256];
    snprintf(path, sizeof path, "/proc/%s/%s", arg(0), arg(1));
    return readlink(path, to, sizeof to) < 0 ? -1 : 0;
}
static int do_pidfd_getfd(void) {
    int p = (int)syscall(SYS_pidfd_open, pid_arg(0), 0);
    if (p < 0) return -1;
    return opened((int)syscall(SYS_pidfd_getfd, p, 0, 0));
}
static int do_oom_score(void) {
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/oom_score_adj", arg(0));
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    return write(fd, "0", 1) == 1 ? 0 : -1;
}
static int do_setpriority(void) { return (int)syscall(SYS_setpriority, 0, pid_arg(0), 0); }
static int do_prlimit(void) {
    uint64_t old[2];
    return (int)syscall(SYS_prlimit64, pid_arg(0), 7, NULL, old);
}
static int do_kcmp(void) { return syscall(SYS_kcmp, getpid(), pid_arg(0), 1, 0, 0) < 0 ? -1 : 0; }
static int do_write_self_exe(void) { return opened(open("/proc/self/exe", O_WRONLY)); }
static int do_write_exe_of(void) {
    // The way of CVE-2019-5736: hold another process's program open by its magic link, then write to it.
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/exe", arg(0));
    return opened(open(path, O_RDONLY));
}

// --- Sockets ------------------------------------------------------------------------------------------

static int connected(int family, int kind, struct sockaddr *to, socklen_t length) {
    int s = socket(family, kind | SOCK_CLOEXEC, 0);
    if (s < 0) return -1;
    struct timeval t = {3, 0};
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    int r = connect(s, to, length), e = errno;
    close(s);
    errno = e;
    return r;
}
static int do_connect_path(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strncpy(a.sun_path, arg(0), sizeof a.sun_path - 1);
    return connected(AF_UNIX, SOCK_STREAM, (struct sockaddr *)&a, sizeof a);
}
static int do_connect_abstract(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(arg(0));
    memcpy(a.sun_path + 1, arg(0), n);
    return connected(AF_UNIX, SOCK_STREAM, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
}
static int do_connect_tcp(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg(1)))};
    inet_pton(AF_INET, arg(0), &a.sin_addr);
    return connected(AF_INET, SOCK_STREAM, (struct sockaddr *)&a, sizeof a);
}
static int do_send_udp(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg(1)))};
    inet_pton(AF_INET, arg(0), &a.sin_addr);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (s < 0) return -1;
    return sendto(s, "x", 1, 0, (struct sockaddr *)&a, sizeof a) == 1 ? 0 : -1;
}
static int do_socket(void) { return opened(socket(atoi(arg(0)), atoi(arg(1)), atoi(arg(2)))); }

// --- Namespaces, mounts, roots ------------------------------------------------------------------------

// In a child: the caller's own namespaces stay as they are.
static int in_child(int (*what)(void)) {
    int pipes[2], e = 0;
    if (pipe(pipes)) return -1;
    pid_t p = fork();
    if (p < 0) return -1;
    if (p == 0) {
        errno = 0;
        int r = what();
        e = r < 0 ? (errno ? errno : EIO) : 0;
        ssize_t ignored = write(pipes[1], &e, sizeof e);
        (void)ignored;
        _exit(0);
    }
    close(pipes[1]);
    ssize_t n = read(pipes[0], &e, sizeof e);
    close(pipes[0]);
    waitpid(p, NULL, 0);
    if (n != sizeof e) e = ECHILD;
    errno = e;
    return e ? -1 : 0;
}
static int flags_arg;
static int unshare_flags(void) { return unshare(flags_arg); }
static int do_unshare(void) {
    static const struct { const char *name; int flag; } kinds[] = {
        {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID}, {"net", CLONE_NEWNET},
        {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80}};
    flags_arg = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(arg(0), kinds[i].name)) flags_arg = kinds[i].flag;
    return in_child(unshare_flags);
}
static int do_clone_user(void) {
    long p = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (p == 0) _exit(0);
    if (p > 0) waitpid((pid_t)p, NULL, 0);
    return p < 0 ? -1 : 0;
}
static int do_clone3_user(void) {
    uint64_t a[11] = {0};
    a[0] = CLONE_NEWUSER;
    a[4] = SIGCHLD;
    long p = syscall(SYS_clone3, a, sizeof a);
    if (p == 0) _exit(0);
    if (p > 0) waitpid((pid_t)p, NULL, 0);
    return p < 0 ? -1 : 0;
}
static int setns_one(void) {
    int fd = open(arg(0), O_RDONLY);
    return fd < 0 ? -1 : setns(fd, 0);
}
static int do_setns(void) { return in_child(setns_one); }
static int mount_tmpfs(void) {
    // Outside, in a mount namespace of its own; inside that is refused already, so go on without.
    if (arg(1)[0] && unshare(CLONE_NEWNS)) return -1;
    if (arg(1)[0]) mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return mount("none", arg(0), "tmpfs", 0, NULL);
}
static int do_mount_tmpfs(void) { return in_child(mount_tmpfs); }
static int mount_bind(void) {
    if (arg(1)[0] && unshare(CLONE_NEWNS)) return -1;
    if (arg(1)[0]) mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return mount("/usr", arg(0), NULL, MS_BIND, NULL);
}
static int do_mount_bind(void) { return in_child(mount_bind); }
static int remount_usr(void) {
    if (arg(0)[0] && unshare(CLONE_NEWNS)) return -1;
    if (arg(0)[0] && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("/usr", "/usr", NULL, MS_BIND, NULL)))
        return -1;
    return mount(NULL, "/usr", NULL, MS_BIND | MS_REMOUNT | MS_NOATIME, NULL);
}
static int do_remount(void) { return in_child(remount_usr); }
static int umount_one(void) {
    if (arg(1)[0]) {
        if (unshare(CLONE_NEWNS)) return -1;
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    }
    return umount2(arg(0), MNT_DETACH);
}
static int do_umount(void) { return in_child(umount_one); }
static int chroot_here(void) { return chroot(arg(0)[0] ? arg(0) : "."); }
static int do_chroot(void) { return in_child(chroot_here); }
static int do_fsopen(void) { return opened((int)syscall(SYS_fsopen, "tmpfs", 0)); }
static int do_open_tree(void) { return opened((int)syscall(SYS_open_tree, AT_FDCWD, "/usr", 1 /* OPEN_TREE_CLONE */)); }
static int do_mount_setattr(void) {
    uint64_t a[4] = {0};
    // No flags and no attributes: a privileged caller gets 0 or EINVAL from inside the call.
    return (int)syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, a, sizeof a);
}
static int do_move_mount(void) { return (int)syscall(SYS_move_mount, AT_FDCWD, "/nowhere", AT_FDCWD, "/nowhere", 0); }
static int do_pivot_root(void) { return (int)syscall(SYS_pivot_root, "/nowhere", "/nowhere"); }
static int do_open_by_handle(void) {
    struct { struct file_handle h; char bytes[128]; } f = {.h = {.handle_bytes = 128}};
    int mount_id;
    if (name_to_handle_at(AT_FDCWD, arg(0), &f.h, &mount_id, 0)) return -1;
    int at = open(arg(0), O_RDONLY | O_DIRECTORY);
    if (at < 0) return -1;
    return opened(open_by_handle_at(at, &f.h, O_RDONLY));
}

// --- Privileges ---------------------------------------------------------------------------------------

static int setuid_0(void) { return setresuid(0, 0, 0); }
static int do_setuid(void) { return in_child(setuid_0); }
static int setgid_0(void) { return setresgid(0, 0, 0); }
static int do_setgid(void) { return in_child(setgid_0); }
static int setgroups_0(void) {
    gid_t g = 0;
    return (int)syscall(SYS_setgroups, 1, &g);
}
static int do_setgroups(void) { return in_child(setgroups_0); }
static int capset_some(void) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{1 << CAP_CHOWN, 1 << CAP_CHOWN, 0}, {0, 0, 0}};
    return (int)syscall(SYS_capset, &h, d);
}
static int do_capset(void) { return in_child(capset_some); }
static int do_chown(void) {
    int fd = open(arg(0), O_CREAT | O_RDWR, 0600);
    if (fd < 0) return -1;
    int r = fchown(fd, 4242, 4242), e = errno;
    close(fd);
    unlink(arg(0));
    errno = e;
    return r;
}
static int do_setcap(void) {
    // security.capability, revision 2, CAP_NET_RAW permitted and effective.
    uint32_t cap[5] = {0x02000001, 1u << 13, 0, 0, 0};
    int fd = open(arg(0), O_CREAT | O_RDWR, 0755);
    if (fd < 0) return -1;
    int r = fsetxattr(fd, "security.capability", cap, sizeof cap, 0), e = errno;
    close(fd);
    unlink(arg(0));
    errno = e;
    return r;
}
// Each leaves the file, for the host to look at.
static int plain(const char *path) { return opened(open(path, O_CREAT | O_WRONLY, 0755)); }
static int do_suid_chmod(void) { return plain(arg(0)) ? -1 : chmod(arg(0), 04755); }
static int do_suid_fchmod(void) {
    int fd = open(arg(0), O_CREAT | O_WRONLY, 0755);
    return fd < 0 ? -1 : fchmod(fd, 04755);
}
static int do_suid_fchmodat(void) {
    return plain(arg(0)) ? -1 : (int)syscall(SYS_fchmodat, AT_FDCWD, arg(0), 04755);
}
static int do_suid_fchmodat2(void) {
    return plain(arg(0)) ? -1 : (int)syscall(__NR_fchmodat2, AT_FDCWD, arg(0), 04755, 0);
}
static int do_sgid_chmod(void) { return plain(arg(0)) ? -1 : chmod(arg(0), 02755); }
static int do_suid_creat(void) {
    umask(0);
    return opened(creat(arg(0), 04755));
}
static int do_suid_open(void) {
    umask(0);
#ifdef SYS_open
    return opened((int)syscall(SYS_open, arg(0), O_CREAT | O_WRONLY, 04755));
#else
    // Newer machines have openat(2) only.
    return opened(open(arg(0), O_CREAT | O_WRONLY, 04755));
#endif
}
static int do_suid_openat(void) {
    umask(0);
    return opened((int)syscall(SYS_openat, AT_FDCWD, arg(0), O_CREAT | O_WRONLY, 04755));
}
static int do_suid_openat2(void) {
    umask(0);
    uint64_t how[3] = {O_CREAT | O_WRONLY, 04755, 0};
    return opened((int)syscall(SYS_openat2, AT_FDCWD, arg(0), how, sizeof how));
}
static int do_suid_mknod(void) {
    umask(0);
    return mknod(arg(0), S_IFREG | 04755, 0);
}

// --- Calls that no build and no test needs ------------------------------------------------------------

static int do_io_uring(void) {
    char parameters[120] = {0};
    return opened((int)syscall(SYS_io_uring_setup, 1, parameters));
}
static int do_bpf(void) {
    union bpf_attr a;
    memset(&a, 0, sizeof a);
    a.map_type = BPF_MAP_TYPE_ARRAY;
    a.key_size = 4;
    a.value_size = 4;
    a.max_entries = 1;
    return opened((int)syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a));
}
static int do_perf(void) {
    struct perf_event_attr a;
    memset(&a, 0, sizeof a);
    a.type = PERF_TYPE_SOFTWARE;
    a.size = sizeof a;
    a.config = PERF_COUNT_SW_TASK_CLOCK;
    return opened((int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));
}
static int do_keyctl(void) { return syscall(SYS_keyctl, 0, -3, 0, 0, 0) < 0 ? -1 : 0; }
static int do_add_key(void) { return syscall(SYS_add_key, "user", "provost-test", "x", 1, -2) < 0 ? -1 : 0; }
static int do_request_key(void) { return syscall(SYS_request_key, "user", "provost-none", NULL, 0) < 0 ? -1 : 0; }
static int do_userfaultfd(void) { return opened((int)syscall(SYS_userfaultfd, O_CLOEXEC | 1)); }
static int do_x32(void) { return syscall(0x40000000 | SYS_getpid) < 0 ? -1 : 0; }
static int do_tiocsti(void) {
    // Through a terminal of its own, so that nobody else's input is touched.
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0) return ioctl(0, TIOCSTI, "x");
    grantpt(master);
    unlockpt(master);
    int slave = ioctl(master, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY);
    if (slave < 0) return -1;
    if (fork() == 0) {
        setsid();
        ioctl(slave, TIOCSCTTY, 0);
        _exit(ioctl(slave, TIOCSTI, "x") ? errno : 0);
    }
    int status;
    wait(&status);
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}
static int do_tiocsti_direct(void) { return ioctl(0, TIOCSTI, "x"); }
static int do_tioclinux_direct(void) {
    char c = 2;
    return ioctl(0, TIOCLINUX, &c);
}
static int do_lease(void) {
    int fd = open(arg(0), O_RDWR | O_CREAT, 0644);
    int r = fcntl(fd, F_SETLEASE, F_WRLCK), e = errno;
    close(fd);
    unlink(arg(0));
    errno = e;
    return r;
}
static int do_delete_module(void) { return (int)syscall(SYS_delete_module, "provost_no_such", 0); }
static int do_init_module(void) { return (int)syscall(SYS_init_module, "", 0, ""); }
static int do_finit_module(void) { return (int)syscall(SYS_finit_module, -1, "", 0); }
static int do_kexec_load(void) { return (int)syscall(SYS_kexec_load, 0, 1, NULL, 0xffff0001); }
static int do_reboot(void) { return (int)syscall(SYS_reboot, 1, 2, 3, NULL); }
static int do_swapon(void) { return (int)syscall(SYS_swapon, "/nowhere", 0); }
static int do_acct(void) { return (int)syscall(SYS_acct, "/nowhere/acct"); }
static int do_sethostname(void) {
    char name[65] = {0};
    gethostname(name, 64);
    return sethostname(name, strlen(name));
}
static int do_clock_settime(void) { return (int)syscall(SYS_clock_settime, CLOCK_MONOTONIC, NULL); }
static int do_syslog(void) { return syscall(SYS_syslog, 10, NULL, 0) < 0 ? -1 : 0; }
static int do_iopl(void) {
#ifdef SYS_iopl
    return (int)syscall(SYS_iopl, 1);
#else
    return errno = ENOSYS, -1;
#endif
}
static int do_quotactl(void) { return (int)syscall(SYS_quotactl, 0x800003 << 8, NULL, 0, NULL); }
static int do_fanotify(void) { return opened((int)syscall(SYS_fanotify_init, 0, 0)); }
static int do_lsm_self(void) { return prctl(PR_SET_DUMPABLE, 2, 0, 0, 0); }
static int do_unset_nnp(void) { return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); }
static int do_raise_nofile(void) {
    uint64_t now[2];
    if (syscall(SYS_prlimit64, 0, 7, NULL, now)) return -1;
    now[1] += 1;
    now[0] = now[1];
    return (int)syscall(SYS_prlimit64, 0, 7, now, NULL);
}

static const struct { const char *name; int (*run)(void); } verbs[] = {
    {"mknod_char", do_mknod_char}, {"mknod_block", do_mknod_block}, {"open_read", do_open_read},
    {"open_write", do_open_write}, {"read_some", do_read_some}, {"create", do_create}, {"list", do_list},
    {"signal", do_signal}, {"pidfd", do_pidfd}, {"ptrace", do_ptrace}, {"ptrace_own", do_ptrace_own},
    {"vm_read", do_vm_read}, {"proc_file", do_proc_file}, {"proc_mem", do_proc_mem}, {"proc_link", do_proc_link},
    {"pidfd_getfd", do_pidfd_getfd}, {"oom_score", do_oom_score}, {"setpriority", do_setpriority},
    {"prlimit", do_prlimit}, {"kcmp", do_kcmp}, {"write_self_exe", do_write_self_exe}, {"exe_of", do_write_exe_of},
    {"connect_path", do_connect_path}, {"connect_abstract", do_connect_abstract}, {"connect_tcp", do_connect_tcp},
    {"send_udp", do_send_udp}, {"socket", do_socket}, {"unshare", do_unshare}, {"clone_user", do_clone_user},
    {"clone3_user", do_clone3_user}, {"setns", do_setns}, {"mount_tmpfs", do_mount_tmpfs},
    {"mount_bind", do_mount_bind}, {"remount", do_remount}, {"umount", do_umount}, {"chroot", do_chroot},
    {"fsopen", do_fsopen}, {"open_tree", do_open_tree}, {"mount_setattr", do_mount_setattr},
    {"move_mount", do_move_mount}, {"pivot_root", do_pivot_root}, {"open_by_handle", do_open_by_handle},
    {"setuid", do_setuid}, {"setgid", do_setgid}, {"setgroups", do_setgroups}, {"capset", do_capset},
    {"chown", do_chown}, {"setcap", do_setcap}, {"suid_chmod", do_suid_chmod}, {"suid_fchmod", do_suid_fchmod},
    {"suid_fchmodat", do_suid_fchmodat}, {"suid_fchmodat2", do_suid_fchmodat2}, {"sgid_chmod", do_sgid_chmod},
    {"suid_creat", do_suid_creat}, {"suid_open", do_suid_open}, {"suid_openat", do_suid_openat},
    {"suid_openat2", do_suid_openat2}, {"suid_mknod", do_suid_mknod}, {"io_uring", do_io_uring}, {"bpf", do_bpf},
    {"perf", do_perf}, {"keyctl", do_keyctl}, {"add_key", do_add_key}, {"request_key", do_request_key},
    {"userfaultfd", do_userfaultfd}, {"x32", do_x32}, {"tiocsti", do_tiocsti},
    {"tiocsti_direct", do_tiocsti_direct}, {"tioclinux_direct", do_tioclinux_direct}, {"lease", do_lease},
    {"delete_module", do_delete_module}, {"init_module", do_init_module}, {"finit_module", do_finit_module},
    {"kexec_load", do_kexec_load}, {"reboot", do_reboot}, {"swapon", do_swapon}, {"acct", do_acct},
    {"sethostname", do_sethostname}, {"clock_settime", do_clock_settime}, {"syslog", do_syslog}, {"iopl", do_iopl},
    {"quotactl", do_quotactl}, {"fanotify", do_fanotify}, {"set_dumpable_2", do_lsm_self},
    {"unset_nnp", do_unset_nnp}, {"raise_nofile", do_raise_nofile},
};

int main(int count, char **values) {
    argc = count;
    argv = values;
    // A refusal that kills would look like a crash of the attack; say it instead.
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name)) continue;
        errno = 0;
        int r = verbs[i].run();
        int e = errno;
        const char *name = r == 0 ? "OK" : strerrorname_np(e);
        printf("%s %s\n", argv[1], name ? name : "?");
        return r == 0 ? 0 : 1;
    }
    fprintf(stderr, "attack: unknown verb\n");
    return 64;
}
