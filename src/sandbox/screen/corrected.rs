//! What the emulator does otherwise than xterm(1), put right between its parser and its screen.
//!
//! Cursor movements stop at the margins; the two older alternate screens are shown; what is saved with the cursor is whole;
//! tabs cost no more than a row. It also notes what the emulator keeps to itself and a restored screen needs: margins, tab
//! stops, the character set in use, what was saved with the cursor.
//!
//! A call of the parser is passed on if it is named here, so that one which a later version adds is not before it was looked at.
//! Colours of the palette, links, the clipboard and keyboard protocols are not: a screen has none. The differences that are left
//! are tmux's, or of taste (`tests/screen/cases.rs`).

use alacritty_terminal::{
    event::{Event, EventListener},
    grid::{Cursor, Dimensions as _},
    index::{Column, Line},
    term::{Term, TermMode},
    vte::ansi::{
        Attr, CharsetIndex, ClearMode, CursorStyle, Handler, LineClearMode, Mode, NamedPrivateMode,
        PrivateMode, StandardCharset, TabulationClearMode,
    },
};

/// Columns between two tab stops, unless the program sets others.
pub(super) const TAB_INTERVAL: usize = 8;
/// The alternate screen that is entered as it is.
const ALTERNATE_SCREEN: u16 = 47;
/// The alternate screen that is cleared.
const CLEARED_ALTERNATE_SCREEN: u16 = 1047;
/// Saving the cursor.
const SAVED_CURSOR: u16 = 1048;

/// What the emulator does not tell.
#[derive(Debug, Clone)]
pub(super) struct Noted {
    /// The first row that scrolls, and the row behind the last one.
    pub(super) margins: (usize, usize),
    /// By column.
    pub(super) tab_stops: Vec<bool>,
    pub(super) charset: CharsetIndex,
    /// What was saved with the cursor of the primary and of the alternate screen.
    pub(super) saved: [SavedWithCursor; 2],
    /// `None`: the program has not asked for a style.
    pub(super) cursor_style: Option<CursorStyle>,
}

/// Restored with the cursor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SavedWithCursor {
    pub(super) counts_from_margin: bool,
    pub(super) charset: CharsetIndex,
}

impl Noted {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self {
            margins: (0, rows),
            tab_stops: usual_tab_stops(columns),
            charset: CharsetIndex::default(),
            saved: [SavedWithCursor::default(); 2],
            cursor_style: None,
        }
    }

    /// The screen has another size: the emulator keeps the tab stops that there were.
    pub(super) fn resize(&mut self, columns: usize, rows: usize) {
        self.margins = (0, rows);
        let more = usual_tab_stops(columns).into_iter().skip(self.tab_stops.len());
        self.tab_stops.extend(more);
        self.tab_stops.truncate(columns);
    }

    fn next_tab_stop(&self, from: usize) -> usize {
        let last = self.tab_stops.len().saturating_sub(1);
        (from + 1..last).find(|column| self.tab_stops[*column]).unwrap_or(last)
    }

    fn tab_stop_before(&self, from: usize) -> usize {
        (0..from.min(self.tab_stops.len())).rev().find(|column| self.tab_stops[*column]).unwrap_or(0)
    }
}

fn usual_tab_stops(columns: usize) -> Vec<bool> {
    (0..columns).map(|column| column % TAB_INTERVAL == 0).collect()
}

/// The emulator, as its parser sees it.
pub(super) struct Corrected<'a, E> {
    pub(super) term: &'a mut Term<E>,
    pub(super) noted: &'a mut Noted,
    pub(super) events: &'a E,
}

impl<E: EventListener> Corrected<'_, E> {
    fn counts_from_margin(&self) -> bool {
        self.term.mode().contains(TermMode::ORIGIN)
    }

    fn is_alternate(&self) -> bool {
        self.term.mode().contains(TermMode::ALT_SCREEN)
    }

    fn row(&self) -> usize {
        usize::try_from(self.term.grid().cursor.point.line.0).unwrap_or(0)
    }

    /// Moves to a row of the screen, which is not counted from the margin.
    fn place(&mut self, row: usize, column: usize) {
        let cursor = &mut self.term.grid_mut().cursor;
        cursor.point.line = Line(i32::try_from(row).unwrap_or(0));
        cursor.point.column = Column(column);
        cursor.input_needs_wrap = false;
    }

    /// Up to the upper margin, or to the top from above it.
    fn row_above(&self, rows: usize) -> usize {
        let row = self.row();
        let first = if row >= self.noted.margins.0 { self.noted.margins.0 } else { 0 };
        row.saturating_sub(rows).max(first)
    }

    /// Down to the lower margin, or to the bottom from below it.
    fn row_below(&self, rows: usize) -> usize {
        let row = self.row();
        let end = if row < self.noted.margins.1 { self.noted.margins.1 } else { self.term.screen_lines() };
        row.saturating_add(rows).min(end.saturating_sub(1))
    }

    fn column(&self) -> usize {
        self.term.grid().cursor.point.column.0
    }

    fn set_column(&mut self, column: usize) {
        let cursor = &mut self.term.grid_mut().cursor;
        cursor.point.column = Column(column);
        cursor.input_needs_wrap = false;
    }

    /// Shows the other screen with the same cursor, as the older modes do.
    fn show_other_screen(&mut self) {
        let cursor = self.term.grid().cursor.clone();
        self.term.swap_alt();
        self.term.grid_mut().cursor = cursor;
        self.begin_alternate();
        self.keep_within_margins();
    }

    /// Nothing is saved on an alternate screen that has just been entered.
    fn begin_alternate(&mut self) {
        if self.is_alternate() {
            self.term.grid_mut().saved_cursor = Cursor::default();
            self.noted.saved[1] = SavedWithCursor::default();
        }
    }

    fn note_saved(&mut self) {
        let saved =
            SavedWithCursor { counts_from_margin: self.counts_from_margin(), charset: self.noted.charset };
        let screen = usize::from(self.is_alternate());
        self.noted.saved[screen] = saved;
    }

    /// Restores what was saved with the cursor, which the emulator has restored.
    fn restore_saved(&mut self) {
        let saved = self.noted.saved[usize::from(self.is_alternate())];
        self.set_active_charset(saved.charset);
        if saved.counts_from_margin != self.counts_from_margin() {
            // Changing it moves the cursor.
            let cursor = self.term.grid().cursor.clone();
            let origin = PrivateMode::Named(NamedPrivateMode::Origin);
            if saved.counts_from_margin {
                self.term.set_private_mode(origin);
            } else {
                self.term.unset_private_mode(origin);
            }
            self.term.grid_mut().cursor = cursor;
        }
        self.keep_within_margins();
    }

    /// A cursor that is counted from the margin cannot be outside of the margins.
    fn keep_within_margins(&mut self) {
        let (top, end) = self.noted.margins;
        let (row, within) = (self.row(), self.row().clamp(top, end.max(top + 1) - 1));
        if self.counts_from_margin() && row != within {
            self.place(within, self.column());
        }
    }
}

macro_rules! passed_on {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(fn $name(&mut self, $($argument: $kind),*) {
            self.term.$name($($argument),*);
        })*
    };
}

impl<E: EventListener> Handler for Corrected<'_, E> {
    fn move_up(&mut self, rows: usize) {
        self.place(self.row_above(rows), self.column());
    }

    fn move_down(&mut self, rows: usize) {
        self.place(self.row_below(rows), self.column());
    }

    fn move_up_and_cr(&mut self, rows: usize) {
        self.place(self.row_above(rows), 0);
    }

    fn move_down_and_cr(&mut self, rows: usize) {
        self.place(self.row_below(rows), 0);
    }

    fn goto_col(&mut self, column: usize) {
        self.set_column(column.min(self.term.columns() - 1));
    }

    fn device_status(&mut self, kind: usize) {
        const CURSOR_POSITION: usize = 6;
        if kind != CURSOR_POSITION || !self.counts_from_margin() {
            return self.term.device_status(kind);
        }
        let row = self.row().saturating_sub(self.noted.margins.0);
        let answer = format!("\x1b[{};{}R", row + 1, self.column() + 1);
        self.events.send_event(Event::PtyWrite(answer));
    }

    fn set_scrolling_region(&mut self, top: usize, bottom: Option<usize>) {
        let rows = self.term.screen_lines();
        let bottom = bottom.unwrap_or(rows).min(rows);
        // One that has less than two rows is none.
        if top >= bottom {
            return;
        }
        self.noted.margins = (top.saturating_sub(1), bottom);
        self.term.set_scrolling_region(top, Some(bottom));
    }

    fn save_cursor_position(&mut self) {
        self.note_saved();
        self.term.save_cursor_position();
    }

    fn restore_cursor_position(&mut self) {
        self.term.restore_cursor_position();
        self.restore_saved();
    }

    fn set_private_mode(&mut self, mode: PrivateMode) {
        match mode {
            PrivateMode::Unknown(ALTERNATE_SCREEN | CLEARED_ALTERNATE_SCREEN) => {
                if !self.is_alternate() {
                    self.show_other_screen();
                }
            }
            PrivateMode::Unknown(SAVED_CURSOR) => self.save_cursor_position(),
            PrivateMode::Named(NamedPrivateMode::SwapScreenAndSetRestoreCursor) => {
                if !self.is_alternate() {
                    self.note_saved();
                    self.term.set_private_mode(mode);
                    self.begin_alternate();
                }
            }
            PrivateMode::Named(NamedPrivateMode::ColumnMode) => {
                self.noted.margins = (0, self.term.screen_lines());
                self.term.set_private_mode(mode);
            }
            PrivateMode::Named(_) | PrivateMode::Unknown(_) => self.term.set_private_mode(mode),
        }
    }

    fn unset_private_mode(&mut self, mode: PrivateMode) {
        match mode {
            PrivateMode::Unknown(ALTERNATE_SCREEN | CLEARED_ALTERNATE_SCREEN) => {
                if self.is_alternate() {
                    self.show_other_screen();
                }
            }
            PrivateMode::Unknown(SAVED_CURSOR) => self.restore_cursor_position(),
            PrivateMode::Named(NamedPrivateMode::SwapScreenAndSetRestoreCursor) => {
                if self.is_alternate() {
                    self.term.unset_private_mode(mode);
                    self.restore_saved();
                }
            }
            PrivateMode::Named(NamedPrivateMode::Origin) => {
                self.term.unset_private_mode(mode);
                self.place(0, 0);
            }
            PrivateMode::Named(NamedPrivateMode::ColumnMode) => {
                self.noted.margins = (0, self.term.screen_lines());
                self.term.unset_private_mode(mode);
            }
            PrivateMode::Named(_) | PrivateMode::Unknown(_) => self.term.unset_private_mode(mode),
        }
    }

    fn terminal_attribute(&mut self, attribute: Attr) {
        // SGR 21 underlines twice (ECMA-48); only Linux's console ends bold with it.
        let attribute = match attribute {
            Attr::CancelBold => Attr::DoubleUnderline,
            other => other,
        };
        self.term.terminal_attribute(attribute);
    }

    fn move_forward_tabs(&mut self, count: u16) {
        let column = (0..count.min(self.noted.tab_stops.len() as u16))
            .fold(self.column(), |column, _| self.noted.next_tab_stop(column));
        self.set_column(column);
    }

    fn move_backward_tabs(&mut self, count: u16) {
        let column = (0..count.min(self.noted.tab_stops.len() as u16))
            .fold(self.column(), |column, _| self.noted.tab_stop_before(column));
        self.set_column(column);
    }

    fn set_tabs(&mut self, interval: u16) {
        let cursor = self.term.grid().cursor.clone();
        self.clear_tabs(TabulationClearMode::All);
        for column in (0..self.term.columns()).step_by(usize::from(interval.max(1))) {
            self.set_column(column);
            self.set_horizontal_tabstop();
        }
        self.term.grid_mut().cursor = cursor;
    }

    fn set_horizontal_tabstop(&mut self) {
        let column = self.column();
        if let Some(stop) = self.noted.tab_stops.get_mut(column) {
            *stop = true;
        }
        self.term.set_horizontal_tabstop();
    }

    fn clear_tabs(&mut self, which: TabulationClearMode) {
        let column = self.column();
        match which {
            TabulationClearMode::All => self.noted.tab_stops.fill(false),
            TabulationClearMode::Current => {
                if let Some(stop) = self.noted.tab_stops.get_mut(column) {
                    *stop = false;
                }
            }
        }
        self.term.clear_tabs(which);
    }

    fn set_active_charset(&mut self, charset: CharsetIndex) {
        self.noted.charset = charset;
        self.term.set_active_charset(charset);
    }

    fn set_cursor_style(&mut self, style: Option<CursorStyle>) {
        self.noted.cursor_style = style;
        self.term.set_cursor_style(style);
    }

    fn reset_state(&mut self) {
        *self.noted = Noted::new(self.term.columns(), self.term.screen_lines());
        self.term.reset_state();
    }

    passed_on! {
        set_title(title: Option<String>);
        input(character: char);
        goto(row: i32, column: usize);
        goto_line(row: i32);
        insert_blank(count: usize);
        identify_terminal(intermediate: Option<char>);
        move_forward(columns: usize);
        move_backward(columns: usize);
        put_tab(count: u16);
        backspace();
        carriage_return();
        linefeed();
        bell();
        newline();
        scroll_up(rows: usize);
        scroll_down(rows: usize);
        insert_blank_lines(count: usize);
        delete_lines(count: usize);
        erase_chars(count: usize);
        delete_chars(count: usize);
        clear_line(which: LineClearMode);
        clear_screen(which: ClearMode);
        reverse_index();
        set_mode(mode: Mode);
        unset_mode(mode: Mode);
        report_mode(mode: Mode);
        report_private_mode(mode: PrivateMode);
        set_keypad_application_mode();
        unset_keypad_application_mode();
        configure_charset(index: CharsetIndex, charset: StandardCharset);
        decaln();
        push_title();
        pop_title();
        text_area_size_chars();
    }
}
