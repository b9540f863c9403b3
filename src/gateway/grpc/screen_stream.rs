//! The stream of a watched screen.
//!
//! Each message is made when the caller takes it, from what it has seen last and what the screen shows then. So a caller who
//! does not read holds up nobody, and nothing waits for it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::stream::unfold;
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};
use tokio_stream::Stream;
use tonic::Status;

use super::{
    errors::{self, ResourceKind},
    screen_response::{self, Styles},
};
use crate::{
    display::{
        diff::{self, Change},
        picture::Picture,
        reader::ReadPictureError,
    },
    link::LinkError,
    proto::v1::{ScreenEnded, WatchScreenResponse, watch_screen_response::Event},
    sandbox::screen_link::{Latest, ScreenError, ScreenLink},
    terminal::{Terminal, Terminals},
};

/// What one who watches has seen.
pub(super) struct Watcher {
    terminals: Arc<Terminals>,
    /// A watched terminal can be released.
    terminal: Weak<Terminal>,
    id: String,
    interval: Duration,
    styles: Styles,
    link: Option<(Arc<ScreenLink>, Receiver<Latest>)>,
    seen: Option<Arc<Picture>>,
    sent_at: Option<Instant>,
}

/// A snapshot, and then what changes, until the terminal has ended.
pub(super) fn watch(
    terminals: Arc<Terminals>,
    terminal: &Arc<Terminal>,
    interval: Duration,
    styles: Styles,
) -> impl Stream<Item = Result<WatchScreenResponse, Status>> + Send + use<> {
    let watcher = Watcher::new(terminals, terminal, interval, styles);
    unfold(Some(watcher), |watcher| async move {
        let mut watcher = watcher?;
        let next = watcher.next().await;
        let response = |event| WatchScreenResponse { event: Some(event), terminal_id: watcher.id.clone() };
        match next {
            Ok(event @ Event::Ended(_)) => Some((Ok(response(event)), None)),
            Ok(event) => Some((Ok(response(event)), Some(watcher))),
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl Watcher {
    /// Makes the stream for a caller who has seen nothing yet.
    pub(super) fn new(
        terminals: Arc<Terminals>,
        terminal: &Arc<Terminal>,
        interval: Duration,
        styles: Styles,
    ) -> Self {
        Self {
            terminals,
            terminal: Arc::downgrade(terminal),
            id: terminal.id.to_string(),
            interval,
            styles,
            link: None,
            seen: None,
            sent_at: None,
        }
    }

    /// What comes next. One who stops waiting for it may ask again.
    pub(super) async fn next(&mut self) -> Result<Event, Status> {
        if let Some(at) = self.sent_at {
            sleep_until(at + self.interval).await;
        }
        loop {
            let Some((link, mut latest)) = self.link.take() else {
                if let Some(event) = self.connect().await? {
                    return Ok(event);
                }
                continue;
            };
            let state = *latest.borrow_and_update();
            if state.is_lost {
                // The process has ended: the next one builds the screen again, which is shown as a whole.
                self.seen = None;
                continue;
            }
            let event = match link.picture(&self.id) {
                Ok((_, picture)) => self.event(picture),
                // It is being told; the next look finds the next process.
                Err(ScreenError::Link(LinkError::Lost(_)) | ScreenError::UnknownTerminal) => {
                    self.seen = None;
                    continue;
                }
                // The next one is being written; it will be told.
                Err(ScreenError::Picture(ReadPictureError::NeverStill)) => None,
                Err(error) => return Err(errors::screen(&error.into())),
            };
            if let Some(event) = event {
                self.link = Some((link, latest));
                self.sent_at = Some(Instant::now());
                return Ok(event);
            }
            if state.at_end {
                return Ok(Event::Ended(ScreenEnded {}));
            }
            if link.arm(&self.id).is_ok() {
                // Its end is a change, too; so is the terminal's release.
                let _ = latest.changed().await;
            }
            self.link = Some((link, latest));
        }
    }

    /// Finds the screen, and shows it as it is now, unless it was seen.
    async fn connect(&mut self) -> Result<Option<Event>, Status> {
        let terminal = self.terminal.upgrade().ok_or_else(|| errors::not_found(ResourceKind::Terminal))?;
        let failed = |error| errors::screen(&error);
        let (link, picture) = self.terminals.screens().snapshot(&terminal).await.map_err(failed)?;
        drop(terminal);
        let latest = match link.subscribe(&self.id) {
            Ok(latest) => latest,
            Err(ScreenError::Link(LinkError::Lost(_)) | ScreenError::UnknownTerminal) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        };
        self.link = Some((link, latest));
        self.sent_at = Some(Instant::now());
        Ok(self.event(picture))
    }

    fn event(&mut self, picture: Arc<Picture>) -> Option<Event> {
        let event = event(self.seen.as_deref(), &picture, self.styles);
        self.seen = Some(picture);
        event
    }
}

/// What shows a picture to one who has seen that.
fn event(seen: Option<&Picture>, picture: &Picture, styles: Styles) -> Option<Event> {
    let change = match seen {
        None => Change::Everything,
        Some(seen) => diff::between(seen, picture),
    };
    match change {
        Change::Nothing => None,
        Change::Everything => Some(Event::Snapshot(screen_response::screen(picture, styles))),
        // Most of a screen is shorter as a whole.
        Change::Parts(parts) if parts.rows.len() * 2 > picture.rows.len() && parts.bells == 0 => {
            Some(Event::Snapshot(screen_response::screen(picture, styles)))
        }
        Change::Parts(parts) => Some(Event::Change(screen_response::change(picture, &parts, styles))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::{cell::Cell, mode::Modes, row::Row, size::ScreenSize};

    /// Ten rows, of which the first so many are not as they were.
    fn picture(changed: usize, bells: u64) -> Picture {
        let row = |index| {
            let character = if index < changed { 'y' } else { 'x' };
            Arc::new(Row { cells: vec![Cell { character, ..Cell::default() }; 4], ..Row::default() })
        };
        Picture {
            size: ScreenSize::new(4, 10).unwrap(),
            rows: (0..10).map(row).collect(),
            cursor: Default::default(),
            modes: Modes::default(),
            title: String::new(),
            bells,
            scrollback_rows: 0,
            offset: 0,
            built_from: 0,
            resets: 0,
        }
    }

    #[test]
    fn most_of_a_screen_is_shown_as_a_whole_unless_the_bell_has_rung() {
        let seen = picture(0, 1);
        let sent = |changed, bells| event(Some(&seen), &picture(changed, bells), Styles::Without);
        assert_eq!(sent(0, 1), None);
        for (changed, bells) in [(1, 1), (5, 1), (0, 2), (6, 2), (10, 3)] {
            let Some(Event::Change(change)) = sent(changed, bells) else {
                panic!("{changed} rows and {bells} bells are no change")
            };
            assert_eq!((change.lines.len(), change.bells), (changed, bells - 1));
        }
        for changed in [6, 10] {
            let Some(Event::Snapshot(screen)) = sent(changed, 1) else {
                panic!("{changed} rows are no snapshot")
            };
            assert_eq!((screen.lines.len(), screen.bells), (10, 1));
        }
        assert!(matches!(event(None, &seen, Styles::Without), Some(Event::Snapshot(_))));
    }
}
