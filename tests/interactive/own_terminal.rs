//! The person's own terminal: what a command's output does to it while it is shown there, and how it is left.

use std::process::Command;

use nix::sys::signal::Signal;
use provost_base::display::{mode::Modes, size::ScreenSize};
use provost_sandbox::screen::emulator::Emulator;

use crate::{
    interactive::{
        command_line::address,
        keyboard::{InPty, Keyboard},
        window::Window,
    },
    support::{Gateway, Session, Terminal, code, eventually, in_session},
};

/// What a full-screen program asks for, in the words of printf(1), and what it draws.
const FULL_SCREEN: &str =
    "\\033[?1049h\\033[?1;1002;1006;2004h\\033[?25l\\033=\\033[>4;2m\\033[3;9r\\033[5;5Hdrawn";
/// The clipboard, the title as input, a request that is repeated, the answer to ENQ, a file, a notification.
const HOSTILE: &str = "\\033]52;c;cm0gLXJmIH4K\\007\\033[21t\\033P$qm\\033\\\\\\005\\033_Gt=f;L2V0Yw==\\033\\\\\\033]777;notify;a;b\\007";
/// A terminal must see nothing of these.
const REACHES_BEYOND: [&str; 6] = ["\x1b]52", "\x1b[21t", "\x1bP", "\x05", "\x1b_G", "\x1b]777"];

/// The modes that a terminal is in which was shown all of this.
fn modes(window: &Window) -> Modes {
    let mut emulator = Emulator::new(ScreenSize::new(80, 24).expect("a size"));
    emulator.advance(window.text().as_bytes());
    emulator.picture().modes
}

/// Fails unless the window is as a person's shell expects it.
fn must_be_usual(window: &Window) {
    let mut usual = Modes::default();
    usual.set(Modes::SHOWS_CURSOR, true);
    usual.set(Modes::WRAPS, true);
    assert_eq!(modes(window), usual, "{:?}", window.text());
    let (keys, usual_keys) = (window.text().rfind("\x1b[>4;2m"), window.text().rfind("\x1b[>4m"));
    assert!(keys.is_none() || keys < usual_keys, "the keyboard sends other keys: {:?}", window.text());
}

async fn full_screen(session: &Session) -> Terminal {
    let script =
        format!("stty -echo; printf '{FULL_SCREEN}'; read line; printf '\\033[7;7Hmore'; sleep 1000");
    let terminal = session.sh(&script).pty(80, 24).create().await;
    terminal.until("drawn").await;
    terminal
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_screen_is_left_as_it_was_after_every_signal_that_can_be_taken() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let named = address(&gateway);
        let terminal = full_screen(session).await;
        for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
            let mut window = Window::open(&session.workspace, &["attach", "--gateway", &named, &terminal.id]);
            window.shows("drawn").await;
            assert!(modes(&window).contains(Modes::ALTERNATE_SCREEN), "it was not: {:?}", window.text());
            // What else it asks for, live.
            terminal.types("\r").await;
            window.signal(signal);
            window.ends().await;
            must_be_usual(&window);
        }
        let script = format!("printf '{FULL_SCREEN}'; exec sleep 1000");
        let mut window =
            Window::open(&session.workspace, &["run", "-it", "--gateway", &named, "sh", "-c", &script]);
        window.shows("drawn").await;
        window.signal(Signal::SIGTERM);
        window.ends().await;
        must_be_usual(&window);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_that_ends_without_tidying_up_leaves_the_screen_as_it_was() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let named = address(&gateway);
        for options in [&["-it"][..], &["-t"], &[]] {
            let script = format!("printf '{FULL_SCREEN}'; exit 3");
            let command = ["--gateway", &named, "sh", "-c", &script];
            let mut window = Window::open(&session.workspace, &[&["run"], options, &command].concat());
            assert_eq!(window.ends().await.code(), Some(3), "{options:?}");
            window.shows("drawn").await;
            window.shows("\x1b[>4m").await;
            must_be_usual(&window);
        }
        // Behind one that does nothing is written.
        let script = "printf 'plain \\033[1mbold\\033[0m'";
        let command = ["run", "-it", "--gateway", &named, "sh", "-c", script];
        let mut window = Window::open(&session.workspace, &command);
        assert_eq!(window.ends().await.code(), Some(0));
        assert!(window.text().ends_with("plain \x1b[1mbold\x1b[0m"), "{:?}", window.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_person_who_stops_provost_has_a_usual_screen_and_then_the_programs() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let terminal = full_screen(session).await;
        let named = address(&gateway);
        let mut window = Window::open(&session.workspace, &["attach", "--gateway", &named, &terminal.id]);
        window.shows("drawn").await;
        window.signal(Signal::SIGTSTP);
        let stat = format!("/proc/{}/stat", window.pid());
        eventually("a stopped provost", || {
            std::fs::read_to_string(&stat).ok().filter(|stat| stat.contains(") T "))
        })
        .await;
        eventually("the usual screen", || (!modes(&window).contains(Modes::ALTERNATE_SCREEN)).then_some(()))
            .await;
        assert!(!window.is_raw());
        // While it is stopped.
        terminal.types("\r").await;
        terminal.until("more").await;
        window.signal(Signal::SIGCONT);
        eventually("the screen of the program", || {
            modes(&window).contains(Modes::ALTERNATE_SCREEN).then_some(())
        })
        .await;
        window.shows("more").await;
        assert!(window.text().rfind("drawn") > window.text().rfind("\x1b[?1049l"), "it is drawn again");
        window.types("\u{10}\u{11}");
        assert_eq!(window.ends().await.code(), Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_that_a_command_writes_reaches_beyond_a_persons_screen() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let named = address(&gateway);
        let script =
            format!("printf 'begin {HOSTILE}\\033[31mred\\033[0m end\\n'; printf '{HOSTILE}err\\n' >&2");
        let terminal = session.sh(&script).pty(80, 24).create().await;
        let pipes = session.sh(&script).create().await;
        assert_eq!((code(&terminal.wait().await), code(&pipes.wait().await)), (0, 0));
        let recording = gateway.directory().join("hostile.cast").display().to_string();
        let recorded = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["logs", "--gateway", &named, "--cast", &recording, &terminal.id])
            .status();
        assert!(recorded.expect("provost can be started").success());

        // Every byte reaches a terminal by itself.
        let mut window =
            Window::open(&session.workspace, &["logs", "--raw", "--gateway", &named, &terminal.id]);
        window.ends().await;
        window.shows("end").await;
        for sequence in REACHES_BEYOND {
            assert!(
                window.text().contains(sequence),
                "{sequence:?} is not written at all: {:?}",
                window.text()
            );
        }
        let waiting = format!("read go; {script}; sleep 1000");
        let attached = session.sh(&waiting).pty(80, 24).create().await;
        let shows: [&[&str]; 6] = [
            &["logs", "--gateway", &named, &terminal.id],
            &["logs", "--gateway", &named, &pipes.id],
            &["run", "--gateway", &named, "sh", "-c", &script],
            &["run", "-it", "--gateway", &named, "sh", "-c", &script],
            &["play", "--idle-limit", "0s", &recording],
            &["attach", "--gateway", &named, &attached.id],
        ];
        for arguments in shows {
            let mut window = Window::open(&session.workspace, arguments);
            if arguments[0] == "attach" {
                eventually("raw mode", || window.is_raw().then_some(())).await;
                window.types("\r");
                window.shows("err").await;
                window.types("\u{10}\u{11}");
            }
            window.ends().await;
            window.shows("red").await;
            window.shows("end").await;
            window.shows("err").await;
            for sequence in REACHES_BEYOND {
                assert!(
                    !window.text().contains(sequence),
                    "{arguments:?}: {sequence:?}: {:?}",
                    window.text()
                );
            }
        }
    })
    .await;
}
