//! The command line as a person or a script meets it: exit statuses, streams, signals, and what is left behind.
//!
//! The real binary, with its embedded gateway or one that these tests start on a socket of their own. Never touches
//! a gateway of the machine.

mod bytes;
mod environment;
mod escapes;
mod first_policy;
mod fixture;
mod git;
mod inherited;
mod links;
mod manual;
mod messages;
mod packages;
mod policies;
mod programs;
mod repository;
mod run;
mod serving;
mod sessions;
mod shell_wrapper;
mod stdin;
mod terminals;
mod thirty_two_bits;
mod toolchains;
mod umask;
mod venv;
