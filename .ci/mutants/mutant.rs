//! Which mutant is on. This file is part of a build by `.ci/mutants` and of no other.
//!
//! The number stands in the program itself, behind a mark by which `.ci/mutants/run` finds it: what is started with an empty
//! environment, under another name, in another root or by another user is the same file, and so has the same mutant.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, Ordering},
};

#[repr(C)]
struct Mark {
    mark: [u8; 28],
    number: AtomicU32,
}

static MARK: Mark = Mark { mark: *b"<the mutant that is on, u32>", number: AtomicU32::new(0) };

/// The number of the mutant that is on; 0: none.
pub fn active() -> u32 {
    black_box(&MARK).number.load(Ordering::Relaxed)
}

/// Whether this one is on.
pub fn is(number: u32) -> bool {
    active() == number
}

/// The mark, so that it is in the program.
pub fn mark() -> [u8; 28] {
    black_box(&MARK).mark
}
