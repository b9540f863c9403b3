//! Policy: what may run, where, as whom and with what. Pure: no input or output, no clock, no unsafe code.

pub mod duration;
pub mod profile;
