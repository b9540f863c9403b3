//! The event loop: waits for output, gateways and the end of the sandbox. It sleeps while nothing changes.

use std::{
    os::fd::AsFd,
    process::exit,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::epoll::{EpollEvent, EpollFlags, EpollTimeout},
};

use super::state::{Emulators, MAX_CONNECTIONS, MAX_QUEUED_BYTES, token};
use crate::{
    link::PolledConnection,
    proto::screen::{Answers, FromScreen, Published, from_screen::Message},
    sys::fdpass,
};

const EVENTS: usize = 64;
const EXIT_SANDBOX_ENDED: i32 = 0;
const EXIT_BROKEN: i32 = 73;

impl Emulators {
    /// Runs until the sandbox ends.
    pub(super) fn run(mut self) -> ! {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(_) => exit(EXIT_BROKEN),
            };
            for event in &events[..count] {
                self.dispatch(event.data(), event.events());
            }
            self.take_in();
            self.publish_due();
        }
    }

    fn dispatch(&mut self, at: u64, flags: EpollFlags) {
        match at {
            token::SUPERVISOR => exit(EXIT_SANDBOX_ENDED),
            token::LISTENER => self.accept(),
            at if self.notifiers.contains_key(&at) => self.notified(at),
            at => self.connection_ready(at, flags),
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = fdpass::accept(self.listener.as_fd()) else { return };
        if self.connections.len() > MAX_CONNECTIONS {
            // The oldest one that is not in use never said hello.
            let idle = self.connections.keys().copied().find(|at| Some(*at) != self.gateway);
            idle.map(|at| self.connections.remove(&at));
        }
        let at = self.take_token();
        if let Ok(connection) = PolledConnection::new(socket, &self.epoll, at) {
            self.connections.insert(at, connection);
        }
    }

    fn notified(&mut self, at: u64) {
        let Some(terminal) = self.notifiers.get(&at).and_then(|id| self.terminals.get_mut(id)) else {
            self.notifiers.remove(&at);
            return;
        };
        if !terminal.drain_notifier() {
            // The supervisor has closed it: the terminal was released there.
            terminal.notifier = None;
            self.notifiers.remove(&at);
        }
    }

    fn connection_ready(&mut self, at: u64, flags: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&at) else { return };
        match connection.ready(&self.epoll, flags) {
            Ok(requests) => {
                for (request, descriptors) in requests {
                    self.handle(at, request, descriptors);
                }
            }
            Err(_) => self.drop_connection(at),
        }
    }

    pub(super) fn drop_connection(&mut self, at: u64) {
        self.connections.remove(&at);
        if self.gateway == Some(at) {
            self.gateway = None;
            self.terminals.values_mut().for_each(|terminal| terminal.is_watched = false);
        }
    }

    pub(super) fn send(&mut self, at: u64, sequence: u64, message: Message) {
        let Some(connection) = self.connections.get_mut(&at) else { return };
        let message = FromScreen { sequence, message: Some(message) };
        if connection.send(&self.epoll, &message, MAX_QUEUED_BYTES).is_err() {
            self.drop_connection(at);
        }
    }

    /// A turn for each terminal whose ring may hold more.
    fn take_in(&mut self) {
        let mut answers = Vec::new();
        for (id, terminal) in self.terminals.iter_mut().filter(|(_, terminal)| terminal.is_behind) {
            terminal.take_in();
            let data = terminal.emulator.take_answers();
            if !data.is_empty() {
                answers.push(Answers { terminal_id: id.clone(), data: data.into() });
            }
        }
        // Without a gateway nobody could write them.
        if let Some(gateway) = self.gateway {
            for answer in answers {
                self.send(gateway, 0, Message::Answers(answer));
            }
        }
    }

    fn publish_due(&mut self) {
        let Some(gateway) = self.gateway else { return };
        let now = Instant::now();
        let mut published = Vec::new();
        for (id, terminal) in &mut self.terminals {
            if terminal.due_at(now).is_some_and(|due| due <= now) {
                terminal.is_watched = false;
                let done = terminal.publish(now);
                published.push(Published {
                    terminal_id: id.clone(),
                    errno: done.err().and_then(|error| error.raw_os_error()).unwrap_or(0),
                    number: terminal.number,
                    at_end: terminal.is_at_end(),
                    ..Published::default()
                });
            }
        }
        for event in published {
            self.send(gateway, 0, Message::Published(event));
        }
    }

    fn timeout(&self) -> EpollTimeout {
        if self.terminals.values().any(|terminal| terminal.is_behind) {
            return EpollTimeout::ZERO;
        }
        let now = Instant::now();
        let due = self.terminals.values().filter_map(|terminal| terminal.due_at(now)).min();
        let Some(due) = due.filter(|_| self.gateway.is_some()) else { return EpollTimeout::NONE };
        // Rounded up: a timer must not fire before its time and spin.
        let left = due.saturating_duration_since(now) + Duration::from_micros(999);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }
}
