//! A terminal's output: readers, redaction of secrets, and backpressure.

pub mod backpressure;
pub mod reader;
pub mod redacted_ring;
