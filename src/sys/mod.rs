//! System calls that no library wraps, and the only place with unsafe code.

mod clone;
pub mod fdpass;
pub mod peer;
pub mod pidfd;
pub mod ring;
pub mod spawn;
pub mod wait;
