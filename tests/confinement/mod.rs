//! Confinement (S4): what a command is, down to the last flag, and what it cannot do, each thing by its errno.
//!
//! A refusal is only believed after the same program has done the same thing outside.

mod covered;
mod effective_confinement;
mod executables;
mod expected;
mod failures;
mod files;
mod kernel;
mod listed;
mod neighbours;
mod network;
mod private;
mod protected;
mod refusals;
mod volumes;
