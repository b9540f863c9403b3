//! The exec gate's process and its mechanics in the kernel, through the library's launch and the gate's own socket.
//!
//! The gateway's end of that socket is here; the gate, the supervisor and the commands are real.

mod changes;
#[path = "../runtime/client.rs"]
#[allow(dead_code)]
mod client;
mod ends;
mod execs;
mod races;
mod sandbox;
