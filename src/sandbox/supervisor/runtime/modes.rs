//! Receives commands' changes of mode while there is room for another answer, and gives the answers.

use nix::sys::epoll::EpollFlags;

use super::{slot_map::EventSource, state::Runtime};
use crate::sys::wait::Reaped;

impl Runtime {
    pub(super) fn mode_call_waits(&mut self) {
        self.mode_calls.receive(self.now);
        if self.mode_calls.is_full() {
            self.listen_to_mode_calls(EpollFlags::empty());
        }
    }

    /// Whether the process answered a call.
    pub(super) fn mode_call_ended(&mut self, reaped: &Reaped) -> bool {
        let was_full = self.mode_calls.is_full();
        let answered = self.mode_calls.ended(reaped);
        if answered && was_full {
            self.listen_to_mode_calls(EpollFlags::EPOLLIN);
        }
        answered
    }

    fn listen_to_mode_calls(&self, flags: EpollFlags) {
        if let Some(listener) = self.mode_calls.listener() {
            // It is in the set, and nothing is allocated: it cannot fail.
            let _ = self.epoll.change(listener, EventSource::Modes, flags);
        }
    }
}
