//! What has changed between two pictures of a terminal.

use std::sync::Arc;

use super::{picture::Picture, row::Row};

/// What a viewer has to be sent to see the second picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it sees the same.
    Nothing,
    /// All of it: the size is another, the screen was built again, or most of it has changed.
    Everything,
    /// Some.
    Parts(Parts),
}

/// Parts of a picture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// Changed rows by their index.
    pub rows: Vec<(u16, Arc<Row>)>,
    /// The cursor or the modes have changed.
    pub cursor_or_modes: bool,
    /// The title has changed.
    pub title: bool,
    /// How often the bell has rung in between.
    pub bells: u64,
    /// Rows above the screen are more or fewer.
    pub scrollback: bool,
}

/// What changes from the one picture to the other.
#[must_use]
pub fn between(old: &Picture, new: &Picture) -> Change {
    if old.size != new.size || old.built_from != new.built_from || old.resets != new.resets {
        return Change::Everything;
    }
    let is_same = |index: usize| {
        old.rows.get(index).is_some_and(|row| Arc::ptr_eq(row, &new.rows[index]) || *row == new.rows[index])
    };
    let rows: Vec<_> = (0..new.rows.len())
        .filter(|index| !is_same(*index))
        .map(|index| (index as u16, new.rows[index].clone()))
        .collect();
    let parts = Parts {
        rows,
        cursor_or_modes: old.cursor != new.cursor || old.modes != new.modes,
        title: old.title != new.title,
        bells: new.bells.saturating_sub(old.bells),
        scrollback: old.scrollback_rows != new.scrollback_rows,
    };
    if parts == Parts::default() { Change::Nothing } else { Change::Parts(parts) }
}
