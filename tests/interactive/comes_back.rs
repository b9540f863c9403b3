//! Gateways that end under people at their terminals, and people who come back: the screen is whole.

use provost_base::display::size::ScreenSize;
use provost_sandbox::screen::emulator::Emulator;

use crate::{
    interactive::{
        keyboard::{InPty, Keyboard, shell},
        window::Window,
    },
    support::{
        Gateway, Session, Terminal,
        api::{SnapshotScreenRequest, screens_client::ScreensClient},
        code, eventually, in_session, within,
    },
};

fn address(gateway: &Gateway) -> String {
    format!("unix:{}", gateway.socket.display())
}

async fn has_vim(session: &Session) -> bool {
    let found = !session.sh("command -v vim").finish().await.text().is_empty();
    if !found {
        crate::support::skip("vim is not in the sandbox");
    }
    found
}

/// What a window of this size shows.
fn shown(window: &Window, columns: u32, rows: u32) -> Vec<String> {
    let mut emulator = Emulator::new(ScreenSize::new(columns, rows).expect("a size"));
    emulator.advance(window.text().as_bytes());
    emulator.picture().rows.iter().map(|row| row.text()).collect()
}

/// What the terminal's screen shows.
async fn screen(terminal: &Terminal) -> Vec<String> {
    let request = SnapshotScreenRequest { terminal_id: terminal.id.clone(), ..Default::default() };
    let mut screens = ScreensClient::new(terminal.caller.channel());
    let answer = within("a snapshot", screens.snapshot_screen(request)).await.expect("it has a screen");
    answer.into_inner().screen.unwrap_or_default().lines.into_iter().map(|line| line.text).collect()
}

/// Waits until a window shows what the terminal's screen shows, and this among it.
async fn shows_the_screen(window: &Window, terminal: &Terminal, text: &str) {
    within("the same screen", async {
        loop {
            let (theirs, ours) = (shown(window, 80, 24), screen(terminal).await);
            if theirs == ours && ours.iter().any(|line| line.contains(text)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_gateway_in_the_middle_of_vim_is_not_noticed() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    if has_vim(&session).await {
        let named = address(&gateway);
        let directory = tempfile::tempdir().expect("a directory can be made");
        let run = ["run", "-it", "--gateway", &named, "vim", "-u", "NONE", "mine"];
        let mut running = Window::open(directory.path(), &run);
        running.shows("mine").await;
        let terminal = session.command("vim").args(["-u", "NONE", "theirs"]).pty(80, 24).create().await;
        let attach = ["attach", "--gateway", &named, &terminal.id];
        let mut attached = Window::open(&session.workspace, &attach);
        attached.shows("theirs").await;
        for window in [&mut running, &mut attached] {
            window.types_until("ifirst line\r", "first line").await;
        }
        gateway.crash();
        for window in [&mut running, &mut attached] {
            window.types("second line");
        }
        gateway.start_again();
        session.go_on(&gateway.caller().await);
        let terminal = terminal.over(&session.caller);
        for window in [&mut running, &mut attached] {
            window.shows("second line").await;
        }
        shows_the_screen(&attached, &terminal, "second line").await;
        // A person who comes only now has the screen of the time before.
        let late = Window::open(&session.workspace, &attach);
        shows_the_screen(&late, &terminal, "first line").await;
        for (window, file) in
            [(&mut running, directory.path().join("mine")), (&mut attached, session.workspace.join("theirs"))]
        {
            window.types("\u{1b}:wq\r");
            assert_eq!(window.ends().await.code(), Some(0));
            let saved = std::fs::read_to_string(file).expect("it was saved");
            assert_eq!(saved, "first line\nsecond line\n");
        }
        assert_eq!(code(&terminal.wait().await), 0);
    }
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_attaches_sees_the_screen_and_not_what_was_written() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let named = address(&gateway);
        let terminal = shell(session).await;
        // What was written is much more than what is shown, and ends in the middle of a sequence.
        let script = "seq 20000; clear; printf '\\033[5;9H\\033[1;31mred\\033[0m \\346\\227\\245\\033[9;3Hrest\\033[3'; cat";
        terminal.types(&format!("{script}\r")).await;
        eventually_shows(&terminal, "rest").await;
        let attach = ["attach", "--gateway", &named, &terminal.id];
        let window = Window::open(&session.workspace, &attach);
        shows_the_screen(&window, &terminal, "rest").await;
        assert!(!window.text().contains("12345"), "what is not on the screen is not sent: {:?}", window.text());
        assert!(shown(&window, 80, 24)[4].contains("red 日"), "{:?}", shown(&window, 80, 24));
        let mut window = window;
        // The keys that leave; the alternate screen and the modes of a program are left, too.
        window.types("\u{10}\u{11}");
        assert_eq!(window.ends().await.code(), Some(0));
        assert!(window.text().contains("\u{1b}[?2004l"), "{:?}", window.text());
    })
    .await;
}

async fn eventually_shows(terminal: &Terminal, text: &str) {
    within(text, async {
        while !screen(terminal).await.iter().any(|line| line.starts_with("  rest")) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_leaves_a_full_screen_program_has_the_usual_screen() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        if !has_vim(session).await {
            return;
        }
        let named = address(&gateway);
        let terminal = session.command("vim").args(["-u", "NONE", "file"]).pty(80, 24).create().await;
        terminal.until("file").await;
        let mut window = Window::open(&session.workspace, &["attach", "--gateway", &named, &terminal.id]);
        shows_the_screen(&window, &terminal, "file").await;
        window.types("\u{10}\u{11}");
        assert_eq!(window.ends().await.code(), Some(0));
        let text = window.text();
        let (entered, left) = (text.rfind("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
        assert!(entered.is_some() && left > entered, "{text:?}");
        eventually("the end of the output", || text.contains("detached").then_some(())).await;
        terminal.types(":q!\r").await;
        assert_eq!(code(&terminal.wait().await), 0);
    })
    .await;
}

/// Attaches a window of now and one more of later, and has the program write between and after: both show its screen to the end.
async fn goes_on_for_who_comes_later(
    gateway: &Gateway,
    session: &Session,
    before: &str,
    after: &str,
    text: &str,
) {
    let script = format!("stty -echo; printf '{before}'; read line; printf '{after}'; cat");
    let terminal = session.sh(&script).pty(80, 24).create().await;
    terminal.until("here").await;
    let named = address(gateway);
    let attach = ["attach", "--gateway", &named, &terminal.id];
    let window = Window::open(&session.workspace, &attach);
    shows_the_screen(&window, &terminal, "here").await;
    terminal.types("\r").await;
    terminal.until("over").await;
    shows_the_screen(&window, &terminal, text).await;
    terminal.kill(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_beneath_a_full_screen_program_is_shown_when_it_ends() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        for (enter, leave) in [("1049h", "1049l"), ("47h", "47l")] {
            let before = format!("one\\r\\n\\033[31mprompt$ \\033[?{enter}\\033[H\\033[2Jhere");
            let after = format!("\\033[?{leave}over");
            goes_on_for_who_comes_later(&gateway, session, &before, &after, "prompt").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_written_next_is_shown_alike_to_who_came_later() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        for (before, after, text) in [
            // Margins, and a cursor that is counted from them.
            ("top\\033[3;6r\\033[6;1Hhere", "\\n\\nover", "over"),
            ("top\\033[3;6r\\033[?6h\\033[2;1Hhere", "\\033[1;9Hover\\033[9A^", "over"),
            // Tab stops, the style, line drawing, what was saved, a row that is full.
            ("\\033[3g\\033[31G\\033H\\rhere", "\\tover", "over"),
            ("here\\033[1;32;44m", "over\\033[K", "over"),
            ("here\\033(0", "qqq\\033(B over", "───"),
            ("\\033[5;9H\\033[7m\\0337\\033[m\\033[9;9Hhere", "\\0338over", "over"),
            ("\\033[24;77Hhere", "over", "over"),
        ] {
            goes_on_for_who_comes_later(&gateway, session, before, after, text).await;
        }
    })
    .await;
}
