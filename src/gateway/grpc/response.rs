//! Makes response messages from the gateway's types.

use crate::{
    byte_text,
    policy::{AbsPath, StreamMode, profile::Network},
    proto::v1::{
        EnvVar, KeptShell, Lifetime as LifetimeWord, Network as NetworkWord, OutputChunk, OutputGap,
        OutputPosition, OutputStream, ProcessIdentity, Pty, Session as SessionWord, StreamOutputResponse,
        Terminal as TerminalWord, TerminalState, stream_output_response,
    },
    session::{Lifetime, Session},
    terminal::{Channel, QuotaUsage, Stage, Terminal, TerminalId, outcome::timestamp, reader::OutputPiece},
};

/// A session.
pub fn session(session: &Session, counts: QuotaUsage, primary: Option<TerminalId>) -> SessionWord {
    SessionWord {
        id: session.id.to_string(),
        owner: session.principal.to_string(),
        roots: session.writable_roots().map(AbsPath::shown).collect(),
        read_only_roots: session.read_only_roots().map(AbsPath::shown).collect(),
        name: session.name.clone().unwrap_or_default(),
        owner_process: session
            .owner_process
            .as_ref()
            .map(|process| ProcessIdentity { pid: process.pid, start_ticks: process.start_ticks }),
        repository: session.repository.to_report(),
        network: match session.network {
            None => NetworkWord::Unspecified,
            Some(Network::None) => NetworkWord::None,
            Some(Network::Host) => NetworkWord::Host,
            Some(Network::Proxy) => NetworkWord::Proxy,
        }
        .into(),
        cwd: session.cwd.shown(),
        env: session
            .env
            .iter()
            .map(|entry| EnvVar {
                name: shown(entry.name()),
                value: shown(entry.value()),
                ..EnvVar::default()
            })
            .collect(),
        labels: session.labels.clone().into_iter().collect(),
        profile: session.profile.clone(),
        front_end: session.front_end.clone(),
        git_left_out: session.git_left_out().to_vec(),
        lifetime: match session.lifetime {
            Lifetime::Explicit => LifetimeWord::Explicit,
            Lifetime::OwnerProcess => LifetimeWord::OwnerProcess,
        }
        .into(),
        created_at: Some(timestamp(session.created_at)),
        live_terminals: counts.live,
        finished_terminals: counts.retained - counts.live,
        primary_terminal_id: primary.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// A terminal, at this moment.
pub fn terminal(terminal: &Terminal) -> TerminalWord {
    let stage = terminal.stage();
    let summary = &terminal.spec;
    let live = terminal.live();
    TerminalWord {
        id: terminal.id.to_string(),
        session_id: terminal.session.id.to_string(),
        state: state(&stage).into(),
        command: shown(&summary.command),
        args: summary.args.iter().map(|argument| shown(argument)).collect(),
        cwd: shown(&summary.cwd),
        profile: summary.profile.to_string(),
        labels: summary.labels.clone().into_iter().collect(),
        created_at: Some(timestamp(terminal.created_at)),
        started_at: live.map(|live| {
            timestamp(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(live.started.started_at_ns))
        }),
        outcome: stage.outcome().map(|outcome| (**outcome).clone()),
        receipt: terminal.receipt(),
        output: positions(terminal),
        pid: live.map_or(0, |live| live.started.pid),
        output_byte_limit: summary.output_limit_bytes,
        output_lost: terminal.output_lost(),
        pty: terminal.pty_size().map(|size| Pty {
            columns: size.columns().into(),
            rows: size.rows().into(),
            term: String::new(),
        }),
        kept_shell: summary.kept_shell.map(|_| KeptShell {}),
        stdin_given: terminal.has_given_stdin(),
    }
}

/// A text of a caller, of which bytes that are no UTF-8 are numbers.
pub fn shown(text: &str) -> String {
    byte_text::shown(text).into_owned()
}

fn positions(terminal: &Terminal) -> Vec<OutputPosition> {
    let channels: &[Channel] = match terminal.spec.streams {
        StreamMode::Merged | StreamMode::Pty(_) => &[Channel::Stdout],
        StreamMode::Split => &[Channel::Stdout, Channel::Stderr],
    };
    channels
        .iter()
        .filter_map(|channel| {
            let (oldest_offset, next_offset) = terminal.offsets(*channel)?;
            Some(OutputPosition { stream: stream(*channel).into(), oldest_offset, next_offset })
        })
        .collect()
}

/// A state.
pub fn state(stage: &Stage) -> TerminalState {
    match stage {
        Stage::Created => TerminalState::Created,
        Stage::Running => TerminalState::Running,
        Stage::Finished(_) => TerminalState::Finished,
        Stage::Released(_) => TerminalState::Released,
    }
}

/// Which output.
pub fn stream(channel: Channel) -> OutputStream {
    match channel {
        Channel::Stdout => OutputStream::Stdout,
        Channel::Stderr => OutputStream::Stderr,
    }
}

/// A piece of output.
pub fn piece(channel: Channel, piece: OutputPiece) -> StreamOutputResponse {
    let event = match piece {
        OutputPiece::Data { offset, data } => {
            stream_output_response::Event::Chunk(chunk(channel, offset, data))
        }
        OutputPiece::Gap { from, to } => stream_output_response::Event::Gap(OutputGap {
            stream: stream(channel).into(),
            from_offset: from,
            to_offset: to,
        }),
    };
    StreamOutputResponse { event: Some(event) }
}

/// Bytes of output.
pub fn chunk(channel: Channel, offset: u64, data: prost::bytes::Bytes) -> OutputChunk {
    OutputChunk { stream: stream(channel).into(), offset, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_output_is_told_by_its_name() {
        assert_eq!(stream(Channel::Stdout), OutputStream::Stdout);
        assert_eq!(stream(Channel::Stderr), OutputStream::Stderr);
    }
}
