//! An SSH agent of another user than the gateway's: reached with that user's rights, and nobody else's.

use std::{
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{Gateway, Options, Session, code, is_root, skip};

/// Two callers.
const ONE: u32 = 4_101;
const OTHER: u32 = 4_102;

const LIST: &str = "ssh-add -L";

fn sign_for_git(policy: &mut toml::Table) {
    let profile = policy["profile"]["workspace"].as_table_mut().expect("a table");
    let rule = toml::Table::from_iter([("sign".to_owned(), toml::Value::Array(vec!["git".into()]))]);
    profile.insert("ssh_agent".to_owned(), rule.into());
}

/// A user's agent with a key.
struct Agent {
    process: Child,
    socket: PathBuf,
}

impl Agent {
    /// In a directory that other users can enter: only the socket's own mode keeps them out.
    fn start(gateway: &Gateway, uid: u32) -> Self {
        let directory = gateway.directory().join(format!("agent-{uid}"));
        std::fs::create_dir(&directory).expect("a directory can be made");
        chown(&directory, Some(uid), Some(uid)).expect("root may");
        let socket = directory.join("socket");
        let mut process = Command::new("ssh-agent");
        process.args(["-D", "-a"]).arg(&socket).uid(uid).gid(uid).stdout(Stdio::null());
        let process = process.spawn().expect("it is installed");
        let agent = Self { process, socket };
        let deadline = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&agent.socket).is_err() {
            assert!(Instant::now() < deadline, "the agent listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        let key = directory.join("key");
        let script = "ssh-keygen -q -t ed25519 -N '' -f \"$0\" && ssh-add -q \"$0\"";
        let mut made = Command::new("sh");
        // As root, whom the agent answers, too: the host may not know the user's name, which these programs ask for.
        made.args(["-c", script]).arg(&key).env("SSH_AUTH_SOCK", &agent.socket);
        assert!(made.env("HOME", &directory).status().expect("a shell").success());
        agent
    }

    /// Whether root gets a list of keys at it, outside.
    fn is_listed_for_root(&self) -> bool {
        let mut list = Command::new("ssh-add");
        list.arg("-L").env("SSH_AUTH_SOCK", &self.socket).stdout(Stdio::null());
        list.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn session(gateway: &Arc<Gateway>, uid: u32, socket: &Path) -> Session {
    let caller = gateway.caller_as(uid).await;
    let socket = socket.display().to_string();
    Session::open_with(gateway, caller, Some(uid), |request| request.ssh_agent = socket).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ssh_agent_is_reached_as_its_own_user_and_by_no_other() {
    if !is_root() {
        return skip("only root can be other users");
    }
    if !Command::new("ssh-add")
        .arg("-L")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.code().is_some())
    {
        return skip("ssh-add is not installed");
    }
    let gateway = Gateway::start_with(Options { policy: Some(sign_for_git), ..Options::default() });
    let agent = Agent::start(&gateway, ONE);
    let mut own = session(&gateway, ONE, &agent.socket).await;
    let listed = own.sh(LIST).finish().await;
    assert!(code(&listed.outcome) == 0 && listed.text().starts_with("ssh-ed25519 "), "{}", listed.text());
    let sign = "ssh-add -L > key.pub && echo text > text && ssh-keygen -q -Y sign -n git -f key.pub text && cat text.sig";
    let signed = own.sh(sign).finish().await;
    assert!(signed.text().contains("BEGIN SSH SIGNATURE"), "{}", signed.text());

    // The gateway itself could: it is root.
    assert!(agent.is_listed_for_root());
    let foreign = session(&gateway, OTHER, &agent.socket).await;
    assert_ne!(code(&foreign.sh(LIST).finish().await.outcome), 0, "the socket's mode");
    // Anybody may connect, and the agent would answer root.
    std::fs::set_permissions(&agent.socket, std::fs::Permissions::from_mode(0o666)).expect("root may");
    assert_ne!(code(&foreign.sh(LIST).finish().await.outcome), 0, "the agent is another user's");
    foreign.close().await;

    // A sandbox outlives its gateway, and the way to the agent does not.
    gateway.crash();
    gateway.start_again();
    let next = session(&gateway, ONE, &agent.socket).await;
    assert_eq!(code(&next.sh(LIST).finish().await.outcome), 0);
    own.go_on(&gateway.caller_as(ONE).await);
    assert_ne!(code(&own.sh(LIST).finish().await.outcome), 0, "the sandbox is the one of before");
    next.close().await;
    own.close().await;
    gateway.stop();
}
