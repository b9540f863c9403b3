//! A root gives a principal no more than it has on the host, and no refusal tells it of names that it cannot see.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    Caller, Gateway, Refusal, Session,
    api::{CreateSessionRequest, CreateTerminalRequest, create_terminal_request},
    code, is_root, new_workspace, skip,
};

/// A user without an entry in any list.
const CALLER: u32 = 54_321;
/// A supplementary group of that user.
const GROUP: u32 = 54_400;

async fn open(caller: &Caller, root: &Path) -> Result<String, Refusal> {
    let request =
        CreateSessionRequest { roots: vec![root.display().to_string()], ..CreateSessionRequest::default() };
    let opened = caller.sessions.clone().create_session(request).await;
    opened.map(|session| session.into_inner().session.expect("it is set").id).map_err(Refusal::from)
}

/// A directory that is closed to all but root.
fn closed(gateway: &Gateway, name: &str) -> PathBuf {
    let closed = gateway.directory().join(name);
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    closed
}

fn give(path: &Path) {
    chown(path, Some(CALLER), Some(CALLER)).unwrap();
}

/// What the caller may do without us.
fn outside(script: &str, argument: &Path) -> bool {
    let (uid, gid) = (format!("--reuid={CALLER}"), format!("--regid={CALLER}"));
    let done = Command::new("setpriv")
        .args([&uid, &gid, "--clear-groups", "sh", "-c", script, "sh"])
        .arg(argument)
        .output()
        .expect("setpriv is there");
    done.status.success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_root_below_a_closed_directory_is_closed() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    let caller = gateway.caller_as(CALLER).await;
    let mine = closed(&gateway, "closed").join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("theirs"), "for those who can come here").unwrap();
    give(&mine);
    assert!(!outside("cat \"$1\"/theirs", &mine), "on the host it is out of reach");
    open(&caller, &mine).await.expect_err("it is opened").must_name_the_field("roots[0]");
    // By a link of the caller's own, too.
    let own = new_workspace(&gateway, Some(CALLER));
    symlink(&mine, own.join("link")).unwrap();
    open(&caller, &own.join("link")).await.expect_err("it is opened by a link");
    // One that lets others pass without showing what is in it is no hindrance, as on the host.
    fs::set_permissions(mine.parent().unwrap(), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(outside("cat \"$1\"/theirs", &mine));
    open(&caller, &mine).await.expect("it is the caller's, and can be reached");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_its_groups_let_a_caller_enter_it_can_have_as_a_root() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    let shared = closed(&gateway, "shared");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o750)).unwrap();
    chown(&shared, Some(0), Some(GROUP)).unwrap();
    let mine = shared.join("mine");
    fs::create_dir(&mine).unwrap();
    give(&mine);
    let stranger = gateway.caller_as(CALLER).await;
    open(&stranger, &mine).await.expect_err("without the group it is out of reach");
    let member = gateway.caller_in_groups(CALLER, &[CALLER, GROUP]).await;
    open(&member, &mine).await.expect("a member of the group can enter");
    // The next gateway knows its groups, too.
    gateway.crash();
    gateway.start_again();
    let member = gateway.caller_in_groups(CALLER, &[CALLER, GROUP]).await;
    let listed = member
        .sessions
        .clone()
        .list_sessions(crate::support::api::ListSessionsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .sessions;
    assert_eq!(listed.len(), 1);
    let request = CreateTerminalRequest {
        session_id: listed[0].id.clone(),
        command: Some(create_terminal_request::Command::Program("true".into())),
        ..CreateTerminalRequest::default()
    };
    member.terminals.clone().create_terminal(request).await.expect("the root is there again");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_lies_in_a_closed_directory_is_answered_as_what_does_not() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    let caller = gateway.caller_as(CALLER).await;
    let closed = closed(&gateway, "closed");
    for directory in ["theirs", "mine", "deep/er"] {
        fs::create_dir_all(closed.join(directory)).unwrap();
    }
    give(&closed.join("mine"));
    fs::write(closed.join("file"), "").unwrap();
    for (link, target) in [("out", "/etc"), ("state", "../state"), ("loop", "loop"), ("dangling", "nowhere")]
    {
        symlink(target, closed.join(link)).unwrap();
    }
    let answer = async |name: &str| {
        let refusal = open(&caller, &closed.join(name)).await.expect_err(name);
        (refusal.code, refusal.reason, refusal.message.replace(&format!("closed/{name}"), "closed/NAME"))
    };
    let absent = answer("none").await;
    for name in ["theirs", "mine", "file", "out", "state", "loop", "dangling", "deep/er", "none/er", "file/x"]
    {
        assert_eq!(answer(name).await, absent, "{name} is told from what is not there");
    }
    // What the gateway's process has open, where it is, and what its root is are no names of the caller's.
    let pid = gateway.pid;
    let mut told = Vec::new();
    for place in ["root/etc", "cwd", "fd/3", "fd/4", "fd/5", "fd/9999"] {
        for process in ["self".to_owned(), pid.to_string(), "thread-self".to_owned()] {
            let path = PathBuf::from(format!("/proc/{process}/{place}"));
            let refusal = open(&caller, &path).await.expect_err("it is opened");
            assert!(!refusal.message.contains("closed to"), "{refusal:?}");
            told.push(refusal.message.replace(&path.display().to_string(), "PATH"));
        }
    }
    for message in &told {
        assert!(
            !message.contains("/tmp") && !message.contains("socket"),
            "a name of the gateway's: {message}"
        );
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_closed_directory_in_a_root_tells_a_session_nothing_either() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    fs::write(
        gateway.directory().join("policies/denied.toml"),
        "[[rule]]\nid = 'no-id'\ndecision = 'deny'\nargv = ['id', '**']\nreason = 'no'\n",
    )
    .unwrap();
    crate::support::eventually("the rule", || {
        gateway.log_tail().contains("policy.changed=true").then_some(())
    })
    .await;
    let session = Session::open_as(&gateway, CALLER).await;
    let closed = session.workspace.join("closed");
    fs::create_dir(&closed).unwrap();
    for (link, target) in [("out", "/etc"), ("in", ".."), ("program", "/usr/bin/id")] {
        symlink(target, closed.join(link)).unwrap();
    }
    fs::create_dir(closed.join("directory")).unwrap();
    fs::write(closed.join("script"), "#!/usr/bin/id\n").unwrap();
    fs::set_permissions(closed.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!outside("cd \"$1\"", &closed), "on the host it is closed");
    let in_directory = async |name: &str| {
        let path = closed.join(name);
        let refusal = session.command("true").cwd(&path).refusal().await;
        (
            refusal.code,
            refusal.reason.clone(),
            refusal.meta("rule").to_owned(),
            refusal.meta("errno").to_owned(),
        )
    };
    let absent = in_directory("none").await;
    for name in ["out", "in", "directory", "script"] {
        assert_eq!(in_directory(name).await, absent, "{name} is told from what is not there");
    }
    let program = async |name: &str| {
        let refusal = session.command(closed.join(name).to_str().unwrap()).refusal().await;
        (
            refusal.code,
            refusal.reason.clone(),
            refusal.meta("rule").to_owned(),
            refusal.meta("errno").to_owned(),
        )
    };
    let absent = program("none").await;
    for name in ["program", "script", "out", "directory"] {
        assert_eq!(program(name).await, absent, "{name} is told from what is not there");
    }
    assert_eq!(code(&session.command("true").finish().await.outcome), 0);
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_workspace_of_another_group_can_be_worked_in_and_only_with_its_members_rights() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    let member = gateway.caller_in_groups(CALLER, &[CALLER, GROUP]).await;
    let stranger = gateway.caller_as(CALLER).await;
    let script = "set -e; echo new > new; mkdir made; echo deep > made/deep; echo more >> theirs; mv new moved; \
                  stat -c %g moved made; id -G; cat for-group || echo refused";
    for (caller, is_member) in [(member, true), (stranger, false)] {
        let workspace = new_workspace(&gateway, Some(CALLER));
        chown(&workspace, Some(CALLER), Some(GROUP)).unwrap();
        fs::set_permissions(&workspace, fs::Permissions::from_mode(0o2755)).unwrap();
        // The owner's own file of that group, and another user's that only the group can read.
        for (file, owner, mode) in [("theirs", CALLER, 0o640), ("for-group", 0, 0o640)] {
            fs::write(workspace.join(file), "old\n").unwrap();
            chown(workspace.join(file), Some(owner), Some(GROUP)).unwrap();
            fs::set_permissions(workspace.join(file), fs::Permissions::from_mode(mode)).unwrap();
        }
        let session = Session::open_with(&gateway, caller, Some(CALLER), |request| {
            request.roots = vec![workspace.display().to_string()];
        })
        .await;
        let finished = session.sh(&format!("cd {}; {script}", workspace.display())).finish().await;
        let text = finished.text();
        assert_eq!(code(&finished.outcome), 0, "{text}");
        assert!(text.starts_with(&format!("{GROUP}\n{GROUP}\n")), "the directory gives its group: {text}");
        assert_eq!(text.contains("refused"), !is_member, "as the host's kernel has it: {text}");
        assert_eq!(
            text.lines().any(|line| line.split(' ').any(|id| id == GROUP.to_string()) && line.contains(' ')),
            is_member,
            "{text}"
        );
        let made = fs::metadata(workspace.join("made/deep")).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!((made.uid(), made.gid()), (CALLER, GROUP));
        assert_eq!(fs::read_to_string(workspace.join("theirs")).unwrap(), "old\nmore\n");
        session.close().await;
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_directory_of_another_group_in_a_workspace_can_be_worked_in_as_on_the_host() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let gateway = Gateway::start();
    let member = gateway.caller_in_groups(CALLER, &[CALLER, GROUP]).await;
    let stranger = gateway.caller_as(CALLER).await;
    for (caller, is_member) in [(member, true), (stranger, false)] {
        let workspace = new_workspace(&gateway, Some(CALLER));
        let shared = workspace.join("shared");
        fs::create_dir(&shared).unwrap();
        chown(&shared, Some(CALLER), Some(GROUP)).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o2755)).unwrap();
        for (file, owner, mode) in [("own", CALLER, 0o640), ("for-group", 0, 0o640)] {
            fs::write(shared.join(file), "old\n").unwrap();
            chown(shared.join(file), Some(owner), Some(GROUP)).unwrap();
            fs::set_permissions(shared.join(file), fs::Permissions::from_mode(mode)).unwrap();
        }
        let session = Session::open_with(&gateway, caller, Some(CALLER), |request| {
            request.roots = vec![workspace.display().to_string()];
        })
        .await;
        let script =
            "set -e; echo more >> own; mkdir made; echo new > made/new; cat for-group || echo refused";
        let finished = session.sh(&format!("cd {}; {script}", shared.display())).finish().await;
        assert_eq!(code(&finished.outcome), 0, "{}", finished.text());
        assert_eq!(finished.text().contains("refused"), !is_member, "{}", finished.text());
        assert_eq!(fs::read_to_string(shared.join("own")).unwrap(), "old\nmore\n");
        use std::os::unix::fs::MetadataExt;
        let made = fs::metadata(shared.join("made/new")).unwrap();
        assert_eq!((made.uid(), made.gid()), (CALLER, GROUP));
        session.close().await;
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn message_queues_work_and_end_at_a_bound_of_the_session() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    let used = session.attack("queues").args(["use"]).finish().await;
    assert_eq!(code(&used.outcome), 0, "{}", used.text());
    let filled = session.attack("queues").args(["fill"]).finish().await;
    let text = filled.text();
    let (count, errno) = text.trim().split_once(' ').expect("a number and an errno");
    assert!(count.parse::<u32>().unwrap() < 300, "{text}");
    assert!(["EMFILE", "ENOSPC"].contains(&errno), "{text}");
    // Another session has its own, and they are not the host's.
    let other = Session::open(&gateway).await;
    assert_eq!(code(&other.attack("queues").args(["use"]).finish().await.outcome), 0);
    let outside = crate::support::run_outside(&crate::support::Attack::compiled("queues"), &["use"]);
    assert_eq!(outside.0, Some(0), "the host's are not used up");
    other.close().await;
    session.close().await;
    gateway.stop();
}
