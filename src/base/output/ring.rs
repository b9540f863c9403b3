//! The layout of an output ring: the header's fields, and which bytes of the file hold which offsets.
//!
//! Pure arithmetic on absolute offsets, used by the writer (supervisor) and the readers (gateway, screen process). It maps and reads nothing,
//! and refuses a ring larger than [`MAX_RETAINED_BYTES`] needs.

use std::ops::Range;

/// Bytes in front of the data: one page, so that the header can be mapped alone.
pub const HEADER_BYTES: u64 = 4096;

/// What the header starts with: "PVRING" and the layout's version, 1.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PVRING\0\x01");

/// The most that a ring can be asked to retain: 4 GiB.
pub const MAX_RETAINED_BYTES: u64 = 4 << 30;

/// The most that the writer takes in with one read.
///
/// The data area is longer than what is to be retained by this much: the tail is moved before it is known how
/// much a read will bring, and what was asked for must be there afterwards all the same.
pub const MAX_READ_BYTES: u64 = 128 << 10;

/// `hold` of a ring that nobody holds.
pub const NO_HOLD: u64 = u64::MAX;

/// Positions of the header's fields, in bytes from the start of the file. Each is a `u64` of its own; those that
/// different processes write are on different cache lines.
pub mod field {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Bytes written since the start.
    pub const HEAD: usize = 64;
    /// The oldest offset still valid.
    pub const TAIL: usize = 72;
    /// 1 when no more will come.
    pub const AT_END: usize = 80;
    /// 1: send one `Progress` at the next change.
    pub const ARMED: usize = 128;
    /// With block-when-full: nothing from this offset on may be overwritten.
    pub const HOLD: usize = 192;
    /// 1: the writer waits for `Resume`.
    pub const STALLED: usize = 256;
}

/// A ring cannot be that large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a ring that retains {0} bytes, more than {MAX_RETAINED_BYTES}")]
pub struct TooLarge(pub u64);

/// The shape of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    capacity: u64,
}

impl Layout {
    /// The layout of a ring that always holds the newest `bytes` bytes, or all when fewer were written.
    pub fn retaining(bytes: u64) -> Result<Self, TooLarge> {
        if bytes > MAX_RETAINED_BYTES {
            return Err(TooLarge(bytes));
        }
        Ok(Self { capacity: (bytes + MAX_READ_BYTES).next_multiple_of(HEADER_BYTES) })
    }

    /// The layout of a file of that length; `None` when no ring has it.
    #[must_use]
    pub fn of_file(bytes: u64) -> Option<Self> {
        let capacity = bytes.checked_sub(HEADER_BYTES)?;
        // A ring that retains nothing has a capacity of just one read.
        let is_possible = (MAX_READ_BYTES..=MAX_RETAINED_BYTES + MAX_READ_BYTES).contains(&capacity)
            && capacity.is_multiple_of(HEADER_BYTES);
        is_possible.then_some(Self { capacity })
    }

    /// Bytes of data that the file has room for.
    #[must_use]
    pub fn capacity(self) -> u64 {
        self.capacity
    }

    /// Bytes of the whole file.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        HEADER_BYTES + self.capacity
    }

    /// The places in the file that hold the offsets `start .. start + length`: one range, or two where the ring
    /// wraps. At most the capacity.
    #[must_use]
    pub fn file_ranges(self, start: u64, length: u64) -> [Range<u64>; 2] {
        let length = length.min(self.capacity);
        let from = start % self.capacity;
        let first = length.min(self.capacity - from);
        let at = HEADER_BYTES + from;
        [at..at + first, HEADER_BYTES..HEADER_BYTES + (length - first)]
    }

    /// How much the writer may take in now, at most `wanted`, and where the tail must be before it does.
    ///
    /// `hold` is [`NO_HOLD`], or the offset from which nothing may be overwritten; one that lies outside of what
    /// the ring holds counts as the nearest end.
    #[must_use]
    pub fn room(self, head: u64, tail: u64, hold: u64, wanted: u64) -> WriteRoom {
        let limit = match hold {
            NO_HOLD => self.capacity,
            hold => self.capacity - (head - hold.clamp(tail, head)),
        };
        let length = wanted.min(limit).min(self.capacity);
        WriteRoom { length, tail: tail.max((head + length).saturating_sub(self.capacity)) }
    }

    /// The part of `offset .. offset + wanted` that a reader can have, given what the header says.
    ///
    /// What is before the oldest byte is left out, so the start may be behind `offset`: a gap. A header that
    /// claims to hold more than the capacity is not believed.
    #[must_use]
    pub fn readable(self, head: u64, tail: u64, offset: u64, wanted: u64) -> Range<u64> {
        let oldest = tail.max(head.saturating_sub(self.capacity)).min(head);
        let start = offset.max(oldest);
        let end = head.min(start.saturating_add(wanted));
        start..end.max(start)
    }
}

/// What the writer may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRoom {
    /// Bytes that it may write from the head on; 0 when a held ring is full.
    pub length: u64,
    /// What the tail must be before the first of them is written.
    pub tail: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_than_the_bound_is_refused() {
        assert_eq!(Layout::retaining(u64::MAX), Err(TooLarge(u64::MAX)));
        assert!(Layout::retaining(MAX_RETAINED_BYTES).is_ok());
    }

    #[test]
    fn a_file_that_is_no_ring_is_refused() {
        let (shortest, longest) =
            (HEADER_BYTES + MAX_READ_BYTES, HEADER_BYTES + MAX_RETAINED_BYTES + MAX_READ_BYTES);
        for bytes in
            [0, 1, HEADER_BYTES, shortest - HEADER_BYTES, shortest + 1, longest + HEADER_BYTES, u64::MAX]
        {
            assert_eq!(Layout::of_file(bytes), None, "{bytes}");
        }
        for bytes in [shortest, longest] {
            assert_eq!(Layout::of_file(bytes).map(Layout::file_bytes), Some(bytes));
        }
    }

    proptest! {
        #[test]
        fn a_ring_is_known_by_the_length_of_its_file(bytes in 0..=MAX_RETAINED_BYTES) {
            let layout = Layout::retaining(bytes).unwrap();
            prop_assert_eq!(Layout::of_file(layout.file_bytes()), Some(layout));
            prop_assert!(layout.capacity() >= bytes + MAX_READ_BYTES);
        }

        #[test]
        fn what_is_asked_for_is_retained_whatever_the_reads_bring(
            retained in 0u64..300_000,
            reads in prop::collection::vec((1..=MAX_READ_BYTES, 0u64..=MAX_READ_BYTES), 1..60),
        ) {
            let layout = Layout::retaining(retained).unwrap();
            let (mut head, mut tail) = (0, 0);
            for (wanted, came) in reads {
                let room = layout.room(head, tail, NO_HOLD, wanted);
                prop_assert_eq!(room.length, wanted);
                prop_assert!(room.tail >= tail);
                tail = room.tail;
                head += came.min(room.length);
                prop_assert!(head - tail >= retained.min(head));
                prop_assert!(head - tail <= layout.capacity());
            }
        }

        #[test]
        fn nothing_that_is_held_is_overwritten(
            head in 0u64..10_000_000, held in 0u64..600_000, valid in 0u64..600_000, wanted in 1..=MAX_READ_BYTES,
        ) {
            let layout = Layout::retaining(300_000).unwrap();
            let tail = head.saturating_sub(valid.min(layout.capacity()));
            let hold = head.saturating_sub(held);
            let room = layout.room(head, tail, hold, wanted);
            prop_assert!(room.tail <= hold.max(tail));
            prop_assert!(head + room.length - room.tail <= layout.capacity());
            // Full only when it really is.
            prop_assert!(room.length > 0 || head - hold.max(tail) == layout.capacity());
        }

        #[test]
        fn a_strange_hold_neither_overflows_nor_blocks_for_ever(head in any::<u32>(), hold in any::<u64>()) {
            let layout = Layout::retaining(0).unwrap();
            let head = u64::from(head);
            let tail = head.saturating_sub(layout.capacity());
            let room = layout.room(head, tail, hold, MAX_READ_BYTES);
            prop_assert!(hold <= tail || room.length > 0);
        }

        #[test]
        fn places_cover_the_length_without_overlap_and_inside_the_file(
            start in any::<u32>(), length in 0u64..2_000_000, retained in 0u64..1_000_000,
        ) {
            let layout = Layout::retaining(retained).unwrap();
            let [first, second] = layout.file_ranges(u64::from(start), length);
            let covered = (first.end - first.start) + (second.end - second.start);
            prop_assert_eq!(covered, length.min(layout.capacity()));
            prop_assert!(first.start >= HEADER_BYTES && first.end <= layout.file_bytes());
            prop_assert!(second.end <= layout.file_bytes());
            prop_assert!(second.is_empty() || (first.end == layout.file_bytes() && second.end <= first.start));
        }

        #[test]
        fn no_header_makes_a_reader_read_outside(
            head in any::<u64>(), tail in any::<u64>(), offset in any::<u64>(), wanted in any::<u64>(),
        ) {
            let layout = Layout::retaining(1000).unwrap();
            let range = layout.readable(head, tail, offset, wanted);
            prop_assert!(range.start >= offset);
            prop_assert!(range.start <= range.end);
            prop_assert!(range.end - range.start <= layout.capacity().min(wanted));
            prop_assert!(range.is_empty() || range.end <= head);
        }
    }
}
