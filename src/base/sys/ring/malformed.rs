//! Files that are not rings: each lacks one property that a reader checks.

use std::os::fd::OwnedFd;

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};

use super::{Errno, Layout, RingOpenError, RingReader, RingWriter, WhenFull};
use crate::output::ring::{HEADER_BYTES, MAX_READ_BYTES, MAX_RETAINED_BYTES};

const ALL: [SealFlag; 3] = [SealFlag::F_SEAL_SHRINK, SealFlag::F_SEAL_GROW, SealFlag::F_SEAL_SEAL];

/// A file of zeroes in memory.
fn zeroes(length: u64, seals: SealFlag) -> OwnedFd {
    let file = memfd_create(c"provost-test", MFdFlags::MFD_ALLOW_SEALING).unwrap();
    nix::unistd::ftruncate(&file, length.cast_signed()).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    file
}

fn refused(file: OwnedFd) -> RingOpenError {
    RingReader::open(file).unwrap_err()
}

#[test]
fn a_file_that_lacks_one_of_the_seals_is_no_ring() {
    let length = Layout::retaining(0).unwrap().file_bytes();
    for missing in ALL {
        let others = ALL.into_iter().filter(|seal| *seal != missing).collect();
        assert_eq!(refused(zeroes(length, others)), RingOpenError::NotSealed, "{missing:?}");
    }
    assert_eq!(refused(zeroes(length, SealFlag::empty())), RingOpenError::NotSealed);
}

#[test]
fn a_directory_in_memory_which_has_no_seals_at_all_is_no_ring() {
    // It has the same kind of file system as the files in memory, on every host whose devices are in one.
    let directory = std::fs::File::open("/dev").unwrap();
    assert_eq!(refused(directory.into()), RingOpenError::NotSealed);
}

#[test]
fn a_file_that_does_not_begin_as_a_ring_is_none() {
    let length = Layout::retaining(0).unwrap().file_bytes();
    assert_eq!(refused(zeroes(length, ALL.into_iter().collect())), RingOpenError::WrongMagic);
}

#[test]
fn a_file_longer_than_the_longest_ring_or_shorter_than_the_shortest_is_none() {
    let longest = Layout::retaining(MAX_RETAINED_BYTES).unwrap().file_bytes();
    let shortest = HEADER_BYTES + MAX_READ_BYTES;
    for length in [longest + HEADER_BYTES, 4 * longest, shortest - HEADER_BYTES, HEADER_BYTES, 8, 0] {
        let file = zeroes(length, ALL.into_iter().collect());
        assert_eq!(refused(file), RingOpenError::WrongLength(length));
    }
    for retained in [0, MAX_RETAINED_BYTES] {
        let layout = Layout::retaining(retained).unwrap();
        let writer = RingWriter::create(layout, WhenFull::DropOldest).unwrap();
        let reader = RingReader::open(writer.file().try_clone().unwrap()).unwrap();
        assert_eq!(reader.capacity(), layout.capacity());
    }
}

#[test]
fn what_cannot_be_mapped_is_refused_with_the_kernels_error() {
    // Writing to it through a mapping is sealed off.
    let seals = ALL.into_iter().chain([SealFlag::F_SEAL_WRITE]).collect();
    let file = zeroes(Layout::retaining(0).unwrap().file_bytes(), seals);
    assert_eq!(refused(file), RingOpenError::System(Errno::EPERM));
}
