//! The agent that has started this process, as far as /proc shows it: with it the session of its commands ends.
//!
//! A shell that was only started to run one line (`sh -c LINE`) is not the agent: the process that started it is. Nor is a process of
//! another user, to whom nobody's session can be bound: cron(8), su(1) and login(1) stay root's. There the outermost process of this
//! user is the agent, down to this one itself.

use std::{fs, io, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    cli::console::error::CliError,
    proto::v1::ProcessIdentity,
    sys::process::{parent_of, real_uid_of, start_ticks},
};

/// How many shells may stand between the agent and this process.
const SHELLS_MAX: usize = 8;
/// The programs that run a line for another program.
const SHELLS: [&str; 10] = ["sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "busybox", "rbash"];

/// The agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentProcess {
    /// Its number, and when it started.
    pub(in crate::cli) identity: ProcessIdentity,
    /// The name of its program, as it was started.
    pub(in crate::cli) program: String,
}

impl AgentProcess {
    /// The agent of this process.
    pub(in crate::cli) fn find() -> Result<Self, CliError> {
        let unseen = |error| CliError::caused_by("cannot see the process that has started this one", error);
        let own = nix::unistd::getuid().as_raw();
        let is_own = |pid: i32| real_uid_of(pid).map(|uid| pid > 0 && uid == Some(own)).map_err(unseen);
        let mut pid = std::process::id().cast_signed();
        let mut words: Vec<String> =
            std::env::args_os().take(1).map(|name| name.to_string_lossy().into_owned()).collect();
        for _ in 0..=SHELLS_MAX {
            let parent = parent_of(pid).map_err(unseen)?.unwrap_or_default();
            if !is_own(parent)? {
                break;
            }
            pid = parent;
            words = command_line(pid).map_err(unseen)?;
            if !runs_one_line(&words) {
                break;
            }
        }
        let program = words.first().map(|word| base_name(word).to_owned());
        let start_ticks = start_ticks(pid).map_err(unseen)?;
        match start_ticks {
            Some(start_ticks) if pid > 0 => Ok(Self {
                identity: ProcessIdentity { pid, start_ticks },
                program: program.unwrap_or_default(),
            }),
            Some(_) | None => {
                Err(CliError::message_only("the process that has started this one is gone".to_owned()))
            }
        }
    }

    /// Where it works.
    pub(in crate::cli) fn directory(&self) -> io::Result<std::path::PathBuf> {
        fs::read_link(format!("/proc/{}/cwd", self.identity.pid))
    }
}

/// The arguments of a process; none when it has ended, or is the kernel's.
fn command_line(pid: i32) -> io::Result<Vec<String>> {
    let bytes = match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// `sh -c LINE`, `bash -lc LINE` and their kind.
fn runs_one_line(words: &[String]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let options = arguments.iter().take_while(|word| word.starts_with('-'));
    let has_line = options.filter(|word| !word.starts_with("--")).any(|word| word.contains('c'));
    has_line && SHELLS.contains(&base_name(program).trim_start_matches('-'))
}

fn base_name(program: &str) -> &str {
    let name = Path::new(program).file_name().map(|name| std::str::from_utf8(name.as_bytes()));
    name.and_then(Result::ok).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_the_agent_unless_it_runs_one_line() {
        let runs =
            |words: &[&str]| runs_one_line(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert!(runs(&["/bin/bash", "-c", "-l", "provost-shell 'x'"]));
        assert!(runs(&["-zsh", "-lc", "x"]));
        for agent in [
            &["bash"][..],
            &["bash", "agent.sh", "-c"],
            &["bash", "--rcfile"],
            &["node", "-c", "x"],
            &["python3", "-c", "x"],
            &[],
        ] {
            assert!(!runs(agent), "{agent:?}");
        }
    }

    #[test]
    fn the_agent_of_a_test_is_the_program_that_runs_it() {
        let agent = AgentProcess::find().unwrap();
        assert!(agent.identity.pid > 0 && agent.identity.start_ticks > 0, "{agent:?}");
        assert!(agent.directory().unwrap().is_absolute());
    }
}
