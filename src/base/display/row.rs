//! One row of a screen: its cells, and the marks that combine with their characters.

use std::collections::BTreeMap;

use super::cell::{Attributes, Cell, MAX_MARKS};

/// A row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// As many as the screen has columns.
    pub cells: Vec<Cell>,
    /// By column; at most [`MAX_MARKS`] each.
    pub marks: BTreeMap<u16, Vec<char>>,
    /// The text goes on in the next row.
    pub is_wrapped: bool,
}

/// Cells of one style, side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The first cell's column, from 0.
    pub column: u16,
    /// Columns that it takes.
    pub columns: u16,
    /// Its characters, with their marks.
    pub text: String,
    /// The style of its cells; the character is the first one's.
    pub style: Cell,
}

impl Row {
    /// Adds a mark to a cell, if there is room for it.
    pub fn add_mark(&mut self, column: u16, mark: char) {
        let marks = self.marks.entry(column).or_default();
        if marks.len() < MAX_MARKS && !mark.is_control() {
            marks.push(mark);
        }
    }

    /// The text, without the blanks at its end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.cells.len());
        for (cell, column) in self.cells.iter().zip(0..) {
            self.push_cell(&mut text, cell, column);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }

    /// The cells as runs of one style. Blanks in the default style at the end are left out.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let plain = Cell::default();
        let is_blank = |cell: &Cell| cell.character == ' ' && cell.has_style_of(&plain);
        let last_marked = self.marks.keys().next_back().map_or(0, |column| usize::from(*column) + 1);
        let end = self.cells.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
        let end = end.max(last_marked).min(self.cells.len());
        let mut runs: Vec<Run> = Vec::new();
        for (cell, column) in self.cells[..end].iter().zip(0..) {
            let starts = runs.last().is_none_or(|run| !run.style.has_style_of(cell));
            // The right half of a wide character belongs to its left one.
            if starts && (!cell.attributes.contains(Attributes::SPACER) || runs.is_empty()) {
                runs.push(Run { column, columns: 0, text: String::new(), style: *cell });
            }
            if let Some(run) = runs.last_mut() {
                run.columns += 1;
                self.push_cell(&mut run.text, cell, column);
            }
        }
        runs
    }

    fn push_cell(&self, text: &mut String, cell: &Cell, column: u16) {
        if cell.attributes.contains(Attributes::SPACER) {
            return;
        }
        text.push(cell.character);
        if let Some(marks) = self.marks.get(&column) {
            text.extend(marks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::cell::Colour;

    #[test]
    fn runs_are_cut_where_the_style_changes_and_keep_wide_characters_whole() {
        let red = Cell { foreground: Colour::Palette(1), ..Cell::default() };
        let mut row = Row { cells: vec![Cell::default(); 8], ..Row::default() };
        row.cells[0].character = 'a';
        row.cells[1] = Cell { character: '\u{65e5}', ..red };
        row.cells[1].attributes.set(Attributes::WIDE, true);
        row.cells[2].attributes.set(Attributes::SPACER, true);
        row.cells[3] = Cell { character: 'e', ..red };
        row.add_mark(3, '\u{301}');
        row.add_mark(3, '\u{7}');
        assert_eq!(row.text(), "a日e\u{301}");
        let runs: Vec<_> = row.runs().into_iter().map(|run| (run.column, run.columns, run.text)).collect();
        assert_eq!(runs, [(0, 1, "a".into()), (1, 3, "日e\u{301}".into())]);
        row.add_mark(6, '\u{301}');
        assert_eq!(row.runs().last().map(|run| run.text.clone()), Some("   \u{301}".into()));
    }
}
