//! Which directories commands may be shown: a session's roots, and what no command may reach.

pub mod governing;
mod home;
mod open;
pub(crate) mod path_walk;
mod root;
mod volume;

pub(crate) use home::{home_in, home_of};
pub(crate) use open::{Ownership, RootError, open_owned};
pub use open::{open, visible};
pub use root::{Root, RootRole};
pub(crate) use volume::{KERNEL_FILESYSTEMS, MEMORY_FILESYSTEMS, machines_locations, volumes_below};
