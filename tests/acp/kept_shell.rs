//! The ACP library with a kept shell for each session, as a client that embeds it uses it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use agent_client_protocol_schema::v1::{
    CreateTerminalRequest, Error, KillTerminalRequest, ReleaseTerminalRequest, SessionId, TerminalExitStatus,
    TerminalId, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
};
use provost::{
    acp::{AcpTerminals, ApprovalPrompt, ApprovalReply, DENIED_CODE, KeptShells},
    client,
    proto::v1::watch_screen_response,
};

use crate::support::{Gateway, Session, within};

/// An embedding client with one session.
struct Embedder {
    terminals: AcpTerminals,
    session: SessionId,
    workspace: PathBuf,
    /// Whose workspace it is.
    _owner: Session,
}

/// A command that has ended.
#[derive(Debug)]
struct Ended {
    output: String,
    status: TerminalExitStatus,
}

impl Embedder {
    async fn start(gateway: &Arc<Gateway>, prompt: Option<ApprovalPrompt>) -> Self {
        let owner = Session::open(gateway).await;
        let client = client::connect(&format!("unix:{}", gateway.socket.display())).await;
        let quiet_limit = Duration::from_secs(1);
        let shells = KeptShells { program: Some("bash".into()), quiet_limit, ..KeptShells::default() };
        let terminals =
            AcpTerminals::with_kept_shells(client.expect("the gateway answers"), None, shells, prompt);
        let (session, workspace) = (SessionId::new("one"), owner.workspace.clone());
        terminals.open_session(&session, workspace.clone(), Vec::new());
        Self { terminals, session, workspace, _owner: owner }
    }

    fn request(&self, command: &str) -> CreateTerminalRequest {
        CreateTerminalRequest::new(self.session.clone(), command)
    }

    async fn create(&self, request: CreateTerminalRequest) -> Result<TerminalId, Error> {
        Ok(within("a terminal", self.terminals.create_terminal(request)).await?.terminal_id)
    }

    async fn begin(&self, command: &str) -> TerminalId {
        self.create(self.request(command)).await.expect("it is started")
    }

    async fn output(&self, id: &TerminalId) -> TerminalOutputResponse {
        let request = TerminalOutputRequest::new(self.session.clone(), id.clone());
        within("its output", self.terminals.terminal_output(request)).await.expect("it is there")
    }

    async fn until_output(&self, id: &TerminalId, text: &str) {
        within(text, async {
            while !self.output(id).await.output.contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    async fn wait(&self, id: &TerminalId) -> TerminalExitStatus {
        let request = WaitForTerminalExitRequest::new(self.session.clone(), id.clone());
        let waited = within("its end", self.terminals.wait_for_terminal_exit(request)).await;
        waited.expect("it ends").exit_status
    }

    async fn kill(&self, id: &TerminalId) {
        let request = KillTerminalRequest::new(self.session.clone(), id.clone());
        within("a kill", self.terminals.kill_terminal(request)).await.expect("it can be killed");
    }

    async fn release(&self, id: &TerminalId) {
        let request = ReleaseTerminalRequest::new(self.session.clone(), id.clone());
        within("a release", self.terminals.release_terminal(request)).await.expect("it can be released");
        let request = TerminalOutputRequest::new(self.session.clone(), id.clone());
        self.terminals.terminal_output(request).await.expect_err("the id is gone");
    }

    async fn run(&self, request: CreateTerminalRequest) -> Ended {
        let id = self.create(request).await.expect("it is started");
        let status = self.wait(&id).await;
        let output = self.output(&id).await;
        assert_eq!(output.exit_status.as_ref(), Some(&status));
        self.release(&id).await;
        Ended { output: output.output, status }
    }

    async fn ran(&self, command: &str) -> Ended {
        self.run(self.request(command)).await
    }

    /// Fails unless it wrote this and ended with this code.
    async fn must_be(&self, command: &str, output: &str, code: u32) {
        let ended = self.ran(command).await;
        assert_eq!((ended.output.as_str(), ended.status.exit_code), (output, Some(code)), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_a_session_run_in_one_kept_shell() {
    let client = Embedder::start(&Gateway::shared(), None).await;
    assert_eq!(client.terminals.shell_of(&client.session).await, None);
    client.must_be("mkdir inner && cd inner && KEPT=value; (exit 4)", "", 4).await;
    let inner = format!("value\n{}/inner\n", client.workspace.display());
    client.must_be("echo \"$KEPT\"; pwd", &inner, 0).await;
    // Arguments are one word each, and a directory is gone to.
    let words = ["%s|", "a b", "it's", "$KEPT", "*"].map(String::from).to_vec();
    assert_eq!(client.run(client.request("printf").args(words)).await.output, "a b|it's|$KEPT|*|");
    let there = client.run(client.request("pwd # here").cwd(client.workspace.clone())).await;
    assert_eq!(there.output, format!("{}\n", client.workspace.display()));
    let missing = client.run(client.request("echo not").cwd(client.workspace.join("missing"))).await;
    assert_ne!(missing.status.exit_code, Some(0));
    assert!(!missing.output.contains("not\n"), "{missing:?}");
    // A command with variables has a terminal of its own.
    let variable = agent_client_protocol_schema::v1::EnvVariable::new("NAME", "given");
    assert_eq!(client.run(client.request("echo $NAME").env(vec![variable])).await.output, "given\n");
    client.must_be("echo \"${NAME:-none}\"", "none\n", 0).await;
    // So has one that comes while another one runs.
    let line = client.begin("while [ ! -e go-on ]; do sleep 0.02; done; echo over").await;
    client.must_be("echo \"${KEPT:-none}\"", "none\n", 0).await;
    assert!(client.output(&line).await.exit_status.is_none());
    std::fs::write(client.workspace.join("go-on"), "").expect("it can be written");
    assert_eq!(client.wait(&line).await.exit_code, Some(0));
    assert_eq!(client.output(&line).await.output, "over\n");
    // Another session has another shell.
    let other = SessionId::new("two");
    client.terminals.open_session(&other, client.workspace.clone(), Vec::new());
    let created = client.create(CreateTerminalRequest::new(other.clone(), "KEPT=other")).await;
    let created = created.expect("it is started");
    let request = WaitForTerminalExitRequest::new(other.clone(), created);
    within("its end", client.terminals.wait_for_terminal_exit(request)).await.expect("it ends");
    client.must_be("echo \"$KEPT\"", "value\n", 0).await;
    let shell = client.terminals.shell_of(&client.session).await.expect("it is kept");
    assert_ne!(client.terminals.shell_of(&other).await.expect("it is kept"), shell);
    assert!(line.0.starts_with(&format!("{}-", shell.terminal_id)), "{line}");
    // What is shown is the whole shell.
    let mut screen = client.terminals.watch_shell(&client.session).await.expect("it has a screen");
    let first = within("a screen", screen.message()).await.expect("it is sent").and_then(|m| m.event);
    let Some(watch_screen_response::Event::Snapshot(snapshot)) = first else { panic!("{first:?}") };
    assert!(format!("{snapshot:?}").contains("value"), "{snapshot:?}");
    // The last command leaves the shell: the next one gets another.
    client.must_be("exit 3", "exit\n", 3).await;
    client.must_be("echo \"${KEPT:-none}\"", "none\n", 0).await;
    // So it is where the shell dies, and that is said.
    let ended = client.ran("kill -KILL $$").await;
    assert_eq!((ended.status.exit_code, ended.status.signal.as_deref()), (Some(137), Some("SIGKILL")));
    assert!(ended.output.contains("provost: the session's shell has ended by SIGKILL"), "{ended:?}");
    client.must_be("echo again", "again\n", 0).await;
    within("the end", client.terminals.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_interrupted_and_ends_with_its_shell_if_it_goes_on_after_its_release() {
    let client = Embedder::start(&Gateway::shared(), None).await;
    client.must_be("KEPT=value", "", 0).await;
    let line = client.begin("sh -c 'echo begun; exec sleep 1000'").await;
    client.until_output(&line, "begun\n").await;
    client.kill(&line).await;
    assert_eq!(client.wait(&line).await.exit_code, Some(130));
    // It is over: the shell is not interrupted again.
    client.kill(&line).await;
    client.release(&line).await;
    client.must_be("echo \"$KEPT\"", "value\n", 0).await;
    let line =
        client.begin("sh -c 'trap \"\" INT; echo begun; while :; do sleep 0.05; touch alive; done'").await;
    client.until_output(&line, "begun\n").await;
    client.kill(&line).await;
    client.release(&line).await;
    client.must_be("rm -f alive; echo \"${KEPT:-none}\"", "none\n", 0).await;
    assert!(!client.workspace.join("alive").exists(), "nothing of it runs any more");
    // A shell whose marks are taken away says nothing for certain.
    let ended = client.ran("_provost() { :; }; PS1='$ '").await;
    assert_eq!(ended.status.exit_code, None, "{ended:?}");
    assert!(ended.output.contains("provost: the shell has not confirmed the end"), "{ended:?}");
    let meta = ended.status.meta.expect("it says why");
    assert_eq!(meta["provost"]["line"]["doubts"], serde_json::json!(["marks_missing"]));
    within("the end", client.terminals.close()).await;
}

fn with_rules(policy: &mut toml::Table) {
    let rules: toml::Table = "[[rule]]\nid = 'never'\ndecision = 'deny'\nargv = ['mkfifo', '**']\n\
         [[rule]]\nid = 'careful'\ndecision = 'ask'\nargv = ['basename', '**']\nreason = 'ask first'\n"
        .parse()
        .expect("they are rules");
    let rules = rules["rule"].as_array().expect("they are a list").clone();
    policy["rule"].as_array_mut().expect("there are rules").extend(rules);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_judged_asked_about_and_outlive_their_gateway() {
    let gateway = Gateway::with_policy(with_rules);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let prompt: ApprovalPrompt = Arc::new(move |question| {
        let counted = counted.clone();
        Box::pin(async move {
            assert_eq!(question.rule, "careful");
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => ApprovalReply::Allow,
                _ => ApprovalReply::Deny("not today".into()),
            }
        })
    });
    let client = Embedder::start(&gateway, Some(prompt)).await;
    let denied = client.create(client.request("touch made; mkfifo x")).await.expect_err("a rule denies it");
    assert_eq!(i32::from(denied.code), DENIED_CODE, "{denied:?}");
    assert!(!client.workspace.join("made").exists());
    client.must_be("basename a/b", "b\n", 0).await;
    let refused = client.create(client.request("basename a/c")).await.expect_err("a person said no");
    assert!(refused.message.contains("not today"), "{refused:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    // The gateway is lost in the middle of a line.
    client.must_be("KEPT=value", "", 0).await;
    let line = client.begin("echo begun >>ran; while [ ! -e go-on ]; do sleep 0.02; done").await;
    gateway.crash();
    gateway.start_again();
    assert!(client.output(&line).await.exit_status.is_none(), "it runs on");
    std::fs::write(client.workspace.join("go-on"), "").expect("it can be written");
    let status = client.wait(&line).await;
    assert_eq!(status.exit_code, None, "{status:?}");
    client.must_be("cat ran; echo \"$KEPT\"", "begun\nvalue\n", 0).await;
    within("the end", client.terminals.close()).await;
    gateway.stop();
}
