//! Which directories commands may be shown: a session's roots, and what no command may reach.

pub mod governing;
mod home;
mod open;
pub mod path_walk;
mod root;
mod volume;

pub use home::{home_in, home_of};
pub use open::{Ownership, RootError, open, open_owned, visible};
pub use root::{Root, RootRole};
pub use volume::{KERNEL_FILESYSTEMS, MAX_VOLUMES, MEMORY_FILESYSTEMS, machines_locations, volumes_below};
