//! Requests and lists that are large: bounded before they are judged, and nobody else waits for them.

use tonic::Code;

use crate::support::{
    Gateway, Refusal, Session,
    api::{
        CreateSessionRequest, CreateTerminalRequest, EnvVar, ListSessionsRequest, ListTerminalsRequest,
        create_terminal_request,
    },
    code, in_session, is_root, skip, within,
};

const VICTIM: u32 = 54_321;
/// What a client of any language takes in one message, unless it is told otherwise.
const STOCK_MESSAGE_BYTES: usize = 4 << 20;
/// How much a gateway may have grown when large requests are over.
const LEFT_BYTES: u64 = 64 << 20;

fn with_arguments(session: &Session, args: Vec<String>) -> CreateTerminalRequest {
    CreateTerminalRequest {
        session_id: session.id.clone(),
        command: Some(create_terminal_request::Command::Program("true".into())),
        args,
        ..CreateTerminalRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_that_is_too_long_is_refused_by_its_field_before_it_is_judged() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        for (args, field) in [
            (vec!["x".repeat(131_072)], "args[0]"),
            (vec!["x".to_owned(); 210_000], "args"),
            (vec!["x".repeat(100_000); 21], "args"),
            (vec![String::new(); 700_000], "args"),
        ] {
            let request = with_arguments(session, args);
            let refused =
                within("a refusal", session.caller.terminals.clone().create_terminal(request)).await;
            let refusal = Refusal::from(refused.expect_err("it is too long"));
            assert_eq!(refusal.code, Code::InvalidArgument, "{refusal:?}");
            assert_eq!(refusal.reason, "ARGUMENT_LIST_TOO_LONG", "{refusal:?}");
            assert_eq!(refusal.fields, [field], "{refusal:?}");
        }
        let largest = with_arguments(session, vec!["x".repeat(100_000); 20]);
        let created =
            within("a long command", session.caller.terminals.clone().create_terminal(largest)).await;
        created.expect("it is of a size that can be executed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_leave_no_memory_behind_and_another_user_is_served() {
    if !is_root() {
        return skip("other users need root");
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let victim = Session::open_as(&gateway, VICTIM).await;
        victim.command("true").finish().await;
        session.command("true").finish().await;
        let before = gateway.process().resident_bytes();
        let requests: Vec<_> = (0..8)
            .map(|_| {
                let request = with_arguments(session, vec!["/x".repeat(28); 16_384]);
                let terminals = session.caller.terminals.clone();
                tokio::spawn(async move { terminals.clone().create_terminal(request).await })
            })
            .collect();
        for _ in 0..5 {
            let finished = within("another user's command", victim.command("true").finish()).await;
            assert_eq!(code(&finished.outcome), 0);
        }
        for request in requests {
            // Policy may say what it likes of them.
            let _ = within("an answer", request).await.expect("the task runs");
        }
        let grown = gateway.process().resident_bytes().saturating_sub(before);
        assert!(grown < LEFT_BYTES, "the gateway has grown by {} MiB", grown >> 20);
        victim.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_list_comes_in_pages_that_any_client_takes() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    // Twelve sessions of half a megabyte each: more than one message of a stock client.
    let value = "v".repeat(130_000);
    let env: Vec<_> = (0..4)
        .map(|n| EnvVar { name: format!("V{n}"), value: value.clone(), ..Default::default() })
        .collect();
    for _ in 0..12 {
        let request = CreateSessionRequest {
            roots: vec![session.workspace.display().to_string()],
            env: env.clone(),
            ..CreateSessionRequest::default()
        };
        within("a session", session.caller.sessions.clone().create_session(request))
            .await
            .expect("it is opened");
    }
    let mut stock = session.caller.sessions.clone().max_decoding_message_size(STOCK_MESSAGE_BYTES);
    let (mut ids, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let request = ListSessionsRequest { page_token: token, ..ListSessionsRequest::default() };
        let page = within("a page", stock.list_sessions(request)).await.expect("it fits").into_inner();
        ids.extend(page.sessions.into_iter().map(|session| session.id));
        (token, pages) = (page.next_page_token, pages + 1);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(ids.len(), 13);
    assert!(pages > 1, "all came at once");
    assert!(ids.is_sorted(), "oldest first, each once: {ids:?}");

    let mut terminals = Vec::new();
    for _ in 0..5 {
        terminals.push(session.command("true").create().await);
    }
    let mut request = ListTerminalsRequest { page_size: 2, ..ListTerminalsRequest::default() };
    let mut sizes = Vec::new();
    loop {
        let page = session
            .caller
            .terminals
            .clone()
            .list_terminals(request.clone())
            .await
            .expect("a page")
            .into_inner();
        sizes.push(page.terminals.len());
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(sizes, [2, 2, 1]);
    request = ListTerminalsRequest { page_token: "no token".into(), ..ListTerminalsRequest::default() };
    let refused = session.caller.terminals.clone().list_terminals(request).await.expect_err("it is no token");
    assert_eq!(Refusal::from(refused).fields, ["page_token"]);
    for terminal in terminals {
        terminal.wait().await;
        terminal.release().await;
    }
    drop(gateway);
}
