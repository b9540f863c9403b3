//! This process attached to a terminal: keys and window sizes go there, output comes here, until the command ends or the person
//! leaves.
//!
//! When the gateway is restarted it comes back and goes on at its offset. It stops no command: that is its caller's.

use std::{io::IsTerminal, os::fd::AsFd};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{Receiver, Sender, channel},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{
    connection::Terminals,
    reconnect::{Outage, Restarts},
};
use crate::{
    cli::console::{
        error::CliError,
        person_terminal::{self, DetachKeys, LeaveAt, OutputStream, RawTerminal, Typed},
        signals::TerminationSignals,
        stdio::{self, Input, WriteOutcome},
    },
    client::reason_of,
    proto::v1::{
        self, AttachRequest, AttachResponse, AttachStart, attach_request::Message, attach_response::Event,
    },
    stdio::Output,
    sys::pty,
};

/// Messages on the way to the gateway.
const QUEUED_MESSAGES: usize = 16;
/// The most that is typed in one message.
const INPUT_BYTES: usize = 32 << 10;

/// How to attach.
pub(in crate::cli) struct AttachOptions {
    /// The terminal.
    pub(in crate::cli) terminal_id: String,
    /// Where in its output to begin.
    pub(in crate::cli) from: StartAt,
    /// What is typed.
    pub(in crate::cli) input: Input,
    /// The keys that leave.
    pub(in crate::cli) detach: DetachKeys,
    /// Whether a gateway that ends can be followed by another one.
    pub(in crate::cli) restarts: Restarts,
    /// Whose size the terminal has.
    pub(in crate::cli) window: WindowMode,
    /// Whether it is a pseudo-terminal.
    pub(in crate::cli) is_pty: bool,
}

/// What the size of this process's window means for the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum WindowMode {
    /// It gets the same size.
    Followed,
    /// Nothing.
    Ignored,
}

/// The reason for a refusal of input by a command without stdin.
const STDIN_CLOSED: &str = "STDIN_CLOSED";

/// Where in a terminal's output to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum StartAt {
    /// At this offset.
    Offset(u64),
    /// With what the screen shows; without one, with this many of the last bytes.
    Screen {
        /// Without a screen.
        tail_bytes: u64,
    },
}

/// Why this process is not attached any more.
pub(in crate::cli) enum AttachEnd {
    /// The command has ended.
    Ended(Option<Box<v1::Outcome>>),
    /// The person has left.
    Detached,
    /// This process was asked to end.
    Signal(SignalKind),
    /// Nobody reads this process's output.
    ReaderGone,
}

/// The window of this process's terminal, if stdin is one.
pub(in crate::cli) fn own_window() -> Option<v1::Pty> {
    let size = pty::size(std::io::stdin().as_fd()).ok()?;
    // A terminal whose size nobody has set.
    let (columns, rows) =
        if size.columns == 0 || size.rows == 0 { (80, 24) } else { (size.columns, size.rows) };
    let (columns, rows) = (columns.clamp(2, 1_000), rows.clamp(1, 500));
    let columns = columns.min((200_000 / u32::from(rows)).try_into().unwrap_or(u16::MAX));
    let term = std::env::var("TERM").ok().filter(|term| term.len() <= 128).unwrap_or_default();
    Some(v1::Pty { columns: columns.into(), rows: rows.into(), term })
}

/// The window of a terminal that nobody sits at.
pub(in crate::cli) fn usual_window() -> v1::Pty {
    v1::Pty { columns: 80, rows: 24, term: String::new() }
}

/// The reason for a refusal of a pseudo-terminal.
pub(in crate::cli) fn no_terminal() -> CliError {
    CliError::message_only("-t needs a terminal on stdin, and it is none".to_owned())
        .with_advice("leave -t out: output then comes by pipes")
}

/// Stays attached, and returns where in the output it was. The person's terminal is in raw mode meanwhile, if its keys are passed on.
pub(in crate::cli) async fn attach(
    terminals: Terminals,
    options: AttachOptions,
    signals: &mut TerminationSignals,
) -> Result<(AttachEnd, StartAt), CliError> {
    let (is_pty, is_typed) = (options.is_pty, options.input == Input::Forwarded);
    let is_raw = is_typed && options.window == WindowMode::Followed && std::io::stdin().is_terminal();
    let raw = is_raw.then(RawTerminal::enter).transpose();
    let raw = raw.map_err(|error| CliError::caused_by("cannot put the terminal into raw mode", error))?;
    let window_changes = signal(SignalKind::window_change());
    let stops = signal(SignalKind::from_raw(nix::libc::SIGTSTP));
    let no_signals = |error| CliError::caused_by("cannot take signals", error);
    let mut attachment = Attachment {
        terminals,
        offset: options.from,
        is_following_window: options.window == WindowMode::Followed,
        typed: if is_typed { read_stdin() } else { channel(1).1 },
        is_typing: is_typed,
        takes_input: true,
        pending: None,
        detach: options.detach,
        raw,
        window_changes: window_changes.map_err(no_signals)?,
        stops: stops.map_err(no_signals)?,
        missed_bytes: 0,
        stdout: OutputStream::stdout(),
        restarts: options.restarts,
        terminal_id: options.terminal_id,
    };
    let end = attachment.stay(options.restarts, signals).await;
    match end {
        // The program goes on, and with it what it has asked the terminal for.
        Ok(AttachEnd::Detached) | Err(_) if is_pty => person_terminal::leave(LeaveAt::NewLine),
        Ok(AttachEnd::Detached | AttachEnd::Ended(_)) | Err(_) => person_terminal::leave(LeaveAt::Cursor),
        // The caller may attach again.
        Ok(AttachEnd::Signal(_) | AttachEnd::ReaderGone) => {}
    }
    // Before anything is printed.
    attachment.raw = None;
    if attachment.missed_bytes > 0 {
        stdio::print_notice(&format!(
            "{} bytes of the output came too fast, and were not shown",
            attachment.missed_bytes
        ));
    }
    Ok((end?, attachment.offset))
}

struct Attachment {
    terminals: Terminals,
    terminal_id: String,
    offset: StartAt,
    is_following_window: bool,
    typed: Receiver<Vec<u8>>,
    is_typing: bool,
    /// Whether the command has a stdin that is open. Without one only the keys that leave count.
    takes_input: bool,
    /// What the gateway has not taken yet.
    pending: Option<Message>,
    detach: DetachKeys,
    raw: Option<RawTerminal>,
    window_changes: Signal,
    stops: Signal,
    missed_bytes: u64,
    stdout: OutputStream,
    restarts: Restarts,
}

/// What a connection ended with.
enum Disconnect {
    End(AttachEnd),
    Lost(Status),
    /// The person's shell has had the terminal: the screen is drawn again.
    Redrawn,
    /// The command takes no input: the output goes on.
    InputRefused,
}

impl Attachment {
    async fn stay(
        &mut self,
        restarts: Restarts,
        signals: &mut TerminationSignals,
    ) -> Result<AttachEnd, CliError> {
        let mut outage = Outage::new(restarts);
        loop {
            let lost = match self.connect().await {
                Ok((messages, events)) => {
                    outage.over();
                    match self.converse(messages, events, signals).await? {
                        Disconnect::End(end) => return Ok(end),
                        Disconnect::Lost(status) => status,
                        Disconnect::Redrawn => continue,
                        Disconnect::InputRefused => {
                            (self.takes_input, self.pending) = (false, None);
                            continue;
                        }
                    }
                }
                Err(status) => status,
            };
            tokio::select! {
                waited = outage.wait(lost) => waited?,
                signal = signals.next() => return Ok(AttachEnd::Signal(signal)),
            }
        }
    }

    async fn connect(&mut self) -> Result<(Sender<AttachRequest>, Streaming<AttachResponse>), Status> {
        let (messages, received) = channel(QUEUED_MESSAGES);
        let (offset, tail_bytes) = match self.offset {
            StartAt::Offset(offset) => (offset, None),
            StartAt::Screen { tail_bytes } => (0, Some(tail_bytes)),
        };
        let start = AttachStart {
            terminal_id: self.terminal_id.clone(),
            session_id: String::new(),
            offset,
            tail_bytes,
            size: self.window(),
            restore_screen: tail_bytes.is_some(),
        };
        // The receiver is held, and has room.
        let _ = messages.try_send(AttachRequest { message: Some(Message::Start(start)) });
        let events = self.terminals.attach(ReceiverStream::new(received)).await?.into_inner();
        Ok((messages, events))
    }

    fn window(&self) -> Option<v1::Pty> {
        if self.is_following_window { own_window() } else { None }
    }

    async fn converse(
        &mut self,
        messages: Sender<AttachRequest>,
        mut events: Streaming<AttachResponse>,
        signals: &mut TerminationSignals,
    ) -> Result<Disconnect, CliError> {
        let mut stdout = crate::stdio::stdout();
        loop {
            tokio::select! {
                event = events.message() => {
                    let event = match event {
                        Ok(event) => event.and_then(|event| event.event),
                        Err(status) if self.takes_input && reason_of(&status) == STDIN_CLOSED => {
                            return Ok(Disconnect::InputRefused);
                        }
                        Err(status) => return Ok(Disconnect::Lost(status)),
                    };
                    match event {
                        Some(Event::Attached(_)) => {}
                        Some(Event::Restored(screen)) => {
                            self.offset = StartAt::Offset(screen.offset);
                            if let WriteOutcome::ReaderGone = self.show(&mut stdout, &screen.data).await? {
                                return Ok(Disconnect::End(AttachEnd::ReaderGone));
                            }
                        }
                        Some(Event::Chunk(chunk)) => {
                            self.offset = StartAt::Offset(chunk.offset + chunk.data.len() as u64);
                            if let WriteOutcome::ReaderGone = self.show(&mut stdout, &chunk.data).await? {
                                return Ok(Disconnect::End(AttachEnd::ReaderGone));
                            }
                        }
                        Some(Event::Gap(gap)) => {
                            self.missed_bytes += gap.to_offset.saturating_sub(gap.from_offset);
                            self.offset = StartAt::Offset(gap.to_offset);
                        }
                        Some(Event::End(end)) => return Ok(Disconnect::End(AttachEnd::Ended(end.outcome.map(Box::new)))),
                        None => return Ok(Disconnect::Lost(Status::unavailable("the gateway ended the call"))),
                    }
                }
                // Keys are read only as fast as the gateway takes them.
                permit = messages.reserve(), if self.pending.is_some() => match permit {
                    Ok(permit) => permit.send(AttachRequest { message: self.pending.take() }),
                    // The response says why.
                    Err(_) => self.pending = None,
                },
                typed = self.typed.recv(), if self.is_typing && self.pending.is_none() => match typed {
                    Some(typed) => match self.detach.take(&typed) {
                        Typed::Pass(bytes) if bytes.is_empty() || !self.takes_input => {}
                        Typed::Pass(bytes) => self.pending = Some(Message::Input(bytes.into())),
                        // What was typed before is worth waiting for no longer.
                        Typed::Detach(bytes) => {
                            if !bytes.is_empty() && self.takes_input {
                                let message = Some(Message::Input(bytes.into()));
                                let _ = messages.try_send(AttachRequest { message });
                            }
                            return Ok(Disconnect::End(AttachEnd::Detached));
                        }
                    },
                    None => {
                        self.is_typing = false;
                        self.pending =
                            self.takes_input.then_some(Message::EndOfInput(v1::EndOfInput {}));
                    }
                },
                _ = self.window_changes.recv() => self.send_window(&messages),
                _ = self.stops.recv(), if self.raw.is_some() => {
                    // A gateway within this process keeps no screens that could be drawn again.
                    let is_redrawn =
                        self.restarts == Restarts::Followed && matches!(self.offset, StartAt::Offset(_));
                    if is_redrawn {
                        person_terminal::leave(LeaveAt::NewLine);
                    }
                    if let Some(raw) = &self.raw {
                        raw.stop_process().map_err(|error| CliError::caused_by("cannot stop for the shell", error))?;
                    }
                    if is_redrawn {
                        self.offset = StartAt::Screen { tail_bytes: 0 };
                        return Ok(Disconnect::Redrawn);
                    }
                    self.send_window(&messages);
                }
                signal = signals.next() => return Ok(Disconnect::End(AttachEnd::Signal(signal))),
            }
        }
    }

    async fn show(
        &mut self,
        stdout: &mut Output<std::io::Stdout>,
        bytes: &[u8],
    ) -> Result<WriteOutcome, CliError> {
        let written = stdio::write_all(stdout, &self.stdout.shown(bytes)).await;
        written.map_err(|error| CliError::caused_by("cannot write the command's output", error))
    }

    /// Sends the size of the window. One that finds no room is followed by a later one, or by that of the next connection.
    fn send_window(&self, messages: &Sender<AttachRequest>) {
        if let Some(window) = self.window() {
            let _ = messages.try_send(AttachRequest { message: Some(Message::Resize(window)) });
        }
    }
}

/// Reads stdin until its end. A person's keys come one by one.
fn read_stdin() -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel(1);
    tokio::spawn(async move {
        let mut stdin = crate::stdio::stdin();
        loop {
            match stdio::next_input(&mut stdin).await {
                Ok(Some(bytes)) => {
                    for bytes in bytes.chunks(INPUT_BYTES) {
                        if sender.send(bytes.to_vec()).await.is_err() {
                            return;
                        }
                    }
                }
                Ok(None) => return,
                Err(error) => return stdio::print_notice(&format!("cannot read stdin: {error}")),
            }
        }
    });
    receiver
}
