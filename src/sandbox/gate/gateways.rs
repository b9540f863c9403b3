//! Connections of gateways: one is in use, the one that has completed its handshake last. It sends the policy and the terminals, and gets
//! reports, which are numbered and kept until the journal has them.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    os::fd::AsFd as _,
    process::exit,
    rc::Rc,
    sync::Arc,
};

use nix::{errno::Errno, sys::epoll::EpollFlags};
use prost::Message as _;

use super::{Gate, HeldExec, MAX_CONNECTIONS, MAX_QUEUED_BYTES, wall_clock_ns};
use crate::{
    link::PolledConnection,
    policy::{
        PolicySet,
        command::{
            known_directories::{KnownDirectories, KnownDirectory},
            program::DirectoryId,
        },
    },
    proto::{
        gate::{
            self, Answer, ExecDenied, FromGate, Hello, HelloResponse, PolicyInForce, Report, SetPolicy,
            TerminalRemoved, ToGate, answer::Verdict, exec_denied::Cause, from_gate, report, to_gate,
        },
        supervisor::{FromGateProcess, GateHold, from_gate_process},
    },
    sys::fdpass,
    wire::{gate::VERSIONS, versions},
};

/// Receives from the gateway before an exec of an unknown terminal is denied: more than a socket holds.
const MAX_RECEIVES: usize = 64;

impl Gate {
    pub(super) fn accept(&mut self) {
        let Ok(socket) = fdpass::accept(self.listener.as_fd()) else { return };
        if self.connections.len() >= MAX_CONNECTIONS {
            // The oldest one that is not in use never said hello.
            let idle = self.connections.keys().copied().find(|token| Some(*token) != self.gateway);
            idle.map(|token| self.connections.remove(&token));
        }
        let token = self.next_connection;
        self.next_connection += 1;
        if let Ok(connection) = PolledConnection::new(socket, &self.epoll, token) {
            self.connections.insert(token, connection);
        }
    }

    pub(super) fn connection_ready(&mut self, token: u64, flags: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match connection.ready(&self.epoll, flags) {
            Ok(messages) => {
                for (message, _) in messages {
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
            let Some(Ok(messages)) = self.connections.get_mut(&token).map(PolledConnection::receive) else {
                return self.drop_connection(token);
            };
            if messages.is_empty() {
                return;
            }
            for (message, _) in messages {
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
                self.denials.forget();
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
        let answer = FromGate { message: Some(from_gate::Message::Hello(answer)) };
        let sent = connection.send(&self.epoll, &answer, MAX_QUEUED_BYTES);
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

/// The supervisor is gone, and so is the sandbox.
const EXIT_SUPERVISOR_GONE: i32 = 0;

impl Gate {
    /// Keeps a report and sends it. Its number, if a gateway can answer that the journal has it.
    pub(super) fn report(&mut self, terminal_id: &str, what: report::Report) -> Option<u64> {
        let report = self.reports.add(terminal_id, self.policy.generation(), wall_clock_ns(), what)?.clone();
        let number = report.number;
        self.send(from_gate::Message::Report(report));
        self.gateway.map(|_| number)
    }

    /// Sends a message to the gateway, if one is connected.
    pub(super) fn send(&mut self, message: from_gate::Message) {
        let Some(token) = self.gateway else { return };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.send(&self.epoll, &FromGate { message: Some(message) }, MAX_QUEUED_BYTES).is_err() {
            self.connections.remove(&token);
            self.gateway = None;
        }
    }

    /// Reports what was allowed since the last time. Without a gateway it goes on being counted.
    pub(super) fn report_allowed(&mut self) {
        if self.gateway.is_none() {
            return;
        }
        for (terminal_id, reports) in self.terminals.take_allowed() {
            for report in reports {
                self.report(&terminal_id, report::Report::Allowed(report));
            }
        }
    }

    /// Reports how often denied execs were tried again, of one terminal or of all. Without a gateway it goes on being counted.
    pub(super) fn report_denied_again(&mut self, of: Option<&str>) {
        if self.gateway.is_none() {
            return;
        }
        for (terminal_id, again) in self.denials.take_counted(of) {
            self.report(&terminal_id, report::Report::DeniedAgain(again));
        }
    }

    /// Changes how many execs of a terminal wait for a person.
    pub(super) fn change_asking(&mut self, terminal_id: &str, change: impl FnOnce(u32) -> u32) {
        let Some(terminal) = self.terminals.get_mut(terminal_id) else { return };
        terminal.asking = change(terminal.asking);
        let hold = GateHold { terminal_id: terminal_id.to_owned(), waiting: terminal.asking };
        self.send_to_supervisor(from_gate_process::Message::Hold(hold));
    }

    pub(super) fn send_to_supervisor(&mut self, message: from_gate_process::Message) {
        if self
            .supervisor
            .send(&self.epoll, &FromGateProcess { message: Some(message) }, MAX_QUEUED_BYTES)
            .is_err()
        {
            exit(EXIT_SUPERVISOR_GONE);
        }
    }
}

/// Reports that are kept. What happens beyond is counted in the last one.
pub(super) const MAX_KEPT_REPORTS: usize = 4_096;
/// Their encoded bytes.
pub(super) const MAX_KEPT_BYTES: usize = 16 << 20;

/// Reports that the journal does not have yet.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: u64,
    /// The highest number that the journal has.
    recorded: u64,
    kept: VecDeque<Report>,
    /// Questions that the journal has, as long as their execs wait: the next gateway asks them again.
    questions: BTreeMap<u64, Report>,
    bytes: usize,
    /// What happened since the bound was reached, and of which terminal it was first.
    omitted: u64,
    omitted_of: String,
}

impl Reports {
    /// Numbers a report and keeps it. `None`: there are too many, and it is only counted.
    pub(super) fn add(
        &mut self,
        terminal_id: &str,
        policy_generation: u64,
        at_unix_ns: u64,
        what: report::Report,
    ) -> Option<&Report> {
        if self.kept.len() >= MAX_KEPT_REPORTS || self.bytes >= MAX_KEPT_BYTES {
            if self.omitted == 0 {
                self.omitted_of = terminal_id.to_owned();
            }
            self.omitted += 1;
            return None;
        }
        self.last += 1;
        let report = Report {
            number: self.last,
            terminal_id: terminal_id.to_owned(),
            policy_generation,
            at_unix_ns,
            report: Some(what),
        };
        self.bytes += report.encoded_len();
        self.kept.push_back(report);
        self.kept.back()
    }

    /// Forgets the reports up to this number, which the journal has. Returns the report of what was only counted, if there is
    /// room for it now.
    pub(super) fn forget(&mut self, up_to: u64, policy_generation: u64, at_unix_ns: u64) -> Option<&Report> {
        self.recorded = self.recorded.max(up_to.min(self.last));
        while self.kept.front().is_some_and(|report| report.number <= up_to) {
            if let Some(report) = self.kept.pop_front() {
                self.bytes = self.bytes.saturating_sub(report.encoded_len());
                if matches!(report.report, Some(report::Report::Asked(_))) {
                    self.questions.insert(report.number, report);
                }
            }
        }
        if self.omitted == 0 {
            return None;
        }
        let (count, terminal) = (std::mem::take(&mut self.omitted), std::mem::take(&mut self.omitted_of));
        let denied = ExecDenied {
            cause: Cause::Unavailable.into(),
            reason: format!("{count} more reports were not kept while no gateway took them"),
            ..ExecDenied::default()
        };
        self.add(&terminal, policy_generation, at_unix_ns, report::Report::Denied(denied))
    }

    /// The number of the last report; 0: there was none.
    pub(super) fn last_number(&self) -> u64 {
        self.last
    }

    /// The highest number of which the gateway has said that the journal has it; 0: of none.
    pub(super) fn last_recorded(&self) -> u64 {
        self.recorded
    }

    /// Forgets the questions whose execs do not wait any more.
    pub(super) fn retain_questions(&mut self, waits: impl Fn(u64) -> bool) {
        self.questions.retain(|number, _| waits(*number));
    }

    /// Whether it keeps a question that the journal has.
    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// The questions that the journal has, and then the reports that it does not have: in the order of their numbers.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Report> {
        self.questions.values().chain(&self.kept)
    }
}

/// The policy of the sandbox. A set is parsed when it is first needed, because most sandboxes see their first exec late or never.
#[derive(Debug, Default)]
pub(super) struct PolicyState {
    in_force: Option<(u64, Rc<PolicySet>)>,
    /// Received and not parsed.
    waiting: Option<SetPolicy>,
    /// An exec was notified.
    is_used: bool,
    /// The directories that the rules of all policies so far name, by what they are.
    directories: Arc<KnownDirectories>,
}

impl PolicyState {
    /// Takes a new policy. The answer is for the gateway.
    pub(super) fn set(&mut self, policy: SetPolicy) -> PolicyInForce {
        let generation = policy.generation;
        self.waiting = Some(policy);
        let failure = if self.is_used { self.parse() } else { None };
        PolicyInForce { generation, failure: failure.unwrap_or_default() }
    }

    /// Takes what directories of rules are.
    pub(super) fn know(&self, directories: Vec<gate::KnownDirectory>) {
        for gate::KnownDirectory { pattern, path, device, inode, left_out_since_ns } in directories {
            let left_out_since = Some(left_out_since_ns).filter(|since| *since != 0);
            self.directories
                .add(&pattern, KnownDirectory { path, id: DirectoryId { device, inode }, left_out_since });
        }
    }

    /// The policy for an exec. A set that turns out to be unusable is returned as the answer that it should have got.
    pub(super) fn current(&mut self) -> (Option<Rc<PolicySet>>, Option<PolicyInForce>) {
        self.is_used = true;
        let generation = self.waiting.as_ref().map(|waiting| waiting.generation);
        let failure = self.parse();
        let failed =
            generation.zip(failure).map(|(generation, failure)| PolicyInForce { generation, failure });
        (self.in_force.as_ref().map(|(_, policy)| policy.clone()), failed)
    }

    /// 0: there is none.
    pub(super) fn generation(&self) -> u64 {
        let waiting = self.waiting.as_ref().map(|waiting| waiting.generation);
        waiting.or(self.in_force.as_ref().map(|(generation, _)| *generation)).unwrap_or_default()
    }

    /// Why the waiting set cannot be used, if so; then the one before stays.
    fn parse(&mut self) -> Option<String> {
        let policy = self.waiting.take()?;
        let files: Vec<_> =
            policy.files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
        match PolicySet::load(&files) {
            Ok(parsed) => {
                self.in_force = {
                    let parsed = parsed.with_generation(policy.generation).knowing(self.directories.clone());
                    Some((policy.generation, Rc::new(parsed)))
                };
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> report::Report {
        report::Report::Denied(ExecDenied::default())
    }

    #[test]
    fn numbers_have_no_gaps_and_what_is_recorded_is_forgotten() {
        let mut reports = Reports::default();
        for expected in 1..=5 {
            assert_eq!(reports.add("t", 1, 1, denied()).unwrap().number, expected);
        }
        assert!(reports.forget(3, 1, 1).is_none());
        assert_eq!(reports.kept().map(|report| report.number).collect::<Vec<_>>(), [4, 5]);
        assert!(reports.forget(1, 1, 1).is_none(), "an old number forgets nothing");
        assert_eq!(reports.kept().count(), 2);
    }

    #[test]
    fn a_question_is_kept_while_its_exec_waits() {
        let mut reports = Reports::default();
        for what in [denied(), report::Report::Asked(crate::proto::gate::ExecAsked::default()), denied()] {
            reports.add("t", 1, 1, what);
        }
        reports.forget(2, 1, 1);
        assert_eq!(reports.kept().map(|report| report.number).collect::<Vec<_>>(), [2, 3]);
        reports.retain_questions(|number| number != 2);
        assert_eq!(reports.kept().map(|report| report.number).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn beyond_the_bound_they_are_counted_in_one_report_when_there_is_room() {
        let mut reports = Reports::default();
        for _ in 0..MAX_KEPT_REPORTS {
            assert!(reports.add("t", 1, 1, denied()).is_some());
        }
        for _ in 0..7 {
            assert!(reports.add("u", 1, 1, denied()).is_none());
        }
        let report = reports.forget(1, 1, 1).unwrap().clone();
        assert_eq!((report.number, report.terminal_id.as_str()), (MAX_KEPT_REPORTS as u64 + 1, "u"));
        let Some(report::Report::Denied(denied)) = report.report else { panic!("not a denial") };
        assert!(denied.reason.starts_with("7 more"), "{}", denied.reason);
        assert!(reports.forget(2, 1, 1).is_none());
    }
}
