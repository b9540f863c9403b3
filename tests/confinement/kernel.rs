//! What of the kernel is out of a command's reach: calls that no build needs, and files about the whole machine.

use std::fs;

use crate::support::{Attack, Gateway, Process, in_session, is_root, run_outside, signal_name, skip};

/// What a command is answered. What is not named here has the kernel's own answer.
const REFUSED: [(&str, &[&str]); 5] = [
    ("EPERM", &["fanotify", "listener", "sti", "sti-high", "setd", "setd-high", "linux", "cons"]),
    (
        "ENOSYS",
        &[
            "memfd-secret",
            "io-setup",
            "cachestat",
            "statmount",
            "listmount",
            "lsm-get",
            "lsm-set",
            "lsm-list",
            "later",
        ],
    ),
    (
        "EAFNOSUPPORT",
        &["packet", "vsock", "alg", "key", "can", "tipc", "bluetooth", "rds", "kcm", "smc", "xdp", "qipcrtr"],
    ),
    (
        "EPROTONOSUPPORT",
        &[
            "sctp",
            "sctp6",
            "dccp",
            "mptcp",
            "l2tp",
            "udplite",
            "nl-xfrm",
            "nl-audit",
            "nl-netfilter",
            "nl-connector",
            "nl-crypto",
            "nl-generic",
        ],
    ),
    ("0", &["own-filter", "tcp", "udp6", "unix", "nl-route", "nl-diag"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_no_build_needs_are_refused_and_those_that_programs_use_are_not() {
    let outside = run_outside(&Attack::compiled("unusual"), &[]).1;
    for name in ["fanotify", "listener", "packet", "nl-xfrm", "setd"] {
        // A small kernel has not all of them.
        let is_absent = ["EPROTONOSUPPORT", "EAFNOSUPPORT", "ENOSYS"]
            .iter()
            .any(|errno| outside.contains(&format!("{name}={errno}\n")));
        let works = outside.contains(&format!("{name}=0\n"));
        assert!(!is_root() || works || is_absent, "{name} works outside: {outside}");
    }
    in_session(&Gateway::shared(), async |session| {
        let inside = session.attack("unusual").finish().await.text();
        let wrong: Vec<_> = REFUSED
            .iter()
            .flat_map(|(answer, names)| names.iter().map(move |name| format!("{name}={answer}")))
            .filter(|line| !inside.lines().any(|said| said == line))
            .collect();
        assert!(wrong.is_empty(), "expected {wrong:?} of\n{inside}");
    })
    .await;
}

/// Files of /proc about the machine. Which of them there are is the kernel's affair; what can be read of them is ours.
pub(super) const ABOUT_THE_MACHINE: &str = "keys key-users kallsyms modules timer_list sched_debug schedstat slabinfo allocinfo \
    vmallocinfo pagetypeinfo latency_stats locks kmsg kcore kpagecount kpageflags kpagecgroup iomem ioports interrupts \
    bootconfig sysrq-trigger cmdline buddyinfo zoneinfo softirqs diskstats consoles";

/// Directories of /proc about devices, interrupts and file systems of the machine.
pub(super) const DIRECTORIES_ABOUT_THE_MACHINE: &str = "acpi asound bus driver fs ide irq scsi";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_about_the_machine_say_nothing() {
    // Not those that give without end, or wait.
    let look = format!(
        "for file in {ABOUT_THE_MACHINE}; do
            bytes=$(timeout 5 head -c 64 /proc/$file 2>/dev/null | wc -c); [ $bytes = 0 ] || echo $file: $bytes
         done
         for directory in {DIRECTORIES_ABOUT_THE_MACHINE}; do
            [ -z \"$(ls -A /proc/$directory 2>/dev/null)\" ] || echo $directory: not empty
         done; echo looked"
    );
    if is_root() {
        for name in ["key-users", "kallsyms", "iomem", "locks"] {
            let there = fs::read(format!("/proc/{name}"));
            println!("{name} outside: {:?}", there.map(|content| content.len()).ok());
        }
        assert!(!fs::read("/proc/key-users").unwrap_or_default().is_empty(), "outside it says something");
        assert!(!fs::read("/proc/cmdline").unwrap_or_default().is_empty(), "outside it says something");
        assert!(
            fs::read_dir("/proc/irq").is_ok_and(|mut irqs| irqs.next().is_some()),
            "outside there are some"
        );
    }
    in_session(&Gateway::shared(), async |session| {
        assert_eq!(session.sh(&look).finish().await.text(), "looked\n");
        // What programs size themselves by is there.
        let sizes = "grep -c ^processor /proc/cpuinfo; grep -c MemTotal /proc/meminfo; cut -d' ' -f1 /proc/loadavg; \
                     head -n1 /proc/stat | cut -c1-3";
        let said = session.sh(sizes).finish().await.text();
        assert!(said.lines().count() == 4 && said.ends_with("cpu\n"), "{said}");
        let trigger = session.sh("echo h > /proc/sysrq-trigger || echo refused").finish().await.text();
        assert!(trigger.ends_with("refused\n"), "{trigger}");
    })
    .await;
}

/// Sets `fs.suid_dumpable` for a moment, and back.
struct SuidDumpable(String);

const SUID_DUMPABLE: &str = "/proc/sys/fs/suid_dumpable";

impl SuidDumpable {
    fn set(value: &str) -> Option<Self> {
        let before = fs::read_to_string(SUID_DUMPABLE).ok()?;
        fs::write(SUID_DUMPABLE, value).ok()?;
        Some(Self(before))
    }
}

impl Drop for SuidDumpable {
    fn drop(&mut self) {
        let _ = fs::write(SUID_DUMPABLE, self.0.trim());
    }
}

/// The kernel gives the files in /proc of a process that cannot be dumped to root, whatever user the process runs as.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_supervisor_cannot_be_dumped_whatever_the_host_says_of_changed_ids() {
    use std::os::unix::fs::MetadataExt;
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let Some(held) = SuidDumpable::set("1") else {
            return skip("fs.suid_dumpable cannot be set here");
        };
        let marker = session.marker();
        let idle = session.idle(&marker).create().await;
        idle.until("ready").await;
        drop(held);
        let supervisors: Vec<Process> = gateway
            .group
            .processes()
            .into_iter()
            .filter(|pid| *pid != gateway.pid_now())
            .filter_map(Process::read)
            // PID 1 of a namespace of its own.
            .filter(|process| process.field("NSpid").split_whitespace().skip(1).eq(["1"]))
            .collect();
        assert_eq!(supervisors.len(), 1);
        for supervisor in supervisors {
            let files = fs::metadata(format!("/proc/{}/environ", supervisor.pid)).expect("it is there");
            let uid = supervisor.field("Uid").split_whitespace().next().unwrap_or_default();
            assert_ne!(uid, "0", "else this tells nothing");
            assert_eq!(files.uid(), 0, "its memory is nobody's");
        }
        idle.release().await;
    })
    .await;
}

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// Names a program of the host that is given the memory of what crashes, for a moment.
struct CoreHandler(String);

impl CoreHandler {
    fn name() -> Option<Self> {
        let before = fs::read_to_string(CORE_PATTERN).ok()?;
        // It reads all there is.
        fs::write(CORE_PATTERN, "|/usr/bin/wc -c").ok()?;
        Some(Self(before))
    }
}

impl Drop for CoreHandler {
    fn drop(&mut self) {
        let _ = fs::write(CORE_PATTERN, self.0.trim_end());
    }
}

/// A limit of 0 keeps the kernel from writing a file, not from handing the memory to a program of root's on the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_crash_hands_no_memory_to_a_program_of_the_hosts() {
    use std::os::unix::process::ExitStatusExt;
    const CRASH: &str = "ulimit -c 0; kill -SEGV $$";
    let Some(handler) = CoreHandler::name() else {
        return skip("kernel.core_pattern cannot be set here");
    };
    let outside = std::process::Command::new("sh").args(["-c", CRASH]).status().expect("sh starts");
    assert!(outside.core_dumped(), "outside it is handed over: {outside:?}");
    in_session(&Gateway::shared(), async |session| {
        let crashed = session.sh("kill -SEGV $$").finish().await;
        assert_eq!(signal_name(&crashed.outcome), "SIGSEGV");
        assert!(!crashed.outcome.core_dumped, "{:?}", crashed.outcome);
    })
    .await;
    drop(handler);
}
