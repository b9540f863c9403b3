//! Starts a command: the parent's side.
//!
//! The child shares our memory and our descriptor table until its exec, and reports failures in shared memory. The
//! parent waits for the exec with a timeout, unlike vfork(2): another command can stop the child with SIGSTOP just
//! before its exec, and must not stop the supervisor with it. The child tries to execute; the parent resolves no
//! path.

use std::{
    ffi::{CStr, CString, c_char},
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::errno::Errno;

use super::{
    child::{ChildPlan, ExpectedFile, STATUS_BYTES, child},
    clone::{CLONE_INTO_CGROUP, CloneArgs, Stack, clone3},
    file::CallNonce,
    signals,
};
pub use super::{
    child::{ExecBy, ResourceLimit, SpawnStep},
    child_file::ExecutableId,
};

/// A child that has not executed after this time is sent SIGCONT, in case it was stopped.
const CONTINUE_INTERVAL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// After this many times (10 s) it is killed.
const MAX_CONTINUES: u32 = 2000;

/// A step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnStepFailure {
    /// Which.
    pub step: SpawnStep,
    /// Which one of several. For [`SpawnStep::Resolve`]: 1 no execute bit, 2 a directory.
    pub index: u32,
    /// Why.
    pub errno: Errno,
}

/// The ids of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// No change.
    Keep,
    /// These, and no supplementary groups.
    Change {
        /// User id, real, effective and saved.
        uid: u32,
        /// Group id, likewise.
        gid: u32,
    },
}

/// The file that must be executed, or a script that leads to it.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedExecutable<'a> {
    /// As it is given to exec.
    pub path: &'a CStr,
    /// Which file it must be; absent: any.
    pub identity: Option<&'a ExecutableId>,
    /// How it is executed.
    pub exec_by: ExecBy,
}

/// Everything that a child needs. Nothing is allocated after this was built.
#[derive(Debug)]
pub struct SpawnSpec<'a> {
    /// Files to try to execute, in order, as the child sees them after its chdir.
    pub candidates: &'a [CString],
    /// The only file that may be executed, after the scripts that lead to it; then the candidates are not tried. Empty:
    /// there must be none. Absent: any candidate.
    pub expected: Option<&'a [ExpectedExecutable<'a>]>,
    /// The arguments, with `argv[0]`.
    pub argv: &'a [CString],
    /// The environment.
    pub env: &'a [CString],
    /// The working directory: the names on the way from the root to it. No link is followed on that way.
    pub cwd: &'a [CString],
    /// Its `st_dev` and `st_ino`: another directory fails with `ESTALE`. Absent: any.
    pub cwd_identity: Option<(u64, u64)>,
    /// Standard input, output and error; absent ones are /dev/null.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// Standard input is a terminal, which becomes the controlling one.
    pub controlling_terminal: bool,
    /// A v2 cgroup to be cloned into.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `tasks` or `cgroup.procs` files of groups to join, open for writing.
    pub join: &'a [BorrowedFd<'a>],
    /// Limits and their values.
    pub rlimits: &'a [(u32, ResourceLimit)],
    /// Its ids.
    pub ids: Ids,
    /// Its file mode creation mask.
    pub umask: u32,
    /// What the exec has in the argument registers that it does not use.
    pub exec_nonce: ExecNonce,
}

/// execve(2) has all of its words, execveat(2) the last one.
pub type ExecNonce = CallNonce;

/// A command that has executed.
#[derive(Debug)]
pub struct SpawnedProcess {
    /// Its process id in our pid namespace. Ours to reap, so it is not used again before we do.
    pub pid: i32,
    /// /proc/self/status just before the exec.
    pub status: Vec<u8>,
    /// The limits as read back, in the order given.
    pub rlimits: Vec<ResourceLimit>,
}

/// Starts commands, one at a time. Owns descriptors 0, 1 and 2 of this process.
#[derive(Debug)]
pub struct Spawner {
    stack: Stack,
    /// What 0, 1 and 2 are between spawns: /dev/null, all three.
    null: OwnedFd,
    status: Box<[u8; STATUS_BYTES]>,
}

impl Spawner {
    /// Takes over descriptors 0, 1 and 2, resets all signal dispositions and blocks all signals.
    ///
    /// So a child has nothing to reset but its mask.
    ///
    /// # Errors
    /// The errno of open(2), dup3(2), or mmap(2).
    pub fn new() -> Result<Self, Errno> {
        let null =
            File::options().read(true).write(true).open("/dev/null").map_err(|error| errno_of(&error))?;
        let null = OwnedFd::from(null);
        // Not below 3, where it would be overwritten.
        // SAFETY: fcntl(2) on a descriptor that we own makes a new one.
        let high = Errno::result(unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })?;
        // SAFETY: just made for us.
        let null = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(high) };
        let spawner = Self { stack: Stack::new()?, null, status: Box::new([0; STATUS_BYTES]) };
        for slot in 0..3 {
            park(spawner.null.as_fd(), slot)?;
        }
        reset_signals();
        Ok(spawner)
    }

    /// Starts a command and waits until it has executed. `meanwhile` runs in this process at the same time; it
    /// must leave descriptors 0, 1 and 2 alone.
    pub fn spawn<T>(
        &mut self,
        launch: &SpawnSpec<'_>,
        meanwhile: impl FnOnce() -> T,
    ) -> (Result<SpawnedProcess, SpawnStepFailure>, Option<T>) {
        let descriptors = |errno| SpawnStepFailure { step: SpawnStep::Descriptors, index: 0, errno };
        for (slot, descriptor) in (0..).zip(&launch.stdio) {
            if let Some(descriptor) = descriptor
                && let Err(errno) = park(*descriptor, slot)
            {
                self.unpark(launch);
                return (Err(descriptors(errno)), None);
            }
        }
        let (result, value) = self.start(launch, meanwhile);
        self.unpark(launch);
        (result, value)
    }

    /// Restores /dev/null, so that this process does not keep the command's pipes open.
    fn unpark(&self, launch: &SpawnSpec<'_>) {
        for (slot, descriptor) in (0..).zip(&launch.stdio) {
            if descriptor.is_some() {
                // dup3 onto an open descriptor has nothing to allocate and no reason to fail.
                let _ = park(self.null.as_fd(), slot);
            }
        }
    }

    fn start<T>(
        &mut self,
        launch: &SpawnSpec<'_>,
        meanwhile: impl FnOnce() -> T,
    ) -> (Result<SpawnedProcess, SpawnStepFailure>, Option<T>) {
        let candidates = pointers(launch.candidates);
        let expected: Option<Vec<ExpectedFile>> = launch.expected.map(|files| {
            let raw = |file: &ExpectedExecutable<'_>| ExpectedFile {
                path: file.path.as_ptr(),
                identity: file.identity.map_or(ptr::null(), ptr::from_ref),
                exec_by: file.exec_by,
            };
            files.iter().map(raw).collect()
        });
        let argv = pointers(launch.argv);
        let env = pointers(launch.env);
        let cwd = pointers(launch.cwd);
        let join: Vec<i32> = launch.join.iter().map(AsRawFd::as_raw_fd).collect();
        let mut read_back = vec![ResourceLimit { soft: 0, hard: 0 }; launch.rlimits.len()];
        let (change, uid, gid) = match launch.ids {
            Ids::Keep => (false, 0, 0),
            Ids::Change { uid, gid } => (true, uid, gid),
        };
        let mut plan = ChildPlan {
            join: join.as_ptr(),
            join_count: join.len(),
            controlling_terminal: launch.controlling_terminal,
            rlimits: launch.rlimits.as_ptr(),
            read_back: read_back.as_mut_ptr(),
            rlimit_count: launch.rlimits.len(),
            change,
            uid,
            gid,
            umask: launch.umask,
            status: self.status.as_mut_ptr(),
            status_length: 0,
            cwd: cwd.as_ptr(),
            cwd_identity: launch.cwd_identity,
            candidates: candidates.as_ptr(),
            // Of an empty list this dangles, but is not null.
            expected: expected.as_ref().map_or(ptr::null(), Vec::as_ptr),
            expected_count: expected.as_ref().map_or(0, Vec::len),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            exec_nonce: launch.exec_nonce,
            failed: (0, 0, 0),
        };
        // The kernel writes 0 here and wakes us when the child has left our memory, by exec or by its end.
        let busy = AtomicU32::new(1);
        let (stack, stack_size) = self.stack.range();
        let mut args = CloneArgs {
            flags: (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID) as u64,
            child_tid: busy.as_ptr() as u64,
            exit_signal: libc::SIGCHLD as u64,
            stack,
            stack_size,
            ..CloneArgs::default()
        };
        if let Some(cgroup) = launch.cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = cgroup.as_raw_fd() as u64;
        }
        let [first, second, _] = launch.exec_nonce;
        // SAFETY: the stack is ours alone (`&mut self`, and `ChildInFlight` waits for the child in every way out of
        // this function). `child` makes bare system calls only. The plan and all that it points to live until
        // after `ChildInFlight`, and only the child writes to it meanwhile.
        let pid = match unsafe { clone3(&args, child, (&raw mut plan).cast(), [first, second]) } {
            Ok(pid) => pid,
            Err(errno) => return (Err(SpawnStepFailure { step: SpawnStep::Clone, index: 0, errno }), None),
        };
        let in_flight = ChildInFlight { busy: &busy, pid };
        let value = meanwhile();
        drop(in_flight);
        // SAFETY: the child is gone from this memory; the kernel's store to `busy` came after its last write, and
        // `ChildInFlight` has seen it. Volatile, because the compiler has not seen who wrote.
        let (failed, status_length) = unsafe {
            (ptr::read_volatile(&raw const plan.failed), ptr::read_volatile(&raw const plan.status_length))
        };
        if let Some(failure) = SpawnStepFailure::from_raw(failed) {
            reap(pid);
            return (Err(failure), Some(value));
        }
        // SAFETY: as above; `status` was written through the pointer in the plan.
        let status =
            unsafe { std::slice::from_raw_parts(self.status.as_ptr(), status_length.min(STATUS_BYTES)) };
        (Ok(SpawnedProcess { pid, status: status.to_vec(), rlimits: read_back }), Some(value))
    }
}

impl SpawnStepFailure {
    fn from_raw((step, index, errno): (u32, u32, i32)) -> Option<Self> {
        let all = [
            SpawnStep::JoinCgroup,
            SpawnStep::SessionLeader,
            SpawnStep::Descriptors,
            SpawnStep::Rlimit,
            SpawnStep::Identity,
            SpawnStep::Verify,
            SpawnStep::Cwd,
            SpawnStep::Signals,
            SpawnStep::Resolve,
            SpawnStep::Exec,
            SpawnStep::Program,
        ];
        let step = all.into_iter().find(|one| *one as u32 == step)?;
        Some(Self { step, index, errno: Errno::from_raw(errno) })
    }
}

/// A child that is in our memory. Dropping this waits until it is not.
struct ChildInFlight<'a> {
    busy: &'a AtomicU32,
    pid: i32,
}

impl Drop for ChildInFlight<'_> {
    fn drop(&mut self) {
        let (mut nudges, nudge) = (0, CONTINUE_INTERVAL);
        while self.busy.load(Ordering::Acquire) != 0 {
            // SAFETY: waits on our own word, with a time limit that outlives the call. Not FUTEX_PRIVATE: the
            // kernel's wake for CLONE_CHILD_CLEARTID is a shared one.
            let result = unsafe {
                libc::syscall(libc::SYS_futex, self.busy.as_ptr(), libc::FUTEX_WAIT, 1, &raw const nudge)
            };
            if result == -1 && Errno::last() == Errno::ETIMEDOUT {
                nudges += 1;
                let signal = if nudges < MAX_CONTINUES { libc::SIGCONT } else { libc::SIGKILL };
                // SAFETY: a signal to our own child, which is not reaped yet: the pid is still its.
                unsafe { libc::kill(self.pid, signal) };
            }
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|one| one.as_ptr()).chain([ptr::null()]).collect()
}

fn park(descriptor: BorrowedFd<'_>, slot: i32) -> Result<(), Errno> {
    // SAFETY: `slot` is 0, 1 or 2, which the spawner owns.
    Errno::result(unsafe { libc::dup2(descriptor.as_raw_fd(), slot) }).map(drop)
}

fn reap(pid: i32) {
    // SAFETY: waits for our own child, which is ending; no status is wanted.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) } == -1 && Errno::last() == Errno::EINTR
    {
    }
}

fn reset_signals() {
    signals::reset_all();
    let mut all = nix::sys::signal::SigSet::all();
    // These mean a fault of ours: they must end us, not stay pending.
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT] {
        if let Ok(signal) = nix::sys::signal::Signal::try_from(signal) {
            all.remove(signal);
        }
    }
    // SIG_BLOCK with a valid set cannot fail.
    let _ = all.thread_block();
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
