//! What people's tools run outside can't be changed from inside: hooks, also where there are none yet, and agents'
//! configuration. Honest work in the same repository goes on.

use crate::support::lacks;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::support::{Gateway, Mounted, Session, code, in_session, is_root, new_workspace, skip};

/// Runs a script on the host, in a directory.
fn outside(directory: &Path, script: &str) -> String {
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("a shell is there");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

const REPOSITORY: &str = "git init -q . && git config user.name A && git config user.email a@b.c && \
                          echo 1 > file && git add file && git commit -qm first && mkdir -p .git/hooks";

/// Each way to a hook prints "planted" where it works.
const WAYS: [&str; 7] = [
    "mkdir -p .git/hooks; echo '#!/bin/sh' > .git/hooks/pre-commit && echo planted",
    "rm -rf .git/hooks; mkdir .git/hooks && touch .git/hooks/pre-commit && echo planted",
    "mkdir -p .git/hooks; mv .git/hooks .git/aside && mkdir .git/hooks && echo planted",
    "mv .git aside && cp -r aside .git && echo planted; mv aside .git 2>/dev/null",
    "rm -rf .git/hooks && ln -s ../own .git/hooks && echo planted",
    "rm -rf .git/hooks; mkdir own && python3 -c 'import os; os.rename(\"own\", \".git/hooks\")' && echo planted",
    "mkdir -p .git/hooks; touch x && ln x .git/hooks/pre-commit && echo planted",
];

async fn nothing_can_be_planted(session: &Session) {
    for way in WAYS {
        let copy = tempfile::tempdir().expect("a directory");
        outside(&session.workspace, &format!("cp -a . {}/w", copy.path().display()));
        let works = outside(&copy.path().join("w"), &format!("({way}) 2>/dev/null; true"));
        assert_eq!(works, "planted\n", "outside: {way}");
        let done = session.sh(way).finish().await;
        assert!(!done.text().contains("planted"), "{way}: {}", done.text());
        let hooks: Vec<_> = fs::read_dir(session.workspace.join(".git/hooks"))
            .expect("the directory of hooks is there")
            .flatten()
            .filter(|hook| !hook.file_name().to_string_lossy().ends_with(".sample"))
            .map(|hook| hook.file_name())
            .collect();
        assert!(hooks.is_empty(), "{way}: {hooks:?}");
        session.sh("rm -rf own x aside").finish().await;
    }
}

async fn honest_work_goes_on(session: &Session) {
    let work = "set -e; export GIT_AUTHOR_NAME=A GIT_COMMITTER_NAME=A GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_EMAIL=a@b.c; \
         echo 2 > file; git commit -qam second; git checkout -q -b other; echo 3 > new; git add new; \
         git commit -qm third; git checkout -q -; git merge -q other; git stash list; git tag v1; \
         git config some.key value; git gc -q; git clone -q . copy; git init -q fresh; \
         touch fresh/.git/hooks/pre-commit; git worktree add -q tree other 2>&1; git -C copy log --oneline | wc -l; \
         git status --short; git fsck 2>&1";
    let done = session.sh(work).finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    assert!(done.text().starts_with("3\n"), "{}", done.text());
    assert_eq!(outside(&session.workspace, "git log --oneline | wc -l"), "3\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hook_cannot_be_planted_and_a_commit_can_be_made() {
    if lacks(&["python3"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        outside(&session.workspace, REPOSITORY);
        nothing_can_be_planted(session).await;
        honest_work_goes_on(session).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hook_cannot_be_planted_where_there_is_no_directory_of_hooks() {
    if lacks(&["python3"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        outside(&session.workspace, &format!("{REPOSITORY} && rm -r .git/hooks"));
        let before = outside(&session.workspace, "find . | sort");
        nothing_can_be_planted(session).await;
        // Nothing but the empty directory, which belongs to whom the repository belongs to, was made.
        let after = outside(&session.workspace, "find . -not -path ./.git/hooks | sort");
        assert_eq!(before, after);
        honest_work_goes_on(session).await;
    })
    .await;
}

/// A directory that is a mount of its own, shared as service managers share all mounts of a host; taken down again.
struct Shared<'a> {
    directory: &'a Path,
    _mounted: Mounted,
}

impl<'a> Shared<'a> {
    fn made_of(directory: &'a Path) -> Option<Self> {
        let mounted = Mounted::try_new(&["--bind", &directory.display().to_string()], directory)?;
        let shared = Command::new("mount").arg("--make-shared").arg(directory).status();
        shared.is_ok_and(|status| status.success()).then_some(Self { directory, _mounted: mounted })
    }

    /// What the host has mounted in it.
    fn mounted_below(&self) -> Vec<String> {
        let inside = format!(" {}/", self.directory.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
        mounts.lines().filter(|line| line.contains(&inside)).map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_covered_in_a_sandbox_is_not_covered_on_a_host_that_shares_its_mounts() {
    if !is_root() {
        return skip("only root can mount");
    }
    let gateway = Gateway::start();
    let directory = new_workspace(&gateway, None);
    let Some(shared) = Shared::made_of(&directory) else { return skip("nothing can be mounted here") };
    outside(&directory, REPOSITORY);
    // What is mounted in a peer of it appears in it.
    let peer = new_workspace(&gateway, None);
    outside(&directory, &format!("mount --bind . {0} && mount -t tmpfs none {0}/.git/hooks", peer.display()));
    assert!(!shared.mounted_below().is_empty());
    outside(&directory, &format!("umount {0}/.git/hooks && umount {0}", peer.display()));
    assert!(shared.mounted_below().is_empty());

    let roots = vec![directory.display().to_string()];
    let session =
        Session::open_with(&gateway, gateway.caller().await, None, |request| request.roots = roots).await;
    let looked = session.sh("cat /proc/self/mountinfo; touch .git/hooks/pre-commit").finish().await;
    assert_ne!(code(&looked.outcome), 0, "it is covered inside");
    assert!(!looked.text().contains(" shared:"), "{}", looked.text());
    assert_eq!(shared.mounted_below(), Vec::<String>::new());
    session.close().await;
    outside(&directory, "touch .git/hooks/pre-commit");
    drop(shared);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hooks_that_are_there_run_and_stay_as_they_are() {
    in_session(&Gateway::shared(), async |session| {
        outside(&session.workspace, REPOSITORY);
        let hook = session.workspace.join(".git/hooks/pre-commit");
        fs::write(&hook, "#!/bin/sh\necho the hook has run\n").expect("the host can write");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        let done = session
            .sh("echo x >> .git/hooks/pre-commit; rm .git/hooks/pre-commit; echo 2 > file; \
                 GIT_AUTHOR_NAME=A GIT_COMMITTER_NAME=A EMAIL=a@b.c git commit -qam second")
            .finish()
            .await;
        assert!(done.text().ends_with("the hook has run\n"), "{}", done.text());
        assert_eq!(fs::read_to_string(&hook).expect("it is there"), "#!/bin/sh\necho the hook has run\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_agents_configuration_can_be_read_and_not_changed() {
    in_session(&Gateway::shared(), async |session| {
        outside(
            &session.workspace,
            "mkdir .claude .vscode && echo {} > .claude/settings.json && echo {} > .mcp.json",
        );
        for attempt in [
            "echo x > .claude/settings.json",
            "rm .claude/settings.json",
            "touch .claude/more",
            "mv .claude other",
            "echo x > .mcp.json",
            "rm -f .mcp.json",
            "mv .mcp.json other",
            "touch other && mv other .mcp.json",
            "touch .vscode/tasks.json",
        ] {
            let done = session.sh(attempt).finish().await;
            assert_ne!(code(&done.outcome), 0, "{attempt}");
        }
        let read = session.sh("cat .claude/settings.json .mcp.json; rm -f other; ls -A").finish().await;
        assert_eq!(read.text(), "{}\n{}\n.claude\n.mcp.json\n.vscode\n");
    })
    .await;
}
