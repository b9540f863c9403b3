//! The output channels of a terminal.

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Of stdout, or the merged one.
    Stdout,
    /// Of stderr, where it is kept apart.
    Stderr,
}
