//! Which directories commands may be shown: a session's roots, and what no command may reach.

pub mod governing;
mod open;
pub mod path_walk;
mod root;

pub use open::{RootError, home_in, open, visible};
pub use root::{Root, RootRole};
