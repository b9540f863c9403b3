//! A picture as what a terminal must be sent to show it: for a person who comes to a screen that is there already.
//!
//! What it writes are its own sequences around characters that are none: nothing that a command wrote is passed on. With what
//! goes with the picture, the program's next output looks as if the terminal had shown all of it. Not restored: rows above the
//! screen, kept titles, and kinds of underlining.

use std::fmt::Write;

use super::{
    cell::{Attributes, Cell, Colour},
    continuation::{Beneath, Continuation, Pen},
    mode::Modes,
    picture::{CursorShape, Picture},
    row::Row,
};

/// Modes that are switched by a number (DECSET, DECRST).
const NUMBERED_MODES: [(Modes, u16); 10] = [
    (Modes::APPLICATION_CURSOR, 1),
    (Modes::WRAPS, 7),
    (Modes::MOUSE_CLICKS, 1000),
    (Modes::MOUSE_DRAGS, 1002),
    (Modes::MOUSE_MOTION, 1003),
    (Modes::FOCUS_EVENTS, 1004),
    (Modes::UTF8_MOUSE, 1005),
    (Modes::SGR_MOUSE, 1006),
    (Modes::BRACKETED_PASTE, 2004),
    (Modes::SHOWS_CURSOR, 25),
];

/// No mode that moves what is drawn: no margins, no insertion, no lines in place of letters, no style.
const PLAIN: &str = "\x1b[?25l\x1b[?6l\x1b[r\x1b[4l\x1b[?7h\x1b(B\x1b)B\x0f\x1b[0m";

/// What makes a terminal of the same size show the picture, and what comes next as on the terminal that it is of.
#[must_use]
pub fn sequences(picture: &Picture, continuation: Option<&Continuation>) -> Vec<u8> {
    let mut to = String::with_capacity(4096);
    to.push_str(PLAIN);
    if picture.modes.contains(Modes::ALTERNATE_SCREEN) {
        if let Some(beneath) = continuation.and_then(|continuation| continuation.beneath.as_ref()) {
            restore_beneath(&mut to, beneath);
        }
        to.push_str("\x1b[?1049h");
        to.push_str(PLAIN);
    }
    draw(&mut to, picture.rows.iter().map(AsRef::as_ref));
    let title: String = picture.title.chars().filter(|character| !character.is_control()).collect();
    if !title.is_empty() {
        write(&mut to, format_args!("\x1b]2;{title}\x07"));
    }
    let shape = match (continuation, picture.cursor.shape) {
        (Some(continuation), _) => continuation.cursor_style,
        (None, CursorShape::Block) => 2,
        (None, CursorShape::Underline) => 4,
        (None, CursorShape::Bar) => 6,
    };
    write(&mut to, format_args!("\x1b[{shape} q"));
    match continuation {
        Some(continuation) => restore_continuation(&mut to, continuation, &picture.rows),
        None => place(&mut to, u32::from(picture.cursor.row) + 1, picture.cursor.column),
    }
    to.push_str(if picture.modes.contains(Modes::APPLICATION_KEYPAD) { "\x1b=" } else { "\x1b>" });
    write(&mut to, format_args!("\x1b[20{}", switch(picture.modes, Modes::NEW_LINE)));
    write(&mut to, format_args!("\x1b[4{}", switch(picture.modes, Modes::INSERTS)));
    // Off before on: a mouse mode that ends may end the others.
    for is_on in [false, true] {
        let of_kind = |mode| picture.modes.contains(mode) == is_on;
        for (mode, number) in NUMBERED_MODES.into_iter().filter(|(mode, _)| of_kind(*mode)) {
            write(&mut to, format_args!("\x1b[?{number}{}", switch(picture.modes, mode)));
        }
    }
    to.into_bytes()
}

/// Each row where it stands. One that goes on in the next is written into it, so that it is one line to the terminal, too.
fn draw<'a>(to: &mut String, rows: impl Iterator<Item = &'a Row>) {
    to.push_str("\x1b[H\x1b[2J");
    let mut goes_on = false;
    for (row, number) in rows.zip(1..) {
        let runs = row.runs();
        for run in &runs {
            if !(goes_on && run.column == 0) {
                place(to, number, run.column);
            }
            style(to, &run.style);
            to.push_str(&run.text);
        }
        let end = runs.last().map_or(0, |run| usize::from(run.column + run.columns));
        goes_on = row.is_wrapped && end == row.cells.len();
    }
    to.push_str("\x1b[0m");
}

/// What the program comes back to when it leaves the alternate screen. The person's own lines stay if there is nothing.
fn restore_beneath(to: &mut String, beneath: &Beneath) {
    let is_blank = beneath.rows.iter().all(|row| row.runs().is_empty());
    if !is_blank || beneath.pen != Pen::default() {
        draw(to, beneath.rows.iter());
        restore_saved_pen(to, &beneath.pen, beneath.rows.get(usize::from(beneath.pen.row)));
    }
}

fn restore_continuation(to: &mut String, continuation: &Continuation, rows: &[impl AsRef<Row>]) {
    let row_of = |pen: &Pen| rows.get(usize::from(pen.row)).map(AsRef::as_ref);
    if let Some(stops) = &continuation.tab_stops {
        to.push_str("\x1b[3g");
        stops.iter().for_each(|stop| write(to, format_args!("\x1b[{}G\x1bH", stop + 1)));
    }
    restore_saved_pen(to, &continuation.saved, row_of(&continuation.saved));
    to.push_str("\x1b7\x1b[?6l\x1b(B\x1b)B\x0f");
    let (top, end) = continuation.margins;
    write(to, format_args!("\x1b[{};{end}r", top + 1));
    let pen = &continuation.pen;
    let counted_from = if pen.counts_from_margin { top } else { 0 };
    to.push_str(if pen.counts_from_margin { "\x1b[?6h" } else { "" });
    restore_pen(to, pen, row_of(pen), counted_from);
}

/// What is to be saved, on a screen without margins: there it can be counted from the margin wherever it is.
fn restore_saved_pen(to: &mut String, pen: &Pen, row: Option<&Row>) {
    to.push_str(if pen.counts_from_margin { "\x1b[?6h" } else { "" });
    restore_pen(to, pen, row, 0);
}

/// Moves to where the next character goes, in its style. `row` is what is drawn there.
fn restore_pen(to: &mut String, pen: &Pen, row: Option<&Row>, counted_from: u16) {
    let number = u32::from(pen.row.saturating_sub(counted_from)) + 1;
    place(to, number, pen.column);
    if let Some(row) = row.filter(|_| pen.waits_to_wrap) {
        // A terminal waits so only after it has written the last character of a row.
        let last = row.cells.len().saturating_sub(1);
        let is_half = row.cells.get(last).is_some_and(|cell| cell.attributes.contains(Attributes::SPACER));
        let is_wide = is_half && last > 0 && row.cells[last - 1].attributes.contains(Attributes::WIDE);
        let column = if is_wide { last - 1 } else { last };
        if let Some(cell) = row.cells.get(column) {
            place(to, number, column as u16);
            style(to, cell);
            to.push(cell.character);
            to.extend(row.marks.get(&(column as u16)).into_iter().flatten());
        }
    }
    style(to, &pen.style);
    for (designator, _) in "()*+".chars().zip(pen.draws_lines).filter(|(_, draws)| *draws) {
        write(to, format_args!("\x1b{designator}0"));
    }
    to.push_str(["\x0f", "\x0e", "\x1bn", "\x1bo"].get(usize::from(pen.charset)).unwrap_or(&"\x0f"));
}

fn switch(modes: Modes, mode: Modes) -> char {
    if modes.contains(mode) { 'h' } else { 'l' }
}

fn place(to: &mut String, row: u32, column: u16) {
    write(to, format_args!("\x1b[{row};{}H", column + 1));
}

fn style(to: &mut String, style: &Cell) {
    to.push_str("\x1b[0");
    for (attribute, number) in [
        (Attributes::BOLD, 1),
        (Attributes::DIM, 2),
        (Attributes::ITALIC, 3),
        (Attributes::UNDERLINE, 4),
        (Attributes::INVERSE, 7),
        (Attributes::HIDDEN, 8),
        (Attributes::STRIKEOUT, 9),
    ] {
        if style.attributes.contains(attribute) {
            write(to, format_args!(";{number}"));
        }
    }
    for (colour, number) in [(style.foreground, 38), (style.background, 48)] {
        match colour {
            Colour::Default => {}
            Colour::Palette(index) => write(to, format_args!(";{number};5;{index}")),
            Colour::Rgb(red, green, blue) => write(to, format_args!(";{number};2;{red};{green};{blue}")),
        }
    }
    to.push('m');
}

fn write(to: &mut String, what: std::fmt::Arguments<'_>) {
    to.write_fmt(what).expect("a string takes what is written to it");
}

/// How many bytes at the end are the beginning of a control sequence or of a character: a screen that was made of all of them
/// does not show these yet.
#[must_use]
pub fn unfinished_bytes(output: &[u8]) -> usize {
    enum Within {
        Nothing,
        Escape,
        Sequence,
        String,
        Character(u32),
    }
    let (mut within, mut start) = (Within::Nothing, 0);
    for (at, &byte) in output.iter().enumerate() {
        within = match (within, byte) {
            // A string may end by ESC \, which then begins a sequence of its own.
            (_, 0x1b) => {
                start = at;
                Within::Escape
            }
            (_, 0x18 | 0x1a) => Within::Nothing,
            (Within::Escape, b'[') => Within::Sequence,
            (Within::Escape, b']' | b'P' | b'_' | b'^' | b'X') => Within::String,
            (Within::Escape, 0x20..=0x2f) => Within::Escape,
            (Within::Escape, 0..=0x1f) => Within::Escape,
            (Within::Sequence, 0..=0x3f) => Within::Sequence,
            (Within::String, 0x07) => Within::Nothing,
            (Within::String, _) => Within::String,
            (Within::Character(left @ 2..), 0x80..=0xbf) => Within::Character(left - 1),
            (Within::Escape | Within::Sequence | Within::Character(_), 0x80..=0xbf) => Within::Nothing,
            (_, 0xc2..=0xf4) => {
                start = at;
                Within::Character(match byte {
                    0xc2..0xe0 => 1,
                    0xe0..0xf0 => 2,
                    _ => 3,
                })
            }
            (Within::Nothing | Within::Escape | Within::Sequence | Within::Character(_), _) => {
                Within::Nothing
            }
        };
    }
    match within {
        Within::Nothing => 0,
        Within::Escape | Within::Sequence | Within::String | Within::Character(_) => output.len() - start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_and_not_ended_is_found() {
        for (output, unfinished) in [
            (&b""[..], 0),
            (b"text", 0),
            (b"text\x1b", 1),
            (b"\x1b[31mred\x1b[0", 3),
            (b"\x1b[31mred\x1b[0m", 0),
            (b"\x1b]2;tit", 7),
            (b"\x1b]2;title\x07x", 0),
            (b"\x1b]2;title\x1b", 1),
            (b"\x1b]2;title\x1b\\", 0),
            (b"\x1b(B", 0),
            (b"\x1b(", 2),
            (b"\x1b[3\x18", 0),
            ("日".as_bytes(), 0),
            (&"日".as_bytes()[..2], 2),
            (&"a👍".as_bytes()[..3], 2),
            (b"\x80\x80", 0),
        ] {
            assert_eq!(unfinished_bytes(output), unfinished, "{:?}", String::from_utf8_lossy(output));
        }
    }
}
