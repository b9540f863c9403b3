//! The log's way out: each event is one line, in which what others named is seen as itself.
//!
//! Whatever an event says, and of whomever: the one place that every line of the log passes.

use std::{
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use tracing_subscriber::EnvFilter;

use super::{error::CliError, output_file};
use crate::{printable, stdio::Waiting};

/// The variable that says what is logged, as in "provost=debug".
pub(in crate::cli) const LOG_VARIABLE: &str = "PROVOST_LOG";
/// The longest line of a log. Names may be as long as a request.
const LINE_MAX_BYTES: usize = 8 << 10;

/// Writes events to a log.
pub(in crate::cli) struct EscapedLog<W>(pub(in crate::cli) W);

impl<W: Write> Write for EscapedLog<W> {
    /// One event, which the subscriber writes at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = printable::bounded_line(text.trim_end_matches('\n'), LINE_MAX_BYTES);
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Logs to a file that is appended to; what is logged is said by the same variable as for `serve`.
pub(in crate::cli) fn log_to(file: &Path) -> Result<(), CliError> {
    let opened = output_file::append(file).map_err(|error| {
        CliError::caused_by(format!("cannot write {}", crate::printable::path(file)), error)
    })?;
    let filter =
        EnvFilter::builder().with_env_var(LOG_VARIABLE).with_default_directive(tracing::Level::INFO.into());
    let filter = filter.from_env_lossy();
    let opened = Arc::new(opened);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || EscapedLog(Waiting(opened.clone())))
        .with_ansi(false)
        .try_init()
        .map_err(|error| CliError::message_only(format!("cannot start logging: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_names() {
        let mut lines = Vec::new();
        let name = format!("a\u{1b}[2J\u{9b}2J\u{202e}\nINFO forged {}", "x".repeat(LINE_MAX_BYTES));
        EscapedLog(&mut lines).write_all(format!("ERROR {name}\n").as_bytes()).unwrap();
        EscapedLog(&mut lines).write_all(b"INFO \xff and more\n").unwrap();
        let text = String::from_utf8(lines).unwrap();
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(text.starts_with("ERROR a\\u{1b}[2J\\u{9b}2J\\u{202e}\\nINFO forged xxx"), "{text:?}");
        assert!(
            text.len() < 2 * LINE_MAX_BYTES && text.chars().all(|c| c == '\n' || !printable::needs_escape(c))
        );
    }
}
