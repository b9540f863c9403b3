//! Connections of gateways: one is in use, the one that has completed its handshake last.

use std::{collections::HashSet, os::fd::OwnedFd};

use nix::{errno::Errno, sys::epoll::EpollFlags};

use super::{
    connection::Connection,
    state::{Gate, HeldExec, MAX_CONNECTIONS, wall_clock_ns},
};
use crate::{
    proto::gate::{
        Answer, FromGate, Hello, HelloResponse, TerminalRemoved, ToGate, answer::Verdict, exec_denied::Cause,
        from_gate, report, to_gate,
    },
    wire::{gate::VERSIONS, versions},
};

/// Receives from the gateway before an exec of an unknown terminal is denied: more than a socket holds.
const MAX_RECEIVES: usize = 64;

impl Gate {
    pub(super) fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        if self.connections.len() >= MAX_CONNECTIONS {
            // The oldest one that is not in use never said hello.
            let idle = self.connections.keys().copied().find(|token| Some(*token) != self.gateway);
            idle.map(|token| self.connections.remove(&token));
        }
        let token = self.next_connection;
        self.next_connection += 1;
        if let Ok(connection) = Connection::new(OwnedFd::from(socket), &self.epoll, token) {
            self.connections.insert(token, connection);
        }
    }

    pub(super) fn connection_ready(&mut self, token: u64, flags: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if flags.contains(EpollFlags::EPOLLOUT) && connection.flush(&self.epoll).is_err() {
            return self.drop_connection(token);
        }
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        match connection.receive::<ToGate>() {
            Ok(messages) => {
                for message in messages {
                    self.handle(token, message);
                }
            }
            Err(_) => self.drop_connection(token),
        }
    }

    /// Handles what the gateway has sent: it registers a terminal before the terminal's command is spawned, and the message may
    /// lie unread while an exec of the command is notified.
    pub(super) fn receive_from_gateway(&mut self) {
        for _ in 0..MAX_RECEIVES {
            let Some(token) = self.gateway else { return };
            let Some(Ok(messages)) = self.connections.get_mut(&token).map(Connection::receive::<ToGate>)
            else {
                return self.drop_connection(token);
            };
            if messages.is_empty() {
                return;
            }
            for message in messages {
                self.handle(token, message);
            }
        }
    }

    fn drop_connection(&mut self, token: u64) {
        self.connections.remove(&token);
        if self.gateway == Some(token) {
            self.gateway = None;
        }
    }

    fn handle(&mut self, token: u64, message: ToGate) {
        if !self.connections.contains_key(&token) {
            return;
        }
        let message = match message.message {
            Some(to_gate::Message::Hello(hello)) => return self.hello(token, &hello),
            Some(message) if self.gateway == Some(token) => message,
            // Something before the handshake, from a connection that was replaced, or of a later version.
            Some(_) | None => return self.drop_connection(token),
        };
        match message {
            to_gate::Message::Hello(_) => {}
            to_gate::Message::SetPolicy(policy) => {
                let answer = self.policy.set(policy);
                self.names.forget();
                self.verdicts.forget();
                self.refusals.forget();
                self.send(from_gate::Message::PolicyInForce(answer));
            }
            to_gate::Message::AddTerminal(mut added) => {
                self.policy.know(std::mem::take(&mut added.directories));
                // A clock that cannot be read is one at which nothing has started.
                self.terminals.add(added, self.proc.uptime_ticks().unwrap_or(u64::MAX));
                self.verdicts.forget();
            }
            to_gate::Message::RemoveTerminal(removed) => {
                for report in self.terminals.remove(&removed.terminal_id) {
                    self.report(&removed.terminal_id, report::Report::Allowed(report));
                }
                self.report_denied_again(Some(&removed.terminal_id));
                let removed = TerminalRemoved { terminal_id: removed.terminal_id };
                self.send(from_gate::Message::TerminalRemoved(removed));
            }
            to_gate::Message::Recorded(recorded) => self.recorded(recorded.number),
            to_gate::Message::Answer(answer) => self.answered(&answer),
        }
    }

    fn hello(&mut self, token: u64, hello: &Hello) {
        let agreed = versions::agree(VERSIONS, (hello.lowest_version, hello.highest_version));
        let answer = HelloResponse {
            version: agreed.unwrap_or_default(),
            sandbox_id: self.sandbox_id.clone(),
            policy_generation: self.policy.generation(),
            terminal_ids: self.terminals.ids(),
            last_report: self.reports.last_number(),
            last_recorded: self.reports.last_recorded(),
        };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let sent =
            connection.send(&self.epoll, &FromGate { message: Some(from_gate::Message::Hello(answer)) });
        if sent.is_err() || agreed.is_none() {
            return self.drop_connection(token);
        }
        if let Some(replaced) = self.gateway.replace(token).filter(|replaced| *replaced != token) {
            self.connections.remove(&replaced);
        }
        // No gateway says any more when a line is over.
        self.terminals.end_lines();
        self.forget_ended_questions();
        let kept: Vec<_> = self.reports.kept().cloned().collect();
        for report in kept {
            self.send(from_gate::Message::Report(report));
        }
    }

    /// The journal has the reports up to this number: the execs that wait for them are answered.
    fn recorded(&mut self, number: u64) {
        let late = self.reports.forget(number, self.policy.generation(), wall_clock_ns()).cloned();
        if let Some(report) = late {
            self.send(from_gate::Message::Report(report));
        }
        self.forget_ended_questions();
        self.answer_denied(|report| report <= number);
        self.kill_condemned(|report| report <= number);
    }

    fn forget_ended_questions(&mut self) {
        if !self.reports.has_questions() {
            return;
        }
        let waiting: HashSet<u64> = self.held.values().filter_map(HeldExec::question).collect();
        self.reports.retain_questions(|number| waiting.contains(&number));
    }

    /// Answers denied execs whose report the journal has, or is waited for no longer.
    pub(super) fn answer_denied(&mut self, recorded: impl Fn(u64) -> bool) {
        let now = self.now;
        let is_due = |held: &HeldExec| match held {
            HeldExec::Denied { report, until } => recorded(*report) || *until <= now,
            HeldExec::Asked { .. } => false,
        };
        let due: Vec<u64> = self.held.iter().filter(|(_, held)| is_due(held)).map(|(id, _)| *id).collect();
        for id in due {
            self.held.remove(&id);
            self.fail(id, Errno::EACCES);
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let asked = |held: &HeldExec| match held {
            HeldExec::Asked { report, .. } => *report == answer.number,
            HeldExec::Denied { .. } => false,
        };
        // It may be gone.
        let Some(id) = self.held.iter().find(|(_, held)| asked(held)).map(|(id, _)| *id) else { return };
        let verdict = match answer.verdict() {
            Verdict::Approved => Ok(()),
            Verdict::Refused | Verdict::Unspecified => Err((Cause::AskRefused, "a person refused it")),
            Verdict::NotAsked => Err((Cause::AskRefused, "a person has to approve it, and none was asked")),
            Verdict::Expired => Err((Cause::AskExpired, "no person answered in time")),
        };
        self.settle(id, verdict);
    }
}
