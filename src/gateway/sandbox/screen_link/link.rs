//! The link to one screen process: its terminals, their pictures, and who waits for the next.

use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use nix::errno::Errno;
use prost::bytes::Bytes;
use tokio::{io::Interest, sync::watch};

use super::{connection::ScreenConnection, error::ScreenError, memory::PictureMemory};
use crate::{
    display::{
        continuation::Continuation,
        picture::{self, Picture},
        reader,
        row::Row,
        size::ScreenSize,
    },
    proto::screen::{
        AddTerminal, Answers, GetScrollback, Publish, Published, RemoveTerminal, Resize, SetNotifier, Watch,
        from_screen::Message, to_screen::Request,
    },
    sandbox::launch,
    sys::{async_fd, namespace},
};

/// Takes what screen processes report. Called on the link's task, so it must not wait.
pub trait ScreenObserver: Send + Sync + fmt::Debug {
    /// The emulator answers a question of the program: bytes of input.
    fn answered(&self, terminal_id: &str, bytes: Vec<u8>);
}

/// The newest picture of a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latest {
    /// Counts the pictures of this link.
    pub number: u64,
    /// No more output will come.
    pub at_end: bool,
    /// The screen process is gone, or the terminal was removed.
    pub is_lost: bool,
}

/// Rows above a screen.
#[derive(Debug, Clone, Default)]
pub struct ScrollbackPage {
    /// From the top down.
    pub rows: Vec<Row>,
    /// Rows that there are.
    pub available: u32,
}

/// A link. It ends when the process ends, and is not made again.
#[derive(Debug)]
pub struct ScreenLink {
    connection: ScreenConnection,
    terminals: Mutex<HashMap<String, Arc<LinkedScreen>>>,
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct LinkedScreen {
    memory: PictureMemory,
    latest: watch::Sender<Latest>,
    /// The picture that was read last, and its number.
    read: Mutex<Option<(u64, Arc<Picture>)>>,
}

impl ScreenLink {
    /// Connects to the screen process of a sandbox and greets it. A process that is this process's child is reaped at its end.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn connect(
        socket: &Path,
        sandbox_id: &str,
        process: Option<OwnedFd>,
        observer: Weak<dyn ScreenObserver>,
    ) -> Result<Arc<Self>, ScreenError> {
        let link = Arc::new(Self {
            connection: ScreenConnection::connect(socket)?,
            terminals: Mutex::default(),
            ended: watch::Sender::new(false),
        });
        tokio::spawn(link.clone().serve(sandbox_id.to_owned(), process, observer));
        link.connection.hello(sandbox_id).await?;
        Ok(link)
    }

    async fn serve(
        self: Arc<Self>,
        sandbox_id: String,
        process: Option<OwnedFd>,
        observer: Weak<dyn ScreenObserver>,
    ) {
        let error = self.connection.serve(|event| self.event(event, &observer)).await;
        tracing::debug!(sandbox.id = %sandbox_id, %error, "the link to the screen process has ended");
        self.ended.send_replace(true);
        for (_, screen) in self.lock().drain() {
            screen.latest.send_modify(|latest| latest.is_lost = true);
        }
        if let Some(process) = process {
            end(process, &error).await;
        }
    }

    fn event(&self, event: &Message, observer: &Weak<dyn ScreenObserver>) {
        match event {
            Message::Published(published) => self.published(published),
            Message::Answers(Answers { terminal_id, data }) => {
                if let Some(observer) = observer.upgrade() {
                    observer.answered(terminal_id, data.to_vec());
                }
            }
            // No event.
            Message::Hello(_) | Message::TerminalAdded(_) | Message::Done(_) | Message::Scrollback(_) => {}
        }
    }

    fn published(&self, published: &Published) {
        let Some(screen) = self.lock().get(&published.terminal_id).cloned() else { return };
        screen.latest.send_if_modified(|latest| {
            let newer = Latest {
                number: latest.number.max(published.number),
                at_end: latest.at_end || published.at_end,
                is_lost: false,
            };
            let is_newer = newer != *latest;
            *latest = newer;
            is_newer
        });
    }

    /// Resolves when the link has ended.
    pub async fn wait_ended(&self) {
        // Fails only when the sender is gone, and `self` holds it.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Whether the link has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Adds a terminal; whether the process knew it, because another gateway had added it. The ring must be open for reading
    /// only.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn add(
        &self,
        terminal_id: &str,
        size: ScreenSize,
        ring: OwnedFd,
        answers_from: u64,
    ) -> Result<bool, ScreenError> {
        let memory = PictureMemory::create().map_err(ScreenError::Memory)?;
        let descriptors = vec![Arc::new(ring), memory.file().map_err(ScreenError::Memory)?];
        let screen =
            Arc::new(LinkedScreen { memory, latest: watch::Sender::default(), read: Mutex::default() });
        self.lock().insert(terminal_id.to_owned(), screen);
        let request = Request::AddTerminal(AddTerminal {
            terminal_id: terminal_id.to_owned(),
            columns: size.columns().into(),
            rows: size.rows().into(),
            answers_from,
        });
        match self.connection.request(request, descriptors).await? {
            Message::TerminalAdded(added) if added.errno == 0 => Ok(added.was_known),
            Message::TerminalAdded(added) => {
                self.forget(terminal_id);
                Err(ScreenError::Refused(Errno::from_raw(added.errno)))
            }
            _ => Err(ScreenError::UnexpectedMessage),
        }
    }

    /// Hands over the socket from which a byte can be read when the terminal's ring has changed.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn set_notifier(&self, terminal_id: &str, notifier: OwnedFd) -> Result<(), ScreenError> {
        let request = Request::SetNotifier(SetNotifier { terminal_id: terminal_id.to_owned() });
        done(self.connection.request(request, vec![Arc::new(notifier)]).await?)
    }

    /// Changes a screen's size.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn resize(&self, terminal_id: &str, size: ScreenSize) -> Result<(), ScreenError> {
        let request = Request::Resize(Resize {
            terminal_id: terminal_id.to_owned(),
            columns: size.columns().into(),
            rows: size.rows().into(),
        });
        done(self.connection.request(request, Vec::new()).await?)
    }

    /// Removes a terminal.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn remove(&self, terminal_id: &str) -> Result<(), ScreenError> {
        self.forget(terminal_id);
        let request = Request::RemoveTerminal(RemoveTerminal { terminal_id: terminal_id.to_owned() });
        done(self.connection.request(request, Vec::new()).await?)
    }

    /// A picture that shows all that was written before.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn snapshot(&self, terminal_id: &str) -> Result<(u64, Arc<Picture>), ScreenError> {
        let request = Publish { terminal_id: terminal_id.to_owned(), with_continuation: false };
        let (number, picture, _) = self.publish(request).await?;
        Ok((number, picture))
    }

    /// The same, with what goes with the picture. `None`: the process is of an earlier build, or its screen changes faster than
    /// the two can be read together.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn snapshot_with_continuation(
        &self,
        terminal_id: &str,
    ) -> Result<(Arc<Picture>, Option<Continuation>), ScreenError> {
        for is_last in [false, false, true] {
            let request = Publish { terminal_id: terminal_id.to_owned(), with_continuation: true };
            let (_, picture, bytes) = self.publish(request).await?;
            let continuation = Continuation::decode(&bytes, picture.size);
            let belongs = continuation.filter(|continuation| continuation.offset == picture.offset);
            if belongs.is_some() || bytes.is_empty() || is_last {
                return Ok((picture, belongs));
            }
        }
        Err(ScreenError::UnexpectedMessage)
    }

    async fn publish(&self, publish: Publish) -> Result<(u64, Arc<Picture>, Bytes), ScreenError> {
        let screen = self.screen(&publish.terminal_id)?;
        match self.connection.request(Request::Publish(publish), Vec::new()).await? {
            // It has been told to all.
            Message::Published(published) if published.errno == 0 => {
                let (number, picture) = screen.picture()?;
                Ok((number, picture, published.continuation))
            }
            Message::Published(published) => Err(ScreenError::Refused(Errno::from_raw(published.errno))),
            _ => Err(ScreenError::UnexpectedMessage),
        }
    }

    /// The numbers of a terminal's pictures, as they are published.
    ///
    /// # Errors
    /// [`ScreenError::UnknownTerminal`].
    pub fn subscribe(&self, terminal_id: &str) -> Result<watch::Receiver<Latest>, ScreenError> {
        Ok(self.screen(terminal_id)?.latest.subscribe())
    }

    /// Asks for a picture of the next change.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub fn arm(&self, terminal_id: &str) -> Result<(), ScreenError> {
        let seen = self.screen(terminal_id)?.latest.borrow().number;
        self.connection.notify(Request::Watch(Watch { terminal_id: terminal_id.to_owned(), seen }))
    }

    /// The newest picture that was published, and its number.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub fn picture(&self, terminal_id: &str) -> Result<(u64, Arc<Picture>), ScreenError> {
        self.screen(terminal_id)?.picture()
    }

    /// Rows above the screen, from `above` rows above its first one downwards.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn scrollback(
        &self,
        terminal_id: &str,
        above: u32,
        count: u32,
    ) -> Result<ScrollbackPage, ScreenError> {
        let request =
            Request::GetScrollback(GetScrollback { terminal_id: terminal_id.to_owned(), above, count });
        let Message::Scrollback(answer) = self.connection.request(request, Vec::new()).await? else {
            return Err(ScreenError::UnexpectedMessage);
        };
        if answer.errno != 0 {
            return Err(ScreenError::Refused(Errno::from_raw(answer.errno)));
        }
        if answer.rows == 0 {
            return Ok(ScrollbackPage { rows: Vec::new(), available: answer.available });
        }
        if answer.rows > count || answer.marks as usize > picture::MAX_ALL_MARKS {
            return Err(ScreenError::UnexpectedMessage);
        }
        let size =
            ScreenSize::new(answer.columns, answer.rows).map_err(|_| ScreenError::UnexpectedMessage)?;
        let rows = picture::decode_rows(size, answer.marks as usize, &answer.cells)?;
        Ok(ScrollbackPage { rows, available: answer.available })
    }

    fn screen(&self, terminal_id: &str) -> Result<Arc<LinkedScreen>, ScreenError> {
        if self.has_ended() {
            return Err(ScreenError::Lost);
        }
        self.lock().get(terminal_id).cloned().ok_or(ScreenError::UnknownTerminal)
    }

    fn forget(&self, terminal_id: &str) {
        if let Some(screen) = self.lock().remove(terminal_id) {
            screen.latest.send_modify(|latest| latest.is_lost = true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<LinkedScreen>>> {
        self.terminals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the process has ended, and reaps it. One that has closed the connection has ended, or has another gateway.
async fn end(process: OwnedFd, error: &ScreenError) {
    if !matches!(error, ScreenError::Lost) {
        // A process that has ended needs no signal.
        let _ = namespace::kill_pidfd(process.as_fd());
    }
    if let Ok(process) = async_fd::register(process, Interest::READABLE) {
        // Fails only when the reactor is shut down, with the gateway.
        let _ = process.readable().await;
        let _ = launch::reap(process.get_ref().as_fd());
    }
}

impl LinkedScreen {
    /// Reads the newest picture, once for all who want it.
    fn picture(&self) -> Result<(u64, Arc<Picture>), ScreenError> {
        let number = self.latest.borrow().number;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, picture)) = &*read
            && *of >= number
        {
            return Ok((*of, picture.clone()));
        }
        let before = read.as_ref().map(|(_, picture)| picture.as_ref());
        let picture = Arc::new(reader::read(&self.memory, before)?);
        *read = Some((number, picture.clone()));
        Ok((number, picture))
    }
}

fn done(answer: Message) -> Result<(), ScreenError> {
    match answer {
        Message::Done(done) if done.errno == 0 => Ok(()),
        Message::Done(done) => Err(ScreenError::Refused(Errno::from_raw(done.errno))),
        _ => Err(ScreenError::UnexpectedMessage),
    }
}
