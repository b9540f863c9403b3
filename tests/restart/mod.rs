//! The gateway may die: what runs under it goes on, and the next gateway has all of it again.

mod alone;
#[cfg(feature = "failpoints")]
mod crashes;
mod damage;
mod draining;
mod lines;
mod lost;
mod runs;
mod session_files;
mod survival;
#[cfg(feature = "failpoints")]
mod versions;
