//! One attack in one sandbox, and whether it worked.

use std::{
    ffi::OsString,
    fmt, fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use provost_test_support::Attack;

use super::{
    attacks::{AttackCase, By, Proof},
    host::{HostSide, SECRET},
    sandboxes::Sandbox,
};

/// How long a whole command may take, in seconds.
const TIME_LIMIT: &str = "60";
/// How long what a sandbox ends may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(3);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The attack programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// `tests/attacks/attack.c`.
    pub attack: Attack,
    /// `tests/attacks/breakout.c`.
    pub breakout: Attack,
}

/// What became of an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It worked.
    Worked,
    /// It did not, and how it failed.
    Stopped(String),
    /// It does not work without a sandbox either.
    NotApplicable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worked => f.write_str("**worked**"),
            Self::Stopped(how) => write!(f, "stopped ({how})"),
            Self::NotApplicable => f.write_str("not applicable"),
        }
    }
}

/// One attack in one sandbox.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    attack: &'a AttackCase,
    sandbox: &'a Sandbox,
    host: &'a HostSide,
    programs: &'a Programs,
}

impl<'a> Trial<'a> {
    /// A trial; nothing is started.
    pub(crate) fn new(
        attack: &'a AttackCase,
        sandbox: &'a Sandbox,
        host: &'a HostSide,
        programs: &'a Programs,
    ) -> Self {
        Self { attack, sandbox, host, programs }
    }

    /// Runs the attack in the sandbox, in a fresh workspace.
    pub(crate) fn run(self) -> Verdict {
        let workspace = self.host.workspace();
        let mark = format!("confinement-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let fill = |argument: &str| self.host.filled(argument, workspace.path(), &mark);
        let program = match self.attack.by {
            By::Call => &self.programs.attack,
            By::Breakout | By::OnTerminal => &self.programs.breakout,
        };
        let mut inside = vec![program.placed_in(workspace.path()).display().to_string()];
        inside.extend(self.attack.arguments.iter().map(|argument| fill(argument)));
        let argv = self.sandbox.command(self.host, workspace.path(), &inside);
        let said = self.said_by(&argv, workspace.path());
        let verb = self.attack.arguments[0];
        let verdict = match self.attack.proof {
            Proof::Said => match answer(&said, verb) {
                Some("OK") => Verdict::Worked,
                Some(errno) => Verdict::Stopped(errno.to_owned()),
                None => Verdict::Stopped("ended".to_owned()),
            },
            Proof::Appears(file) => {
                let file = fill(file);
                match fs::read_to_string(&file).is_ok_and(|text| text.contains("planted")) {
                    true => Verdict::Worked,
                    false if answer(&said, verb) == Some("OK") => {
                        Verdict::Stopped("not on the host".to_owned())
                    }
                    false => Verdict::Stopped(answer(&said, verb).unwrap_or("ended").to_owned()),
                }
            }
            Proof::Survivor => match survivors(&mark).is_empty() {
                true => Verdict::Stopped("ended".to_owned()),
                false => Verdict::Worked,
            },
        };
        // What the attacks have left where others look.
        let _ = fs::remove_dir_all(fill("{TMP}"));
        verdict
    }

    fn said_by(&self, argv: &[String], workspace: &Path) -> String {
        let mut all: Vec<OsString> = Vec::new();
        if self.attack.by == By::OnTerminal {
            all.extend([self.programs.breakout.program.clone().into_os_string(), "on_terminal".into()]);
        }
        all.extend(["timeout", "--foreground", "-k", "5", TIME_LIMIT].map(OsString::from));
        all.extend(argv.iter().map(OsString::from));
        let done = Command::new(&all[0])
            .args(&all[1..])
            .current_dir(workspace)
            .env("HOME", self.host.home())
            .env("CONFINEMENT_SECRET", SECRET)
            .stdin(Stdio::null())
            .output()
            .expect("timeout(1) can be started");
        if std::env::args().any(|argument| argument == "--verbose") {
            println!(
                "{all:?}\n{}{}",
                String::from_utf8_lossy(&done.stdout),
                String::from_utf8_lossy(&done.stderr)
            );
        }
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

/// What the attack program answered. A terminal may show typed letters before it.
fn answer<'a>(said: &'a str, verb: &str) -> Option<&'a str> {
    let marker = format!("{verb} ");
    said.lines().rev().find_map(|line| line.find(&marker).map(|at| line[at + marker.len()..].trim()))
}

/// Processes with this mark that do not go away by themselves. They are ended here.
fn survivors(mark: &str) -> Vec<i32> {
    let deadline = Instant::now() + GONE_WITHIN;
    let mut left = marked(mark);
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        left = marked(mark);
    }
    for pid in &left {
        // It may end at this moment.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    left
}

fn marked(mark: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("proc(5)").flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
        })
        .collect()
}
