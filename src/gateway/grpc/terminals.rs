//! The terminals service: each call finds what it names among the caller's own, parses its request, calls one use case, and makes the
//! response.

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    grpc::{
        attach, caller, deadline,
        errors::{self, ResourceKind},
        forward, lines, pagination, request, response,
    },
    output::text::{Edge, to_text},
    policy::{OverflowMode, StdinSource},
    proto::{
        supervisor::StopCause,
        v1::{
            AttachRequest, AttachResponse, CreateTerminalRequest, CreateTerminalResponse, ForwardRequest,
            ForwardResponse, GetOutputRequest, GetOutputResponse, GetShellRequest, GetShellResponse,
            GetTerminalRequest, GetTerminalResponse, InterruptLineRequest, InterruptLineResponse,
            KillTerminalRequest, KillTerminalResponse, ListTerminalsRequest, ListTerminalsResponse,
            ReleaseTerminalRequest, ReleaseTerminalResponse, ResizeTerminalRequest, ResizeTerminalResponse,
            ResumeRunRequest, ResumeRunResponse, RunLineRequest, RunLineResponse, RunRequest, RunResponse,
            SignalTerminalRequest, SignalTerminalResponse, StreamOutputRequest, StreamOutputResponse,
            WaitForExitRequest, WaitForExitResponse, WatchTerminalsRequest, WatchTerminalsResponse,
            WriteInputRequest, WriteInputResponse, WriteLineInputRequest, WriteLineInputResponse,
            create_terminal_request::Command, terminals_server::Terminals as Service,
        },
    },
    session::{Peer, Session, Sessions},
    terminal::{
        EndOfInput, ReaderKind, Requested, Terminal, TerminalId, Terminals,
        output::{Cursor, Follow},
        run::Run,
    },
};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct TerminalsService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals.
    pub terminals: Arc<Terminals>,
}

impl TerminalsService {
    /// A response for which a drain waits.
    fn awaited<T: Send + 'static>(
        &self,
        stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Response<ResponseStream<T>> {
        let waiter = self.terminals.waiters().register();
        Response::new(Box::pin(response::counted_as_waiter(waiter, stream)))
    }
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Service for TerminalsService {
    type StreamOutputStream = ResponseStream<StreamOutputResponse>;
    type AttachStream = ResponseStream<AttachResponse>;
    type ForwardStream = ResponseStream<ForwardResponse>;
    type RunStream = ResponseStream<RunResponse>;
    type ResumeRunStream = ResponseStream<ResumeRunResponse>;
    type RunLineStream = ResponseStream<RunLineResponse>;
    type WatchTerminalsStream = ResponseStream<WatchTerminalsResponse>;

    async fn create_terminal(
        &self,
        request: Request<CreateTerminalRequest>,
    ) -> Result<Response<CreateTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let answer_timeout = deadline::timeout_of(request.metadata());
        let limit = deadline::last_timeout_of(request.metadata());
        let created = self.create_requested(&peer, request.into_inner(), answer_timeout);
        let terminal = deadline::within(limit, created).await??;
        Ok(Response::new(CreateTerminalResponse { terminal: Some(response::terminal(&terminal)) }))
    }

    async fn get_terminal(
        &self,
        request: Request<GetTerminalRequest>,
    ) -> Result<Response<GetTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let GetTerminalRequest { terminal_id, session_id } = request.get_ref();
        let terminal = self.find(&peer, terminal_id, session_id)?;
        Ok(Response::new(GetTerminalResponse { terminal: Some(response::terminal(&terminal)) }))
    }

    async fn list_terminals(
        &self,
        request: Request<ListTerminalsRequest>,
    ) -> Result<Response<ListTerminalsResponse>, Status> {
        let peer = caller(&request)?;
        let session_id = &request.get_ref().session_id;
        let session = match session_id.as_str() {
            "" => None,
            id => Some(self.find_session(&peer, id)?.id),
        };
        let ListTerminalsRequest { page_size, page_token, .. } = request.get_ref();
        let page =
            pagination::parse_page(*page_size, page_token, TerminalId::parse).map_err(errors::bad_field)?;
        let following = self.terminals.registry().list_after(peer.principal, session, page.after);
        let (terminals, next_page_token) =
            page.fill(following, |one| response::terminal(one), |one| one.id.to_string());
        Ok(Response::new(ListTerminalsResponse { terminals, next_page_token }))
    }

    async fn get_output(
        &self,
        request: Request<GetOutputRequest>,
    ) -> Result<Response<GetOutputResponse>, Status> {
        let peer = caller(&request)?;
        let GetOutputRequest { terminal_id, session_id, stream, as_text } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let channel = request::channel(stream).map_err(errors::bad_field)?;
        let retained = terminal.retained(channel).map_err(|error| errors::read(&error))?;
        let text = if as_text {
            let start = if retained.start_offset == 0 { Edge::Whole } else { Edge::Cut };
            let end = if retained.stage.is_over() { Edge::Whole } else { Edge::Cut };
            to_text(&retained.data, start, end)
        } else {
            String::new()
        };
        Ok(Response::new(GetOutputResponse {
            // Text is the same bytes in other words: one of the two is enough.
            data: if as_text { prost::bytes::Bytes::new() } else { retained.data },
            text,
            start_offset: retained.start_offset,
            next_offset: retained.next_offset,
            truncated: retained.start_offset > 0 || terminal.output_lost(),
            state: response::state(&retained.stage).into(),
            outcome: retained.stage.outcome().map(|outcome| (**outcome).clone()),
            output_lost: terminal.output_lost(),
        }))
    }

    async fn stream_output(
        &self,
        request: Request<StreamOutputRequest>,
    ) -> Result<Response<Self::StreamOutputStream>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let request = request.into_inner();
        let terminal = self.find(&peer, &request.terminal_id, &request.session_id)?;
        let channel = request::channel(request.stream).map_err(errors::bad_field)?;
        deadline::within(limit, terminal.wait_settled()).await?;
        let follow = if request.follow { Follow::UntilEnd } else { Follow::RetainedOnly };
        let cursor =
            Cursor::new(terminal.clone(), channel, request.offset).map_err(|error| errors::read(&error))?;
        Ok(self.awaited(response::output(terminal, cursor, follow)))
    }

    async fn wait_for_exit(
        &self,
        request: Request<WaitForExitRequest>,
    ) -> Result<Response<WaitForExitResponse>, Status> {
        let peer = caller(&request)?;
        let WaitForExitRequest { terminal_id, session_id } = request.get_ref();
        let terminal = self.find(&peer, terminal_id, session_id)?;
        let _waiter = self.terminals.waiters().register();
        let limit = deadline::timeout_of(request.metadata());
        let stage = deadline::within(limit, terminal.wait_over()).await?;
        Ok(Response::new(WaitForExitResponse {
            state: response::state(&stage).into(),
            outcome: stage.outcome().map(|outcome| (**outcome).clone()),
        }))
    }

    async fn signal_terminal(
        &self,
        request: Request<SignalTerminalRequest>,
    ) -> Result<Response<SignalTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let SignalTerminalRequest { terminal_id, session_id, signal } = request.get_ref();
        let terminal = self.find(&peer, terminal_id, session_id)?;
        let number = request::signal_number(signal).map_err(errors::bad_field)?;
        let limit = deadline::timeout_of(request.metadata());
        let signalled = deadline::within(limit, terminal.signal(number)).await?;
        signalled.map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(SignalTerminalResponse {}))
    }

    async fn kill_terminal(
        &self,
        request: Request<KillTerminalRequest>,
    ) -> Result<Response<KillTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let KillTerminalRequest { terminal_id, session_id, grace } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let grace = request::grace("grace", grace).map_err(errors::bad_field)?;
        let killed = deadline::within(limit, terminal.kill(grace)).await?;
        killed.map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(KillTerminalResponse { terminal: Some(response::terminal(&terminal)) }))
    }

    async fn release_terminal(
        &self,
        request: Request<ReleaseTerminalRequest>,
    ) -> Result<Response<ReleaseTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let ReleaseTerminalRequest { terminal_id, session_id, grace } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let grace: Option<Duration> = request::grace("grace", grace).map_err(errors::bad_field)?;
        let released = self.terminals.release(&terminal, grace, StopCause::Killed);
        deadline::within(limit, released).await?.map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(ReleaseTerminalResponse {}))
    }

    async fn write_input(
        &self,
        request: Request<WriteInputRequest>,
    ) -> Result<Response<WriteInputResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let WriteInputRequest { terminal_id, session_id, data, eof, offset } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let end = if eof { EndOfInput::AfterThis } else { EndOfInput::NotYet };
        let written = deadline::within(limit, terminal.write(offset, data, end)).await?;
        let written = written.map_err(|error| errors::input_write(&error))?;
        Ok(Response::new(WriteInputResponse { written_bytes: written }))
    }

    async fn resize_terminal(
        &self,
        request: Request<ResizeTerminalRequest>,
    ) -> Result<Response<ResizeTerminalResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let ResizeTerminalRequest { terminal_id, session_id, columns, rows } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let size = request::pty_size("", columns, rows).map_err(errors::bad_field)?;
        let resized = deadline::within(limit, terminal.resize(size)).await?;
        resized.map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(ResizeTerminalResponse {}))
    }

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let mut requests = request.into_inner();
        let attached = async move {
            let start = attach::start(&mut requests).await?;
            let terminal = self.find(&peer, &start.terminal_id, &start.session_id)?;
            attach::attach(self.terminals.clone(), terminal, start, requests).await
        };
        Ok(self.awaited(deadline::within(limit, attached).await??))
    }

    async fn forward(
        &self,
        request: Request<Streaming<ForwardRequest>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let mut requests = request.into_inner();
        let forwarded = async {
            let (start, port) = forward::start(&mut requests).await?;
            let terminal = self.find(&peer, &start.terminal_id, &start.session_id)?;
            let forwarded = self.terminals.forwards().connect(&terminal, port).await;
            forwarded.map_err(|error| errors::forward(&error))
        };
        let forwarded = deadline::within(limit, forwarded).await??;
        Ok(self.awaited(forward::carry(forwarded, requests)))
    }

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<Self::RunStream>, Status> {
        let peer = caller(&request)?;
        let answer_timeout = deadline::timeout_of(request.metadata());
        let limit = deadline::last_timeout_of(request.metadata());
        let run = self.run_requested(&peer, request.into_inner(), answer_timeout);
        Ok(self.awaited(response::run(deadline::within(limit, run).await??)))
    }

    async fn resume_run(
        &self,
        request: Request<ResumeRunRequest>,
    ) -> Result<Response<Self::ResumeRunStream>, Status> {
        let peer = caller(&request)?;
        let ResumeRunRequest { terminal_id, session_id, stdout_offset, stderr_offset } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let run = self
            .terminals
            .resume_run(terminal, [stdout_offset, stderr_offset])
            .map_err(|error| errors::terminal_request(&error))?;
        Ok(self.awaited(response::resumed_run(run)))
    }

    async fn run_line(
        &self,
        request: Request<RunLineRequest>,
    ) -> Result<Response<Self::RunLineStream>, Status> {
        let peer = caller(&request)?;
        let answer_timeout = deadline::timeout_of(request.metadata());
        let limit = deadline::last_timeout_of(request.metadata());
        let request = request.into_inner();
        let terminal = self.find(&peer, &request.terminal_id, &request.session_id)?;
        let new = request::new_line(request, answer_timeout).map_err(errors::bad_field)?;
        let line = deadline::within(limit, self.terminals.run_line(&terminal, new)).await?;
        Ok(self.awaited(lines::events(line.map_err(|error| errors::run_line(&error))?)))
    }

    async fn write_line_input(
        &self,
        request: Request<WriteLineInputRequest>,
    ) -> Result<Response<WriteLineInputResponse>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let WriteLineInputRequest { terminal_id, session_id, line_id, data, eof } = request.into_inner();
        let terminal = self.find(&peer, &terminal_id, &session_id)?;
        let end = if eof { EndOfInput::AfterThis } else { EndOfInput::NotYet };
        let written = terminal.write_line_input(&line_id, data, end);
        deadline::within(limit, written).await?.map_err(|error| errors::input_write(&error))?;
        Ok(Response::new(WriteLineInputResponse {}))
    }

    async fn interrupt_line(
        &self,
        request: Request<InterruptLineRequest>,
    ) -> Result<Response<InterruptLineResponse>, Status> {
        let peer = caller(&request)?;
        let InterruptLineRequest { terminal_id, session_id } = request.get_ref();
        let terminal = self.find(&peer, terminal_id, session_id)?;
        let limit = deadline::timeout_of(request.metadata());
        let interrupted = deadline::within(limit, terminal.interrupt_line()).await?;
        interrupted.map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(InterruptLineResponse {}))
    }

    async fn get_shell(
        &self,
        request: Request<GetShellRequest>,
    ) -> Result<Response<GetShellResponse>, Status> {
        let peer = caller(&request)?;
        let GetShellRequest { terminal_id, session_id } = request.get_ref();
        let terminal = self.find(&peer, terminal_id, session_id)?;
        let limit = deadline::timeout_of(request.metadata());
        let status = deadline::within(limit, terminal.shell_status()).await?;
        let status = status.map_err(|error| errors::terminal_request(&error))?;
        Ok(Response::new(lines::shell(status)))
    }

    async fn watch_terminals(
        &self,
        request: Request<WatchTerminalsRequest>,
    ) -> Result<Response<Self::WatchTerminalsStream>, Status> {
        let peer = caller(&request)?;
        let id = request.get_ref().session_id.as_str();
        let session = (!id.is_empty()).then(|| self.find_session(&peer, id)).transpose()?;
        Ok(Response::new(Box::pin(response::watch(self.terminals.clone(), peer.principal, session))))
    }
}

impl TerminalsService {
    /// A new terminal, or the one that the same request made before.
    async fn create_requested(
        &self,
        peer: &Peer,
        mut request: CreateTerminalRequest,
        answer_timeout: Option<Duration>,
    ) -> Result<Arc<Terminal>, Status> {
        let session = self.session_of(peer, "", &request)?;
        self.name_shell(&session, &mut request);
        let new = parse_create("", session, peer, request, answer_timeout)?;
        self.terminals.create(new).await.map_err(|error| errors::create(&error))
    }

    /// A new run.
    async fn run_requested(
        &self,
        peer: &Peer,
        RunRequest { create, resumable }: RunRequest,
        answer_timeout: Option<Duration>,
    ) -> Result<Run, Status> {
        let create = create.unwrap_or_default();
        let session = self.session_of(peer, "create.", &create)?;
        let mut new = parse_create("create.", session, peer, create, answer_timeout)?;
        new.request.overflow = OverflowMode::Block;
        new.reader = if resumable { ReaderKind::ResumableRun } else { ReaderKind::Run };
        if !resumable {
            // Such a run is one call of one caller: repeated, it is another run.
            new.request_id = None;
        }
        let terminal = self.terminals.create(new).await.map_err(|error| errors::create(&error))?;
        match resumable {
            true => self.terminals.take_run(terminal).map_err(|error| errors::terminal_request(&error)),
            false => Ok(self.terminals.run(terminal)),
        }
    }

    /// A kept shell without a name is the profile's.
    fn name_shell(&self, session: &Session, request: &mut CreateTerminalRequest) {
        if request.kept_shell.is_none() || request.command.is_some() {
            return;
        }
        let name = if request.profile.is_empty() { &session.profile } else { &request.profile };
        let policy = self.terminals.policy().current();
        let shell = policy.profile(Some(name)).and_then(|(_, profile)| profile.shell.to_str());
        request.command = shell.map(|shell| Command::Program(shell.to_owned()));
    }
}

/// The parsed request. `prefix` leads to it in its message.
fn parse_create(
    prefix: &str,
    session: Arc<Session>,
    peer: &Peer,
    request: CreateTerminalRequest,
    answer_timeout: Option<Duration>,
) -> Result<Requested, Status> {
    let given = request.stdin_given && request.pty.is_none();
    request::arguments_fit(prefix, &request).map_err(errors::arguments_too_long)?;
    let mut new = request::new_terminal(prefix, session, request).map_err(errors::bad_field)?;
    new.answer_timeout = answer_timeout;
    if given && new.request.stdin == StdinSource::Open {
        new.given_input = peer.given_input.upgrade().and_then(|given| given.get().cloned());
    }
    Ok(new)
}

impl TerminalsService {
    /// The terminal of this id, of this session when one is named.
    fn find(&self, peer: &Peer, id: &str, session: &str) -> Result<Arc<Terminal>, Status> {
        let found = self.terminals.registry().find(peer.principal, id, session);
        found.ok_or_else(|| errors::not_found(ResourceKind::Terminal))
    }

    /// The session of this id.
    fn find_session(&self, peer: &Peer, id: &str) -> Result<Arc<Session>, Status> {
        self.sessions.find(peer.principal, id).ok_or_else(|| errors::not_found(ResourceKind::Session))
    }

    /// The session in which a command is to run, by its id or its name. `prefix` leads to the request in its message.
    fn session_of(
        &self,
        peer: &Peer,
        prefix: &str,
        request: &CreateTerminalRequest,
    ) -> Result<Arc<Session>, Status> {
        match (request.session_id.as_str(), request.session_name.as_str()) {
            (id, "") => self.find_session(peer, id),
            ("", name) => self
                .sessions
                .find_named(peer.principal, name)
                .ok_or_else(|| errors::not_found(ResourceKind::Session)),
            (_, _) => Err(errors::bad_field(request::session_named_twice(prefix))),
        }
    }
}
