//! The size of a screen and its bounds.

/// The narrowest screen: a wide character fits.
pub const MIN_COLUMNS: u16 = 2;
/// The widest screen.
pub const MAX_COLUMNS: u16 = 1000;
/// The highest screen.
pub const MAX_ROWS: u16 = 500;
/// The most cells of a screen.
pub const MAX_CELLS: u32 = 200_000;

/// A size within the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenSize {
    columns: u16,
    rows: u16,
}

/// A size outside the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a screen of {columns} columns and {rows} rows: columns are {MIN_COLUMNS} to {MAX_COLUMNS}, rows 1 to {MAX_ROWS}, \
     and cells at most {MAX_CELLS}"
)]
pub struct SizeOutOfBounds {
    /// As asked for.
    pub columns: u32,
    /// As asked for.
    pub rows: u32,
}

impl ScreenSize {
    /// A size.
    ///
    /// # Errors
    /// [`SizeOutOfBounds`].
    pub fn new(columns: u32, rows: u32) -> Result<Self, SizeOutOfBounds> {
        let error = SizeOutOfBounds { columns, rows };
        let narrow = |value: u32| u16::try_from(value).map_err(|_| error);
        let size = Self { columns: narrow(columns)?, rows: narrow(rows)? };
        let fits = (MIN_COLUMNS..=MAX_COLUMNS).contains(&size.columns)
            && (1..=MAX_ROWS).contains(&size.rows)
            && size.cells() as u32 <= MAX_CELLS;
        if fits { Ok(size) } else { Err(error) }
    }

    /// Cells in a row.
    #[must_use]
    pub fn columns(self) -> u16 {
        self.columns
    }

    /// Rows.
    #[must_use]
    pub fn rows(self) -> u16 {
        self.rows
    }

    /// Cells.
    #[must_use]
    pub fn cells(self) -> usize {
        usize::from(self.columns) * usize::from(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_outside_the_bounds_are_refused() {
        for (columns, rows) in [(1, 24), (0, 0), (1001, 1), (80, 0), (80, 501), (1000, 201), (70_000, 1)] {
            assert_eq!(ScreenSize::new(columns, rows), Err(SizeOutOfBounds { columns, rows }));
        }
        assert_eq!(ScreenSize::new(1000, 200).unwrap().cells(), 200_000);
        assert_eq!(ScreenSize::new(2, 1).unwrap().cells(), 2);
    }
}
