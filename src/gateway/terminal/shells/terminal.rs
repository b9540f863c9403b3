//! What the driver of a line asks of a kept shell's terminal: what runs in it, whether it stands at its prompt, and to be typed into.

use std::{sync::Arc, time::Duration};

use crate::{
    kept_shell::{FoundMark, Mark, MarkScanner, Nonce},
    proto::supervisor::Foreground,
    sys::random,
    terminal::{
        channel::Channel,
        control::{self, EndOfInput},
        errors::OperationError,
        output::reader::{Cursor, OutputPiece},
        state::terminal::Terminal,
    },
};

/// The last part of the output, in which the mark of a prompt is looked for.
const LOOKED_AT_BYTES: u64 = 64 << 10;
/// How long to wait when another caller's input fills the buffer of the terminal, and how often.
const RETRY_AFTER: Duration = Duration::from_millis(20);
const MAX_RETRIES: u32 = 250;

/// What the retained output says of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum PromptState {
    /// No mark was ever written.
    NoMarks,
    /// The last mark is a prompt's, and nothing was entered after it.
    AtPrompt,
    /// The shell has answered a question, and its prompt is to come.
    Answered,
    /// Something runs, or the prompt has no mark any more.
    Elsewhere,
}

/// Reads the marks in the last part of the output.
pub(in crate::terminal) async fn prompt_state(terminal: &Arc<Terminal>) -> PromptState {
    let Some((oldest, next)) = terminal.offsets(Channel::Stdout) else { return PromptState::Elsewhere };
    let from = oldest.max(next.saturating_sub(LOOKED_AT_BYTES));
    let Ok(mut cursor) = Cursor::without_hold(terminal.clone(), Channel::Stdout, from) else {
        return PromptState::Elsewhere;
    };
    let (begin, data) = match cursor.try_next().await {
        Ok(Some(OutputPiece::Data { offset, data })) => (offset, data),
        Ok(None) => (from, prost::bytes::Bytes::new()),
        // It was overwritten at this moment: something writes.
        Ok(Some(OutputPiece::Gap { .. })) | Err(_) => return PromptState::Elsewhere,
    };
    match MarkScanner::new(begin).feed(&data).pop() {
        None if begin == 0 => PromptState::NoMarks,
        Some(FoundMark { mark: Mark::Prompt(_), end, .. }) => {
            let after = usize::try_from(end - begin).ok().and_then(|end| data.get(end..));
            match after.unwrap_or_default().contains(&b'\n') {
                true => PromptState::Elsewhere,
                false => PromptState::AtPrompt,
            }
        }
        Some(FoundMark { mark: Mark::Answer { .. }, .. }) => PromptState::Answered,
        None | Some(_) => PromptState::Elsewhere,
    }
}

/// What runs in the foreground of a terminal that runs.
pub(in crate::terminal) async fn foreground(terminal: &Terminal) -> Result<Foreground, OperationError> {
    let sandbox = control::running(terminal).await?;
    control::answered(sandbox.foreground(terminal.id.to_string()).await)
}

/// Types into a shell that the caller holds.
pub(in crate::terminal) async fn type_text(terminal: &Terminal, text: String) -> Result<(), OperationError> {
    let bytes = prost::bytes::Bytes::from(text);
    for _ in 0..MAX_RETRIES {
        match control::write_stdin(terminal, None, bytes.clone(), EndOfInput::NotYet).await {
            Ok(written) if written == bytes.len() as u64 => return Ok(()),
            Ok(_) => return Err(OperationError::Ended),
            Err(OperationError::Errno(libc::EAGAIN)) => tokio::time::sleep(RETRY_AFTER).await,
            Err(error) => return Err(error),
        }
    }
    Err(OperationError::Errno(libc::EAGAIN))
}

/// The offset behind all that was written.
pub(in crate::terminal) fn next_offset(terminal: &Terminal) -> u64 {
    terminal.offsets(Channel::Stdout).map_or(0, |(_, next)| next)
}

/// A nonce that nobody knows yet.
pub(in crate::terminal) fn fresh_nonce() -> Result<Nonce, OperationError> {
    random::bytes().map(Nonce::new).map_err(|errno| OperationError::Errno(errno as i32))
}
