//! A session's root, held open since it was checked.

use std::{os::fd::OwnedFd, path::PathBuf};

/// A directory of the host that the sandbox shows at the same place.
#[derive(Debug)]
pub struct Root {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Open with `O_PATH` since it was checked.
    pub descriptor: OwnedFd,
}
