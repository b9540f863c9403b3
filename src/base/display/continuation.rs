//! What a program's next output depends on and no viewer sees: margins, tab stops, the style and the character set of the next
//! character, what was saved with the cursor, and the screen beneath an alternate one. And its form on the wire.
//!
//! It comes from a process that interprets what a command wrote: every number is checked against the size of the screen.

use super::{
    cell::Cell,
    picture::{self, MAX_ALL_MARKS},
    row::Row,
    size::ScreenSize,
};

/// The first byte. Another one is of another build, and not read.
const FORMAT: u8 = 1;
/// Bytes of a cursor.
const CURSOR_BYTES: usize = 8 + Cell::BYTES;
/// The highest number of a style (DECSCUSR).
const MAX_STYLE: u8 = 6;
/// Character sets that a program can choose from, G0 to G3.
pub const CHARSETS: usize = 4;

/// A cursor with what goes with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pen {
    /// From 0.
    pub column: u16,
    /// From 0.
    pub row: u16,
    /// The style of the next character; its own character means nothing.
    pub style: Cell,
    /// Which of G0 to G3 draw lines.
    pub draws_lines: [bool; CHARSETS],
    /// Which of G0 to G3 is in use.
    pub charset: u8,
    /// Rows are counted from the upper margin (DECOM).
    pub counts_from_margin: bool,
    /// The row is full: the next character goes to the next row.
    pub waits_to_wrap: bool,
}

/// The primary screen while the alternate one is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beneath {
    /// As many as the screen has.
    pub rows: Vec<Row>,
    /// Where the program goes on when it comes back to it.
    pub pen: Pen,
}

/// What goes with a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// The offset of the picture that it goes with.
    pub offset: u64,
    /// The first row that scrolls, and the row behind the last one.
    pub margins: (u16, u16),
    /// Columns with a tab stop; `None`: every eighth, as usual.
    pub tab_stops: Option<Vec<u16>>,
    /// Where the next character goes.
    pub pen: Pen,
    /// What the program has saved (DECSC).
    pub saved: Pen,
    /// The number that sets the cursor's style (DECSCUSR); 0: the terminal's own.
    pub cursor_style: u8,
    /// `None`: the primary screen is shown.
    pub beneath: Option<Beneath>,
}

impl Pen {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.column.to_le_bytes());
        bytes.extend(self.row.to_le_bytes());
        bytes.push(u8::from(self.counts_from_margin) | u8::from(self.waits_to_wrap) << 1);
        let lines = self.draws_lines.iter().zip(0..).map(|(draws, bit)| u8::from(*draws) << bit);
        bytes.push(lines.sum());
        bytes.extend([self.charset, 0]);
        bytes.extend(self.style.to_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>, size: ScreenSize) -> Option<Self> {
        let read: [u8; CURSOR_BYTES] = bytes.take()?;
        let half = |at: usize| u16::from_le_bytes([read[at], read[at + 1]]);
        let (_, style) = read.split_last_chunk()?;
        let pen = Self {
            column: half(0),
            row: half(2),
            counts_from_margin: read[4] & 1 != 0,
            waits_to_wrap: read[4] & 2 != 0,
            draws_lines: std::array::from_fn(|index| read[5] & 1 << index != 0),
            charset: read[6],
            style: Cell::from_bytes(style),
        };
        let is_possible =
            pen.column < size.columns() && pen.row < size.rows() && usize::from(pen.charset) < CHARSETS;
        is_possible.then_some(pen)
    }
}

impl Continuation {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self, size: ScreenSize) -> Vec<u8> {
        let mut bytes =
            vec![FORMAT, u8::from(self.tab_stops.is_some()) | u8::from(self.beneath.is_some()) << 1];
        bytes.extend([self.cursor_style, 0]);
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.margins.0.to_le_bytes());
        bytes.extend(self.margins.1.to_le_bytes());
        self.pen.encode(&mut bytes);
        self.saved.encode(&mut bytes);
        if let Some(stops) = &self.tab_stops {
            bytes.extend((stops.len() as u16).to_le_bytes());
            stops.iter().for_each(|stop| bytes.extend(stop.to_le_bytes()));
        }
        if let Some(beneath) = &self.beneath {
            beneath.pen.encode(&mut bytes);
            let marks_at = bytes.len();
            bytes.extend(0_u32.to_le_bytes());
            let marks = picture::encode_rows(beneath.rows.iter(), size, &mut bytes) as u32;
            bytes[marks_at..marks_at + 4].copy_from_slice(&marks.to_le_bytes());
        }
        bytes
    }

    /// Reads it. `None`: it is of another build, or of no screen of this size.
    #[must_use]
    pub fn decode(bytes: &[u8], size: ScreenSize) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let [format, parts, cursor_style, _] = bytes.take()?;
        let offset = u64::from_le_bytes(bytes.take()?);
        let margins = (u16::from_le_bytes(bytes.take()?), u16::from_le_bytes(bytes.take()?));
        if format != FORMAT || cursor_style > MAX_STYLE || margins.0 >= margins.1 || margins.1 > size.rows() {
            return None;
        }
        let (pen, saved) = (Pen::decode(&mut bytes, size)?, Pen::decode(&mut bytes, size)?);
        let mut read = Self { offset, margins, tab_stops: None, pen, saved, cursor_style, beneath: None };
        if parts & 1 != 0 {
            let count = u16::from_le_bytes(bytes.take()?).min(size.columns());
            let stop = |_| Some(u16::from_le_bytes(bytes.take()?)).filter(|stop| *stop < size.columns());
            read.tab_stops = Some((0..count).map(stop).collect::<Option<_>>()?);
        }
        if parts & 2 != 0 {
            let pen = Pen::decode(&mut bytes, size)?;
            let marks = u32::from_le_bytes(bytes.take()?) as usize;
            let rows = (marks <= MAX_ALL_MARKS).then(|| picture::decode_rows(size, marks, bytes.0).ok());
            read.beneath = Some(Beneath { rows: rows.flatten()?, pen });
        }
        Some(read)
    }
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::display::cell::Colour;

    fn size() -> ScreenSize {
        ScreenSize::new(4, 2).unwrap()
    }

    fn continuation() -> Continuation {
        let style = Cell { foreground: Colour::Rgb(1, 2, 3), ..Cell::default() };
        let pen = Pen {
            column: 3,
            row: 1,
            style,
            draws_lines: [true, false, false, true],
            charset: 3,
            counts_from_margin: true,
            waits_to_wrap: true,
        };
        let mut row = Row { cells: vec![Cell::default(); 4], ..Row::default() };
        row.add_mark(2, '\u{301}');
        let plain = Row { cells: vec![Cell::default(); 4], is_wrapped: true, ..Row::default() };
        Continuation {
            offset: 1 << 40,
            margins: (0, 2),
            tab_stops: Some(vec![1, 3]),
            pen,
            saved: Pen { waits_to_wrap: false, ..pen },
            cursor_style: 6,
            beneath: Some(Beneath { rows: vec![row, plain], pen: Pen::default() }),
        }
    }

    #[test]
    fn it_comes_back_as_it_was() {
        let whole = continuation();
        assert_eq!(Continuation::decode(&whole.encode(size()), size()), Some(whole));
        let least = Continuation { tab_stops: None, beneath: None, ..continuation() };
        assert_eq!(Continuation::decode(&least.encode(size()), size()), Some(least));
    }

    #[test]
    fn what_a_hostile_process_may_write_is_refused() {
        let bytes = continuation().encode(size());
        for end in 0..bytes.len() {
            assert_eq!(Continuation::decode(&bytes[..end], size()), None, "{end}");
        }
        let (margins, pen, saved) = (12, 16, 16 + CURSOR_BYTES);
        let stops = saved + CURSOR_BYTES;
        for (at, value) in [
            (0, 2),
            (2, MAX_STYLE + 1),
            (margins, 2),
            (margins + 2, 3),
            (pen, 4),
            (pen + 2, 2),
            (pen + 6, 4),
            (saved, 4),
            (stops + 2, 4),
        ] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(Continuation::decode(&other, size()), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fall(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        ) {
            let mut bytes = continuation().encode(size());
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = Continuation::decode(&bytes, size());
        }
    }
}
