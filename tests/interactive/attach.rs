//! Callers who are attached to a terminal: each types, sees all output, and holds up nobody.

use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use crate::{
    interactive::keyboard::{InPty, Keyboard, shell},
    support::{
        Gateway, Refusal, Session, Terminal,
        api::{
            AttachRequest, AttachResponse, AttachStart, OutputEnd, Pty, attach_request::Message,
            attach_response::Event, outcome::End,
        },
        code, in_session, is_root, skip, within,
    },
};

/// An attached caller.
struct Attached {
    messages: Sender<AttachRequest>,
    events: Streaming<AttachResponse>,
    seen: Vec<u8>,
    gaps: u64,
}

impl Attached {
    async fn try_begin(terminal: &Terminal, first: Message) -> Result<Self, Refusal> {
        let (messages, received) = channel(16);
        messages.send(AttachRequest { message: Some(first) }).await.expect("it is held");
        let mut terminals = terminal.caller.terminals.clone();
        let events = within("Attach", terminals.attach(ReceiverStream::new(received))).await;
        Ok(Self { messages, events: events.map_err(Refusal::from)?.into_inner(), seen: Vec::new(), gaps: 0 })
    }

    async fn begin(terminal: &Terminal, change: impl FnOnce(&mut AttachStart)) -> Self {
        let mut start = AttachStart { terminal_id: terminal.id.clone(), ..AttachStart::default() };
        change(&mut start);
        let mut attached =
            Self::try_begin(terminal, Message::Start(start)).await.expect("it can be attached");
        let first = within("the first event", attached.events.message()).await.expect("it is attached");
        assert!(
            matches!(first.and_then(|first| first.event), Some(Event::Attached(found)) if found.id == terminal.id)
        );
        attached
    }

    async fn types(&self, keys: &str) {
        let message = Message::Input(keys.as_bytes().to_vec().into());
        self.messages.send(AttachRequest { message: Some(message) }).await.expect("it is attached");
    }

    async fn next(&mut self) -> Option<OutputEnd> {
        let event = within("an event", self.events.message()).await.expect("the stream goes on");
        match event.and_then(|event| event.event) {
            Some(Event::Chunk(chunk)) => self.seen.extend_from_slice(&chunk.data),
            Some(Event::Gap(gap)) => self.gaps += gap.to_offset - gap.from_offset,
            Some(Event::End(end)) => return Some(end),
            Some(Event::Attached(_) | Event::Restored(_)) | None => panic!("no such event comes later"),
        }
        None
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    async fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.next().await.is_none(), "ended without {text:?}: {:?}", self.text());
        }
    }

    /// The shell reads keys as they are: what is typed while it sets its terminal up may be lost.
    async fn until_prompt(&mut self) {
        while !self.text().ends_with("ready> ") {
            assert!(self.next().await.is_none(), "ended without a prompt: {:?}", self.text());
        }
    }

    async fn until_end(&mut self) -> OutputEnd {
        loop {
            if let Some(end) = self.next().await {
                return end;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_are_attached_type_and_see_the_same() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = shell(session).await;
        let mut one = Attached::begin(&terminal, |start| {
            start.size = Some(Pty { columns: 71, rows: 19, ..Pty::default() });
        })
        .await;
        let mut two = Attached::begin(&terminal, |start| start.tail_bytes = Some(0)).await;
        one.types("stty size\r").await;
        two.until("19 71").await;
        // A byte a message, and more messages than a call may have pieces.
        for key in "# ".repeat(1_000).chars() {
            two.types(&key.to_string()).await;
        }
        two.types("\recho both-$((1 + 1))\r").await;
        one.until("both-2").await;
        one.until_prompt().await;
        let size = Pty { columns: 72, rows: 20, ..Pty::default() };
        two.messages
            .send(AttachRequest { message: Some(Message::Resize(size)) })
            .await
            .expect("it is attached");
        two.types("stty size\r").await;
        one.until("20 72").await;
        one.until_prompt().await;
        // Who goes away ends nothing.
        drop(one);
        two.types("exit 9\r").await;
        let end = two.until_end().await;
        assert_eq!(end.outcome.and_then(|outcome| outcome.end), Some(End::ExitCode(9)));
        assert_eq!(two.gaps, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_does_not_read_holds_up_neither_the_command_nor_the_others() {
    in_session(&Gateway::shared(), async |session| {
        let flood = "read go; seq 3000000; echo over";
        let terminal = session.sh(flood).pty(80, 24).retain(1 << 20).create().await;
        let mut stopped = Attached::begin(&terminal, |_| {}).await;
        let mut reader = Attached::begin(&terminal, |_| {}).await;
        stopped.types("\r").await;
        let end = reader.until_end().await;
        assert_eq!(end.outcome.and_then(|outcome| outcome.end), Some(End::ExitCode(0)));
        assert!(reader.text().ends_with("over\r\n"));
        assert_eq!(code(&terminal.wait().await), 0);
        // It comes late, and is told what it has missed.
        let end = stopped.until_end().await;
        assert!(stopped.gaps > 0 && stopped.text().ends_with("over\r\n"), "{} bytes missed", stopped.gaps);
        assert_eq!(stopped.gaps + stopped.seen.len() as u64, end.next_offset);
    })
    .await;
}

#[tokio::test]
async fn who_may_not_attach_is_refused() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let terminal = shell(session).await;
        let first = Message::Input(b"x".to_vec().into());
        let refusal = Attached::try_begin(&terminal, first).await.err().expect("it has not begun");
        refusal.must_name_the_field("start");
        let unknown =
            AttachStart { terminal_id: "term_01JD3ZK6T00000000000000000".into(), ..Default::default() };
        let refusal =
            Attached::try_begin(&terminal, Message::Start(unknown)).await.err().expect("there is none");
        assert_eq!(refusal.code, Code::NotFound, "{refusal:?}");
        let mut attached = Attached::begin(&terminal, |_| {}).await;
        attached.types(&"x".repeat(100_000)).await;
        let failed = loop {
            match within("the refusal", attached.events.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("too long a message was taken"),
                Err(status) => break status,
            }
        };
        assert_eq!(failed.code(), Code::ResourceExhausted, "{failed:?}");
        if !is_root() {
            return skip("only root can be another principal");
        }
        let other = Session::open_as(&gateway, 43_210).await;
        let foreign = terminal.over(&other.caller);
        assert_eq!(foreign.resize(80, 24).await.expect_err("it is another's").code, Code::NotFound);
        let start = AttachStart { terminal_id: terminal.id.clone(), ..AttachStart::default() };
        let refusal =
            Attached::try_begin(&foreign, Message::Start(start)).await.err().expect("it is another's");
        assert_eq!(refusal.code, Code::NotFound, "{refusal:?}");
        other.close().await;
    })
    .await;
}

#[tokio::test]
#[ignore = "long: longer than a request may take to arrive"]
async fn who_types_nothing_for_long_stays_attached() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = shell(session).await;
        let mut attached = Attached::begin(&terminal, |_| {}).await;
        tokio::time::sleep(std::time::Duration::from_secs(35)).await;
        attached.types("echo still-$((1 + 1))\r").await;
        attached.until("still-2").await;
        terminal.types("exit\r").await;
        attached.until_end().await;
    })
    .await;
}
