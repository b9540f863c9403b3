//! What a command leaves in a workspace for people's tools to run: found, undone and told, while everyday git goes on.

mod attacks;
mod everyday;
mod git_ways;
mod links;
mod named;
mod obstacles;
mod sharing;
mod told;

use std::{path::Path, process::Command, sync::Arc};

use crate::support::{Gateway, Session, api::WorkspaceChange};

/// Runs a script on the host, in a directory, as a person would: whatever its end.
fn outside(directory: &Path, script: &str) -> String {
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("a shell is there");
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

/// A repository with one commit.
const REPOSITORY: &str = "git init -q . && git config user.name A && git config user.email a@b.c && \
                          echo 1 > file && git add file && git commit -qm first && mkdir -p .git/hooks";

/// A gateway whose policy has a profile that only reports.
fn gateway() -> Arc<Gateway> {
    Gateway::with_policy(|policy| {
        let profiles = policy["profile"].as_table_mut().expect("a table of profiles");
        for changes in ["report", "quarantine"] {
            let profile = format!("extends = \"workspace\"\nfilesystem = {{ changes = \"{changes}\" }}");
            profiles.insert(changes.to_owned(), profile.parse::<toml::Table>().expect("a profile").into());
        }
    })
}

/// A session in a new workspace, with a profile.
async fn session(gateway: &Arc<Gateway>, profile: &str) -> Session {
    let caller = gateway.caller().await;
    let profile = profile.to_owned();
    Session::open_with(gateway, caller, None, |request| request.profile = profile).await
}

/// Each change on a line, for a failed test.
fn shown(changes: &[WorkspaceChange]) -> String {
    let line = |change: &WorkspaceChange| {
        format!("{}: {}: {:?} {}\n", change.path, change.description, change.action(), change.failure)
    };
    changes.iter().map(line).collect()
}
