//! Encodes a terminal for its supervisor to keep, and decodes it in the next gateway.
//!
//! The supervisor holds the metadata in memory, as long as it holds the terminal. Metadata that cannot be decoded
//! restores no terminal. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message;

use crate::{
    kept_shell::ShellKind,
    masking::Masker,
    policy::{Digest, ProfileName, PtySize, StreamMode, profile::Network},
    proto::state::{self, KeptShellRecord, PtyRecord, TerminalRecord},
    terminal::{
        secrets::command_secrets::Secrets,
        spec::{Backpressure, CommandForm, OnAsk, TerminalSpec, TimeLimits, WhenLeft},
        state::Terminal,
    },
};

/// The version of the record; a later one means something else by what is there. Fields are added without one.
const VERSION: u32 = 2;

/// Arguments beyond these bytes are not kept: after a restart they are missing from the terminal's description, as
/// `args_truncated` says. The command itself has had them all.
const ARGUMENTS_MAX_BYTES: usize = 64 << 10;

/// The longest that a caller can ask for. For a terminal of an earlier build, whose profile's grace is not known.
const UNKNOWN_GRACE: Duration = Duration::from_secs(600);

/// What the next gateway is to know of a terminal that is about to be spawned.
pub(in crate::terminal) fn encode(terminal: &Terminal, secrets: &Secrets) -> Bytes {
    let record = TerminalRecord { secrets: secrets.to_records(), ..record(terminal) };
    record.encode_to_vec().into()
}

/// What may lie in a file: no argument, no line of a shell, no secret.
pub(in crate::terminal) fn without_arguments(terminal: &Terminal) -> TerminalRecord {
    let record = record(terminal);
    let command = if record.command_is_program { record.command } else { String::new() };
    TerminalRecord { command, args: Vec::new(), args_truncated: true, ..record }
}

fn record(terminal: &Terminal) -> TerminalRecord {
    let summary = &terminal.spec;
    let (args, args_truncated) = cut(&summary.args);
    TerminalRecord {
        version: VERSION,
        session_id: terminal.session.id.to_string(),
        request_id: terminal.request_id.clone().unwrap_or_default(),
        command: summary.command.clone(),
        args,
        args_truncated,
        cwd: summary.cwd.clone(),
        profile: summary.profile.to_string(),
        network: summary.network.to_owned(),
        offered_networks: summary.offered.iter().map(|network| network.name().to_owned()).collect(),
        labels: summary.labels.clone().into_iter().collect(),
        output_limit_bytes: summary.output_limit_bytes,
        split_output: summary.streams == StreamMode::Split,
        backpressure: match summary.backpressure {
            Backpressure::Never => state::Backpressure::None,
            Backpressure::ForStream => state::Backpressure::Stream,
            Backpressure::ForRun => state::Backpressure::Run,
            Backpressure::ForResumableRun => state::Backpressure::ResumableRun,
        }
        .into(),
        digest: Bytes::copy_from_slice(&summary.digest.bytes()),
        generation: summary.generation,
        created_at_ns: nanoseconds(terminal.created_at),
        secrets: Vec::new(),
        command_is_program: summary.form == CommandForm::Program,
        time_limit_ms: summary.time_limits.limit.map(millis),
        idle_limit_ms: summary.time_limits.idle.map(millis),
        kill_grace_ms: Some(millis(summary.time_limits.grace)),
        refuses_asks: summary.on_ask == OnAsk::Refuse,
        pty: summary
            .streams
            .pty()
            .map(|size| PtyRecord { columns: size.columns().into(), rows: size.rows().into() }),
        kept_shell: summary.kept_shell.map(|kind| KeptShellRecord { shell: kind.name().to_owned() }),
        stops_when_left: summary.when_left == WhenLeft::IsStopped,
        stdin_given: terminal.has_given_stdin(),
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

/// A terminal as its metadata describes it.
pub(in crate::terminal) struct AdoptedMetadata {
    pub(in crate::terminal) spec: TerminalSpec,
    pub(in crate::terminal) session_id: String,
    pub(in crate::terminal) request_id: Option<String>,
    pub(in crate::terminal) created_at: SystemTime,
    pub(in crate::terminal) has_given_stdin: bool,
    /// The secrets that it was given.
    pub(in crate::terminal) secrets: Vec<Vec<u8>>,
}

/// The metadata of a terminal cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetadataError {
    /// It is no such record.
    #[error("the metadata of a terminal cannot be decoded")]
    Malformed(#[from] prost::DecodeError),
    /// It may mean something else than is known here.
    #[error("the metadata of a terminal has version {0}, and this build knows none after {VERSION}")]
    Version(u32),
    /// What every terminal has is not in it.
    #[error("the metadata of a terminal is incomplete")]
    Incomplete,
}

/// Decodes the metadata of a terminal. Without it there is no terminal: nothing else says what in its output to mask.
pub(in crate::terminal) fn decode(metadata: &[u8]) -> Result<AdoptedMetadata, MetadataError> {
    from_record(TerminalRecord::decode(metadata)?)
}

/// What a record says of its terminal.
pub(in crate::terminal) fn from_record(record: TerminalRecord) -> Result<AdoptedMetadata, MetadataError> {
    if record.version > VERSION {
        return Err(MetadataError::Version(record.version));
    }
    let (Some(network), true) = (Network::from_name(&record.network), record.version > 0) else {
        return Err(MetadataError::Incomplete);
    };
    let digest: [u8; 32] = record.digest[..].try_into().map_err(|_| MetadataError::Incomplete)?;
    let secrets: Vec<Vec<u8>> = record.secrets.iter().map(|secret| secret.value.to_vec()).collect();
    Masker::new(&secrets).map_err(|_| MetadataError::Incomplete)?;
    let streams = match (&record.pty, record.split_output) {
        (Some(size), _) => {
            StreamMode::Pty(PtySize::new(size.columns, size.rows).map_err(|_| MetadataError::Incomplete)?)
        }
        (None, true) => StreamMode::Split,
        (None, false) => StreamMode::Merged,
    };
    let backpressure = match record.backpressure() {
        state::Backpressure::Unspecified | state::Backpressure::None => Backpressure::Never,
        state::Backpressure::Stream => Backpressure::ForStream,
        state::Backpressure::Run => Backpressure::ForRun,
        state::Backpressure::ResumableRun => Backpressure::ForResumableRun,
    };
    Ok(AdoptedMetadata {
        spec: TerminalSpec {
            form: if record.command_is_program { CommandForm::Program } else { CommandForm::ShellLine },
            command: record.command,
            args: record.args,
            cwd: record.cwd,
            profile: ProfileName::from_recorded(&record.profile),
            network: network.name(),
            offered: record.offered_networks.iter().filter_map(|name| Network::from_name(name)).collect(),
            labels: record.labels.into_iter().collect(),
            output_limit_bytes: record.output_limit_bytes,
            streams,
            // One that this build does not know is a terminal like others.
            kept_shell: record.kept_shell.and_then(|kept| ShellKind::of(&kept.shell)),
            backpressure,
            when_left: if record.stops_when_left { WhenLeft::IsStopped } else { WhenLeft::RunsOn },
            time_limits: TimeLimits {
                limit: record.time_limit_ms.map(Duration::from_millis),
                idle: record.idle_limit_ms.map(Duration::from_millis),
                grace: record.kill_grace_ms.map_or(UNKNOWN_GRACE, Duration::from_millis),
            },
            on_ask: if record.refuses_asks { OnAsk::Refuse } else { OnAsk::Wait },
            digest: Digest::from_bytes(digest),
            generation: record.generation,
        },
        has_given_stdin: record.stdin_given,
        session_id: record.session_id,
        request_id: Some(record.request_id).filter(|id| !id.is_empty()),
        created_at: UNIX_EPOCH + Duration::from_nanos(record.created_at_ns),
        secrets,
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
        assert!(decode(&whole.encode_to_vec()).is_ok());
        let newer = TerminalRecord { version: VERSION + 1, ..whole.clone() };
        assert_eq!(decode(&newer.encode_to_vec()).err(), Some(MetadataError::Version(VERSION + 1)));
        let without_digest = TerminalRecord { digest: Bytes::new(), ..whole };
        assert_eq!(decode(&without_digest.encode_to_vec()).err(), Some(MetadataError::Incomplete));
        assert_eq!(decode(b"").err(), Some(MetadataError::Incomplete));
        assert!(matches!(decode(b"\xff\xff\xff"), Err(MetadataError::Malformed(_))));
    }
}
