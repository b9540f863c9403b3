//! `provost logs --cast` and `provost play`: recordings of pseudo-terminals.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tokio::time::{Instant, sleep};
use tonic::Streaming;

use super::cast::{self, CastEvent, CastWriter, Term};
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
        request::argument_values::parse_duration,
    },
    printable,
    proto::v1::{self, stream_output_response::Event},
};

/// The terminal's size is asked for before each output, but in a flood: at most so many times in so long.
const SIZE_INTERVAL: Duration = Duration::from_millis(20);
const LOOKS_IN_INTERVAL: u32 = 8;
/// A line of a recording.
const LINE_MAX_BYTES: u64 = 16 << 20;

/// Writes the output of a pseudo-terminal into a file as it comes. Its times are those at which it came here.
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
        |number: u64, error: cast::CastError| CliError::caused_by(format!("line {number} of {name}"), error);
    let (number, header) = next()?.unwrap_or_default();
    cast::read_header(&header).map_err(|error| wrong(number, error))?;
    let mut signals =
        TerminationSignals::install().map_err(|error| CliError::caused_by("cannot take signals", error))?;
    // A recording can end anywhere.
    let _left = LeaveWhenDropped;
    let stdout = OutputStream::stdout();
    while let Some((number, line)) = next()? {
        let Some((since, event)) = cast::read_event(&line).map_err(|error| wrong(number, error))? else {
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
