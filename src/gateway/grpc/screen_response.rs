//! Screens as the API shows them.

use crate::{
    display::{
        cell::{Attributes, Colour},
        diff::Parts,
        mode::Modes,
        picture::{CursorShape as Shape, Picture},
        row::{Row, Run},
    },
    printable,
    proto::v1::{Color, Cursor, CursorShape, Screen, ScreenChange, ScreenModes, ScreenRow, ScreenRun, color},
};

/// Whether rows are shown with the styles of their cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Styles {
    /// Text only.
    Without,
    /// Text, and runs of one style.
    With,
}

impl Styles {
    /// As a request says it.
    pub(super) fn of(with_styles: bool) -> Self {
        if with_styles { Self::With } else { Self::Without }
    }
}

/// What a session without a primary terminal shows.
pub(super) fn empty() -> Screen {
    const ROWS: u32 = 24;
    Screen {
        columns: 80,
        rows: ROWS,
        lines: (0..ROWS).map(|index| ScreenRow { index, ..ScreenRow::default() }).collect(),
        cursor: Some(Cursor { visible: true, shape: CursorShape::Block.into(), ..Cursor::default() }),
        modes: Some(ScreenModes::default()),
        ..Screen::default()
    }
}

/// A whole screen.
pub(super) fn screen(picture: &Picture, styles: Styles) -> Screen {
    Screen {
        columns: picture.size.columns().into(),
        rows: picture.size.rows().into(),
        lines: picture.rows.iter().zip(0..).map(|(one, index)| row(index, one, styles)).collect(),
        cursor: Some(cursor(picture)),
        modes: Some(modes(picture.modes)),
        title: title(picture),
        bells: picture.bells,
        scrollback_rows: picture.scrollback_rows,
        offset: picture.offset,
        built_from_offset: picture.built_from,
        resets: picture.resets,
    }
}

/// What has changed.
pub(super) fn change(picture: &Picture, parts: &Parts, styles: Styles) -> ScreenChange {
    let lines = parts.rows.iter().map(|(index, one)| row(u32::from(*index), one, styles));
    ScreenChange {
        lines: lines.collect(),
        cursor: parts.cursor_or_modes.then(|| cursor(picture)),
        modes: parts.cursor_or_modes.then(|| modes(picture.modes)),
        title: parts.title.then(|| title(picture)),
        bells: parts.bells,
        scrollback_rows: picture.scrollback_rows,
        offset: picture.offset,
    }
}

/// One row.
pub(super) fn row(index: u32, row: &Row, styles: Styles) -> ScreenRow {
    let runs = match styles {
        Styles::Without => Vec::new(),
        Styles::With => row.runs().into_iter().map(run).collect(),
    };
    ScreenRow { index, text: row.text(), wrapped: row.is_wrapped, runs }
}

fn run(run: Run) -> ScreenRun {
    let has = |attribute| run.style.attributes.contains(attribute);
    ScreenRun {
        column: run.column.into(),
        columns: run.columns.into(),
        foreground: color(run.style.foreground),
        background: color(run.style.background),
        bold: has(Attributes::BOLD),
        dim: has(Attributes::DIM),
        italic: has(Attributes::ITALIC),
        underline: has(Attributes::UNDERLINE),
        inverse: has(Attributes::INVERSE),
        hidden: has(Attributes::HIDDEN),
        strikeout: has(Attributes::STRIKEOUT),
        text: run.text,
    }
}

fn color(colour: Colour) -> Option<Color> {
    let color = match colour {
        Colour::Default => return None,
        Colour::Palette(index) => color::Color::Palette(index.into()),
        Colour::Rgb(red, green, blue) => {
            color::Color::Rgb(u32::from(red) << 16 | u32::from(green) << 8 | u32::from(blue))
        }
    };
    Some(Color { color: Some(color) })
}

fn cursor(picture: &Picture) -> Cursor {
    let shape = match picture.cursor.shape {
        Shape::Block => CursorShape::Block,
        Shape::Underline => CursorShape::Underline,
        Shape::Bar => CursorShape::Bar,
    };
    Cursor {
        column: picture.cursor.column.into(),
        row: picture.cursor.row.into(),
        visible: picture.modes.contains(Modes::SHOWS_CURSOR),
        shape: shape.into(),
    }
}

fn modes(modes: Modes) -> ScreenModes {
    ScreenModes {
        alternate_screen: modes.contains(Modes::ALTERNATE_SCREEN),
        application_cursor: modes.contains(Modes::APPLICATION_CURSOR),
        application_keypad: modes.contains(Modes::APPLICATION_KEYPAD),
        bracketed_paste: modes.contains(Modes::BRACKETED_PASTE),
        mouse: modes.reports_mouse(),
        mouse_motion: modes.contains(Modes::MOUSE_MOTION) || modes.contains(Modes::MOUSE_DRAGS),
        focus_events: modes.contains(Modes::FOCUS_EVENTS),
    }
}

fn title(picture: &Picture) -> String {
    printable::line(&picture.title).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_a_terminal_shows_an_empty_screen_of_the_usual_size() {
        let shown = empty();
        assert_eq!((shown.columns, shown.rows, shown.lines.len()), (80, 24, 24));
        for (line, index) in shown.lines.into_iter().zip(0..) {
            assert_eq!(line, ScreenRow { index, ..ScreenRow::default() });
        }
        let cursor = Cursor { column: 0, row: 0, visible: true, shape: CursorShape::Block.into() };
        assert_eq!((shown.cursor, shown.modes), (Some(cursor), Some(ScreenModes::default())));
    }

    #[test]
    fn colours_are_none_or_of_the_palette_or_three_bytes() {
        let sent = |colour| color(colour).and_then(|color| color.color);
        assert_eq!(sent(Colour::Default), None);
        assert_eq!(sent(Colour::Palette(7)), Some(color::Color::Palette(7)));
        assert_eq!(sent(Colour::Rgb(0x12, 0x34, 0x56)), Some(color::Color::Rgb(0x0012_3456)));
    }
}
