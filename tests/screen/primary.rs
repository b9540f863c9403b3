//! The screen of a session's primary terminal: shown, watched and typed into by the session's id alone.

use std::time::{Duration, Instant};

use tonic::{Code, Streaming};

use crate::{
    screen::api::{in_pty, screens},
    support::{
        Gateway, Session,
        api::{
            Screen, SendInputRequest, SetPrimaryTerminalRequest, SnapshotScreenRequest, TerminalInput,
            WatchScreenRequest, WatchScreenResponse, terminal_input::Input, watch_screen_response::Event,
        },
        is_root, within,
    },
};

async fn snapshot(session: &Session) -> (String, Screen) {
    let request =
        SnapshotScreenRequest { session_id: session.id.clone(), ..SnapshotScreenRequest::default() };
    let answer =
        screens(&session.caller).snapshot_screen(request).await.expect("there is a screen").into_inner();
    (answer.terminal_id, answer.screen.expect("it is set"))
}

async fn watch(session: &Session) -> Streaming<WatchScreenResponse> {
    watch_at_most(session, 0).await
}

async fn watch_at_most(session: &Session, max_per_second: u32) -> Streaming<WatchScreenResponse> {
    let session_id = session.id.clone();
    let request = WatchScreenRequest { session_id, max_per_second, ..WatchScreenRequest::default() };
    screens(&session.caller).watch_screen(request).await.expect("it is open").into_inner()
}

async fn send(session: &Session, input: Input) -> Result<(), Code> {
    let inputs = vec![TerminalInput { input: Some(input) }];
    let request = SendInputRequest { session_id: session.id.clone(), inputs, ..SendInputRequest::default() };
    screens(&session.caller).send_input(request).await.map(drop).map_err(|status| status.code())
}

async fn next(stream: &mut Streaming<WatchScreenResponse>) -> (String, Event) {
    let message = within("the next message", stream.message()).await.expect("the stream goes on");
    let message = message.expect("the stream goes on");
    (message.terminal_id, message.event.expect("it is set"))
}

/// The next snapshot of this terminal. Changes of the one before may come first.
async fn next_snapshot(stream: &mut Streaming<WatchScreenResponse>, terminal: &str) -> Screen {
    loop {
        match next(stream).await {
            (of, Event::Snapshot(screen)) if of == terminal => return screen,
            (of, _) => assert_ne!(of, terminal, "its snapshot comes first"),
        }
    }
}

async fn choose(session: &Session, terminal: &str) {
    let request =
        SetPrimaryTerminalRequest { session_id: session.id.clone(), terminal_id: terminal.to_owned() };
    session.caller.sessions.clone().set_primary_terminal(request).await.expect("it can be chosen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_is_watched_and_typed_into_by_its_primary_terminal_whichever_that_is() {
    let session = Session::open(&Gateway::shared()).await;
    let (terminal, empty) = snapshot(&session).await;
    assert_eq!((terminal.as_str(), empty.columns, empty.rows, empty.lines.len()), ("", 80, 24, 24));
    assert!(empty.lines.iter().all(|line| line.text.is_empty()));
    assert_eq!(send(&session, Input::Text("x".into())).await, Err(Code::NotFound));
    let mut stream = watch(&session).await;
    assert_eq!(next(&mut stream).await, (String::new(), Event::Snapshot(empty.clone())));

    let first = session.command("cat").with(in_pty(60, 10)).create().await;
    let shown = next_snapshot(&mut stream, &first.id).await;
    assert_eq!((shown.columns, shown.rows), (60, 10));
    send(&session, Input::Text("hello\n".into())).await.expect("it is typed");
    let mut lines = vec![String::new(); 10];
    while lines[1] != "hello" {
        match next(&mut stream).await {
            (of, Event::Snapshot(screen)) if of == first.id => {
                lines = screen.lines.into_iter().map(|line| line.text).collect();
            }
            (of, Event::Change(change)) if of == first.id => {
                change.lines.into_iter().for_each(|line| lines[line.index as usize] = line.text);
            }
            other => panic!("{other:?}"),
        }
    }

    let second = session.command("cat").with(in_pty(70, 20)).create().await;
    assert_eq!(snapshot(&session).await.0, first.id, "the first one stays primary");
    choose(&session, &second.id).await;
    assert_eq!(next_snapshot(&mut stream, &second.id).await.columns, 70);
    second.release().await;
    let again = next_snapshot(&mut stream, &first.id).await;
    assert_eq!(again.lines[1].text, "hello");

    // Its end is told, and the session goes on.
    first.kill(None).await;
    loop {
        let (of, event) = next(&mut stream).await;
        assert_eq!(of, first.id);
        if matches!(event, Event::Ended(_)) {
            break;
        }
    }
    first.release().await;
    assert_eq!(next(&mut stream).await, (String::new(), Event::Snapshot(empty)));
    let third = session.command("cat").with(in_pty(50, 5)).create().await;
    assert_eq!(next_snapshot(&mut stream, &third.id).await.rows, 5);
    session.close().await;
    let rest = within("the end", async {
        while let Some(message) = stream.message().await.expect("it ends in good order") {
            assert!(message.terminal_id.is_empty() || message.terminal_id == third.id, "{message:?}");
        }
    });
    rest.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watcher_has_no_more_messages_a_second_than_it_wants() {
    let session = Session::open(&Gateway::shared()).await;
    let script = "i=0; while sleep 0.02; do i=$((i+1)); echo \"line $i\"; done";
    let terminal = session.sh(script).with(in_pty(60, 10)).create().await;
    let begun = Instant::now();
    let mut stream = watch_at_most(&session, 4).await;
    for _ in 0..5 {
        assert_eq!(next(&mut stream).await.0, terminal.id);
    }
    // A slow host makes it more, and never less.
    assert!(begun.elapsed() >= Duration::from_secs(1), "five in {:?}", begun.elapsed());
    drop(stream);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_screen_of_another_users_session_is_not_found_by_the_session() {
    if !is_root() {
        println!("SKIPPED: only root can be two users");
        return;
    }
    let gateway = Gateway::shared();
    let session = Session::open(&gateway).await;
    let terminal = session.command("cat").with(in_pty(60, 10)).create().await;
    let stranger = gateway.caller_as(54_374).await;
    let session_id = session.id.clone();
    let asked = screens(&stranger)
        .snapshot_screen(SnapshotScreenRequest { session_id: session_id.clone(), ..Default::default() })
        .await;
    assert_eq!(asked.expect_err("it is another's").code(), Code::NotFound);
    let watched =
        screens(&stranger).watch_screen(WatchScreenRequest { session_id, ..Default::default() }).await;
    assert_eq!(watched.map(drop).expect_err("it is another's").code(), Code::NotFound);
    terminal.release().await;
    session.close().await;
}
