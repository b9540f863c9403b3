//! Copies output from the pipes of commands into their rings, and notifies gateways and the screen process of it.
//!
//! At most [`READS_PER_TURN`] reads for each pipe in a turn; unread bytes make the pipe readable again.

use std::os::fd::{AsFd, OwnedFd};

use nix::{errno::Errno, sys::epoll::EpollFlags};

use super::{
    Runtime,
    poll::{EventSource, SlotKey},
    terminal::{OutputStream, PipeState, ScreenNotifier},
};
use crate::{
    output::ring::MAX_READ_BYTES,
    proto::supervisor::{NotifyScreen, Progress, from_supervisor::Message},
    sys::ring::Filled,
};

/// Reads of one pipe before other sources have their turn.
const READS_PER_TURN: usize = 4;

/// Why pumping stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    /// There may be more.
    More,
    /// Nothing more is there now.
    Empty,
    /// The ring is full and held.
    Stalled,
    /// There will never be more.
    Ended,
}

impl Runtime {
    /// A pipe has bytes, or its end.
    pub(super) fn pump(&mut self, key: SlotKey, index: usize) {
        let pumped = self.pump_output(key, index);
        if pumped == Pumped::Ended {
            if self.terminals.get(key).is_some_and(|terminal| terminal.pty.is_some()) {
                // No process has the terminal open. The master would be reported as hung up all the time.
                self.close_stdin(key);
            }
            self.advance(key);
        }
    }

    pub(super) fn pump_output(&mut self, key: SlotKey, index: usize) -> Pumped {
        let Some(terminal) = self.terminals.get_mut(key) else { return Pumped::Ended };
        let Some(output) = terminal.outputs.get_mut(index) else { return Pumped::Ended };
        let PipeState::Reading(pipe) = &output.flow else {
            return match output.flow {
                PipeState::Ended => Pumped::Ended,
                PipeState::Stalled(_) | PipeState::Reading(_) => Pumped::Stalled,
            };
        };
        let before = output.ring.head();
        let mut pumped = Pumped::More;
        for _ in 0..READS_PER_TURN {
            match output.ring.fill_from(pipe.as_fd(), MAX_READ_BYTES as usize) {
                Ok(Filled::Bytes(_)) => {}
                Ok(Filled::Empty) => {
                    pumped = Pumped::Empty;
                    break;
                }
                Ok(Filled::Stalled) => {
                    pumped = Pumped::Stalled;
                    break;
                }
                // A pipe has no other errors that could pass. A pseudo-terminal that no process has open has EIO.
                Ok(Filled::End) | Err(_) => {
                    pumped = Pumped::Ended;
                    break;
                }
            }
        }
        let grown = output.ring.head() != before;
        if grown {
            terminal.last_output = self.now;
        }
        match pumped {
            Pumped::Ended => {
                output.ring.end();
                output.flow = PipeState::Ended;
            }
            Pumped::Stalled => {
                // The epoll set is level-triggered and would report it all the time.
                let _ = self.epoll.remove(pipe);
                if let PipeState::Reading(pipe) = std::mem::replace(&mut output.flow, PipeState::Ended) {
                    output.flow = PipeState::Stalled(pipe);
                }
            }
            Pumped::More | Pumped::Empty => {}
        }
        if grown || pumped == Pumped::Ended {
            terminal.screen.take_if(|screen| !screen.notify());
            self.report_progress(key, index);
        }
        pumped
    }

    /// Ends a stream, whether or not a process still holds its pipe.
    pub(super) fn end_output(&mut self, key: SlotKey, index: usize) {
        let Some(output) = self.output(key, index) else { return };
        if !matches!(output.flow, PipeState::Ended) {
            output.ring.end();
            output.flow = PipeState::Ended;
            if let Some(terminal) = self.terminals.get_mut(key) {
                terminal.screen.take_if(|screen| !screen.notify());
            }
            self.report_progress(key, index);
        }
    }

    /// Reads stalled pipes again, after the reader has advanced.
    pub(super) fn resume(&mut self, id: &str) -> Result<(), Errno> {
        let key = self.key_of(id)?;
        let terminal = self.terminals.get_mut(key).ok_or(Errno::ENOENT)?;
        for (output, index) in terminal.outputs.iter_mut().zip(0..) {
            if let PipeState::Stalled(pipe) = &output.flow {
                self.epoll.add(pipe, EventSource::Output(key, index), EpollFlags::EPOLLIN)?;
                if let PipeState::Stalled(pipe) = std::mem::replace(&mut output.flow, PipeState::Ended) {
                    output.flow = PipeState::Reading(pipe);
                }
            }
        }
        self.advance(key);
        Ok(())
    }

    fn report_progress(&mut self, key: SlotKey, index: usize) {
        let Some(output) = self.output(key, index) else { return };
        if !output.ring.take_armed() {
            return;
        }
        let Some(terminal) = self.terminals.get(key) else { return };
        let at_end = terminal.is_drained();
        let progress = Message::Progress(Progress { terminal_id: terminal.id.clone(), at_end });
        // A command that closes its output usually exits next, so the gateway need not wake up for each.
        if at_end { self.broadcast_coalesced(progress) } else { self.broadcast(progress) }
    }

    fn output(&mut self, key: SlotKey, index: usize) -> Option<&mut OutputStream> {
        self.terminals.get_mut(key)?.outputs.get_mut(index)
    }

    /// Sets the socket by which the process that keeps a terminal's screen is notified of output. That process may not read, or be
    /// hostile: nothing waits for it.
    pub(super) fn notify_screen(
        &mut self,
        request: &NotifyScreen,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| Errno::EINVAL)?;
        let key = self.key_of(&request.terminal_id)?;
        let terminal = self.terminals.get_mut(key).ok_or(Errno::ENOENT)?;
        let notifier = ScreenNotifier::new(socket);
        // For what was written before.
        terminal.screen = notifier.notify().then_some(notifier);
        Ok(())
    }
}
