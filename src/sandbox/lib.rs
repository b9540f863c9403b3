//! The processes of a sandbox, which the gateway starts by executing its own file: the supervisor within, and next to it the gate, the screen
//! and the network; and the subreaper of an agent in none.

#![forbid(unsafe_code)]

pub mod gate;
pub mod net;
pub mod screen;
pub mod subreaper;
pub mod supervisor;

use provost_base::{byte_text, caller, cgroup, display, failpoint, output, printable, sys, wire};
use provost_policy::{self as policy, network, resolve};
use provost_proto as proto;
