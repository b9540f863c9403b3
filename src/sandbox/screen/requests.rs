//! Requests of the gateway and their answers.

use std::{os::fd::OwnedFd, time::Instant};

use nix::{
    errno::Errno,
    sys::epoll::{EpollEvent, EpollFlags},
};

use super::{state::Emulators, terminal::ScreenTerminal};
use crate::{
    display::{picture, size::ScreenSize},
    proto::screen::{
        AddTerminal, Done, GetScrollback, Hello, HelloResponse, Publish, Published, Resize, Scrollback,
        TerminalAdded, ToScreen, Watch, from_screen::Message, to_screen::Request,
    },
    wire::{
        screen::{MAX_SCROLLBACK_ROWS, MAX_TERMINALS, VERSIONS},
        versions,
    },
};

impl Emulators {
    pub(super) fn handle(&mut self, at: u64, message: ToScreen, descriptors: Vec<OwnedFd>) {
        if !self.connections.contains_key(&at) {
            return;
        }
        let sequence = message.sequence;
        let request = match message.request {
            Some(Request::Hello(hello)) => return self.hello(at, sequence, &hello),
            Some(request) if self.gateway == Some(at) => request,
            // Something before the handshake, from a connection that was replaced, or of a later version.
            Some(_) | None => return self.drop_connection(at),
        };
        let answer = match request {
            Request::Hello(_) => return,
            Request::AddTerminal(added) => Message::TerminalAdded(match self.add(&added, descriptors) {
                Ok(was_known) => TerminalAdded { errno: 0, was_known },
                Err(errno) => TerminalAdded { errno: errno as i32, was_known: false },
            }),
            Request::SetNotifier(set) => done(self.set_notifier(&set.terminal_id, descriptors)),
            Request::Resize(resize) => done(self.resize(&resize)),
            Request::RemoveTerminal(removed) => done(self.remove(&removed.terminal_id)),
            Request::Publish(publish) => Message::Published(self.publish(publish)),
            Request::Watch(watch) => return self.watch(&watch),
            Request::GetScrollback(get) => Message::Scrollback(self.scrollback(&get)),
        };
        self.send(at, sequence, answer);
    }

    fn hello(&mut self, at: u64, sequence: u64, hello: &Hello) {
        let agreed = versions::agree(VERSIONS, (hello.lowest_version, hello.highest_version));
        let answer =
            HelloResponse { version: agreed.unwrap_or_default(), sandbox_id: self.sandbox_id.clone() };
        self.send(at, sequence, Message::Hello(answer));
        if agreed.is_none() {
            return self.drop_connection(at);
        }
        if let Some(replaced) = self.gateway.replace(at).filter(|replaced| *replaced != at) {
            self.connections.remove(&replaced);
        }
        self.terminals.values_mut().for_each(|terminal| terminal.is_watched = false);
    }

    fn add(&mut self, added: &AddTerminal, descriptors: Vec<OwnedFd>) -> Result<bool, Errno> {
        let [ring, memory] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| Errno::EINVAL)?;
        let size = ScreenSize::new(added.columns, added.rows).map_err(|_| Errno::EINVAL)?;
        if let Some(known) = self.terminals.get_mut(&added.terminal_id) {
            known.set_memory(memory);
            known.resize(size);
            return Ok(true);
        }
        if self.terminals.len() >= MAX_TERMINALS {
            return Err(Errno::EMFILE);
        }
        let terminal =
            ScreenTerminal::new(ring, memory, size, added.answers_from).map_err(|_| Errno::EINVAL)?;
        self.terminals.insert(added.terminal_id.clone(), terminal);
        Ok(false)
    }

    fn set_notifier(&mut self, id: &str, descriptors: Vec<OwnedFd>) -> Result<(), Errno> {
        let [notifier] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| Errno::EINVAL)?;
        let at = self.take_token();
        let terminal = self.terminals.get_mut(id).ok_or(Errno::ENOENT)?;
        self.epoll.add(&notifier, EpollEvent::new(EpollFlags::EPOLLIN, at))?;
        self.notifiers.retain(|_, of| of != id);
        self.notifiers.insert(at, id.to_owned());
        terminal.notifier = Some(notifier);
        // What was written before has not been notified.
        terminal.is_behind = true;
        Ok(())
    }

    fn resize(&mut self, resize: &Resize) -> Result<(), Errno> {
        let size = ScreenSize::new(resize.columns, resize.rows).map_err(|_| Errno::EINVAL)?;
        let terminal = self.terminals.get_mut(&resize.terminal_id).ok_or(Errno::ENOENT)?;
        // What was written before was written for the old size.
        terminal.catch_up();
        terminal.resize(size);
        Ok(())
    }

    fn remove(&mut self, id: &str) -> Result<(), Errno> {
        self.terminals.remove(id).ok_or(Errno::ENOENT)?;
        self.notifiers.retain(|_, of| of != id);
        Ok(())
    }

    fn publish(&mut self, publish: Publish) -> Published {
        let terminal_id = publish.terminal_id;
        let Some(terminal) = self.terminals.get_mut(&terminal_id) else {
            return Published { terminal_id, errno: Errno::ENOENT as i32, ..Published::default() };
        };
        terminal.catch_up();
        let continuation = if publish.with_continuation { terminal.continuation() } else { Vec::new() };
        let done = terminal.publish(Instant::now());
        let errno = done.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        Published {
            terminal_id,
            errno,
            number: terminal.number,
            at_end: terminal.is_at_end(),
            continuation: continuation.into(),
        }
    }

    fn watch(&mut self, watch: &Watch) {
        if let Some(terminal) = self.terminals.get_mut(&watch.terminal_id) {
            terminal.watch(watch.seen);
        }
    }

    fn scrollback(&mut self, get: &GetScrollback) -> Scrollback {
        let Some(terminal) = self.terminals.get_mut(&get.terminal_id) else {
            return Scrollback { errno: Errno::ENOENT as i32, ..Scrollback::default() };
        };
        let rows = terminal.emulator.scrollback(get.above, get.count.min(MAX_SCROLLBACK_ROWS));
        let columns = terminal.emulator.size().columns();
        let mut answer = Scrollback {
            available: terminal.emulator.scrollback_rows(),
            columns: columns.into(),
            rows: rows.len() as u32,
            ..Scrollback::default()
        };
        // No rows are no size.
        if let Ok(size) = ScreenSize::new(columns.into(), answer.rows) {
            let mut bytes = Vec::new();
            answer.marks = picture::encode_rows(rows.iter(), size, &mut bytes) as u32;
            answer.cells = bytes.into();
        }
        answer
    }
}

fn done(result: Result<(), Errno>) -> Message {
    Message::Done(Done { errno: result.err().map_or(0, |errno| errno as i32) })
}
