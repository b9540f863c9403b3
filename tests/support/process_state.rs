//! Gives every suite the same start, whatever started it: nohup, a script's background, another umask.
//!
//! The programs under test inherit ignored signals and the umask from the test process. A suite that includes this file
//! starts with the usual ones; nothing has to be called.

#![allow(unsafe_code)]

use nix::sys::{
    signal::{SigHandler, SigSet, Signal, signal},
    stat::{Mode, umask},
};

// SAFETY: the section holds pointers to functions that the C library calls before `main`, with the C calling convention
// and nothing that they return; there is one thread then, and `usual_state` needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = usual_state;

extern "C" fn usual_state() {
    umask(Mode::from_bits_truncate(0o022));
    for usual in Signal::iterator().filter(|one| !matches!(one, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default disposition runs no code of this process.
        let _ = unsafe { signal(usual, SigHandler::SigDfl) };
    }
    let _ = SigSet::empty().thread_set_mask();
}
