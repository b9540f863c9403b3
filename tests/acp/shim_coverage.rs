//! Agents that do not ask for terminals: what the person, the journal and the editor are told, and that their sessions get the
//! tools of `provost mcp`, which run commands where the session's terminals would.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::shim_peer::ShimPeer;
use crate::support::StdioServer;

/// An editor that speaks version 2 too.
fn later_editor(peer: &mut ShimPeer) -> Value {
    let request = json!({"jsonrpc":"2.0","id":5,"method":"initialize",
        "params":{"protocolVersion":2,"capabilities":{},"info":{"name":"editor","version":"1"}}});
    peer.editor_sends(request.clone());
    assert_eq!(peer.agent_receives()["params"]["protocolVersion"], 1);
    request
}

/// The answer of an agent that speaks version 2, and starts MCP servers or does not.
fn later_agent(mcp: Value) -> Value {
    json!({"jsonrpc":"2.0","id":5,"result":
        {"protocolVersion":2,"info":{"name":"agent","version":"1"},"capabilities":{"session":{"mcp":mcp}}}})
}

/// The MCP servers that the agent hears of, when the editor opens a session in the workspace with one of its own.
fn servers_of(peer: &mut ShimPeer, method: &str, id: &str) -> Vec<Value> {
    let own = json!({"name":"provost","command":"/editors/own","args":[],"env":[],"n":1.5});
    let params = json!({"sessionId":id,"cwd":peer.workspace,"mcpServers":[own]});
    peer.editor_sends(json!({"jsonrpc":"2.0","id":"open","method":method,"params":params}));
    let heard = peer.agent_receives();
    assert_eq!((&heard["method"], &heard["params"]["cwd"]), (&json!(method), &params["cwd"]));
    let mut servers = heard["params"]["mcpServers"].as_array().expect("a list").clone();
    assert_eq!(servers.remove(0), own, "the editor's own server stays");
    let answer = json!({"jsonrpc":"2.0","id":"open","result":{"sessionId":id}});
    peer.agent_sends(answer.clone());
    assert_eq!(peer.editor_receives(), answer);
    servers
}

/// Has the server that an agent is told of run a line, as the agent would, and gives the result's text.
fn run_by(server: &Value, line: &str) -> String {
    let words = server["args"].as_array().expect("arguments").iter().map(|word| word.as_str().expect("text"));
    let mut command = Command::new(server["command"].as_str().expect("a command"));
    let mut tools = StdioServer::start(command.args(words));
    let client =
        json!({"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"agent","version":"1"}});
    for message in [
        json!({"jsonrpc":"2.0","id":1,"method":"initialize","params":client}),
        json!({"jsonrpc":"2.0","method":"notifications/initialized"}),
        json!({"jsonrpc":"2.0","id":2,"method":"tools/call",
            "params":{"name":"run_command","arguments":{"command":line}}}),
    ] {
        tools.send_line(&message.to_string());
    }
    let answer = loop {
        let message = tools.receive();
        if message["id"] == 2 {
            break message;
        }
    };
    assert!(tools.leave().success());
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// As `run_by`, over HTTP with what the entry names; the last answer. None where nobody listens any more.
fn run_over_http(server: &Value, line: &str) -> Option<String> {
    let (url, header) = (server["url"].as_str().expect("a URL"), &server["headers"][0]);
    let address =
        url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).expect("the endpoint");
    let post = |session: Option<&str>, message: Value| {
        let body = message.to_string();
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\n{}: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{session}Connection: close\r\nContent-Length: {}\r\n\r\n",
            header["name"].as_str().expect("text"),
            header["value"].as_str().expect("text"),
            body.len()
        );
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        // A server that ends breaks its connections off.
        stream.read_to_string(&mut answer).ok().filter(|length| *length > 0)?;
        Some(answer)
    };
    let client =
        json!({"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"agent","version":"1"}});
    let opened = post(None, json!({"jsonrpc":"2.0","id":1,"method":"initialize","params":client}))?;
    let session = opened
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    let Some(session) = session else { return Some(opened) };
    post(Some(&session), json!({"jsonrpc":"2.0","method":"notifications/initialized"}))?;
    post(
        Some(&session),
        json!({"jsonrpc":"2.0","id":2,"method":"tools/call",
            "params":{"name":"run_command","arguments":{"command":line}}}),
    )
}

fn records(journal: &str) -> Vec<Value> {
    let query = ["audit", "--journal", journal, "query", "-o", "json"];
    let output = Command::new(env!("CARGO_BIN_EXE_provost")).args(query).output().expect("provost starts");
    let lines = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a record")["record"].clone())
        .collect()
}

#[test]
fn an_agent_of_a_later_version_is_told_of_and_its_sessions_get_tools_that_confine() {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = directory.path().join("journal").display().to_string();
    let secret = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file of the host");
    let look = format!("pwd; grep Seccomp: /proc/self/status; ls {}", secret.path().display());
    let outside = Command::new("sh").args(["-c", &look]).output().expect("a shell");
    assert!(outside.status.success(), "the file can be seen outside");

    let mut peer = ShimPeer::start(&["--journal", &journal]);
    later_editor(&mut peer);
    let answer = later_agent(json!({"stdio":{}}));
    peer.agent_sends(answer.clone());
    assert_eq!(peer.editor_receives(), answer, "the editor, which speaks the version, hears of it");
    let servers = servers_of(&mut peer, "session/new", "later");
    assert_eq!(servers.len(), 1, "{servers:?}");
    assert_eq!((&servers[0]["name"], &servers[0]["type"]), (&json!("provost-2"), &json!("stdio")));
    let seen = run_by(&servers[0], &look);
    let here = peer.workspace.canonicalize().expect("it is there").display().to_string();
    for expected in ["Seccomp:\t2", "No such file", &here] {
        assert!(seen.contains(expected), "{expected:?} is not in {seen:?}");
    }
    // Its own terminals are its own, whatever their ids are.
    let update = json!({"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"later","update":
        {"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed",
         "content":[{"type":"terminal","terminalId":"of the agent"}]}}});
    peer.agent_sends(update.clone());
    assert_eq!(peer.editor_receives(), update);
    peer.editor_disconnects();
    let (_, said) = peer.end();
    assert_eq!(said.matches("speaks version 2").count(), 1, "{said}");
    assert!(said.contains("neither judged nor confined") && said.contains("--confine-agent"), "{said}");
    let records = records(&journal);
    let reports: Vec<&Value> = records.iter().filter(|record| record["kind"] == "bypass_reported").collect();
    assert_eq!(reports.len(), 1, "{records:?}");
    assert_eq!(reports[0]["report"], "agent_not_covered");
    let sessions: Vec<&Value> = records.iter().filter(|record| record["kind"] == "session_opened").collect();
    let of = |front_end: &str| {
        let mut of = sessions.iter().filter(|record| record["front_end"] == front_end);
        let session = of.next().unwrap_or_else(|| panic!("no session of {front_end}: {sessions:?}"));
        (session["principal"].clone(), session["profile"].clone())
    };
    assert_eq!(of("mcp"), of("acp"), "the tools have the session's principal and profile");
}

#[test]
fn an_agent_that_refuses_version_one_is_asked_as_its_editor_asked() {
    let mut peer = ShimPeer::start(&[]);
    let original = later_editor(&mut peer);
    let refusal = json!({"code":-32022,"message":"unsupported","data":{"requested":1,"supported":[2]}});
    peer.agent_sends(json!({"jsonrpc":"2.0","id":5,"error":refusal}));
    assert_eq!(peer.agent_receives(), original);
    // It takes no servers on stdio or over HTTP, and would refuse a session with one.
    let answer = later_agent(json!({"sse":{}}));
    peer.agent_sends(answer.clone());
    assert_eq!(peer.editor_receives(), answer, "it is the first that the editor hears");
    assert!(servers_of(&mut peer, "session/new", "s").is_empty());
    peer.editor_disconnects();
    let (_, said) = peer.end();
    assert!(said.contains("--confine-agent") && said.contains("gets no tools"), "{said}");
    assert!(!said.contains("get the tools"), "{said}");

    // Asked once more and no more; an editor of version 1 has nothing else to ask for.
    for version in [2, 1] {
        let mut peer = ShimPeer::start(&[]);
        peer.editor_sends(
            json!({"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":version}}),
        );
        let error = json!({"jsonrpc":"2.0","id":5,"error":refusal});
        for _ in 0..version {
            peer.agent_receives();
            peer.agent_sends(error.clone());
        }
        assert_eq!(peer.editor_receives(), error);
    }
}

#[test]
fn an_agent_that_takes_servers_over_http_gets_the_tools_so_for_as_long_as_its_session() {
    let secret = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file of the host");
    let look = format!("pwd; grep Seccomp: /proc/self/status; ls {}", secret.path().display());
    let outside = Command::new("sh").args(["-c", &look]).output().expect("a shell");
    assert!(outside.status.success(), "the file can be seen outside");

    let mut peer = ShimPeer::start(&["--offer-tools"]);
    peer.editor_sends(json!({"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":1}}));
    peer.agent_receives();
    // As Copilot answers, which drops servers on stdio without a word.
    let answer = json!({"jsonrpc":"2.0","id":5,"result":{"protocolVersion":1,
        "agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true}}}});
    peer.agent_sends(answer.clone());
    assert_eq!(peer.editor_receives(), answer);
    let first = servers_of(&mut peer, "session/new", "first").remove(0);
    let second = servers_of(&mut peer, "session/new", "second").remove(0);
    assert_eq!((&first["type"], &first["name"]), (&json!("http"), &json!("provost-2")));
    assert_ne!(first["url"], second["url"], "each session has its own");
    let seen = run_over_http(&first, &look).expect("it listens");
    let here = peer.workspace.canonicalize().expect("it is there").display().to_string();
    for expected in ["Seccomp:\\t2", "No such file", &here] {
        assert!(seen.contains(expected), "{expected:?} is not in {seen:?}");
    }
    let mut stranger = first.clone();
    stranger["headers"][0]["value"] = json!("Bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let refused = run_over_http(&stranger, &look).expect("it listens");
    assert!(refused.starts_with("HTTP/1.1 401"), "without the token nothing is answered: {refused}");
    let close = json!({"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"first"}});
    peer.editor_sends(close.clone());
    assert_eq!(peer.agent_receives(), close);
    peer.agent_sends(json!({"jsonrpc":"2.0","id":9,"result":{}}));
    peer.editor_receives();
    let deadline = Instant::now() + Duration::from_secs(60);
    while run_over_http(&first, "true").is_some() {
        assert!(Instant::now() < deadline, "the server of a session that is over ends");
    }
    assert!(run_over_http(&second, "echo there").is_some_and(|seen| seen.contains("there")));
    peer.editor_disconnects();
    let (_, said) = peer.end();
    assert!(said.contains("get the tools of `provost mcp`, as an MCP server over HTTP"), "{said}");
    assert!(run_over_http(&second, "true").is_none(), "it ends with the agent");
}

#[test]
fn the_sessions_after_a_command_of_the_agents_own_get_the_tools() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    assert!(servers_of(&mut peer, "session/new", "before").is_empty());
    for update in [
        json!({"sessionUpdate":"tool_call","toolCallId":"a","title":"ls","kind":"execute"}),
        json!({"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}),
    ] {
        let params = json!({"sessionId":"s","update":update});
        peer.agent_sends(json!({"jsonrpc":"2.0","method":"session/update","params":params}));
        peer.editor_receives();
    }
    for method in ["session/new", "session/load", "session/resume", "session/fork"] {
        let servers = servers_of(&mut peer, method, method);
        assert_eq!(servers.len(), 1, "{method}: {servers:?}");
        assert!(servers[0].get("type").is_none(), "version 1 knows no such field: {servers:?}");
    }
    peer.editor_disconnects();
    assert!(peer.end().1.contains("Its next sessions get the tools"));
}

#[test]
fn tools_can_be_asked_for_and_a_confined_agent_gets_none() {
    let read_only = tempfile::tempdir().expect("a directory");
    std::fs::write(read_only.path().join("file"), "read").expect("a file");
    let directory = read_only.path().display().to_string();
    let mut peer = ShimPeer::start(&["--offer-tools", "--ro", &directory]);
    let servers = servers_of(&mut peer, "session/new", "t");
    let touched =
        run_by(&servers[0], &format!("cat {directory}/file; touch {directory}/new || echo not written"));
    assert!(touched.contains("read") && touched.contains("not written"), "{touched}");

    let mut peer = ShimPeer::start(&["--confine-agent"]);
    later_editor(&mut peer);
    let answer = later_agent(json!({"stdio":{}}));
    peer.agent_sends(answer.clone());
    assert_eq!(peer.editor_receives(), answer);
    assert!(servers_of(&mut peer, "session/new", "s").is_empty(), "its commands are confined with it");
    peer.editor_disconnects();
    assert!(!peer.end().1.contains("--confine-agent"));
}
