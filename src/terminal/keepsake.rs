//! A terminal in the words that its supervisor keeps for the next gateway, and back.
//!
//! The supervisor holds them in its memory: they are there for as long as the terminal is, and nowhere else. What
//! cannot be read makes no terminal. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message;

use super::{
    holds,
    secrets::Secrets,
    summary::{Form, Summary, TimeLimits},
    terminal::Terminal,
};
use crate::{
    masking::Masker,
    policy::{Digest, ProfileName, Streams, profile::Network},
    proto::state::{TerminalRecord, Waits},
};

/// The version of the record; a later one means something else by what is there. Fields are added without one.
const VERSION: u32 = 1;

/// Arguments beyond these bytes are not kept: after a restart they are missing from the terminal's description, as
/// `args_cut` says. The command itself has had them all.
const ARGUMENTS_MAX_BYTES: usize = 64 << 10;

/// The longest that a caller can ask for. For a terminal of an earlier build, whose profile's grace is not known.
const UNKNOWN_GRACE: Duration = Duration::from_secs(600);

/// What the next gateway is to know of a terminal that is about to be spawned.
pub(super) fn of(terminal: &Terminal, secrets: &Secrets) -> Bytes {
    let record = TerminalRecord { secrets: secrets.record(), ..record(terminal) };
    record.encode_to_vec().into()
}

/// What may lie in a file: no argument, no line of a shell, no secret.
pub(super) fn without_arguments(terminal: &Terminal) -> TerminalRecord {
    let whole = record(terminal);
    let command = if whole.names_program { whole.command } else { String::new() };
    TerminalRecord { command, args: Vec::new(), args_cut: true, ..whole }
}

fn record(terminal: &Terminal) -> TerminalRecord {
    let summary = &terminal.summary;
    let (args, args_cut) = cut(&summary.args);
    TerminalRecord {
        version: VERSION,
        session_id: terminal.session.id.to_string(),
        request_id: terminal.request_id.clone().unwrap_or_default(),
        command: summary.command.clone(),
        args,
        args_cut,
        cwd: summary.cwd.clone(),
        profile: summary.profile.to_string(),
        network: summary.network.to_owned(),
        labels: summary.labels.clone().into_iter().collect(),
        output_limit_bytes: summary.output_limit_bytes,
        split_output: summary.streams == Streams::Split,
        waits: match summary.waits {
            holds::Waits::ForNobody => Waits::ForNobody,
            holds::Waits::ForStream => Waits::ForStream,
            holds::Waits::ForRun => Waits::ForRun,
        }
        .into(),
        digest: Bytes::copy_from_slice(&summary.digest.bytes()),
        generation: summary.generation,
        created_at_ns: nanoseconds(terminal.created_at),
        secrets: Vec::new(),
        names_program: summary.form == Form::Program,
        time_limit_ms: summary.times.limit.map(millis),
        idle_limit_ms: summary.times.idle.map(millis),
        kill_grace_ms: Some(millis(summary.times.grace)),
    }
}

fn cut(args: &[String]) -> (Vec<String>, bool) {
    let mut left = ARGUMENTS_MAX_BYTES;
    let fits = |arg: &&String| {
        let fits = arg.len() <= left;
        left -= arg.len().min(left);
        fits
    };
    let kept: Vec<String> = args.iter().take_while(fits).cloned().collect();
    let is_cut = kept.len() < args.len();
    (kept, is_cut)
}

/// What a keepsake says of its terminal.
#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) summary: Summary,
    pub(super) session_id: String,
    pub(super) request_id: Option<String>,
    pub(super) created_at: SystemTime,
    /// Of what is secret in its output.
    pub(super) masker: Masker,
}

/// Why a keepsake says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeepsakeError {
    /// It is no such record.
    #[error("a terminal's keepsake is no record")]
    Garbled(#[from] prost::DecodeError),
    /// It may mean something else than is known here.
    #[error("a terminal's keepsake is of version {0}, and this build knows none after {VERSION}")]
    Version(u32),
    /// What every terminal has is not in it.
    #[error("a terminal's keepsake lacks what every terminal has")]
    Incomplete,
}

/// Reads a keepsake. Without it there is no terminal: nobody would know what in its output is to be masked.
pub(super) fn read(keepsake: &[u8]) -> Result<Remembered, KeepsakeError> {
    recall(TerminalRecord::decode(keepsake)?)
}

/// What a record says of its terminal.
pub(super) fn recall(record: TerminalRecord) -> Result<Remembered, KeepsakeError> {
    if record.version > VERSION {
        return Err(KeepsakeError::Version(record.version));
    }
    let (Some(network), true) = (Network::named(&record.network), record.version > 0) else {
        return Err(KeepsakeError::Incomplete);
    };
    let digest: [u8; 32] = record.digest[..].try_into().map_err(|_| KeepsakeError::Incomplete)?;
    let masker = Masker::new(record.secrets.iter().map(|secret| &secret.value));
    let masker = masker.map_err(|_| KeepsakeError::Incomplete)?;
    let waits = match record.waits() {
        Waits::Unspecified | Waits::ForNobody => holds::Waits::ForNobody,
        Waits::ForStream => holds::Waits::ForStream,
        Waits::ForRun => holds::Waits::ForRun,
    };
    Ok(Remembered {
        summary: Summary {
            form: if record.names_program { Form::Program } else { Form::Line },
            command: record.command,
            args: record.args,
            cwd: record.cwd,
            profile: ProfileName::recorded(&record.profile),
            network: network.name(),
            labels: record.labels.into_iter().collect(),
            output_limit_bytes: record.output_limit_bytes,
            streams: if record.split_output { Streams::Split } else { Streams::Merged },
            waits,
            times: TimeLimits {
                limit: record.time_limit_ms.map(Duration::from_millis),
                idle: record.idle_limit_ms.map(Duration::from_millis),
                grace: record.kill_grace_ms.map_or(UNKNOWN_GRACE, Duration::from_millis),
            },
            digest: Digest::recorded(digest),
            generation: record.generation,
        },
        session_id: record.session_id,
        request_id: Some(record.request_id).filter(|id| !id.is_empty()),
        created_at: UNIX_EPOCH + Duration::from_nanos(record.created_at_ns),
        masker,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Since 1970; a clock that stands before it says 1970.
fn nanoseconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_are_left_out_and_that_is_said() {
        let long = "x".repeat(ARGUMENTS_MAX_BYTES);
        let args = ["a".to_owned(), long.clone(), "b".to_owned()];
        assert_eq!(cut(&args), (vec!["a".to_owned()], true));
        assert_eq!(cut(std::slice::from_ref(&long)), (vec![long.clone()], false));
        assert_eq!(cut(&[]), (Vec::new(), false));
    }

    #[test]
    fn what_cannot_be_read_is_no_terminal() {
        let whole = TerminalRecord {
            version: VERSION,
            network: "none".into(),
            digest: vec![7; 32].into(),
            ..TerminalRecord::default()
        };
        assert!(read(&whole.encode_to_vec()).is_ok());
        let later = TerminalRecord { version: VERSION + 1, ..whole.clone() };
        assert_eq!(read(&later.encode_to_vec()).unwrap_err(), KeepsakeError::Version(VERSION + 1));
        let without_digest = TerminalRecord { digest: Bytes::new(), ..whole };
        assert_eq!(read(&without_digest.encode_to_vec()).unwrap_err(), KeepsakeError::Incomplete);
        assert_eq!(read(b"").unwrap_err(), KeepsakeError::Incomplete);
        assert!(matches!(read(b"\xff\xff\xff"), Err(KeepsakeError::Garbled(_))));
    }
}
