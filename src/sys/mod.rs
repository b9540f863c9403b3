//! System calls that no library wraps, and the only place with unsafe code.

pub mod allocator;
pub mod async_fd;
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
pub mod oom;
pub mod peer;
pub mod pending;
pub mod pidfd;
pub mod probe;
pub mod process;
pub mod rights;
pub mod ring;
pub mod seccomp;
pub mod signals;
pub mod spawn;
pub mod text_file;
pub mod wait;
