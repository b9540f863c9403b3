//! Execs that wait for a person: how they go on, and which of them wait no longer.

use std::os::fd::AsFd;

use super::state::{ASK_WITHOUT_GATEWAY, Gate, HeldExec};
use crate::{
    proto::gate::{ask_ended::End, exec_denied::Cause},
    sys::seccomp_listener,
};

impl Gate {
    /// Lets an exec that was asked about go on, or denies it.
    pub(super) fn settle(&mut self, id: u64, verdict: Result<(), (Cause, &str)>) {
        let Some(HeldExec::Asked { judged, .. }) = self.held.remove(&id) else { return };
        self.change_asking(&judged.terminal_id, |asking| asking.saturating_sub(1));
        match verdict {
            Ok(()) if !self.verifying.contains_key(&judged.group) => self.let_go_on(*judged),
            // Another thread of the process executes something: then this one is about to end. If that exec fails, the
            // approval was for nothing, which is better than to wait inside the kernel.
            Ok(()) => {
                self.deny_judged(
                    &judged,
                    Cause::Unavailable,
                    "another thread of the process was in its exec",
                );
            }
            Err((cause, reason)) => self.deny_judged(&judged, cause, reason),
        }
    }

    /// Ends the waiting of those that are gone, and of those that no gateway can answer.
    pub(super) fn look_at_asked(&mut self) {
        let (now, is_alone) = (self.now, self.gateway.is_none());
        let (mut gone, mut given_up) = (Vec::new(), Vec::new());
        for (id, held) in &mut self.held {
            let HeldExec::Asked { alone_since, .. } = held else { continue };
            *alone_since = if is_alone { alone_since.or(Some(now)) } else { None };
            if !seccomp_listener::is_waiting(self.seccomp.as_fd(), *id) {
                gone.push(*id);
            } else if alone_since.is_some_and(|since| since + ASK_WITHOUT_GATEWAY <= now) {
                given_up.push(*id);
            }
        }
        for id in gone {
            if let Some(HeldExec::Asked { judged, .. }) = self.held.remove(&id) {
                self.change_asking(&judged.terminal_id, |asking| asking.saturating_sub(1));
                self.end_ask(&judged, End::Gone);
            }
        }
        for id in given_up {
            self.settle(id, Err((Cause::AskExpired, "no gateway was connected to ask a person")));
        }
    }
}
