//! The official clients of Python and TypeScript, unmodified. Each makes the same checks, and prints the name of each that
//! has passed.

use std::process::Command;

use crate::{
    mcp::{
        http::HttpServer,
        libraries::{Library, Missing, run_bounded},
    },
    support::{self, Gateway},
};

const CHECKS: [&str; 6] = ["tools", "run", "background", "denied", "progress", "cancelled"];

fn library(name: &str) -> Result<Library, Missing> {
    let mut library = Library::prepare(&format!("mcp-{name}"))?;
    library.sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp").join(name);
    Ok(library)
}

fn python() -> Result<Command, Missing> {
    library("python").and_then(|library| {
        let mut client = Command::new(library.python()?);
        client.arg(library.sources.join("client.py"));
        Ok(client)
    })
}

fn typescript() -> Result<Command, Missing> {
    library("node").and_then(|library| {
        for name in ["package.json", "package-lock.json", "client.mjs"] {
            library.copy(name);
        }
        let mut npm = Command::new("npm");
        library.run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
        let mut client = Command::new("node");
        client.arg(library.directory.join("client.mjs"));
        Ok(client)
    })
}

#[test]
#[ignore = "long: installs from PyPI; .ci/run runs it"]
fn python_with_mcp() {
    check(python(), Transport::Stdio);
    check(python(), Transport::Http);
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn typescript_with_the_sdk() {
    check(typescript(), Transport::Stdio);
    check(typescript(), Transport::Http);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// The client starts the server itself.
    Stdio,
    Http,
}

/// Runs a client at a gateway of its own.
fn check(client: Result<Command, Missing>, transport: Transport) {
    let mut client = match client {
        Ok(client) => client,
        Err(Missing(what)) => return support::skip(&what),
    };
    let gateway = Gateway::with_policy(|policy| {
        let rule = "id = 'no-publishing'\ndecision = 'deny'\nargv = ['touch', 'published']\nreason = 'it is for people'";
        support::add_rule(policy, rule);
    });
    let workspace = tempfile::tempdir().expect("a temporary directory");
    let server = match transport {
        Transport::Stdio => {
            client.arg(env!("CARGO_BIN_EXE_provost"));
            client.arg(format!("unix:{}", gateway.socket.display())).arg(workspace.path());
            None
        }
        Transport::Http => {
            let server = HttpServer::start(gateway.clone());
            client.arg(&server.url).arg(&server.token_file).arg(&server.workspace);
            Some(server)
        }
    };
    let (printed, status) = run_bounded(&mut client);
    assert!(status.success(), "{status}: {printed}");
    let passed: Vec<&str> = printed.lines().filter(|line| CHECKS.contains(line)).collect();
    assert_eq!(passed, CHECKS, "{transport:?}: {printed}");
    match server {
        Some(server) => server.stop(),
        None => gateway.stop(),
    }
}
