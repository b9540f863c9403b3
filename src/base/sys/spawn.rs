//! Starts a command: clone3, what the new process does between that and its exec, and the wait for the exec.
//!
//! The child shares our memory and our descriptor table until its exec: it makes only raw system calls, on its own stack, on data that
//! the parent has prepared. It allocates nothing, formats nothing, and reports failures in the shared memory. The
//! parent waits for the exec with a timeout, unlike vfork(2): another command can stop the child with SIGSTOP just
//! before its exec, and must not stop the supervisor with it. The child tries to execute; the parent resolves no
//! path.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    fs::File,
    iter,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::errno::Errno;

use super::{
    clone::{CLONE_INTO_CGROUP, CloneArgs, Stack, clone3, raw_syscall, raw_syscall_of_six},
    file::CallNonce,
    signals,
};

/// A child that has not executed after this time is sent SIGCONT, in case it was stopped.
const CONTINUE_INTERVAL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// After this many times (10 s) it is killed.
const MAX_CONTINUES: u32 = 2000;

/// Room for /proc/self/status, which is about 1.5 KiB.
const STATUS_BYTES: usize = 4096;

/// The step at which a spawn failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SpawnStep {
    /// Making the process.
    Clone = 1,
    /// Joining a control group.
    JoinCgroup,
    /// setsid(2), then taking the controlling terminal.
    SessionLeader,
    /// Leaving only 0, 1 and 2 open.
    Descriptors,
    /// setrlimit(2).
    Rlimit,
    /// Groups, ids and capabilities.
    Identity,
    /// Reading back what is in force.
    Verify,
    /// Opening the working directory, and fchdir(2). The index is the number of names that were opened.
    Cwd,
    /// The signal mask.
    Signals,
    /// No file that can be executed was found.
    Resolve,
    /// execve(2) of a file that was found.
    Exec,
    /// Before [`SpawnStep::Exec`]: the file is not the expected one. The index is that of the expected file.
    Program,
}

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

/// How a file that was compared is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecBy {
    /// By its path: no other process can change what the path leads to.
    Path,
    /// By the descriptor that was compared: the path may lead elsewhere by now.
    Descriptor,
}

/// The identity of a file: `st_dev`, `st_ino` and `st_ctim` (in nanoseconds) of stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutableId {
    /// The device.
    pub device: u64,
    /// The inode on it.
    pub inode: u64,
    /// When anything about it was last changed.
    pub changed_ns: i64,
}

/// The file that must be executed, or a script that leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedExecutable {
    /// As it is given to exec.
    pub path: CString,
    /// Which file it must be; absent: any.
    pub identity: Option<ExecutableId>,
    /// How it is executed.
    pub exec_by: ExecBy,
}

/// A limit of setrlimit(2), as the kernel takes and gives it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The value in force.
    pub soft: u64,
    /// The ceiling.
    pub hard: u64,
}

/// Strings as execve(2) takes them: pointers to each, and a null pointer.
#[derive(Debug)]
pub struct StringArray {
    pointers: Vec<*const c_char>,
    /// What they point to.
    _strings: Vec<CString>,
}

impl From<Vec<CString>> for StringArray {
    fn from(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|one| one.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _strings: strings }
    }
}

/// All that a command is made of. The child reads it; nothing is allocated after it was built.
#[derive(Debug)]
pub struct SpawnSpec {
    /// Files to try to execute, in order, as the child sees them after its chdir.
    pub candidates: Vec<CString>,
    /// The only file that may be executed, after the scripts that lead to it; then the candidates are not tried. Empty:
    /// there must be none. Absent: any candidate.
    pub expected: Option<Vec<ExpectedExecutable>>,
    /// The arguments, with `argv[0]`.
    pub argv: StringArray,
    /// The environment.
    pub env: StringArray,
    /// The working directory: the names on the way from the root to it. No link is followed on that way.
    pub cwd: Vec<CString>,
    /// Its `st_dev` and `st_ino`: another directory fails with `ESTALE`. Absent: any.
    pub cwd_identity: Option<(u64, u64)>,
    /// Standard input is a terminal, which becomes the controlling one.
    pub controlling_terminal: bool,
    /// A v2 cgroup to be cloned into.
    pub cgroup: Option<OwnedFd>,
    /// `tasks` or `cgroup.procs` files of groups to join, open for writing.
    pub join: Vec<OwnedFd>,
    /// Limits and their values.
    pub rlimits: Vec<(u32, ResourceLimit)>,
    /// Its ids.
    pub ids: Ids,
    /// Its file mode creation mask.
    pub umask: u32,
    /// What the exec has in the argument registers that it does not use: execve(2) has all of its words, execveat(2) the last one.
    pub exec_nonce: CallNonce,
}

impl SpawnSpec {
    /// The addresses of the two arrays.
    fn argv_and_env(&self) -> [usize; 2] {
        [self.argv.pointers.as_ptr() as usize, self.env.pointers.as_ptr() as usize]
    }
}

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

/// What the parent and its child share until the exec.
struct ChildMemory<'a> {
    /// What the child is to do. Neither of them changes it.
    spec: &'a SpawnSpec,
    /// The rest is what the child writes: /proc/self/status, the limits as read back, and where it failed.
    status: &'a mut [u8; STATUS_BYTES],
    status_length: usize,
    rlimits: Vec<ResourceLimit>,
    failed: (u32, u32, i32),
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

    /// Starts a command with this standard input, output and error, of which absent ones are /dev/null, and waits until it has executed.
    ///
    /// # Errors
    /// The step that failed; then nothing is left of the process.
    pub fn spawn(
        &mut self,
        spec: &SpawnSpec,
        stdio: [Option<BorrowedFd<'_>>; 3],
    ) -> Result<SpawnedProcess, SpawnStepFailure> {
        let parked = (0..).zip(stdio).try_for_each(|(slot, descriptor)| {
            let failed = |errno| SpawnStepFailure { step: SpawnStep::Descriptors, index: 0, errno };
            descriptor.map_or(Ok(()), |descriptor| park(descriptor, slot)).map_err(failed)
        });
        let result = parked.and_then(|()| self.start(spec));
        // /dev/null again, so that this process does not keep the command's pipes open.
        for (slot, _) in (0..).zip(stdio).filter(|(_, descriptor)| descriptor.is_some()) {
            // dup3 onto an open descriptor has nothing to allocate and no reason to fail.
            let _ = park(self.null.as_fd(), slot);
        }
        result
    }

    fn start(&mut self, spec: &SpawnSpec) -> Result<SpawnedProcess, SpawnStepFailure> {
        let mut memory = ChildMemory {
            spec,
            status: &mut self.status,
            status_length: 0,
            rlimits: vec![ResourceLimit { soft: 0, hard: 0 }; spec.rlimits.len()],
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
        if let Some(cgroup) = &spec.cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = cgroup.as_raw_fd() as u64;
        }
        let [first, second, _] = spec.exec_nonce;
        // SAFETY: the stack is ours alone (`&mut self`, and `wait_until_gone` waits for the child before
        // anything else happens here). `child` makes bare system calls only. The memory and all that it points to live until
        // after it, and only the child writes to it meanwhile.
        let pid = match unsafe { clone3(&args, child, (&raw mut memory).cast(), [first, second]) } {
            Ok(pid) => pid,
            Err(errno) => return Err(SpawnStepFailure { step: SpawnStep::Clone, index: 0, errno }),
        };
        wait_until_gone(&busy, pid);
        // SAFETY: the child is gone from this memory; the kernel's store to `busy` came after its last write, and
        // it was seen here. Volatile, because the compiler has not seen who wrote.
        let (failed, status_length) = unsafe {
            (
                ptr::read_volatile(&raw const memory.failed),
                ptr::read_volatile(&raw const memory.status_length),
            )
        };
        if let Some(failure) = SpawnStepFailure::from_raw(failed) {
            reap(pid);
            return Err(failure);
        }
        let status = memory.status.iter().take(status_length).copied().collect();
        Ok(SpawnedProcess { pid, status, rlimits: memory.rlimits })
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

/// Waits until a child is not in our memory any more.
fn wait_until_gone(busy: &AtomicU32, pid: i32) {
    let (mut nudges, nudge) = (0, CONTINUE_INTERVAL);
    while busy.load(Ordering::Acquire) != 0 {
        // SAFETY: waits on our own word, with a time limit that outlives the call. Not FUTEX_PRIVATE: the
        // kernel's wake for CLONE_CHILD_CLEARTID is a shared one.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, busy.as_ptr(), libc::FUTEX_WAIT, 1, &raw const nudge) };
        if result == -1 && Errno::last() == Errno::ETIMEDOUT {
            nudges += 1;
            let signal = if nudges < MAX_CONTINUES { libc::SIGCONT } else { libc::SIGKILL };
            // SAFETY: a signal to our own child, which is not reaped yet: the pid is still its.
            unsafe { libc::kill(pid, signal) };
        }
    }
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
/// What the new process does, in a fixed order, until it is another program.
extern "C" fn child(memory: *mut c_void) -> i32 {
    // SAFETY: the parent keeps it alive and does not touch it until this process has left its memory.
    let memory = unsafe { &mut *memory.cast::<ChildMemory<'_>>() };
    // SAFETY: see `child_steps`.
    if let Err((step, index, result)) = unsafe { child_steps(memory) } {
        memory.failed = (step as u32, index, -result as i32);
    }
    loop {
        // SAFETY: ends this process.
        unsafe { raw_syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// (step, index, minus errno).
type ChildFailure = (SpawnStep, u32, isize);

/// # Safety
/// Runs in a process that shares the parent's memory: bare system calls, this memory, the stack; nothing else. What is iterated over here
/// is neither made nor dropped here.
unsafe fn child_steps(memory: &mut ChildMemory<'_>) -> Result<(), ChildFailure> {
    let check = |step, index, result: isize| if result < 0 { Err((step, index, result)) } else { Ok(result) };
    let spec = memory.spec;
    // SAFETY: every pointer given to the kernel comes from the shared memory or is to a local; lengths are theirs. The
    // shared table of descriptors is left with CLOSE_RANGE_UNSHARE before anything in it is closed.
    unsafe {
        for (index, group) in (0..).zip(&spec.join) {
            // 0 means the writer. On v1 this is `tasks`, which moves one thread and takes no global lock.
            let zero = [group.as_raw_fd() as usize, c"0".as_ptr() as usize, 1, 0, 0];
            check(SpawnStep::JoinCgroup, index, raw_syscall(libc::SYS_write, zero))?;
        }
        check(SpawnStep::SessionLeader, 0, raw_syscall(libc::SYS_setsid, [0; 5]))?;
        if spec.controlling_terminal {
            // The process group that setsid(2) has made becomes the foreground group.
            let result = raw_syscall(libc::SYS_ioctl, [0, libc::TIOCSCTTY as usize, 0, 0, 0]);
            check(SpawnStep::SessionLeader, 1, result)?;
        }
        // 0, 1 and 2 are in their places already. Copies three descriptors, not the supervisor's thousands.
        let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
        let result = raw_syscall(libc::SYS_close_range, [3, u32::MAX as usize, unshare, 0, 0]);
        check(SpawnStep::Descriptors, 3, result)?;
        for (index, ((resource, limit), got)) in (0..).zip(spec.rlimits.iter().zip(&mut memory.rlimits)) {
            let set = [0, *resource as usize, ptr::from_ref(limit) as usize, 0, 0];
            check(SpawnStep::Rlimit, index, raw_syscall(libc::SYS_prlimit64, set))?;
            let get = [0, *resource as usize, 0, ptr::from_mut(got) as usize, 0];
            check(SpawnStep::Rlimit, index, raw_syscall(libc::SYS_prlimit64, get))?;
        }
        if let Ids::Change { uid, gid } = spec.ids {
            let (uid, gid) = (uid as usize, gid as usize);
            // The groups stay: the supervisor has those that its commands are to have, and no other.
            check(SpawnStep::Identity, 1, raw_syscall(libc::SYS_setresgid, [gid, gid, gid, 0, 0]))?;
            check(SpawnStep::Identity, 2, raw_syscall(libc::SYS_setresuid, [uid, uid, uid, 0, 0]))?;
            // A change of ids gives the memory that we share the dumpable flag of `fs.suid_dumpable`, which may be 1. Now
            // that we have the commands' id, nobody may look into it.
            let dumpable = [libc::PR_SET_DUMPABLE as usize, 0, 0, 0, 0];
            check(SpawnStep::Identity, 4, raw_syscall(libc::SYS_prctl, dumpable))?;
        }
        // Exec would drop them; gone before it, they are gone from what is read back too. capset(2), version 3.
        let header = [0x2008_0522_u32, 0];
        let none = [0_u32; 6];
        let result =
            raw_syscall(libc::SYS_capset, [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0]);
        check(SpawnStep::Identity, 3, result)?;
        read_status(memory)?;
        enter_directory(&spec.cwd, spec.cwd_identity)?;
        // It cannot fail. Memory is shared with the parent, and the mask is not.
        raw_syscall(libc::SYS_umask, [spec.umask as usize, 0, 0, 0, 0]);
        let mask = 0_u64;
        let how = libc::SIG_SETMASK as usize;
        let result = raw_syscall(libc::SYS_rt_sigprocmask, [how, &raw const mask as usize, 0, 8, 0]);
        check(SpawnStep::Signals, 0, result)?;
        Err(match spec.expected.as_deref() {
            None => execute(spec),
            Some([]) => refuse_unjudged(spec),
            Some(expected) => execute_expected(spec, expected),
        })
    }
}

/// Opens the path from the root name by name, so that a link that another command has put there fails with ENOTDIR, and compares what it
/// leads to with what was expected.
/// openat2(2) would do it in one call, but the sandbox's filter refuses it.
///
/// # Safety
/// As [`child_steps`].
unsafe fn enter_directory(names: &[CString], expected: Option<(u64, u64)>) -> Result<(), ChildFailure> {
    let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC) as usize;
    let (mut at, mut index) = (libc::AT_FDCWD as usize, 0);
    // SAFETY: each name is a C string; a descriptor that is closed was opened here.
    unsafe {
        for (name, opened) in iter::once(c"/").chain(names.iter().map(CString::as_c_str)).zip(0..) {
            index = opened;
            let next = raw_syscall(libc::SYS_openat, [at, name.as_ptr() as usize, flags, 0, 0]);
            if index > 0 {
                raw_syscall(libc::SYS_close, [at, 0, 0, 0, 0]);
            }
            if next < 0 {
                return Err((SpawnStep::Cwd, index, next));
            }
            at = next as usize;
        }
        if let Some(expected) = expected {
            let status = status_of(at, c"", libc::AT_EMPTY_PATH as usize);
            let status = status.map_err(|failed| (SpawnStep::Cwd, index, failed))?;
            if (status.st_dev, status.st_ino) != expected {
                return Err((SpawnStep::Cwd, index, -libc::ESTALE as isize));
            }
        }
        let entered = raw_syscall(libc::SYS_fchdir, [at, 0, 0, 0, 0]);
        raw_syscall(libc::SYS_close, [at, 0, 0, 0, 0]);
        if entered < 0 { Err((SpawnStep::Cwd, index, entered)) } else { Ok(()) }
    }
}

/// # Safety
/// As [`child_steps`].
unsafe fn read_status(memory: &mut ChildMemory<'_>) -> Result<(), ChildFailure> {
    let path = c"/proc/self/status".as_ptr() as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the path is a constant; the buffer is STATUS_BYTES long.
    unsafe {
        let file =
            raw_syscall(libc::SYS_openat, [here, path, (libc::O_RDONLY | libc::O_CLOEXEC) as usize, 0, 0]);
        if file < 0 {
            return Err((SpawnStep::Verify, 0, file));
        }
        let length = raw_syscall(
            libc::SYS_read,
            [file as usize, memory.status.as_mut_ptr() as usize, STATUS_BYTES, 0, 0],
        );
        if length < 0 {
            return Err((SpawnStep::Verify, 1, length));
        }
        memory.status_length = length as usize;
        raw_syscall(libc::SYS_close, [file as usize, 0, 0, 0, 0]);
    }
    Ok(())
}

/// Tries the candidates in order; comes back only when none could be executed.
///
/// As execvp(3): one that is not there, or may not be looked at or executed, is passed over, and a refusal is what
/// is reported if no other is found.
///
/// # Safety
/// As [`child_steps`].
unsafe fn execute(spec: &SpawnSpec) -> ChildFailure {
    let mut refused = None;
    for candidate in &spec.candidates {
        // SAFETY: as this function.
        let result = unsafe { execve(spec, candidate) };
        let status = status_of(libc::AT_FDCWD as usize, candidate, 0);
        match -result as i32 {
            // ENOENT for a file that is there: its interpreter is not.
            libc::ENOENT | libc::ENOTDIR if status.is_err() => {}
            libc::EACCES => refused = refused.or(Some(classify_refusal(result, status))),
            // The file's own path is meant: where only the interpreter's leads nowhere, the file is there.
            libc::ELOOP | libc::ENAMETOOLONG if status.is_err() => {
                return (SpawnStep::Resolve, 0, result);
            }
            _ => return (SpawnStep::Exec, 0, result),
        }
    }
    refused.unwrap_or((SpawnStep::Resolve, 0, -libc::ENOENT as isize))
}

/// execve(2) with the nonce in the registers that it does not use, by which the sandbox's filter knows the exec. The kernel
/// clears them for the new program.
///
/// # Safety
/// As [`child_steps`].
unsafe fn execve(spec: &SpawnSpec, path: &CStr) -> isize {
    let [first, second, third] = spec.exec_nonce;
    let (path, [argv, env]) = (path.as_ptr() as usize, spec.argv_and_env());
    // SAFETY: the path is a C string, the two arrays end with a null pointer and hold C strings.
    unsafe { raw_syscall_of_six(libc::SYS_execve, [path, argv, env, first, second, third]) }
}

/// Policy found no file, so a file that exists now was not evaluated, and is not executed.
fn refuse_unjudged(spec: &SpawnSpec) -> ChildFailure {
    let mut refused = None;
    for candidate in &spec.candidates {
        match status_of(libc::AT_FDCWD as usize, candidate, 0) {
            Ok(status) if status.st_mode & libc::S_IFMT == libc::S_IFREG => {
                return (SpawnStep::Program, 0, -libc::ESTALE as isize);
            }
            Ok(status) => refused = refused.or(Some(classify_refusal(-libc::EACCES as isize, Ok(status)))),
            Err(result) => match -result as i32 {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => refused = refused.or(Some((SpawnStep::Exec, 0, result))),
                libc::ELOOP | libc::ENAMETOOLONG => return (SpawnStep::Resolve, 0, result),
                _ => return (SpawnStep::Exec, 0, result),
            },
        }
    }
    refused.unwrap_or((SpawnStep::Resolve, 0, -libc::ENOENT as isize))
}

/// Opens what is to be executed, holds it against what is expected, and executes what was opened.
///
/// Scripts on the way are held against what is expected, too, and must be executable; executed is the interpreter,
/// with the arguments that the kernel would give it: by a script's descriptor it could be executed only if the
/// command inherited that.
///
/// # Safety
/// As [`child_steps`]; there is at least one expected file.
unsafe fn execute_expected(spec: &SpawnSpec, expected: &[ExpectedExecutable]) -> ChildFailure {
    let (here, nothing) = (libc::AT_FDCWD as usize, c"".as_ptr() as usize);
    let empty_path = libc::AT_EMPTY_PATH as usize;
    let flags = (libc::O_PATH | libc::O_CLOEXEC) as usize;
    let mut left = expected.len();
    // SAFETY: the paths are C strings, the two arrays end with a null pointer and hold C strings.
    unsafe {
        for (index, expected) in (0..).zip(expected) {
            left -= 1;
            let opened = raw_syscall(libc::SYS_openat, [here, expected.path.as_ptr() as usize, flags, 0, 0]);
            if opened < 0 {
                let absent = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG];
                let is_absent = absent.contains(&(-opened as i32));
                let step = if index == 0 && is_absent { SpawnStep::Resolve } else { SpawnStep::Exec };
                return (step, 0, opened);
            }
            let file = opened as usize;
            let status = status_of(file, c"", empty_path);
            if expected.identity.as_ref().is_some_and(|identity| !is_same(status, identity)) {
                return (SpawnStep::Program, index, -libc::ESTALE as isize);
            }
            if left > 0 {
                let check = [file, nothing, libc::X_OK as usize, empty_path | libc::AT_EACCESS as usize, 0];
                let result = raw_syscall(libc::SYS_faccessat2, check);
                raw_syscall(libc::SYS_close, [file, 0, 0, 0, 0]);
                if result < 0 {
                    return classify_refusal(result, status);
                }
                continue;
            }
            let result = match (expected.exec_by, expected.identity.is_some()) {
                (ExecBy::Descriptor, true) => {
                    let ([argv, env], [_, _, known]) = (spec.argv_and_env(), spec.exec_nonce);
                    raw_syscall_of_six(libc::SYS_execveat, [file, nothing, argv, env, empty_path, known])
                }
                // Under its name, which then is the name of the process.
                (ExecBy::Path, _) | (_, false) => execve(spec, &expected.path),
            };
            return match -result as i32 {
                libc::EACCES => classify_refusal(result, status),
                _ => (SpawnStep::Exec, 0, result),
            };
        }
    }
    (SpawnStep::Exec, 0, -libc::EINVAL as isize)
}

/// The reason for EACCES: a directory, a file without execute bit, or a refusal by the kernel.
fn classify_refusal(result: isize, status: Result<libc::stat, isize>) -> ChildFailure {
    match status {
        Ok(status) if status.st_mode & libc::S_IFMT == libc::S_IFDIR => (SpawnStep::Resolve, 2, result),
        Ok(status) if status.st_mode & 0o111 == 0 => (SpawnStep::Resolve, 1, result),
        Ok(_) | Err(_) => (SpawnStep::Exec, 0, result),
    }
}

/// Whether it is the file that was judged.
fn is_same(status: Result<libc::stat, isize>, expected: &ExecutableId) -> bool {
    // Wrapping, as in the gateway's computation: only equality matters.
    let changed =
        |status: &libc::stat| status.st_ctime.wrapping_mul(1_000_000_000).wrapping_add(status.st_ctime_nsec);
    status.is_ok_and(|status| {
        status.st_dev == expected.device
            && status.st_ino == expected.inode
            && changed(&status) == expected.changed_ns
    })
}

/// stat(2) of a path relative to a directory; with `AT_EMPTY_PATH` and an empty one, of what is open as `directory`. Makes a system call only.
fn status_of(directory: usize, path: &CStr, flags: usize) -> Result<libc::stat, isize> {
    // SAFETY: plain data for which all zeroes is valid, on our own stack.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let to = &raw mut status as usize;
    // SAFETY: the kernel reads the path to its NUL and writes one `stat`.
    let result =
        unsafe { raw_syscall(libc::SYS_newfstatat, [directory, path.as_ptr() as usize, to, flags, 0]) };
    if result < 0 { Err(result) } else { Ok(status) }
}
