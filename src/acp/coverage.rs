//! Whether an agent's commands come here, and what is done where they do not.
//!
//! An agent that does not ask for terminals runs its commands where it runs itself. Then the person who started it is told, the
//! journal says so of each session, and each session gets `provost mcp` as one more MCP server, with the session's
//! directories. That covers the commands that the agent runs by these tools, and no others. Nothing is decided here, and the
//! editor's own servers stay as they are.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::{
    session::{session::Workspace, sessions::SharedDirectories},
    wire::{encode, raw_object::RawObject},
};

/// The name of the server, where the editor has none of this name.
const SERVER_NAME: &str = "provost";

/// Tells the person who started this something, in one line.
pub type NoticeSink = Arc<dyn Fn(&str) + Send + Sync>;

/// How `provost mcp` is started so that it uses the gateway of this connection.
#[derive(Debug, Clone)]
pub struct ToolServer {
    /// This program; absolute.
    pub program: PathBuf,
    /// The gateway, as `unix:PATH`.
    pub gateway: String,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// What every session has alongside its own directories.
    pub shared: SharedDirectories,
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

/// How an agent takes MCP servers that it is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdioServers {
    /// As version 1 writes them.
    Untyped,
    /// As later versions write them.
    Typed,
    /// Not at all.
    Unsupported,
}

/// One agent's.
pub(super) struct AgentCoverage {
    tools: Option<ToolServer>,
    /// None of a confined agent: what it runs itself is confined with it.
    notice: Option<NoticeSink>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    told: Vec<NotCovered>,
    servers: StdioServers,
}

impl AgentCoverage {
    /// Of an agent that runs on the host.
    pub(super) fn on_host(
        tools: Option<ToolServer>,
        notice: NoticeSink,
        expected: ExpectedTerminals,
    ) -> Arc<Self> {
        let state = Mutex::new(State { told: Vec::new(), servers: StdioServers::Untyped });
        let coverage = Self { tools, notice: Some(notice), state };
        if expected == ExpectedTerminals::NotRequested {
            coverage.is_lacking(NotCovered::Expected);
        }
        Arc::new(coverage)
    }

    /// Of an agent that is confined as a whole: nothing of it is left uncovered.
    pub(super) fn confined() -> Arc<Self> {
        let state = Mutex::new(State { told: Vec::new(), servers: StdioServers::Unsupported });
        Arc::new(Self { tools: None, notice: None, state })
    }

    /// The agent's commands are not covered. Tells the person, of each reason once.
    pub(super) fn is_lacking(&self, reason: NotCovered) {
        let Some(notice) = &self.notice else { return };
        {
            let mut state = self.lock();
            if state.told.contains(&reason) {
                return;
            }
            state.told.push(reason);
        }
        tracing::warn!(?reason, "commands of the agent are not covered");
        notice(&self.sentence(reason));
    }

    /// Whether the journal is to say of each session that the agent's commands are not covered in it.
    pub(super) fn is_known_before(&self) -> bool {
        self.lock().told.iter().any(|reason| *reason != NotCovered::CommandRun)
    }

    /// How the agent takes servers, as it has said in its answer to `initialize`.
    pub(super) fn set_servers(&self, servers: StdioServers) {
        self.lock().servers = servers;
    }

    /// A request that opens a session in this workspace, with the tools among its MCP servers. None where it goes on as it came.
    pub(super) fn offer_tools(
        &self,
        line: &[u8],
        params: &RawValue,
        workspace: &Workspace,
    ) -> Option<Vec<u8>> {
        let servers = {
            let state = self.lock();
            if state.told.is_empty() { StdioServers::Unsupported } else { state.servers }
        };
        let tools = self.tools.as_ref()?;
        let mut params = RawObject::parse(params)?;
        let given: Option<Vec<Box<RawValue>>> = match params.get("mcpServers") {
            None => None,
            // What is no list is the agent's to refuse.
            Some(given) => serde_json::from_str(given.get()).ok()?,
        };
        let mut all = given.unwrap_or_default();
        all.push(tools.entry(servers, &unused_name(&all), workspace)?);
        params.set("mcpServers", &all);
        encode::with_params(line, &params)
    }

    fn sentence(&self, reason: NotCovered) -> String {
        let what = match reason {
            NotCovered::Expected => {
                "this agent runs commands itself: those are neither judged nor confined".to_owned()
            }
            NotCovered::Version(version) => format!(
                "this agent speaks version {version} of the protocol, in which it runs commands itself: those are neither \
                 judged nor confined"
            ),
            NotCovered::CommandRun => {
                "this agent has run a command itself instead of asking for a terminal: that command \
                                       was neither judged nor confined"
                    .to_owned()
            }
        };
        let tools = match (&self.tools, reason) {
            (None, _) => "",
            (Some(_), NotCovered::CommandRun) => " Its next sessions get the tools of `provost mcp`.",
            (Some(_), NotCovered::Expected | NotCovered::Version(_)) => {
                " Its sessions get the tools of `provost mcp`."
            }
        };
        format!(
            "notice: {what}.{tools} To confine the whole agent, start it with `provost acp --confine-agent`"
        )
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

impl ToolServer {
    /// The server as an entry of `mcpServers`. None where the agent takes none, or a path is no text.
    fn entry(&self, servers: StdioServers, name: &str, workspace: &Workspace) -> Option<Box<RawValue>> {
        let mut args = vec!["mcp".to_owned(), "--gateway".to_owned(), self.gateway.clone()];
        args.push("--repository".to_owned());
        if let Some(profile) = &self.profile {
            args.extend(["--profile".to_owned(), profile.clone()]);
        }
        // As the gateway's own session of this workspace has them.
        let there = workspace.additional.iter().filter(|path| path.is_absolute() && path.is_dir());
        let writable = std::iter::once(&workspace.cwd).chain(there).chain(&self.shared.writable);
        for (option, path) in writable
            .map(|path| ("--root", path))
            .chain(self.shared.read_only.iter().map(|path| ("--ro", path)))
        {
            args.extend([option.to_owned(), text(path)?]);
        }
        let mut entry = json!({ "name": name, "command": text(&self.program)?, "args": args, "env": [] });
        match servers {
            StdioServers::Untyped => {}
            StdioServers::Typed => entry["type"] = "stdio".into(),
            StdioServers::Unsupported => return None,
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
        };
        let coverage = AgentCoverage::on_host(Some(tools), Arc::new(|_| {}), ExpectedTerminals::Requested);
        if let Some(reason) = reason {
            coverage.is_lacking(reason);
        }
        coverage
    }

    fn offered(coverage: &AgentCoverage, params: &str) -> Option<String> {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{params}}}"#);
        let workspace = Workspace { cwd: "/project".into(), additional: vec!["/no/such/directory".into()] };
        coverage.offer_tools(line.as_bytes(), &raw, &workspace).map(|line| String::from_utf8(line).unwrap())
    }

    const ENTRY: &str = r#""command":"/usr/bin/provost","args":["mcp","--gateway","unix:/run/g","--repository","--profile","p","--root","/project","--root","/w","--ro","/r"],"env":[]"#;

    #[test]
    fn only_an_agent_whose_commands_are_not_covered_gets_the_tools() {
        assert_eq!(offered(&coverage(None), r#"{"cwd":"/project","mcpServers":[]}"#), None);
        let not_covered = coverage(Some(NotCovered::CommandRun));
        for given in ["[]", "null"] {
            let line =
                offered(&not_covered, &format!(r#"{{"cwd":"/project","mcpServers":{given}}}"#)).unwrap();
            let expected = format!(r#""mcpServers":[{{"name":"provost",{ENTRY}}}]"#);
            assert!(line.contains(&expected), "{line}");
        }
        assert!(offered(&not_covered, r#"{"cwd":"/project"}"#).unwrap().contains(ENTRY));
        assert_eq!(offered(&not_covered, r#"{"cwd":"/project","mcpServers":{}}"#), None);
        let confined = AgentCoverage::confined();
        confined.is_lacking(NotCovered::CommandRun);
        assert_eq!(offered(&confined, r#"{"cwd":"/project","mcpServers":[]}"#), None);
    }

    #[test]
    fn the_editors_servers_stay_as_they_were_written_and_keep_their_names() {
        let own = r#"{"name": "provost", "command":"/x","n":1.00}, {"name":"provost-2"},"odd""#;
        let line =
            offered(&coverage(Some(NotCovered::Version(2))), &format!(r#"{{"mcpServers":[{own}],"z":1e3}}"#));
        let line = line.unwrap();
        for kept in
            [r#"{"name": "provost", "command":"/x","n":1.00}"#, r#""odd",{"name":"provost-3""#, r#""z":1e3"#]
        {
            assert!(line.contains(kept), "{kept} is not in {line}");
        }
    }

    #[test]
    fn a_later_version_names_the_kind_of_server_and_may_take_none() {
        let newer = coverage(Some(NotCovered::Version(2)));
        newer.set_servers(StdioServers::Typed);
        assert!(offered(&newer, r#"{"mcpServers":[]}"#).unwrap().contains(r#""type":"stdio""#));
        newer.set_servers(StdioServers::Unsupported);
        assert_eq!(offered(&newer, r#"{"mcpServers":[]}"#), None);
    }

    #[test]
    fn each_reason_is_told_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        let notice: NoticeSink = Arc::new(move |line| sink.lock().unwrap().push(line.to_owned()));
        let coverage = AgentCoverage::on_host(None, notice, ExpectedTerminals::NotRequested);
        for _ in 0..2 {
            coverage.is_lacking(NotCovered::CommandRun);
        }
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|line| line.contains("--confine-agent")), "{told:?}");
    }
}
