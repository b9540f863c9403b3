//! Recordings in asciicast v3 (asciinema.org), a JSON value a line: a header, then events with the time since the one before.
//!
//! Pure: the caller has the clock, the file and the terminal.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The version that is written and read.
const VERSION: u8 = 3;
/// An incomplete character at the end of what came waits for its rest; none is longer.
const CHARACTER_MAX_BYTES: usize = 4;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    version: u8,
    pub(in crate::cli) term: Term,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// The terminal that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Term {
    pub(super) cols: u32,
    pub(in crate::cli) rows: u32,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CastEvent {
    Output(String),
    Resize(Term),
    Exit(String),
    /// Of a kind that is not shown.
    Other,
}

/// Why a line is no event.
#[derive(Debug, thiserror::Error)]
pub(super) enum CastError {
    #[error("it is no JSON of an asciicast")]
    Json(#[from] serde_json::Error),
    #[error("it is an asciicast of version {0}, and only version {VERSION} is read")]
    Version(u8),
    #[error("an event has an impossible time")]
    Time,
}

/// Writes the lines of a recording.
#[derive(Debug, Default)]
pub(super) struct CastWriter {
    incomplete: Vec<u8>,
}

impl CastWriter {
    /// The first line.
    pub(super) fn header(term: Term, started_at: Option<u64>, command: String) -> serde_json::Result<String> {
        let header = Header { version: VERSION, term, timestamp: started_at, command: Some(command) };
        Ok(serde_json::to_string(&header)? + "\n")
    }

    /// A line for bytes that came this long after the line before; none while only a part of a character has come.
    pub(in crate::cli) fn output(
        &mut self,
        since: Duration,
        bytes: &[u8],
    ) -> serde_json::Result<Option<String>> {
        self.incomplete.extend_from_slice(bytes);
        let cut = complete_length(&self.incomplete);
        let text: Vec<u8> = self.incomplete.drain(..cut).collect();
        if text.is_empty() {
            return Ok(None);
        }
        line(since, "o", &String::from_utf8_lossy(&text)).map(Some)
    }

    /// A line for a new size.
    pub(super) fn resize(since: Duration, size: Term) -> serde_json::Result<String> {
        line(since, "r", &format!("{}x{}", size.cols, size.rows))
    }

    /// The last lines: what was incomplete, and the exit status.
    pub(in crate::cli) fn end(&mut self, since: Duration, status: u8) -> serde_json::Result<String> {
        let rest = std::mem::take(&mut self.incomplete);
        let last =
            if rest.is_empty() { String::new() } else { line(since, "o", &String::from_utf8_lossy(&rest))? };
        Ok(last + &line(Duration::ZERO, "x", &status.to_string())?)
    }
}

fn line(since: Duration, code: &str, data: &str) -> serde_json::Result<String> {
    // Milliseconds, as asciinema writes them.
    let seconds = (since.as_secs_f64() * 1_000.0).round() / 1_000.0;
    Ok(serde_json::to_string(&(seconds, code, data))? + "\n")
}

/// How much of the bytes is whole characters, or no characters at all.
fn complete_length(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(CHARACTER_MAX_BYTES - 1);
    let lead = bytes[from..].iter().rposition(|byte| *byte >= 0xc0).map(|at| from + at);
    let Some(lead) = lead else { return bytes.len() };
    let length = match bytes[lead] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    if lead + length > bytes.len() { lead } else { bytes.len() }
}

/// Reads the first line.
pub(super) fn read_header(line: &str) -> Result<Header, CastError> {
    #[derive(Deserialize)]
    struct Version {
        version: u8,
    }
    let Version { version } = serde_json::from_str(line)?;
    if version != VERSION {
        return Err(CastError::Version(version));
    }
    Ok(serde_json::from_str(line)?)
}

/// Reads a later line; `None` for a comment.
pub(super) fn read_event(line: &str) -> Result<Option<(Duration, CastEvent)>, CastError> {
    if line.starts_with('#') || line.trim().is_empty() {
        return Ok(None);
    }
    let (seconds, code, data): (f64, String, String) = serde_json::from_str(line)?;
    let since = Duration::try_from_secs_f64(seconds).map_err(|_| CastError::Time)?;
    let event = match code.as_str() {
        "o" => CastEvent::Output(data),
        "x" => CastEvent::Exit(data),
        "r" => {
            let size = data
                .split_once('x')
                .and_then(|(cols, rows)| Some(Term { cols: cols.parse().ok()?, rows: rows.parse().ok()? }));
            size.map_or(CastEvent::Other, CastEvent::Resize)
        }
        _ => CastEvent::Other,
    };
    Ok(Some((since, event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let term = Term { cols: 80, rows: 24 };
        let header = CastWriter::header(term, Some(1), "sh".to_owned()).unwrap();
        assert_eq!(
            header,
            "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24},\"timestamp\":1,\"command\":\"sh\"}\n"
        );
        assert_eq!(read_header(header.trim()).unwrap().term, term);
        let mut writer = CastWriter::default();
        let second = Duration::from_secs(1);
        // A character in two pieces, and a byte that is none.
        assert_eq!(writer.output(second, b"\xe2\x82").unwrap(), None);
        let line = writer.output(second, b"\xac\xff\x1b[m").unwrap().unwrap();
        assert_eq!(line, "[1.0,\"o\",\"€\u{fffd}\\u001b[m\"]\n");
        assert_eq!(
            read_event(line.trim()).unwrap(),
            Some((second, CastEvent::Output("€\u{fffd}\u{1b}[m".to_owned())))
        );
        assert_eq!(
            read_event("[1.5,\"r\",\"80x24\"]").unwrap(),
            Some((Duration::from_millis(1_500), CastEvent::Resize(term)))
        );
        let resized = CastWriter::resize(second, term).unwrap();
        assert_eq!(resized, "[1.0,\"r\",\"80x24\"]\n");
        assert_eq!(read_event(resized.trim()).unwrap(), Some((second, CastEvent::Resize(term))));
        writer.output(second, b"\xe2").unwrap();
        assert_eq!(writer.end(Duration::ZERO, 7).unwrap(), "[0.0,\"o\",\"\u{fffd}\"]\n[0.0,\"x\",\"7\"]\n");
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        assert!(matches!(read_header("{\"version\":2,\"width\":80}"), Err(CastError::Version(2))));
        assert!(read_header("no").is_err());
        assert!(matches!(read_event("[-1.0,\"o\",\"x\"]"), Err(CastError::Time)));
        assert!(read_event("[1e300,\"o\",\"x\"]").is_err());
        assert_eq!(read_event("# a comment").unwrap(), None);
        assert!(matches!(read_event("[0.5,\"m\",\"x\"]"), Ok(Some((_, CastEvent::Other)))));
    }
}
