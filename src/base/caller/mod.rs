//! What a system call that waits for its answer (seccomp_unotify(2)) means to the thread that makes it: its paths, its descriptors, its
//! memory. And the answer to one kind of call: a change of mode with `S_ISGID`, which is done for directories.
//!
//! The filter of a sandbox sees a mode and no type. What is answered here is opened as a directory, and changed through that descriptor
//! (decision 0498). Who answers has the callers' root, mounts and rights to files.

mod change_mode;
mod mode_call;
mod task;
pub mod walk;

pub use self::{
    change_mode::{Viewpoint, change_mode},
    mode_call::ModeCall,
};

/// The directory that a relative path begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDirectory {
    /// The caller's working directory.
    Working,
    /// What the caller has open under this number.
    Descriptor(i32),
}

impl StartDirectory {
    /// As the kernel reads it from an argument, of which it looks at the lower half.
    #[must_use]
    pub fn of(argument: u64) -> Self {
        match argument as i32 {
            libc::AT_FDCWD => Self::Working,
            descriptor => Self::Descriptor(descriptor),
        }
    }
}
