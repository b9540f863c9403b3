//! Sessions and terminals as a caller uses them: short words for the calls of the API, and the checks that hold
//! for every use of them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use prost_types::Duration as ApiDuration;
use tonic::Streaming;

use crate::{
    Attack, Caller, DEADLINE, Gateway, Refusal,
    api::{
        self, CloseSessionRequest, CreateSessionRequest, CreateTerminalRequest, EnvVar, ExitCause,
        GetOutputRequest, GetOutputResponse, GetTerminalRequest, KillTerminalRequest, Outcome, OutputMode,
        OutputStream, ReleaseTerminalRequest, RunRequest, RunResponse, SignalTerminalRequest, StdinMode,
        StreamOutputRequest, StreamOutputResponse, TerminalState, WaitForExitRequest, WriteInputRequest,
        create_terminal_request, outcome::End, run_response, stream_output_response,
    },
    within,
};

/// A session with a workspace of its own on the host.
pub struct Session {
    /// Who opened it.
    pub caller: Caller,
    /// Its id.
    pub id: String,
    /// Its one root, on the host and in the sandbox.
    pub workspace: PathBuf,
    /// The gateway.
    pub gateway: Arc<Gateway>,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Runs a test's body in a session of the gateway, and closes the session after it.
pub async fn in_session(gateway: &Arc<Gateway>, body: impl AsyncFnOnce(&Session)) {
    let session = Session::open(gateway).await;
    body(&session).await;
    session.close().await;
    gateway.marker_must_be_untouched();
}

/// Whole seconds, as the API writes them.
pub fn seconds(n: i64) -> ApiDuration {
    ApiDuration { seconds: n, nanos: 0 }
}

/// Any duration, as the API writes it.
pub fn api_duration(d: Duration) -> ApiDuration {
    ApiDuration { seconds: d.as_secs() as i64, nanos: d.subsec_nanos() as i32 }
}

/// The exit code; fails for a signal.
pub fn code(outcome: &Outcome) -> u32 {
    match &outcome.end {
        Some(End::ExitCode(code)) => *code,
        other => panic!("ended with {other:?} and not with a code: {outcome:?}"),
    }
}

/// The signal's name; fails for an exit code.
pub fn signal_name(outcome: &Outcome) -> &str {
    match &outcome.end {
        Some(End::Signal(name)) => name,
        other => panic!("ended with {other:?} and not with a signal: {outcome:?}"),
    }
}

impl Session {
    /// Opens a session as this process.
    pub async fn open(gateway: &Arc<Gateway>) -> Self {
        let caller = gateway.caller().await;
        Self::open_with(gateway, caller, None, |_| {}).await
    }

    /// Opens a session as another user, who owns the workspace.
    pub async fn open_as(gateway: &Arc<Gateway>, uid: u32) -> Self {
        let caller = gateway.caller_as(uid).await;
        Self::open_with(gateway, caller, Some(uid), |_| {}).await
    }

    /// Opens a session with a changed request.
    pub async fn open_with(
        gateway: &Arc<Gateway>,
        mut caller: Caller,
        owner: Option<u32>,
        change: impl FnOnce(&mut CreateSessionRequest),
    ) -> Self {
        let workspace = new_workspace(gateway, owner);
        let mut request = CreateSessionRequest {
            roots: vec![workspace.display().to_string()],
            ..CreateSessionRequest::default()
        };
        change(&mut request);
        let session = within("a session", caller.sessions.create_session(request))
            .await
            .expect("a session can be opened");
        let session = session.into_inner().session.expect("it is set");
        assert!(session.id.starts_with("sess_"), "a session's id: {}", session.id);
        Self { caller, id: session.id, workspace, gateway: gateway.clone() }
    }

    /// Goes on over another connection: the old one has ended with its gateway.
    pub fn go_on(&mut self, caller: &Caller) {
        self.caller = caller.clone();
    }

    /// A command in this session.
    pub fn command(&self, program: &str) -> Command {
        Command {
            caller: self.caller.clone(),
            request: CreateTerminalRequest {
                session_id: self.id.clone(),
                command: Some(create_terminal_request::Command::Program(program.to_owned())),
                ..CreateTerminalRequest::default()
            },
        }
    }

    /// The one terminal of this session, once it is there.
    pub async fn only_terminal(&self) -> Terminal {
        let request = api::ListTerminalsRequest { session_id: self.id.clone(), ..Default::default() };
        let info = within("the session's terminal", async {
            loop {
                let listed =
                    self.caller.terminals.clone().list_terminals(request.clone()).await.expect("a list");
                if let Some(info) = listed.into_inner().terminals.pop() {
                    return info;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        Terminal { caller: self.caller.clone(), id: info.id.clone(), session_id: self.id.clone(), info }
    }

    /// `sh -c SCRIPT` in this session.
    pub fn sh(&self, script: &str) -> Command {
        self.command("sh").args(["-c", script])
    }

    /// An attack program, put into the workspace, in this session.
    pub fn attack(&self, name: &str) -> Command {
        let placed = Attack::compiled(name).placed_in(&self.workspace);
        self.command(&placed.display().to_string())
    }

    /// A single process that says "ready" and waits to be ended, to be found by a marker.
    pub fn idle(&self, marker: &str) -> Command {
        self.attack("escape").args(["idle", marker])
    }

    /// A text that no other test uses, to find processes by.
    pub fn marker(&self) -> String {
        format!("marker-{}-{}-{}", std::process::id(), self.id, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes the session; fails if any cgroup or process is left that names it.
    pub async fn close(&self) {
        let request = CloseSessionRequest { session_id: self.id.clone() };
        within("the session's close", self.caller.sessions.clone().close_session(request))
            .await
            .expect("a session can be closed");
    }
}

/// Makes an empty directory, owned by a user or by this process.
pub fn new_workspace(gateway: &Gateway, owner: Option<u32>) -> PathBuf {
    let directory = gateway.directory().join(format!("workspace-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&directory).expect("a workspace can be made");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("the workspace is ours");
    if let Some(uid) = owner {
        chown(&directory, Some(uid), Some(uid)).expect("root can give a directory away");
    }
    directory
}

/// A command that is about to be created.
#[derive(Clone)]
pub struct Command {
    caller: Caller,
    /// The request, for what has no word here.
    pub request: CreateTerminalRequest,
}

impl Command {
    /// The same command over another connection.
    pub fn over(mut self, caller: &Caller) -> Self {
        self.caller = caller.clone();
        self
    }

    /// The program's name is a line for the shell.
    pub fn shell_line(mut self) -> Self {
        use create_terminal_request::Command::{Program, ProgramBytes, ShellLine, ShellLineBytes};
        self.request.command = self.request.command.map(|command| match command {
            Program(text) | ShellLine(text) => ShellLine(text),
            ProgramBytes(bytes) | ShellLineBytes(bytes) => ShellLineBytes(bytes),
        });
        self
    }

    /// More arguments.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.request.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.request.env.push(EnvVar {
            name: name.to_owned(),
            value: value.to_owned(),
            ..Default::default()
        });
        self
    }

    /// The working directory.
    pub fn cwd(mut self, path: impl AsRef<Path>) -> Self {
        self.request.cwd = path.as_ref().display().to_string();
        self
    }

    /// Bytes of output to retain.
    pub fn retain(mut self, bytes: u64) -> Self {
        self.request.output_byte_limit = Some(bytes);
        self
    }

    /// stdout and stderr apart.
    pub fn split(mut self) -> Self {
        self.request.output_mode = OutputMode::Split as i32;
        self
    }

    /// stdin is a pipe.
    pub fn stdin(mut self) -> Self {
        self.request.stdin_mode = StdinMode::Open as i32;
        self
    }

    /// The time between TERM and KILL.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.request.kill_grace = Some(api_duration(grace));
        self
    }

    /// The idempotence key.
    pub fn request_id(mut self, id: &str) -> Self {
        self.request.request_id = id.to_owned();
        self
    }

    /// Any other change of the request.
    pub fn with(mut self, change: impl FnOnce(&mut CreateTerminalRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// The request itself.
    pub fn into_request(self) -> CreateTerminalRequest {
        self.request
    }

    /// Creates the terminal, or gives the refusal.
    pub async fn try_create(mut self) -> Result<Terminal, Refusal> {
        let session_id = self.request.session_id.clone();
        let answer = within("a terminal", self.caller.terminals.create_terminal(self.request)).await;
        let info = answer.map_err(Refusal::from)?.into_inner().terminal.expect("it is set");
        assert!(info.id.starts_with("term_"), "a terminal's id: {}", info.id);
        Ok(Terminal { caller: self.caller, id: info.id.clone(), session_id, info })
    }

    /// Creates the terminal.
    pub async fn create(self) -> Terminal {
        self.try_create().await.unwrap_or_else(|refusal| panic!("the command was refused: {refusal:#?}"))
    }

    /// Fails unless the command is refused.
    pub async fn refusal(self) -> Refusal {
        match self.try_create().await {
            Ok(terminal) => panic!("the command was not refused: {:?}", terminal.info),
            Err(refusal) => refusal,
        }
    }

    /// Creates, waits for the end, reads the output, releases.
    pub async fn finish(self) -> Finished {
        let terminal = self.create().await;
        let outcome = terminal.wait().await;
        let output = terminal.output().await;
        terminal.release().await;
        Finished { outcome, output: output.data.to_vec(), id: terminal.id.clone() }
    }

    /// Runs through `Run`, in one call.
    pub async fn run(mut self) -> Result<Streaming<RunResponse>, Refusal> {
        let request = RunRequest { create: Some(self.request), resumable: false };
        within("a run", self.caller.terminals.run(request))
            .await
            .map(|a| a.into_inner())
            .map_err(Refusal::from)
    }
}

/// A command that has run to its end.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// What was retained of its (merged) output.
    pub output: Vec<u8>,
    /// The id it had.
    pub id: String,
}

impl Finished {
    /// The output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// A terminal.
#[derive(Clone)]
pub struct Terminal {
    /// Whose.
    pub caller: Caller,
    /// Its id.
    pub id: String,
    /// Its session's.
    pub session_id: String,
    /// What Create answered.
    pub info: api::Terminal,
}

impl Terminal {
    /// The same terminal over another connection.
    pub fn over(&self, caller: &Caller) -> Self {
        Self { caller: caller.clone(), ..self.clone() }
    }

    /// A request that names it.
    pub fn request(&self) -> GetTerminalRequest {
        GetTerminalRequest { terminal_id: self.id.clone(), session_id: self.session_id.clone() }
    }

    /// A request to wait for its end.
    pub fn wait_request(&self) -> WaitForExitRequest {
        WaitForExitRequest { terminal_id: self.id.clone(), session_id: self.session_id.clone() }
    }

    /// Its present state.
    pub async fn get(&self) -> Result<api::Terminal, Refusal> {
        let mut terminals = self.caller.terminals.clone();
        within("Get", terminals.get_terminal(self.request()))
            .await
            .map(|a| a.into_inner().terminal.expect("it is set"))
            .map_err(Refusal::from)
    }

    /// Waits for the end.
    pub async fn try_wait(&self) -> Result<(TerminalState, Option<Outcome>), Refusal> {
        let mut terminals = self.caller.terminals.clone();
        let answer = within("the end of the command", terminals.wait_for_exit(self.wait_request()))
            .await?
            .into_inner();
        Ok((answer.state(), answer.outcome))
    }

    /// Waits for the end, and checks what is true of every end.
    pub async fn wait(&self) -> Outcome {
        let (state, outcome) = self.try_wait().await.expect("the terminal can be waited for");
        assert_eq!(state, TerminalState::Finished, "the state of an ended terminal");
        let outcome = outcome.expect("a finished terminal has an outcome");
        // Invariant X, and what a receipt promises.
        assert_eq!(outcome.survivors, 0, "survivors: {outcome:?}");
        assert_ne!(outcome.cause(), ExitCause::Unspecified, "every end has a cause: {outcome:?}");
        assert!(
            outcome.end.is_some()
                || !matches!(
                    outcome.cause(),
                    ExitCause::Exited | ExitCause::Signalled | ExitCause::MemoryLimit
                ),
            "an end without code or signal: {outcome:?}"
        );
        outcome
    }

    /// The retained output: the merged stream, or stdout.
    pub async fn output(&self) -> GetOutputResponse {
        self.output_of(OutputStream::Unspecified).await
    }

    /// The retained output of one stream.
    pub async fn output_of(&self, stream: OutputStream) -> GetOutputResponse {
        let request = GetOutputRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            stream: stream as i32,
            as_text: false,
        };
        let mut terminals = self.caller.terminals.clone();
        within("Output", terminals.get_output(request)).await.expect("the output can be read").into_inner()
    }

    /// The retained output as text, cut at characters.
    pub async fn output_text(&self) -> GetOutputResponse {
        let request = GetOutputRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            stream: 0,
            as_text: true,
        };
        let mut terminals = self.caller.terminals.clone();
        within("Output", terminals.get_output(request)).await.expect("the output can be read").into_inner()
    }

    /// The output as it comes, from an offset on.
    pub async fn stream(
        &self,
        stream: OutputStream,
        offset: u64,
        follow: Follow,
    ) -> Streaming<StreamOutputResponse> {
        let request = StreamOutputRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            stream: stream as i32,
            offset,
            follow: follow == Follow::Yes,
        };
        let mut terminals = self.caller.terminals.clone();
        within("StreamOutput", terminals.stream_output(request))
            .await
            .expect("the output can be streamed")
            .into_inner()
    }

    /// Waits until the output contains `text`, and gives all that has come by then.
    pub async fn until(&self, text: &str) -> String {
        let mut events = self.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let mut seen = Vec::new();
        loop {
            let event = tokio::time::timeout(DEADLINE, events.message())
                .await
                .unwrap_or_else(|_| {
                    panic!("waited {DEADLINE:?} in vain for {text:?}: {:?}", String::from_utf8_lossy(&seen))
                })
                .expect("the stream goes on");
            match event.and_then(|e| e.event) {
                Some(stream_output_response::Event::Chunk(chunk)) => seen.extend_from_slice(&chunk.data),
                Some(stream_output_response::Event::Gap(_)) => {}
                Some(stream_output_response::Event::End(end)) => {
                    panic!("the command ended without {text:?}: {:?} {end:?}", String::from_utf8_lossy(&seen))
                }
                None => panic!("the stream ended without an end"),
            }
            let so_far = String::from_utf8_lossy(&seen);
            if so_far.contains(text) {
                return so_far.into_owned();
            }
        }
    }

    /// Begins to stop the tree.
    pub async fn kill(&self, grace: Option<Duration>) -> api::Terminal {
        self.try_kill(grace).await.expect("a terminal can be killed")
    }

    /// Begins to stop the tree, or gives the refusal.
    pub async fn try_kill(&self, grace: Option<Duration>) -> Result<api::Terminal, Refusal> {
        let request = KillTerminalRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            grace: grace.map(api_duration),
        };
        let mut terminals = self.caller.terminals.clone();
        within("Kill", terminals.kill_terminal(request))
            .await
            .map(|a| a.into_inner().terminal.expect("it is set"))
            .map_err(Refusal::from)
    }

    /// Sends a signal.
    pub async fn signal(&self, name: &str) -> Result<(), Refusal> {
        let request = SignalTerminalRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            signal: name.to_owned(),
        };
        let mut terminals = self.caller.terminals.clone();
        within("Signal", terminals.signal_terminal(request)).await.map(drop).map_err(Refusal::from)
    }

    /// Writes to stdin.
    pub async fn write(&self, data: &[u8], end: EndOfInput) -> Result<u64, Refusal> {
        let request = WriteInputRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            data: data.to_vec().into(),
            eof: end == EndOfInput::After,
            offset: None,
        };
        let mut terminals = self.caller.terminals.clone();
        within("Write", terminals.write_input(request))
            .await
            .map(|a| a.into_inner().written_bytes)
            .map_err(Refusal::from)
    }

    /// Stops and releases, and fails if a cgroup that names the terminal is left.
    pub async fn release(&self) {
        self.try_release(None).await.expect("a terminal can be released");
    }

    /// Releases, or gives the refusal.
    pub async fn try_release(&self, grace: Option<Duration>) -> Result<(), Refusal> {
        let request = ReleaseTerminalRequest {
            terminal_id: self.id.clone(),
            session_id: self.session_id.clone(),
            grace: grace.map(api_duration),
        };
        let mut terminals = self.caller.terminals.clone();
        within("Release", terminals.release_terminal(request)).await.map(drop).map_err(Refusal::from)
    }
}

/// Whether a stream goes on while the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// As it comes.
    Yes,
    /// What is held now.
    No,
}

/// Whether stdin ends after the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfInput {
    /// It ends.
    After,
    /// More may come.
    NotYet,
}

/// A stream read to its end, with invariant O checked on the way: every byte is there or counted as lost.
#[derive(Debug, Default)]
pub struct Collected {
    /// The bytes, gaps left out.
    pub data: Vec<u8>,
    /// [from, to) of every gap.
    pub gaps: Vec<(u64, u64)>,
    /// Offsets of the chunks.
    pub chunks: BTreeMap<u64, usize>,
    /// Where the stream ended.
    pub next_offset: u64,
    /// The outcome that the end carried.
    pub outcome: Option<Outcome>,
}

impl Collected {
    /// Reads a stream that began at `offset` to its end.
    pub async fn all(mut events: Streaming<StreamOutputResponse>, offset: u64) -> Self {
        let mut out = Self { next_offset: offset, ..Self::default() };
        loop {
            let event = within("an output event", events.message()).await.expect("the stream goes on");
            match event.expect("a stream ends with an End").event.expect("an event is one of three") {
                stream_output_response::Event::Chunk(chunk) => {
                    assert_eq!(chunk.offset, out.next_offset, "a chunk follows the one before it");
                    assert!(!chunk.data.is_empty(), "a chunk is never empty");
                    out.chunks.insert(chunk.offset, chunk.data.len());
                    out.next_offset += chunk.data.len() as u64;
                    out.data.extend_from_slice(&chunk.data);
                }
                stream_output_response::Event::Gap(gap) => {
                    assert_eq!(gap.from_offset, out.next_offset, "a gap begins where the reader was");
                    assert!(gap.to_offset > gap.from_offset, "a gap is never empty");
                    out.gaps.push((gap.from_offset, gap.to_offset));
                    out.next_offset = gap.to_offset;
                }
                stream_output_response::Event::End(end) => {
                    assert_eq!(end.next_offset, out.next_offset, "the end is where the bytes end");
                    out.outcome = end.outcome;
                    assert!(
                        events.message().await.expect("the stream ends well").is_none(),
                        "nothing after the end"
                    );
                    return out;
                }
            }
        }
    }

    /// Bytes that were lost, all of them counted.
    pub fn lost(&self) -> u64 {
        self.gaps.iter().map(|(from, to)| to - from).sum()
    }
}

/// A run read to its end.
#[derive(Debug)]
pub struct RunResult {
    /// The first event.
    pub started: api::Terminal,
    /// The last event.
    pub finished: api::Terminal,
    /// Bytes of stdout, or of the merged stream.
    pub stdout: Vec<u8>,
    /// Bytes of stderr.
    pub stderr: Vec<u8>,
}

impl RunResult {
    /// Reads all events, handing each chunk to `each` first.
    pub async fn all(mut events: Streaming<RunResponse>) -> Self {
        let (mut started, mut out, mut err) = (None, Vec::new(), Vec::new());
        loop {
            let event = within("a run event", events.message()).await.expect("the run goes on");
            match event.expect("a run ends with Finished").event.expect("an event is one of three") {
                run_response::Event::Started(terminal) => {
                    assert!(
                        started.replace(terminal).is_none() && out.is_empty(),
                        "Started comes once, and first"
                    );
                }
                run_response::Event::Chunk(chunk) => {
                    let to = if chunk.stream() == OutputStream::Stderr { &mut err } else { &mut out };
                    assert_eq!(chunk.offset, to.len() as u64, "a run loses nothing");
                    to.extend_from_slice(&chunk.data);
                }
                run_response::Event::Finished(finished) => {
                    let started = started.expect("Started comes first");
                    assert_eq!(finished.state(), TerminalState::Released, "a run releases its terminal");
                    assert!(
                        events.message().await.expect("the run ends well").is_none(),
                        "nothing after the end"
                    );
                    return Self { started, finished, stdout: out, stderr: err };
                }
            }
        }
    }
}

/// The known bytes that `emit pattern` writes: any slice can be checked by its offset alone. Byte i is byte `i % 8` of the little-endian number `mix(i / 8)`.
pub struct Pattern;

fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

impl Pattern {
    /// The byte at an offset.
    pub fn at(offset: u64) -> u8 {
        mix(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// The bytes of a range.
    pub fn bytes(from: u64, to: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity((to - from) as usize + 8);
        let mut word = from / 8;
        while word * 8 < to {
            out.extend_from_slice(&mix(word).to_le_bytes());
            word += 1;
        }
        out.drain(..(from % 8) as usize);
        out.truncate((to - from) as usize);
        out
    }

    /// Fails unless `data` is the pattern from `offset` on.
    pub fn check(offset: u64, data: &[u8]) {
        let expected = Self::bytes(offset, offset + data.len() as u64);
        if let Some(i) = (0..data.len()).find(|&i| data[i] != expected[i]) {
            panic!(
                "byte {} of the output is {:#x} and should be {:#x}",
                offset + i as u64,
                data[i],
                expected[i]
            );
        }
    }
}
