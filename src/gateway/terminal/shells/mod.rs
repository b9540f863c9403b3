//! Kept shells: a line is asked about, typed, followed to its end.

mod driver;
mod editing;
pub mod line_end;
pub mod run_line;
pub mod running_line;
mod terminal;
