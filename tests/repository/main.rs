//! What the sources, their dependencies and the pages look like. Reads text, and starts nothing but `provost --help`.

mod dependencies;
mod layering;
mod pages;
