//! T2: ids. A foreign, an unknown, a malformed and a released id are one and the same to a caller.

use std::time::Duration;

use tonic::Code;

use crate::support::{
    Caller, EndOfInput, Gateway, Refusal, Session, Terminal,
    api::{
        CloseSessionRequest, CreateSessionRequest, CreateTerminalRequest, GetSessionRequest, Lifetime,
        ListSessionsRequest, ListTerminalsRequest, OutputStream, StreamOutputRequest,
        create_terminal_request,
    },
    in_session, is_root, skip, within,
};

const UNKNOWN: &str = "term_01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// What every call answers about an id, with the id itself taken out of the sentences.
async fn answers(caller: &Caller, id: &str, session_id: &str) -> Vec<(&'static str, Refusal)> {
    let terminal = Terminal {
        caller: caller.clone(),
        id: id.to_owned(),
        session_id: session_id.to_owned(),
        info: Default::default(),
    };
    let mut all = Vec::new();
    let mut heard = |call, refusal: Option<Refusal>| {
        let mut refusal = refusal.unwrap_or_else(|| panic!("{call} answered for {id:?}"));
        if !id.is_empty() {
            refusal.message = refusal.message.replace(id, "ID");
            for value in refusal.metadata.values_mut() {
                *value = value.replace(id, "ID");
            }
        }
        all.push((call, refusal));
    };
    heard("Get", terminal.get().await.err());
    heard("WaitForExit", terminal.try_wait().await.err());
    heard("Signal", terminal.signal("SIGUSR1").await.err());
    heard("Kill", terminal.try_kill(Some(Duration::ZERO)).await.err());
    heard("Write", terminal.write(b"x", EndOfInput::NotYet).await.err());
    heard("Release", terminal.try_release(None).await.err());
    let mut terminals = caller.terminals.clone();
    let request = crate::support::api::GetOutputRequest {
        terminal_id: id.to_owned(),
        session_id: session_id.to_owned(),
        ..Default::default()
    };
    heard("Output", within("Output", terminals.get_output(request)).await.err().map(Refusal::from));
    let request = StreamOutputRequest {
        terminal_id: id.to_owned(),
        session_id: session_id.to_owned(),
        stream: OutputStream::Unspecified as i32,
        offset: 0,
        follow: true,
    };
    let refused = match within("StreamOutput", terminals.stream_output(request)).await {
        Err(status) => Some(status),
        Ok(events) => within("StreamOutput", events.into_inner().message()).await.err(),
    };
    heard("StreamOutput", refused.map(Refusal::from));
    all
}

/// The ids that must all look the same, each with what it is.
async fn hopeless_ids(session: &Session, foreign: Option<&Terminal>) -> Vec<(&'static str, String)> {
    let released = session.command("true").create().await;
    released.wait().await;
    released.release().await;
    let mut ids = vec![
        ("unknown", UNKNOWN.to_owned()),
        ("released", released.id.clone()),
        ("without its prefix", UNKNOWN.trim_start_matches("term_").to_owned()),
        ("of another kind", UNKNOWN.replace("term_", "sess_")),
        ("too short", "term_01ARZ3".to_owned()),
        ("too long", format!("{UNKNOWN}0")),
        ("lower case", UNKNOWN.to_lowercase()),
        ("not a ULID", "term_!!!!!!!!!!!!!!!!!!!!!!!!!!".to_owned()),
        ("a path", "../../etc/passwd".to_owned()),
        ("with a NUL", "term_\0".to_owned()),
    ];
    if let Some(foreign) = foreign {
        ids.push(("foreign", foreign.id.clone()));
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn foreign_unknown_malformed_and_released_ids_are_refused_alike_on_every_call() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let other = if is_root() { Some(Session::open_as(&gateway, 54321).await) } else { None };
        let foreign = match &other {
            Some(other) => Some(other.command("sleep").args(["1000"]).create().await),
            None => {
                skip("another principal can only be had as root");
                None
            }
        };
        let mut first: Option<Vec<(&str, Refusal)>> = None;
        for (what, id) in hopeless_ids(session, foreign.as_ref()).await {
            let heard = answers(&session.caller, &id, "").await;
            for (call, refusal) in &heard {
                assert_eq!(refusal.code, Code::NotFound, "{call} of an id that is {what}: {refusal:?}");
            }
            match &first {
                None => first = Some(heard),
                Some(first) => assert_eq!(first, &heard, "the answers for an id that is {what} differ"),
            }
        }
        // The empty id: the same code; there is nothing to take out of its sentence.
        for (call, refusal) in answers(&session.caller, "", "").await {
            assert_eq!(refusal.code, Code::NotFound, "{call} of an empty id: {refusal:?}");
        }
        if let (Some(other), Some(foreign)) = (other, foreign) {
            assert_eq!(
                foreign.get().await.expect("its owner sees it").state(),
                crate::support::api::TerminalState::Running
            );
            other.close().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_terminal_named_with_another_session_is_not_found() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |one| {
        in_session(&gateway, async |other| {
            let terminal = one.command("sleep").args(["1000"]).create().await;
            let unknown = answers(&one.caller, UNKNOWN, &other.id).await;
            let wrong = answers(&one.caller, &terminal.id, &other.id).await;
            assert_eq!(unknown, wrong);
            // It still runs: none of the refused calls did anything.
            assert_eq!(
                terminal.get().await.expect("it is there").state(),
                crate::support::api::TerminalState::Running
            );
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn foreign_unknown_and_malformed_sessions_are_refused_alike_on_every_call() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let closed = Session::open(&gateway).await;
        closed.close().await;
        let other = if is_root() { Some(Session::open_as(&gateway, 54321).await) } else { None };
        let mut ids = vec![
            "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
            closed.id.clone(),
            "sess_x".to_owned(),
            "x".to_owned(),
            "../..".to_owned(),
        ];
        ids.extend(other.as_ref().map(|other| other.id.clone()));
        let mut first: Option<Vec<Refusal>> = None;
        for id in &ids {
            let mut sessions = session.caller.sessions.clone();
            let mut terminals = session.caller.terminals.clone();
            let get = sessions.get_session(GetSessionRequest { session_id: id.clone() }).await.err();
            let close = sessions.close_session(CloseSessionRequest { session_id: id.clone() }).await.err();
            let mut request = session.command("true").request;
            request.session_id = id.clone();
            let create = terminals.create_terminal(request).await.err();
            let list = terminals
                .list_terminals(ListTerminalsRequest { session_id: id.clone(), ..Default::default() })
                .await
                .err();
            let heard: Vec<Refusal> = [("Get", get), ("Close", close), ("Create", create), ("List", list)]
                .into_iter()
                .map(|(call, status)| {
                    let status = status.unwrap_or_else(|| panic!("{call} answered for {id:?}"));
                    let mut refusal = Refusal::from(status);
                    assert_eq!(refusal.code, Code::NotFound, "{call} of {id:?}: {refusal:?}");
                    refusal.message = refusal.message.replace(id, "ID");
                    for value in refusal.metadata.values_mut() {
                        *value = value.replace(id, "ID");
                    }
                    refusal
                })
                .collect();
            match &first {
                None => first = Some(heard),
                Some(first) => assert_eq!(first, &heard, "the answers for {id:?} differ"),
            }
        }
        if let Some(other) = other {
            other.close().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lists_show_a_principal_nothing_of_another() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let other = Session::open_as(&gateway, 54321).await;
        let mine = session.command("sleep").args(["1000"]).create().await;
        let theirs = other.command("sleep").args(["1000"]).create().await;
        for (caller, sees, not) in [(&session.caller, &mine, &theirs), (&other.caller, &theirs, &mine)] {
            let listed = caller
                .terminals
                .clone()
                .list_terminals(ListTerminalsRequest::default())
                .await
                .expect("a list");
            let ids: Vec<_> = listed.into_inner().terminals.into_iter().map(|t| t.id).collect();
            assert!(ids.contains(&sees.id) && !ids.contains(&not.id), "{ids:?}");
            let listed =
                caller.sessions.clone().list_sessions(ListSessionsRequest::default()).await.expect("a list");
            let ids: Vec<_> = listed.into_inner().sessions.into_iter().map(|s| s.id).collect();
            assert!(ids.contains(&sees.session_id) && !ids.contains(&not.session_id), "{ids:?}");
        }
        other.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_says_who_owns_it_and_what_it_holds() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let running = session.command("sleep").args(["1000"]).create().await;
        let finished = session.command("true").create().await;
        finished.wait().await;
        let mut sessions = session.caller.sessions.clone();
        let seen = sessions
            .get_session(GetSessionRequest { session_id: session.id.clone() })
            .await
            .expect("it is there");
        let seen = seen.into_inner().session.expect("it is set");
        assert_eq!(seen.owner, format!("uid:{}", nix::unistd::geteuid()));
        assert_eq!(seen.roots, [session.workspace.display().to_string()]);
        assert_eq!((seen.live_terminals, seen.finished_terminals), (1, 1));
        assert!(seen.created_at.is_some());
        assert_eq!(running.info.session_id, session.id);
        let running = running.get().await.expect("it is there");
        let [opened, created, started] = [seen.created_at, running.created_at, running.started_at]
            .map(|time| time.map(|time| (time.seconds, time.nanos)));
        assert!(opened <= created && created <= started, "{opened:?} {created:?} {started:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_request_id_opens_one_session() {
    let gateway = Gateway::shared();
    let caller = gateway.caller().await;
    let workspace = crate::support::new_workspace(&gateway, None);
    let request = CreateSessionRequest {
        roots: vec![workspace.display().to_string()],
        request_id: "session-once".into(),
        lifetime: Lifetime::OwnerProcess as i32,
        ..CreateSessionRequest::default()
    };
    let first = caller
        .sessions
        .clone()
        .create_session(request.clone())
        .await
        .expect("it opens")
        .into_inner()
        .session
        .expect("it is set");
    let second = caller
        .sessions
        .clone()
        .create_session(request)
        .await
        .expect("it is the same")
        .into_inner()
        .session
        .expect("it is set");
    assert_eq!((first.id.as_str(), second.lifetime()), (second.id.as_str(), Lifetime::OwnerProcess));
    caller
        .sessions
        .clone()
        .close_session(CloseSessionRequest { session_id: first.id })
        .await
        .expect("it closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_needs_a_root_that_is_an_absolute_existing_directory() {
    let gateway = Gateway::shared();
    let caller = gateway.caller().await;
    let file = gateway.directory().join("host-marker").display().to_string();
    for roots in [vec![], vec![String::new()], vec!["relative".to_owned()], vec!["/x\0y".to_owned()]] {
        let request = CreateSessionRequest { roots: roots.clone(), ..CreateSessionRequest::default() };
        let status = caller.sessions.clone().create_session(request).await.expect_err("it is refused");
        Refusal::from(status).must_name_the_field("roots");
    }
    for root in ["/no/such/directory".to_owned(), file] {
        let request = CreateSessionRequest { roots: vec![root.clone()], ..CreateSessionRequest::default() };
        let status = caller.sessions.clone().create_session(request).await.expect_err("it is refused");
        let refusal = Refusal::from(status);
        assert!(
            matches!(refusal.code, Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied),
            "{root}: {refusal:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_root_gives_a_principal_no_more_than_it_has_on_the_host() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::shared();
    // A directory of root's with a secret in it, open to look at, closed to write.
    let directory = crate::support::new_workspace(&gateway, None);
    let secret = directory.join("secret");
    std::fs::write(&secret, "root's own").expect("a file can be written");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("it is ours");
    let caller = gateway.caller_as(54321).await;
    let request = CreateSessionRequest {
        roots: vec![directory.display().to_string()],
        ..CreateSessionRequest::default()
    };
    match caller.sessions.clone().create_session(request).await {
        Err(status) => {
            assert!(matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument), "{status:?}")
        }
        Ok(opened) => {
            let id = opened.into_inner().session.expect("it is set").id;
            let mut request = CreateTerminalRequest {
                session_id: id.clone(),
                command: Some(create_terminal_request::Command::Program("sh".into())),
                args: vec![
                    "-c".into(),
                    "cat secret; echo mine > written; rm -f secret; mv secret gone; ls".into(),
                ],
                ..Default::default()
            };
            request.request_id = "look".into();
            if let Ok(terminal) = caller.terminals.clone().create_terminal(request).await {
                let terminal = Terminal {
                    caller: caller.clone(),
                    id: terminal.into_inner().terminal.expect("it is set").id,
                    session_id: id.clone(),
                    info: Default::default(),
                };
                terminal.wait().await;
                let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
                assert!(!text.contains("root's own"), "another user's secret was read: {text}");
            }
            caller
                .sessions
                .clone()
                .close_session(CloseSessionRequest { session_id: id })
                .await
                .expect("it closes");
        }
    }
    assert_eq!(std::fs::read_to_string(&secret).expect("the secret is there"), "root's own");
    assert!(!directory.join("written").exists(), "another user's directory was written to");
}
