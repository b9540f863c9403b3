//! The gateway's side of the screen processes: starting them, and the connections to them.
//!
//! What a screen process sends or writes is believed no more than what a command prints.

mod launch;
mod link;

pub use launch::{ScreenLaunch, ScreenProcess, launch_blocking};
pub use link::{Latest, ScreenError, ScreenLink, ScreenObserver, ScrollbackPage};
