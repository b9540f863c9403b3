//! A terminal's screen as data: its cells, its modes, the form in which it lies in shared memory, what has changed between
//! two of them, and the bytes that keys and the mouse send in its modes.
//!
//! Emulates nothing. Whatever it reads was written by a process that may be hostile.

#![forbid(unsafe_code)]

pub mod cell;
pub mod continuation;
pub mod diff;
pub mod input;
pub mod keys;
pub mod mode;
pub mod mouse;
pub mod picture;
pub mod reader;
pub mod restore;
pub mod row;
pub mod size;
