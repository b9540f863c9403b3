//! Output rings in shared memory: the supervisor's writer, the gateway's reader and that of the screen process.
//!
//! A ring is a sealed memfd laid out by [`crate::output::ring`]. The writer reads a pipe straight into the
//! mapping. A reader copies data with pread(2), so that nothing a supervisor does to the file can fault it, and
//! believes nothing that the header says beyond the file's length. The gateway's maps the header page, to change
//! its part of it; the screen process, which may change nothing, maps nothing. No side waits here, and none knows
//! whose output it is.

mod mapping;

use std::{
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use nix::errno::Errno;

use self::mapping::Mapping;
use crate::output::ring::{HEADER_BYTES, Layout, MAGIC, MAX_READ_BYTES, NO_HOLD, field};

/// Seals without which a file is not accepted as a ring: a file that cannot shrink cannot raise SIGBUS.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// What happens to the oldest bytes of a full ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// They are overwritten.
    DropOldest,
    /// The writer waits until the reader has moved its hold, which starts at 0.
    Block,
}

/// What one read of the pipe did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// That many bytes more are in the ring.
    Bytes(usize),
    /// The pipe has nothing now.
    Empty,
    /// Nobody can write to the pipe any more, and everything was read.
    End,
    /// The ring is full and held; `stalled` is set, so the reader will say when it has moved.
    Stalled,
}

/// The writing side of a ring. One for each ring.
#[derive(Debug)]
pub struct RingWriter {
    file: Arc<OwnedFd>,
    map: Mapping,
    layout: Layout,
    /// The writer's own copies; what the shared page says is for the reader.
    head: u64,
    tail: u64,
}

impl RingWriter {
    /// Makes a ring.
    ///
    /// # Errors
    /// The errno of memfd_create(2), ftruncate(2), fcntl(2) or mmap(2).
    pub fn create(layout: Layout, when_full: WhenFull) -> Result<Self, Errno> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the call touches no other memory.
        let make = |flags| Errno::result(unsafe { libc::memfd_create(c"provost-output".as_ptr(), flags) });
        let raw = match make(flags | libc::MFD_NOEXEC_SEAL) {
            // A kernel before 6.3 does not know MFD_NOEXEC_SEAL.
            Err(Errno::EINVAL) => make(flags)?,
            made => made?,
        };
        // SAFETY: the kernel has just made this descriptor for us.
        let file = unsafe { OwnedFd::from_raw_fd(raw) };
        let length = i64::try_from(layout.file_bytes()).map_err(|_| Errno::EFBIG)?;
        // SAFETY: plain system calls on a descriptor that we own.
        unsafe {
            Errno::result(libc::ftruncate(file.as_raw_fd(), length))?;
            Errno::result(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
        }
        let map =
            Mapping::new(file.as_fd(), usize::try_from(layout.file_bytes()).map_err(|_| Errno::EFBIG)?)?;
        map.word(field::MAGIC).store(MAGIC, Ordering::Relaxed);
        let hold = match when_full {
            WhenFull::DropOldest => NO_HOLD,
            WhenFull::Block => 0,
        };
        map.word(field::HOLD).store(hold, Ordering::Release);
        Ok(Self { file: Arc::new(file), map, layout, head: 0, tail: 0 })
    }

    /// The ring's file, to be sent to the reader.
    #[must_use]
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Bytes written since the start.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// One read from `pipe` into the ring, at most `wanted` bytes and never more than [`MAX_READ_BYTES`].
    ///
    /// # Errors
    /// The errno of readv(2), but for `EAGAIN`, which is [`Filled::Empty`].
    pub fn fill_from(&mut self, pipe: BorrowedFd<'_>, wanted: usize) -> Result<Filled, Errno> {
        let wanted = (wanted as u64).min(MAX_READ_BYTES);
        let mut room = self.layout.room(self.head, self.tail, self.hold(), wanted);
        if room.length == 0 {
            // Either the reader sees `stalled` after it has moved `hold`, or we see the moved `hold` here: each
            // side stores its word before it loads the other's, all in the one order of SeqCst. So a reader
            // that moves on is never missed.
            self.map.word(field::STALLED).store(1, Ordering::SeqCst);
            room = self.layout.room(self.head, self.tail, self.hold(), wanted);
            if room.length == 0 {
                return Ok(Filled::Stalled);
            }
            self.map.word(field::STALLED).store(0, Ordering::SeqCst);
        }
        if room.tail != self.tail {
            self.tail = room.tail;
            self.map.word(field::TAIL).store(room.tail, Ordering::SeqCst);
            // The new tail must be visible before any byte that it gives up is overwritten: a reader copies first
            // and loads the tail afterwards, so one that copied an overwritten byte sees that it was overtaken.
            // The kernel's copy comes after this fence in program order.
            fence(Ordering::SeqCst);
        }
        let [first, second] = self.layout.file_ranges(self.head, room.length);
        let parts = [self.map.part(first.start, first.end), self.map.part(second.start, second.end)];
        let used = if second.is_empty() { 1 } else { 2 };
        loop {
            // SAFETY: both parts lie inside the mapping, which lives as long as `self`. Rust holds no reference
            // to the data area, only the kernel writes it, and the other process only reads it by pread(2).
            let count = unsafe { libc::readv(pipe.as_raw_fd(), parts.as_ptr(), used) };
            match Errno::result(count) {
                Ok(0) => return Ok(Filled::End),
                Ok(count) => {
                    self.head += count as u64;
                    // SeqCst: see `take_armed`.
                    self.map.word(field::HEAD).store(self.head, Ordering::SeqCst);
                    return Ok(Filled::Bytes(count as usize));
                }
                Err(Errno::EAGAIN) => return Ok(Filled::Empty),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Says that no more will come.
    pub fn end(&mut self) {
        self.map.word(field::AT_END).store(1, Ordering::SeqCst);
    }

    /// Whether the reader wants to be told of the change just made; if so it must arm again for the next.
    ///
    /// The reader arms and then looks at `head` and `at_end` once more; we change those and then look at `armed`.
    /// All four accesses are SeqCst, so they have one order, and at least one side sees the other's.
    #[must_use]
    pub fn take_armed(&self) -> bool {
        let armed = self.map.word(field::ARMED);
        armed.load(Ordering::SeqCst) != 0 && armed.swap(0, Ordering::SeqCst) != 0
    }

    fn hold(&self) -> u64 {
        self.map.word(field::HOLD).load(Ordering::SeqCst)
    }
}

/// Why a file was not accepted as a ring.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RingOpenError {
    /// The kernel refused to say what the file is, or to map it.
    #[error("open an output ring")]
    System(#[from] Errno),
    /// The file could be made shorter while it is read.
    #[error("output ring is not sealed")]
    NotSealed,
    /// No ring has this length.
    #[error("file of {0} bytes is no output ring")]
    WrongLength(u64),
    /// The header does not start as a ring's does, or is of another version.
    #[error("file does not start as an output ring does")]
    WrongMagic,
}

/// What a reader got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRead {
    /// Offset of the first byte that was copied. Higher than what was asked for when that was overwritten: the
    /// difference is the gap.
    pub offset: u64,
    /// How many bytes were copied to the start of the buffer; 0 when there are none yet.
    pub length: usize,
}

/// The reading side of a ring. Many may exist; those that hold or arm must agree among themselves.
#[derive(Debug)]
pub struct RingReader {
    data: RingData,
    header: Mapping,
}

impl RingReader {
    /// Accepts `file` as a ring after looking at its kind, its seals, its length and its first word.
    pub fn open(file: OwnedFd) -> Result<Self, RingOpenError> {
        // SAFETY: plain data for which all zeroes is valid, filled in by fstat(2) and fstatfs(2) below.
        let (mut status, mut system): (libc::stat, libc::statfs) = unsafe { std::mem::zeroed() };
        // SAFETY: `file` is open; the pointers are to locals of the right type.
        let seals = unsafe {
            Errno::result(libc::fstat(file.as_raw_fd(), &raw mut status))?;
            Errno::result(libc::fstatfs(file.as_raw_fd(), &raw mut system))?;
            libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS)
        };
        // hugetlbfs files can be sealed too, but touching their pages can still raise SIGBUS.
        if seals < 0
            || seals & SEALS != SEALS
            || system.f_type as libc::c_long != libc::TMPFS_MAGIC as libc::c_long
        {
            return Err(RingOpenError::NotSealed);
        }
        let length = status.st_size.cast_unsigned();
        let layout = Layout::of_file(length).ok_or(RingOpenError::WrongLength(length))?;
        let header = Mapping::new(file.as_fd(), HEADER_BYTES as usize)?;
        if header.word(field::MAGIC).load(Ordering::Relaxed) != MAGIC {
            return Err(RingOpenError::WrongMagic);
        }
        Ok(Self { data: RingData { file, layout }, header })
    }

    /// The ring's file, open for reading only: to be handed to a process that may change nothing of it.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn reopen_read_only(&self) -> Result<OwnedFd, Errno> {
        super::file::open_read(std::path::Path::new(&format!("/proc/self/fd/{}", self.data.file.as_raw_fd())))
    }

    /// Bytes of data that the ring has room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.data.layout.capacity()
    }

    /// Bytes written since the start.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.load(field::HEAD)
    }

    /// The oldest offset still valid.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.load(field::TAIL)
    }

    /// Whether no more will come. Load this before `head`, to know that a head seen afterwards is the last.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.load(field::AT_END) != 0
    }

    /// Asks for one `Progress` at the next change. Look at `head` and `at_end` again afterwards, before waiting.
    pub fn arm(&self) {
        self.header.word(field::ARMED).store(1, Ordering::SeqCst);
    }

    /// Nothing from `offset` on may be overwritten from now on. Call [`Self::take_stalled`] afterwards.
    pub fn set_hold(&self, offset: u64) {
        self.header.word(field::HOLD).store(offset, Ordering::SeqCst);
    }

    /// Lets everything be overwritten. Call [`Self::take_stalled`] afterwards.
    pub fn clear_hold(&self) {
        self.set_hold(NO_HOLD);
    }

    /// Whether the writer waits for `Resume`; if so, it is now the caller's to send.
    #[must_use]
    pub fn take_stalled(&self) -> bool {
        let stalled = self.header.word(field::STALLED);
        stalled.load(Ordering::SeqCst) != 0 && stalled.swap(0, Ordering::SeqCst) != 0
    }

    /// Copies bytes from `offset` on, as many as there are and as `out` has room for.
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<RingRead, Errno> {
        self.read_with(offset, out, |wanted, out| self.data.copy(wanted, out))
    }

    /// [`Self::read_at`] with the copying as an argument, so that a test can overtake it.
    fn read_with(
        &self,
        offset: u64,
        out: &mut [u8],
        copy: impl FnMut(&Range<u64>, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<RingRead, Errno> {
        self.data.read_with(|| Ok((self.head(), self.tail())), offset, out, copy)
    }

    fn load(&self, at: usize) -> u64 {
        self.header.word(at).load(Ordering::SeqCst)
    }
}

/// The reading side of a ring for a process that may only read its file, and takes it for a ring by its length and its first word. What a
/// writer that lies can do to it is that it reads something else.
#[derive(Debug)]
pub struct ReadOnlyRing(RingData);

impl ReadOnlyRing {
    /// Looks at the file.
    ///
    /// # Errors
    /// [`RingOpenError`], and never for its seals.
    pub fn open(file: OwnedFd) -> Result<Self, RingOpenError> {
        let length = nix::sys::stat::fstat(&file)?.st_size.cast_unsigned();
        let layout = Layout::of_file(length).ok_or(RingOpenError::WrongLength(length))?;
        let ring = Self(RingData { file, layout });
        if ring.load(field::MAGIC)? == MAGIC { Ok(ring) } else { Err(RingOpenError::WrongMagic) }
    }

    /// As of [`RingReader::head`].
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn head(&self) -> Result<u64, Errno> {
        self.load(field::HEAD)
    }

    /// As of [`RingReader::at_end`].
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn at_end(&self) -> Result<bool, Errno> {
        Ok(self.load(field::AT_END)? != 0)
    }

    /// As of [`RingReader::read_at`].
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<RingRead, Errno> {
        let ends = || Ok((self.head()?, self.load(field::TAIL)?));
        self.0.read_with(ends, offset, out, |wanted, out| self.0.copy(wanted, out))
    }

    fn load(&self, at: usize) -> Result<u64, Errno> {
        let mut word = [0; size_of::<u64>()];
        self.0.read_exact(&mut word, at as u64)?;
        Ok(u64::from_le_bytes(word))
    }
}

/// The file of a ring, read without mapping it.
#[derive(Debug)]
struct RingData {
    file: OwnedFd,
    layout: Layout,
}

impl RingData {
    /// Copies what is there from `offset` on. `ends` are the ring's head and tail now.
    fn read_with(
        &self,
        ends: impl Fn() -> Result<(u64, u64), Errno>,
        offset: u64,
        out: &mut [u8],
        mut copy: impl FnMut(&Range<u64>, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<RingRead, Errno> {
        let bytes = out.len() as u64;
        let readable = |from| ends().map(|(head, tail)| self.layout.readable(head, tail, from, bytes));
        let mut wanted = readable(offset)?;
        loop {
            let length = copy(&wanted, out)?;
            // What was copied must be looked at before the tail is; the writer does it the other way round.
            fence(Ordering::SeqCst);
            let now = readable(wanted.start)?;
            let overtaken = now.start - wanted.start;
            if overtaken == 0 {
                return Ok(RingRead { offset: wanted.start, length });
            }
            if let Some(valid) = (length as u64).checked_sub(overtaken).filter(|valid| *valid > 0) {
                let valid = valid as usize;
                out.copy_within(length - valid..length, 0);
                return Ok(RingRead { offset: now.start, length: valid });
            }
            if length == 0 {
                return Ok(RingRead { offset: now.start, length: 0 });
            }
            // All of it was overwritten meanwhile: try less, so that a flood cannot keep the reader here.
            // A writer may lie about its head: the range is empty then.
            wanted = now.start..now.end.min(now.start.saturating_add(length as u64 / 2));
        }
    }

    fn copy(&self, wanted: &Range<u64>, out: &mut [u8]) -> Result<usize, Errno> {
        let mut length = 0;
        for place in self.layout.file_ranges(wanted.start, wanted.end - wanted.start) {
            let part = &mut out[length..length + (place.end - place.start) as usize];
            self.read_exact(part, place.start)?;
            length += part.len();
        }
        Ok(length)
    }

    fn read_exact(&self, out: &mut [u8], at: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            let at = (at + done as u64).cast_signed();
            // SAFETY: `rest` is writable memory of that length for the duration of the call.
            let count =
                unsafe { libc::pread(self.file.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), at) };
            match Errno::result(count) {
                // No ring ends here: it is sealed against shrinking.
                Ok(0) => return Err(Errno::EIO),
                Ok(count) => done += count as usize,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod malformed;
#[cfg(test)]
mod overtaken;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn ring(retained: u64, when_full: WhenFull) -> (RingWriter, RingReader) {
        let writer = RingWriter::create(Layout::retaining(retained).unwrap(), when_full).unwrap();
        let reader = RingReader::open(writer.file().try_clone().unwrap()).unwrap();
        (writer, reader)
    }

    fn byte_at(offset: u64) -> u8 {
        (offset.wrapping_mul(2_654_435_761) >> 16) as u8
    }

    #[test]
    fn bytes_come_out_as_they_went_in_and_a_gap_is_counted() {
        let (mut writer, reader) = ring(5000, WhenFull::DropOldest);
        let (pipe, mut end) = std::io::pipe().unwrap();
        let mut written = 0;
        for _ in 0..1000 {
            let bytes: Vec<u8> = (written..written + 777).map(byte_at).collect();
            end.write_all(&bytes).unwrap();
            written += 777;
            assert_eq!(writer.fill_from(pipe.as_fd(), 1 << 20).unwrap(), Filled::Bytes(777));
            let mut out = vec![0; 5000];
            let from = written.saturating_sub(5000);
            let got = reader.read_at(from, &mut out).unwrap();
            assert_eq!((got.offset, got.length as u64), (from, written - from));
            assert!(out[..got.length].iter().zip(from..).all(|(byte, offset)| *byte == byte_at(offset)));
        }
        let mut out = [0; 10];
        let got = reader.read_at(0, &mut out).unwrap();
        assert_eq!(got, RingRead { offset: reader.tail(), length: 10 });
        assert!(got.offset > 0);
        drop(end);
        assert_eq!(writer.fill_from(pipe.as_fd(), 1).unwrap(), Filled::End);
    }

    #[test]
    fn a_held_ring_stalls_and_goes_on_without_loss() {
        let (mut writer, reader) = ring(0, WhenFull::Block);
        let (pipe, mut end) = std::io::pipe().unwrap();
        let mut total = 0_u64;
        loop {
            end.write_all(&[1; 4096]).unwrap();
            match writer.fill_from(pipe.as_fd(), 4096).unwrap() {
                Filled::Bytes(count) => total += count as u64,
                Filled::Stalled => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(total, reader.capacity());
        assert_eq!((reader.tail(), reader.head()), (0, total));
        reader.set_hold(100);
        assert!(reader.take_stalled());
        assert!(!reader.take_stalled());
        assert_eq!(writer.fill_from(pipe.as_fd(), 4096).unwrap(), Filled::Bytes(100));
        assert_eq!(reader.tail(), 100);
        reader.clear_hold();
        assert_eq!(writer.fill_from(pipe.as_fd(), 4096).unwrap(), Filled::Bytes(3996));
    }

    #[test]
    fn a_reader_that_may_only_read_gets_the_same() {
        let (mut writer, reader) = ring(0, WhenFull::DropOldest);
        let (pipe, mut end) = std::io::pipe().unwrap();
        let read_only = ReadOnlyRing::open(reader.reopen_read_only().unwrap()).unwrap();
        let (mut one, mut other) = (vec![0; 10_000], vec![0; 10_000]);
        for turn in 0..100_u8 {
            end.write_all(&[turn; 4096]).unwrap();
            assert_eq!(writer.fill_from(pipe.as_fd(), 4096).unwrap(), Filled::Bytes(4096));
            let from = u64::from(turn).saturating_sub(1) * 4096;
            assert_eq!(read_only.read_at(from, &mut one), reader.read_at(from, &mut other));
            assert!(one == other);
        }
        assert_eq!(read_only.read_at(0, &mut one).unwrap().offset, reader.tail());
        writer.end();
        assert_eq!((read_only.head(), read_only.at_end()), (Ok(writer.head()), Ok(true)));
        let other = OwnedFd::from(tempfile::tempfile().unwrap());
        assert_eq!(ReadOnlyRing::open(other).unwrap_err(), RingOpenError::WrongLength(0));
    }

    #[test]
    fn one_progress_for_each_arming() {
        let (writer, reader) = ring(0, WhenFull::DropOldest);
        assert!(!writer.take_armed());
        reader.arm();
        assert!(writer.take_armed());
        assert!(!writer.take_armed());
    }

    #[test]
    fn no_program_that_is_executed_inherits_a_ring() {
        let (writer, _reader) = ring(0, WhenFull::DropOldest);
        let flags = nix::fcntl::fcntl(writer.file(), nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, libc::FD_CLOEXEC);
    }

    #[test]
    fn a_file_that_can_shrink_is_no_ring() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        assert_eq!(RingReader::open(file).unwrap_err(), RingOpenError::NotSealed);
    }

    #[test]
    fn a_reader_never_takes_an_overwritten_byte_for_a_valid_one() {
        let (mut writer, reader) = ring(0, WhenFull::DropOldest);
        let (pipe, mut end) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut offset = 0_u64;
                while offset < 64 << 20 {
                    let bytes: Vec<u8> = (offset..offset + 65_536).map(byte_at).collect();
                    end.write_all(&bytes).unwrap();
                    offset += 65_536;
                }
            });
            scope.spawn(move || {
                while writer.fill_from(pipe.as_fd(), 1 << 20).unwrap() != Filled::End {}
                writer.end();
            });
            let (mut at, mut copied, mut gaps) = (0, 0, 0);
            let mut out = vec![0; 100_000];
            loop {
                let ended = reader.at_end();
                let got = reader.read_at(at, &mut out).unwrap();
                assert!(out[..got.length].iter().zip(got.offset..).all(|(b, offset)| *b == byte_at(offset)));
                gaps += got.offset - at;
                copied += got.length as u64;
                at = got.offset + got.length as u64;
                if ended && got.length == 0 {
                    break;
                }
            }
            assert_eq!(at, 64 << 20);
            assert_eq!(copied + gaps, 64 << 20);
        });
    }
}
