//! The screens of PTY terminals: each is kept by the screen process of its sandbox, which is started with the first and again
//! when it has ended.
//!
//! A task for each terminal adds it, follows its size, and removes it. The command never waits for its screen, and runs on
//! without one.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

use crate::{
    display::{picture::Picture, size::ScreenSize},
    link::LinkError,
    policy::PtySize,
    sandbox::{
        control::{handle::Sandbox, requests::RequestError},
        host::Host,
        screen_link::{ScreenError, ScreenLaunch, ScreenLink, ScreenObserver, launch_blocking},
    },
    terminal::{
        control::EndOfInput, errors::ScreenAccessError, registry::Registry, spec::TerminalId, state::Terminal,
    },
    wire::screen::SOCKET_NAME,
};

/// Screen processes that are started for one sandbox within [`LAUNCH_WINDOW`].
const MAX_LAUNCHES: usize = 5;
/// See [`MAX_LAUNCHES`].
const LAUNCH_WINDOW: Duration = Duration::from_secs(60);
/// How long to wait before a screen is tried again that could not be had.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long a caller waits for a screen that is being built.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers of emulators that are being written; more are dropped.
const MAX_ANSWERS: usize = 64;

type LinkState = watch::Receiver<Option<Arc<ScreenLink>>>;

/// The screens of a gateway.
#[derive(Debug)]
pub(crate) struct Screens {
    host: Arc<Host>,
    keeping: Keeping,
    sandboxes: PathBuf,
    /// As many as there are sandboxes with a PTY terminal.
    processes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Process>>>>,
    /// As many as there are PTY terminals.
    terminals: Mutex<HashMap<TerminalId, LinkState>>,
    observer: Arc<AnswerWriter>,
}

/// The screen process of a sandbox.
#[derive(Debug, Default)]
struct Process {
    link: Option<Arc<ScreenLink>>,
    launches: VecDeque<Instant>,
}

/// Writes what emulators answer to the programs' questions (DA, DSR): without an answer some programs wait for a second, or for
/// ever. A question that comes while somebody begins to be attached may get two answers or none.
#[derive(Debug)]
struct AnswerWriter {
    registry: Arc<Registry>,
    places: Arc<Semaphore>,
}

impl ScreenObserver for AnswerWriter {
    fn answered(&self, terminal_id: &str, bytes: Vec<u8>) {
        let terminal = TerminalId::parse(terminal_id).and_then(|id| self.registry.get(id));
        // The terminal of an attached person answers itself.
        let Some(terminal) = terminal.filter(|terminal| terminal.attached() == 0) else { return };
        let Ok(place) = self.places.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            // A program that does not read its input gets no answer.
            let _ = terminal.write_stdin(None, bytes.into(), EndOfInput::NotYet).await;
            drop(place);
        });
    }
}

/// Whether a gateway keeps screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Keeping {
    /// All PTY terminals have one.
    All,
    /// No terminal has one: an embedded gateway has one caller, whose own terminal shows the output.
    None,
}

/// Whether the program's earlier questions may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Questions {
    /// The command has just begun.
    AllNew,
    /// Those that are in the ring are old.
    SomeOld,
}

impl Screens {
    pub(in crate::terminal) fn new(
        host: Arc<Host>,
        keeping: Keeping,
        state: &Path,
        registry: Arc<Registry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
            keeping,
            sandboxes: state.join("sandboxes"),
            processes: Mutex::default(),
            terminals: Mutex::default(),
            observer: Arc::new(AnswerWriter { registry, places: Arc::new(Semaphore::new(MAX_ANSWERS)) }),
        })
    }

    /// Begins to keep the screen of a terminal that runs, if it has one.
    pub(in crate::terminal) fn begin(self: &Arc<Self>, terminal: &Arc<Terminal>, questions: Questions) {
        let Some(sizes) = terminal.watch_pty_size() else { return };
        if self.keeping == Keeping::None || has_secrets(terminal) {
            return;
        }
        let Some(live) = terminal.live() else { return };
        let ring = match live.stdout.reopen_read_only() {
            Ok(ring) => ring,
            Err(errno) => {
                tracing::error!(terminal.id = %terminal.id, error = %errno, "the terminal has no screen: its ring cannot be opened again");
                return;
            }
        };
        let (sender, receiver) = watch::channel(None);
        self.lock_terminals().insert(terminal.id, receiver);
        let keeper = Keeper {
            screens: self.clone(),
            id: terminal.id,
            sandbox: live.sandbox.clone(),
            ring: Arc::new(ring),
            sizes,
            link: sender,
            questions,
            terminal: Arc::downgrade(terminal),
        };
        tokio::spawn(keeper.keep());
    }

    /// The link that has a terminal's screen. Waits a moment for one that is being built.
    ///
    /// # Errors
    /// [`ScreenAccessError`].
    pub(crate) async fn link(&self, terminal: &Terminal) -> Result<Arc<ScreenLink>, ScreenAccessError> {
        terminal.wait_settled().await;
        if terminal.pty_size().is_none() {
            return Err(ScreenAccessError::NoPty);
        }
        if has_secrets(terminal) {
            return Err(ScreenAccessError::HasSecrets);
        }
        let known = self.lock_terminals().get(&terminal.id).cloned();
        let mut state = known.ok_or(ScreenAccessError::Unavailable)?;
        let is_up = |link: &Option<Arc<ScreenLink>>| link.as_ref().is_some_and(|link| !link.has_ended());
        let found = timeout(READY_TIMEOUT, state.wait_for(is_up)).await;
        let link = found.ok().and_then(|found| found.ok()).and_then(|found| found.clone());
        link.ok_or(ScreenAccessError::Unavailable)
    }

    /// A picture that shows all that was written before, and the link that has it. A process that has ended is replaced by
    /// the next, which this waits for.
    ///
    /// # Errors
    /// [`ScreenAccessError`].
    pub(crate) async fn snapshot(
        &self,
        terminal: &Terminal,
    ) -> Result<(Arc<ScreenLink>, Arc<Picture>), ScreenAccessError> {
        for _ in 0..=MAX_LAUNCHES {
            let link = self.link(terminal).await?;
            match link.snapshot(&terminal.id.to_string()).await {
                Ok((_, picture)) => return Ok((link, picture)),
                // The link is about to say that it has ended; the next one is waited for then.
                Err(ScreenError::Link(LinkError::Lost(_))) => link.wait_ended().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(ScreenAccessError::Unavailable)
    }

    /// The link to a sandbox's screen process: the one there is, or the process of an earlier gateway, or a new one.
    async fn process(&self, sandbox: &Arc<Sandbox>) -> Result<Arc<ScreenLink>, ScreenAccessError> {
        let process = self.lock_processes().entry(sandbox.id().to_owned()).or_default().clone();
        let mut process = process.lock().await;
        if let Some(link) = process.link.as_ref().filter(|link| !link.has_ended()) {
            return Ok(link.clone());
        }
        let directory = self.sandboxes.join(sandbox.id());
        let socket = directory.join(SOCKET_NAME);
        let observer: Arc<dyn ScreenObserver> = self.observer.clone();
        let observer = Arc::downgrade(&observer);
        if process.launches.is_empty()
            && let Ok(link) = ScreenLink::connect(&socket, sandbox.id(), None, observer.clone()).await
        {
            process.link = Some(link.clone());
            return Ok(link);
        }
        let now = Instant::now();
        process.launches.retain(|at| now.duration_since(*at) < LAUNCH_WINDOW);
        if process.launches.len() >= MAX_LAUNCHES {
            return Err(ScreenAccessError::Unavailable);
        }
        process.launches.push_back(now);
        let (host, of) = (self.host.clone(), sandbox.clone());
        let launch = move || {
            let supervisor = of.supervisor();
            let (sandbox_id, cgroup) = (of.id(), of.cgroup());
            launch_blocking(&host, &ScreenLaunch { sandbox_id, directory: &directory, supervisor, cgroup })
        };
        let launched = tokio::task::spawn_blocking(launch).await;
        let started = launched.map_err(|join| ScreenError::Start(io::Error::other(join)))??;
        let link = ScreenLink::connect(&socket, sandbox.id(), Some(started.process), observer).await?;
        process.link = Some(link.clone());
        Ok(link)
    }

    fn forget_ended_processes(&self) {
        // One that is being started is locked.
        self.lock_processes().retain(|_, process| {
            process.try_lock().map_or(true, |process| {
                process.link.as_ref().is_some_and(|link| !link.has_ended())
                    || process.launches.back().is_some_and(|at| at.elapsed() < LAUNCH_WINDOW)
            })
        });
    }

    fn lock_processes(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<Process>>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_terminals(&self) -> MutexGuard<'_, HashMap<TerminalId, LinkState>> {
        self.terminals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Masking works on a stream of bytes; on a screen a secret may lie in any order.
fn has_secrets(terminal: &Terminal) -> bool {
    terminal.live().is_some_and(|live| live.masker.masks_any())
}

/// Keeps the screen of one terminal.
struct Keeper {
    screens: Arc<Screens>,
    id: TerminalId,
    sandbox: Arc<Sandbox>,
    ring: Arc<OwnedFd>,
    sizes: watch::Receiver<PtySize>,
    link: watch::Sender<Option<Arc<ScreenLink>>>,
    questions: Questions,
    /// Without a hold on it: it ends when it is released.
    terminal: Weak<Terminal>,
}

impl Keeper {
    async fn keep(mut self) {
        while self.terminal.strong_count() > 0 && self.sandbox.is_up() {
            match self.add().await {
                Ok(link) => {
                    self.link.send_replace(Some(link.clone()));
                    if self.follow(&link).await.is_none() {
                        // It was released; a process that is gone has forgotten it.
                        let _ = link.remove(&self.id.to_string()).await;
                        break;
                    }
                    tracing::warn!(terminal.id = %self.id, "the screen process has ended: the screen is built again");
                }
                Err(error) => {
                    tracing::warn!(terminal.id = %self.id, %error, "the terminal has no screen");
                    let _ = timeout(RETRY_AFTER, self.released()).await;
                }
            }
        }
        self.screens.lock_terminals().remove(&self.id);
        self.screens.forget_ended_processes();
    }

    async fn add(&mut self) -> Result<Arc<ScreenLink>, ScreenAccessError> {
        let link = self.screens.process(&self.sandbox).await?;
        let id = self.id.to_string();
        let size = screen_size(*self.sizes.borrow_and_update())?;
        let answers_from = match self.questions {
            Questions::AllNew => 0,
            Questions::SomeOld => {
                let terminal = self.terminal.upgrade();
                terminal
                    .and_then(|terminal| terminal.live().map(|live| live.stdout.head()))
                    .unwrap_or(u64::MAX)
            }
        };
        // From the second time on.
        self.questions = Questions::SomeOld;
        let ring = self.ring.try_clone().map_err(ScreenError::Memory)?;
        if !link.add(&id, size, ring, answers_from).await? {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(ScreenError::Memory)?;
            link.set_notifier(&id, theirs.into()).await?;
            match self.sandbox.notify_screen(id, ours.into()).await {
                // The command has ended and is forgotten there: its ring has all that will ever be in it.
                Ok(()) | Err(RequestError::Errno(libc::ENOENT)) => {}
                Err(_) => return Err(ScreenAccessError::Unavailable),
            }
        }
        Ok(link)
    }

    /// Follows the size. `None` when the terminal was released; else the link has ended.
    async fn follow(&mut self, link: &ScreenLink) -> Option<()> {
        loop {
            tokio::select! {
                changed = self.sizes.changed() => {
                    changed.ok()?;
                    let size = *self.sizes.borrow_and_update();
                    if let Ok(size) = screen_size(size) {
                        // One that fails is the link's end.
                        let _ = link.resize(&self.id.to_string(), size).await;
                    }
                }
                () = link.wait_ended() => return Some(()),
            }
        }
    }

    async fn released(&mut self) {
        while self.sizes.changed().await.is_ok() {}
    }
}

fn screen_size(size: PtySize) -> Result<ScreenSize, ScreenAccessError> {
    ScreenSize::new(size.columns().into(), size.rows().into()).map_err(|_| ScreenAccessError::Unavailable)
}
