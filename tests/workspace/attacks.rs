//! Each way by which a command can leave code for people's tools: it works where changes are only reported, and does not
//! where they are undone. Either way the outcome says it.

use crate::support::lacks;
use std::fs;

use crate::{
    support::{Session, api::WorkspaceAction},
    workspace::{REPOSITORY, gateway, outside, session, shown},
};

/// One way: what the host has, what the command does, and what a person does then. `x.sh` leaves the mark.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) host: &'static str,
    pub(crate) command: &'static str,
    pub(crate) person: &'static str,
}

const WAYS: &[Way] = &[
    Way {
        name: "a monitor of the file system",
        host: "",
        command: "git config core.fsmonitor $PWD/x.sh",
        person: "git status",
    },
    Way {
        name: "hooks from elsewhere",
        host: "",
        command: "mkdir own; cp x.sh own/pre-commit; git config core.hooksPath own",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "a filter",
        host: "",
        command: "git config filter.x.clean $PWD/x.sh; echo 'file filter=x' > .gitattributes",
        person: "echo 2 > file; git diff",
    },
    Way { name: "an alias", host: "", command: "git config alias.st \"!$PWD/x.sh\"", person: "git st" },
    Way {
        name: "an included configuration",
        host: "",
        command: "git config -f inc core.fsmonitor $PWD/x.sh; git config include.path ../inc",
        person: "git status",
    },
    Way {
        name: "a change in what was included before",
        host: "git config -f inc a.b c; git config include.path ../inc",
        command: "git config -f inc core.fsmonitor $PWD/x.sh",
        person: "git status",
    },
    Way {
        name: "a change in the program that was configured before",
        host: "printf '#!/bin/sh\\n' > mon.sh; chmod +x mon.sh; git config core.fsmonitor ./mon.sh",
        command: "cat x.sh > mon.sh",
        person: "git status",
    },
    Way {
        name: "a change in the directory of hooks that was configured before",
        host: "mkdir own; git config core.hooksPath own",
        command: "cp x.sh own/pre-commit",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "the configuration of a worktree",
        host: "",
        command: "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $PWD/x.sh",
        person: "git status",
    },
    Way {
        name: "a common directory elsewhere",
        host: "",
        command: "mkdir e; cp -r .git/objects .git/refs .git/config e; git config -f e/config core.fsmonitor $PWD/x.sh; \
                  echo ../e > .git/commondir",
        person: "git status",
    },
    Way {
        name: "a worktree's file rewritten",
        host: "git worktree add -q tree",
        command: "cp -r .git e; git config -f e/config core.fsmonitor $PWD/x.sh; echo \"gitdir: $PWD/e\" > tree/.git",
        person: "git -C tree status",
    },
    Way {
        name: "a worktree's file rewritten, to what was harmless where it was",
        host: "git worktree add -q tree; cp -r .git e; git config -f e/config core.fsmonitor $PWD/x.sh",
        command: "echo 'gitdir: ../e' > tree/.git",
        person: "git -C tree status",
    },
    Way {
        name: "a nested repository",
        host: "",
        command: "git init -q a/b/nested; git -C a/b/nested config core.fsmonitor $PWD/x.sh",
        person: "git -C a/b/nested status",
    },
    Way {
        name: "a nested repository's hook",
        host: "",
        command: "git init -q nested; cp x.sh nested/.git/hooks/pre-commit",
        person: "git -C nested -c user.name=A -c user.email=a@b.c commit --allow-empty -m x",
    },
    Way {
        name: "a submodule's directory",
        host: "git -c protocol.file.allow=always submodule add -q $PWD sub",
        command: "git -C sub config core.fsmonitor $PWD/x.sh",
        person: "git status",
    },
    Way {
        name: "a command in .gitmodules",
        host: "git -c protocol.file.allow=always submodule add -q $PWD sub; git commit -qm sub",
        command: "git config submodule.sub.update \"!$PWD/x.sh\"; git -C sub checkout -q --detach; \
                  git -C sub -c user.name=A -c user.email=a@b.c commit -q --allow-empty -m x",
        person: "git submodule update",
    },
    Way {
        name: "a bare repository",
        host: "",
        command: "mkdir -p b/objects b/refs; echo ref: refs/heads/main > b/HEAD; \
                  git config -f b/config core.repositoryformatversion 0; git config -f b/config core.worktree ..; \
                  git config -f b/config core.fsmonitor $PWD/x.sh",
        person: "git -C b status",
    },
    Way {
        name: "a directory that becomes a repository by its name",
        host: "cp -r .git e; git config -f e/config core.fsmonitor $PWD/x.sh",
        command: "mkdir n; mv e n/.git",
        person: "git -C n status",
    },
    Way {
        name: "a link in place of a repository",
        host: "cp -r .git e; git config -f e/config core.fsmonitor $PWD/x.sh; mkdir n",
        command: "ln -s ../e n/.git",
        person: "git -C n status",
    },
    Way {
        name: "another name of the configuration",
        host: "git init -q n",
        command: "ln n/.git/config c; printf '[core]\\nfsmonitor = %s/x.sh\\n' $PWD >> c",
        person: "git -C n status",
    },
    Way {
        name: "a link in place of the configuration",
        host: "",
        command: "cp .git/config c; git config -f c core.fsmonitor $PWD/x.sh; ln -sf ../c .git/config",
        person: "git status",
    },
    Way {
        name: "a mapped configuration",
        host: "",
        command: "python3 -c 'import mmap, os; f = open(\".git/config\", \"r+b\"); n = os.fstat(f.fileno()).st_size; \
                  t = b\"\\n[core]\\nfsmonitor = %s/x.sh\\n\" % os.getcwdb(); f.truncate(n + len(t)); \
                  m = mmap.mmap(f.fileno(), 0); f.close(); m[n:] = t'",
        person: "git status",
    },
    Way {
        name: "a directory that its owner may not write",
        host: "",
        command: "git config core.fsmonitor $PWD/x.sh; chmod 555 .git",
        person: "git status",
    },
    Way {
        name: "more events than the kernel keeps",
        host: "",
        command: "mkdir f; git init -q n; python3 -c 'for i in range(40000): open(\"f/%d\" % i, \"w\")'; \
                  git -C n config core.fsmonitor $PWD/x.sh",
        person: "git -C n status",
    },
    Way {
        name: "an agent's servers",
        host: "",
        command: "echo {} > .mcp.json",
        person: "test -f .mcp.json && ./x.sh",
    },
    Way {
        name: "an editor's tasks",
        host: "",
        command: "mkdir .vscode; echo {} > .vscode/tasks.json",
        person: "test -f .vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "a compiler's wrapper",
        host: "mkdir .cargo",
        command: "echo > .cargo/config.toml",
        person: "test -f .cargo/config.toml && ./x.sh",
    },
    Way {
        name: "what is run at the entrance",
        host: "",
        command: "cp x.sh .envrc",
        person: "test -f .envrc && . ./.envrc",
    },
    Way {
        name: "a command in the list of an interrupted rebase",
        host: "echo 2 > file; git commit -qam second; printf 'edit %s\\nexec ./x.sh\\n' $(git rev-parse HEAD) > t; \
               echo \"GIT_SEQUENCE_EDITOR='cp t' git rebase -i HEAD~1\" > r.sh",
        command: "sh r.sh",
        person: "GIT_EDITOR=true git rebase --continue",
    },
    Way {
        name: "a command in the format of a rebase's list",
        host: "echo 2 > file; git commit -qam second",
        command: "git config rebase.instructionFormat '%s%nexec ./x.sh'",
        person: "git rebase -q --force-rebase HEAD~1",
    },
    Way {
        name: "an alias with an option that runs a program",
        host: "echo 2 > file; git commit -qam second",
        command: "git config alias.st 'rebase -x ./x.sh HEAD~1'",
        person: "git st",
    },
    Way {
        name: "the files of a repository elsewhere",
        host: "",
        command: "n=$(basename $PWD).mark; echo > $n; git add $n; git commit -qm mark; git config core.worktree $PWD/..",
        person: "git reset --hard",
    },
    Way {
        name: "the script that a configured interpreter is given",
        host: "mkdir tools; printf '#!/bin/sh\\n' > tools/mon; git config core.fsmonitor 'sh tools/mon'",
        command: "cat x.sh > tools/mon",
        person: "git status",
    },
    Way {
        name: "a directory of hooks that was configured and not there",
        host: "git config core.hooksPath .githooks",
        command: "mkdir .githooks; cp x.sh .githooks/pre-commit",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "a configured program that comes with its directory",
        host: "mkdir tools; printf '#!/bin/sh\\n' > tools/mon; chmod +x tools/mon; git config core.fsmonitor ./tools/mon",
        command: "mkdir evil; cp x.sh evil/mon; rm tools/mon; sleep 2; rmdir tools; mv evil tools",
        person: "git status",
    },
    Way {
        name: "an editor's tasks in a project below",
        host: "",
        command: "mkdir -p packages/a/.vscode; echo {} > packages/a/.vscode/tasks.json",
        person: "test -f packages/a/.vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "a change of an editor's tasks in a project below",
        host: "mkdir -p sub/.vscode; echo {} > sub/.vscode/tasks.json",
        command: "echo '{\"x\": 1}' > sub/.vscode/tasks.json",
        person: "grep -q x sub/.vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "a toolchain in the workspace",
        host: "",
        command: "printf '[toolchain]\\npath = \"evil\"\\n' > rust-toolchain.toml",
        person: "grep -q path rust-toolchain.toml && ./x.sh",
    },
    Way {
        name: "another version control's hooks",
        host: "",
        command: "mkdir -p m/.hg; printf '[hooks]\\nupdate = ./x\\n' > m/.hg/hgrc",
        person: "grep -q hooks m/.hg/hgrc && ./x.sh",
    },
    Way {
        name: "the list of commands at a commit",
        host: "",
        command: "echo 'repos: []' > .pre-commit-config.yaml",
        person: "test -f .pre-commit-config.yaml && ./x.sh",
    },
    Way {
        name: "another hook in place of one that is too large to keep",
        host: "mkdir own; (echo '#!/bin/sh'; head -c 1200000 /dev/zero | tr '\\0' '#') > own/pre-commit; \
               chmod +x own/pre-commit; git config core.hooksPath own",
        command: "(cat x.sh; head -c 1200000 /dev/zero | tr '\\0' '#') > own/pre-commit",
        person: "git commit --allow-empty -m x",
    },
];

/// Prepares a workspace; the program in it leaves a mark next to the workspace.
fn prepare(session: &Session, way: &Way) {
    outside(&session.workspace, REPOSITORY);
    let mark = mark(session);
    let script = format!("#!/bin/sh\ntouch {}\n", mark.display());
    fs::write(session.workspace.join("x.sh"), script).expect("the host can write");
    outside(&session.workspace, &format!("chmod +x x.sh; {}", way.host));
    // What the preparation itself may have run is not the command's doing.
    let _ = fs::remove_file(mark);
}

fn mark(session: &Session) -> std::path::PathBuf {
    session.workspace.with_extension("mark")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn nothing_that_a_command_leaves_is_run_by_peoples_tools() {
    if lacks(&["python3"]) {
        return;
    }
    nothing_is_run_by_peoples_tools(WAYS.iter()).await;
}

pub(crate) async fn nothing_is_run_by_peoples_tools(ways: impl Iterator<Item = &'static Way>) {
    let gateway = gateway();
    for way in ways {
        for (profile, is_run) in [("report", true), ("workspace", false)] {
            let session = session(&gateway, profile).await;
            prepare(&session, way);
            let done = session.sh(way.command).finish().await;
            let changes = &done.outcome.workspace_changes;
            let context = format!("{} with {profile}: {}\n{}", way.name, done.text(), shown(changes));
            let said = outside(&session.workspace, way.person);
            assert_eq!(mark(&session).exists(), is_run, "{context}{said}");
            assert!(!changes.is_empty(), "{context}");
            let is_undone =
                |action| matches!(action, WorkspaceAction::Restored | WorkspaceAction::Quarantined);
            for change in changes {
                let is_right = match is_run {
                    true => change.action() == WorkspaceAction::Reported,
                    false => is_undone(change.action()),
                };
                assert!(is_right, "{context}");
            }
            assert_eq!(done.outcome.workspace_shortfall, "", "{context}");
            session.close().await;
        }
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_undone_while_its_command_runs_and_is_in_the_journal() {
    let gateway = gateway();
    let session = session(&gateway, "quarantine").await;
    outside(&session.workspace, REPOSITORY);
    let before = fs::read(session.workspace.join(".git/config")).expect("it is there");
    // Ends by itself when its change was undone. There is a configuration at any moment.
    let script = "git config core.fsmonitor ./x
until content=$(cat .git/config) || exit 3; [ \"${content#*fsmonitor}\" = \"$content\" ]; do :; done
echo undone";
    let done = session.sh(script).finish().await;
    assert_eq!(done.text(), "undone\n");
    assert_eq!(fs::read(session.workspace.join(".git/config")).expect("it is there"), before);
    let changes = &done.outcome.workspace_changes;
    assert_eq!(changes.len(), 1, "{}", shown(changes));
    assert_eq!(changes[0].action(), WorkspaceAction::Restored);
    assert!(
        changes[0]
            .description
            .starts_with("core.fsmonitor = ./x; what was there is now config.provost-quarantine-")
    );
    let kept = outside(&session.workspace, "cat .git/config.provost-quarantine-*");
    assert!(kept.contains("fsmonitor"), "what was there is kept: {kept}");
    session.close().await;
    let journal = outside(&gateway.state, "cat journal/*");
    let record = journal.lines().find(|line| line.contains("workspace_change")).expect("a record");
    assert!(record.contains("core.fsmonitor = ./x") && record.contains("restored"), "{record}");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_was_closed_to_its_owner_is_looked_at_when_it_opens() {
    let gateway = gateway();
    // Root's own files are never closed to root.
    let session = match crate::support::is_root() {
        true => Session::open_as(&gateway, 4242).await,
        false => session(&gateway, "workspace").await,
    };
    session.sh("mkdir c; chmod 000 c").finish().await;
    let script = "chmod 755 c; git init -q c/d; git -C c/d config core.fsmonitor ./x";
    let done = session.sh(script).finish().await;
    let changes = &done.outcome.workspace_changes;
    assert!(changes.iter().any(|change| change.path.ends_with("c/d/.git/config")), "{}", shown(changes));
    assert_eq!(outside(&session.workspace, "git config -f c/d/.git/config core.fsmonitor"), "");
    session.close().await;
    gateway.stop();
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn by_every_third_way_nothing_is_run_by_peoples_tools() {
        if lacks(&["python3"]) {
            return;
        }
        nothing_is_run_by_peoples_tools(WAYS.iter().step_by(3)).await;
    }
}
