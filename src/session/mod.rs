//! Sessions: trust domains opened by a principal.

mod principal;

pub use principal::{Peer, Principal};
