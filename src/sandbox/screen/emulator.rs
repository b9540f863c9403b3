//! The emulator of one terminal: bytes in, pictures out.
//!
//! Behind the sieve, `alacritty_terminal`'s `Term` and the parser that comes with it, and nothing else of that crate: no
//! PTY, no event loop. A panic of it costs the terminal its screen, which begins again empty, and is counted.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};

use alacritty_terminal::{
    event::{Event, EventListener},
    grid::Dimensions,
    index::{Column, Line},
    term::{
        Config, Osc52, Term, TermMode,
        cell::{Cell as EmulatorCell, Flags},
    },
    vte::ansi::{Color, CursorShape as EmulatorShape, NamedColor, Processor},
};

use super::{
    corrected::{Corrected, Noted},
    sieve::Sieve,
};
use crate::display::{
    cell::{Attributes, Cell, Colour, MAX_MARKS, shown},
    mode::Modes,
    picture::{Cursor, CursorShape, MAX_TITLE_BYTES, Picture},
    row::Row,
    size::ScreenSize,
};

/// Cells above the screen that are kept.
pub const MAX_SCROLLBACK_CELLS: usize = 160_000;
/// Rows above the screen that are kept.
pub const MAX_SCROLLBACK_ROWS: usize = 2_000;
/// Bytes of answers to the program's questions that wait; more questions have no answer.
pub const MAX_ANSWER_BYTES: usize = 4096;
/// Characters beyond ASCII after which a screen's marks are swept.
const SWEEP_AFTER: usize = 65_536;
/// Bytes that are given to the emulator at once.
const PIECE_BYTES: usize = 1024;
/// The fewest of them.
const MIN_PIECE_BYTES: usize = 8;
/// Cells of a screen that is given pieces of [`PIECE_BYTES`]; two bytes may change every cell of any screen.
const USUAL_CELLS: usize = 2048;

/// An emulator.
pub struct Emulator {
    pub(super) term: Term<Events>,
    pub(super) noted: Noted,
    parser: Processor,
    sieve: Sieve,
    sifted: Vec<u8>,
    events: Events,
    pub(super) size: ScreenSize,
    resets: u32,
    /// Characters beyond ASCII since the marks of the primary and of the alternate screen were last swept.
    unswept: [usize; 2],
}

/// What the emulator reports while it takes in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Events(Rc<RefCell<Reported>>);

#[derive(Debug, Default)]
struct Reported {
    title: String,
    bells: u64,
    answers: Vec<u8>,
}

impl EventListener for Events {
    fn send_event(&self, event: Event) {
        let mut reported = self.0.borrow_mut();
        match event {
            Event::Title(title) => {
                reported.title = crate::printable::truncate(&title, MAX_TITLE_BYTES).to_owned();
            }
            Event::ResetTitle => reported.title.clear(),
            Event::Bell => reported.bells += 1,
            Event::PtyWrite(answer) => {
                if reported.answers.len() + answer.len() <= MAX_ANSWER_BYTES {
                    reported.answers.extend(answer.bytes());
                }
            }
            // There are no pixels, no clipboard, no colours to ask for, and nobody to wake.
            Event::MouseCursorDirty
            | Event::ClipboardStore(..)
            | Event::ClipboardLoad(..)
            | Event::ColorRequest(..)
            | Event::TextAreaSizeRequest(_)
            | Event::CursorBlinkingChange
            | Event::Wakeup
            | Event::Exit
            | Event::ChildExit(_) => {}
        }
    }
}

struct EmulatorSize(ScreenSize);

impl Dimensions for EmulatorSize {
    fn total_lines(&self) -> usize {
        self.0.rows().into()
    }

    fn screen_lines(&self) -> usize {
        self.0.rows().into()
    }

    fn columns(&self) -> usize {
        self.0.columns().into()
    }
}

fn config(size: ScreenSize) -> Config {
    let scrolling_history = (MAX_SCROLLBACK_CELLS / usize::from(size.columns())).min(MAX_SCROLLBACK_ROWS);
    Config { scrolling_history, osc52: Osc52::Disabled, kitty_keyboard: false, ..Config::default() }
}

impl Emulator {
    /// An empty screen.
    #[must_use]
    pub fn new(size: ScreenSize) -> Self {
        let events = Events::default();
        Self {
            term: Term::new(config(size), &EmulatorSize(size), events.clone()),
            noted: Noted::new(size.columns().into(), size.rows().into()),
            parser: Processor::new(),
            sieve: Sieve::new(),
            sifted: Vec::new(),
            events,
            size,
            resets: 0,
            unswept: [0; 2],
        }
    }

    /// Takes in output.
    pub fn advance(&mut self, bytes: &[u8]) {
        self.advance_while(bytes, || true);
    }

    /// Takes in output as long as the condition holds, and at least a piece of it. Returns how many bytes that were.
    pub fn advance_while(&mut self, bytes: &[u8], mut goes_on: impl FnMut() -> bool) -> usize {
        let piece_bytes = (PIECE_BYTES * USUAL_CELLS / self.size.cells()).clamp(MIN_PIECE_BYTES, PIECE_BYTES);
        let mut taken = 0;
        for piece in bytes.chunks(piece_bytes) {
            let done = catch_unwind(AssertUnwindSafe(|| self.advance_piece(piece)));
            if done.is_err() {
                self.reset();
            }
            taken += piece.len();
            if !goes_on() {
                break;
            }
        }
        taken
    }

    fn advance_piece(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() || self.sieve.has_mode_change() {
            self.sifted.clear();
            let taken = self.sieve.pass(piece, &mut self.sifted);
            piece = &piece[taken..];
            let mut corrected =
                Corrected { term: &mut self.term, noted: &mut self.noted, events: &self.events };
            self.parser.advance(&mut corrected, &self.sifted);
            // A mark has two bytes or more. The sieve has cut the output before the change to the screen that is shown now.
            let shown = usize::from(self.term.mode().contains(TermMode::ALT_SCREEN));
            self.unswept[shown] += self.sifted.iter().filter(|byte| **byte >= 0xc0).count();
            if self.unswept[shown] >= SWEEP_AFTER {
                self.unswept[shown] = 0;
                self.sweep();
            }
        }
    }

    /// Takes the marks from each cell of the shown screen that are more than a viewer would see.
    fn sweep(&mut self) {
        let lines = -(self.scrollback_rows() as i32)..i32::from(self.size.rows());
        for line in lines {
            for column in 0..usize::from(self.size.columns()) {
                let cell = &mut self.term.grid_mut()[Line(line)][Column(column)];
                let Some(marks) = cell.zerowidth().filter(|marks| marks.len() > MAX_MARKS) else { continue };
                let kept = marks[..MAX_MARKS].to_vec();
                let underline = cell.underline_color();
                cell.extra = None;
                cell.set_underline_color(underline);
                kept.into_iter().for_each(|mark| cell.push_zerowidth(mark));
            }
        }
    }

    /// Changes the size. What the program shows is kept as far as it fits.
    pub fn resize(&mut self, size: ScreenSize) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.term.resize(EmulatorSize(size));
            self.noted.resize(size.columns().into(), size.rows().into());
            if size.columns() != self.size.columns() {
                self.term.set_options(config(size));
            }
        }));
        self.size = size;
        if done.is_err() {
            self.reset();
        }
    }

    pub(super) fn reset(&mut self) {
        let resets = self.resets + 1;
        let bells = self.events.0.try_borrow().map_or(0, |reported| reported.bells);
        *self = Self::new(self.size);
        self.resets = resets;
        self.events.0.borrow_mut().bells = bells;
    }

    /// Takes the answers to the program's questions.
    pub fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.events.0.borrow_mut().answers)
    }

    /// How often the bell has rung.
    #[must_use]
    pub fn bells(&self) -> u64 {
        self.events.0.borrow().bells
    }

    /// How often it had to be made again.
    #[must_use]
    pub fn resets(&self) -> u32 {
        self.resets
    }

    /// The size.
    #[must_use]
    pub fn size(&self) -> ScreenSize {
        self.size
    }

    /// The screen; offsets are the caller's.
    #[must_use]
    pub fn picture(&self) -> Picture {
        let reported = self.events.0.borrow();
        let point = self.term.grid().cursor.point;
        let shape = match self.term.cursor_style().shape {
            EmulatorShape::Underline => CursorShape::Underline,
            EmulatorShape::Beam => CursorShape::Bar,
            EmulatorShape::Block | EmulatorShape::HollowBlock | EmulatorShape::Hidden => CursorShape::Block,
        };
        Picture {
            size: self.size,
            rows: (0..self.size.rows()).map(|row| Arc::new(self.row(Line(row.into())))).collect(),
            cursor: Cursor {
                column: (point.column.0 as u16).min(self.size.columns() - 1),
                row: (point.line.0.max(0) as u16).min(self.size.rows() - 1),
                shape,
            },
            modes: modes(*self.term.mode()),
            title: reported.title.clone(),
            bells: reported.bells,
            scrollback_rows: self.scrollback_rows(),
            offset: 0,
            built_from: 0,
            resets: self.resets,
        }
    }

    /// Rows above the screen.
    #[must_use]
    pub fn scrollback_rows(&self) -> u32 {
        self.term.grid().history_size() as u32
    }

    /// Rows above the screen: `above` counts up from the screen's first row, from 1; the rows that follow come downwards. Those
    /// that there are not are left out.
    #[must_use]
    pub fn scrollback(&self, above: u32, count: u32) -> Vec<Row> {
        let above = above.min(self.scrollback_rows());
        (0..count.min(above)).map(|index| self.row(Line(index as i32 - above as i32))).collect()
    }

    pub(super) fn row(&self, line: Line) -> Row {
        let cells = &self.term.grid()[line];
        let mut row = Row { cells: Vec::with_capacity(self.size.columns().into()), ..Row::default() };
        for column in 0..self.size.columns() {
            let cell = &cells[Column(column.into())];
            row.cells.push(converted(cell));
            for mark in cell.zerowidth().unwrap_or_default() {
                row.add_mark(column, *mark);
            }
        }
        blank_halves(&mut row.cells, |column| cells[Column(column)].flags);
        let last = &cells[Column(usize::from(self.size.columns()) - 1)];
        row.is_wrapped = last.flags.contains(Flags::WRAPLINE);
        row
    }
}

/// What inserting and deleting cells leaves of a wide character that lost its other half is shown by no terminal.
fn blank_halves(cells: &mut [Cell], flags: impl Fn(usize) -> Flags) {
    let has = |column: Option<usize>, flag: Flags| {
        column.is_some_and(|column| column < cells.len() && flags(column).contains(flag))
    };
    let is_half = |column: usize| {
        let is_wide = has(Some(column), Flags::WIDE_CHAR);
        let is_spacer = has(Some(column), Flags::WIDE_CHAR_SPACER);
        (is_wide && !has(column.checked_add(1), Flags::WIDE_CHAR_SPACER))
            || (is_spacer && !has(column.checked_sub(1), Flags::WIDE_CHAR))
    };
    let halves: Vec<usize> = (0..cells.len()).filter(|column| is_half(*column)).collect();
    for column in halves {
        let cell = &mut cells[column];
        cell.character = ' ';
        cell.attributes = cell.attributes.within(Attributes::STYLE);
    }
}

pub(super) fn converted(cell: &EmulatorCell) -> Cell {
    let flags = cell.flags;
    let mut attributes = Attributes::default();
    let is_dim = |colour| matches!(colour, Color::Named(named) if is_dim_name(named));
    for (attribute, is_set) in [
        (Attributes::BOLD, flags.contains(Flags::BOLD)),
        (Attributes::DIM, flags.contains(Flags::DIM) || is_dim(cell.fg)),
        (Attributes::ITALIC, flags.contains(Flags::ITALIC)),
        (Attributes::UNDERLINE, flags.intersects(Flags::ALL_UNDERLINES)),
        (Attributes::INVERSE, flags.contains(Flags::INVERSE)),
        (Attributes::HIDDEN, flags.contains(Flags::HIDDEN)),
        (Attributes::STRIKEOUT, flags.contains(Flags::STRIKEOUT)),
        (Attributes::WIDE, flags.contains(Flags::WIDE_CHAR)),
        (Attributes::SPACER, flags.intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)),
    ] {
        attributes.set(attribute, is_set);
    }
    Cell {
        // A tab stands in the cell where it was written.
        character: shown(cell.c),
        foreground: colour(cell.fg),
        background: colour(cell.bg),
        attributes,
    }
}

fn is_dim_name(named: NamedColor) -> bool {
    let dim = NamedColor::DimBlack as usize..=NamedColor::DimWhite as usize;
    dim.contains(&(named as usize))
}

fn colour(colour: Color) -> Colour {
    match colour {
        Color::Spec(rgb) => Colour::Rgb(rgb.r, rgb.g, rgb.b),
        Color::Indexed(index) => Colour::Palette(index),
        Color::Named(named) => match u8::try_from(named as usize) {
            Ok(index) => Colour::Palette(index),
            Err(_) if is_dim_name(named) => {
                Colour::Palette((named as usize - NamedColor::DimBlack as usize) as u8)
            }
            Err(_) => Colour::Default,
        },
    }
}

fn modes(mode: TermMode) -> Modes {
    let mut modes = Modes::default();
    for (ours, theirs) in [
        (Modes::SHOWS_CURSOR, TermMode::SHOW_CURSOR),
        (Modes::ALTERNATE_SCREEN, TermMode::ALT_SCREEN),
        (Modes::APPLICATION_CURSOR, TermMode::APP_CURSOR),
        (Modes::APPLICATION_KEYPAD, TermMode::APP_KEYPAD),
        (Modes::BRACKETED_PASTE, TermMode::BRACKETED_PASTE),
        (Modes::MOUSE_CLICKS, TermMode::MOUSE_REPORT_CLICK),
        (Modes::MOUSE_DRAGS, TermMode::MOUSE_DRAG),
        (Modes::MOUSE_MOTION, TermMode::MOUSE_MOTION),
        (Modes::SGR_MOUSE, TermMode::SGR_MOUSE),
        (Modes::UTF8_MOUSE, TermMode::UTF8_MOUSE),
        (Modes::FOCUS_EVENTS, TermMode::FOCUS_IN_OUT),
        (Modes::NEW_LINE, TermMode::LINE_FEED_NEW_LINE),
        (Modes::WRAPS, TermMode::LINE_WRAP),
        (Modes::INSERTS, TermMode::INSERT),
    ] {
        modes.set(ours, mode.contains(theirs));
    }
    modes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::display::{continuation::Continuation, picture::Head};

    fn emulator(columns: u32, rows: u32, output: &[u8]) -> Emulator {
        let mut emulator = Emulator::new(ScreenSize::new(columns, rows).unwrap());
        emulator.advance(output);
        emulator
    }

    fn lines(emulator: &Emulator) -> Vec<String> {
        emulator.picture().rows.iter().map(|row| row.text()).collect()
    }

    #[test]
    fn a_screen_has_text_title_bell_modes_and_scrollback() {
        let emulator = emulator(10, 2, b"one\r\ntwo\r\nthree\x1b]2;a title\x07\x07\x07\x1b[?2004h");
        assert_eq!(lines(&emulator), ["two", "three"]);
        let picture = emulator.picture();
        assert_eq!((picture.title.as_str(), picture.bells, picture.scrollback_rows), ("a title", 2, 1));
        assert!(picture.modes.contains(Modes::BRACKETED_PASTE));
        assert_eq!((picture.cursor.column, picture.cursor.row), (5, 1));
        assert_eq!(emulator.scrollback(1, 5).iter().map(Row::text).collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn questions_are_answered_up_to_a_bound() {
        let mut emulator = emulator(80, 24, b"\x1b[5;7H\x1b[6n");
        assert_eq!(emulator.take_answers(), b"\x1b[5;7R");
        emulator.advance(&b"\x1b[c".repeat(100_000));
        let answers = emulator.take_answers();
        assert!((1..=MAX_ANSWER_BYTES).contains(&answers.len()), "{}", answers.len());
    }

    #[test]
    fn no_answer_repeats_what_a_program_wrote() {
        let mut emulator = emulator(80, 24, b"\x1b]2;rm -rf ~\r\x07");
        for question in [
            // The title, settings, capabilities, the clipboard, colours, the answer to ENQ, the screen.
            &b"\x1b[21t"[..],
            b"\x1b[20t",
            b"\x1bP$qrm -rf ~\r\x1b\\",
            b"\x1bP+q726d\x1b\\",
            b"\x1b]52;c;?\x07",
            b"\x1b]4;1;?\x07\x1b]11;?\x1b\\",
            b"\x05",
            b"\x1b[1;1;1;1;24;80*y",
            b"\x1b[14t",
        ] {
            emulator.advance(question);
            assert_eq!(emulator.take_answers(), b"", "{:?}", String::from_utf8_lossy(question));
        }
        emulator.advance(b"\x1b[3;6r\x1b[?6h\x1b[2;4H\x1b[6n\x1b[?6l\x1b[6n");
        assert_eq!(emulator.take_answers(), b"\x1b[2;4R\x1b[1;1R", "counted as the program counts");
    }

    #[test]
    fn scrollback_is_bounded() {
        let mut emulator = emulator(80, 24, b"");
        emulator.advance(&b"line\r\n".repeat(10_000));
        assert_eq!(emulator.scrollback_rows() as usize, MAX_SCROLLBACK_ROWS);
        emulator.resize(ScreenSize::new(1000, 24).unwrap());
        assert!(emulator.scrollback_rows() as usize <= MAX_SCROLLBACK_CELLS / 1000);
    }

    #[test]
    fn marks_without_end_do_not_grow_any_cell() {
        let mut emulator = emulator(80, 24, b"a\x1b[?7l");
        let marks = "\u{301}".repeat(30_000);
        for round in 0..20 {
            // Onto the primary screen, but the alternate one is shown whenever a piece ends.
            emulator.advance(format!("\x1b[?1049l{marks}\x1b[?1049h{round}").as_bytes());
        }
        emulator.advance(b"\x1b[?1049l");
        let most = (0..24).flat_map(|line| {
            let row = &emulator.term.grid()[Line(line)];
            (0..80).map(|column| row[Column(column)].zerowidth().unwrap_or_default().len())
        });
        assert!(most.max().unwrap() < SWEEP_AFTER + PIECE_BYTES, "a cell has too many marks");
    }

    proptest! {
        #[test]
        fn no_output_makes_the_emulator_fail(
            pieces in prop::collection::vec(prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                "\x1b\\[[0-9;:?>]{0,8}[@-~]".prop_map(String::into_bytes),
                "[a-z日\u{301}👍\t\r\n]{0,20}".prop_map(String::into_bytes),
            ], 0..40),
            sizes in prop::collection::vec((2_u32..60, 1_u32..20), 1..4),
        ) {
            let mut emulator = Emulator::new(ScreenSize::new(80, 24).unwrap());
            for (index, piece) in pieces.iter().enumerate() {
                emulator.advance(piece);
                // Each character of an answer is one of a fixed form.
                prop_assert!(emulator.take_answers().iter().all(|byte| b"\x1b[?>0123456789;cnR$yt".contains(byte)));
                let continuation = emulator.continuation(0).unwrap();
                let size = emulator.size();
                prop_assert_eq!(Continuation::decode(&continuation.encode(size), size), Some(continuation));
                if index % 7 == 6 {
                    let (columns, rows) = sizes[index % sizes.len()];
                    emulator.resize(ScreenSize::new(columns, rows).unwrap());
                }
            }
            let picture = emulator.picture();
            prop_assert_eq!(picture.resets, 0);
            let mut bytes = Vec::new();
            picture.encode(&mut bytes);
            let (head, body) = bytes.split_first_chunk().unwrap();
            let read = Picture::decode(&Head::decode(head).unwrap(), body, None).unwrap();
            prop_assert_eq!(read, picture);
        }
    }
}
