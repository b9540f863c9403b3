//! Sandboxes that an earlier gateway has started: adopted when they live, removed when they do not.

pub mod adopt;
pub mod handshake;
pub mod stale;
