//! Output: the layout of the ring, and text cut out of a stream. Pure.

pub mod plain_text;
pub mod ring;
pub mod text;
