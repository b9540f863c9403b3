//! Which agents are installed for this user, and by which front end each runs its commands here.
//!
//! Looks for programs by name in a path. It starts none of them and reads none of their settings.

use std::{env, ffi::OsStr, path::PathBuf};

use serde::Serialize;

use crate::cli::request::known_agents::{KNOWN_AGENTS, is_program};

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
pub(super) struct InstalledAgent {
    /// The program.
    pub(in crate::cli) program: PathBuf,
    /// What to configure.
    pub(super) configure: String,
}

/// The agents in this process's path, each once.
pub(in crate::cli) fn find() -> Vec<InstalledAgent> {
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
