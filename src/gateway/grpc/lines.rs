//! The events of a line in a kept shell, and the shell's status, as messages.

use futures_util::stream::unfold;
use tokio_stream::Stream;
use tonic::Status;

use super::{errors, response};
use crate::{
    proto::v1::{
        GetShellResponse, LineDoubt as DoubtWord, LineEnd as EndWord, LineEnding as EndingWord, LineStarted,
        LineWaits, OutputGap, RunLineResponse, ShellActivity as ActivityWord, outcome,
        run_line_response::Event,
    },
    terminal::{
        Channel, LineDoubt, LineEnd, LineEnding, LineEvent, RunningLine, ShellActivity, ShellStatus,
        output::OutputPiece,
    },
};

/// A line's events. Dropped before the last one, it ends nothing.
pub(super) fn events(line: RunningLine) -> impl Stream<Item = Result<RunLineResponse, Status>> + Send {
    unfold(Some(line), |line| async move {
        let mut line = line?;
        match line.next().await {
            Ok(Some(happened)) => Some((Ok(RunLineResponse { event: Some(event(happened)) }), Some(line))),
            Ok(None) => None,
            Err(error) => Some((Err(errors::follow_line(&error)), None)),
        }
    })
}

fn event(happened: LineEvent) -> Event {
    let stream = response::stream(Channel::Stdout).into();
    match happened {
        LineEvent::Started { id, offset } => {
            Event::Started(LineStarted { line_id: id, start_offset: offset })
        }
        LineEvent::Output(OutputPiece::Data { offset, data }) => {
            Event::Chunk(response::chunk(Channel::Stdout, offset, data))
        }
        LineEvent::Output(OutputPiece::Gap { from, to }) => {
            Event::Gap(OutputGap { stream, from_offset: from, to_offset: to })
        }
        LineEvent::Waits => Event::Waits(LineWaits {}),
        LineEvent::Ended(end) => Event::End(end_word(&end)),
    }
}

fn end_word(end: &LineEnd) -> EndWord {
    let (ending, exit_status, outcome) = match &end.ending {
        LineEnding::Confirmed(status) => (EndingWord::Confirmed, Some(u32::from(*status)), None),
        LineEnding::Quiet => (EndingWord::Quiet, None, None),
        LineEnding::ShellEnded(outcome) => {
            let code = outcome.as_ref().and_then(|outcome| match &outcome.end {
                Some(outcome::End::ExitCode(code)) => Some(*code),
                Some(_) | None => None,
            });
            (EndingWord::ShellEnded, code, outcome.as_ref().map(|outcome| (**outcome).clone()))
        }
    };
    EndWord {
        ending: ending.into(),
        exit_status,
        start_offset: end.start_offset,
        end_offset: end.end_offset,
        doubts: end.doubts.iter().map(|doubt| doubt_word(*doubt).into()).collect(),
        cwd: end.cwd.clone(),
        outcome,
    }
}

fn doubt_word(doubt: LineDoubt) -> DoubtWord {
    match doubt {
        LineDoubt::MarksMissing => DoubtWord::MarksMissing,
        LineDoubt::MarksFalse => DoubtWord::MarksFalse,
        LineDoubt::ShellReplaced => DoubtWord::ShellReplaced,
        LineDoubt::FullScreen => DoubtWord::FullScreen,
        LineDoubt::OutputLost => DoubtWord::OutputLost,
    }
}

/// What a kept shell does.
pub(super) fn shell(status: ShellStatus) -> GetShellResponse {
    let activity = match status.activity {
        ShellActivity::Idle => ActivityWord::Idle,
        ShellActivity::Busy => ActivityWord::Busy,
        ShellActivity::WaitingForInput => ActivityWord::WaitingForInput,
        ShellActivity::Ended => ActivityWord::Ended,
    };
    GetShellResponse {
        activity: activity.into(),
        cwd: status.cwd,
        line_id: status.line_id.unwrap_or_default(),
        queued_lines: status.queued,
    }
}
