//! Output: the layout of the ring, and text cut out of a stream. Pure.

pub mod ring;
pub mod text;
