//! Run by `.ci/long` alone.

mod asciinema;
