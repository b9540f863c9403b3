//! One forbidden thing at a time: it works outside, and inside it fails with the errno that is meant.

use crate::support::lacks;
use crate::support::{Attack, Gateway, Session, in_session, is_root, run_outside, skip};

/// What the attack does outside, as root.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outside {
    /// It works.
    Works,
    /// The kernel gets as far as this complaint about the harmless argument: it would have gone on.
    Reaches(&'static str),
    /// This kernel or host has not got it; only the refusal inside can be seen.
    Absent,
}

use Outside::{Absent, Reaches, Works};

struct Case {
    verb: &'static str,
    arguments: &'static [&'static str],
    outside: Outside,
    inside: &'static str,
}

const fn case(
    verb: &'static str,
    arguments: &'static [&'static str],
    outside: Outside,
    inside: &'static str,
) -> Case {
    Case { verb, arguments, outside, inside }
}

/// `{W}` is the workspace (outside: a directory of the test's), `{PID}` a process (outside: a child of the test).
fn filled(arguments: &[&str], workspace: &str, pid: &str) -> Vec<String> {
    arguments.iter().map(|a| a.replace("{W}", workspace).replace("{PID}", pid)).collect()
}

async fn all_are_refused(cases: &[Case]) {
    if !is_root() {
        return skip("as an ordinary user these attacks do not work outside either");
    }
    let gateway = Gateway::shared();
    let attack = Attack::compiled("attack");
    let outside = gateway.directory().join(format!("outside-{:?}", std::thread::current().id()));
    std::fs::create_dir_all(&outside).expect("a directory can be made");
    let mut victim = std::process::Command::new("sleep").arg("1000").spawn().expect("a child");
    let pid = victim.id().to_string();
    let mut wrong = Vec::new();
    for one in cases {
        let arguments = filled(one.arguments, &outside.display().to_string(), &pid);
        let full: Vec<&str> = std::iter::once(one.verb).chain(arguments.iter().map(String::as_str)).collect();
        if one.outside == Absent {
            continue;
        }
        let (_, said) = run_outside(&attack, &full);
        let expected = match one.outside {
            Works => "OK",
            Reaches(errno) => errno,
            Absent => continue,
        };
        if said.trim() != format!("{} {expected}", one.verb) {
            wrong.push(format!("outside, {full:?} gave {said:?} and not {expected}"));
        }
    }
    victim.kill().expect("the child is ours");
    victim.wait().expect("the child is ours");
    in_session(&gateway, async |session| {
        for one in cases {
            // PID 1 inside is the supervisor.
            let arguments = filled(one.arguments, &session.workspace.display().to_string(), "1");
            let done = session.attack("attack").args([one.verb.to_owned()]).args(arguments).finish().await;
            // The kernel may be built without it, where another one refuses.
            let refused = |errno: &str| done.text().trim() == format!("{} {errno}", one.verb);
            if !one.inside.split(" or ").any(refused) {
                wrong.push(format!(
                    "inside, {} {:?} gave {:?} ({:?}) and not {}",
                    one.verb,
                    one.arguments,
                    done.text(),
                    done.outcome.end,
                    one.inside
                ));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn devices_can_be_neither_made_nor_reached() {
    all_are_refused(&[
        case("mknod_char", &["{W}/null"], Works, "EPERM"),
        case("mknod_block", &["{W}/loop"], Works, "EPERM"),
        case("open_read", &["/dev/mem"], Absent, "ENOENT"),
        case("open_read", &["/dev/kmsg"], Works, "ENOENT"),
        case("open_read", &["/dev/vda"], Absent, "ENOENT"),
        case("open_read", &["/dev/loop-control"], Absent, "ENOENT"),
        case("open_read", &["/dev/fuse"], Absent, "ENOENT"),
        case("open_read", &["/dev/kvm"], Absent, "ENOENT"),
        case("open_read", &["/dev/net/tun"], Absent, "ENOENT"),
        case("create", &["/dev/shm-not"], Works, "EROFS"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_kernels_switches_are_out_of_reach() {
    all_are_refused(&[
        case("open_write", &["/proc/sys/kernel/core_pattern"], Works, "EACCES"),
        case("open_write", &["/proc/sys/kernel/hostname"], Works, "EACCES"),
        case("open_write", &["/proc/sys/vm/drop_caches"], Works, "EACCES"),
        case("open_write", &["/proc/sysrq-trigger"], Absent, "ENOENT or EACCES"),
        case("open_write", &["/proc/self/oom_score_adj"], Works, "EROFS"),
        case("open_write", &["/proc/self/uid_map"], Works, "EROFS"),
        case("list", &["/sys/class"], Works, "ENOENT"),
        case("list", &["/sys/kernel"], Works, "ENOENT"),
        case("list", &["/sys/kernel/security"], Absent, "ENOENT"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_supervisor_cannot_be_touched_or_looked_into() {
    all_are_refused(&[
        case("signal", &["{PID}"], Works, "EPERM"),
        case("ptrace", &["{PID}"], Works, "EPERM"),
        case("vm_read", &["{PID}"], Works, "EPERM"),
        case("pidfd_getfd", &["{PID}"], Works, "EPERM"),
        case("kcmp", &["{PID}"], Works, "EPERM"),
        case("prlimit", &["{PID}"], Works, "EPERM"),
        case("setpriority", &["{PID}"], Works, "EPERM"),
        case("proc_file", &["{PID}", "environ"], Works, "ENOENT"),
        case("proc_file", &["{PID}", "cmdline"], Works, "ENOENT"),
        case("proc_file", &["{PID}", "maps"], Works, "ENOENT"),
        case("proc_mem", &["{PID}"], Works, "ENOENT"),
        case("proc_link", &["{PID}", "root"], Works, "ENOENT"),
        case("proc_link", &["{PID}", "cwd"], Works, "ENOENT"),
        case("proc_link", &["{PID}", "fd/0"], Works, "ENOENT"),
        case("proc_link", &["{PID}", "ns/mnt"], Works, "ENOENT"),
        case("exe_of", &["{PID}"], Works, "ENOENT"),
        case("oom_score", &["{PID}"], Works, "ENOENT"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_namespace_can_be_made_or_entered() {
    all_are_refused(&[
        case("unshare", &["user"], Works, "EPERM"),
        case("unshare", &["mnt"], Works, "EPERM"),
        case("unshare", &["pid"], Works, "EPERM"),
        case("unshare", &["net"], Works, "EPERM"),
        case("unshare", &["ipc"], Works, "EPERM"),
        case("unshare", &["uts"], Works, "EPERM"),
        case("unshare", &["cgroup"], Works, "EPERM"),
        case("unshare", &["time"], Works, "EPERM"),
        case("clone_user", &[], Works, "EPERM"),
        // The flags lie in memory where a filter cannot look. With a gate there is no such call; without one the namespace limit refuses.
        case("clone3_user", &[], Works, "ENOSYS"),
        case("setns", &["/proc/self/ns/mnt"], Works, "EPERM"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_can_be_mounted_unmounted_or_made_the_root() {
    all_are_refused(&[
        case("mount_tmpfs", &["/mnt", "own"], Works, "EPERM"),
        case("mount_bind", &["/mnt", "own"], Works, "EPERM"),
        case("remount", &["own"], Works, "EPERM"),
        case("umount", &["/proc", "own"], Works, "EPERM"),
        case("mount_tmpfs", &["/tmp"], Absent, "EPERM"),
        case("umount", &["/etc/passwd"], Absent, "EPERM"),
        case("chroot", &[], Works, "EPERM"),
        case("fsopen", &[], Works, "EPERM"),
        case("open_tree", &[], Works, "EPERM"),
        case("mount_setattr", &[], Works, "EPERM"),
        case("move_mount", &[], Reaches("ENOENT"), "EPERM"),
        case("pivot_root", &[], Reaches("ENOENT"), "EPERM"),
        case("open_by_handle", &["{W}"], Works, "EPERM"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_identity_and_no_capability_can_be_gained() {
    all_are_refused(&[
        case("setuid", &[], Works, "EPERM"),
        case("setgid", &[], Works, "EPERM"),
        case("setgroups", &[], Works, "EPERM"),
        case("capset", &[], Works, "EPERM"),
        case("chown", &["{W}/f"], Works, "EINVAL"),
        case("setcap", &["{W}/f"], Works, "EPERM"),
        case("sethostname", &[], Works, "EPERM"),
    ])
    .await;
}

/// What a call of x86 is answered with: other machines do not have it, and their filter does not know it.
const ON_X86_ONLY: &str = if cfg!(target_arch = "x86_64") { "EPERM" } else { "ENOSYS" };

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_no_build_and_no_test_needs_are_refused() {
    all_are_refused(&[
        case("io_uring", &[], Works, "ENOSYS"),
        case("bpf", &[], Works, "EPERM"),
        case("perf", &[], Works, "EPERM"),
        case("keyctl", &[], Works, "EPERM"),
        case("add_key", &[], Works, "EPERM"),
        case("request_key", &[], Reaches("ENOKEY"), "EPERM"),
        case("userfaultfd", &[], Works, "EPERM"),
        // This kernel may be built without x32 or modules; inside it is the filter that answers, before the kernel.
        case("x32", &[], Absent, ON_X86_ONLY),
        case("delete_module", &[], Absent, "EPERM"),
        case("init_module", &[], Absent, "EPERM"),
        case("finit_module", &[], Absent, "EPERM"),
        case("kexec_load", &[], Absent, "EPERM"),
        case("iopl", &[], Absent, ON_X86_ONLY),
        case("reboot", &[], Reaches("EINVAL"), "EPERM"),
        case("swapon", &[], Reaches("ENOENT"), "EPERM"),
        case("acct", &[], Reaches("ENOENT"), "EPERM"),
        case("clock_settime", &[], Reaches("EINVAL"), "EPERM"),
        case("syslog", &[], Works, "EPERM"),
        case("quotactl", &[], Reaches("ENODEV"), "EPERM"),
        case("fanotify", &[], Works, "EPERM"),
        case("tiocsti", &[], Works, "EPERM"),
        case("tiocsti_direct", &[], Reaches("ENOTTY"), "EPERM"),
        case("tioclinux_direct", &[], Reaches("ENOTTY"), "EPERM"),
        // On a network file system there are none.
        case("lease", &["{W}/leased"], Works, "EPERM"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sockets_of_families_that_reach_past_the_network_namespace_are_refused() {
    all_are_refused(&[
        // AF_VSOCK reaches the hypervisor whatever the network namespace is.
        case("socket", &["40", "1", "0"], Absent, "EAFNOSUPPORT"),
        case("socket", &["17", "3", "0"], Works, "EAFNOSUPPORT"),
        case("socket", &["38", "5", "0"], Absent, "EAFNOSUPPORT"),
        case("socket", &["15", "3", "2"], Absent, "EAFNOSUPPORT"),
        case("socket", &["30", "5", "0"], Absent, "EAFNOSUPPORT"),
        case("socket", &["2", "3", "1"], Works, "EPERM"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_builds_and_tests_need_works() {
    if lacks(&["python3"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        for (verb, arguments) in [
            ("ptrace_own", &[][..]),
            ("socket", &["1", "1", "0"]),
            ("socket", &["2", "1", "0"]),
            ("socket", &["10", "1", "0"]),
            ("socket", &["16", "3", "0"]),
            ("create", &["/tmp/file"]),
            ("create", &["/dev/shm/file"]),
            ("open_write", &["/dev/null"]),
            ("read_some", &["/dev/urandom"]),
            ("read_some", &["/proc/self/status"]),
            ("read_some", &["/etc/passwd"]),
            ("list", &["/proc/self/fd"]),
        ] {
            let done = session.attack("attack").args([verb]).args(arguments.iter().copied()).finish().await;
            assert_eq!(done.text(), format!("{verb} OK\n"), "{arguments:?}");
        }
        let done = session
            .command("python3")
            .args(["-c", "import os,pty; a,b=pty.openpty(); os.write(b,b'x'); print(os.read(a,1))"]);
        assert_eq!(done.finish().await.text(), "b'x'\n", "a terminal of its own");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_running_program_cannot_be_written_through_its_own_link() {
    in_session(&Gateway::shared(), async |session| {
        // A host program, and the command's own. The way of CVE-2019-5736 needs the supervisor's: see above.
        let before = std::fs::metadata("/bin/sh").and_then(|m| m.modified()).expect("a shell");
        let done = session.sh("exec 3>>/proc/self/exe; echo opened; echo x >&3").finish().await;
        assert!(!done.text().contains("opened\n") || done.text().contains("rror"), "{}", done.text());
        assert_eq!(std::fs::metadata("/bin/sh").and_then(|m| m.modified()).expect("a shell"), before);
        let done = session.attack("attack").args(["write_self_exe"]).finish().await;
        assert_eq!(done.text(), "write_self_exe ETXTBSY\n");
        let script = "p=$(cut -d' ' -f4 /proc/self/stat); cat /proc/1/exe > stolen 2>/dev/null && echo stolen; ls -l stolen";
        let done = session.sh(script).finish().await;
        assert!(!done.text().contains("stolen\nstolen"), "{}", done.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn set_id_programs_and_file_capabilities_give_nothing() {
    if !is_root() {
        return skip("only root can make a set-id program of root's");
    }
    use std::os::unix::fs::PermissionsExt;
    in_session(&Gateway::shared(), async |session: &Session| {
        // The host's own, if there is one, and one of root's that was put into the workspace.
        let planted = session.workspace.join("planted");
        // By another process: a child of another test could inherit a descriptor that is open for writing (ETXTBSY).
        let copied = std::process::Command::new("cp").arg(Attack::compiled("attack").program).arg(&planted).status();
        assert!(copied.is_ok_and(|status| status.success()), "a copy");
        std::os::unix::fs::chown(&planted, Some(0), Some(0)).expect("root may");
        std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o6755)).expect("root may");
        let set = std::process::Command::new("setpriv")
            .args(["--reuid", "12345", "--clear-groups"])
            .arg(&planted)
            .arg("open_write")
            .arg("/etc/shadow")
            .output();
        if let Ok(outside) = set {
            let said = String::from_utf8_lossy(&outside.stdout).into_owned();
            assert_eq!(said, "open_write OK\n", "outside, an ordinary user becomes root by it");
        }
        let done = session.command(&planted.display().to_string()).args(["setuid"]).finish().await;
        assert_eq!(done.text(), "setuid EPERM\n");
        let done = session.sh("for p in /usr/bin/su /usr/bin/passwd /usr/bin/mount; do [ -e $p ] && $p --help >/dev/null 2>&1; done; grep -E '^(Uid|CapEff)' /proc/self/status").finish().await;
        assert!(done.text().contains("CapEff:\t0000000000000000"), "{}", done.text());
    })
    .await;
}
