//! The screens of vttest, as recordings of a run in a pseudo-terminal of ours: one for each menu, with a marker at each screen.
//!
//! They are recorded again with `cargo test --test gateway -- --ignored the_screens_of_vttest_are_recorded`.

use std::{fmt::Write as _, fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    screen::cases::Case,
    support::{
        EndOfInput, Gateway, Session, Terminal,
        api::{CreateTerminalRequest, Pty, StdinMode},
        in_session, skip, within,
    },
};

const COLUMNS: u32 = 80;
const ROWS: u32 = 24;
/// Menus, and the keys that lead to their screens, one to each.
const MENUS: [(&str, &[&str]); 6] = [
    ("cursor movements", &["1\r", "\r", "\r", "\r", "\r", "\r"]),
    (
        "screen features",
        &["2\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r"],
    ),
    ("character sets", &["3\r"]),
    ("reports", &["6\r", "3\r", "\r", "4\r"]),
    ("vt102", &["8\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r", "\r"]),
    ("colours", &["11\r", "6\r", "2\r", "\r", "3\r", "\r", "4\r", "\r", "\r", "5\r"]),
];
/// How a screen ends that waits for a key.
const ENDINGS: [&str; 2] = ["Push <RETURN>", "): "];

fn recording(menu: &str) -> PathBuf {
    let name = menu.replace(' ', "-");
    PathBuf::from(format!("{}/tests/screen/data/vttest-{name}.cast", env!("CARGO_MANIFEST_DIR")))
}

/// What is shown at each marker of each recording: all that was written before it.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (menu, ..) in MENUS {
        let text = fs::read_to_string(recording(menu)).expect("there is a recording");
        let mut output = String::new();
        for line in text.lines().skip(1) {
            let event: Value = serde_json::from_str(line).expect("it is JSON");
            let (kind, data) = (event[1].as_str(), event[2].as_str().expect("it is text"));
            match kind {
                Some("o") => output += data,
                Some("m") => cases.push(Case {
                    name: data.to_owned().into(),
                    columns: COLUMNS,
                    rows: ROWS,
                    output: output.clone().into_bytes().into(),
                }),
                other => panic!("{other:?} in the recording of {menu}"),
            }
        }
    }
    cases
}

/// The output after an offset, when the screen waits for a key.
async fn next_screen(terminal: &Terminal, from: usize) -> String {
    within("a screen", async {
        loop {
            let data = terminal.output().await.data;
            let new = std::str::from_utf8(&data[from..]).expect("vttest writes text");
            if ENDINGS.iter().any(|ending| new.ends_with(ending)) {
                return new.to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
}

async fn record(session: &Session, menu: &str, keys: &[&str]) -> String {
    let in_pty = |request: &mut CreateTerminalRequest| {
        request.pty = Some(Pty { columns: COLUMNS, rows: ROWS, ..Pty::default() });
        request.stdin_mode = StdinMode::Open.into();
    };
    let terminal = session.command("vttest").args(["24x80.80"]).with(in_pty).create().await;
    let mut cast =
        json!({ "version": 3, "term": { "cols": COLUMNS, "rows": ROWS }, "command": "vttest" }).to_string();
    cast.push('\n');
    let mut event = |kind: &str, data: &str| {
        writeln!(cast, "{}", json!([0.0, kind, data])).expect("a string takes it");
    };
    let first = next_screen(&terminal, 0).await;
    event("o", &first);
    let mut written = first.len();
    for (key, number) in keys.iter().zip(1..) {
        terminal.write(key.as_bytes(), EndOfInput::NotYet).await.expect("vttest reads keys");
        let screen = next_screen(&terminal, written).await;
        written += screen.len();
        event("o", &screen);
        event("m", &format!("vttest, {menu}, {number}"));
    }
    terminal.release().await;
    cast
}

/// Run by hand.
mod nightly {
    use super::*;

    #[tokio::test]
    #[ignore = "by hand: records tests/screen/data again, for which it needs vttest"]
    async fn the_screens_of_vttest_are_recorded() {
        in_session(&Gateway::shared(), async |session| {
            if session.sh("command -v vttest").finish().await.text().is_empty() {
                return skip("vttest is not in the sandbox");
            }
            for (menu, keys) in MENUS {
                let cast = record(session, menu, keys).await;
                fs::write(recording(menu), cast).expect("a recording can be written");
            }
        })
        .await;
    }
}
