//! Connections that a rule asks a person about: they wait, and become what the person says.

use std::{fs, time::Duration};

use provost::proto::v1::{
    Approval, ApprovalDecision, ApprovalState, ExitCause, ListApprovalsRequest, Network, OnAsk,
    ResolveApprovalRequest, approvals_client::ApprovalsClient,
};
use tonic::transport::Channel;

use crate::{
    fixture::Fixture,
    support::{Caller, Session, code, seconds, within},
};

/// A person at a gateway.
pub(crate) struct Approver(ApprovalsClient<Channel>);

impl Approver {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self(ApprovalsClient::new(caller.channel()))
    }

    pub(crate) async fn list(&mut self) -> Vec<Approval> {
        let listed = self.0.list_approvals(ListApprovalsRequest::default()).await;
        listed.expect("they can be listed").into_inner().approvals
    }

    /// A question in this state.
    pub(crate) async fn question(&mut self, state: ApprovalState) -> Approval {
        within("a question", async {
            loop {
                if let Some(found) = self.list().await.into_iter().find(|approval| approval.state() == state)
                {
                    break found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// The question of this id, when it is in this state.
    async fn becomes(&mut self, id: &str, state: ApprovalState) {
        within("what becomes of a question", async {
            while !self.list().await.iter().any(|approval| approval.id == id && approval.state() == state) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Says yes to the next question.
    pub(crate) async fn approve_next(&mut self) {
        let question = self.question(ApprovalState::Pending).await;
        self.answer(&question, ApprovalDecision::Approve).await;
    }

    pub(crate) async fn answer(&mut self, approval: &Approval, decision: ApprovalDecision) {
        let request = ResolveApprovalRequest {
            approval_id: approval.id.clone(),
            decision: decision.into(),
            comment: "says the test".to_owned(),
            ..ResolveApprovalRequest::default()
        };
        self.0.resolve_approval(request).await.expect("it can be answered");
    }
}

const GET: &str = "curl -sS http://careful.test:18080/asked";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_a_rule_asks_about_waits_and_becomes_what_a_person_says() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    let waiting = fixture.sh(&session, GET).with(|create| create.idle_limit = Some(seconds(1)));
    let terminal = waiting.create().await;
    let question = approver.question(ApprovalState::Pending).await;
    assert_eq!((question.rule.as_str(), question.reason.as_str()), ("careful", "it costs money"));
    assert_eq!(question.matched_command, "connection to careful.test:18080");
    let connection = question.connection.clone().expect("it is about a connection");
    assert_eq!((connection.host.as_str(), connection.port), ("careful.test", 18080));
    assert_eq!((&connection.terminal_id, question.exec.is_none()), (&terminal.id, true));
    assert_eq!(question.cwd, session.workspace.display().to_string());
    let listed = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["approvals", "list", "--gateway", &format!("unix:{}", fixture.gateway.socket.display())])
        .output()
        .expect("provost can be started");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("connection to careful.test:18080"), "{listed}");
    // Longer than its idle limit: this is the time that is tested.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(!fixture.records("connection").iter().any(|record| record["decision"] == "allow"));
    approver.answer(&question, ApprovalDecision::Approve).await;
    let outcome = terminal.wait().await;
    let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert_eq!((outcome.cause(), code(&outcome)), (ExitCause::Exited, 0), "{text}");
    assert!(text.contains("SERVED GET careful.test:18080 /asked"), "{text}");
    assert_eq!(approver.question(ApprovalState::Used).await.id, question.id);

    // A yes is for one connection.
    let again = tokio::spawn(fixture.sh(&session, GET).finish());
    let second = approver.question(ApprovalState::Pending).await;
    approver.answer(&second, ApprovalDecision::Deny).await;
    let done = within("the end of it", again).await.expect("it is not cancelled");
    assert!(done.text().contains("denied by rule \"careful\": uid:"), "{}", done.text());
    assert!(done.text().contains("has denied it: says the test"), "{}", done.text());
    assert_eq!(done.outcome.connect_denials[0].rule, "careful");

    let unattended = fixture.sh(&session, GET).with(|create| create.on_ask = OnAsk::Refuse.into());
    let done = unattended.finish().await;
    assert!(done.text().contains("the command does not wait for one"), "{}", done.text());
    assert_eq!(approver.list().await.len(), 2, "nobody was asked");
    let decisions: Vec<_> = fixture
        .records("connection")
        .iter()
        .map(|record| record["decision"].as_str().unwrap_or("").to_owned())
        .collect();
    assert_eq!(decisions, ["ask", "allow", "ask", "deny", "deny"]);
    assert_eq!(fixture.records("approval_requested").len(), 2);
    session.close().await;
    fixture.gateway.stop();
}

/// The ways to a host, and whether a request within is another connection to it.
const WAYS: [&str; 4] = [
    "curl -sSk https://careful.test:18443/",
    "curl -sS -p http://careful.test:18080/",
    "curl -sS --socks5-hostname 127.0.0.1:1080 http://careful.test:18080/",
    "curl -sS --noproxy '*' http://careful.test:18080/",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_a_host_is_asked_about_once() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    for (way, asked) in WAYS.iter().zip(1..) {
        let running = tokio::spawn(fixture.sh(&session, way).finish());
        approver.approve_next().await;
        let done = within("the end of it", running).await.expect("it is not cancelled");
        assert!(done.text().contains("SERVED GET careful.test"), "{way}: {}", done.text());
        assert_eq!(approver.list().await.len(), asked, "{way}");
    }
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_taken_back_when_the_program_has_gone() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    for (number, way) in WAYS.into_iter().enumerate() {
        // Each has a file of its own: the command is killed before it could remove one.
        let script = format!(
            "{way} & program=$!; while [ ! -e stop{number} ]; do sleep 0.05; done; kill -9 $program; sleep 600"
        );
        let terminal = fixture.sh(&session, &script).create().await;
        let question = approver.question(ApprovalState::Pending).await;
        fs::write(session.workspace.join(format!("stop{number}")), "").expect("a file");
        approver.becomes(&question.id, ApprovalState::Withdrawn).await;
        terminal.kill(Some(Duration::ZERO)).await;
        terminal.wait().await;
    }
    let terminal = fixture.sh(&session, GET).create().await;
    let question = approver.question(ApprovalState::Pending).await;
    terminal.kill(Some(Duration::ZERO)).await;
    approver.becomes(&question.id, ApprovalState::Withdrawn).await;
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_nobody_answers_in_time_is_a_no() {
    let fixture = Fixture::start_with(None, "[approvals]\nexpiry = '1s'");
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    let done = fixture.sh(&session, GET).finish().await;
    assert!(
        done.text().contains("denied by rule \"careful\": nobody approved it in time"),
        "{}",
        done.text()
    );
    assert!(approver.question(ApprovalState::Expired).await.connection.is_some());
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_wait_end_with_their_gateway_and_the_next_one_asks_again() {
    let fixture = Fixture::start();
    let mut session = Session::open(&fixture.gateway).await;
    let script = format!("{GET} || echo refused; while [ ! -e go ]; do sleep 0.1; done; {GET}");
    let terminal = fixture.sh(&session, &script).create().await;
    let first = Approver::of(&session.caller).question(ApprovalState::Pending).await;
    fixture.gateway.crash();
    fixture.gateway.start_again();
    let caller = fixture.gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    terminal.until("refused").await;
    let mut approver = Approver::of(&caller);
    assert!(approver.list().await.is_empty(), "nobody waits");
    fs::write(session.workspace.join("go"), "").expect("a file");
    let again = approver.question(ApprovalState::Pending).await;
    assert_ne!(again.id, first.id);
    approver.answer(&again, ApprovalDecision::Approve).await;
    assert_eq!(code(&terminal.wait().await), 0);
    session.close().await;
    fixture.gateway.stop();
}

/// Connects so often at once, and says how often that became what.
const MANY: &str = "import collections, socket, sys
held = []
for _ in range(int(sys.argv[1])):
    held.append(socket.create_connection(('127.0.0.1', 3128)))
    held[-1].sendall(b'CONNECT careful.test:18080 HTTP/1.1\\r\\nHost: careful.test:18080\\r\\n\\r\\n')
def answer(one):
    data = b''
    while b'\\r\\n\\r\\n' not in data:
        part = one.recv(4096)
        if not part: break
        data += part
    return data.split()[1].decode() if data else 'closed'
print(dict(collections.Counter(map(answer, held))), flush=True)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_one_place_are_one_question_and_those_that_wait_are_bounded() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    let many = fixture.command(&session, Network::Proxy, "python3").args(["-c", MANY, "40"]);
    let running = tokio::spawn(many.finish());
    let question = approver.question(ApprovalState::Pending).await;
    // The last ones are refused before anybody has answered.
    within("eight refusals", async {
        while fixture.records("connection").iter().filter(|record| record["decision"] == "deny").count() < 8 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    approver.answer(&question, ApprovalDecision::Approve).await;
    let done = within("the end of it", running).await.expect("it is not cancelled");
    assert!(done.text().contains("'200': 32") && done.text().contains("'403': 8"), "{}", done.text());
    assert_eq!(approver.list().await.len(), 1, "one question");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provost_run_without_a_person_says_which_rule_asks() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", &format!("unix:{}", fixture.gateway.socket.display())])
        .args(["--network", "proxy", "--", "curl", "-s", "http://careful.test:18080/"])
        .current_dir(&session.workspace)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("provost starts");
    let stderr = String::from_utf8_lossy(&printed.stderr);
    let line = "provost: denied: connection to careful.test:18080: it costs money: a person must approve it, and the command \
                does not wait for one (rule \"careful\")";
    assert!(stderr.lines().any(|shown| shown == line), "{stderr}");
    session.close().await;
    fixture.gateway.stop();
}
