//! Agents that are known by name: how each is started for an editor, what has it run its commands here, and which are installed for this
//! user.
//!
//! What is said of an agent was seen of the version that is named, driven by the tests or by hand. `docs/agents.md` has the same table, and
//! a test compares the two. Installed agents are looked for by name in a path. Nothing is started here, and no settings are read.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{acp::ExpectedTerminals, cli::console::error::CliError};

/// The name that prints the table.
pub(in crate::cli) const LIST: &str = "list";

/// An agent of the Agent Client Protocol.
#[derive(Debug)]
pub(in crate::cli) struct KnownAgent {
    /// As it is named for `--agent`.
    pub(in crate::cli) name: &'static str,
    /// Its program and the arguments by which it speaks the protocol.
    pub(in crate::cli) start: &'static [&'static str],
    /// Whether it asks its editor for terminals.
    pub(in crate::cli) terminals: ExpectedTerminals,
    /// Arguments that switch its own shell off.
    pub(in crate::cli) without_shell: &'static [&'static str],
    /// Variables that switch its own shell off.
    pub(in crate::cli) without_shell_env: &'static [(&'static str, &'static str)],
    /// How it is installed.
    pub(in crate::cli) install: &'static str,
    /// The version of which this was seen.
    pub(in crate::cli) tested: &'static str,
}

/// In the order of their names.
pub(in crate::cli) const KNOWN_AGENTS: &[KnownAgent] = &[
    KnownAgent {
        name: "claude-agent",
        start: &["claude-agent-acp"],
        terminals: ExpectedTerminals::NotRequested,
        without_shell: &[],
        without_shell_env: &[],
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        tested: "0.49.0",
    },
    KnownAgent {
        name: "claude-code",
        start: &["claude-code-acp"],
        terminals: ExpectedTerminals::Requested,
        without_shell: &[],
        without_shell_env: &[],
        install: "npm install -g @zed-industries/claude-code-acp",
        tested: "0.16.2",
    },
    KnownAgent {
        name: "gemini",
        start: &["gemini", "--acp"],
        terminals: ExpectedTerminals::NotRequested,
        without_shell: &[],
        without_shell_env: &[],
        install: "npm install -g @google/gemini-cli",
        tested: "0.61.0",
    },
    KnownAgent {
        name: "mistral-vibe",
        start: &["vibe-acp"],
        terminals: ExpectedTerminals::Requested,
        without_shell: &[],
        without_shell_env: &[],
        install: "pip install 'mistral-vibe<3'",
        tested: "2.20.0",
    },
    KnownAgent {
        name: "opencode",
        start: &["opencode", "acp"],
        terminals: ExpectedTerminals::NotRequested,
        without_shell: &[],
        without_shell_env: &[("OPENCODE_PERMISSION", r#"{"bash":"deny"}"#)],
        install: "npm install -g opencode-ai",
        tested: "1.18.33",
    },
    KnownAgent {
        name: "qwen",
        start: &["qwen", "--acp"],
        terminals: ExpectedTerminals::NotRequested,
        without_shell: &["--exclude-tools", "run_shell_command,monitor"],
        without_shell_env: &[],
        install: "npm install -g @qwen-code/qwen-code",
        tested: "0.15.10",
    },
];

/// An agent as it is to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct AgentStart {
    /// Its program and arguments.
    pub(in crate::cli) command: Vec<OsString>,
    /// Variables of its own.
    pub(in crate::cli) env: Vec<(String, String)>,
    /// What is known of it.
    pub(in crate::cli) terminals: ExpectedTerminals,
}

/// Whether an agent keeps its own shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum OwnShell {
    /// It is confined with the agent.
    Kept,
    /// Where it can be switched off.
    SwitchedOff,
}

impl KnownAgent {
    /// The agent of this name.
    pub(in crate::cli) fn find(name: &str) -> Result<&'static Self, CliError> {
        KNOWN_AGENTS.iter().find(|agent| agent.name == name).ok_or_else(|| {
            let names: Vec<&str> = KNOWN_AGENTS.iter().map(|agent| agent.name).collect();
            CliError::message_only(format!(
                "no agent {:?} is known; known are {}",
                crate::printable::line(name),
                names.join(", ")
            ))
            .with_advice("start another one with `provost acp -- AGENT [ARG]...`")
        })
    }

    /// How it is started, with more arguments. Refused where it is not installed, or where a variable that it needs is set to
    /// something else.
    pub(in crate::cli) fn start(&self, more: Vec<OsString>, shell: OwnShell) -> Result<AgentStart, CliError> {
        let program = self.start[0];
        if installed(program).is_none() {
            return Err(CliError::message_only(format!("{program} is not in PATH"))
                .with_advice(format!("install it: {}", self.install)));
        }
        let mut command: Vec<OsString> = self.start.iter().map(OsString::from).collect();
        let mut env = Vec::new();
        if shell == OwnShell::SwitchedOff {
            command.extend(self.without_shell.iter().map(OsString::from));
            for (name, value) in self.without_shell_env {
                if env::var_os(name).is_some_and(|given| given != *value) {
                    return Err(CliError::message_only(format!(
                        "{name} is set, and --agent {} needs it to be {value}",
                        self.name
                    ))
                    .with_advice("unset it, or start the agent by its command after `--`"));
                }
                env.push(((*name).to_owned(), (*value).to_owned()));
            }
        }
        command.extend(more);
        Ok(AgentStart { command, env, terminals: self.terminals })
    }

    /// What is covered, in a few words.
    pub(in crate::cli) fn coverage(&self) -> &'static str {
        match (self.terminals, self.without_shell.is_empty() && self.without_shell_env.is_empty()) {
            (ExpectedTerminals::Requested, _) => "its terminals",
            (ExpectedTerminals::NotRequested, false) => "its commands, by the tools; its own shell is off",
            (ExpectedTerminals::NotRequested, true) => "what it runs by the tools; its own shell stays",
        }
    }
}

/// A program in `PATH`.
pub(in crate::cli) fn installed(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| is_program(file))
}

/// Whether a file is a program.
pub(in crate::cli) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// How an agent is covered.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// It is started for an editor, by this name.
    Acp(&'static str),
    /// It takes tools, and keeps a shell tool of its own.
    Mcp,
    /// It speaks the exec-server protocol to its environments.
    ExecServer,
}

/// The programs by which agents are started. `docs/agents.md` says what is covered.
const AGENTS: [(&str, Way); 11] = [
    ("claude-agent-acp", Way::Acp("claude-agent")),
    ("claude-code-acp", Way::Acp("claude-code")),
    ("vibe-acp", Way::Acp("mistral-vibe")),
    ("claude", Way::Mcp),
    ("codex", Way::ExecServer),
    ("gemini", Way::Mcp),
    ("goose", Way::Mcp),
    ("kimi", Way::Mcp),
    ("opencode", Way::Mcp),
    ("qwen", Way::Mcp),
    ("vibe", Way::Mcp),
];

/// An agent that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct InstalledAgent {
    /// The program.
    pub(in crate::cli) program: PathBuf,
    /// What to configure.
    pub(in crate::cli) configure: String,
}

/// The agents in this process's path, each once.
pub(in crate::cli) fn find_installed() -> Vec<InstalledAgent> {
    env::var_os("PATH").map(|path| find_in(&path)).unwrap_or_default()
}

fn find_in(path: &OsStr) -> Vec<InstalledAgent> {
    let directories: Vec<PathBuf> =
        env::split_paths(path).filter(|directory| directory.is_absolute()).collect();
    let found = AGENTS.iter().filter_map(|(name, way)| {
        let program =
            directories.iter().map(|directory| directory.join(name)).find(|file| is_program(file))?;
        let configure = match way {
            Way::Acp(agent) => format!("in the editor, as the agent's command: provost acp --agent {agent}"),
            Way::Mcp => {
                let tools = "as an MCP server of the agent: provost mcp --root DIR (not its own shell tool)";
                match KNOWN_AGENTS.iter().find(|known| known.start[0] == *name) {
                    Some(known) => {
                        format!("{tools}; in an editor, as its command: provost acp --agent {}", known.name)
                    }
                    None => tools.to_owned(),
                }
            }
            Way::ExecServer => {
                "in environments.toml, as its only environment: provost exec-server --root DIR".to_owned()
            }
        };
        Some(InstalledAgent { program, configure })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    #[test]
    fn names_are_given_once_and_in_order_and_none_is_the_lists() {
        let names: Vec<&str> = KNOWN_AGENTS.iter().map(|agent| agent.name).collect();
        assert!(names.is_sorted_by(|one, next| one < next) && !names.contains(&LIST), "{names:?}");
        assert!(KNOWN_AGENTS.iter().all(|agent| !agent.start.is_empty()));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        let refused = KnownAgent::find("open\x1bcode").unwrap_err();
        assert!(refused.to_string().contains("claude-code, gemini"), "{refused}");
    }

    #[test]
    fn the_first_program_of_each_name_in_the_path_is_found() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (directory, name, mode) in [
            (&one, "claude", 0o644),
            (&two, "claude", 0o755),
            (&two, "vibe-acp", 0o755),
            (&two, "other", 0o755),
        ] {
            let file = directory.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = env::join_paths([Path::new("relative"), one.path(), two.path()]).unwrap();
        let found = find_in(&path);
        let programs: Vec<_> = found.iter().map(|agent| agent.program.clone()).collect();
        assert_eq!(programs, [two.path().join("vibe-acp"), two.path().join("claude")]);
        assert!(found[0].configure.ends_with("provost acp --agent mistral-vibe"));
        assert!(found[1].configure.contains("provost mcp --root DIR"));
        assert!(find_in(OsStr::new("")).is_empty());
    }
}
