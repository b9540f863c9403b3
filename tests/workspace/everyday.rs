//! Everyday git inside changes nothing that is dangerous, and nothing of it is undone or told.

use crate::{
    support::{code, eventually},
    workspace::{REPOSITORY, gateway, outside, session, shown},
};

/// What people and agents do, one command each.
const WORK: &[&str] = &[
    "git status; git config user.name B; git config --global user.email b@c.d; git config core.autocrlf false",
    "echo 2 > file; git commit -qam second; git checkout -q -b other; echo 3 > new; git add new; git commit -qm third",
    "git clone -q --bare . remote.git; git remote add origin ./remote.git; git fetch -q; git push -qu origin other",
    "git checkout -q -; git merge -q other; git rebase -q HEAD~1; git tag v1; git gc -q; git stash list",
    "git worktree add -q tree other 2>&1; git -C tree status; git worktree list; git worktree remove tree",
    "git clone -q . copy; git init -q fresh; git -C fresh commit -q --allow-empty -m first",
    "git -c protocol.file.allow=always submodule add -q $PWD/copy sub; git commit -qm sub; git submodule update --init",
    "git config alias.st status; git config core.fsmonitor true; git config --unset core.fsmonitor; git sparse-checkout set .",
    "mv copy moved; git -C moved status; cp -r moved again; git -C again log --oneline; rm -rf again",
    "git config alias.lg 'log --oneline --graph'; git config alias.pu 'push -u origin HEAD'; printf '[toolchain]\nchannel = \"1\"\n' > rust-toolchain.toml",
    "mkdir -p node_modules/x/.vscode m/.hg; echo {} > node_modules/x/.vscode/settings.json; printf '[paths]\ndefault = x\n' > m/.hg/hgrc",
    "cp -r project copied; git worktree add -q second other; mv project renamed; git worktree remove --force second",
    "git checkout -q other; for i in 1 2 3; do echo $i > x$i; git add x$i; git commit -qm x$i; done; git rebase -q -x true HEAD~2; git checkout -q -",
    "git branch -D other 2>&1; git config --rename-section remote.origin remote.up; git remote -v; git fsck 2>&1",
    "mkdir -p dist/x; echo > dist/x/a; ln -s dist/x latest; ln -s ../../file dist/x/f; ln -s nowhere dangling; ln -s target/debug out; ln -sfn dist latest",
    "git init -q pick; cd pick; git config user.name B; git config user.email b@c.d; echo 1 > file; git add file; git commit -qm 1; git checkout -qb p; for i in 1 2; do echo p$i > file; git commit -qam p$i; done; git checkout -q -; echo q > file; git commit -qam q; ! git cherry-pick -Xours -s p~1 p; git cherry-pick --abort 2>&1 || true; git reset -q --hard; ! git rebase -q p; git rebase --abort; git rebase -q -Xtheirs p; git config alias.sw 'switch -c'; git config diff.tool meld; git config merge.tool vimdiff; git config pull.twohead ort; git config url.git@example.org:.insteadOf https://example.org/; git config remote.up.url https://example.org/x",
    "mkdir -p .bundle j/.jj/repo; printf -- '---\nBUNDLE_PATH: \"vendor/bundle\"\n' > .bundle/config; git config gitflow.path.hooks $PWD/.git/hooks; echo > hk.csv; echo > j/.jj/repo/store",
    "mkdir -p a/b/c target/debug; for i in 1 2 3 4 5; do echo $i > a/b/c/$i; done; rm -r a; echo ok > Makefile",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyday_git_is_left_alone() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    outside(&session.workspace, "mkdir -p project/.vscode; echo {} > project/.vscode/tasks.json");
    for work in WORK {
        let done = session.sh(&format!("set -e; {work}")).finish().await;
        assert_eq!(code(&done.outcome), 0, "{work}: {}", done.text());
        let changes = &done.outcome.workspace_changes;
        assert!(changes.is_empty(), "{work}: {}", shown(changes));
        assert_eq!(done.outcome.workspace_shortfall, "", "{work}");
    }
    assert_eq!(
        outside(&session.workspace, "git config alias.st; git config remote.up.url"),
        "status\n./remote.git\n"
    );
    assert_eq!(outside(&session.workspace, "find . -name '*provost*'"), "");
    session.close().await;
    gateway.stop();
}

/// They are what the person's own worktree has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_worktree_keeps_the_accepted_hooks() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    let hooks = "mkdir own; printf '#!/bin/sh\\n' > own/pre-commit; chmod +x own/pre-commit; \
                 git config core.hooksPath own; git add own; git commit -qm hooks";
    outside(&session.workspace, hooks);
    let done =
        session.sh("git worktree add -q w -b w && git -C w commit -q --allow-empty -m x").finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    let changes = &done.outcome.workspace_changes;
    assert!(changes.is_empty(), "{}", shown(changes));
    assert_eq!(outside(&session.workspace, "ls w/own"), "pre-commit\n");
    session.close().await;
    gateway.stop();
}

/// The list that a rebase is working on belongs to the command that runs, whatever ended just before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebase_right_after_another_command_is_left_alone() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    let commits = "set -e; for i in 1 2 3; do echo $i > file$i; git add .; git commit -qm $i; done";
    outside(&session.workspace, commits);
    for round in 0..3 {
        // Its end is looked at, as it has changed git's directory.
        let before = session.sh("git config branch.main.description before").finish().await;
        assert_eq!(code(&before.outcome), 0, "{}", before.text());
        let done = session.sh("git rebase -q -x 'sleep 0.3' HEAD~3").finish().await;
        assert_eq!(code(&done.outcome), 0, "round {round}: {}", done.text());
        let changes = &done.outcome.workspace_changes;
        assert!(changes.is_empty(), "round {round}: {}", shown(changes));
    }
    assert_eq!(outside(&session.workspace, "git log --format=%s -3"), "3\n2\n1\n");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_changes_between_commands_is_theirs() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    session.command("true").finish().await;
    outside(&session.workspace, "git config core.pager less; echo {} > .mcp.json; touch .git/hooks/pre-push");
    let done = session.sh("echo 2 > file; git commit -qam second").finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    assert!(done.outcome.workspace_changes.is_empty(), "{}", shown(&done.outcome.workspace_changes));
    let kept = outside(&session.workspace, "git config core.pager; cat .mcp.json; ls .git/hooks/pre-push");
    assert_eq!(kept, "less\n{}\n.git/hooks/pre-push\n");
    // And what is theirs is what a change of it goes back to.
    let done = session.sh("git config core.pager ./x").finish().await;
    assert_eq!(done.outcome.workspace_changes.len(), 1, "{}", shown(&done.outcome.workspace_changes));
    assert_eq!(outside(&session.workspace, "git config core.pager"), "less\n");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_file_that_a_person_replaces_stays_as_the_person_left_it() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(
        &session.workspace,
        "echo first > .envrc; echo first > .npmrc; mkdir .husky; echo first > .husky/pre-commit",
    );
    // As long as it is there no command changes it.
    let attack = "echo attack > .envrc; echo attack > .npmrc; echo attack > .husky/pre-commit; true";
    assert_eq!(
        outside(&session.workspace, &format!("cp -a . ../copy; cd ../copy; {attack}; cat .envrc")),
        "attack\n"
    );
    session.sh(attack).finish().await;
    let all = "cat .envrc .npmrc .husky/pre-commit";
    assert_eq!(outside(&session.workspace, all), "first\nfirst\nfirst\n");
    // An editor's save, and a checkout, while a command of the sandbox runs.
    let waiting = session
        .sh("while ! test -e go; do sleep 0.02; done; echo attack >> .envrc; echo attack > .npmrc; \
                              echo attack > .husky/pre-commit; sleep 0.3; echo done");
    let waiting = waiting.create().await;
    let save = "echo second > .envrc.new~; mv .envrc.new~ .envrc; rm .npmrc; echo second > .npmrc; \
                echo second > .husky/new; mv .husky/new .husky/pre-commit";
    outside(&session.workspace, save);
    // Each with what it has now: a look between the two steps of a save finds less.
    let content = outside(&session.workspace, "sha256sum < .npmrc | cut -c1-64");
    for name in [".envrc", ".npmrc"] {
        let found = format!(
            "cat journal/* | grep -a 'replaced from outside' | grep -a '/{name}\"' | grep -ac {} || true",
            content.trim()
        );
        eventually("the look that finds it", || {
            (outside(&gateway.state, &found).trim() != "0").then_some(())
        })
        .await;
    }
    outside(&session.workspace, "touch go");
    let outcome = waiting.wait().await;
    let left = outside(&session.workspace, all);
    assert_eq!(
        left, "second\nsecond\nsecond\n",
        "what the person has left stays, and what the command did not"
    );
    let told = shown(&outcome.workspace_changes);
    assert!(told.contains("replaced from outside") && told.contains("Restored"), "{told}");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_saves_again_while_a_command_runs_is_kept() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    outside(&session.workspace, "echo first > .npmrc; git config remote.a.url first");
    let waiting = session.sh("echo started; while ! test -e go; do sleep 0.02; done").create().await;
    waiting.until("started").await;
    // Each is an editor's save, and what came of it is waited for; the same text again is not kept twice.
    let save = |text: &str| {
        outside(&session.workspace, &format!("echo {text} > .n; mv .n .npmrc"));
    };
    let kept = |place: &str| outside(&session.workspace, &format!("cat {place}.provost-quarantine-*"));
    save("second");
    let count = "cat journal/* | grep -ao 'replaced from outside' | wc -l";
    eventually("the first replacement is seen", || {
        (outside(&gateway.state, count).trim() != "0").then_some(())
    })
    .await;
    for (text, all) in [("third", &["third"][..]), ("third", &["third"]), ("fourth", &["third", "fourth"])] {
        save(text);
        eventually(&format!("{text} is undone, and kept once"), || {
            let kept = kept(".npmrc");
            let mut kept: Vec<&str> = kept.lines().collect();
            kept.sort_unstable_by_key(|text| *text != "third");
            (outside(&session.workspace, "cat .npmrc") == "second\n" && kept == all).then_some(())
        })
        .await;
    }
    // And what everyday git writes: a dangerous key takes what was saved with it out of its place, and not away.
    outside(&session.workspace, "git config -f .git/config remote.b.url mine; git config core.fsmonitor ./x");
    eventually("it is undone", || {
        outside(&session.workspace, "git config core.fsmonitor").is_empty().then_some(())
    })
    .await;
    assert!(kept(".git/config").contains("mine"), "{}", kept(".git/config"));
    outside(&session.workspace, "touch go");
    let outcome = waiting.wait().await;
    let told = shown(&outcome.workspace_changes);
    let names = outside(&session.workspace, "ls -d .npmrc.* .git/config.*");
    for name in names.lines().map(|name| name.trim_start_matches(".git/")) {
        assert!(told.contains(name), "{name} in {told}");
    }
    assert!(names.lines().count() >= 3, "{names}");
    // As it says.
    outside(&session.workspace, "mv $(grep -l fourth .npmrc.*) .npmrc");
    session.command("true").finish().await;
    assert_eq!(outside(&session.workspace, "cat .npmrc"), "fourth\n");
    session.close().await;
    gateway.stop();
}
