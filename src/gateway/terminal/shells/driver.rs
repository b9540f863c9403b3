//! Drives one line in a kept shell: types it, follows its marks, and finds its end.
//!
//! A mark in the output is only a hint: any program can write it. The end counts when the shell's group is in the foreground and the
//! shell answers a question whose nonce was made after the hint. Judges and records nothing.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    kept_shell::{FoundMark, InputMode, Mark, MarkScanner, Nonce},
    proto::supervisor::Foreground,
    sys::random,
    terminal::{
        control::{self, EndOfInput},
        errors::{OperationError, RunLineError},
        kept_shell::{InputHold, KeptShell, OthersTyped, ShellKnowledge, Turn},
        output::{Cursor, Follow, OutputPiece},
        shells::running_line::{LineDoubt, LineEnd, LineEnding, LineProgress},
        spec::Channel,
        state::Terminal,
    },
};

/// How often a shell is asked before a line: one that was interrupted throws away what is typed while it cleans up.
const MAX_QUESTIONS: u32 = 5;
/// How long each time.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a shell at its prompt may take to answer the question after a line, on a busy host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long without output before the kernel is asked whether something waits for input, and how often then.
const QUIET_INTERVAL: Duration = Duration::from_millis(500);

/// The line that is driven.
pub(in crate::terminal) struct LineDriver {
    terminal: Arc<Terminal>,
    id: Nonce,
    quiet_limit: Duration,
    progress: watch::Sender<LineProgress>,
    turn: Turn,
    _hold: InputHold,
    cursor: Cursor,
    scanner: MarkScanner,
    leader_name: String,
}

/// What came next in the output.
enum Received {
    Marks(Vec<FoundMark>),
    Lost,
    Nothing,
    ShellEnded,
}

/// A question that the shell has not answered.
struct Question {
    nonce: Nonce,
    until: Instant,
}

/// What has been seen of the line.
#[derive(Default)]
struct Seen {
    start: Option<u64>,
    /// Where the line's end was hinted at, until that turns out to be false.
    hinted_end: Option<u64>,
    is_over_marked: bool,
    question: Option<Question>,
    /// The function and the prompt were typed again.
    is_prepared_again: bool,
    doubts: BTreeSet<LineDoubt>,
    is_waiting: bool,
}

impl LineDriver {
    /// Makes the shell ready for a line and types it. Whatever fails before that has run nothing.
    ///
    /// # Errors
    /// [`RunLineError`]: the shell is busy, or cannot be asked.
    pub(in crate::terminal) async fn begin(
        terminal: Arc<Terminal>,
        shell: &KeptShell,
        mut turn: Turn,
        line: &str,
        quiet_limit: Duration,
        progress: watch::Sender<LineProgress>,
    ) -> Result<Self, RunLineError> {
        let id = fresh_nonce()?;
        let (hold, others_typed) = shell.hold_input(id.as_str());
        let knowledge = match (std::mem::replace(&mut *turn, ShellKnowledge::Unknown), others_typed) {
            (ShellKnowledge::AtPrompt, OthersTyped::Yes) => ShellKnowledge::Unknown,
            (before, _) => before,
        };
        let foreground = foreground(&terminal).await?;
        let mode = input_mode(&foreground);
        if !foreground.is_leader {
            return Err(RunLineError::Busy);
        }
        let from = next_offset(&terminal);
        let mut driver = Self {
            cursor: Cursor::without_hold(terminal.clone(), Channel::Stdout, from)
                .map_err(|_| OperationError::Ended)?,
            scanner: MarkScanner::new(from),
            terminal: terminal.clone(),
            id,
            quiet_limit,
            progress,
            turn,
            _hold: hold,
            leader_name: foreground.leader_name,
        };
        match knowledge {
            ShellKnowledge::AtPrompt => {}
            ShellKnowledge::Unprepared => driver.prepare(shell).await?,
            ShellKnowledge::Unknown => match driver.awaited_prompt().await {
                PromptState::NoMarks => driver.prepare(shell).await?,
                PromptState::AtPrompt => {
                    driver.ask_until_answered(shell, |nonce| shell.kind.ask(nonce, mode)).await?
                }
                PromptState::Answered | PromptState::Elsewhere => return Err(RunLineError::Busy),
            },
        }
        type_text(&terminal, shell.kind.run(&driver.id, line, mode)).await?;
        Ok(driver)
    }

    /// Whether the shell is at its prompt, which comes a moment after the answer that ended the line before.
    async fn awaited_prompt(&mut self) -> PromptState {
        let until = Instant::now() + QUESTION_TIMEOUT;
        loop {
            let state = prompt_state(&self.terminal).await;
            if state != PromptState::Answered {
                return state;
            }
            match self.receive(until).await {
                Received::Marks(_) | Received::Lost => {}
                Received::Nothing | Received::ShellEnded => return state,
            }
        }
    }

    /// Types the function and the prompt that write marks, and asks whether the shell has them.
    async fn prepare(&mut self, shell: &KeptShell) -> Result<(), RunLineError> {
        *self.turn = ShellKnowledge::Unprepared;
        self.ask_until_answered(shell, |nonce| shell.kind.prepare(&shell.prompt, nonce)).await?;
        *self.turn = ShellKnowledge::Unknown;
        Ok(())
    }

    /// The id of the line.
    pub(in crate::terminal) fn id(&self) -> &str {
        self.id.as_str()
    }

    /// Follows the line to its end, which this is told before anybody else.
    pub(in crate::terminal) async fn drive(mut self, over: impl Future<Output = ()>) {
        let mut seen = Seen::default();
        let typed_at = self.scanner.settled_offset();
        let mut quiet_since = Instant::now();
        let (ending, cwd) = loop {
            match self.receive(Instant::now() + QUIET_INTERVAL).await {
                Received::ShellEnded => {
                    let outcome = self.terminal.stage().outcome().cloned();
                    break (LineEnding::ShellEnded(outcome), String::new());
                }
                Received::Lost => {
                    seen.doubts.insert(LineDoubt::OutputLost);
                    quiet_since = Instant::now();
                }
                Received::Marks(marks) => {
                    quiet_since = Instant::now();
                    if let Some(answered) = self.take_marks(&mut seen, marks).await {
                        break answered;
                    }
                }
                Received::Nothing => {
                    let is_idle = self.look(&mut seen).await;
                    if is_idle && !seen.is_prepared_again && self.was_interrupted() {
                        self.prepare_again(&mut seen).await;
                    } else if is_idle && quiet_since.elapsed() >= self.quiet_limit {
                        break (LineEnding::Quiet, String::new());
                    }
                }
            }
            if seen.question.as_ref().is_some_and(|question| Instant::now() >= question.until) {
                // Whatever wrote the hint, it was not a shell at its prompt.
                seen.question = None;
                seen.hinted_end = None;
                seen.doubts.insert(LineDoubt::MarksFalse);
            }
            self.publish(&seen);
        };
        over.await;
        self.finish(seen, typed_at, ending, cwd);
    }

    /// What the marks say. The exit status and the directory, if the shell has answered the question.
    async fn take_marks(&mut self, seen: &mut Seen, marks: Vec<FoundMark>) -> Option<(LineEnding, String)> {
        for FoundMark { mark, begin, end } in marks {
            match mark {
                Mark::Begun(nonce) if nonce == self.id.as_str() && seen.start.is_none() => {
                    seen.start = Some(end);
                }
                Mark::Over(nonce) if nonce == self.id.as_str() => {
                    if seen.is_over_marked {
                        seen.doubts.insert(LineDoubt::MarksFalse);
                    }
                    seen.is_over_marked = true;
                    self.hint(seen, begin).await;
                }
                // The prompt after the last question comes before the line begins.
                Mark::Prompt(token) if seen.start.is_some() && self.is_prompt(&token) => {
                    if seen.hinted_end.is_none() {
                        self.hint(seen, begin).await;
                    }
                }
                Mark::Prompt(_) => {}
                Mark::Answer { nonce, status, cwd } => match &seen.question {
                    Some(question) if question.nonce.as_str() == nonce => {
                        return Some((LineEnding::Confirmed(status), cwd));
                    }
                    Some(_) | None if seen.start.is_some() => {
                        seen.doubts.insert(LineDoubt::MarksFalse);
                    }
                    Some(_) | None => {}
                },
                Mark::AlternateScreen => {
                    seen.doubts.insert(LineDoubt::FullScreen);
                }
                Mark::Begun(_) | Mark::Over(_) => {
                    seen.doubts.insert(LineDoubt::MarksFalse);
                }
            }
        }
        None
    }

    fn is_prompt(&self, token: &str) -> bool {
        self.terminal.kept_shell.as_ref().is_some_and(|shell| shell.prompt.as_str() == token)
    }

    /// Something says that the line is over at this offset: asks the shell, if it is in the foreground.
    async fn hint(&self, seen: &mut Seen, at: u64) {
        match foreground(&self.terminal).await {
            Ok(foreground) if foreground.is_leader => {
                seen.hinted_end = Some(at);
                if seen.question.is_none() {
                    let mode = input_mode(&foreground);
                    seen.question = self.ask(|shell, nonce| shell.kind.ask(nonce, mode)).await;
                }
            }
            Ok(_) => {
                seen.doubts.insert(LineDoubt::MarksFalse);
            }
            // The shell's end comes with the output.
            Err(_) => {}
        }
    }

    /// Whether an interrupt had the time to end the line.
    fn was_interrupted(&self) -> bool {
        let interrupted_at = self.terminal.kept_shell.as_ref().and_then(KeptShell::interrupted_at);
        interrupted_at.is_some_and(|at| at.elapsed() >= QUIET_INTERVAL)
    }

    /// After an interrupt the shell waits for input, and has marked no prompt: the line took its prompt or its output away.
    async fn prepare_again(&self, seen: &mut Seen) {
        seen.is_prepared_again = true;
        seen.doubts.insert(LineDoubt::MarksMissing);
        seen.hinted_end = Some(self.scanner.settled_offset());
        seen.question = self.ask(|shell, nonce| shell.kind.prepare(&shell.prompt, nonce)).await;
    }

    /// Types a question.
    async fn ask(&self, question: impl FnOnce(&KeptShell, &Nonce) -> String) -> Option<Question> {
        let shell = self.terminal.kept_shell.as_ref()?;
        let nonce = fresh_nonce().ok()?;
        type_text(&self.terminal, question(shell, &nonce)).await.ok()?;
        Some(Question { nonce, until: Instant::now() + ANSWER_TIMEOUT })
    }

    /// Types a question before a line, until it is answered. It does no harm where it is read twice.
    async fn ask_until_answered(
        &mut self,
        shell: &KeptShell,
        question: impl Fn(&Nonce) -> String,
    ) -> Result<(), RunLineError> {
        for _ in 0..MAX_QUESTIONS {
            let nonce = fresh_nonce()?;
            type_text(&self.terminal, question(&nonce)).await?;
            if self.is_answered(shell, &nonce).await? {
                return Ok(());
            }
        }
        Err(RunLineError::Busy)
    }

    async fn is_answered(&mut self, shell: &KeptShell, nonce: &Nonce) -> Result<bool, OperationError> {
        let until = Instant::now() + QUESTION_TIMEOUT;
        loop {
            match self.receive(until).await {
                Received::Marks(marks) => {
                    for found in marks {
                        if let Mark::Answer { nonce: answered, cwd, .. } = found.mark
                            && answered == nonce.as_str()
                        {
                            shell.set_cwd(&cwd);
                            return Ok(true);
                        }
                    }
                }
                Received::Lost => {}
                Received::Nothing => return Ok(false),
                Received::ShellEnded => return Err(OperationError::Ended),
            }
        }
    }

    /// Nothing has come for a while: asks the kernel what runs. Whether it is the shell itself, which waits for input.
    async fn look(&self, seen: &mut Seen) -> bool {
        let Ok(Foreground { is_leader, is_reading, leader_name, .. }) = foreground(&self.terminal).await
        else {
            return false;
        };
        if leader_name != self.leader_name {
            seen.doubts.insert(LineDoubt::ShellReplaced);
        }
        if is_reading && !seen.is_waiting && seen.question.is_none() {
            self.progress.send_modify(|progress| progress.waits += 1);
        }
        seen.is_waiting = is_reading;
        is_leader && is_reading && seen.question.is_none()
    }

    async fn receive(&mut self, until: Instant) -> Received {
        match timeout_at(until, self.cursor.next(Follow::UntilEnd)).await {
            Err(_) => Received::Nothing,
            Ok(Ok(Some(OutputPiece::Data { data, .. }))) => Received::Marks(self.scanner.feed(&data)),
            Ok(Ok(Some(OutputPiece::Gap { to, .. }))) => {
                self.scanner.skip_to(to);
                Received::Lost
            }
            Ok(Ok(None) | Err(_)) => Received::ShellEnded,
        }
    }

    fn publish(&self, seen: &Seen) {
        let settled = self.scanner.settled_offset();
        self.progress.send_modify(|progress| {
            progress.start = seen.start;
            if seen.start.is_some() {
                progress.settled = seen.hinted_end.unwrap_or(settled).max(progress.settled);
            }
        });
    }

    fn finish(mut self, mut seen: Seen, typed_at: u64, ending: LineEnding, cwd: String) {
        if seen.start.is_none() || (seen.hinted_end.is_none() && !matches!(ending, LineEnding::ShellEnded(_)))
        {
            seen.doubts.insert(LineDoubt::MarksMissing);
        }
        let start_offset = seen.start.unwrap_or(typed_at);
        let end_offset = match ending {
            LineEnding::ShellEnded(_) => None,
            LineEnding::Confirmed(_) | LineEnding::Quiet => seen.hinted_end,
        };
        let end_offset = end_offset.unwrap_or(self.cursor.offset()).max(start_offset);
        *self.turn = match &ending {
            LineEnding::Confirmed(_) if seen.start.is_none() => ShellKnowledge::Unprepared,
            LineEnding::Confirmed(_) => ShellKnowledge::AtPrompt,
            LineEnding::Quiet if self.was_interrupted() => ShellKnowledge::Unprepared,
            LineEnding::Quiet | LineEnding::ShellEnded(_) => ShellKnowledge::Unknown,
        };
        if let (Some(shell), LineEnding::Confirmed(_)) = (&self.terminal.kept_shell, &ending) {
            shell.set_cwd(&cwd);
        }
        let end = LineEnd { ending, start_offset, end_offset, doubts: seen.doubts, cwd };
        let Self { progress, turn, _hold, .. } = self;
        // A caller who learns of the end finds the shell free.
        drop((_hold, turn));
        progress.send_modify(|progress| {
            progress.start = Some(start_offset);
            progress.settled = end_offset;
            progress.end = Some(Arc::new(end));
        });
    }
}

/// How the terminal takes what is typed now.
fn input_mode(foreground: &Foreground) -> InputMode {
    match foreground.takes_keys {
        true => InputMode::Keys,
        false => InputMode::Lines,
    }
}

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
    let sandbox = terminal.running().await?;
    control::answered(sandbox.foreground(terminal.id.to_string()).await)
}

/// Types into a shell that the caller holds.
pub(in crate::terminal) async fn type_text(terminal: &Terminal, text: String) -> Result<(), OperationError> {
    let bytes = prost::bytes::Bytes::from(text);
    for _ in 0..MAX_RETRIES {
        match terminal.write_stdin(None, bytes.clone(), EndOfInput::NotYet).await {
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
