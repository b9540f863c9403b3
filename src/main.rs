//! The `provost` command.

fn main() {}
