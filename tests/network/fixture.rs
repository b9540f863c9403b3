//! A gateway with rules about connections, and servers on loopback addresses of the test's own, with names in a table of hosts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use provost::proto::v1::Network;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    python_server::PythonServer,
    support::{self, Gateway, Options, Session},
};

/// The rules of the tests.
pub(crate) const RULES: &str = r#"
[[connect]]
id = "registry"
decision = "allow"
host = ["registry.test", "*.files.test"]
address = ["127.83.0.0/16"]
port = [18080, 18443]

[[connect]]
id = "no-secret"
decision = "deny"
host = ["secret.files.test"]
reason = "it is a secret"

[[connect]]
id = "careful"
decision = "ask"
host = ["careful.test"]
address = ["127.83.0.0/16"]
port = [18080, 18443]
reason = "it costs money"

[[connect]]
id = "reading"
decision = "allow"
host = ["reading.test"]
address = ["127.83.0.0/16"]
port = [18080, 18443]
method = ["GET", "HEAD"]
path = ["/v1/**"]
matches = ["GET http://reading.test:18080/v1/x"]
rejects = ["POST http://reading.test:18080/v1/x", "GET http://reading.test:18080/v2"]

[[connect]]
id = "no-private"
decision = "deny"
host = ["reading.test"]
path = ["/v1/private/**"]
reason = "it is private"

[[connect]]
id = "posting"
decision = "allow"
host = ["posting.test"]
address = ["127.83.0.0/16"]
port = [18080]
method = ["GET", "POST"]

[[connect]]
id = "plain"
decision = "allow"
host = ["plain.test"]
address = ["127.83.0.0/16"]
port = [18080]
tunnel = "any"

[[connect]]
id = "mirror"
decision = "allow"
host = ["registry.npmjs.org"]
address = ["127.83.0.0/16"]
port = [443]

[[connect]]
id = "near"
decision = "allow"
host = ["near.test", "mapped.test", "nat64.test", "metadata.test", "nowhere.test"]
port = [18080]
"#;

static LAST: AtomicU32 = AtomicU32::new(0);

/// The servers, and the gateway.
pub(crate) struct Fixture {
    pub gateway: Arc<Gateway>,
    /// Where the servers listen.
    pub address: String,
    pub directory: TempDir,
    _server: PythonServer,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::start_as(None)
    }

    /// With a gateway of this user, when the tests run as root.
    pub(crate) fn start_as(user: Option<u32>) -> Self {
        Self::start_with(user, "")
    }

    /// With further lines of the configuration.
    pub(crate) fn start_with(user: Option<u32>, further: &str) -> Self {
        Self::start_by(user, further, |_, _| {})
    }

    /// With other options of the gateway, which may need files in this directory.
    pub(crate) fn start_by(
        user: Option<u32>,
        further: &str,
        change: impl FnOnce(&mut Options, &Path),
    ) -> Self {
        let address =
            format!("127.83.{}.{}", std::process::id() % 250 + 1, LAST.fetch_add(1, Relaxed) % 250 + 1);
        let directory = tempfile::Builder::new().prefix("provost-net-").tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(directory.path(), mode).expect("the directory is ours");
        let names = [
            "registry",
            "a.files",
            "a.b.files",
            "secret.files",
            "plain",
            "near",
            "other",
            "xfiles",
            "careful",
            "reading",
            "posting",
            "vault",
            "a.vault",
            "carried",
            "expired",
            "wrong",
            "own",
            "later",
            "asked",
        ];
        let mut hosts: String = names.iter().map(|name| format!("{address} {name}.test\n")).collect();
        hosts += &format!("::ffff:{address} mapped.test\n64:ff9b::{address} nat64.test\n");
        hosts += &format!("169.254.169.254 metadata.test\n{address} registry.npmjs.org\n");
        fs::write(at("hosts"), hosts).expect("a file");
        fs::write(at("resolv.conf"), "").expect("a file");
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ])
            .args([
                "-subj",
                "/CN=registry.test",
                "-addext",
                "subjectAltName=DNS:registry.test,DNS:*.files.test,DNS:registry.npmjs.org",
            ])
            .arg("-keyout")
            .arg(at("key.pem"))
            .arg("-out")
            .arg(at("cert.pem"))
            .stderr(Stdio::null())
            .status()
            .expect("openssl can be started");
        assert!(made.success(), "openssl makes a certificate");
        let server = PythonServer::start(include_str!("server.py"), &[&address], directory.path());
        let config = format!(
            "[names]\nhosts = \"{}\"\nresolv_conf = \"{}\"\n{further}\n",
            at("hosts").display(),
            at("resolv.conf").display()
        );
        let policy = if user.is_some() { preferring } else { policy };
        let mut options = Options { policy: Some(policy), config: Some(config), user, ..Options::default() };
        change(&mut options, directory.path());
        Self { gateway: Gateway::start_with(options), address, directory, _server: server }
    }

    /// A command with this network that has the client and the certificate in its workspace.
    pub(crate) fn command(&self, session: &Session, network: Network, program: &str) -> support::Command {
        fs::write(session.workspace.join("client.py"), include_str!("client.py")).expect("a file");
        fs::write(session.workspace.join("fetch.go"), include_str!("fetch.go")).expect("a file");
        fs::copy(self.directory.path().join("cert.pem"), session.workspace.join("cert.pem")).expect("a file");
        session.command(program).with(|request| request.network = network as i32)
    }

    /// A shell's line in a sandbox with the proxy.
    pub(crate) fn sh(&self, session: &Session, script: &str) -> support::Command {
        self.command(session, Network::Proxy, "sh").args(["-c", script])
    }

    /// What became of each attack of the client: all of them, or those that are named.
    pub(crate) async fn attacks(
        &self,
        session: &Session,
        network: Network,
        names: &[&str],
    ) -> Vec<(String, String)> {
        let client = self.command(session, network, "python3").args(["client.py", &self.address]);
        let done = client.args(names.iter().copied()).retain(1 << 20).finish().await;
        let text = done.text();
        let pair = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"));
        text.lines().map(pair).collect()
    }

    /// The records of one kind in the gateway's journal.
    pub(crate) fn records(&self, kind: &str) -> Vec<Value> {
        let output = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["audit", "--journal"])
            .arg(self.gateway.state.join("journal"))
            .args(["query", "-o", "json"])
            .output()
            .expect("provost can be started");
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).expect("records are text");
        let record =
            |line: &str| serde_json::from_str::<Value>(line).expect("a line is JSON")["record"].take();
        lines.lines().map(record).filter(|record| record["kind"] == kind).collect()
    }

    /// Bytes that a host has answered, by the ends of connections that are written down.
    pub(crate) fn received(&self, host: &str) -> u64 {
        let ended = self.records("connection_ended");
        ended.iter().filter(|end| end["host"] == host).filter_map(|end| end["received_bytes"].as_u64()).sum()
    }

    /// Waits until a host has answered more bytes than these: the end of a connection is written after its program has ended.
    pub(crate) async fn receives_more(&self, what: &str, host: &str, before: u64) {
        support::eventually(what, || (self.received(host) > before).then_some(())).await;
    }

    /// The text of the policy in force.
    pub(crate) fn policy_text(&self) -> String {
        fs::read_to_string(self.policy_file()).expect("the policy can be read")
    }

    /// Puts another policy into force.
    pub(crate) fn reload(&self, text: &str) {
        fs::write(self.policy_file(), text).expect("the policy can be written");
        let reloaded = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["policy", "reload", "--gateway", &format!("unix:{}", self.gateway.socket.display())])
            .output()
            .expect("provost can be started");
        assert!(reloaded.status.success(), "{reloaded:?}");
    }

    /// Puts the policy in force with further rules into force.
    pub(crate) fn reload_with(&self, rules: &str) {
        self.reload(&format!("{}\n{rules}", self.policy_text()));
    }

    /// The gateway's policy file.
    pub(crate) fn policy_file(&self) -> PathBuf {
        self.gateway.directory().join("policies/default.toml")
    }
}

/// An ordinary user's gateway has no cgroup here.
fn preferring(table: &mut toml::Table) {
    policy(table);
    table["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

fn policy(policy: &mut toml::Table) {
    let network = "default = \"none\"\nchoices = [\"none\", \"host\", \"proxy\"]";
    let network: toml::Table = network.parse().expect("it is TOML");
    policy["profile"]["workspace"]
        .as_table_mut()
        .expect("a profile")
        .insert("network".to_owned(), network.into());
    let rules: toml::Table = RULES.parse().expect("it is TOML");
    policy.extend(rules);
}
