//! `provost logs --cast` and `provost play`: recordings of pseudo-terminals in asciicast v3 (asciinema.org).
//!
//! A recording has a JSON value a line: a header, then events with the time since the one before. What reads and writes these is pure: the
//! caller has the clock, the file and the terminal.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tonic::Streaming;

use crate::{
    cli::{
        console::{
            error::CliError,
            exit_status,
            output_file::GrowingFile,
            person_terminal::{LeaveWhenDropped, OutputStream},
            signals::TerminationSignals,
            stdio::{self, WriteOutcome},
        },
        gateway_link::connection::Terminals,
        request::arguments::parse_duration,
    },
    printable,
    proto::v1::{self, stream_output_response::Event},
};

/// The terminal's size is asked for before each output, but in a flood: at most so many times in so long.
const SIZE_INTERVAL: Duration = Duration::from_millis(20);
const LOOKS_IN_INTERVAL: u32 = 8;
/// A line of a recording.
const LINE_MAX_BYTES: u64 = 16 << 20;

/// Writes the output of a pseudo-terminal into a file as it comes. Its times are those at which it came here, because a ring
/// keeps bytes and no times: what was retained before has no pauses.
pub(in crate::cli) async fn record(
    path: &Path,
    mut terminals: Terminals,
    terminal: &v1::Terminal,
    mut events: Streaming<v1::StreamOutputResponse>,
) -> Result<u8, CliError> {
    let Some(pty) = &terminal.pty else {
        return Err(CliError::message_only(
            "only a pseudo-terminal can be recorded, and this one has pipes".to_owned(),
        ));
    };
    let failed = |error: std::io::Error| {
        CliError::caused_by(format!("cannot write the recording {}", printable::path(path)), error)
    };
    let unencodable = |error| CliError::caused_by("cannot encode the recording", error);
    let mut file = GrowingFile::begin(path).map_err(failed)?;
    let started_at = terminal.started_at.and_then(|at| u64::try_from(at.seconds).ok());
    let mut term = Term { cols: pty.columns, rows: pty.rows };
    let header = CastWriter::header(term, started_at, printable::line(&terminal.command).into_owned())
        .map_err(unencodable)?;
    file.write_all(header.as_bytes()).map_err(failed)?;
    let (mut writer, mut before) = (CastWriter::default(), Instant::now());
    let (mut interval_began, mut looks) = (Instant::now(), 0);
    while let Some(event) = events.message().await?.and_then(|event| event.event) {
        if interval_began.elapsed() >= SIZE_INTERVAL {
            (interval_began, looks) = (Instant::now(), 0);
        }
        looks += 1;
        // A program writes when its window has a new size: that comes before what it writes.
        if looks <= LOOKS_IN_INTERVAL || matches!(event, Event::End(_)) {
            let request = v1::GetTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
            let now = terminals.get_terminal(request).await.ok().and_then(|now| now.into_inner().terminal);
            let size = now.and_then(|now| now.pty).map(|pty| Term { cols: pty.columns, rows: pty.rows });
            if let Some(size) = size.filter(|size| *size != term) {
                term = size;
                let line = CastWriter::resize(before.elapsed(), size).map_err(unencodable)?;
                before = Instant::now();
                file.write_all(line.as_bytes()).map_err(failed)?;
            }
        }
        let line = match event {
            Event::Chunk(chunk) => writer.output(before.elapsed(), &chunk.data).map_err(unencodable)?,
            Event::Gap(gap) => {
                let lost = gap.to_offset.saturating_sub(gap.from_offset);
                stdio::print_notice(&format!("{lost} bytes of the output are no longer held"));
                None
            }
            Event::End(end) => {
                let status = end.outcome.as_ref().map(exit_status::from_outcome);
                status.map(|status| writer.end(before.elapsed(), status)).transpose().map_err(unencodable)?
            }
        };
        if let Some(line) = line {
            before = Instant::now();
            file.write_all(line.as_bytes()).map_err(failed)?;
        }
    }
    file.finish().map_err(failed)?;
    Ok(0)
}

/// `provost play`.
#[derive(Debug, Args)]
#[command(
    about = "Play a recording in this terminal",
    long_about = "Plays a recording (asciicast v3), which `provost logs --cast` has made, in this terminal. What the \
                  recorded program wrote goes to this terminal as it was, but for what reaches beyond its screen; into \
                  a pipe or a file goes all of it.",
    after_help = "Example:\n  provost logs -f --cast build.cast term_01JD3ZK6T0000000000000000\n  provost play build.cast"
)]
pub(in crate::cli) struct PlayArguments {
    /// Wait no longer than this between two outputs; 0s: play at once
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_limit: Option<Duration>,
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Plays a recording, and returns 0 at its end.
pub(in crate::cli) async fn play(arguments: PlayArguments) -> Result<u8, CliError> {
    let path = &arguments.file;
    let name = printable::path(path);
    let unreadable = |error: std::io::Error| CliError::caused_by(format!("cannot read {name}"), error);
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let (mut line, mut number) = (String::new(), 0_u64);
    let mut next = || {
        line.clear();
        number += 1;
        let length = file.by_ref().take(LINE_MAX_BYTES).read_line(&mut line).map_err(unreadable)?;
        Ok::<_, CliError>((length > 0).then(|| (number, line.trim_end().to_owned())))
    };
    let wrong =
        |number: u64, error: CastError| CliError::caused_by(format!("line {number} of {name}"), error);
    let (number, header) = next()?.unwrap_or_default();
    read_header(&header).map_err(|error| wrong(number, error))?;
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    // A recording can end anywhere.
    let _left = LeaveWhenDropped;
    let stdout = OutputStream::stdout();
    while let Some((number, line)) = next()? {
        let Some((since, event)) = read_event(&line).map_err(|error| wrong(number, error))? else {
            continue;
        };
        tokio::select! {
            () = sleep(arguments.idle_limit.map_or(since, |limit| since.min(limit))) => {}
            signal = signals.next() => return Ok(exit_status::from_signal(signal)),
        }
        let written = match event {
            CastEvent::Output(text) => stdio::write_to_stdout(&stdout.shown(text.as_bytes())),
            CastEvent::Resize(_) | CastEvent::Exit(_) | CastEvent::Other => Ok(WriteOutcome::Complete),
        };
        if written.map_err(|error| CliError::caused_by("cannot write to stdout", error))?
            == WriteOutcome::ReaderGone
        {
            return Ok(exit_status::BROKEN_PIPE);
        }
    }
    Ok(0)
}

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
    /// An event of a kind that is not shown.
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
