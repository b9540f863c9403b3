//! What is requested for a terminal, and what was permitted, which never changes; with its id and its channels.

use std::{collections::BTreeMap, fmt, os::fd::OwnedFd, sync::Arc, time::Duration};

use ulid::Ulid;

use crate::{
    kept_shell::ShellKind,
    policy::{Digest, ProfileName, Request, StreamMode, profile::Network},
    session::{Session, parse_ulid},
};

/// A terminal's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TerminalId(Ulid);

impl TerminalId {
    /// A new one; 80 of its bits are random.
    pub(crate) fn generate() -> Self {
        Self(Ulid::generate())
    }

    /// The lower 64 of its random bits.
    pub(in crate::terminal) fn random_bits(self) -> u64 {
        self.0.random() as u64
    }

    /// Reads an id; any other spelling names nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        parse_ulid("term_", text).map(Self)
    }
}

impl fmt::Display for TerminalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term_{}", self.0)
    }
}

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Stdout, or the merged output.
    Stdout,
    /// Stderr, where it is kept apart.
    Stderr,
}

/// What a terminal's command is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandForm {
    /// The program's name or path, with arguments.
    Program,
    /// A line for a shell, which may hold anything.
    ShellLine,
}

/// The limits of a command in time, as policy has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeLimits {
    /// How long it may run.
    pub limit: Option<Duration>,
    /// How long it may write nothing.
    pub idle: Option<Duration>,
    /// Between TERM and KILL when nobody says another one.
    pub grace: Duration,
}

/// What becomes of a request that a rule asks a person about, and of an exec within its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnAsk {
    /// It waits for the answer.
    Wait,
    /// It is refused. The question about a request stays.
    Refuse,
}

/// What a terminal is about; never changes.
#[derive(Debug)]
pub(crate) struct TerminalSpec {
    /// What `command` is.
    pub form: CommandForm,
    /// As the caller gave it.
    pub command: String,
    /// As the caller gave them.
    pub args: Vec<String>,
    /// Where it starts.
    pub cwd: String,
    /// The profile that confines it.
    pub profile: ProfileName,
    /// The name of the network that it has.
    pub network: &'static str,
    /// The others that its profile offered when it was permitted.
    pub offered: Vec<Network>,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// Bytes of output to retain for each stream.
    pub output_limit_bytes: u64,
    /// How output is kept.
    pub streams: StreamMode,
    /// Set for a shell that is kept to run lines in.
    pub kept_shell: Option<ShellKind>,
    /// Whom the command waits for.
    pub backpressure: Backpressure,
    /// What becomes of it when nobody is attached.
    pub when_left: WhenLeft,
    /// Its limits of time.
    pub time_limits: TimeLimits,
    /// What becomes of execs that a rule asks about.
    pub on_ask: OnAsk,
    /// The digest of the request that was permitted.
    pub digest: Digest,
    /// The generation of the policy that permitted it.
    pub generation: u64,
}

/// Whom the command waits for when its ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backpressure {
    /// For nobody: the oldest bytes go.
    Never,
    /// For the first who streams.
    ForStream,
    /// For the run that it was created for.
    ForRun,
    /// For the run that it was created for, which outlives its gateway.
    ForResumableRun,
}

/// What becomes of a command to which nobody is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WhenLeft {
    /// Nothing.
    #[default]
    RunsOn,
    /// It is stopped after a time.
    IsStopped,
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReaderKind {
    /// Anybody who asks for the stream.
    Stream,
    /// The run that the terminal is created for.
    Run,
    /// The same, of a caller who comes back to the next gateway.
    ResumableRun,
}

/// A request to create a terminal, or to run a line in a kept shell: every field is checked, and the session belongs to the
/// caller.
///
/// It is as the caller sent it until policy evaluates it, which puts the resolved working directory in the place of the caller's.
/// Whether policy allows it, only the permit says.
#[derive(Debug, Clone)]
pub(crate) struct Requested {
    /// The caller's session.
    pub session: Arc<Session>,
    /// What policy judges.
    pub request: Request,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// Makes a repeated request answer with the first terminal.
    pub request_id: Option<String>,
    /// The shell is kept to run lines in.
    pub kept_shell: Option<ShellKind>,
    /// For whom the output is.
    pub reader: ReaderKind,
    /// What becomes of it when nobody is attached.
    pub when_left: WhenLeft,
    /// What becomes of it when a rule asks a person.
    pub on_ask: OnAsk,
    /// How long the caller waits for a person's answer; absent: as long as it takes.
    pub answer_timeout: Option<Duration>,
    /// What the command is to have as its stdin, from its caller.
    pub given_input: Option<Arc<OwnedFd>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_its_last_bits_are_the_random_ones() {
        let text = "term_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let id = TerminalId::parse(text).unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(TerminalId::parse("term_0000000000000000000000002Z").unwrap().random_bits(), 2 * 32 + 31);
        assert_eq!(TerminalId::parse("term_7ZZZZZZZZZZZZZZZZZZZZZZZZZ").unwrap().random_bits(), u64::MAX);
        assert_eq!(TerminalId::parse(&text.replace("term_", "sess_")), None);
        assert_ne!(TerminalId::generate(), TerminalId::generate());
    }
}
