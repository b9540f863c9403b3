//! What a command puts in the way of the look and of the undo: other kinds of files, closed directories, names, depth, and
//! trees that change meanwhile.

use crate::support::lacks;
use std::fs;

use crate::{
    support::{
        Session,
        api::{WorkspaceAction, WorkspaceChange},
        is_root, skip,
    },
    workspace::{REPOSITORY, gateway, outside, session, shown},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_takes_its_place_a_configuration_is_put_back() {
    if lacks(&["python3"]) {
        return;
    }
    let gateway = gateway();
    for command in [
        // In one step: a look between the removal and what comes then would find nothing to put back.
        "mkfifo own; mv -f own .git/config",
        "truncate -s 2G .git/config",
        "ln -s /dev/zero own; mv -f own .git/config",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"own\")'; mv -f own .git/config",
        "git config core.fsmonitor ./x; chmod 000 .git/config",
        "git config core.fsmonitor ./x; chmod 000 .git",
    ] {
        // Root's own files are never closed to root.
        let session = match is_root() {
            true => Session::open_as(&gateway, 4242).await,
            false => session(&gateway, "workspace").await,
        };
        session.sh(REPOSITORY).finish().await;
        let before = fs::read(session.workspace.join(".git/config")).expect("it is there");
        let done = session.sh(command).finish().await;
        let changes = &done.outcome.workspace_changes;
        assert!(!changes.is_empty(), "{command}: {}", done.text());
        let is_restored = |change: &WorkspaceChange| change.action() == WorkspaceAction::Restored;
        assert!(changes.iter().all(is_restored), "{command}: {}", shown(changes));
        outside(&session.workspace, "chmod 755 .git");
        assert_eq!(
            fs::read(session.workspace.join(".git/config")).expect("it is there"),
            before,
            "{command}"
        );
        session.close().await;
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_closes_to_its_owner_is_looked_at_all_the_same() {
    let gateway = gateway();
    let session = match is_root() {
        true => Session::open_as(&gateway, 4242).await,
        false => session(&gateway, "workspace").await,
    };
    let script =
        "mkdir -p a/b; git init -q a/b/n; git -C a/b/n config core.fsmonitor ./x; chmod 000 a/b/n a/b a";
    let done = session.sh(script).finish().await;
    let changes = &done.outcome.workspace_changes;
    assert!(changes.iter().any(|change| change.path.ends_with("n/.git/config")), "{}", shown(changes));
    let modes = outside(
        &session.workspace,
        "stat -c %a a; chmod 755 a a/b a/b/n; git config -f a/b/n/.git/config core.fsmonitor",
    );
    assert_eq!(modes, "0\n", "its permissions are as the command left them, and nothing is left to run");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_hides_a_repository_and_what_is_too_deep_is_said() {
    if lacks(&["python3"]) {
        return;
    }
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    for name in ["$(printf 'a\\nb')", "$(printf 'c\\377d')", "-e", "' '", "$(printf '\\033[2J')"] {
        let script = format!("n=./{name}; git init -q \"$n\"; git -C \"$n\" config core.fsmonitor ./x");
        let done = session.sh(&script).finish().await;
        let changes = &done.outcome.workspace_changes;
        assert_eq!(changes.len(), 1, "{name}: {}{}", done.text(), shown(changes));
        assert_ne!(changes[0].action(), WorkspaceAction::Failed, "{name}: {}", shown(changes));
    }
    let script =
        "python3 -c 'import os\nfor i in range(25):\n os.mkdir(\"d\" * 200)\n os.chdir(\"d\" * 200)'";
    let done = session.sh(script).finish().await;
    assert!(done.outcome.workspace_shortfall.contains("4096"), "{:?}", done.outcome.workspace_shortfall);
    session.close().await;
    gateway.stop();
}

/// Unmounts what a test has mounted, however the test ends.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        outside(std::path::Path::new("/"), &format!("umount -l '{}'", self.0.display()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_mount_of_the_host_nothing_can_be_left_and_the_look_says_that_it_ends_there() {
    if !is_root() {
        return skip("only root can mount a file system");
    }
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    outside(
        &session.workspace,
        "mkdir m n; mount -t tmpfs none m; echo host > m/file; touch f; mount --bind n/../f f",
    );
    let mounts = ["m", "f"].map(|name| Mounted(session.workspace.join(name)));
    assert_eq!(outside(&session.workspace, "cat m/file"), "host\n", "file systems can be mounted here");
    let script = "git init -q m/r && git -C m/r config core.fsmonitor ./x; mkdir m/d; echo > m/x; echo > f; \
                  mv m moved; rmdir m; chmod 777 m; echo > n/x && echo done";
    let done = session.sh(script).finish().await;
    assert!(done.text().ends_with("done\n"), "{}", done.text());
    assert!(done.outcome.workspace_shortfall.contains("mounted below"), "{:?}", done.outcome);
    assert_eq!(outside(&session.workspace, "ls -A m; cat f"), "file\n");
    drop(mounts);
    assert_eq!(outside(&session.workspace, "ls -A m; cat f"), "", "nor is anything under the mount");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_is_not_led_out_of_the_root_by_what_is_swapped_meanwhile() {
    let gateway = gateway();
    let session = session(&gateway, "workspace").await;
    let victim = gateway.directory().join("victim");
    fs::create_dir_all(victim.join("hooks")).expect("the host can write");
    fs::write(victim.join("config"), "[core]\nbare = false\n").expect("the host can write");
    fs::write(victim.join("hooks/pre-commit"), "own\n").expect("the host can write");
    session.sh("git init -q n").finish().await;
    let script = format!(
        "for i in $(seq 60); do printf '[core]\\nfsmonitor = ./x\\n' > n/.git/config; cp /bin/true n/.git/hooks/pre-commit; \
         mv n/.git n/a; ln -s {0} n/.git; rm n/.git; mv n/a n/.git; mv n m; ln -s {0} n; rm n; mv m n; done",
        victim.display()
    );
    let done = session.sh(&script).finish().await;
    assert!(!done.outcome.workspace_changes.is_empty(), "{}", done.text());
    let left = outside(&victim, "find . -type f | sort; cat config hooks/pre-commit");
    assert_eq!(left, "./config\n./hooks/pre-commit\n[core]\nbare = false\nown\n");
    let config =
        outside(&session.workspace, "cat n/.git/config; test -e n/.git/hooks/pre-commit && echo hook");
    assert!(!config.contains("./x") && !config.contains("hook"), "nothing is left to run: {config}");
    session.close().await;
    gateway.stop();
}

/// The most workspaces that this test opens to use up what one owner may have.
const WORKSPACES_MAX: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_for_which_there_is_no_inotify_is_walked() {
    let instances = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").expect("it is there");
    // A quarter of a quarter is one owner's.
    let own = instances.trim().parse::<usize>().expect("a number") / 16;
    if own >= WORKSPACES_MAX {
        return skip("this host has more inotify instances than a test uses up");
    }
    let gateway = gateway();
    let mut held = Vec::new();
    for _ in 0..own.max(1) {
        let one = session(&gateway, "workspace").await;
        one.command("true").finish().await;
        held.push(one);
    }
    let session = session(&gateway, "workspace").await;
    outside(&session.workspace, REPOSITORY);
    let before = fs::read(session.workspace.join(".git/config")).expect("it is there");
    let script = "git config core.fsmonitor ./x; git init -q a/n; git -C a/n config core.fsmonitor ./x; echo > .mcp.json";
    let done = session.sh(script).finish().await;
    let changes = &done.outcome.workspace_changes;
    assert_eq!(changes.len(), 3, "{}", shown(changes));
    assert!(
        done.outcome.workspace_shortfall.contains("scans only"),
        "{:?}",
        done.outcome.workspace_shortfall
    );
    assert_eq!(fs::read(session.workspace.join(".git/config")).expect("it is there"), before);
    assert_eq!(outside(&session.workspace, "cat .mcp.json a/n/.git/config 2>/dev/null"), "");
    for one in held.iter().chain([&session]) {
        one.close().await;
    }
    gateway.stop();
}
