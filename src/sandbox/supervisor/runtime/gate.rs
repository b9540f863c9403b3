//! Watches the gate: pings while a command runs, holds of idle clocks, and its end.
//!
//! A gate that does not answer is killed through its dead-man pipe, and the processes that it traces end with it. The loop never
//! waits for it. What the gate evaluates is not known here.

use nix::sys::epoll::EpollFlags;

use super::{
    Runtime,
    links::{GateState, PING_INTERVAL, PONG_TIMEOUT, Ping},
    poll::SlotKey,
};
use crate::{
    proto::supervisor::{
        GateHold, GateLost, GatePing, ToGateProcess, from_gate_process, from_supervisor::Message,
        to_gate_process,
    },
    wire::encode,
};

impl Runtime {
    /// Sends a ping or kills a gate that has not answered, if it is time.
    pub(super) fn watch_gate(&mut self) {
        let GateState::Up(gate) = &mut self.gate else { return };
        match gate.ping {
            Ping::Unanswered(until) if until <= self.now => self.lose_gate(),
            Ping::Due(at) if at <= self.now => {
                let runs = |key: &SlotKey| self.terminals.get(*key).is_some_and(|one| !one.is_ended());
                if !self.terminals.keys().iter().any(runs) {
                    gate.ping = Ping::Off;
                    return;
                }
                gate.pinged += 1;
                gate.ping = Ping::Unanswered(self.now + PONG_TIMEOUT);
                let ping = to_gate_process::Message::Ping(GatePing { number: gate.pinged });
                if let Ok(frame) = encode(&ToGateProcess { message: Some(ping) }, 0) {
                    // One ping at a time: the socket has room for it.
                    gate.frames.push(frame, Vec::new());
                }
                if gate.frames.flush(self.epoll.set()).is_err() {
                    self.lose_gate();
                }
            }
            Ping::Off | Ping::Due(_) | Ping::Unanswered(_) => {}
        }
    }

    pub(super) fn gate_ready(&mut self, flags: EpollFlags) {
        let GateState::Up(gate) = &mut self.gate else { return };
        let Ok(messages) = gate.frames.ready(self.epoll.set(), flags) else { return self.lose_gate() };
        for (message, _) in messages {
            let GateState::Up(gate) = &mut self.gate else { return };
            match message.message {
                Some(from_gate_process::Message::Pong(pong)) if pong.number == gate.pinged => {
                    gate.ping = Ping::Due(self.now + PING_INTERVAL);
                }
                Some(from_gate_process::Message::Hold(hold)) => self.hold_idle_clock(&hold),
                Some(from_gate_process::Message::Pong(_)) | None => return self.lose_gate(),
            }
        }
    }

    /// While an exec of a terminal waits for a person, the terminal is not idle.
    fn hold_idle_clock(&mut self, hold: &GateHold) {
        // The terminal may have ended meanwhile.
        let Ok(key) = self.key_of(&hold.terminal_id) else { return };
        let now = self.now;
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        terminal.holds.by_gate = hold.waiting > 0;
        if terminal.settle_idle_clock(now) {
            self.advance(key);
        }
    }

    /// Ends the gate, if it has not ended, and reports it.
    fn lose_gate(&mut self) {
        let GateState::Up(gate) = std::mem::replace(&mut self.gate, GateState::Lost) else { return };
        // Best effort, because dropping this end kills it, too.
        let _ = nix::unistd::write(&gate.dead_man, &[0]);
        drop(gate);
        let now = self.now;
        for key in self.terminals.keys() {
            if let Some(terminal) = self.terminals.get_mut(key) {
                terminal.holds.by_gate = false;
                terminal.settle_idle_clock(now);
            }
            self.advance(key);
        }
        self.broadcast(Message::GateLost(GateLost {}));
    }
}
