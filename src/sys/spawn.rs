//! Starting a command: everything between clone and exec, in one fixed order.
//!
//! The child shares our memory and our table of descriptors until it has its own, makes bare system calls only,
//! and says in shared memory where it failed. The parent waits for the exec with a time limit, which vfork(2)
//! does not have: another command can stop the child with SIGSTOP just before its exec, and must not stop the
//! supervisor with it. Resolves nothing by its own rights: what can be executed is found out by executing.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::errno::Errno;

use super::clone::{CLONE_INTO_CGROUP, CloneArgs, Stack, bare, clone3};

/// Room for /proc/self/status, which is about 1.5 KiB.
const STATUS_BYTES: usize = 4096;

/// After this time a child that has not executed yet is told to continue, in case it was stopped.
const NUDGE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// After so many nudges (10 s) it is killed.
const MAX_NUDGES: u32 = 2000;

/// Where a spawn failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Making the process.
    Clone = 1,
    /// Joining a control group.
    JoinCgroup,
    /// setsid(2).
    SessionLeader,
    /// Leaving only 0, 1 and 2 open.
    Descriptors,
    /// setrlimit(2).
    Rlimit,
    /// Groups, ids and capabilities.
    Identity,
    /// Reading back what is in force.
    Verify,
    /// chdir(2).
    Cwd,
    /// The signal mask.
    Signals,
    /// No file that can be executed was found.
    Resolve,
    /// execve(2) of a file that was found.
    Exec,
}

/// A step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub step: Step,
    /// Which one of several. For [`Step::Resolve`]: 1 no execute bit, 2 a folder.
    pub index: u32,
    /// Why.
    pub errno: Errno,
}

/// A limit of setrlimit(2), as the kernel takes and gives it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The value in force.
    pub soft: u64,
    /// The ceiling.
    pub hard: u64,
}

/// Who the command becomes.
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

/// Everything that a child needs. Nothing is allocated after this was built.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Files to try to execute, in order, as the child sees them after its chdir.
    pub candidates: &'a [CString],
    /// The arguments, with argv[0].
    pub argv: &'a [CString],
    /// The environment.
    pub env: &'a [CString],
    /// The working folder.
    pub cwd: &'a CStr,
    /// Standard input, output and error; absent ones are /dev/null.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// A v2 group to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `tasks` or `cgroup.procs` files of groups to join, open for writing.
    pub join: &'a [BorrowedFd<'a>],
    /// Limits and their values.
    pub rlimits: &'a [(u32, Limit)],
    /// Who it becomes.
    pub ids: Ids,
}

/// A command that has executed.
#[derive(Debug)]
pub struct Running {
    /// Its process id in our pid namespace. Ours to reap, so it is not used again before we do.
    pub pid: i32,
    /// /proc/self/status just before the exec.
    pub status: Vec<u8>,
    /// The limits as read back, in the order given.
    pub rlimits: Vec<Limit>,
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
        // Not below 3, or parking would overwrite it.
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
        launch: &Launch<'_>,
        meanwhile: impl FnOnce() -> T,
    ) -> (Result<Running, Failure>, Option<T>) {
        let descriptors = |errno| Failure { step: Step::Descriptors, index: 0, errno };
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

    /// Nothing may keep the command's ends of the pipes open here.
    fn unpark(&self, launch: &Launch<'_>) {
        for (slot, descriptor) in (0..).zip(&launch.stdio) {
            if descriptor.is_some() {
                // dup3 onto an open descriptor has nothing to allocate and no reason to fail.
                let _ = park(self.null.as_fd(), slot);
            }
        }
    }

    fn start<T>(
        &mut self,
        launch: &Launch<'_>,
        meanwhile: impl FnOnce() -> T,
    ) -> (Result<Running, Failure>, Option<T>) {
        let candidates = pointers(launch.candidates);
        let argv = pointers(launch.argv);
        let env = pointers(launch.env);
        let join: Vec<i32> = launch.join.iter().map(AsRawFd::as_raw_fd).collect();
        let mut read_back = vec![Limit { soft: 0, hard: 0 }; launch.rlimits.len()];
        let (change, uid, gid) = match launch.ids {
            Ids::Keep => (false, 0, 0),
            Ids::Change { uid, gid } => (true, uid, gid),
        };
        let mut plan = Plan {
            join: join.as_ptr(),
            join_count: join.len(),
            rlimits: launch.rlimits.as_ptr(),
            read_back: read_back.as_mut_ptr(),
            rlimit_count: launch.rlimits.len(),
            change,
            uid,
            gid,
            status: self.status.as_mut_ptr(),
            status_length: 0,
            cwd: launch.cwd.as_ptr(),
            candidates: candidates.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
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
        // SAFETY: the stack is ours alone (`&mut self`, and `InFlight` waits for the child in every way out of
        // this function). `child` makes bare system calls only. The plan and all that it points to live until
        // after `InFlight`, and only the child writes to it meanwhile.
        let pid = match unsafe { clone3(&args, child, (&raw mut plan).cast()) } {
            Ok(pid) => pid,
            Err(errno) => return (Err(Failure { step: Step::Clone, index: 0, errno }), None),
        };
        let in_flight = InFlight { busy: &busy, pid };
        let value = meanwhile();
        drop(in_flight);
        // SAFETY: the child is gone from this memory; the kernel's store to `busy` came after its last write, and
        // `InFlight` has seen it. Volatile, because the compiler has not seen who wrote.
        let (failed, status_length) = unsafe {
            (ptr::read_volatile(&raw const plan.failed), ptr::read_volatile(&raw const plan.status_length))
        };
        if let Some(failure) = Failure::from_raw(failed) {
            reap(pid);
            return (Err(failure), Some(value));
        }
        // SAFETY: as above; `status` was written through the pointer in the plan.
        let status =
            unsafe { std::slice::from_raw_parts(self.status.as_ptr(), status_length.min(STATUS_BYTES)) };
        (Ok(Running { pid, status: status.to_vec(), rlimits: read_back }), Some(value))
    }
}

impl Failure {
    fn from_raw((step, index, errno): (u32, u32, i32)) -> Option<Self> {
        let all = [
            Step::JoinCgroup,
            Step::SessionLeader,
            Step::Descriptors,
            Step::Rlimit,
            Step::Identity,
            Step::Verify,
            Step::Cwd,
            Step::Signals,
            Step::Resolve,
            Step::Exec,
        ];
        let step = all.into_iter().find(|one| *one as u32 == step)?;
        Some(Self { step, index, errno: Errno::from_raw(errno) })
    }
}

/// A child that is in our memory. Dropping this waits until it is not.
struct InFlight<'a> {
    busy: &'a AtomicU32,
    pid: i32,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let (mut nudges, nudge) = (0, NUDGE);
        while self.busy.load(Ordering::Acquire) != 0 {
            // SAFETY: waits on our own word, with a time limit that outlives the call. Not FUTEX_PRIVATE: the
            // kernel's wake for CLONE_CHILD_CLEARTID is a shared one.
            let result = unsafe {
                libc::syscall(libc::SYS_futex, self.busy.as_ptr(), libc::FUTEX_WAIT, 1, &raw const nudge)
            };
            if result == -1 && Errno::last() == Errno::ETIMEDOUT {
                nudges += 1;
                let signal = if nudges < MAX_NUDGES { libc::SIGCONT } else { libc::SIGKILL };
                // SAFETY: a signal to our own child, which is not reaped yet: the pid is still its.
                unsafe { libc::kill(self.pid, signal) };
            }
        }
    }
}

/// What the child reads and writes. Plain data and pointers: no Rust code of the child needs more.
#[repr(C)]
struct Plan {
    join: *const i32,
    join_count: usize,
    rlimits: *const (u32, Limit),
    read_back: *mut Limit,
    rlimit_count: usize,
    change: bool,
    uid: u32,
    gid: u32,
    status: *mut u8,
    status_length: usize,
    cwd: *const c_char,
    candidates: *const *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    failed: (u32, u32, i32),
}

extern "C" fn child(plan: *mut c_void) -> i32 {
    // SAFETY: the parent keeps the plan alive and does not touch it until this process has left its memory.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: see `child_steps`.
    if let Err((step, index, result)) = unsafe { child_steps(plan) } {
        plan.failed = (step as u32, index, -result as i32);
    }
    loop {
        // SAFETY: ends this process.
        unsafe { bare(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// (step, index, minus errno).
type ChildFailure = (Step, u32, isize);

/// # Safety
/// Runs in a process that shares the parent's memory: bare system calls, the plan, the stack; nothing else. The
/// pointers in the plan must be as `Spawner::start` makes them.
unsafe fn child_steps(plan: &mut Plan) -> Result<(), ChildFailure> {
    let check = |step, index, result: isize| if result < 0 { Err((step, index, result)) } else { Ok(result) };
    // SAFETY: every pointer given to the kernel comes from the plan or is to a local; lengths are theirs. The
    // shared table of descriptors is left with CLOSE_RANGE_UNSHARE before anything in it is closed.
    unsafe {
        for index in 0..plan.join_count {
            let group = *plan.join.add(index) as usize;
            // 0 means the writer. On v1 this is `tasks`, which moves one thread and takes no global lock.
            let result = bare(libc::SYS_write, [group, c"0".as_ptr() as usize, 1, 0, 0]);
            check(Step::JoinCgroup, index as u32, result)?;
        }
        check(Step::SessionLeader, 0, bare(libc::SYS_setsid, [0; 5]))?;
        // 0, 1 and 2 are in their places already. Copies three descriptors, not the supervisor's thousands.
        let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
        let result = bare(libc::SYS_close_range, [3, u32::MAX as usize, unshare, 0, 0]);
        check(Step::Descriptors, 3, result)?;
        for index in 0..plan.rlimit_count {
            let (resource, limit) = &*plan.rlimits.add(index);
            let got = plan.read_back.add(index);
            let set = [0, *resource as usize, ptr::from_ref(limit) as usize, 0, 0];
            check(Step::Rlimit, index as u32, bare(libc::SYS_prlimit64, set))?;
            check(
                Step::Rlimit,
                index as u32,
                bare(libc::SYS_prlimit64, [0, *resource as usize, 0, got as usize, 0]),
            )?;
        }
        if plan.change {
            let (uid, gid) = (plan.uid as usize, plan.gid as usize);
            check(Step::Identity, 0, bare(libc::SYS_setgroups, [0; 5]))?;
            check(Step::Identity, 1, bare(libc::SYS_setresgid, [gid, gid, gid, 0, 0]))?;
            // The kernel clears the dumpable flag of the memory that we share: wanted, nobody may look into it.
            check(Step::Identity, 2, bare(libc::SYS_setresuid, [uid, uid, uid, 0, 0]))?;
        }
        // Exec would drop them; gone before it, they are gone from what is read back too. capset(2), version 3.
        let header = [0x2008_0522_u32, 0];
        let none = [0_u32; 6];
        let result = bare(libc::SYS_capset, [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0]);
        check(Step::Identity, 3, result)?;
        read_status(plan)?;
        check(Step::Cwd, 0, bare(libc::SYS_chdir, [plan.cwd as usize, 0, 0, 0, 0]))?;
        let mask = 0_u64;
        let how = libc::SIG_SETMASK as usize;
        let result = bare(libc::SYS_rt_sigprocmask, [how, &raw const mask as usize, 0, 8, 0]);
        check(Step::Signals, 0, result)?;
        Err(execute(plan))
    }
}

/// # Safety
/// As [`child_steps`].
unsafe fn read_status(plan: &mut Plan) -> Result<(), ChildFailure> {
    let path = c"/proc/self/status".as_ptr() as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the path is a constant; the buffer is STATUS_BYTES long.
    unsafe {
        let file = bare(libc::SYS_openat, [here, path, (libc::O_RDONLY | libc::O_CLOEXEC) as usize, 0, 0]);
        if file < 0 {
            return Err((Step::Verify, 0, file));
        }
        let length = bare(libc::SYS_read, [file as usize, plan.status as usize, STATUS_BYTES, 0, 0]);
        if length < 0 {
            return Err((Step::Verify, 1, length));
        }
        plan.status_length = length as usize;
        bare(libc::SYS_close, [file as usize, 0, 0, 0, 0]);
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
unsafe fn execute(plan: &mut Plan) -> ChildFailure {
    let mut refused = None;
    let mut candidate = plan.candidates;
    // SAFETY: the three arrays end with a null pointer and hold C strings.
    unsafe {
        while !(*candidate).is_null() {
            let result =
                bare(libc::SYS_execve, [*candidate as usize, plan.argv as usize, plan.env as usize, 0, 0]);
            match -result as i32 {
                libc::ENOENT | libc::ENOTDIR => {
                    // ENOENT for a file that is there: its interpreter is not.
                    if mode_of(*candidate).is_ok() {
                        return (Step::Exec, 0, result);
                    }
                }
                libc::EACCES => {
                    let found = match mode_of(*candidate) {
                        Ok(mode) if mode & libc::S_IFMT == libc::S_IFDIR => (Step::Resolve, 2, result),
                        Ok(mode) if mode & 0o111 == 0 => (Step::Resolve, 1, result),
                        Ok(_) | Err(_) => (Step::Exec, 0, result),
                    };
                    refused = refused.or(Some(found));
                }
                _ => return (Step::Exec, 0, result),
            }
            candidate = candidate.add(1);
        }
    }
    refused.unwrap_or((Step::Resolve, 0, -libc::ENOENT as isize))
}

/// # Safety
/// As [`child_steps`]; `path` is a C string.
unsafe fn mode_of(path: *const c_char) -> Result<u32, ()> {
    // SAFETY: plain data for which all zeroes is valid, on our own stack.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the kernel writes one `stat`.
    let result = unsafe { bare(libc::SYS_newfstatat, [here, path as usize, &raw mut status as usize, 0, 0]) };
    if result < 0 { Err(()) } else { Ok(status.st_mode) }
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
    // `struct sigaction` of the kernel: SIG_DFL, no flags, no restorer, no mask.
    let default = [0_u64; 4];
    for signal in 1..=64_usize {
        // SAFETY: the kernel reads four words. Not through libc, which refuses its own two signals, and those may
        // have been ignored before us. KILL and STOP are refused, which is no matter.
        unsafe { bare(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, 8, 0]) };
    }
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
