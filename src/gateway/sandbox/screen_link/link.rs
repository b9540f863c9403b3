//! The link to one screen process: its terminals, the memory with their pictures, and who waits for the next.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};
use prost::bytes::Bytes;
use tokio::{io::Interest, sync::watch};

use crate::{
    display::{
        continuation::Continuation,
        picture::{self, FILE_BYTES, Picture, PictureError},
        reader::{self, Memory, ReadPictureError},
        row::Row,
        size::ScreenSize,
    },
    link::{Connection, LinkError, Peer},
    proto::screen::{
        AddTerminal, Answers, FromScreen, GetScrollback, Hello, Publish, Published, RemoveTerminal, Resize,
        SetNotifier, ToScreen, Watch, from_screen::Message, to_screen::Request,
    },
    sandbox::{
        host::host_ids::HostIdError,
        launch,
        process_links::{self, ANSWER_TIMEOUT},
    },
    sys::{async_fd, namespace},
    wire::screen::VERSIONS,
};

/// Bytes that may be queued for a process that does not read.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Requests that may wait for their answers.
const MAX_WAITING: usize = 4096;

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

/// Why a screen cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    /// Its process could not be started.
    #[error("start the screen process")]
    Start(#[source] io::Error),
    /// No host id is left for its process.
    #[error("claim a host id for the screen process")]
    Identity(#[from] HostIdError),
    /// A step of the process's set-up failed.
    #[error("step {step} of the screen process's set-up failed: {errno}")]
    Setup {
        /// As `src/sandbox/screen` numbers them.
        step: u32,
        /// Why.
        errno: Errno,
    },
    /// It cannot be reached, or does not answer as it should.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It answers with an error.
    #[error("the screen process answers {0}")]
    Refused(Errno),
    /// The terminal has no screen.
    #[error("the screen process does not know the terminal")]
    UnknownTerminal,
    /// The memory of a screen cannot be made.
    #[error("make the memory of a screen")]
    Memory(#[source] io::Error),
    /// What it has published is not a screen.
    #[error(transparent)]
    Picture(#[from] ReadPictureError),
    /// The scrollback that it has sent is none.
    #[error("scrollback")]
    Scrollback(#[from] PictureError),
}

/// A link. It ends when the process ends, and is not made again.
#[derive(Debug)]
pub struct ScreenLink {
    connection: Connection<ToScreen, FromScreen>,
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
        let connection = process_links::connect(Peer::Screen, socket, MAX_QUEUED_BYTES)?;
        let link = Arc::new(Self {
            connection: connection.with_max_waiting(MAX_WAITING),
            terminals: Mutex::default(),
            ended: watch::Sender::new(false),
        });
        tokio::spawn(link.clone().serve(sandbox_id.to_owned(), process, observer));
        link.hello(sandbox_id).await?;
        Ok(link)
    }

    /// Agrees on a version.
    async fn hello(&self, sandbox_id: &str) -> Result<(), ScreenError> {
        let (lowest_version, highest_version) = VERSIONS;
        let hello = Request::Hello(Hello { lowest_version, highest_version });
        let Message::Hello(answer) = self.request(hello, &[]).await? else {
            return Err(unexpected_message());
        };
        Peer::Screen.check_version(VERSIONS, answer.version)?;
        if answer.sandbox_id != sandbox_id {
            return Err(LinkError::WrongSandbox(Peer::Screen, answer.sandbox_id).into());
        }
        Ok(())
    }

    /// Sends a request and waits for its answer.
    async fn request(&self, request: Request, descriptors: &[Arc<OwnedFd>]) -> Result<Message, ScreenError> {
        let sequence = self.connection.next_sequence();
        let message = ToScreen { sequence, request: Some(request) };
        let answer = self.connection.ask(sequence, &message, descriptors)?;
        let answer = async { answer.await.map_err(|_| LinkError::Lost(Peer::Screen)) };
        let (answer, _) = Peer::Screen.within(ANSWER_TIMEOUT, answer).await?;
        answer.message.ok_or_else(unexpected_message)
    }

    async fn serve(
        self: Arc<Self>,
        sandbox_id: String,
        process: Option<OwnedFd>,
        observer: Weak<dyn ScreenObserver>,
    ) {
        let error = tokio::select! {
            error = self.receive(&observer) => error,
            error = self.connection.keep_writing() => error,
        };
        self.connection.end();
        tracing::debug!(sandbox.id = %sandbox_id, %error, "the link to the screen process has ended");
        self.ended.send_replace(true);
        for (_, screen) in self.lock().drain() {
            screen.latest.send_modify(|latest| latest.is_lost = true);
        }
        if let Some(process) = process {
            end(process, &error).await;
        }
    }

    /// Passes answers to those who wait for them, and events and all pictures on, in order, until the connection ends.
    async fn receive(&self, observer: &Weak<dyn ScreenObserver>) -> LinkError {
        loop {
            let (message, descriptors) = match self.connection.next().await {
                Ok(Some(received)) => received,
                Ok(None) => return LinkError::Lost(Peer::Screen),
                Err(error) => return error,
            };
            // A message of a newer process is ignored.
            let Some(content) = &message.message else { continue };
            // A picture is news for all, also when the one who asked for it has given up.
            if message.sequence == 0 || matches!(content, Message::Published(_)) {
                self.event(content, observer);
            }
            self.connection.answered(message.sequence, (message, descriptors));
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
        let descriptors = [Arc::new(ring), memory.file().map_err(ScreenError::Memory)?];
        let screen =
            Arc::new(LinkedScreen { memory, latest: watch::Sender::default(), read: Mutex::default() });
        self.lock().insert(terminal_id.to_owned(), screen);
        let request = Request::AddTerminal(AddTerminal {
            terminal_id: terminal_id.to_owned(),
            columns: size.columns().into(),
            rows: size.rows().into(),
            answers_from,
        });
        match self.request(request, &descriptors).await? {
            Message::TerminalAdded(added) if added.errno == 0 => Ok(added.was_known),
            Message::TerminalAdded(added) => {
                self.forget(terminal_id);
                Err(ScreenError::Refused(Errno::from_raw(added.errno)))
            }
            _ => Err(unexpected_message()),
        }
    }

    /// Hands over the socket from which a byte can be read when the terminal's ring has changed.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn set_notifier(&self, terminal_id: &str, notifier: OwnedFd) -> Result<(), ScreenError> {
        let request = Request::SetNotifier(SetNotifier { terminal_id: terminal_id.to_owned() });
        done(self.request(request, &[Arc::new(notifier)]).await?)
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
        done(self.request(request, &[]).await?)
    }

    /// Removes a terminal.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub async fn remove(&self, terminal_id: &str) -> Result<(), ScreenError> {
        self.forget(terminal_id);
        let request = Request::RemoveTerminal(RemoveTerminal { terminal_id: terminal_id.to_owned() });
        done(self.request(request, &[]).await?)
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
        Err(unexpected_message())
    }

    async fn publish(&self, publish: Publish) -> Result<(u64, Arc<Picture>, Bytes), ScreenError> {
        let screen = self.screen(&publish.terminal_id)?;
        match self.request(Request::Publish(publish), &[]).await? {
            // It has been told to all.
            Message::Published(published) if published.errno == 0 => {
                let (number, picture) = screen.picture()?;
                Ok((number, picture, published.continuation))
            }
            Message::Published(published) => Err(ScreenError::Refused(Errno::from_raw(published.errno))),
            _ => Err(unexpected_message()),
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
        let request = Some(Request::Watch(Watch { terminal_id: terminal_id.to_owned(), seen }));
        self.connection.send(&ToScreen { sequence: self.connection.next_sequence(), request }, &[])?;
        Ok(())
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
        let Message::Scrollback(answer) = self.request(request, &[]).await? else {
            return Err(unexpected_message());
        };
        if answer.errno != 0 {
            return Err(ScreenError::Refused(Errno::from_raw(answer.errno)));
        }
        if answer.rows == 0 {
            return Ok(ScrollbackPage { rows: Vec::new(), available: answer.available });
        }
        if answer.rows > count || answer.marks as usize > picture::MAX_ALL_MARKS {
            return Err(unexpected_message());
        }
        let size = ScreenSize::new(answer.columns, answer.rows).map_err(|_| unexpected_message())?;
        let rows = picture::decode_rows(size, answer.marks as usize, &answer.cells)?;
        Ok(ScrollbackPage { rows, available: answer.available })
    }

    fn screen(&self, terminal_id: &str) -> Result<Arc<LinkedScreen>, ScreenError> {
        if self.has_ended() {
            return Err(LinkError::Lost(Peer::Screen).into());
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
async fn end(process: OwnedFd, error: &LinkError) {
    if !matches!(error, LinkError::Lost(_)) {
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
        _ => Err(unexpected_message()),
    }
}

fn unexpected_message() -> ScreenError {
    LinkError::UnexpectedMessage(Peer::Screen).into()
}

/// The shared memory of one screen. The gateway makes and seals it, and copies out of it: nothing that the screen process does to it can cause
/// a fault.
#[derive(Debug)]
struct PictureMemory {
    file: File,
}

impl PictureMemory {
    fn create() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"provost-screen", flags)?);
        file.set_len(FILE_BYTES)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(Self { file })
    }

    /// To be handed to the screen process.
    fn file(&self) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.file.try_clone()?.into()))
    }
}

impl Memory for PictureMemory {
    fn copy(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }
}
