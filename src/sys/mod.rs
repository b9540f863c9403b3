//! System calls that no library wraps, and the only place with unsafe code.

mod child;
mod clone;
pub mod credentials;
pub mod fdpass;
pub mod file;
pub mod keyring;
pub mod landlock;
pub mod loopback;
pub mod mount;
pub mod namespace;
pub mod peer;
pub mod pidfd;
pub mod process;
pub mod ring;
pub mod seccomp;
pub mod spawn;
pub mod trial;
pub mod wait;
pub mod watched;
