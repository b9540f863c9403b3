//! Sandboxes that an earlier gateway has started: adopted when they live, removed when they do not.

pub(crate) mod adopt;
pub(crate) mod handshake;
pub(crate) mod stale;
