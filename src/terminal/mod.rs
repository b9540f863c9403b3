//! Terminals: one command each, from request to release.

mod caps;

pub use caps::Caps;
