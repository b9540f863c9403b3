//! What goes with an emulator's picture: how the program's next output will be shown.

use std::panic::{AssertUnwindSafe, catch_unwind};

use alacritty_terminal::{
    grid::Cursor,
    index::Line,
    term::{TermMode, cell::Cell as EmulatorCell},
    vte::ansi::{CharsetIndex, CursorShape, CursorStyle, StandardCharset},
};

use super::{
    corrected::{SavedWithCursor, TAB_INTERVAL},
    emulator::{Emulator, converted},
};
use crate::display::continuation::{Beneath, Continuation, Pen};

const CHARSETS: [CharsetIndex; 4] = [CharsetIndex::G0, CharsetIndex::G1, CharsetIndex::G2, CharsetIndex::G3];

impl Emulator {
    /// What goes with the picture of this moment; the offset is the caller's. `None`: the emulator has failed, and is new.
    pub fn continuation(&mut self, offset: u64) -> Option<Continuation> {
        let done = catch_unwind(AssertUnwindSafe(|| self.read_continuation(offset)));
        if done.is_err() {
            self.reset();
        }
        done.ok()
    }

    fn read_continuation(&mut self, offset: u64) -> Continuation {
        let is_alternate = self.term.mode().contains(TermMode::ALT_SCREEN);
        let beneath = is_alternate.then(|| self.beneath());
        let noted = &self.noted;
        let is_usual = |(column, stop): (usize, &bool)| *stop == (column % TAB_INTERVAL == 0);
        let stops = (0..).zip(&noted.tab_stops).filter(|(_, stop)| **stop).map(|(column, _)| column);
        let now = SavedWithCursor {
            counts_from_margin: self.term.mode().contains(TermMode::ORIGIN),
            charset: noted.charset,
        };
        Continuation {
            offset,
            margins: (noted.margins.0 as u16, noted.margins.1 as u16),
            tab_stops: (!noted.tab_stops.iter().enumerate().all(is_usual)).then(|| stops.collect()),
            pen: self.pen(&self.term.grid().cursor, now),
            saved: self.pen(&self.term.grid().saved_cursor, noted.saved[usize::from(is_alternate)]),
            cursor_style: noted.cursor_style.map_or(0, style_number),
            beneath,
        }
    }

    /// The primary screen, while the alternate one is shown.
    fn beneath(&mut self) -> Beneath {
        // The emulator shows it only in exchange for the other one, which it clears when it is shown again.
        let alternate = self.term.grid().clone();
        self.term.swap_alt();
        let rows = (0..self.size.rows()).map(|row| self.row(Line(row.into()))).collect();
        let pen = self.pen(&self.term.grid().cursor, self.noted.saved[0]);
        self.term.swap_alt();
        *self.term.grid_mut() = alternate;
        Beneath { rows, pen }
    }

    fn pen(&self, cursor: &Cursor<EmulatorCell>, with: SavedWithCursor) -> Pen {
        let draws_lines =
            CHARSETS.map(|index| cursor.charsets[index] == StandardCharset::SpecialCharacterAndLineDrawing);
        Pen {
            column: (cursor.point.column.0 as u16).min(self.size.columns() - 1),
            row: (cursor.point.line.0.max(0) as u16).min(self.size.rows() - 1),
            style: converted(&cursor.template),
            draws_lines,
            charset: with.charset as u8,
            counts_from_margin: with.counts_from_margin,
            waits_to_wrap: cursor.input_needs_wrap,
        }
    }
}

fn style_number(style: CursorStyle) -> u8 {
    let steady = match style.shape {
        CursorShape::Block | CursorShape::HollowBlock | CursorShape::Hidden => 2,
        CursorShape::Underline => 4,
        CursorShape::Beam => 6,
    };
    steady - u8::from(style.blinking)
}
