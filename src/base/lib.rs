//! What everything else of Provost stands on: system calls, cgroups, the formats that processes exchange and leave in files, and how texts
//! are shown. `ARCHITECTURE.md` is the map.

pub mod byte_text;
pub mod caller;
pub mod cgroup;
pub mod counters;
pub mod display;
pub mod failpoint;
pub mod link;
pub mod masking;
pub mod output;
pub mod printable;
pub mod sandbox_program;
pub mod signal;
pub mod statefile;
pub mod stdio;
#[allow(unsafe_code)]
pub mod sys;
pub mod wire;

#[cfg(test)]
use provost_proto as proto;
