//! Output: the layout of the ring and the edges of text. Pure.

pub mod ring;
pub mod text;
