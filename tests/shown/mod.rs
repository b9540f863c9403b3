//! What the pages of the front ends show a new user, as it stands there: every block is run, or held by another suite, or says why not.
//!
//! A page that changes and breaks fails here, and so does one that gains a block or a line that nobody runs.

mod acp;
mod agents;
mod blocks;
mod install;
mod network;
mod readme;
mod spans;
