//! What a sandbox reports to a terminal: new output, an end, a kill that is survived.

use crate::proto::supervisor::{Exit, StopCause};

/// What a sandbox reports to a terminal. Called on the sandbox's task, so it must not wait.
pub(crate) trait TerminalObserver: Send + Sync + std::fmt::Debug {
    /// An armed ring has new bytes, or its end.
    fn progressed(&self);
    /// The command survives its kill, so the sandbox will end. `cause` says why the command was stopped.
    fn given_up(&self, cause: StopCause);
    /// The supervisor has reported the command's end: it is not late. What a gate has to say before the end may still come.
    fn reported(&self);
    /// The command has ended, and all that is to be said before that has been. Called once.
    fn ended(&self, end: CommandEnd);
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum CommandEnd {
    /// The supervisor reported it.
    Reported(Box<Exit>),
    /// The sandbox died, and with it the command.
    SandboxLost {
        /// Killed processes that the kernel has not ended yet. This gateway keeps waiting for them, and the next
        /// one after it.
        survivors: u32,
    },
}
