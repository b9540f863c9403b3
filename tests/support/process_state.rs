//! Gives every suite the same start, whatever started it: nohup, a script's background, another umask.
//!
//! The programs under test inherit ignored signals and the umask from the test process. A suite that includes this file
//! starts with the usual ones; nothing has to be called. Its tests mostly wait for other processes, so that two run for each
//! processor, unless the caller says how many.

#![allow(unsafe_code)]

use nix::sys::{
    signal::{SigHandler, SigSet, Signal, signal},
    stat::{Mode, umask},
};

// SAFETY: the section holds pointers to functions that the C library calls before `main`, with the C calling convention
// and nothing that they return; there is one thread then, and `usual_state` needs nothing that is set up later: the C
// library has its copy of the environment before it calls them.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = usual_state;

/// By which the test harness is told how many tests run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
const TESTS_FOR_EACH_PROCESSOR: usize = 2;

#[allow(clippy::disallowed_methods, reason = "before main, with one thread")]
extern "C" fn usual_state() {
    if std::env::var_os(TEST_THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: there is one thread.
        unsafe { std::env::set_var(TEST_THREADS, (processors * TESTS_FOR_EACH_PROCESSOR).to_string()) };
    }
    umask(Mode::from_bits_truncate(0o022));
    for usual in Signal::iterator().filter(|one| !matches!(one, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default disposition runs no code of this process.
        let _ = unsafe { signal(usual, SigHandler::SigDfl) };
    }
    let _ = SigSet::empty().thread_set_mask();
}
