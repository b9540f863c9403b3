//! What a person has approved with a request is one file with its arguments in one directory, and holds within that request.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, sync::Arc};

use provost::proto::v1::{ApprovalDecision, ApprovalState, ExecDenialCause};

use crate::{
    gate::{questions::Approver, told::records},
    support::{Gateway, Session, add_rule, code, eventually, in_session, skip, within},
};

fn rules(policy: &mut toml::Table) {
    add_rule(policy, "id = 'release'\ndecision = 'ask'\nargv = ['release.sh', '**']");
    add_rule(
        policy,
        "id = 'staged'\ndecision = 'ask'\nargv = ['staged.sh', '**']\nwhen = { env = { STAGE = '*' } }",
    );
    add_rule(
        policy,
        "id = 'not-in-prod'\ndecision = 'deny'\nargv = ['split', '**']\nwhen = { cwd = ['*/prod'] }",
    );
}

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory can be made");
    fs::write(path, text).expect("a file can be made");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it can be executable");
}

/// What the programs that rules ask about have written.
fn released(session: &Session) -> String {
    fs::read_to_string(session.workspace.join("released")).unwrap_or_default()
}

/// Runs a line, approves it, and then refuses everything that is asked about within it: the commands of these questions.
async fn approved(gateway: &Arc<Gateway>, session: &Session, line: &str, questions: usize) -> Vec<String> {
    let mut approver = Approver::of(&session.caller);
    let waiting = tokio::spawn(session.sh(line).finish());
    let question = approver.question(ApprovalState::Pending).await;
    assert!(question.exec.is_none(), "it is about the request: {question:?}");
    approver.answer(&question, ApprovalDecision::Approve).await;
    let mut asked = Vec::new();
    while asked.len() < questions {
        let question = approver.question(ApprovalState::Pending).await;
        assert!(question.exec.is_some(), "{question:?}");
        asked.push(question.matched_command.clone());
        approver.answer(&question, ApprovalDecision::Deny).await;
    }
    let done = within("the end of it", waiting).await.expect("it is not cancelled");
    assert_eq!(records(gateway, "exec_asked").len(), questions, "{}", done.text());
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_program_runs_within_its_request_as_often_as_it_likes() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        executable(&session.workspace.join("a/release.sh"), "#!/bin/sh\necho \"a $*\" >>../released\n");
        executable(
            &session.workspace.join("again"),
            "#!/bin/sh\nfor i in 1 2 3; do ./release.sh prod; done\n",
        );
        let line = "cd a && ./release.sh prod && ../again && env ./release.sh prod";
        assert_eq!(approved(&gateway, session, line, 0).await, [""; 0]);
        assert_eq!(released(session), "a prod\n".repeat(5));
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_for_one_file_in_one_directory_as_it_was() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        for place in ["a", "b"] {
            let text = format!("#!/bin/sh\necho \"{place} $*\" >>\"$TOP/released\"\n");
            executable(&session.workspace.join(place).join("release.sh"), &text);
        }
        // Nobody reads it before it runs. Each of these would be the approved command by its words.
        let script = "\
            ./b/release.sh prod\n\
            (cd b && ./release.sh prod)\n\
            (cd b && ../a/release.sh prod)\n\
            mv a c && mv b a && ./a/release.sh prod\n\
            mv a b && mv c a && echo 'echo more' >>a/release.sh && ./a/release.sh prod\n";
        executable(&session.workspace.join("inner"), script);
        let line = "export TOP=$PWD; ./a/release.sh prod && sh inner";
        let asked = approved(&gateway, session, line, 5).await;
        assert!(asked.iter().all(|command| command.ends_with("release.sh prod")), "{asked:?}");
        assert_eq!(released(session), "a prod\n");
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_for_the_variables_that_its_rule_reads() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        executable(&session.workspace.join("staged.sh"), "#!/bin/sh\necho \"$STAGE\" >>released\n");
        executable(&session.workspace.join("inner"), "./staged.sh\nSTAGE=prod ./staged.sh\n");
        let mut approver = Approver::of(&session.caller);
        let line = session.sh("./staged.sh && sh inner").env("STAGE", "dev");
        let waiting = tokio::spawn(line.finish());
        let question = approver.question(ApprovalState::Pending).await;
        approver.answer(&question, ApprovalDecision::Approve).await;
        let within_it = approver.question(ApprovalState::Pending).await;
        assert!(within_it.exec.is_some(), "{within_it:?}");
        approver.answer(&within_it, ApprovalDecision::Deny).await;
        within("the end of it", waiting).await.expect("it is not cancelled");
        assert_eq!(released(session), "dev\ndev\n");
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_for_the_variables_that_decide_which_code_runs() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        executable(&session.workspace.join("a/release.sh"), "#!/bin/bash\ndate >>released\n");
        executable(&session.workspace.join("b/date"), "#!/bin/sh\necho other\n");
        fs::write(session.workspace.join("b/env.sh"), "echo other >>released\n").expect("a file can be made");
        // Nobody reads it before it runs. The first three change nothing that decides what runs.
        let script = "\
            for i in 1 2; do N=$i DEBUG=1 OLDPWD=/ ./a/release.sh prod; done\n\
            (cd b; cd ..; ./a/release.sh prod)\n\
            PATH=$PWD/b:$PATH ./a/release.sh prod\n\
            BASH_ENV=b/env.sh ./a/release.sh prod\n\
            PYTHONPATH=b ./a/release.sh prod\n\
            env -u PATH ./a/release.sh prod\n";
        executable(&session.workspace.join("inner"), script);
        let asked = approved(&gateway, session, "./a/release.sh prod && sh inner", 4).await;
        assert_eq!(asked.len(), 4);
        assert!(!released(session).contains("other"));
        assert_eq!(released(session).lines().count(), 4);
    })
    .await;
    gateway.stop();
}

/// Executes `split` in `dev`; a process that shares its working directory takes it to `prod` while it waits for its input. It makes
/// its file when it has read something, and no earlier.
const SHARED: &str = "\
import ctypes, os, platform
os.mkfifo('dev/in')
os.chdir('dev')
clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
CLONE_FS, SIGCHLD = 0x200, 17
if ctypes.CDLL(None).syscall(clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0) == 0:
    # It opens when the other one has opened it.
    to = os.open('in', os.O_WRONLY)
    os.chdir('../prod')
    os.write(to, b'x')
    os._exit(0)
os.execvp('split', ['split', 'in', 'made'])
";

/// It has shared its working directory with a process that is gone: as a leak checker's tracer.
const SHARED_BEFORE: &str = "\
import ctypes, os, platform
clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
child = ctypes.CDLL(None).syscall(clone, 0x200 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
os.execvp('echo', ['echo', 'ran'])
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_shares_its_directory_with_another_process_is_not_executed() {
    if Command::new("python3").arg("-V").output().is_err() {
        return skip("there is no python3");
    }
    let attack = |directory: &Path| {
        fs::write(directory.join("shared.py"), SHARED).expect("a file can be made");
        for place in ["dev", "prod"] {
            fs::create_dir(directory.join(place)).expect("a directory can be made");
        }
    };
    let outside = tempfile::tempdir().expect("a directory can be made");
    attack(outside.path());
    let status = Command::new("python3").arg("shared.py").current_dir(&outside).status();
    assert!(status.expect("it starts").success());
    assert!(outside.path().join("prod/madeaa").exists(), "the attack works");

    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        attack(&session.workspace);
        let done = session.command("python3").args(["shared.py"]).finish().await;
        assert!(!session.workspace.join("prod/madeaa").exists());
        let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
        assert_eq!(denial.cause(), ExecDenialCause::Changed, "{denial:?}");
        assert!(denial.reason.contains("CLONE_FS"), "{denial:?}");
        // In the same sandbox others go on, with threads and children of their own.
        fs::write(session.workspace.join("before.py"), SHARED_BEFORE).expect("a file can be made");
        let line =
            "python3 before.py && python3 -c 'import threading as t; x = t.Thread(); x.start(); x.join()'";
        let done = session.sh(line).finish().await;
        assert_eq!((code(&done.outcome), done.text().as_str()), (0, "ran\n"));
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_when_a_person_is_asked_is_asked_about_again() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        executable(&session.workspace.join("late"), "cp /bin/true release.sh; ./release.sh\n");
        // The file is not there when the person is asked.
        assert_eq!(approved(&gateway, session, "sh late || ./release.sh", 2).await.len(), 2);
        eventually("the file", || session.workspace.join("release.sh").exists().then_some(())).await;
    })
    .await;
    gateway.stop();
}
