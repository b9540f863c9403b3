//! Kept shells: a line is asked about, typed, followed to its end.

mod driver;
pub(super) mod run_line;
pub(super) mod running_line;
