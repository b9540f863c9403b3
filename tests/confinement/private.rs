//! A private workspace is one to work in: whatever its mode, its owner and the umask, commands run, read and write in it, and what people's
//! tools run is protected in it as anywhere.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use crate::support::{
    FIRST_SUBORDINATE, Gateway, Mounted, Options, Session, api, code, copy_provost, is_root, skip,
};

/// A user whom no other test is.
const USER: u32 = 59_981;
/// A group that nobody has and no sandbox maps.
const FOREIGN_GROUP: u32 = 59_982;

const MODES: [u32; 4] = [0o755, 0o711, 0o750, 0o700];
const UMASKS: [u32; 3] = [0o022, 0o027, 0o077];

/// Files that people's tools run, of each kind: in a directory whose absence is held, in directories, and alone.
const PROTECTED: [&str; 5] =
    [".git/hooks/pre-commit", ".vscode/tasks.json", ".husky/pre-commit", ".mcp.json", ".envrc"];

/// Works in the workspace, then tries each protected file.
const WORK: &str =
    "set -e; mkdir made; echo in > made/file; cat made/file; mv made/file kept; cat kept; set +e
    for file in .git/hooks/pre-commit .vscode/tasks.json .husky/pre-commit .mcp.json .envrc; do
        mkdir -p $(dirname $file); echo planted > $file
    done 2>/dev/null
    exit 7";
const SAID: &str = "in\nin\n";

/// What is in a workspace before its first command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    /// A repository, and each of the protected files, as this umask makes them.
    All,
}

/// Fills a workspace as its owner would with this umask, and gives it this mode.
fn fill(workspace: &Path, content: Content, umask: u32, mode: u32, owner: Option<u32>) {
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        if let Some(owner) = owner {
            chown(path, Some(owner), Some(owner)).expect("root can give it away");
        }
    };
    if content == Content::All {
        let directories = [".git", ".git/objects", ".git/refs", ".git/hooks", ".vscode", ".husky"];
        for directory in directories.map(|name| workspace.join(name)) {
            fs::create_dir(&directory).expect("a directory can be made");
            set(&directory, 0o777 & !umask);
        }
        for file in PROTECTED.iter().chain(&[".git/HEAD"]).map(|name| workspace.join(name)) {
            fs::write(&file, "own\n").expect("a file can be written");
            set(&file, 0o666 & !umask);
        }
    }
    set(workspace, mode);
}

/// Fails where a command's text is in a protected file, or where the own one is not as it was.
fn assert_protected(workspace: &Path, content: Content, cell: &str) {
    for name in PROTECTED {
        let there = fs::read_to_string(workspace.join(name)).ok();
        let expected = (content == Content::All).then(|| "own\n".to_owned());
        assert_eq!(there, expected, "{cell}: {name}");
    }
}

fn prefer_limits_with_a_gate(policy: &mut toml::Table) {
    let workspace = policy["profile"]["workspace"].as_table_mut().expect("a profile");
    workspace["limits"]["requirement"] = "prefer".into();
}

/// Whose gateway it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serving {
    Root,
    User,
    UserWithSubordinateIds,
}

impl Serving {
    /// None, and said, where this machine cannot have it.
    fn start(self) -> Option<Arc<Gateway>> {
        let policy: Option<fn(&mut toml::Table)> = Some(prefer_limits_with_a_gate);
        let user = (self != Self::Root).then_some(USER);
        let subordinate_ids = self == Self::UserWithSubordinateIds;
        if subordinate_ids && !has_map_programs() {
            return None;
        }
        Some(match self {
            Self::Root => Gateway::shared(),
            _ => Gateway::start_with(Options { policy, user, subordinate_ids, ..Options::default() }),
        })
    }
}

fn has_map_programs() -> bool {
    let found = ["newuidmap", "newgidmap"].iter().all(|name| Path::new("/usr/bin").join(name).exists());
    if !found {
        skip("newuidmap and newgidmap (package uidmap) are not there");
    }
    found
}

/// A session as the caller (`None`: as root), in a workspace of this owner.
async fn session(gateway: &Arc<Gateway>, caller: Option<u32>, owner: Option<u32>) -> Session {
    let caller = match caller {
        Some(uid) => gateway.caller_as(uid).await,
        None => gateway.caller().await,
    };
    Session::open_with(gateway, caller, owner, |_| {}).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_gateway_serves_private_workspaces() {
    if !is_root() {
        return skip("only root can be all kinds of callers");
    }
    let gateways = [
        (Serving::Root, None, None),
        (Serving::Root, None, Some(USER)),
        (Serving::Root, Some(USER), Some(USER)),
        (Serving::User, Some(USER), Some(USER)),
        (Serving::UserWithSubordinateIds, Some(USER), Some(USER)),
    ];
    let mut all = tokio::task::JoinSet::new();
    for (serving, caller, owner) in gateways {
        let Some(gateway) = serving.start() else { continue };
        all.spawn(async move {
            for (umask, mode, content) in cells() {
                let cell = format!(
                    "{serving:?}, caller {caller:?}, {content:?} of {owner:?}, {umask:03o}, {mode:o}"
                );
                let session = session(&gateway, caller, owner).await;
                fill(&session.workspace, content, umask, mode, owner);
                let done = session.sh(WORK).finish().await;
                assert_eq!((code(&done.outcome), done.text().as_str()), (7, SAID), "{cell}");
                assert_protected(&session.workspace, content, &cell);
                session.close().await;
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("every cell is as it should be");
    }
}

fn cells() -> impl Iterator<Item = (u32, u32, Content)> {
    let all = UMASKS.into_iter().flat_map(|umask| MODES.map(|mode| (umask, mode, Content::All)));
    // The umask makes no difference where nothing is made by it.
    all.chain(MODES.map(|mode| (UMASKS[0], mode, Content::Nothing)))
}

/// What a gateway of `provost run`'s own is started by: with the umask, as the user, and with what is shown of the host's files.
fn run_alone(who: Serving, umask: u32, place: &Path, workspace: &Path) -> Command {
    let show = |name: &str| format!("mount --bind {}/{name} /etc/{name} && ", place.display());
    let (before, become_user) = match who {
        Serving::Root => (String::new(), String::new()),
        Serving::User => (String::new(), format!("setpriv --reuid={USER} --regid={USER} --clear-groups ")),
        Serving::UserWithSubordinateIds => (
            ["passwd", "subuid", "subgid"].map(show).concat(),
            format!("setpriv --reuid={USER} --regid={USER} --clear-groups "),
        ),
    };
    let script = format!(
        "{before}cd {} && umask {umask:03o} && exec {become_user}{} run -- sh -c \"$0\"",
        workspace.display(),
        place.join("provost").display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-c", &script, WORK]);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent");
    command.stdin(Stdio::null()).process_group(0);
    command
}

#[test]
fn provost_run_by_itself_works_in_private_workspaces() {
    if !is_root() {
        return skip("only root can be all kinds of users");
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let at = |name: &str| place.path().join(name);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    copy_provost(place.path());
    let people = fs::read_to_string("/etc/passwd").expect("the host has people");
    fs::write(at("passwd"), format!("{people}private:x:{USER}:{USER}::/nonexistent:/bin/sh\n"))
        .expect("it can be written");
    for name in ["subuid", "subgid"] {
        fs::write(at(name), format!("{USER}:{FIRST_SUBORDINATE}:65536\n")).expect("it can be written");
    }
    let all = [
        (Serving::Root, None),
        (Serving::Root, Some(USER)),
        (Serving::User, Some(USER)),
        (Serving::UserWithSubordinateIds, Some(USER)),
    ];
    std::thread::scope(|threads| {
        for (who, owner) in all {
            if who == Serving::UserWithSubordinateIds && !has_map_programs() {
                continue;
            }
            let place = place.path();
            threads.spawn(move || {
                for (umask, mode, content) in cells().filter(|(_, _, content)| *content == Content::All) {
                    let cell = format!("{who:?}, {content:?} of {owner:?}, {umask:03o}, {mode:o}");
                    let workspace = place.join(format!("{who:?}-{}-{umask:o}-{mode:o}", owner.unwrap_or(0)));
                    fs::create_dir(&workspace).expect("a directory can be made");
                    fill(&workspace, content, umask, mode, owner);
                    let done = run_alone(who, umask, place, &workspace).output().expect("it starts");
                    let said = String::from_utf8_lossy(&done.stdout).into_owned();
                    let error = String::from_utf8_lossy(&done.stderr);
                    assert_eq!((done.status.code(), said.as_str()), (Some(7), SAID), "{cell}: {error}");
                    assert_protected(&workspace, content, &cell);
                }
            });
        }
    });
}

/// A workspace below directories that only the caller may pass, and whose group has no id in a sandbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn directories_above_a_workspace_may_be_closed_to_everybody_else() {
    if !is_root() {
        return skip("only root can give directories to other users and groups");
    }
    for serving in [Serving::Root, Serving::User, Serving::UserWithSubordinateIds] {
        let Some(gateway) = serving.start() else { continue };
        let above = gateway.directory().join(format!("above-{serving:?}"));
        let workspace = above.join("closed/workspace");
        fs::create_dir_all(&workspace).expect("a directory can be made");
        fill(&workspace, Content::All, 0o077, 0o700, Some(USER));
        for directory in [above.join("closed"), above] {
            chown(&directory, Some(USER), Some(FOREIGN_GROUP)).expect("root can give it away");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
        chown(&workspace, None, Some(FOREIGN_GROUP)).expect("root can give it away");
        let root = workspace.display().to_string();
        let caller = gateway.caller_as(USER).await;
        let session = Session::open_with(&gateway, caller, Some(USER), |new| new.roots = vec![root]).await;
        let done = session.sh(WORK).cwd(&workspace).finish().await;
        assert_eq!((code(&done.outcome), done.text().as_str()), (7, SAID), "{serving:?}");
        assert_protected(&workspace, Content::All, &format!("{serving:?}"));
        session.close().await;
    }
}

/// As `sudo git` leaves it. Nobody in the sandbox gets into it, nor moves it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_another_user_has_closed_in_a_workspace_keeps_nothing_from_running() {
    if !is_root() {
        return skip("only root can give directories to other users");
    }
    for serving in [Serving::Root, Serving::User, Serving::UserWithSubordinateIds] {
        let Some(gateway) = serving.start() else { continue };
        let session = session(&gateway, Some(USER), Some(USER)).await;
        fill(&session.workspace, Content::All, 0o077, 0o700, Some(USER));
        for directory in [".git", ".vscode"].map(|name| session.workspace.join(name)) {
            chown(&directory, Some(0), Some(0)).expect("it is root's again");
        }
        let work = format!("mv .git aside && exit 3; mv .vscode aside && exit 4; {WORK}");
        let done = session.sh(&work).finish().await;
        assert_eq!(code(&done.outcome), 7, "{serving:?}: {}", done.text());
        assert_protected(&session.workspace, Content::All, &format!("{serving:?}"));
        session.close().await;
    }
}

/// Programs and working directories in closed directories, a second sandbox of the session, and one after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_private_session_goes_on_in_other_sandboxes_and_with_the_next_gateway() {
    if !is_root() {
        return skip("only root can be another caller");
    }
    let gateway = Gateway::with_policy(|_| {});
    if !gateway.can_start_again() {
        return skip("the gateway cannot be started again here");
    }
    let mut session = session(&gateway, Some(USER), Some(USER)).await;
    let workspace = session.workspace.clone();
    fill(&workspace, Content::All, 0o077, 0o700, Some(USER));
    // Made from within, with the modes that commands give.
    let made = "umask 077; mkdir -p closed/deep; cp /bin/true closed/program; chmod 700 closed/program
        printf '#!%s/closed/program\\n' \"$PWD\" > closed/script; chmod 700 closed/script; mkdir .vscode2; rm -rf kept made";
    let done = session.sh(made).finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    let deep = workspace.join("closed/deep");
    let works = async |session: &Session, network: api::Network| {
        for program in ["../program", "../script"] {
            let command =
                session.command(program).cwd(&deep).with(|request| request.network = network.into());
            let done = command.finish().await;
            assert_eq!(code(&done.outcome), 0, "{program} {network:?}: {}", done.text());
        }
        let command = session.sh(WORK).with(|request| request.network = network.into());
        let done = command.finish().await;
        assert_eq!((code(&done.outcome), done.text().as_str()), (7, SAID), "{network:?}");
        assert_protected(&workspace, Content::All, &format!("{network:?}"));
        session.sh("rm -rf made kept").finish().await;
    };
    works(&session, api::Network::None).await;
    works(&session, api::Network::Proxy).await;
    gateway.crash();
    gateway.start_again();
    session.go_on(&gateway.caller_as(USER).await);
    works(&session, api::Network::None).await;
    works(&session, api::Network::Proxy).await;
    session.close().await;
}

/// Where ids cannot be mapped commands are their caller, in its groups: the thread that undoes looks with these rights, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_commands_plant_where_only_their_group_may_enter_is_undone() {
    if !is_root() {
        return skip("only root can be another caller");
    }
    const GROUPS: &[u32] = &[USER, FOREIGN_GROUP];
    let gateway = Gateway::shared();
    let workspace = gateway.directory().join("unmapped");
    fs::create_dir(&workspace).expect("a directory can be made");
    let Some(_mounted) = Mounted::try_new(&["-t", "ramfs", "none"], &workspace) else {
        return skip("nothing can be mounted here");
    };
    chown(&workspace, Some(USER), Some(USER)).expect("root can give it away");
    fs::set_permissions(&workspace, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let shared = workspace.join("shared");
    fs::create_dir(&shared).expect("a directory can be made");
    chown(&shared, Some(USER + 7), Some(FOREIGN_GROUP)).expect("root can give it away");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o770)).expect("it is ours");
    let root = workspace.display().to_string();
    let caller = gateway.caller_in_groups(USER, GROUPS).await;
    let session = Session::open_with(&gateway, caller, Some(USER), |new| new.roots = vec![root]).await;
    // It may be gone at the next look of that thread, which does not wait for the command's end.
    let done = session.sh("echo planted | tee shared/.envrc").finish().await;
    assert_eq!((code(&done.outcome), done.text().as_str()), (0, "planted\n"));
    assert!(!shared.join(".envrc").exists(), "it was moved aside: {:?}", done.outcome.workspace_changes);
    session.close().await;
}
