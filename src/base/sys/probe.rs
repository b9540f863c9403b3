//! Runs a function in a short-lived process with its own namespaces, to see what the kernel refuses.
//!
//! May be used by a process with many threads, after whose fork(2) a child may not do much. Changes affect only the new
//! namespaces.

use std::{
    ffi::c_void,
    os::fd::{AsRawFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    sched::CloneFlags,
    sys::{
        signal::{SigSet, SigmaskHow},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

use super::clone::{CLONE_INTO_CGROUP, CloneArgs, Stack, clone3, raw_syscall};

/// What the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The process itself.
    #[error("clone3: {0}")]
    Clone(#[source] Errno),
    /// A call that it made.
    #[error("{0}")]
    Call(#[source] Errno),
}

struct ProbeCall<F> {
    call: Option<F>,
    result: Result<(), Errno>,
}

/// Runs `call` in a new process with these namespaces, cloned into `cgroup` if given, and waits for its end. The
/// process shares this one's memory and has a copy of its descriptors, and this thread is suspended meanwhile. So
/// `call` may allocate and return, but must not panic, lock, or start threads.
///
/// # Errors
/// [`ProbeError`].
pub fn run<F>(namespaces: CloneFlags, cgroup: Option<BorrowedFd<'_>>, call: F) -> Result<(), ProbeError>
where
    F: FnOnce() -> Result<(), Errno>,
{
    extern "C" fn child<F: FnOnce() -> Result<(), Errno>>(argument: *mut c_void) -> i32 {
        // SAFETY: `run` passes its own `ProbeCall<F>`, which nobody else touches while `run` stands still.
        let probe = unsafe { &mut *argument.cast::<ProbeCall<F>>() };
        if let Some(call) = probe.call.take() {
            probe.result = call();
        }
        loop {
            // SAFETY: exit_group(2) takes a number and ends only this process, which is no thread of another.
            unsafe { raw_syscall(libc::SYS_exit_group, [0; 5]) };
        }
    }

    let stack = Stack::new().map_err(ProbeError::Clone)?;
    let (lowest, length) = stack.range();
    let mut args = CloneArgs {
        // No exit signal: nobody else's wait sees this child.
        flags: namespaces.bits() as u32 as u64 | (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
        stack: lowest,
        stack_size: length,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    let mut probe = ProbeCall { call: Some(call), result: Err(Errno::ECHILD) };
    // A handler that ran in the child would run in our memory.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(ProbeError::Clone)?;
    // SAFETY: the stack is the child's alone until it has ended, because CLONE_VFORK lets this thread go on only
    // then; the child runs `child::<F>` on `probe`, which outlives it for the same reason. It uses this thread's
    // thread-local storage while this thread does not; locks of other threads are let go by them as ever.
    let started = unsafe { clone3(&args, child::<F>, (&raw mut probe).cast(), [0; 2]) };
    // The mask was this thread's own a moment ago.
    let _ = before.thread_set_mask();
    let pid = started.map_err(ProbeError::Clone)?;
    while waitpid(Pid::from_raw(pid), Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    probe.result.map_err(ProbeError::Call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_happens_in_a_process_of_its_own() {
        let mine = std::process::id();
        let mut tried = 0;
        run(CloneFlags::empty(), None, || {
            tried = std::process::id();
            Ok(())
        })
        .unwrap();
        assert!(tried != 0 && tried != mine);
        assert_eq!(run(CloneFlags::empty(), None, || Err(Errno::EXDEV)), Err(ProbeError::Call(Errno::EXDEV)));
        assert!(!std::path::Path::new(&format!("/proc/{tried}")).exists(), "it was reaped");
    }
}
