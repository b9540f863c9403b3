//! Which mutant is on. This file is part of a build by `.ci/mutants` and of no other.
//!
//! The number stands in each program itself, behind a mark by which `.ci/mutants/run` finds it: what is started with an empty
//! environment, under another name, in another root or by another user is one of these files, and so has the same mutant. The
//! number [`RECORD`] is no mutant: it records which places of mutants a program comes by.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, Ordering},
};

/// Behind the number: the file in which places are recorded.
const PATH_BYTES: usize = 256;
const RECORD: u32 = u32::MAX;

#[repr(C)]
struct Mark {
    mark: [u8; 28],
    number: AtomicU32,
    path: [u8; PATH_BYTES],
}

static MARK: Mark =
    Mark { mark: *b"<the mutant that is on, u32>", number: AtomicU32::new(0), path: [b' '; PATH_BYTES] };

/// The number of the mutant that is on; 0: none. `place` is the lowest number of those that are at the same place.
pub fn at(place: u32) -> u32 {
    let number = black_box(&MARK).number.load(Ordering::Relaxed);
    if number == RECORD {
        crate::sys::reached::record(place);
    }
    number
}

/// Whether this one is on, alone or one of some at a place.
pub fn is(number: u32) -> bool {
    at(number) == number
}

/// The file in which places are recorded, if they are.
pub fn record_path() -> Option<&'static str> {
    let mark = black_box(&MARK);
    let is_on = mark.number.load(Ordering::Relaxed) == RECORD;
    is_on.then(|| std::str::from_utf8(&mark.path).unwrap_or_default().trim_end_matches(['\0', ' ']))
}
