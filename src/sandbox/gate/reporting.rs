//! Sends reports to the gateway, and holds of idle clocks to the supervisor.

use std::process::exit;

use super::state::{Gate, wall_clock_ns};
use crate::proto::{
    gate::{FromGate, from_gate, report},
    supervisor::{FromGateProcess, GateHold, from_gate_process},
};

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
        if connection.send(&self.epoll, &FromGate { message: Some(message) }).is_err() {
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

    /// Reports how often refused execs were tried again, of one terminal or of all. Without a gateway it goes on being counted.
    pub(super) fn report_denied_again(&mut self, of: Option<&str>) {
        if self.gateway.is_none() {
            return;
        }
        for (terminal_id, again) in self.refusals.take_counted(of) {
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
        if self.supervisor.send(&self.epoll, &FromGateProcess { message: Some(message) }).is_err() {
            exit(EXIT_SUPERVISOR_GONE);
        }
    }
}
