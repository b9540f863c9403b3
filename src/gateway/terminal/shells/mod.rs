//! Kept shells: a line is asked about, typed, followed to its end.

mod driver;
pub mod run_line;
pub mod running_line;
