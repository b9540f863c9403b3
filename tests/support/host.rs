//! The host's view: processes, descriptors, mounts, memory, as /proc shows them outside of a sandbox; file systems that a test mounts;
//! and marked commands, each of which sleeps for a time of its own, by which the host's processes are told apart.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{Gateway, TestGroup, eventually};

/// How long a file system may be in use after the test.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(30);

/// One process, as the host sees it.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its id on the host.
    pub pid: u32,
    /// /proc/PID/status.
    pub status: String,
}

impl Process {
    /// Reads a process; None when it is gone.
    pub fn read(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Self { pid, status })
    }

    /// A field of /proc/PID/status.
    pub fn field(&self, name: &str) -> &str {
        self.status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        self.field("State").starts_with(['Z', 'X'])
    }

    /// Whether it is stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        self.field("State").starts_with('T')
    }

    /// Its command line, with spaces between the arguments.
    pub fn command_line(&self) -> String {
        fs::read(format!("/proc/{}/cmdline", self.pid))
            .map(|b| String::from_utf8_lossy(&b).trim_end_matches('\0').replace('\0', " "))
            .unwrap_or_default()
    }

    /// A size of its status, in KiB.
    pub fn kib(&self, name: &str) -> u64 {
        self.field(name).trim_end_matches(" kB").trim().parse().unwrap_or(0)
    }

    /// Its memory in bytes: what is resident.
    pub fn resident_bytes(&self) -> u64 {
        self.kib("VmRSS") * 1024
    }

    /// Links of its descriptors.
    pub fn descriptors(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return Vec::new() };
        let mut all: Vec<String> = entries
            .flatten()
            .map(|e| fs::read_link(e.path()).map(|l| l.display().to_string()).unwrap_or_default())
            .collect();
        all.sort();
        all
    }

    /// The target of /proc/PID/ns/KIND.
    pub fn namespace(&self, kind: &str) -> String {
        fs::read_link(format!("/proc/{}/ns/{kind}", self.pid))
            .map(|l| l.display().to_string())
            .unwrap_or_default()
    }

    /// The living processes whose command line contains `marker`. Zombies are not alive, but a process whose main
    /// thread alone has exited is.
    pub fn all_marked(marker: &str) -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(Self::read)
            .filter_map(|process| if process.is_zombie() { process.living_thread() } else { Some(process) })
            .filter(|process| process.command_line().contains(marker))
            .collect()
    }

    /// A thread that goes on after its main thread. It has the command line that the main one has no more.
    fn living_thread(&self) -> Option<Self> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let ids = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        ids.filter_map(Self::read).find(|thread| !thread.is_zombie())
    }
}

/// What a gateway and its sandboxes take up: the baseline to which everything must come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// Processes in the gateway's cgroup, itself and supervisors included, launchers not: one waits for the next launch,
    /// and is replaced behind what is told of a launch.
    pub processes: usize,
    /// Cgroups below the gateway's.
    pub groups: usize,
    /// Mounts of the host in or of the gateway's directory. Other tests mount things of their own meanwhile.
    pub mounts: usize,
    /// Descriptors of the gateway and of all its supervisors, without those of launchers and to them.
    pub descriptors: usize,
    /// Entries in the state directory, at any depth, but for the journal's: that grows, and renews its `head` behind
    /// what it tells of; and but for what is known of workspaces, which is written off the way of the commands and goes
    /// with the session.
    pub state_entries: usize,
}

impl Footprint {
    /// Takes it now. `pid` is the gateway's.
    pub fn take(pid: u32, group: &TestGroup, state: &Path) -> Self {
        let (launchers, processes): (Vec<u32>, Vec<u32>) =
            group.processes().into_iter().partition(|process| is_launcher(*process, pid));
        Self {
            processes: processes.len(),
            groups: group.groups().len(),
            mounts: mounts_of(state.parent().unwrap_or(state)),
            descriptors: processes
                .iter()
                .chain(if processes.contains(&pid) { None } else { Some(&pid) })
                .filter_map(|&pid| Process::read(pid))
                .map(|process| process.descriptors().len())
                .sum::<usize>()
                .saturating_sub(launchers.len()),
            state_entries: entries_of_state(state),
        }
    }
}

/// Mounts of the host that lie in a directory, or show something of it.
pub(crate) fn mounts_of(directory: &Path) -> usize {
    let directory = directory.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter(|line| line.contains(&directory)).count()
}

/// Whether exactly one launcher of the gateway waits, and none has ended without being reaped.
pub(crate) fn is_at_rest(gateway: u32) -> bool {
    let children = children_of(gateway);
    let launchers = children.iter().filter(|child| is_launcher(**child, gateway)).count();
    let zombies = children.iter().filter_map(|child| Process::read(*child)).filter(Process::is_zombie);
    launchers == 1 && zombies.count() == 0
}

/// A child of the gateway that is in no pid namespace of its own.
fn is_launcher(pid: u32, gateway: u32) -> bool {
    Process::read(pid).is_some_and(|process| {
        let is_child = process.field("PPid") == gateway.to_string();
        is_child && !process.is_zombie() && process.field("NSpid").split_whitespace().count() == own_depth()
    })
}

/// In how many pid namespaces this process is, and with it the gateway.
fn own_depth() -> usize {
    let own = Process::read(std::process::id()).map(|process| process.field("NSpid").to_owned());
    own.unwrap_or_default().split_whitespace().count()
}

/// By /proc/PID/task/TID/children: whichever thread has made them.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|children| {
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Counted in one walk: a file that came between two would be taken off and never have been counted.
fn entries_of_state(state: &Path) -> usize {
    let is_counted = |path: &PathBuf| {
        let mut parts = path.strip_prefix(state).unwrap_or(path).components();
        let first = parts.next().map(|part| part.as_os_str().to_owned()).unwrap_or_default();
        first != "workspaces" && (first != "journal" || parts.next().is_none())
    };
    paths_below(state).iter().filter(|path| is_counted(path)).count()
}

/// Everything in a directory, at any depth.
pub(crate) fn paths_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(paths_below(&entry.path()));
        }
    }
    found
}

/// A file system that a test has mounted, taken down with it.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Runs `mount` with these arguments and this mount point. `None`: it cannot be had here.
    pub fn try_new(arguments: &[&str], at: &Path) -> Option<Self> {
        let status = Command::new("mount").args(arguments).arg(at).status();
        status.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was open in it a moment ago may still be closed, by another thread.
        let begun = Instant::now();
        loop {
            let done = Command::new("umount").arg("--recursive").arg(&self.0).output();
            if done.as_ref().is_ok_and(|done| done.status.success()) {
                return;
            }
            if begun.elapsed() > IN_USE_TIMEOUT {
                // A second panic would hide the first.
                assert!(thread::panicking(), "{} is not unmounted: {done:?}", self.0.display());
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A mark that no other process of the host has in its command line, and that is part of no other. It is a number of seconds.
pub fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("31{:010}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes of the host that sleep for the marked time. A process that has ended counts until it is reaped.
pub fn sleeping(mark: &str) -> usize {
    sleepers(mark).len()
}

/// The ids of those processes.
pub fn sleepers(mark: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let is_marked = |id: &i32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.starts_with(b"sleep\0") && String::from_utf8_lossy(&line).contains(mark)
    };
    ids.filter(is_marked).collect()
}

/// Waits until that many sleep for the marked time.
pub fn wait_for_sleepers(mark: &str, count: usize) {
    wait_until("as many marked commands", || sleeping(mark) == count);
}

/// Waits until a gateway has no session.
pub fn wait_for_sessions_end(gateway: &Gateway) {
    let sessions = gateway.state.join("sessions");
    wait_until("the end of all sessions", || fs::read_dir(&sessions).map_or(0, Iterator::count) == 0);
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(eventually(what, || is_so().then_some(())));
}
