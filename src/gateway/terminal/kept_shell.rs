//! A kept shell as the gateway knows it: whose turn it is, whether a line holds its input, and what it said last.
//!
//! Types nothing and asks nothing.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};

use tokio::{
    sync::{OwnedMutexGuard, watch},
    time::Instant,
};

use crate::{
    kept_shell::{Nonce, ShellKind},
    terminal::{quotas::MAX_QUEUED_LINES, spec::TerminalId},
};

/// A kept shell.
#[derive(Debug)]
pub(in crate::terminal) struct KeptShell {
    pub(in crate::terminal) kind: ShellKind,
    /// What the mark of its prompt carries. Commands can see it.
    pub(in crate::terminal) prompt: Nonce,
    turn: Arc<tokio::sync::Mutex<ShellKnowledge>>,
    queued: AtomicU32,
    /// Lines that have the turn and are not begun, such as one that waits for a person's answer: at most one.
    not_begun: AtomicU32,
    /// The id of the line that holds the input.
    line: watch::Sender<Option<String>>,
    /// Whether others have typed since the shell was last seen at its prompt. Locked while `line` is set or others are admitted.
    others_typed: Mutex<OthersTyped>,
    /// When the line that holds the input was interrupted last.
    interrupted_at: watch::Sender<Option<Instant>>,
    cwd: Mutex<String>,
}

/// What is known of a shell between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum ShellKnowledge {
    /// It has not been prepared, or no longer writes its marks.
    Unprepared,
    /// It has answered at its prompt.
    AtPrompt,
    /// It is to be asked.
    Unknown,
}

/// The turn of one line.
pub(in crate::terminal) type Turn = OwnedMutexGuard<ShellKnowledge>;

/// Why a line has no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum NoTurn {
    /// Another line has it.
    Taken,
    /// Too many wait.
    QueueFull,
}

/// Holds the input of a shell, until it is dropped.
#[derive(Debug)]
pub(in crate::terminal) struct InputHold(watch::Sender<Option<String>>);

impl Drop for InputHold {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}

impl KeptShell {
    /// Makes the shell of a terminal that was just created, or was adopted.
    pub(in crate::terminal) fn new(kind: ShellKind, id: TerminalId, knowledge: ShellKnowledge) -> Self {
        Self {
            kind,
            prompt: Nonce::new(id.random_bits().to_be_bytes()),
            turn: Arc::new(tokio::sync::Mutex::new(knowledge)),
            queued: AtomicU32::new(0),
            not_begun: AtomicU32::new(0),
            line: watch::Sender::new(None),
            others_typed: Mutex::new(OthersTyped::No),
            interrupted_at: watch::Sender::new(None),
            cwd: Mutex::default(),
        }
    }

    /// The turn, if no other line has it.
    pub(in crate::terminal) fn try_turn(&self) -> Result<Turn, NoTurn> {
        self.turn.clone().try_lock_owned().map_err(|_| NoTurn::Taken)
    }

    /// The turn, after the lines that came before.
    pub(in crate::terminal) async fn wait_turn(&self) -> Result<Turn, NoTurn> {
        let counted = self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| {
            (queued < MAX_QUEUED_LINES).then_some(queued + 1)
        });
        counted.map_err(|_| NoTurn::QueueFull)?;
        let _queued = Queued(&self.queued);
        Ok(self.turn.clone().lock_owned().await)
    }

    /// How many lines wait.
    pub(in crate::terminal) fn queued(&self) -> u32 {
        self.queued.load(Ordering::Acquire)
    }

    /// A line has the turn and is not begun, until what is returned is dropped.
    pub(in crate::terminal) fn begin_line(&self) -> impl Drop + '_ {
        self.not_begun.fetch_add(1, Ordering::AcqRel);
        Queued(&self.not_begun)
    }

    /// Whether a line has the turn and is not begun.
    pub(in crate::terminal) fn has_line_to_begin(&self) -> bool {
        self.not_begun.load(Ordering::Acquire) > 0
    }

    /// From now on the input is this line's. Whether others have typed before.
    pub(in crate::terminal) fn hold_input(&self, line_id: &str) -> (InputHold, OthersTyped) {
        let mut others_typed = self.lock_others_typed();
        self.interrupted_at.send_replace(None);
        self.line.send_replace(Some(line_id.to_owned()));
        let typed = std::mem::replace(&mut *others_typed, OthersTyped::No);
        (InputHold(self.line.clone()), typed)
    }

    /// Whether others may type. That they do is remembered at once, so that a line that begins at the same time sees it.
    pub(in crate::terminal) fn admits_others(&self) -> bool {
        let mut others_typed = self.lock_others_typed();
        let admits = self.line.borrow().is_none();
        if admits {
            *others_typed = OthersTyped::Yes;
        }
        admits
    }

    /// The line that holds the input.
    pub(in crate::terminal) fn line_id(&self) -> Option<String> {
        self.line.borrow().clone()
    }

    /// What runs in the foreground has been interrupted.
    pub(in crate::terminal) fn set_interrupted(&self) {
        self.interrupted_at.send_replace(Some(Instant::now()));
    }

    /// When the line that holds the input was interrupted last.
    pub(in crate::terminal) fn interrupted_at(&self) -> Option<Instant> {
        *self.interrupted_at.borrow()
    }

    /// The directory that the shell has named last; empty: none.
    pub(in crate::terminal) fn cwd(&self) -> String {
        self.lock_cwd().clone()
    }

    /// The shell has named its directory.
    pub(in crate::terminal) fn set_cwd(&self, cwd: &str) {
        cwd.clone_into(&mut self.lock_cwd());
    }

    fn lock_others_typed(&self) -> MutexGuard<'_, OthersTyped> {
        self.others_typed.lock().expect("no code panics while it holds this")
    }

    fn lock_cwd(&self) -> MutexGuard<'_, String> {
        self.cwd.lock().expect("no code panics while it holds a shell's directory")
    }
}

/// Whether others have typed into a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum OthersTyped {
    Yes,
    No,
}

/// One line that waits.
struct Queued<'a>(&'a AtomicU32);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_typed_if_they_were_admitted() {
        let shell = KeptShell::new(ShellKind::Bash, TerminalId::generate(), ShellKnowledge::AtPrompt);
        let (hold, typed) = shell.hold_input("first");
        assert_eq!((typed, shell.admits_others()), (OthersTyped::No, false));
        drop(hold);
        let (hold, typed) = shell.hold_input("second");
        assert_eq!(typed, OthersTyped::No, "they were refused");
        drop(hold);
        assert!(shell.admits_others());
        let (hold, typed) = shell.hold_input("third");
        assert_eq!(typed, OthersTyped::Yes);
        drop(hold);
        assert_eq!(shell.hold_input("fourth").1, OthersTyped::No);
    }
}
