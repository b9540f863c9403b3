//! A kept shell and the lines that run in it, as a caller of RunLine sees them.

use tonic::Streaming;

use crate::{
    interactive::keyboard::InPty,
    support::{
        Refusal, Session, Terminal,
        api::{
            GetShellRequest, GetShellResponse, InterruptLineRequest, KeptShell, LineDoubt, LineEnd,
            LineEnding, RunLineRequest, RunLineResponse, ShellActivity, WhenBusy, WriteLineInputRequest,
            run_line_response::Event,
        },
        api_duration, within,
    },
};

/// What a line did.
#[derive(Debug)]
pub(super) struct Ran {
    pub output: String,
    pub end: LineEnd,
    pub waited: bool,
}

impl Ran {
    /// Fails unless the shell confirmed the end and nothing is doubtful.
    pub(super) fn must_be(&self, output: &str, status: u32) {
        assert_eq!(self.end.ending(), LineEnding::Confirmed, "{self:?}");
        assert_eq!(self.end.doubts().count(), 0, "{self:?}");
        assert_eq!(self.output.replace("\r\n", "\n"), output, "{self:?}");
        assert_eq!(self.end.exit_status, Some(status), "{self:?}");
    }

    pub(super) fn has_doubt(&self, doubt: LineDoubt) -> bool {
        self.end.doubts().any(|one| one == doubt)
    }
}

/// A line that runs.
pub(super) struct Running {
    pub events: Streaming<RunLineResponse>,
    pub id: String,
    output: Vec<u8>,
    waited: bool,
}

impl Running {
    async fn next(&mut self) -> Option<LineEnd> {
        let event = within("an event of the line", self.events.message()).await.expect("the line goes on");
        match event.and_then(|event| event.event).expect("an end comes") {
            Event::Started(started) => self.id = started.line_id,
            Event::Chunk(chunk) => self.output.extend_from_slice(&chunk.data),
            Event::Gap(gap) => panic!("{gap:?}"),
            Event::Waits(_) => self.waited = true,
            Event::End(end) => return Some(end),
        }
        None
    }

    pub(super) async fn until_output(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.output).contains(text) {
            let ended = self.next().await;
            assert!(ended.is_none(), "ended without {text:?}: {ended:?}");
        }
    }

    pub(super) async fn until_it_waits(&mut self) {
        while !self.waited {
            let ended = self.next().await;
            assert!(ended.is_none(), "{ended:?}");
        }
    }

    pub(super) async fn finish(mut self) -> Ran {
        let end = loop {
            if let Some(end) = self.next().await {
                break end;
            }
        };
        let output = String::from_utf8_lossy(&self.output).into_owned();
        let length = end.end_offset - end.start_offset;
        assert_eq!(
            length,
            self.output.len() as u64,
            "the offsets say what the output is: {end:?} {output:?}"
        );
        Ran { output, end, waited: self.waited }
    }
}

/// A kept shell of this name; empty: the profile's.
pub(super) async fn kept(session: &Session, shell: &str) -> Terminal {
    let command = session.command(shell).pty(80, 24).with(|request| {
        request.kept_shell = Some(KeptShell {});
        if shell.is_empty() {
            request.command = None;
        }
    });
    command.create().await
}

pub(super) fn request(terminal: &Terminal, line: &str) -> RunLineRequest {
    RunLineRequest {
        terminal_id: terminal.id.clone(),
        session_id: terminal.session_id.clone(),
        line: line.to_owned(),
        ..RunLineRequest::default()
    }
}

pub(super) trait KeptShellCalls {
    async fn try_line(&self, request: RunLineRequest) -> Result<Running, Refusal>;
    async fn begin(&self, line: &str) -> Running;
    async fn line(&self, line: &str) -> Ran;
    async fn line_with(&self, line: &str, change: impl FnOnce(&mut RunLineRequest)) -> Ran;
    async fn status(&self) -> GetShellResponse;
    async fn waits_until(&self, activity: ShellActivity) -> GetShellResponse;
    async fn interrupt(&self);
    async fn give(&self, line_id: &str, input: &str) -> Result<(), Refusal>;
}

impl KeptShellCalls for Terminal {
    async fn try_line(&self, request: RunLineRequest) -> Result<Running, Refusal> {
        let mut terminals = self.caller.terminals.clone();
        let events = within("RunLine", terminals.run_line(request)).await.map_err(Refusal::from)?;
        Ok(Running { events: events.into_inner(), id: String::new(), output: Vec::new(), waited: false })
    }

    async fn begin(&self, line: &str) -> Running {
        let mut running = self.try_line(request(self, line)).await.expect("the line is run");
        while running.id.is_empty() {
            let ended = running.next().await;
            assert!(ended.is_none(), "{ended:?}");
        }
        running
    }

    async fn line(&self, line: &str) -> Ran {
        self.line_with(line, |_| {}).await
    }

    async fn line_with(&self, line: &str, change: impl FnOnce(&mut RunLineRequest)) -> Ran {
        let mut request = request(self, line);
        change(&mut request);
        self.try_line(request).await.expect("the line is run").finish().await
    }

    async fn status(&self) -> GetShellResponse {
        let request = GetShellRequest { terminal_id: self.id.clone(), session_id: self.session_id.clone() };
        let mut terminals = self.caller.terminals.clone();
        within("GetShell", terminals.get_shell(request)).await.expect("it is a shell").into_inner()
    }

    async fn waits_until(&self, activity: ShellActivity) -> GetShellResponse {
        within(&format!("{activity:?}"), async {
            loop {
                let status = self.status().await;
                if status.activity() == activity {
                    return status;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await
    }

    async fn interrupt(&self) {
        let request =
            InterruptLineRequest { terminal_id: self.id.clone(), session_id: self.session_id.clone() };
        let mut terminals = self.caller.terminals.clone();
        within("InterruptLine", terminals.interrupt_line(request)).await.expect("it runs");
    }

    async fn give(&self, line_id: &str, input: &str) -> Result<(), Refusal> {
        let request = WriteLineInputRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            line_id: line_id.to_owned(),
            data: input.as_bytes().to_vec().into(),
            eof: false,
        };
        let mut terminals = self.caller.terminals.clone();
        within("WriteLineInput", terminals.write_line_input(request)).await.map(drop).map_err(Refusal::from)
    }
}

/// Ends after this time without output if the marks are missing.
pub(super) fn quiet(request: &mut RunLineRequest) {
    request.quiet_limit = Some(api_duration(std::time::Duration::from_secs(1)));
}

pub(super) fn queued(request: &mut RunLineRequest) {
    request.when_busy = WhenBusy::Queue.into();
}
