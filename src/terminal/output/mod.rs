//! A terminal's output: read, waited for, and kept from being overwritten.

pub mod backpressure;
pub mod reader;
pub mod redacted_ring;
