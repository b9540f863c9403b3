//! The same bytes shown by tmux and by the screen process, side by side.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use provost_base::display::{cell::Attributes, mode::Modes, picture::Picture};
use provost_sandbox::screen::emulator::Emulator;

use crate::screen::{
    cases::{CASES, Case, DIFFERENCES},
    harness::{Stage, TERMINAL, size},
    vttest,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// A tmux server of our own.
struct Tmux<'a> {
    directory: &'a Path,
}

impl Tmux<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("tmux")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .arg("-u")
            .arg("-S")
            .arg(self.directory.join("socket"))
            .arg("-f")
            .arg(self.directory.join("conf"))
            .args(arguments)
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Shows a case. Tmux has taken in all of it when it has answered the question behind it, after those within it.
    fn start(&self, index: usize, case: &Case) {
        fs::write(self.directory.join(format!("{index}")), &case.output).unwrap();
        let shown = self.directory.join(format!("{index}"));
        let script = format!(
            "stty raw -echo; cat {0}; printf '\\033[6n'; until [ \"$c\" = R ]; do c=$(dd bs=1 count=1 2>/dev/null); done; : > {0}.done; exec sleep 600",
            shown.display()
        );
        let (columns, rows) = (case.columns.to_string(), case.rows.to_string());
        let name = format!("case{index}");
        self.text(&["new-session", "-d", "-s", &name, "-x", &columns, "-y", &rows, &script]);
    }

    fn shown(&self, index: usize, case: &Case) -> Shown {
        let until = Instant::now() + DEADLINE;
        while !self.directory.join(format!("{index}.done")).exists() {
            assert!(Instant::now() < until, "tmux does not show case {index}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let pane = format!("case{index}:");
        let captured = self.text(&["capture-pane", "-p", "-e", "-N", "-t", &pane]);
        let format =
            "#{cursor_x} #{cursor_y} #{alternate_on}#{cursor_flag}#{keypad_cursor_flag} #{pane_title}";
        let said = self.text(&["display-message", "-p", "-t", &pane, format]);
        let said: Vec<&str> = said.trim_end_matches('\n').splitn(4, ' ').collect();
        // What it captures are characters and their attributes, in the order of the rows: our own emulator reads that.
        let mut reader = Emulator::new(size(case.columns, case.rows));
        reader.advance(b"\x1b)0\x1b[?7l");
        for (line, row) in captured.split('\n').take(case.rows as usize).zip(1..) {
            reader.advance(format!("\x1b[{row}H{line}").as_bytes());
        }
        Shown {
            rows: rows_of(&reader.picture()),
            // Behind the last column when the next character wraps.
            column: said[0].parse::<u32>().unwrap().min(case.columns - 1),
            row: said[1].parse().unwrap(),
            flags: said[2].to_owned(),
            title: said.get(3).copied().unwrap_or_default().to_owned(),
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        // The server that this test has started, by its socket.
        let _ = self.run(&["kill-server"]);
    }
}

/// What a terminal shows.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    rows: Vec<Vec<String>>,
    column: u32,
    row: u32,
    flags: String,
    title: String,
}

/// Each run of a row in words.
fn rows_of(picture: &Picture) -> Vec<Vec<String>> {
    let rows = picture.rows.iter().map(|row| {
        row.runs()
            .into_iter()
            .map(|run| {
                let style = run.style.attributes.within(Attributes::STYLE).0;
                let (front, back) = (run.style.foreground, run.style.background);
                format!("{}+{} {:?} {front:?}/{back:?} {style:07b}", run.column, run.columns, run.text)
            })
            .collect()
    });
    rows.collect()
}

fn ours(picture: &Picture, host: &str) -> Shown {
    let flag = |mode| if picture.modes.contains(mode) { '1' } else { '0' };
    Shown {
        rows: rows_of(picture),
        column: picture.cursor.column.into(),
        row: picture.cursor.row.into(),
        flags: [flag(Modes::ALTERNATE_SCREEN), flag(Modes::SHOWS_CURSOR), flag(Modes::APPLICATION_CURSOR)]
            .into_iter()
            .collect(),
        // A pane without a title has the host's name.
        title: if picture.title.is_empty() { host.to_owned() } else { picture.title.clone() },
    }
}

#[tokio::test]
async fn the_screen_is_what_tmux_shows_but_for_a_list_of_differences() {
    if Command::new("tmux").arg("-V").output().is_err() {
        eprintln!("SKIPPED: tmux is not installed");
        assert!(std::env::var_os("PROVOST_REQUIRE_TMUX").is_none(), "tmux is required here");
        return;
    }
    let cases: Vec<Case> = CASES.iter().cloned().chain(vttest::cases()).collect();
    assert!(CASES.len() >= 60 && cases.len() >= 95, "{} cases", cases.len());
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("conf"), "set -g status off\nset -g history-limit 100\n").unwrap();
    let tmux = Tmux { directory: directory.path() };
    for (index, case) in cases.iter().enumerate() {
        tmux.start(index, case);
    }
    let host = tmux.text(&["display-message", "-p", "-t", "case0:", "#{host}"]).trim().to_owned();
    let mut differ = BTreeMap::new();
    let stage = Stage::new(1 << 16);
    let (link, _) = stage.start().await;
    for (index, case) in cases.iter().enumerate() {
        let mut stage = Stage::new(1 << 16);
        stage.write(&case.output);
        link.add(TERMINAL, size(case.columns, case.rows), stage.read_only_ring(), u64::MAX).await.unwrap();
        let (_, picture) = link.snapshot(TERMINAL).await.unwrap();
        link.remove(TERMINAL).await.unwrap();
        let (theirs, ours) = (tmux.shown(index, case), ours(&picture, &host));
        if theirs != ours {
            differ.insert(case.name.as_ref(), format!("tmux: {theirs:#?}\nours: {ours:#?}"));
        }
    }
    let known: Vec<&str> = DIFFERENCES.iter().map(|(name, _)| *name).collect();
    let unknown: Vec<_> = differ.iter().filter(|(name, _)| !known.contains(*name)).collect();
    for (name, how) in &unknown {
        eprintln!("=== {name}\n{how}");
    }
    let names: Vec<_> = unknown.iter().map(|(name, _)| **name).collect();
    assert!(names.is_empty(), "these differ from tmux, and are not listed: {names:?}");
    let stale: Vec<_> = known.iter().filter(|name| !differ.contains_key(*name)).collect();
    assert!(stale.is_empty(), "these are listed, and do not differ: {stale:?}");
}
