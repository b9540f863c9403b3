//! The program `provost-sandbox`: the processes of a sandbox, which a gateway starts (the supervisor within, and next to it the gate, the
//! screen and the network), and the subreaper of an agent in none.

#![forbid(unsafe_code)]

mod gate;
mod net;
pub mod screen;
mod subreaper;
pub mod supervisor;

use std::{ffi::CString, os::unix::ffi::OsStrExt, process::ExitCode};

use provost_base::{
    byte_text, caller, cgroup, display, failpoint, link, output, printable, sandbox_program, sys, wire,
};
use provost_policy::{self as policy, network, resolve};
use provost_proto as proto;

/// What the program does: `argv[0]` says which process it is, the first argument of which build the one is that starts it.
///
/// None of these processes may have threads or a runtime before it asks for them.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if arguments.next().is_none_or(|build| build != sandbox_program::BUILD) {
        let (own, build) = (sandbox_program::NAME, sandbox_program::BUILD);
        eprintln!("{own}: this is build {build}, and only provost of the same build starts it");
        return ExitCode::from(sandbox_program::EXIT_OTHER_BUILD as u8);
    }
    if let Ok(short) = CString::new(name.as_bytes()) {
        // The name in `ps`, in place of that of a descriptor. Nothing depends on it.
        let _ = nix::sys::prctl::set_name(&short);
    }
    match name {
        name if name == supervisor::PROCESS_NAME => supervisor::main(),
        name if name == screen::PROCESS_NAME => screen::main(),
        name if name == subreaper::PROCESS_NAME => subreaper::main(),
        name if name == net::PROCESS_NAME => net::main(),
        _ => ExitCode::SUCCESS,
    }
}
