//! A shell that is refused goes on along its search path: that is one refusal, or one question, and is counted.

use std::{fs, os::unix::fs::symlink};

use provost::proto::v1::{ApprovalDecision, ApprovalState, ExecDenialCause};
use serde_json::Value;

use crate::{
    gate::{
        questions::Approver,
        told::{RULE, gateway, records, script},
    },
    support::{Session, code, eventually},
};

/// `touch` in three directories, of which execvp(3) tries one after the other as long as it is told EACCES.
fn three_places(session: &Session, argument: &str) -> crate::support::Command {
    let real = fs::canonicalize("/usr/bin/touch").expect("there is a touch");
    for place in ["one", "two", "three"] {
        let directory = session.workspace.join(place);
        fs::create_dir(&directory).expect("a directory can be made");
        symlink(&real, directory.join("touch")).expect("a link can be made");
    }
    let path = "PATH=$PWD/one:$PWD/two:$PWD/three";
    script(session, &format!("/usr/bin/env \"{path}\" touch {argument}; echo ended $?"))
}

/// The report of the one refusal that was tried again, when the journal has these counts of it.
async fn tried_again(gateway: &crate::support::Gateway, times: u64) -> u64 {
    let counted = || {
        let again = records(gateway, "exec_denied_again");
        let number = |record: &Value, name: &str| record[name].as_u64().expect("it is a number");
        let of = number(again.first()?, "denied_in");
        assert!(again.iter().all(|one| number(one, "denied_in") == of), "{again:?}");
        (again.iter().map(|one| number(one, "count")).sum::<u64>() == times).then_some(of)
    };
    eventually("the count", counted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_refused_in_each_directory_of_a_path_is_one_refusal_with_a_count() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let done = three_places(&session, "published").finish().await;
    assert!(done.text().contains("ended 126"), "{}", done.text());
    assert!(!session.workspace.join("published").exists());
    let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
    assert!(denial.program.ends_with("/one/touch"), "{denial:?}");
    assert_eq!((denial.cause(), denial.rule.as_str()), (ExecDenialCause::Rule, RULE));
    let [denied] = &records(&gateway, "exec_denied")[..] else { panic!("there is one record") };
    assert_eq!(Some(tried_again(&gateway, 2).await), denied["report"].as_u64());

    // Another process that does the same is another refusal.
    let done = session.command("sh").args(["script"]).finish().await;
    assert_eq!(done.outcome.exec_denials.len(), 1);
    assert_eq!(records(&gateway, "exec_denied").len(), 2);
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_no_to_a_name_holds_in_the_further_directories_of_a_path() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let mut approver = Approver::of(&session.caller);
    let terminal = three_places(&session, "asked").create().await;
    let question = approver.question(ApprovalState::Pending).await;
    approver.answer(&question, ApprovalDecision::Deny).await;
    let outcome = terminal.wait().await;
    assert_eq!(code(&outcome), 0);
    assert!(!session.workspace.join("asked").exists());
    let [denial] = &outcome.exec_denials[..] else { panic!("{outcome:?}") };
    assert_eq!(denial.cause(), ExecDenialCause::AskRefused);
    assert_eq!(records(&gateway, "exec_asked").len(), 1);
    tried_again(&gateway, 2).await;
    session.close().await;
    gateway.stop();
}
