//! Output (T6, T7): every byte arrives or is counted as lost, in order, at the edge of characters, at any speed.

mod backpressure;
mod ends;
mod limits;
mod order;
mod streams;
mod volume;
