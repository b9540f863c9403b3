//! A person at the keyboard of a terminal.

use std::time::Duration;

use crate::support::{
    Command, EndOfInput, Refusal, Session, Terminal,
    api::{Pty, ResizeTerminalRequest},
    within,
};

/// Ctrl-C, Ctrl-Z.
pub(super) const INTERRUPT: &str = "\u{3}";
pub(super) const SUSPEND: &str = "\u{1a}";

/// The command in a pseudo-terminal.
pub(super) trait InPty {
    fn pty(self, columns: u32, rows: u32) -> Self;
}

impl InPty for Command {
    fn pty(self, columns: u32, rows: u32) -> Self {
        self.with(|request| request.pty = Some(Pty { columns, rows, term: String::new() }))
    }
}

/// A shell at its prompt, without start files.
pub(super) async fn shell(session: &Session) -> Terminal {
    let terminal = session.command("bash").args(["--norc", "--noprofile", "-i"]).pty(80, 24).create().await;
    // Policy refuses PS1 as a variable of the request. What is echoed is not the prompt.
    terminal.types_until("PS1=ready''\\>\\ \r", "ready> ").await;
    terminal
}

pub(super) trait Keyboard {
    /// Types, without waiting for what comes of it.
    async fn types(&self, keys: &str);
    /// Types, and waits until `text` comes after it.
    async fn types_until(&self, keys: &str, text: &str) -> String;
    /// Changes the size of the window.
    async fn resize(&self, columns: u32, rows: u32) -> Result<(), Refusal>;
}

impl Keyboard for Terminal {
    async fn types(&self, keys: &str) {
        let written =
            self.write(keys.as_bytes(), EndOfInput::NotYet).await.expect("the terminal takes input");
        assert_eq!(written, keys.len() as u64);
    }

    async fn types_until(&self, keys: &str, text: &str) -> String {
        let before = self.output().await.next_offset;
        self.types(keys).await;
        let mut events = self.stream(Default::default(), before, crate::support::Follow::Yes).await;
        let mut seen = Vec::new();
        loop {
            use crate::support::api::stream_output_response::Event;
            let event = within(text, events.message()).await.expect("the stream goes on");
            match event.and_then(|event| event.event) {
                Some(Event::Chunk(chunk)) => seen.extend_from_slice(&chunk.data),
                Some(Event::Gap(gap)) => panic!("{gap:?} before {text:?}"),
                Some(Event::End(_)) | None => {
                    panic!("ended without {text:?}: {:?}", String::from_utf8_lossy(&seen))
                }
            }
            let so_far = String::from_utf8_lossy(&seen);
            if so_far.contains(text) {
                return so_far.into_owned();
            }
        }
    }

    async fn resize(&self, columns: u32, rows: u32) -> Result<(), Refusal> {
        let request = ResizeTerminalRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            columns,
            rows,
        };
        let mut terminals = self.caller.terminals.clone();
        within("Resize", terminals.resize_terminal(request)).await.map(drop).map_err(Refusal::from)
    }
}

/// What must be quick is quick also on a loaded machine, compared with what it must not wait for.
pub(super) const LONG_GRACE: Duration = Duration::from_secs(120);
