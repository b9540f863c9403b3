//! The policy suite: what the judge of commands makes of attacks and of their honest twins.

mod shells;
mod shipped;
