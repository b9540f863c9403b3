//! What a new process does between clone and exec, in a fixed order.
//!
//! It runs in the supervisor's memory, on its own stack: only raw system calls on data that the parent has
//! prepared. It allocates nothing, formats nothing, and reports only where it failed.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use super::{
    child_file::{ExecutableId, is_same, status_of},
    clone::{raw_syscall, raw_syscall_of_six},
};

/// Room for /proc/self/status, which is about 1.5 KiB.
pub(super) const STATUS_BYTES: usize = 4096;

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

/// How a file that was compared is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ExecBy {
    /// By its path: no other process can change what the path leads to.
    Path = 1,
    /// By the descriptor that was compared: the path may lead elsewhere by now.
    Descriptor,
}

/// A file that is to be executed, or a script that leads to one.
#[repr(C)]
pub(super) struct ExpectedFile {
    pub(super) path: *const c_char,
    /// Null: unknown, and not compared.
    pub(super) identity: *const ExecutableId,
    pub(super) exec_by: ExecBy,
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

/// What the child reads and writes. Plain data and pointers: no Rust code of the child needs more.
#[repr(C)]
pub(super) struct ChildPlan {
    pub(super) join: *const i32,
    pub(super) join_count: usize,
    pub(super) controlling_terminal: bool,
    pub(super) rlimits: *const (u32, ResourceLimit),
    pub(super) read_back: *mut ResourceLimit,
    pub(super) rlimit_count: usize,
    pub(super) change: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) umask: u32,
    pub(super) status: *mut u8,
    pub(super) status_length: usize,
    pub(super) cwd: *const *const c_char,
    pub(super) cwd_identity: Option<(u64, u64)>,
    pub(super) candidates: *const *const c_char,
    /// Null: whichever candidate is found is executed.
    pub(super) expected: *const ExpectedFile,
    pub(super) expected_count: usize,
    pub(super) argv: *const *const c_char,
    pub(super) env: *const *const c_char,
    pub(super) exec_nonce: [usize; 3],
    pub(super) failed: (u32, u32, i32),
}

pub(super) extern "C" fn child(plan: *mut c_void) -> i32 {
    // SAFETY: the parent keeps the plan alive and does not touch it until this process has left its memory.
    let plan = unsafe { &mut *plan.cast::<ChildPlan>() };
    // SAFETY: see `child_steps`.
    if let Err((step, index, result)) = unsafe { child_steps(plan) } {
        plan.failed = (step as u32, index, -result as i32);
    }
    loop {
        // SAFETY: ends this process.
        unsafe { raw_syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// (step, index, minus errno).
type ChildFailure = (SpawnStep, u32, isize);

/// # Safety
/// Runs in a process that shares the parent's memory: bare system calls, the plan, the stack; nothing else. The
/// pointers in the plan must be as `Spawner::start` makes them.
unsafe fn child_steps(plan: &mut ChildPlan) -> Result<(), ChildFailure> {
    let check = |step, index, result: isize| if result < 0 { Err((step, index, result)) } else { Ok(result) };
    // SAFETY: every pointer given to the kernel comes from the plan or is to a local; lengths are theirs. The
    // shared table of descriptors is left with CLOSE_RANGE_UNSHARE before anything in it is closed.
    unsafe {
        for index in 0..plan.join_count {
            let group = *plan.join.add(index) as usize;
            // 0 means the writer. On v1 this is `tasks`, which moves one thread and takes no global lock.
            let result = raw_syscall(libc::SYS_write, [group, c"0".as_ptr() as usize, 1, 0, 0]);
            check(SpawnStep::JoinCgroup, index as u32, result)?;
        }
        check(SpawnStep::SessionLeader, 0, raw_syscall(libc::SYS_setsid, [0; 5]))?;
        if plan.controlling_terminal {
            // The process group that setsid(2) has made becomes the foreground group.
            let result = raw_syscall(libc::SYS_ioctl, [0, libc::TIOCSCTTY as usize, 0, 0, 0]);
            check(SpawnStep::SessionLeader, 1, result)?;
        }
        // 0, 1 and 2 are in their places already. Copies three descriptors, not the supervisor's thousands.
        let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
        let result = raw_syscall(libc::SYS_close_range, [3, u32::MAX as usize, unshare, 0, 0]);
        check(SpawnStep::Descriptors, 3, result)?;
        for index in 0..plan.rlimit_count {
            let (resource, limit) = &*plan.rlimits.add(index);
            let got = plan.read_back.add(index);
            let set = [0, *resource as usize, ptr::from_ref(limit) as usize, 0, 0];
            check(SpawnStep::Rlimit, index as u32, raw_syscall(libc::SYS_prlimit64, set))?;
            check(
                SpawnStep::Rlimit,
                index as u32,
                raw_syscall(libc::SYS_prlimit64, [0, *resource as usize, 0, got as usize, 0]),
            )?;
        }
        if plan.change {
            let (uid, gid) = (plan.uid as usize, plan.gid as usize);
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
        read_status(plan)?;
        enter_directory(plan.cwd, plan.cwd_identity)?;
        // It cannot fail. Memory is shared with the parent, and the mask is not.
        raw_syscall(libc::SYS_umask, [plan.umask as usize, 0, 0, 0, 0]);
        let mask = 0_u64;
        let how = libc::SIG_SETMASK as usize;
        let result = raw_syscall(libc::SYS_rt_sigprocmask, [how, &raw const mask as usize, 0, 8, 0]);
        check(SpawnStep::Signals, 0, result)?;
        Err(if plan.expected.is_null() {
            execute(plan)
        } else if plan.expected_count == 0 {
            refuse_unjudged(plan)
        } else {
            execute_expected(plan)
        })
    }
}

/// Opens the path from the root name by name, so that a link that another command has put there fails with ENOTDIR, and compares what it
/// leads to with what was expected.
/// openat2(2) would do it in one call, but the sandbox's filter refuses it.
///
/// # Safety
/// As [`child_steps`]; the names end with a null pointer.
unsafe fn enter_directory(
    mut names: *const *const c_char,
    expected: Option<(u64, u64)>,
) -> Result<(), ChildFailure> {
    let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC) as usize;
    let (mut at, mut name, mut index) = (libc::AT_FDCWD as usize, c"/".as_ptr(), 0);
    // SAFETY: each name is a string of the plan; a descriptor that is closed was opened here.
    unsafe {
        loop {
            let next = raw_syscall(libc::SYS_openat, [at, name as usize, flags, 0, 0]);
            if index > 0 {
                raw_syscall(libc::SYS_close, [at, 0, 0, 0, 0]);
            }
            if next < 0 {
                return Err((SpawnStep::Cwd, index, next));
            }
            at = next as usize;
            name = *names;
            if name.is_null() {
                break;
            }
            names = names.add(1);
            index += 1;
        }
        if let Some(expected) = expected {
            let status = status_of(at, c"".as_ptr(), libc::AT_EMPTY_PATH as usize);
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
unsafe fn read_status(plan: &mut ChildPlan) -> Result<(), ChildFailure> {
    let path = c"/proc/self/status".as_ptr() as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the path is a constant; the buffer is STATUS_BYTES long.
    unsafe {
        let file =
            raw_syscall(libc::SYS_openat, [here, path, (libc::O_RDONLY | libc::O_CLOEXEC) as usize, 0, 0]);
        if file < 0 {
            return Err((SpawnStep::Verify, 0, file));
        }
        let length = raw_syscall(libc::SYS_read, [file as usize, plan.status as usize, STATUS_BYTES, 0, 0]);
        if length < 0 {
            return Err((SpawnStep::Verify, 1, length));
        }
        plan.status_length = length as usize;
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
unsafe fn execute(plan: &mut ChildPlan) -> ChildFailure {
    let mut refused = None;
    let mut candidate = plan.candidates;
    // SAFETY: the three arrays end with a null pointer and hold C strings.
    unsafe {
        while !(*candidate).is_null() {
            let result = execve(plan, *candidate);
            let status = status_of(libc::AT_FDCWD as usize, *candidate, 0);
            match -result as i32 {
                // ENOENT for a file that is there: its interpreter is not.
                libc::ENOENT | libc::ENOTDIR if status.is_err() => {}
                libc::EACCES => refused = refused.or(Some(classify_refusal(result, status))),
                // Of the file's own path: where only the interpreter's leads nowhere, the file is there.
                libc::ELOOP | libc::ENAMETOOLONG if status.is_err() => {
                    return (SpawnStep::Resolve, 0, result);
                }
                _ => return (SpawnStep::Exec, 0, result),
            }
            candidate = candidate.add(1);
        }
    }
    refused.unwrap_or((SpawnStep::Resolve, 0, -libc::ENOENT as isize))
}

/// execve(2) with the nonce in the registers that it does not use, by which the sandbox's filter knows the exec. The kernel
/// clears them for the new program.
///
/// # Safety
/// As [`child_steps`]; `path` is a C string.
unsafe fn execve(plan: &ChildPlan, path: *const c_char) -> isize {
    let [first, second, third] = plan.exec_nonce;
    let (argv, env) = (plan.argv as usize, plan.env as usize);
    // SAFETY: the path is a C string, the two arrays end with a null pointer and hold C strings.
    unsafe { raw_syscall_of_six(libc::SYS_execve, [path as usize, argv, env, first, second, third]) }
}

/// Policy found no file, so a file that exists now was not evaluated, and is not executed.
///
/// # Safety
/// As [`child_steps`].
unsafe fn refuse_unjudged(plan: &mut ChildPlan) -> ChildFailure {
    let mut refused = None;
    let mut candidate = plan.candidates;
    // SAFETY: the array ends with a null pointer and holds C strings.
    unsafe {
        while !(*candidate).is_null() {
            match status_of(libc::AT_FDCWD as usize, *candidate, 0) {
                Ok(status) if status.st_mode & libc::S_IFMT == libc::S_IFREG => {
                    return (SpawnStep::Program, 0, -libc::ESTALE as isize);
                }
                Ok(status) => {
                    refused = refused.or(Some(classify_refusal(-libc::EACCES as isize, Ok(status))))
                }
                Err(result) => match -result as i32 {
                    libc::ENOENT | libc::ENOTDIR => {}
                    libc::EACCES => refused = refused.or(Some((SpawnStep::Exec, 0, result))),
                    libc::ELOOP | libc::ENAMETOOLONG => return (SpawnStep::Resolve, 0, result),
                    _ => return (SpawnStep::Exec, 0, result),
                },
            }
            candidate = candidate.add(1);
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
unsafe fn execute_expected(plan: &mut ChildPlan) -> ChildFailure {
    let (here, nothing) = (libc::AT_FDCWD as usize, c"".as_ptr() as usize);
    let empty_path = libc::AT_EMPTY_PATH as usize;
    let flags = (libc::O_PATH | libc::O_CLOEXEC) as usize;
    let last = plan.expected_count - 1;
    // SAFETY: `expected` holds `expected_count` files, their paths are C strings, and the plan keeps all of it alive.
    unsafe {
        for index in 0..=last {
            let expected = &*plan.expected.add(index);
            let opened = raw_syscall(libc::SYS_openat, [here, expected.path as usize, flags, 0, 0]);
            if opened < 0 {
                let absent = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG];
                let is_absent = absent.contains(&(-opened as i32));
                let step = if index == 0 && is_absent { SpawnStep::Resolve } else { SpawnStep::Exec };
                return (step, 0, opened);
            }
            let file = opened as usize;
            let status = status_of(file, c"".as_ptr(), empty_path);
            if !expected.identity.is_null() && !is_same(status, &*expected.identity) {
                return (SpawnStep::Program, index as u32, -libc::ESTALE as isize);
            }
            if index < last {
                let check = [file, nothing, libc::X_OK as usize, empty_path | libc::AT_EACCESS as usize, 0];
                let result = raw_syscall(libc::SYS_faccessat2, check);
                raw_syscall(libc::SYS_close, [file, 0, 0, 0, 0]);
                if result < 0 {
                    return classify_refusal(result, status);
                }
                continue;
            }
            let result = match (expected.exec_by, expected.identity.is_null()) {
                (ExecBy::Descriptor, false) => {
                    let (argv, env) = (plan.argv as usize, plan.env as usize);
                    let known = plan.exec_nonce[2];
                    raw_syscall_of_six(libc::SYS_execveat, [file, nothing, argv, env, empty_path, known])
                }
                // Under its name, which then is the name of the process.
                (ExecBy::Path, _) | (_, true) => execve(plan, expected.path),
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
