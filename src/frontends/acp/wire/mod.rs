//! What goes over the wire: lines, messages and their fields, and errors in the protocol's words.

pub mod encode;
pub mod errors;
pub mod framing;
pub mod handshake;
pub mod message;
pub mod raw_object;
pub mod stdio;
