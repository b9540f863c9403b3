//! A terminal in the words that its supervisor keeps for the next gateway, and back.
//!
//! The supervisor holds them in its memory: they are there for as long as the terminal is, and nowhere else. Whatever
//! a word of another version lacks has a value that grants nothing. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message;

use super::{
    holds,
    secrets::Secrets,
    terminal::{Summary, Terminal},
};
use crate::{
    masking::Masker,
    policy::{Digest, ProfileName, Streams, profile::Network},
    proto::state::{TerminalRecord, Waits},
};

/// The version of the record. A reader takes what it knows of a later one: fields are only ever added.
const VERSION: u32 = 1;

/// Arguments beyond these bytes are not kept: after a restart they are missing from the terminal's description, as
/// `args_cut` says. The command itself has had them all.
const ARGUMENTS_MAX_BYTES: usize = 64 << 10;

/// What the next gateway is to know of a terminal that is about to be spawned.
pub(super) fn of(terminal: &Terminal, secrets: &Secrets) -> Bytes {
    let record = TerminalRecord { secrets: secrets.record(), ..record(terminal) };
    record.encode_to_vec().into()
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
#[allow(dead_code, reason = "until adoption reads it")]
#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) summary: Summary,
    pub(super) session_id: String,
    pub(super) request_id: Option<String>,
    pub(super) created_at: SystemTime,
    /// Absent where it is not known what is secret in its output, which then is given to nobody.
    pub(super) masker: Option<Masker>,
}

/// Reads a keepsake. One that cannot be read says nothing, and then the terminal has no description; whose it is, its
/// sandbox says.
#[allow(dead_code, reason = "until adoption reads it")]
pub(super) fn read(keepsake: &[u8]) -> Remembered {
    let record = TerminalRecord::decode(keepsake);
    let masker = record
        .as_ref()
        .ok()
        .and_then(|record| Masker::new(record.secrets.iter().map(|secret| &secret.value)).ok());
    let record = record.unwrap_or_default();
    let waits = match record.waits() {
        Waits::Unspecified | Waits::ForNobody => holds::Waits::ForNobody,
        Waits::ForStream => holds::Waits::ForStream,
        Waits::ForRun => holds::Waits::ForRun,
    };
    let digest: Result<[u8; 32], _> = record.digest[..].try_into();
    Remembered {
        summary: Summary {
            command: record.command,
            args: record.args,
            cwd: record.cwd,
            profile: ProfileName::recorded(&record.profile),
            network: Network::named(&record.network).map_or("", Network::name),
            labels: record.labels.into_iter().collect(),
            output_limit_bytes: record.output_limit_bytes,
            streams: if record.split_output { Streams::Split } else { Streams::Merged },
            waits,
            digest: Digest::recorded(digest.unwrap_or_default()),
            generation: record.generation,
        },
        session_id: record.session_id,
        request_id: Some(record.request_id).filter(|id| !id.is_empty()),
        created_at: UNIX_EPOCH + Duration::from_nanos(record.created_at_ns),
        masker,
    }
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
        assert_eq!(cut(&[long.clone()]), (vec![long], false));
        assert_eq!(cut(&[]), (Vec::new(), false));
    }

    #[test]
    fn what_cannot_be_read_grants_nothing() {
        for garbled in [&b""[..], b"\xff\xff\xff", b"\x12\x05sess"] {
            let remembered = read(garbled);
            assert_eq!(remembered.summary.output_limit_bytes, 0);
            assert_eq!(remembered.summary.waits, holds::Waits::ForNobody);
            assert_eq!(remembered.request_id, None);
        }
    }
}
