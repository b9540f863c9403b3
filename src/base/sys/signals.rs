//! The signal dispositions and mask that a program inherits across execve(2).
//!
//! Under nohup(1), in a shell script's job, or below a service that ignores SIGPIPE, a command that waits for a
//! signal would wait for ever. So our programs reset all dispositions when they start, or reset them for what they
//! start. SIGPIPE is left to the standard library, which ignores it in our programs and resets it for what it
//! starts.

use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;

use super::clone::raw_syscall;

/// Dispositions belong to the whole process.
static DISPOSITIONS_LOCK: Mutex<()> = Mutex::new(());

/// The kernel's signals; the C library hides two of them.
const SIGNALS: std::ops::RangeInclusive<usize> = 1..=64;

/// `struct sigaction` of the kernel: what to do, flags, restorer, mask.
type SignalAction = [u64; 4];

const DEFAULT: SignalAction = [libc::SIG_DFL as u64, 0, 0, 0];

/// Resets all dispositions, and unblocks all signals. For the start of a program, before any handler is installed.
pub fn reset() {
    others_than_sigpipe().for_each(|signal| set(signal, &DEFAULT));
    let none = 0_u64;
    let how = libc::SIG_SETMASK as usize;
    // SAFETY: the kernel reads one word, which outlives the call.
    unsafe { raw_syscall(libc::SYS_rt_sigprocmask, [how, &raw const none as usize, 0, 8, 0]) };
}

/// Whether this process ignores a signal, as what nohup(1) starts does, and a shell script's background.
pub fn is_ignored(signal: i32) -> bool {
    usize::try_from(signal).is_ok_and(|signal| get(signal)[0] == libc::SIG_IGN as u64)
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with EFBIG instead of killing this process, so that
/// it can report that and end what it runs.
pub fn ignore_file_size_limit() {
    set(libc::SIGXFSZ as usize, &[libc::SIG_IGN as u64, 0, 0, 0]);
}

/// Lets this process wait for its children, also where it was started with SIGCHLD ignored: their ends are forgotten then (wait(2)).
pub fn await_children() {
    set(libc::SIGCHLD as usize, &DEFAULT);
}

/// Runs `start` while no signal is ignored, so that what it starts ignores none. An otherwise ignored signal that
/// arrives meanwhile takes effect.
pub fn with_default_dispositions<T>(start: impl FnOnce() -> T) -> T {
    // Serialized: a concurrent caller would restore dispositions that this one has reset.
    let _alone = DISPOSITIONS_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let ignored: Vec<_> = others_than_sigpipe()
        .map(|signal| (signal, get(signal)))
        .filter(|(_, action)| action[0] == libc::SIG_IGN as u64)
        .collect();
    ignored.iter().for_each(|(signal, _)| set(*signal, &DEFAULT));
    let started = start();
    ignored.iter().for_each(|(signal, action)| set(*signal, action));
    started
}

/// Sends a signal to the process group that a process leads, by its number: also one that has no name here.
///
/// # Errors
/// The errno of kill(2): `EINVAL` for what is no signal, or no process that can lead a group of ours.
pub fn send_to_group(leader: i32, signal: i32) -> Result<(), Errno> {
    // 0 and -1 mean other processes.
    if leader <= 1 || !usize::try_from(signal).is_ok_and(|signal| SIGNALS.contains(&signal)) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: takes two numbers.
    Errno::result(unsafe { libc::kill(-leader, signal) }).map(drop)
}

/// Resets every signal to its default.
pub(super) fn reset_all() {
    SIGNALS.for_each(|signal| set(signal, &DEFAULT));
}

fn others_than_sigpipe() -> impl Iterator<Item = usize> {
    SIGNALS.filter(|signal| *signal != libc::SIGPIPE as usize)
}

fn set(signal: usize, action: &SignalAction) {
    // SAFETY: the kernel reads four words; the actions are defaults, or those that it has given. Not through libc, which
    // refuses its own two signals, and those may have been ignored before us. KILL and STOP are refused, which is no
    // matter.
    unsafe { raw_syscall(libc::SYS_rt_sigaction, [signal, action.as_ptr() as usize, 0, 8, 0]) };
}

fn get(signal: usize) -> SignalAction {
    let mut action = DEFAULT;
    // SAFETY: the kernel writes four words, which are there.
    unsafe { raw_syscall(libc::SYS_rt_sigaction, [signal, 0, action.as_mut_ptr() as usize, 8, 0]) };
    action
}
