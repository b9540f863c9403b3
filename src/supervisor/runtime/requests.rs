//! What gateways ask for, and the answers.

use std::time::{Duration, Instant};

use nix::{errno::Errno, sys::signal::Signal, unistd::Pid};

use super::{
    Runtime,
    connections::Greeting,
    table::Key,
    terminal::{Phase, Terminal},
};
use crate::proto::supervisor::{
    HeldTerminal, Hello, HelloAnswer, Release, SendSignal, Stop, StopCause, TerminalList, ToSupervisor,
    from_supervisor::Message, to_supervisor::Request,
};

/// The version of the control protocol spoken here.
const VERSION: u32 = 1;

/// Descriptors in one frame of a list.
const LISTED_DESCRIPTORS: usize = 200;

/// Terminals in one frame of a list; with about 2 KiB each, far below the longest message.
const LISTED_TERMINALS: usize = 200;

/// How long after its grace a shutdown waits for the last process.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(12);

/// A shutdown under way.
#[derive(Debug)]
pub(super) struct Shutdown {
    /// Who asked, and is answered at the end.
    asked: Vec<(Key, u64)>,
    pub(super) give_up_at: Instant,
}

impl Runtime {
    pub(super) fn handle(&mut self, key: Key, message: ToSupervisor) {
        let sequence = message.sequence;
        let greeting = self.connections.get(key).map(|connection| connection.greeting);
        let request = match (greeting, message.request) {
            (Some(Greeting::Done), Some(Request::Hello(hello)))
            | (Some(Greeting::Expected), Some(Request::Hello(hello))) => {
                return self.greet(key, sequence, hello);
            }
            (Some(Greeting::Done), Some(request)) => request,
            // Anything before Hello, and what a newer gateway may ask for without having agreed on it.
            (Some(_), _) => return self.drop_connection(key),
            (None, _) => return,
        };
        match request {
            Request::Hello(_) => {}
            Request::Spawn(spawn) => self.spawn(key, sequence, spawn),
            Request::Stop(stop) => {
                let result = self.stop(&stop);
                self.answer_done(key, sequence, result);
            }
            Request::SendSignal(signal) => {
                let result = self.send_signal(&signal);
                self.answer_done(key, sequence, result);
            }
            Request::WriteStdin(write) => self.write_stdin(key, sequence, write),
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
            Request::ListTerminals(_) => self.list(key, sequence),
        }
    }

    fn greet(&mut self, key: Key, sequence: u64, hello: Hello) {
        let speaks = (hello.lowest_version..=hello.highest_version).contains(&VERSION);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.greeting = if speaks { Greeting::Done } else { Greeting::Refused };
        }
        let answer = HelloAnswer {
            version: if speaks { VERSION } else { 0 },
            sandbox_id: self.sandbox_id.clone(),
            posture: Some(self.posture.clone()),
        };
        self.answer(key, sequence, Message::Hello(answer), Vec::new());
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

    /// To the process group that the command leads. For signals only: a stop does not rely on groups.
    fn send_signal(&mut self, request: &SendSignal) -> Result<(), Errno> {
        let key = self.key_of(&request.terminal_id)?;
        let signal = Signal::try_from(request.signal)?;
        let terminal = self.terminals.get(key).ok_or(Errno::ENOENT)?;
        // Its leader is not reaped yet, so nobody else can have the number.
        match terminal.phase {
            Phase::Running => nix::sys::signal::kill(Pid::from_raw(-terminal.pid), signal),
            Phase::Lingering { .. } | Phase::Sweeping | Phase::Draining(_) | Phase::Ended(_) => {
                Err(Errno::ESRCH)
            }
        }
    }

    fn release(&mut self, request: &Release) -> Result<(), Errno> {
        let key = self.key_of(&request.terminal_id)?;
        if self.terminals.get(key).is_some_and(|terminal| !terminal.is_ended()) {
            return Err(Errno::EBUSY);
        }
        self.schedule(key, None);
        self.names.remove(&request.terminal_id);
        self.terminals.remove(key);
        Ok(())
    }

    fn list(&mut self, key: Key, sequence: u64) {
        let mut list = TerminalList::default();
        let mut descriptors = Vec::new();
        for held in self.terminals.keys() {
            let Some(terminal) = self.terminals.get(held) else { continue };
            let full = descriptors.len() + terminal.outputs.len() > LISTED_DESCRIPTORS;
            if full || list.terminals.len() == LISTED_TERMINALS {
                list.more = true;
                let part = (std::mem::take(&mut list), std::mem::take(&mut descriptors));
                self.answer(key, sequence, Message::TerminalList(part.0), part.1);
            }
            let Some(terminal) = self.terminals.get(held) else { continue };
            descriptors.extend(terminal.outputs.iter().map(|output| output.ring.file().clone()));
            list.terminals.push(describe(terminal));
        }
        self.answer(key, sequence, Message::TerminalList(list), descriptors);
    }

    pub(super) fn key_of(&self, id: &str) -> Result<Key, Errno> {
        self.names.get(id).copied().ok_or(Errno::ENOENT)
    }

    pub(super) fn begin_shutdown(&mut self, grace: Duration, asked: Option<(Key, u64)>) {
        let give_up_at = self.now + grace.min(Duration::from_secs(3600)) + SHUTDOWN_MARGIN;
        let shutdown = self.shutdown.get_or_insert(Shutdown { asked: Vec::new(), give_up_at });
        shutdown.give_up_at = shutdown.give_up_at.min(give_up_at);
        shutdown.asked.extend(asked);
        for key in self.terminals.keys() {
            self.begin_stop(key, StopCause::Shutdown, grace);
        }
    }

    /// Whether a shutdown was asked for and is complete; then who asked is answered.
    pub(super) fn is_shut_down(&mut self) -> bool {
        let Some(shutdown) = &self.shutdown else { return false };
        let ended = |key| self.terminals.get(key).is_none_or(Terminal::is_ended);
        if self.now < shutdown.give_up_at && !self.terminals.keys().into_iter().all(ended) {
            return false;
        }
        if let Some(shutdown) = self.shutdown.take() {
            for (key, sequence) in shutdown.asked {
                self.answer_done(key, sequence, Ok(()));
            }
        }
        true
    }
}

fn describe(terminal: &Terminal) -> HeldTerminal {
    let exit = match &terminal.phase {
        Phase::Ended(exit) => Some(**exit),
        Phase::Running | Phase::Lingering { .. } | Phase::Sweeping | Phase::Draining(_) => None,
    };
    HeldTerminal {
        terminal_id: terminal.id.clone(),
        started: Some(terminal.started.clone()),
        exit,
        rings: terminal.outputs.len() as u32,
    }
}
