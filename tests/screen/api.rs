//! Screens as callers see them, of commands that run.

use std::{sync::Arc, time::Duration};

use tonic::{Code, Streaming, transport::Channel};

use crate::support::{
    Caller, Gateway, Options, Session, Terminal,
    api::{
        self, CreateTerminalRequest, KeyPress, NamedKey, Pty, Screen, ScrollbackRange, SendInputRequest,
        SnapshotScreenRequest, StdinMode, TerminalInput, WatchScreenRequest, WatchScreenResponse, key_press,
        screens_client::ScreensClient, terminal_input::Input, watch_screen_response::Event,
    },
    code, in_session, is_root, skip, within,
};

pub(crate) fn screens(caller: &Caller) -> ScreensClient<Channel> {
    ScreensClient::new(caller.channel())
}

pub(crate) fn in_pty(columns: u32, rows: u32) -> impl FnOnce(&mut CreateTerminalRequest) {
    move |request| {
        request.pty = Some(Pty { columns, rows, ..Pty::default() });
        request.stdin_mode = StdinMode::Open.into();
    }
}

/// The screen; `None` while it is built again.
async fn snapshot(terminal: &Terminal) -> Option<Screen> {
    let request =
        SnapshotScreenRequest { terminal_id: terminal.id.clone(), ..SnapshotScreenRequest::default() };
    let answer = within("a snapshot", screens(&terminal.caller).snapshot_screen(request)).await;
    match answer {
        Ok(answer) => Some(answer.into_inner().screen.expect("it is set")),
        Err(status) if status.code() == Code::Unavailable => None,
        Err(status) => panic!("there is a screen: {status:?}"),
    }
}

fn text(screen: &Screen) -> Vec<&str> {
    screen.lines.iter().map(|line| line.text.as_str()).collect()
}

/// Waits until the screen is so.
async fn until(terminal: &Terminal, what: &str, holds: impl Fn(&Screen) -> bool) -> Screen {
    within(what, async {
        loop {
            if let Some(screen) = snapshot(terminal).await.filter(|screen| holds(screen)) {
                return screen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

async fn send(terminal: &Terminal, inputs: Vec<Input>) -> Result<u64, tonic::Status> {
    let inputs = inputs.into_iter().map(|input| TerminalInput { input: Some(input) }).collect();
    let request =
        SendInputRequest { terminal_id: terminal.id.clone(), inputs, ..SendInputRequest::default() };
    let answer = within("input", async { screens(&terminal.caller).send_input(request).await }).await;
    answer.map(|answer| answer.into_inner().written_bytes)
}

async fn watch(terminal: &Terminal) -> Streaming<WatchScreenResponse> {
    let request = WatchScreenRequest { terminal_id: terminal.id.clone(), ..WatchScreenRequest::default() };
    let answer = within("a watched screen", async { screens(&terminal.caller).watch_screen(request).await });
    answer.await.expect("there is a screen").into_inner()
}

/// Applies the messages of a watched screen, until its text is so.
async fn watched_until(
    stream: &mut Streaming<WatchScreenResponse>,
    what: &str,
    holds: impl Fn(&[String]) -> bool,
) {
    let mut lines = Vec::new();
    within(what, async {
        loop {
            match stream.message().await.expect("the stream goes on").and_then(|event| event.event) {
                Some(Event::Snapshot(screen)) => {
                    lines = screen.lines.into_iter().map(|line| line.text).collect();
                }
                Some(Event::Change(change)) => {
                    for line in change.lines {
                        lines[line.index as usize] = line.text;
                    }
                }
                Some(Event::Ended(_)) | None => panic!("it has ended: {lines:?}"),
            }
            if holds(&lines) {
                return;
            }
        }
    })
    .await;
}

fn named(key: NamedKey) -> Input {
    Input::Key(KeyPress { key: Some(key_press::Key::Named(key.into())), ..KeyPress::default() })
}

/// Pids of the screen processes whose session is below this gateway.
fn screen_processes(gateway: &Arc<Gateway>) -> Vec<i32> {
    let gateway = gateway.pid_now();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("there is /proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let is_one = status.starts_with("Name:\tprovost-screen\n");
        let is_its = status.lines().any(|line| line == format!("PPid:\t{gateway}"));
        if is_one && is_its {
            found.push(pid);
        }
    }
    found
}

#[tokio::test]
async fn a_screen_follows_what_is_typed_in_the_programs_mode() {
    in_session(&Gateway::shared(), async |session| {
        // Application cursor keys, bracketed paste; what comes is shown with its escapes.
        let script = "stty raw -echo; printf '\\033[?1h\\033[?2004h\\033]2;my title\\007ready'; \
            head -c 19 | od -An -c | tr -s ' '; printf done; sleep 1000";
        let terminal = session.sh(script).with(in_pty(60, 10)).create().await;
        let screen = until(&terminal, "the program", |screen| text(screen)[0].starts_with("ready")).await;
        assert_eq!((screen.columns, screen.rows, screen.title.as_str()), (60, 10, "my title"));
        let modes = screen.modes.expect("it is set");
        assert!(modes.application_cursor && modes.bracketed_paste && !modes.mouse && !modes.alternate_screen);
        let sent =
            send(&terminal, vec![named(NamedKey::Up), Input::Paste("ab".into()), Input::Text("c\n".into())]);
        assert_eq!(sent.await.unwrap(), 3 + 14 + 2);
        let mouse = send(&terminal, vec![Input::Focus(true)]).await.unwrap_err();
        assert_eq!(mouse.code(), Code::FailedPrecondition, "{mouse:?}");
        let after = until(&terminal, "what it read", |screen| text(screen).join(" ").contains("done")).await;
        let shown = text(&after).join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("033 O A 033 [ 2 0 0 ~ a b") && shown.contains("033 [ 2 0 1 ~ c"),
            "{shown:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_watcher_gets_a_snapshot_then_changes_then_the_end() {
    in_session(&Gateway::shared(), async |session| {
        let script = "printf 'one\\r\\n'; read a; printf \"\\007got $a\"; read b";
        let terminal = session.sh(script).with(in_pty(40, 5)).create().await;
        until(&terminal, "the first line", |screen| text(screen)[0] == "one").await;
        let mut stream = watch(&terminal).await;
        let first = within("a snapshot", stream.message()).await.unwrap().unwrap().event.unwrap();
        assert!(matches!(first, Event::Snapshot(screen) if text(&screen)[0] == "one"));
        send(&terminal, vec![Input::Text("x\n".into())]).await.unwrap();
        let (mut bells, mut lines) = (0, Vec::new());
        within("a change", async {
            while !lines.contains(&"got x".to_owned()) {
                match stream.message().await.unwrap().unwrap().event.unwrap() {
                    Event::Change(change) => {
                        bells += change.bells;
                        lines.extend(change.lines.into_iter().map(|line| line.text));
                    }
                    other => panic!("{other:?}"),
                }
            }
        })
        .await;
        assert_eq!(bells, 1);
        let size = api::ResizeTerminalRequest {
            terminal_id: terminal.id.clone(),
            columns: 50,
            rows: 6,
            ..Default::default()
        };
        terminal.caller.terminals.clone().resize_terminal(size).await.unwrap();
        within("a resize", async {
            loop {
                if let Event::Snapshot(screen) = stream.message().await.unwrap().unwrap().event.unwrap() {
                    assert_eq!((screen.columns, screen.rows), (50, 6));
                    return;
                }
            }
        })
        .await;
        send(&terminal, vec![named(NamedKey::Enter)]).await.unwrap();
        within("the end", async {
            loop {
                if let Event::Ended(_) = stream.message().await.unwrap().unwrap().event.unwrap() {
                    return;
                }
            }
        })
        .await;
        assert!(within("nothing more", stream.message()).await.unwrap().is_none());
        assert_eq!(code(&terminal.wait().await), 0);
    })
    .await;
}

#[tokio::test]
async fn of_twenty_viewers_of_a_flood_one_is_stopped_and_the_others_and_the_command_go_on() {
    in_session(&Gateway::shared(), async |session| {
        let script =
            "read a; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo \"line $i\"; done; echo finished; sleep 1000";
        let terminal = session.sh(script).with(in_pty(80, 24)).create().await;
        let mut stopped = watch(&terminal).await;
        within("its snapshot", stopped.message()).await.unwrap();
        let mut viewers = Vec::new();
        for _ in 0..19 {
            viewers.push(watch(&terminal).await);
        }
        // All of them see the flood from its beginning.
        send(&terminal, vec![Input::Text("\n".into())]).await.unwrap();
        for viewer in &mut viewers {
            watched_until(viewer, "the end of the flood", |lines| {
                lines.iter().any(|line| line == "finished")
            })
            .await;
        }
        // It has no backlog: what it sees next is what there is now.
        let mut messages = 0;
        within("the stopped viewer", async {
            loop {
                messages += 1;
                let shown = match stopped.message().await.unwrap().unwrap().event.unwrap() {
                    Event::Snapshot(screen) => screen.lines,
                    Event::Change(change) => change.lines,
                    Event::Ended(_) => panic!("it has ended"),
                };
                if shown.iter().any(|line| line.text == "finished") {
                    return;
                }
            }
        })
        .await;
        assert!(messages < 200, "{messages} messages were kept for it");
    })
    .await;
}

#[tokio::test]
async fn a_screen_is_whole_after_a_crash_of_the_gateway_and_after_one_of_its_own_process() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let script = "printf '\\033[?1049h\\033[2;3Hkept'; read a; printf '\\033[3;3Hmore'; sleep 1000";
    let terminal = session.sh(script).with(in_pty(40, 6)).create().await;
    until(&terminal, "the first text", |screen| text(screen)[1] == "  kept").await;
    let before = screen_processes(&gateway);
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    let screen = until(&terminal, "the same text", |screen| text(screen)[1] == "  kept").await;
    assert!(screen_processes(&gateway).is_empty(), "no other one was started");
    assert!(
        before.iter().all(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()),
        "it has gone on"
    );
    assert_eq!((screen.built_from_offset, before.len()), (0, 1));
    assert!(screen.modes.as_ref().is_some_and(|modes| modes.alternate_screen));
    send(&terminal, vec![Input::Text("\n".into())]).await.unwrap();
    until(&terminal, "more text", |screen| text(screen)[2] == "  more").await;
    session.close().await;

    let session = Session::open(&gateway).await;
    let terminal =
        session.sh("printf 'kept'; read a; printf 'more'; sleep 1000").with(in_pty(40, 6)).create().await;
    until(&terminal, "the first text", |screen| text(screen)[0] == "kept").await;
    let processes = screen_processes(&gateway);
    assert_eq!(processes.len(), 1, "one for the sandbox");
    let mut stream = watch(&terminal).await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(processes[0]), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    until(&terminal, "the screen built again", |screen| text(screen)[0] == "kept").await;
    send(&terminal, vec![Input::Text("\n".into())]).await.unwrap();
    watched_until(&mut stream, "more, also for the one who watched", |lines| {
        lines.iter().any(|line| line.contains("more"))
    })
    .await;
    assert_ne!(screen_processes(&gateway), processes);
    session.close().await;
    within("the end of the screen process", async {
        while !screen_processes(&gateway).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn screens_take_no_more_descriptors_than_their_terminals_are_charged_for() {
    const TERMINALS: usize = 10;
    // `src/gateway/terminal/quotas.rs`: of a terminal, and of a sandbox.
    const CHARGED: usize = TERMINALS * 4 + 8;
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    // With a sandbox, and everything else that is opened once.
    session.sh("true").finish().await;
    let open = || {
        let directory = format!("/proc/{}/fd", gateway.pid_now());
        std::fs::read_dir(directory).expect("the gateway runs").count()
    };
    let before = open();
    let mut terminals = Vec::new();
    for _ in 0..TERMINALS {
        let terminal = session.sh("printf shown; sleep 1000").with(in_pty(80, 24)).create().await;
        until(&terminal, "the text", |screen| text(screen)[0] == "shown").await;
        terminals.push(terminal);
    }
    let held = open().saturating_sub(before);
    assert!(held <= CHARGED, "{held} descriptors, {CHARGED} are charged");
    for terminal in terminals {
        terminal.release().await;
    }
    within("the descriptors to be closed", async {
        // The screen process of the sandbox stays.
        while open() > before + 8 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    session.close().await;
}

#[tokio::test]
async fn the_programs_questions_are_answered_when_nobody_is_attached() {
    in_session(&Gateway::shared(), async |session| {
        let script =
            "stty raw -echo; printf '\\033[4;9H\\033[6n'; head -c 6 | od -An -c | tr -s ' '; sleep 1000";
        let terminal = session.sh(script).with(in_pty(40, 6)).create().await;
        until(&terminal, "the answer", |screen| text(screen).join(" ").contains("033 [ 4 ; 9 R")).await;
    })
    .await;
}

#[tokio::test]
async fn scrollback_and_styles_come_on_request() {
    in_session(&Gateway::shared(), async |session| {
        let script = "i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo \"line $i\"; done; printf '\\033[1;31mred'; sleep 1000";
        let terminal = session.sh(script).with(in_pty(40, 5)).create().await;
        until(&terminal, "all of it", |screen| text(screen).contains(&"red")).await;
        let request = SnapshotScreenRequest {
            terminal_id: terminal.id.clone(),
            with_styles: true,
            scrollback: Some(ScrollbackRange { above: 0, rows: 2 }),
            ..SnapshotScreenRequest::default()
        };
        let answer = screens(&terminal.caller).snapshot_screen(request).await.unwrap().into_inner();
        let rows: Vec<_> = answer.scrollback.iter().map(|row| row.text.as_str()).collect();
        assert_eq!(rows, ["line 1", "line 2"]);
        let screen = answer.screen.unwrap();
        let run = &screen.lines.iter().find(|line| line.text == "red").unwrap().runs[0];
        assert!(run.bold && run.text == "red", "{run:?}");
        let red = api::Color { color: Some(api::color::Color::Palette(1)) };
        assert_eq!(run.foreground, Some(red));
        assert_eq!(screen.scrollback_rows, 46);
    })
    .await;
}

#[tokio::test]
async fn what_has_no_screen_says_why() {
    in_session(&Gateway::shared(), async |session| {
        let pipe = session.sh("sleep 1000").create().await;
        let request =
            SnapshotScreenRequest { terminal_id: pipe.id.clone(), ..SnapshotScreenRequest::default() };
        let error = screens(&pipe.caller).snapshot_screen(request.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        let other = Session::open(&session.gateway).await;
        let foreign = SnapshotScreenRequest { session_id: other.id.clone(), ..request };
        let error = screens(&pipe.caller).snapshot_screen(foreign).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        other.close().await;
        let pty = session.sh("sleep 1000").with(in_pty(40, 5)).create().await;
        let key = KeyPress { key: Some(key_press::Key::Function(21)), ..KeyPress::default() };
        let error = send(&pty, vec![Input::Key(key)]).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().starts_with("inputs[0].key.function"), "{}", error.message());
        assert_eq!(send(&pty, Vec::new()).await.unwrap_err().code(), Code::InvalidArgument);
    })
    .await;
}

#[tokio::test]
async fn an_ordinary_user_has_screens_too() {
    if !is_root() {
        return skip("only root can run a gateway as another user; the other tests have run as one");
    }
    let user = 4_322;
    let gateway = Gateway::start_with(Options {
        user: Some(user),
        delegated: true,
        policy: Some(|policy| {
            for profile in ["workspace", "offline"] {
                policy["profile"][profile]["limits"]["requirement"] = "prefer".into();
            }
        }),
        ..Options::default()
    });
    let session = Session::open_as(&gateway, user).await;
    let terminal = session.sh("printf shown; sleep 1000").with(in_pty(40, 5)).create().await;
    until(&terminal, "the text", |screen| text(screen)[0] == "shown").await;
    session.close().await;
}
