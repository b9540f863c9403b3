//! Requests of gateways and their responses, and how long a sandbox goes on to which no gateway comes.

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        socket::{AddressFamily, SockFlag, SockType, socket},
        stat::fstat,
    },
};
use prost::Message as _;

use super::{
    Runtime,
    links::HandshakeState,
    poll::SlotKey,
    spawn::pty_size,
    terminal::{SupervisedTerminal, TerminalPhase},
};
use crate::{
    failpoint::spoken_versions,
    proto::supervisor::{
        Foreground, GateLost, HeldTerminal, Hello, HelloResponse, HoldIdleClock, ListTerminals, MakeSockets,
        ProxyListeners, Release, SendSignal, SessionFiles, SessionNetwork, Sockets, Stop, StopCause,
        TerminalList, ToSupervisor, from_supervisor::Message, to_supervisor::Request,
    },
    supervisor::ready::WithoutGatewayLimits,
    sys::{pidfd::Pidfd, signals, sock_diag},
    wire::versions,
};

/// Descriptors in one frame of a list.
const MAX_LISTED_DESCRIPTORS: usize = 200;

/// Terminals in one frame of a list.
const MAX_LISTED_TERMINALS: usize = 200;

/// A list's frame that is this long gets no further terminal. With the longest metadata it still fits.
const MAX_LISTED_BYTES: usize = 2 << 20;

/// Sockets in one answer.
const MAX_SOCKETS: u32 = 64;

/// The time between two looks at the file, once a sandbox without a gateway has waited for as long as it does if the file is gone.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// What its commands have between TERM and KILL then, at most.
pub(super) const WITHOUT_GATEWAY_GRACE: Duration = Duration::from_secs(5);

impl Runtime {
    pub(super) fn handle(&mut self, key: SlotKey, message: ToSupervisor, descriptors: Vec<OwnedFd>) {
        let sequence = message.sequence;
        let handshake = self.connections.get(key).map(|connection| connection.handshake);
        let request = match (handshake, message.request) {
            (Some(HandshakeState::Done), Some(Request::Hello(hello)))
            | (Some(HandshakeState::Pending), Some(Request::Hello(hello))) => {
                return self.hello(key, sequence, hello);
            }
            (Some(HandshakeState::Done), Some(request)) => request,
            // A request before the handshake, or an unknown request of a newer gateway.
            (Some(_), _) => return self.drop_connection(key),
            (None, _) => return,
        };
        match request {
            Request::Hello(_) => {}
            Request::Spawn(spawn) => self.spawn(key, sequence, spawn, descriptors),
            Request::Stop(stop) => {
                let result = self.stop(&stop);
                self.answer_done(key, sequence, result);
            }
            Request::SendSignal(signal) => {
                let result = self.send_signal(&signal);
                self.answer_done(key, sequence, result);
            }
            Request::WriteStdin(write) => self.write_stdin(key, sequence, write),
            Request::NotifyScreen(notify) => {
                let result = self.notify_screen(&notify, descriptors);
                self.answer_done(key, sequence, result);
            }
            Request::Resize(resize) => {
                let result = self.resize(&resize);
                self.answer_done(key, sequence, result);
            }
            Request::GetForeground(get) => {
                let foreground = self.foreground(&get.terminal_id);
                let foreground = foreground
                    .unwrap_or_else(|errno| Foreground { errno: errno as i32, ..Foreground::default() });
                self.answer(key, sequence, Message::Foreground(foreground), Vec::new());
            }
            Request::SignalForeground(signal) => {
                let result = self.signal_foreground(&signal);
                self.answer_done(key, sequence, result);
            }
            Request::HoldIdleClock(asked) => {
                let result = self.hold_for_gateway(key, &asked);
                self.answer_done(key, sequence, result);
            }
            Request::Release(release) => {
                let result = self.release(&release);
                self.answer_done(key, sequence, result);
            }
            Request::Resume(resume) => {
                let result = self.resume(&resume.terminal_id);
                self.answer_done(key, sequence, result);
            }
            Request::Shutdown(shutdown) => {
                self.begin_shutdown(Duration::from_millis(shutdown.grace_ms), Some((key, sequence)));
            }
            Request::GetProxyListeners(asked) => {
                let mut sockets = self.proxy_listeners.clone();
                let has_listeners = !sockets.is_empty();
                // It answers about the network of this process, which the gateway is not in. Without it no program is known.
                let diag = (asked.with_sock_diag && has_listeners).then(sock_diag::open).and_then(Result::ok);
                let listeners =
                    ProxyListeners { unix_sockets: self.unix_sockets.clone(), has_sock_diag: diag.is_some() };
                sockets.extend(diag.map(Arc::new));
                self.answer(key, sequence, Message::ProxyListeners(listeners), sockets);
            }
            Request::GetSessionFiles(_) => {
                let names = self.session_files.mounts.iter().map(|(name, _)| name.clone()).collect();
                let kept = self.session_files.descriptors().cloned().collect();
                let files = SessionFiles { names, command_host_id: self.command_host_id };
                self.answer(key, sequence, Message::SessionFiles(files), kept);
            }
            Request::GetSessionNetwork(_) => {
                let kept = self.session_network.clone();
                self.answer(key, sequence, Message::SessionNetwork(SessionNetwork {}), kept);
            }
            Request::MakeSockets(asked) => match self.make_sockets(&asked) {
                Ok(sockets) => self.answer(key, sequence, Message::Sockets(Sockets {}), sockets),
                Err(errno) => self.answer_done(key, sequence, Err(errno)),
            },
            Request::ListTerminals(list) => {
                if list.from == 0 {
                    self.receive_from_others(key);
                }
                self.list(key, sequence, &list);
            }
        }
    }

    fn hello(&mut self, key: SlotKey, sequence: u64, hello: Hello) {
        let agreed = versions::agree(spoken_versions(), (hello.lowest_version, hello.highest_version));
        if let Some(connection) = self.connections.get_mut(key) {
            connection.handshake =
                if agreed.is_some() { HandshakeState::Done } else { HandshakeState::Refused };
        }
        self.handshaken |= agreed.is_some();
        if agreed.is_some() {
            self.without_gateway.end();
        }
        let answer = HelloResponse {
            version: agreed.unwrap_or_default(),
            sandbox_id: self.sandbox_id.clone(),
            effective_confinement: Some(self.effective_confinement.clone()),
            has_session_files: !self.session_files.mounts.is_empty(),
            has_session_network: !self.session_network.is_empty(),
        };
        // The gateway that launched us has a pidfd already; another one goes without if none can be opened.
        let own = Pidfd::open(std::process::id().cast_signed()).ok();
        let own = own.map(|own| Arc::new(own.into())).into_iter().collect();
        self.answer(key, sequence, Message::Hello(answer), own);
        if agreed.is_some() && self.gate.is_lost() {
            self.answer(key, 0, Message::GateLost(GateLost {}), Vec::new());
        }
    }

    /// TCP sockets of the sandbox's network, for a process that is not in it.
    fn make_sockets(&self, asked: &MakeSockets) -> Result<Vec<Arc<OwnedFd>>, Errno> {
        // Those of the host's network would be a way into it for the process that gets them.
        if !self.own_network {
            return Err(Errno::EPERM);
        }
        if !(1..=MAX_SOCKETS).contains(&asked.count) {
            return Err(Errno::EINVAL);
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let family = if asked.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let make = |_| socket(family, SockType::Stream, flags, None).map(Arc::new);
        (0..asked.count).map(make).collect()
    }

    /// While a connection of a terminal waits for a person, the terminal is not idle.
    fn hold_for_gateway(&mut self, gateway: SlotKey, asked: &HoldIdleClock) -> Result<(), Errno> {
        let key = self.key_of(&asked.terminal_id)?;
        let now = self.now;
        let terminal = self.terminals.get_mut(key).ok_or(Errno::ENOENT)?;
        terminal.holds.by_gateway = asked.hold.then_some(gateway);
        if terminal.settle_idle_clock(now) {
            self.advance(key);
        }
        Ok(())
    }

    fn stop(&mut self, request: &Stop) -> Result<(), Errno> {
        let key = self.key_of(&request.terminal_id)?;
        let terminal = self.terminals.get(key).ok_or(Errno::ENOENT)?;
        let grace = request.grace_ms.map_or(terminal.times.grace, Duration::from_millis);
        let cause = match request.cause() {
            StopCause::Unspecified => StopCause::Killed,
            cause => cause,
        };
        self.begin_stop(key, cause, grace);
        Ok(())
    }

    /// Signals the process group that the command leads. A stop does not rely on process groups.
    fn send_signal(&mut self, request: &SendSignal) -> Result<(), Errno> {
        let key = self.key_of(&request.terminal_id)?;
        let terminal = self.terminals.get(key).ok_or(Errno::ENOENT)?;
        // Its main process is not reaped yet, so the id cannot be reused.
        match terminal.phase {
            TerminalPhase::Running => signals::send_to_group(terminal.pid, request.signal),
            TerminalPhase::Lingering { .. }
            | TerminalPhase::KillingStragglers
            | TerminalPhase::Draining(_)
            | TerminalPhase::Ended(_) => Err(Errno::ESRCH),
        }
    }

    fn release(&mut self, request: &Release) -> Result<(), Errno> {
        let key = self.key_of(&request.terminal_id)?;
        if self.terminals.get(key).is_some_and(|terminal| !terminal.is_ended()) {
            return Err(Errno::EBUSY);
        }
        self.schedule(key, None);
        self.keys_by_id.remove(&request.terminal_id);
        self.terminals.remove(key);
        Ok(())
    }

    fn list(&mut self, key: SlotKey, sequence: u64, request: &ListTerminals) {
        let mut list = TerminalList::default();
        let mut descriptors = Vec::new();
        let mut bytes = 0;
        for held in self.terminals.keys().into_iter().filter(|held| held.index() >= request.from) {
            let Some(terminal) = self.terminals.get(held) else { continue };
            let full = descriptors.len() + terminal.outputs.len() > MAX_LISTED_DESCRIPTORS;
            if full || bytes >= MAX_LISTED_BYTES || list.terminals.len() == MAX_LISTED_TERMINALS {
                // Never 0: the list is not empty.
                list.next = held.index();
                break;
            }
            descriptors.extend(terminal.outputs.iter().map(|output| output.ring.file().clone()));
            let described = self.describe(terminal);
            bytes += described.encoded_len();
            list.terminals.push(described);
        }
        self.answer(key, sequence, Message::TerminalList(list), descriptors);
    }

    pub(super) fn key_of(&self, id: &str) -> Result<SlotKey, Errno> {
        self.keys_by_id.get(id).copied().ok_or(Errno::ENOENT)
    }

    fn describe(&self, terminal: &SupervisedTerminal) -> HeldTerminal {
        let exit = match &terminal.phase {
            TerminalPhase::Ended(exit) => Some(exit.as_ref().clone()),
            TerminalPhase::Running
            | TerminalPhase::Lingering { .. }
            | TerminalPhase::KillingStragglers
            | TerminalPhase::Draining(_) => None,
        };
        let ended_ago = match (&exit, &terminal.leader_exit) {
            (Some(_), Some(main)) => self.now.saturating_duration_since(main.at),
            _ => Duration::ZERO,
        };
        HeldTerminal {
            terminal_id: terminal.id.clone(),
            started: Some(terminal.started.clone()),
            exit,
            rings: terminal.outputs.len() as u32,
            metadata: terminal.metadata.clone(),
            ended_ms_ago: ended_ago.as_millis() as u64,
            pty: terminal.pty.as_ref().map(|pty| pty_size(pty.size)),
        }
    }
}

/// Since when there is no gateway, and until when the sandbox waits for one.
///
/// A gateway finds a sandbox by the control socket in its state directory. When the file of the socket is unlinked, none can come: then
/// the sandbox ends after a while. How long it waits for a gateway that could come is configuration.
#[derive(Debug)]
pub(super) struct WithoutGateway {
    limits: WithoutGatewayLimits,
    since: Option<Instant>,
    look_at: Option<Instant>,
}

impl WithoutGateway {
    pub(super) fn new(limits: WithoutGatewayLimits) -> Self {
        Self { limits, since: None, look_at: None }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.look_at = self.limits.socket_file.as_ref().map(|_| now + self.limits.unreachable_max);
    }

    pub(super) fn end(&mut self) {
        (self.since, self.look_at) = (None, None);
    }

    pub(super) fn next_change(&self) -> Option<Instant> {
        let limit = self.since.zip(self.limits.max).map(|(since, max)| since + max);
        [limit, self.look_at].into_iter().flatten().min()
    }

    /// Whether the sandbox has waited for long enough.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        if self.limits.max.is_some_and(|max| since + max <= now) {
            return true;
        }
        if self.look_at.is_none_or(|at| now < at) {
            return false;
        }
        self.look_at = Some(now + LOOK_INTERVAL.min(self.limits.unreachable_max));
        self.limits.socket_file.as_ref().is_some_and(is_unlinked)
    }
}

/// A file that cannot be looked at is taken as there.
fn is_unlinked(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|status| status.st_nlink == 0)
}
