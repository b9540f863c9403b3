//! `provost logs`: the output of a terminal, what is held and, when asked, what comes.
//!
//! Bytes of pipes go out as they are, but for what reaches beyond the screen of a person's terminal, and of a pseudo-terminal the
//! text is printed: its output drives a terminal, and a hostile program could do that to the terminal of the person who reads.
//! What was dropped before it could be read is counted on stderr, never passed over.
//!
//! A look begins at an offset in bytes and at no time. Positions are what clients, restarts and the journal agree on. Times would
//! cost each write a clock and each ring a second table, and those at which a client happens to read are none of the output's.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use tonic::Streaming;

use super::record;
use crate::{
    cli::{
        console::{
            error::CliError,
            exit_status, json,
            person_terminal::{LeaveWhenDropped, OutputStream},
            stdio::{self, WriteOutcome},
            table::to_json_line,
        },
        gateway_link::connection::{GatewayConnection, Terminals},
        request::{arguments::OutputFormat, terminal_arguments::LogsArguments},
    },
    output::plain_text::PlainText,
    proto::v1::{self, stream_output_response::Event},
};

/// `provost logs`.
pub(in crate::cli) async fn logs(arguments: LogsArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let terminals = connection.client().terminals;
    let request =
        v1::GetTerminalRequest { terminal_id: arguments.terminal.clone(), session_id: String::new() };
    let terminal = terminals.clone().get_terminal(request).await?.into_inner().terminal.unwrap_or_default();
    if let Some(path) = &arguments.cast {
        let events =
            open(terminals.clone(), terminal.id.clone(), v1::OutputStream::Unspecified, 0, arguments.follow);
        return record::record(path, terminals.clone(), &terminal, events.await?).await;
    }
    let format = match (arguments.output.output, &terminal.pty) {
        (OutputFormat::Json, _) => LogFormat::Json,
        (OutputFormat::Text, _) if arguments.raw => LogFormat::Raw,
        (OutputFormat::Text, Some(_)) => LogFormat::Text(PlainText::default()),
        (OutputFormat::Text, None) => LogFormat::Bytes,
    };
    if arguments.offset > 0 && terminal.output.len() > 1 {
        return Err(CliError::message_only("--offset is for one stream, and this terminal has two".into()));
    }
    let open =
        |stream| open(terminals.clone(), terminal.id.clone(), stream, arguments.offset, arguments.follow);
    // A split terminal has a position for each of its streams, a merged one has one.
    let (out, err) = if terminal.output.len() > 1 {
        let (out, err) = (open(v1::OutputStream::Stdout).await?, open(v1::OutputStream::Stderr).await?);
        tokio::try_join!(
            print(out, v1::OutputStream::Stdout, LogFormat::of_pipes(&format)),
            print(err, v1::OutputStream::Stderr, LogFormat::of_pipes(&format))
        )?
    } else {
        (
            print(open(v1::OutputStream::Unspecified).await?, v1::OutputStream::Stdout, format).await?,
            WriteOutcome::Complete,
        )
    };
    Ok(if out == WriteOutcome::Complete && err == WriteOutcome::Complete {
        0
    } else {
        exit_status::BROKEN_PIPE
    })
}

/// How output is printed.
enum LogFormat {
    Json,
    /// As it is, also to a terminal.
    Raw,
    /// As it is, but for what reaches beyond the screen of a terminal.
    Bytes,
    /// Without what drives a terminal.
    Text(PlainText),
}

impl LogFormat {
    /// The same for one of several streams, which no pseudo-terminal has.
    fn of_pipes(format: &Self) -> Self {
        match format {
            Self::Json => Self::Json,
            Self::Raw => Self::Raw,
            Self::Bytes | Self::Text(_) => Self::Bytes,
        }
    }
}

/// A line of `-o json`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LogLine {
    Chunk {
        stream: &'static str,
        offset: u64,
        data_base64: String,
    },
    Gap {
        stream: &'static str,
        from_offset: u64,
        to_offset: u64,
    },
    End {
        stream: &'static str,
        next_offset: u64,
        state: &'static str,
        outcome: Option<Box<json::OutcomeJson>>,
    },
}

async fn open(
    mut terminals: Terminals,
    terminal_id: String,
    stream: v1::OutputStream,
    offset: u64,
    follow: bool,
) -> Result<Streaming<v1::StreamOutputResponse>, CliError> {
    let request = v1::StreamOutputRequest {
        terminal_id,
        session_id: String::new(),
        stream: stream.into(),
        offset,
        follow,
    };
    Ok(terminals.stream_output(request).await?.into_inner())
}

/// Prints one stream to its end.
async fn print(
    mut events: Streaming<v1::StreamOutputResponse>,
    stream: v1::OutputStream,
    mut format: LogFormat,
) -> Result<WriteOutcome, CliError> {
    let (mut stdout, mut stderr) = (crate::stdio::stdout(), crate::stdio::stderr());
    let (own_stdout, own_stderr) = (OutputStream::stdout(), OutputStream::stderr());
    let _left = LeaveWhenDropped;
    while let Some(event) = events.message().await?.and_then(|event| event.event) {
        let written = match (&mut format, event) {
            (LogFormat::Json, event) => {
                let line = to_json_line(&line(event, name(stream)))?;
                stdio::write_all(&mut stdout, line.as_bytes()).await
            }
            (LogFormat::Raw, Event::Chunk(chunk)) if stream == v1::OutputStream::Stderr => {
                stdio::write_all(&mut stderr, &chunk.data).await
            }
            (LogFormat::Raw, Event::Chunk(chunk)) => stdio::write_all(&mut stdout, &chunk.data).await,
            (LogFormat::Bytes | LogFormat::Text(_), Event::Chunk(chunk))
                if stream == v1::OutputStream::Stderr =>
            {
                stdio::write_all(&mut stderr, &own_stderr.shown(&chunk.data)).await
            }
            (LogFormat::Bytes, Event::Chunk(chunk)) => {
                stdio::write_all(&mut stdout, &own_stdout.shown(&chunk.data)).await
            }
            (LogFormat::Text(text), Event::Chunk(chunk)) => {
                stdio::write_all(&mut stdout, &text.take(&chunk.data)).await
            }
            (LogFormat::Raw | LogFormat::Bytes | LogFormat::Text(_), Event::Gap(gap)) => {
                let lost = gap.to_offset.saturating_sub(gap.from_offset);
                stdio::print_notice(&format!("{lost} bytes of {} are no longer held", name(stream)));
                Ok(WriteOutcome::Complete)
            }
            (LogFormat::Raw | LogFormat::Bytes | LogFormat::Text(_), Event::End(_)) => {
                Ok(WriteOutcome::Complete)
            }
        };
        if written.map_err(|error| CliError::caused_by("cannot write the output", error))?
            == WriteOutcome::ReaderGone
        {
            return Ok(WriteOutcome::ReaderGone);
        }
    }
    Ok(WriteOutcome::Complete)
}

fn line(event: Event, stream: &'static str) -> LogLine {
    match event {
        Event::Chunk(chunk) => {
            LogLine::Chunk { stream, offset: chunk.offset, data_base64: STANDARD.encode(&chunk.data) }
        }
        Event::Gap(gap) => LogLine::Gap { stream, from_offset: gap.from_offset, to_offset: gap.to_offset },
        Event::End(end) => LogLine::End {
            stream,
            next_offset: end.next_offset,
            state: json::state(end.state()),
            outcome: end.outcome.as_ref().map(|outcome| Box::new(outcome.into())),
        },
    }
}

fn name(stream: v1::OutputStream) -> &'static str {
    match stream {
        v1::OutputStream::Unspecified | v1::OutputStream::Stdout => "stdout",
        v1::OutputStream::Stderr => "stderr",
    }
}
