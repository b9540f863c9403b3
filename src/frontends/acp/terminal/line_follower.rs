//! Takes in the output of a line of a kept shell, and its end.
//!
//! The line is run once. If the gateway is lost in the middle, the line goes on in its shell; it counts as running until the next
//! gateway finds the shell at its prompt, and its exit status is then not known.

use std::sync::Arc;

use agent_client_protocol_schema::v1::TerminalExitStatus;
use tonic::Streaming;

use super::{exit, output_snapshot::LineOutput, terminal::AcpTerminal};
use crate::{
    client::RetryingClient,
    proto::v1::{LineDoubt, LineEnd, RunLineResponse, outcome::End, run_line_response::Event},
};

/// For agents that show their model the output and the exit code, and nothing else.
const NOT_CONFIRMED: &str =
    "the shell has not confirmed the end of this command: its exit status is not known";

/// Takes in a line's output and its end.
pub(in crate::acp) async fn follow(
    terminal: Arc<AcpTerminal>,
    client: RetryingClient,
    mut events: Streaming<RunLineResponse>,
) {
    let mut ends = LineEnds::default();
    let end = loop {
        match events.message().await.map(|event| event.and_then(|event| event.event)) {
            Ok(Some(Event::Chunk(chunk))) => {
                terminal.take_line_output(LineOutput::Text(&ends.as_written(&chunk.data)));
            }
            Ok(Some(Event::Gap(_))) => terminal.take_line_output(LineOutput::Gap),
            Ok(Some(Event::Started(_) | Event::Waits(_))) => {}
            Ok(Some(Event::End(end))) => break Some(end),
            Ok(None) | Err(_) => break None,
        }
    };
    terminal.take_line_output(LineOutput::Text(ends.rest()));
    let end = match (end, &terminal.line) {
        (Some(end), _) => end,
        (None, Some(line)) => {
            tokio::select! {
                () = line.wait_unfollowed(&client) => {}
                () = terminal.session.closed.cancelled() => {}
            }
            LineEnd { doubts: vec![LineDoubt::MarksMissing.into()], ..LineEnd::default() }
        }
        (None, None) => return,
    };
    let status: TerminalExitStatus = exit::status_of_line(&end);
    let notice = notice_of(&end, &status);
    terminal.end_line(status, notice.as_deref());
}

/// What an agent must know of the end. A shell that its command has left by `exit` is no news.
fn notice_of(end: &LineEnd, status: &TerminalExitStatus) -> Option<String> {
    match end.outcome.as_ref().and_then(|outcome| outcome.end.as_ref()) {
        Some(End::Signal(name)) => {
            Some(format!("the session's shell has ended by {name}: its directory and variables are lost"))
        }
        Some(End::ExitCode(_)) => None,
        None => status.exit_code.is_none().then(|| NOT_CONFIRMED.to_owned()),
    }
}

/// Ends of lines as programs write them: the terminal makes `\r\n` of each `\n`.
#[derive(Debug, Default)]
struct LineEnds {
    /// The last byte was a `\r`, which may belong to the next one.
    has_return: bool,
}

impl LineEnds {
    fn as_written(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut written = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if std::mem::take(&mut self.has_return) && byte != b'\n' {
                written.push(b'\r');
            }
            match byte {
                b'\r' => self.has_return = true,
                other => written.push(other),
            }
        }
        written
    }

    /// What no byte follows.
    fn rest(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.has_return) { b"\r" } else { b"" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_lines_are_those_of_the_program_however_the_output_is_cut() {
        let output = b"one\r\ntwo\rthree\r\r\n\n\rfour\r";
        let expected = b"one\ntwo\rthree\r\n\n\rfour\r";
        for at in 0..=output.len() {
            let mut ends = LineEnds::default();
            let mut written = ends.as_written(&output[..at]);
            written.extend(ends.as_written(&output[at..]));
            written.extend_from_slice(ends.rest());
            assert_eq!(written, expected, "cut at {at}");
        }
    }
}
