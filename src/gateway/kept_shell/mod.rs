//! Kept shells: what is typed into a shell to run a line in it, and the marks by which it says where the line begins and ends.
//!
//! Pure: types nothing and reads nothing itself. Marks are a convenience. A line runs in the shell and can write any mark that it has
//! seen; it cannot have seen the one that is asked for after it.

#![forbid(unsafe_code)]

pub mod marks;
pub mod quote;
pub mod shell;

pub use self::{
    marks::{FoundMark, Mark, MarkScanner},
    quote::{LINE_MAX_BYTES, LineTextError, checked_line},
    shell::{InputMode, Nonce, ShellKind},
};
