//! Sessions that end with a process that their caller names, and commands that name their session.

use std::{
    process::{Child, Command},
    time::Duration,
};

use tonic::Code;

use crate::support::{
    Caller, Gateway, Process, Refusal, Session,
    api::{CreateSessionRequest, GetSessionRequest, Lifetime, ProcessIdentity},
    eventually, is_root, new_workspace, skip, within,
};

/// A process of this user that waits.
struct Owner(Child);

impl Owner {
    fn start() -> Self {
        Self(Command::new("sleep").arg("3600").spawn().expect("sleep starts"))
    }

    fn identity(&self) -> ProcessIdentity {
        let pid = self.0.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let fields = stat.rsplit_once(')').expect("a name").1;
        let start = fields.split_whitespace().nth(19).expect("field 22").parse().expect("a number");
        ProcessIdentity { pid: pid.cast_signed(), start_ticks: start }
    }

    fn end(mut self) {
        self.0.kill().expect("it is our child");
        self.0.wait().expect("it is our child");
    }
}

async fn open(gateway: &std::sync::Arc<Gateway>, owner: ProcessIdentity, name: &str) -> Session {
    let caller = gateway.caller().await;
    Session::open_with(gateway, caller, None, |request| {
        request.lifetime = Lifetime::OwnerProcess.into();
        request.owner_process = Some(owner);
        request.name = name.to_owned();
    })
    .await
}

/// The answer to a request for a session that ends with this process.
async fn refusal(gateway: &Gateway, caller: &Caller, owner: ProcessIdentity, uid: Option<u32>) -> Refusal {
    let request = CreateSessionRequest {
        roots: vec![new_workspace(gateway, uid).display().to_string()],
        lifetime: Lifetime::OwnerProcess.into(),
        owner_process: Some(owner),
        ..CreateSessionRequest::default()
    };
    caller.sessions.clone().create_session(request).await.expect_err("it is refused").into()
}

async fn ends(session: &Session) {
    let is_gone = async || {
        let request = GetSessionRequest { session_id: session.id.clone() };
        let answer = session.caller.sessions.clone().get_session(request).await;
        answer.is_err_and(|status| status.code() == Code::NotFound)
    };
    let gone = async {
        while !is_gone().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the end of the session", gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_ends_with_the_process_that_its_caller_names() {
    let gateway = Gateway::shared();
    let owner = Owner::start();
    let session = open(&gateway, owner.identity(), "").await;
    let marker = session.marker();
    session.idle(&marker).create().await.until("ready").await;
    let other = gateway.caller().await;
    // Its caller goes, and it stays.
    session.caller.vanish();
    assert_eq!(Process::all_marked(&marker).len(), 1);
    owner.end();
    eventually("the end of its commands", || Process::all_marked(&marker).is_empty().then_some(())).await;
    let mut session = session;
    session.go_on(&other);
    ends(&session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_ends_with_its_process_also_under_the_next_gateway() {
    let gateway = Gateway::start();
    let (stays, gone) = (Owner::start(), Owner::start());
    let mut first = open(&gateway, stays.identity(), "").await;
    let mut second = open(&gateway, gone.identity(), "").await;
    gateway.crash();
    gone.end();
    gateway.start_again();
    let caller = gateway.caller().await;
    first.go_on(&caller);
    second.go_on(&caller);
    ends(&second).await;
    let terminal = first.command("true").create().await;
    terminal.wait().await;
    stays.end();
    ends(&first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_that_is_not_the_callers_is_refused_as_one_that_is_not_there() {
    let gateway = Gateway::shared();
    let owner = Owner::start();
    let meant = owner.identity();
    let caller = gateway.caller().await;
    let later = ProcessIdentity { start_ticks: meant.start_ticks + 1, ..meant };
    let absent = ProcessIdentity { pid: i32::MAX, ..meant };
    let mut answers =
        vec![refusal(&gateway, &caller, later, None).await, refusal(&gateway, &caller, absent, None).await];
    if is_root() {
        let stranger = gateway.caller_as(54321).await;
        answers.push(refusal(&gateway, &stranger, meant, Some(54321)).await);
        // Also a process of root, which everybody can see.
        let init = ProcessIdentity { pid: 1, start_ticks: 0 };
        answers.push(refusal(&gateway, &stranger, init, Some(54321)).await);
    } else {
        skip("only root has another principal");
    }
    for answer in &answers {
        answer.must_name_the_field("owner_process");
        assert_eq!(answer.message, answers[0].message);
    }
    let explicit = CreateSessionRequest {
        roots: vec![new_workspace(&gateway, None).display().to_string()],
        owner_process: Some(meant),
        ..CreateSessionRequest::default()
    };
    let answer = caller.sessions.clone().create_session(explicit).await.expect_err("it is refused");
    Refusal::from(answer).must_name_the_field("owner_process");
    owner.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_finds_its_session_by_its_name_and_nobody_elses() {
    let gateway = Gateway::shared();
    let owner = Owner::start();
    let session = open(&gateway, owner.identity(), "by-name").await;
    let by_name = |request: &mut crate::support::api::CreateTerminalRequest| {
        request.session_name = "by-name".into();
        request.session_id = String::new();
    };
    let terminal = session.command("true").with(by_name).create().await;
    assert_eq!(terminal.info.session_id, session.id);
    terminal.wait().await;
    let twice =
        session.command("true").with(|request| request.session_name = "by-name".into()).refusal().await;
    twice.must_name_the_field("session_name");
    let unknown = session.command("true").with(|request| {
        request.session_name = "by-nam".into();
        request.session_id = String::new();
    });
    assert_eq!(unknown.refusal().await.code, Code::NotFound);
    if is_root() {
        let stranger = gateway.caller_as(54321).await;
        let foreign = session.command("true").over(&stranger).with(by_name).refusal().await;
        assert_eq!(foreign.code, Code::NotFound);
    } else {
        skip("only root has another principal");
    }
    // Another process asks for the same name: it is another session, and is refused.
    let another = Owner::start();
    let request = CreateSessionRequest {
        roots: vec![session.workspace.display().to_string()],
        lifetime: Lifetime::OwnerProcess.into(),
        owner_process: Some(another.identity()),
        name: "by-name".into(),
        ..CreateSessionRequest::default()
    };
    let answer = session.caller.sessions.clone().create_session(request).await.expect_err("it is refused");
    Refusal::from(answer).must_name_the_field("owner_process");
    another.end();
    owner.end();
    ends(&session).await;
}
