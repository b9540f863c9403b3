//! System calls that no library wraps, and the only place with unsafe code.

pub mod fdpass;
pub mod peer;
pub mod ring;
