//! The policy suite: what the judge of commands makes of attacks and of their honest twins.

mod dice;
mod fuzz;
mod served;
mod shells;
mod shipped;
