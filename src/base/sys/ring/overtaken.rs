//! A reader that the writer overtakes while it copies: the second look at the tail, without any luck of timing.
//!
//! Each test overwrites after the copy and before the look, which is the place where threads rarely are.

use std::{cell::RefCell, io::Write as _, os::fd::AsFd as _};

use super::{Filled, RingRead, RingReader, RingWriter, WhenFull};
use crate::output::ring::Layout;

struct Ring {
    writer: RingWriter,
    reader: RingReader,
    pipe: std::io::PipeReader,
    end: std::io::PipeWriter,
}

impl Ring {
    /// A ring that has been written full once, each byte a function of its offset.
    fn full() -> Self {
        let writer = RingWriter::create(Layout::retaining(0).unwrap(), WhenFull::DropOldest).unwrap();
        let reader = RingReader::open(writer.file().try_clone().unwrap()).unwrap();
        let (pipe, end) = std::io::pipe().unwrap();
        let mut ring = Self { writer, reader, pipe, end };
        ring.write(ring.writer.layout.capacity());
        ring
    }

    fn write(&mut self, bytes: u64) {
        let until = self.writer.head() + bytes;
        while self.writer.head() < until {
            let from = self.writer.head();
            let some: Vec<u8> = (from..until.min(from + 4_096)).map(byte_at).collect();
            self.end.write_all(&some).unwrap();
            let filled = self.writer.fill_from(self.pipe.as_fd(), some.len()).unwrap();
            assert_eq!(filled, Filled::Bytes(some.len()));
        }
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 16) as u8
}

/// Reads `length` bytes from the tail, while `overwritten` bytes more are written after each copy but the last.
fn read_overtaken(length: usize, overwritten: u64, copies: usize) -> (u64, RingRead, Vec<u8>) {
    let ring = Ring::full();
    let (reader, ring) = {
        let again = RingReader::open(ring.writer.file().try_clone().unwrap()).unwrap();
        (again, RefCell::new(ring))
    };
    let start = reader.tail();
    let mut left = copies;
    let mut out = vec![0; length];
    let copied = reader
        .read_with(start, &mut out, |wanted, out| {
            let copied = reader.data.copy(wanted, out)?;
            if left > 0 {
                left -= 1;
                ring.borrow_mut().write(overwritten);
            }
            Ok(copied)
        })
        .unwrap();
    assert_eq!(ring.borrow().reader.tail(), reader.tail());
    out.truncate(copied.length);
    (start, copied, out)
}

#[track_caller]
fn assert_only_valid_bytes(copied: RingRead, out: &[u8]) {
    for (byte, offset) in out.iter().zip(copied.offset..) {
        assert_eq!(*byte, byte_at(offset), "the byte of offset {offset} is of another offset");
    }
}

#[test]
fn what_was_overwritten_during_the_copy_is_a_gap_and_the_rest_is_given() {
    let (start, copied, out) = read_overtaken(10_000, 3_000, 1);
    assert_eq!((copied.offset, copied.length), (start + 3_000, 7_000));
    assert_only_valid_bytes(copied, &out);
}

#[test]
fn a_copy_that_was_overwritten_whole_is_made_again_behind_the_gap() {
    let (start, copied, out) = read_overtaken(10_000, 10_000, 1);
    assert_eq!(copied.offset, start + 10_000);
    assert!(copied.length > 0, "{copied:?}");
    assert_only_valid_bytes(copied, &out);
}

#[test]
fn a_flood_that_overtakes_each_copy_does_not_keep_the_reader() {
    let (start, copied, out) = read_overtaken(10_000, 20_000, 3);
    assert!(copied.offset >= start + 60_000, "{copied:?}");
    assert_only_valid_bytes(copied, &out);
    let (_, copied, out) = read_overtaken(10_000, 20_000, usize::MAX);
    assert_eq!(copied.length, out.len());
}
