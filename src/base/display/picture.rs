//! A whole screen at one moment, and its form in shared memory.
//!
//! The first page of the memory holds [`MAGIC`] and a sequence number that is odd while the screen process writes. The
//! picture follows: a head of fixed length, the title, the cells, one byte for each row, the marks. The memory always has
//! [`FILE_BYTES`]; pages that no picture has needed take no memory.

use std::sync::Arc;

use super::{
    cell::{Cell, MAX_MARKS},
    mode::Modes,
    row::Row,
    size::{MAX_CELLS, ScreenSize},
};

/// What the memory starts with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PVSCRN\0\x01");
/// Position of the magic.
pub const MAGIC_AT: u64 = 0;
/// Position of the sequence number.
pub const SEQUENCE_AT: u64 = 64;
/// Position of the picture.
pub const PICTURE_AT: u64 = 4096;

/// Bytes of the longest title.
pub const MAX_TITLE_BYTES: usize = 1024;
/// Marks of all cells together.
pub const MAX_ALL_MARKS: usize = 65_536;

/// Bytes of the head.
pub const HEAD_BYTES: usize = 80;
/// Bytes of one mark: the cell's index and the character.
const MARK_BYTES: usize = 8;

/// Bytes of the longest picture.
pub const MAX_PICTURE_BYTES: usize =
    HEAD_BYTES + MAX_TITLE_BYTES + MAX_CELLS as usize * Cell::BYTES + 512 + MAX_ALL_MARKS * MARK_BYTES;
/// Bytes of the memory.
pub const FILE_BYTES: u64 = PICTURE_AT + (MAX_PICTURE_BYTES as u64).next_multiple_of(4096);

/// The form of a cursor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CursorShape {
    /// A block.
    #[default]
    Block,
    /// A line below.
    Underline,
    /// A line to the left.
    Bar,
}

/// A cursor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// From 0.
    pub column: u16,
    /// From 0.
    pub row: u16,
    /// Its form. Whether it is shown is a mode.
    pub shape: CursorShape,
}

/// A screen at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Its size.
    pub size: ScreenSize,
    /// As many as the size says. Rows that have not changed are shared with the picture before.
    pub rows: Vec<Arc<Row>>,
    /// The cursor, within the size.
    pub cursor: Cursor,
    /// The modes.
    pub modes: Modes,
    /// As the program set it; not cleaned.
    pub title: String,
    /// How often the bell has rung.
    pub bells: u64,
    /// Rows above the screen that can be asked for.
    pub scrollback_rows: u32,
    /// Bytes of the output that the picture shows.
    pub offset: u64,
    /// The offset from which the screen was built: not 0 when bytes were missing, because the screen process was made again
    /// or was overtaken.
    pub built_from: u64,
    /// How often the emulator had to be made again, because it failed on what the command wrote.
    pub resets: u32,
}

/// Why bytes are not a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// They end too early.
    #[error("the screen's memory ends too early")]
    Truncated,
    /// The size is out of bounds.
    #[error("the screen's size is out of bounds")]
    Size,
    /// The cursor is not on the screen.
    #[error("the cursor is not on the screen")]
    Cursor,
    /// The title is too long or no text.
    #[error("the title is too long or no text")]
    Title,
    /// There are more marks than a screen can have, or one is not on the screen.
    #[error("a combining mark is not on the screen")]
    Marks,
}

/// What the head says, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    size: ScreenSize,
    cursor: Cursor,
    modes: Modes,
    title_bytes: usize,
    marks: usize,
    bells: u64,
    scrollback_rows: u32,
    offset: u64,
    built_from: u64,
    resets: u32,
}

impl Head {
    /// Reads a head.
    ///
    /// # Errors
    /// [`PictureError`].
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Self, PictureError> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let size = ScreenSize::new(half(0).into(), half(2).into()).map_err(|_| PictureError::Size)?;
        let shape = match half(8) {
            1 => CursorShape::Underline,
            2 => CursorShape::Bar,
            _ => CursorShape::Block,
        };
        let cursor = Cursor { column: half(4), row: half(6), shape };
        if cursor.column >= size.columns() || cursor.row >= size.rows() {
            return Err(PictureError::Cursor);
        }
        let (title_bytes, marks) = (word(16) as usize, word(20) as usize);
        if title_bytes > MAX_TITLE_BYTES {
            return Err(PictureError::Title);
        }
        if marks > MAX_ALL_MARKS {
            return Err(PictureError::Marks);
        }
        Ok(Self {
            size,
            cursor,
            modes: Modes::from_bits(word(12)),
            title_bytes,
            marks,
            bells: long(24),
            scrollback_rows: word(32),
            resets: word(36),
            offset: long(40),
            built_from: long(48),
        })
    }

    /// Bytes of the picture behind its head.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.title_bytes + body_of_cells(self.size) + self.marks * MARK_BYTES
    }
}

fn body_of_cells(size: ScreenSize) -> usize {
    size.cells() * Cell::BYTES + usize::from(size.rows())
}

impl Picture {
    /// Appends the picture's bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let title = crate::printable::truncate(&self.title, MAX_TITLE_BYTES);
        let shape: u16 = match self.cursor.shape {
            CursorShape::Block => 0,
            CursorShape::Underline => 1,
            CursorShape::Bar => 2,
        };
        for half in [self.size.columns(), self.size.rows(), self.cursor.column, self.cursor.row, shape, 0] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(self.modes.0.to_le_bytes());
        bytes.extend((title.len() as u32).to_le_bytes());
        let marks_at = bytes.len();
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(self.bells.to_le_bytes());
        bytes.extend(self.scrollback_rows.to_le_bytes());
        bytes.extend(self.resets.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.built_from.to_le_bytes());
        bytes.resize(start + HEAD_BYTES, 0);
        bytes.extend(title.as_bytes());
        let marks = encode_rows(self.rows.iter().map(AsRef::as_ref), self.size, bytes);
        bytes[marks_at..marks_at + 4].copy_from_slice(&(marks as u32).to_le_bytes());
    }

    /// Reads a picture behind its head. Rows that are as before are taken from the picture before.
    ///
    /// # Errors
    /// [`PictureError`].
    pub fn decode(head: &Head, body: &[u8], before: Option<&Self>) -> Result<Self, PictureError> {
        let (title, rest) = body.split_at_checked(head.title_bytes).ok_or(PictureError::Truncated)?;
        let title = std::str::from_utf8(title).map_err(|_| PictureError::Title)?;
        let rows = decode_rows(head.size, head.marks, rest)?;
        let shared = |(index, row): (usize, Row)| match before.and_then(|before| before.rows.get(index)) {
            Some(old) if **old == row => old.clone(),
            Some(_) | None => Arc::new(row),
        };
        Ok(Self {
            size: head.size,
            rows: rows.into_iter().enumerate().map(shared).collect(),
            cursor: head.cursor,
            modes: head.modes,
            title: title.to_owned(),
            bells: head.bells,
            scrollback_rows: head.scrollback_rows,
            offset: head.offset,
            built_from: head.built_from,
            resets: head.resets,
        })
    }
}

/// Appends rows of this size; returns how many marks they have.
pub fn encode_rows<'a>(
    rows: impl Iterator<Item = &'a Row> + Clone,
    size: ScreenSize,
    bytes: &mut Vec<u8>,
) -> usize {
    for row in rows.clone() {
        for column in 0..usize::from(size.columns()) {
            bytes.extend(row.cells.get(column).copied().unwrap_or_default().to_bytes());
        }
    }
    bytes.extend(rows.clone().map(|row| u8::from(row.is_wrapped)));
    let mut count = 0;
    for (row, index) in rows.zip(0_u32..) {
        for (column, marks) in &row.marks {
            for mark in marks.iter().take(MAX_MARKS) {
                if count == MAX_ALL_MARKS {
                    return count;
                }
                count += 1;
                bytes.extend((index * u32::from(size.columns()) + u32::from(*column)).to_le_bytes());
                bytes.extend(u32::from(*mark).to_le_bytes());
            }
        }
    }
    count
}

/// Reads rows of this size.
///
/// # Errors
/// [`PictureError::Truncated`], [`PictureError::Marks`].
pub fn decode_rows(size: ScreenSize, marks: usize, bytes: &[u8]) -> Result<Vec<Row>, PictureError> {
    let (cells, rest) = bytes.split_at_checked(size.cells() * Cell::BYTES).ok_or(PictureError::Truncated)?;
    let (wraps, rest) = rest.split_at_checked(size.rows().into()).ok_or(PictureError::Truncated)?;
    let (marked, _) = rest.split_at_checked(marks * MARK_BYTES).ok_or(PictureError::Truncated)?;
    let (cells, _) = cells.as_chunks::<{ Cell::BYTES }>();
    let rows = cells.chunks_exact(size.columns().into()).zip(wraps);
    let mut rows: Vec<Row> = rows
        .map(|(cells, wrap)| Row {
            cells: cells.iter().map(Cell::from_bytes).collect(),
            is_wrapped: *wrap != 0,
            ..Row::default()
        })
        .collect();
    let (marked, _) = marked.as_chunks::<MARK_BYTES>();
    for [a, b, c, d, character @ ..] in marked {
        let index = u32::from_le_bytes([*a, *b, *c, *d]);
        let (row, column) = (index / u32::from(size.columns()), index % u32::from(size.columns()));
        let row = rows.get_mut(row as usize).ok_or(PictureError::Marks)?;
        let mark = char::from_u32(u32::from_le_bytes(*character)).unwrap_or(char::REPLACEMENT_CHARACTER);
        row.add_mark(column as u16, mark);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn picture() -> Picture {
        let size = ScreenSize::new(4, 2).unwrap();
        let mut row = Row { cells: vec![Cell::default(); 4], ..Row::default() };
        row.cells[1].character = 'x';
        row.add_mark(1, '\u{301}');
        row.is_wrapped = true;
        Picture {
            size,
            rows: vec![Arc::new(row), Arc::new(Row { cells: vec![Cell::default(); 4], ..Row::default() })],
            cursor: Cursor { column: 3, row: 1, shape: CursorShape::Bar },
            modes: Modes::ALTERNATE_SCREEN,
            title: "title".into(),
            bells: 7,
            scrollback_rows: 9,
            offset: 1 << 40,
            built_from: 1 << 33,
            resets: 1,
        }
    }

    fn decode(bytes: &[u8]) -> Result<Picture, PictureError> {
        let (head, body) = bytes.split_first_chunk().ok_or(PictureError::Truncated)?;
        Picture::decode(&Head::decode(head)?, body, None)
    }

    #[test]
    fn a_picture_comes_back_as_it_was_and_shares_what_has_not_changed() {
        let mut bytes = Vec::new();
        picture().encode(&mut bytes);
        let read = decode(&bytes).unwrap();
        assert_eq!(read, picture());
        let (head, body) = bytes.split_first_chunk().unwrap();
        let again = Picture::decode(&Head::decode(head).unwrap(), body, Some(&read)).unwrap();
        assert!(again.rows.iter().zip(&read.rows).all(|(new, old)| Arc::ptr_eq(new, old)));
    }

    #[test]
    fn what_a_hostile_process_may_write_is_refused() {
        let mut bytes = Vec::new();
        picture().encode(&mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Err(PictureError::Truncated), "{end}");
        }
        let with = |at: usize, value: u32| {
            let mut bytes = bytes.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            decode(&bytes)
        };
        assert_eq!(with(0, u32::MAX), Err(PictureError::Size));
        assert_eq!(with(0, 0), Err(PictureError::Size));
        assert_eq!(with(4, 4), Err(PictureError::Cursor));
        assert_eq!(with(16, u32::MAX), Err(PictureError::Title));
        assert_eq!(with(20, u32::MAX), Err(PictureError::Marks));
        let last = bytes.len() - MARK_BYTES;
        assert_eq!(with(last, 8), Err(PictureError::Marks));
        let mut no_text = bytes.clone();
        no_text[HEAD_BYTES] = 0xff;
        assert_eq!(decode(&no_text), Err(PictureError::Title));
    }

    proptest! {
        #[test]
        fn no_memory_makes_the_reader_fall(
            noise in prop::collection::vec(any::<u8>(), 0..600), small in any::<bool>(),
        ) {
            let mut bytes = noise;
            if small && bytes.len() > 24 {
                // A plausible head, so that the rest is reached.
                bytes[..8].copy_from_slice(&[5, 0, 3, 0, 0, 0, 0, 0]);
                bytes[16..24].copy_from_slice(&[3, 0, 0, 0, 2, 0, 0, 0]);
            }
            let _ = decode(&bytes);
        }
    }
}
