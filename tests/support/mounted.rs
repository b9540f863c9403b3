//! A file system that a test has mounted, taken down with it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How long it may be in use after the test.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(30);

/// A mount point.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Runs `mount` with these arguments and this mount point. `None`: it cannot be had here.
    pub fn try_new(arguments: &[&str], at: &Path) -> Option<Self> {
        let status = Command::new("mount").args(arguments).arg(at).status();
        status.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was open in it a moment ago may still be closed, by another thread.
        let begun = Instant::now();
        loop {
            let done = Command::new("umount").arg("--recursive").arg(&self.0).output();
            if done.as_ref().is_ok_and(|done| done.status.success()) {
                return;
            }
            if begun.elapsed() > IN_USE_TIMEOUT {
                // A second panic would hide the first.
                assert!(thread::panicking(), "{} is not unmounted: {done:?}", self.0.display());
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
