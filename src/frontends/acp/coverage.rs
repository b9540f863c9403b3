//! Whether an agent's commands come here, and what is done where they do not.
//!
//! An agent that does not ask for terminals runs its commands where it runs itself. Then the person who started it is told, the
//! journal says so of each session, and each session gets the tools of `provost mcp` as one more MCP server, with the session's
//! directories. That covers the commands that the agent runs by these tools, and no others. Nothing is decided here, and the
//! editor's own servers stay as they are.
//!
//! An agent that says that it takes servers over HTTP gets them so, for as long as the session is open: agents that drop the ones on
//! stdio without a word, which the protocol has all of them take, say no more of themselves than agents that start them (decision 0467).

use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
};

use agent_client_protocol_schema::v1::SessionId;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::DropGuard;

use super::{
    handshake::McpTransport,
    lines::{self, RawObject},
    sessions::{SharedDirectories, Workspace},
};

/// Sessions that have their tools over HTTP at once, each with a listener. Further ones get none.
pub(super) const HTTP_SERVERS_MAX: usize = 64;
/// The name of the server, where the editor has none of this name.
const SERVER_NAME: &str = "provost";

/// Tells the person who started this something, in one line.
pub(super) type NoticeSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Serves the tools over HTTP from within this process: with these directories to write in, and these to read.
pub type HttpTools = Arc<
    dyn Fn(Vec<PathBuf>, Vec<PathBuf>) -> Pin<Box<dyn Future<Output = io::Result<HttpServer>> + Send>>
        + Send
        + Sync,
>;

/// A server of the tools. It ends when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    /// Where it is.
    pub url: String,
    /// What a client has to bring as `Authorization: Bearer`.
    pub token: String,
    /// Ends it.
    pub stop: DropGuard,
}

/// How the tools of `provost mcp` are served so that they use the gateway of this connection.
#[derive(Clone)]
pub struct ToolServer {
    /// This program; absolute.
    pub program: PathBuf,
    /// The gateway, as `unix:PATH`.
    pub gateway: String,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// What every session has alongside its own directories.
    pub shared: SharedDirectories,
    /// For agents that take servers over HTTP.
    pub http: HttpTools,
}

/// What is known of an agent before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpectedTerminals {
    /// It asks its editor for terminals, as far as is known.
    #[default]
    Requested,
    /// It runs commands itself.
    NotRequested,
}

/// Why commands of an agent are not covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotCovered {
    /// It was known before.
    Expected,
    /// It speaks a version of the protocol that has no client terminals.
    Version(u64),
    /// It has run a command itself.
    CommandRun,
}

/// A server over HTTP that a session was given, and its place among them.
#[derive(Debug)]
pub(super) struct OfferedServer {
    _server: HttpServer,
    _place: OwnedSemaphorePermit,
}

/// One agent's.
pub(super) struct AgentCoverage {
    tools: Option<ToolServer>,
    /// None of a confined agent: what it runs itself is confined with it.
    notice: Option<NoticeSink>,
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reported: Vec<NotCovered>,
    /// How the agent takes MCP servers, from its answer to `initialize` on.
    transport: Option<McpTransport>,
    /// The servers of the sessions that are open.
    servers: HashMap<SessionId, OfferedServer>,
    /// The person knows that a session has no tools.
    is_failure_reported: bool,
}

impl AgentCoverage {
    /// The coverage of an agent that runs on the host.
    pub(super) fn on_host(
        tools: Option<ToolServer>,
        notice: NoticeSink,
        expected: ExpectedTerminals,
    ) -> Arc<Self> {
        let coverage = Self::new(tools, Some(notice));
        if expected == ExpectedTerminals::NotRequested {
            coverage.is_lacking(NotCovered::Expected);
        }
        Arc::new(coverage)
    }

    /// The coverage of an agent that is confined as a whole: nothing of it is left uncovered.
    pub(super) fn confined() -> Arc<Self> {
        Arc::new(Self::new(None, None))
    }

    fn new(tools: Option<ToolServer>, notice: Option<NoticeSink>) -> Self {
        Self { tools, notice, places: Arc::new(Semaphore::new(HTTP_SERVERS_MAX)), state: Mutex::default() }
    }

    /// The agent's commands are not covered. Reports each reason to the person once.
    pub(super) fn is_lacking(&self, reason: NotCovered) {
        let Some(notice) = &self.notice else { return };
        let transport = {
            let mut state = self.lock();
            if state.reported.contains(&reason) {
                return;
            }
            state.reported.push(reason);
            state.transport
        };
        tracing::warn!(?reason, "commands of the agent are not covered");
        let tools = transport.and_then(|transport| self.tools_sentence(transport, reason));
        notice(&sentence(reason, &tools.unwrap_or_default()));
    }

    /// Whether the journal is to say of each session that the agent's commands are not covered in it.
    pub(super) fn is_known_before(&self) -> bool {
        self.lock().reported.iter().any(|reason| *reason != NotCovered::CommandRun)
    }

    /// How the agent takes servers, as it has said in its answer to `initialize`. A person to whom it was reported before that what the agent
    /// runs is not covered is now shown the tools.
    pub(super) fn set_transport(&self, transport: McpTransport) {
        let reported = {
            let mut state = self.lock();
            let is_first = state.transport.replace(transport).is_none();
            state.reported.first().copied().filter(|_| is_first)
        };
        tracing::info!(?transport, "how the agent takes MCP servers");
        if let (Some(notice), Some(reason)) = (&self.notice, reported)
            && let Some(sentence) = self.tools_sentence(transport, reason)
        {
            notice(&format!("notice:{sentence}"));
        }
    }

    /// A request that opens a session in this workspace, with the tools among its MCP servers, and the server that the session is
    /// to keep. None where it goes on as it came.
    pub(super) async fn offer_tools(
        &self,
        line: &[u8],
        params: &RawValue,
        workspace: &Workspace,
    ) -> Option<(Vec<u8>, Option<OfferedServer>)> {
        let tools = self.tools.as_ref()?;
        let transport = {
            let state = self.lock();
            if state.reported.is_empty() {
                return None;
            }
            state.transport.unwrap_or_default()
        };
        if transport == McpTransport::Unsupported {
            return None;
        }
        let mut params = RawObject::parse(params)?;
        let given: Option<Vec<Box<RawValue>>> = match params.get("mcpServers") {
            None => None,
            // What is no list is the agent's to refuse.
            Some(given) => serde_json::from_str(given.get()).ok()?,
        };
        let mut all = given.unwrap_or_default();
        let name = unused_name(&all);
        let offered = match transport {
            McpTransport::Http => self.serve(tools, &name, workspace).await,
            McpTransport::StdioUntyped | McpTransport::StdioTyped | McpTransport::Unsupported => {
                let entry = tools.entry(transport, &name, workspace).map(|entry| (entry, None));
                entry.ok_or_else(|| io::Error::other("a path is no UTF-8"))
            }
        };
        let (entry, server) = offered.map_err(|error| self.has_no_tools(&error)).ok()?;
        all.push(entry);
        params.set("mcpServers", &all);
        Some((lines::with_params(line, &params)?, server))
    }

    /// A session is open, with the server that it was given. One that it had before ends.
    pub(super) fn keep(&self, session: &SessionId, server: Option<OfferedServer>) {
        if let Some(server) = server {
            self.lock().servers.insert(session.clone(), server);
        }
    }

    /// A session is over, and its server.
    pub(super) fn session_ended(&self, session: &SessionId) {
        self.lock().servers.remove(session);
    }

    /// Serves the tools for a session, and gives the entry by which the agent finds them.
    async fn serve(
        &self,
        tools: &ToolServer,
        name: &str,
        workspace: &Workspace,
    ) -> io::Result<(Box<RawValue>, Option<OfferedServer>)> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            io::Error::other(format!("{HTTP_SERVERS_MAX} sessions have their tools over HTTP already"))
        })?;
        let (writable, read_only) = (tools.writable(workspace), tools.shared.read_only.iter());
        let server = (tools.http)(writable.cloned().collect(), read_only.cloned().collect()).await?;
        let authorization = json!({ "name": "Authorization", "value": format!("Bearer {}", server.token) });
        let entry = json!({ "type": "http", "name": name, "url": server.url, "headers": [authorization] });
        Ok((to_raw_value(&entry)?, Some(OfferedServer { _server: server, _place: place })))
    }

    /// Says once, and logs each time, that a session is without the tools that were promised.
    fn has_no_tools(&self, error: &io::Error) {
        tracing::warn!(%error, "a session of the agent's has no tools");
        let is_reported = std::mem::replace(&mut self.lock().is_failure_reported, true);
        if let (Some(notice), false) = (&self.notice, is_reported) {
            notice(&format!("notice: a session of the agent's gets no tools of `provost mcp`: {error}"));
        }
    }

    fn tools_sentence(&self, transport: McpTransport, reason: NotCovered) -> Option<String> {
        self.tools.as_ref()?;
        let whose = if reason == NotCovered::CommandRun { "Its next sessions" } else { "Its sessions" };
        let how = match transport {
            McpTransport::StdioUntyped | McpTransport::StdioTyped => "on stdio",
            McpTransport::Http => "over HTTP",
            McpTransport::Unsupported => {
                return Some(" It takes no MCP server on stdio or over HTTP, and gets no tools.".to_owned());
            }
        };
        Some(format!(" {whose} get the tools of `provost mcp`, as an MCP server {how}."))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds what is known of the agent")
    }
}

impl std::fmt::Debug for AgentCoverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentCoverage").field("state", &self.state).finish_non_exhaustive()
    }
}

/// What a person is told, with what is known of the tools.
fn sentence(reason: NotCovered, tools: &str) -> String {
    let what = match reason {
        NotCovered::Expected => {
            "this agent runs commands itself: those are neither judged nor confined".to_owned()
        }
        NotCovered::Version(version) => format!(
            "this agent speaks version {version} of the protocol, in which it runs commands itself: those are neither judged \
             nor confined"
        ),
        NotCovered::CommandRun => {
            "this agent has run a command itself instead of asking for a terminal: that command was \
                                   neither judged nor confined"
                .to_owned()
        }
    };
    format!("notice: {what}.{tools} To confine the whole agent, start it with `provost acp --confine-agent`")
}

impl ToolServer {
    /// The directories that commands may write in, as the gateway's own session of this workspace has them.
    fn writable<'a>(&'a self, workspace: &'a Workspace) -> impl Iterator<Item = &'a PathBuf> {
        let there = workspace.additional.iter().filter(|path| path.is_absolute() && path.is_dir());
        std::iter::once(&workspace.cwd).chain(there).chain(&self.shared.writable)
    }

    /// The server on stdio as an entry of `mcpServers`. None where a path is no text.
    fn entry(&self, transport: McpTransport, name: &str, workspace: &Workspace) -> Option<Box<RawValue>> {
        let mut args = vec!["mcp".to_owned(), "--gateway".to_owned(), self.gateway.clone()];
        args.push("--repository".to_owned());
        if let Some(profile) = &self.profile {
            args.extend(["--profile".to_owned(), profile.clone()]);
        }
        for (option, path) in self
            .writable(workspace)
            .map(|path| ("--root", path))
            .chain(self.shared.read_only.iter().map(|path| ("--ro", path)))
        {
            args.extend([option.to_owned(), text(path)?]);
        }
        let mut entry = json!({ "name": name, "command": text(&self.program)?, "args": args, "env": [] });
        if transport == McpTransport::StdioTyped {
            entry["type"] = "stdio".into();
        }
        to_raw_value(&entry).ok()
    }
}

/// `provost`, or with a number where the editor has a server of that name.
fn unused_name(given: &[Box<RawValue>]) -> String {
    let names: BTreeSet<String> =
        given.iter().filter_map(|server| RawObject::parse(server)?.text("name")).collect();
    let numbered = (2..).map(|number| format!("{SERVER_NAME}-{number}"));
    std::iter::once(SERVER_NAME.to_owned())
        .chain(numbered)
        .find(|name| !names.contains(name))
        .unwrap_or_default()
}

fn text(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(reason: Option<NotCovered>) -> Arc<AgentCoverage> {
        let tools = ToolServer {
            program: "/usr/bin/provost".into(),
            gateway: "unix:/run/g".to_owned(),
            profile: Some("p".to_owned()),
            shared: SharedDirectories { writable: vec!["/w".into()], read_only: vec!["/r".into()] },
            http: Arc::new(|writable, read_only| {
                assert_eq!((writable, read_only), (vec!["/project".into(), "/w".into()], vec!["/r".into()]));
                let (url, token) = ("http://127.0.0.1:1/mcp".to_owned(), "secret".to_owned());
                let stop = tokio_util::sync::CancellationToken::new().drop_guard();
                Box::pin(async { Ok(HttpServer { url, token, stop }) })
            }),
        };
        let coverage = AgentCoverage::on_host(Some(tools), Arc::new(|_| {}), ExpectedTerminals::Requested);
        if let Some(reason) = reason {
            coverage.is_lacking(reason);
        }
        coverage
    }

    async fn offered(coverage: &AgentCoverage, params: &str) -> Option<String> {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{params}}}"#);
        let workspace = Workspace { cwd: "/project".into(), additional: vec!["/no/such/directory".into()] };
        let (line, server) = coverage.offer_tools(line.as_bytes(), &raw, &workspace).await?;
        coverage.keep(&SessionId::new("s"), server);
        Some(String::from_utf8(line).unwrap())
    }

    const ENTRY: &str = r#""command":"/usr/bin/provost","args":["mcp","--gateway","unix:/run/g","--repository","--profile","p","--root","/project","--root","/w","--ro","/r"],"env":[]"#;

    #[tokio::test]
    async fn only_an_agent_whose_commands_are_not_covered_gets_the_tools() {
        assert_eq!(offered(&coverage(None), r#"{"cwd":"/project","mcpServers":[]}"#).await, None);
        let not_covered = coverage(Some(NotCovered::CommandRun));
        for given in ["[]", "null"] {
            let line = offered(&not_covered, &format!(r#"{{"cwd":"/project","mcpServers":{given}}}"#))
                .await
                .unwrap();
            let expected = format!(r#""mcpServers":[{{"name":"provost",{ENTRY}}}]"#);
            assert!(line.contains(&expected), "{line}");
        }
        assert!(offered(&not_covered, r#"{"cwd":"/project"}"#).await.unwrap().contains(ENTRY));
        assert_eq!(offered(&not_covered, r#"{"cwd":"/project","mcpServers":{}}"#).await, None);
        let confined = AgentCoverage::confined();
        confined.is_lacking(NotCovered::CommandRun);
        assert_eq!(offered(&confined, r#"{"cwd":"/project","mcpServers":[]}"#).await, None);
    }

    #[tokio::test]
    async fn the_editors_servers_stay_as_they_were_written_and_keep_their_names() {
        let own = r#"{"name": "provost", "command":"/x","n":1.00}, {"name":"provost-2"},"odd""#;
        let newer = coverage(Some(NotCovered::Version(2)));
        let line = offered(&newer, &format!(r#"{{"mcpServers":[{own}],"z":1e3}}"#)).await.unwrap();
        for kept in
            [r#"{"name": "provost", "command":"/x","n":1.00}"#, r#""odd",{"name":"provost-3""#, r#""z":1e3"#]
        {
            assert!(line.contains(kept), "{kept} is not in {line}");
        }
    }

    #[tokio::test]
    async fn a_later_version_names_the_kind_of_server_and_may_take_none() {
        let newer = coverage(Some(NotCovered::Version(2)));
        newer.set_transport(McpTransport::StdioTyped);
        assert!(offered(&newer, r#"{"mcpServers":[]}"#).await.unwrap().contains(r#""type":"stdio""#));
        newer.set_transport(McpTransport::Unsupported);
        assert_eq!(offered(&newer, r#"{"mcpServers":[]}"#).await, None);
    }

    #[tokio::test]
    async fn over_http_a_session_has_a_server_of_its_own_until_it_ends() {
        let coverage = coverage(Some(NotCovered::CommandRun));
        coverage.set_transport(McpTransport::Http);
        let line = offered(&coverage, r#"{"mcpServers":[]}"#).await.unwrap();
        for part in [
            r#""type":"http""#,
            r#""url":"http://127.0.0.1:1/mcp""#,
            r#""value":"Bearer secret""#,
            r#""name":"provost""#,
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert_eq!(coverage.places.available_permits(), HTTP_SERVERS_MAX - 1);
        offered(&coverage, r#"{"mcpServers":[]}"#).await.unwrap();
        assert_eq!(coverage.places.available_permits(), HTTP_SERVERS_MAX - 1, "the one before ends");
        coverage.session_ended(&SessionId::new("s"));
        assert_eq!(coverage.places.available_permits(), HTTP_SERVERS_MAX);
        let _all = coverage.places.clone().try_acquire_many_owned(HTTP_SERVERS_MAX as u32).unwrap();
        assert_eq!(offered(&coverage, r#"{"mcpServers":[]}"#).await, None);
    }

    #[test]
    fn each_reason_is_reported_once() {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let sink = notices.clone();
        let notice: NoticeSink = Arc::new(move |line| sink.lock().unwrap().push(line.to_owned()));
        let coverage = AgentCoverage::on_host(None, notice, ExpectedTerminals::NotRequested);
        for _ in 0..2 {
            coverage.is_lacking(NotCovered::CommandRun);
        }
        let notices = notices.lock().unwrap();
        assert_eq!(notices.len(), 2);
        assert!(notices.iter().all(|line| line.contains("--confine-agent")), "{notices:?}");
    }
}
