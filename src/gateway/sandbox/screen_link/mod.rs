//! The gateway's side of the screen processes: starting them, and the connections to them.
//!
//! What a screen process sends or writes is believed no more than what a command prints.

mod launch;
mod link;

pub use launch::{ScreenLaunch, launch_blocking};
pub(crate) use link::{Latest, ScreenError};
pub use link::{ScreenLink, ScreenObserver};
