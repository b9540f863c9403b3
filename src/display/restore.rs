//! A picture as what a terminal must be sent to show it: for a person who comes to a screen that is there already.
//!
//! What it writes are its own sequences around characters that are none: nothing that a command wrote is passed on. What no
//! picture has is not restored: the region that scrolls, tab stops, character sets, the saved cursor and the style of the next
//! character.

use std::fmt::Write;

use super::{
    cell::{Attributes, Cell, Colour},
    mode::Modes,
    picture::{CursorShape, Picture},
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

/// What makes a terminal of the same size show the picture.
#[must_use]
pub fn sequences(picture: &Picture) -> Vec<u8> {
    let mut to = String::with_capacity(4096);
    if picture.modes.contains(Modes::ALTERNATE_SCREEN) {
        to.push_str("\x1b[?1049h");
    }
    // In no mode that moves what is drawn; then each row where it stands.
    to.push_str("\x1b[?25l\x1b[?6l\x1b[r\x1b[4l\x1b[?7h\x1b(B\x0f\x1b[0m\x1b[H\x1b[2J");
    for (row, number) in picture.rows.iter().zip(1..) {
        for run in row.runs() {
            place(&mut to, number, run.column);
            style(&mut to, &run.style);
            to.push_str(&run.text);
        }
    }
    to.push_str("\x1b[0m");
    let title: String = picture.title.chars().filter(|character| !character.is_control()).collect();
    if !title.is_empty() {
        write(&mut to, format_args!("\x1b]2;{title}\x07"));
    }
    place(&mut to, u32::from(picture.cursor.row) + 1, picture.cursor.column);
    let shape = match picture.cursor.shape {
        CursorShape::Block => 2,
        CursorShape::Underline => 4,
        CursorShape::Bar => 6,
    };
    write(&mut to, format_args!("\x1b[{shape} q"));
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
