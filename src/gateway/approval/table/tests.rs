//! Tests of the table of questions, at times that each test chooses.

use std::time::{Duration, SystemTime};

use super::*;
use crate::{
    approval::RequestedAction,
    policy::{AbsPath, CommandSpec, Denial, PolicySet, Request},
    session::SessionId,
};

const SOON: Duration = Duration::from_secs(60);

/// A question about `command`, of the policy's first generation.
fn action(uid: u32, command: &str) -> RequestedAction {
    let policy = PolicySet::parse(
        "p",
        "default_profile='a'\n[profile.a]\n[[rule]]\nid='all'\ndecision='ask'\nargv=['**']\n",
    )
    .unwrap();
    let principal = Principal { uid };
    let program = CommandSpec::Argv { command: command.into(), args: vec![] };
    let root = AbsPath::parse("/work").unwrap();
    let request = Request::plain(principal.to_string(), Arc::from([root.clone()]), root, program.clone());
    struct Nothing;
    impl policy::ProfileResolvers for Nothing {
        fn for_profile<'a>(
            &'a self,
            _: &'a policy::profile::Profile,
        ) -> Box<dyn policy::command::program::ProgramResolver + 'a> {
            Box::new(policy::command::program::NominalResolver)
        }
    }
    let Err(Denial::NeedsApproval(question)) = policy.evaluate(&request, &Nothing).decide(None) else {
        panic!("the rule asks")
    };
    RequestedAction {
        principal,
        session: SessionId::generate(),
        question: *question,
        program,
        cwd: "/work".into(),
        profile: "a".into(),
        env_names: vec![],
        request_id: None,
        within: None,
    }
}

fn answer(said: ApproverDecision) -> Answer {
    let (approver, at) = (Principal { uid: 0 }, SystemTime::now());
    Answer { decision: said, approver, on_behalf_of: String::new(), comment: String::new(), at }
}

fn config() -> ApprovalConfig {
    ApprovalConfig { expiry: SOON, open_per_principal: 2, open: 3, ..ApprovalConfig::default() }
}

fn post(
    table: &mut ApprovalTable,
    wanted: RequestedAction,
    now: Instant,
) -> Result<ApprovalId, ApprovalLimitReached> {
    let asked = ApprovalRequest::new(wanted, RequestMode::Deferred);
    table.insert(asked, None, &config(), now).map(|approval| approval.id())
}

#[test]
fn an_approval_is_found_by_its_request_only_and_once() {
    let (mut table, now, mine) = (ApprovalTable::default(), Instant::now(), action(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let id = post(&mut table, mine, now).unwrap();
    assert!(
        table.take_answer(Principal { uid: 1 }, digest, generation, now).is_none(),
        "nobody has answered"
    );
    let answered = answer(ApproverDecision::Approve);
    let expires_at = answered.at + SOON;
    assert_eq!(table.answer(id, answered, &config(), now).unwrap().expires_at, expires_at);
    assert_eq!(
        table.answer(id, answer(ApproverDecision::Deny), &config(), now).unwrap_err(),
        ApprovalStatus::Approved
    );
    let other = action(1, "make").question.digest;
    for (uid, digest, generation) in [(2, digest, generation), (1, other, generation), (1, digest, 2)] {
        assert!(table.take_answer(Principal { uid }, digest, generation, now).is_none());
    }
    let found = table.take_answer(Principal { uid: 1 }, digest, generation, now);
    assert!(
        matches!(found, Some((StoredAnswer::Approved(_), approval)) if approval.state == ApprovalStatus::Used)
    );
    assert!(table.take_answer(Principal { uid: 1 }, digest, generation, now).is_none());
    assert_eq!(table.get(id).unwrap().state, ApprovalStatus::Used);
}

#[test]
fn nothing_is_open_after_its_time_even_before_it_is_swept() {
    let (mut table, now) = (ApprovalTable::default(), Instant::now());
    let late = now + SOON;
    let id = post(&mut table, action(1, "ls"), now).unwrap();
    assert_eq!(table.next_deadline(), Some(late));
    assert_eq!(
        table.answer(id, answer(ApproverDecision::Approve), &config(), late).unwrap_err(),
        ApprovalStatus::Expired
    );
    let mine = action(1, "make");
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let granted = post(&mut table, mine, now).unwrap();
    table.answer(granted, answer(ApproverDecision::Approve), &config(), now).unwrap();
    assert!(table.take_answer(Principal { uid: 1 }, digest, generation, late).is_none());
    assert!(table.take_approved(granted, late).is_none());
    let states: Vec<ApprovalStatus> = table.expire(late).iter().map(|approval| approval.state).collect();
    assert_eq!(states, [ApprovalStatus::Expired, ApprovalStatus::Expired]);
    assert_eq!((table.open().count(), table.closed().count(), table.next_deadline()), (0, 2, None));
}

#[test]
fn an_approval_that_a_call_waits_for_is_for_that_call_alone() {
    let (mut table, now, mine) = (ApprovalTable::default(), Instant::now(), action(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let (sender, mut receiver) = oneshot::channel();
    let asked = ApprovalRequest::new(mine, RequestMode::Waiting);
    let id = table.insert(asked, Some(sender), &config(), now).unwrap().id();
    assert!(table.take_approved(id, now).is_none());
    assert!(receiver.try_recv().is_err());
    assert!(table.find_deferred(Principal { uid: 1 }, digest, generation, now).is_none());
    table.answer(id, answer(ApproverDecision::Approve), &config(), now).unwrap();
    assert!(receiver.try_recv().is_ok());
    assert!(table.find_deferred(Principal { uid: 1 }, digest, generation, now).is_none());
    assert!(table.take_answer(Principal { uid: 1 }, digest, generation, now).is_none());
    assert!(table.take_approved(id, now).is_some());
    assert!(table.take_approved(id, now).is_none());
    assert!(table.withdraw(id).is_none(), "what is used is not withdrawn");
}

#[test]
fn one_principal_cannot_fill_the_table_and_all_together_can() {
    let (mut table, now) = (ApprovalTable::default(), Instant::now());
    for command in ["a", "b"] {
        post(&mut table, action(1, command), now).unwrap();
    }
    assert_eq!(post(&mut table, action(1, "c"), now).unwrap_err(), ApprovalLimitReached::Principal(2));
    let last = post(&mut table, action(2, "a"), now).unwrap();
    assert_eq!(post(&mut table, action(2, "b"), now).unwrap_err(), ApprovalLimitReached::Gateway(3));
    table.withdraw(last);
    post(&mut table, action(2, "b"), now).unwrap();
}

#[test]
fn a_newer_policy_ends_all_that_was_asked_under_an_older_one() {
    let (mut table, now) = (ApprovalTable::default(), Instant::now());
    post(&mut table, action(1, "a"), now).unwrap();
    assert!(table.supersede(1).is_empty(), "it is of this one");
    assert_eq!(table.supersede(2)[0].state, ApprovalStatus::Superseded);
    for _ in 0..2 * CLOSED_MAX {
        let id = post(&mut table, wanted_again(), now).unwrap();
        table.withdraw(id);
    }
    assert_eq!(table.closed().count(), CLOSED_MAX);
}

#[test]
fn a_deferred_request_is_found_again_while_nobody_has_answered() {
    let (mut table, now, mine) = (ApprovalTable::default(), Instant::now(), action(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let id = post(&mut table, mine, now).unwrap();
    let found = |table: &ApprovalTable, uid: u32, digest, generation, at| {
        table.find_deferred(Principal { uid }, digest, generation, at).map(|approval| approval.id())
    };
    assert_eq!(found(&table, 1, digest, generation, now), Some(id));
    let other = action(1, "make").question.digest;
    assert_eq!(found(&table, 2, digest, generation, now), None);
    assert_eq!(found(&table, 1, other, generation, now), None);
    assert_eq!(found(&table, 1, digest, generation + 1, now), None);
    assert_eq!(found(&table, 1, digest, generation, now + SOON), None);
    table.answer(id, answer(ApproverDecision::Approve), &config(), now).unwrap();
    assert_eq!(found(&table, 1, digest, generation, now), None);
}

#[test]
fn a_denial_is_kept_for_a_deferred_request_and_closed_for_a_waiting_one() {
    let (mut table, now, mine) = (ApprovalTable::default(), Instant::now(), action(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let posted = post(&mut table, mine, now).unwrap();
    let asked = ApprovalRequest::new(action(1, "make"), RequestMode::Waiting);
    let waiting = table.insert(asked, None, &config(), now).unwrap().id();
    for id in [posted, waiting] {
        table.answer(id, answer(ApproverDecision::Deny), &config(), now).unwrap();
        assert!(table.take_approved(id, now).is_none());
    }
    let open: Vec<ApprovalId> = table.open().map(Approval::id).collect();
    assert_eq!(open, [posted]);
    let found = table.take_answer(Principal { uid: 1 }, digest, generation, now);
    assert!(
        matches!(found, Some((StoredAnswer::Denied(_), approval)) if approval.state == ApprovalStatus::Denied)
    );
    for id in [posted, waiting] {
        assert_eq!(
            table.get(id).map(|approval| (approval.id(), approval.state)),
            Some((id, ApprovalStatus::Denied))
        );
    }
}

#[test]
fn what_ends_a_denied_question_does_not_make_it_less_denied() {
    let (mut table, now) = (ApprovalTable::default(), Instant::now());
    let id = post(&mut table, action(1, "ls"), now).unwrap();
    table.answer(id, answer(ApproverDecision::Deny), &config(), now).unwrap();
    assert_eq!(table.expire(now + SOON)[0].state, ApprovalStatus::Denied);
    assert_eq!(table.get(id).unwrap().state, ApprovalStatus::Denied);
}

fn wanted_again() -> RequestedAction {
    use std::sync::OnceLock;
    static WANTED: OnceLock<RequestedAction> = OnceLock::new();
    WANTED.get_or_init(|| action(1, "again")).clone()
}
