//! What goes to stdout: aligned tables, lines of JSON, and the exit status if nobody reads them.

use super::{
    error::CliError,
    exit_status,
    stdio::{self, WriteOutcome},
};
use crate::printable;

/// Rows as lines, each column but the last as wide as its widest cell.
pub(in crate::cli) fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A value as one line of JSON.
pub(in crate::cli) fn to_json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let line =
        serde_json::to_string(value).map_err(|error| CliError::caused_by("cannot write JSON", error))?;
    let mut line = printable::json(&line).into_owned();
    line.push('\n');
    Ok(line)
}

/// Prints a text to stdout, escaped, and returns the exit status: 0, or that of SIGPIPE if nobody reads.
pub(in crate::cli) fn print_to_stdout(text: &str) -> Result<u8, CliError> {
    exit_status_of(stdio::print(text))
}

/// Prints bytes to stdout as they are.
pub(in crate::cli) fn print_bytes(bytes: &[u8]) -> Result<u8, CliError> {
    exit_status_of(stdio::write_to_stdout(bytes))
}

fn exit_status_of(written: std::io::Result<WriteOutcome>) -> Result<u8, CliError> {
    match written.map_err(|error| CliError::caused_by("cannot write to stdout", error))? {
        WriteOutcome::Complete => Ok(0),
        WriteOutcome::ReaderGone => Ok(exit_status::BROKEN_PIPE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "b"], ["long", "c"]].map(|row| row.map(str::to_owned));
        assert_eq!(align_columns(&rows), "a     b\nlong  c\n");
    }
}
