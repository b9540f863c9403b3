//! What becomes of questions, at times that the tests say.

use std::time::{Duration, SystemTime};

use super::*;
use crate::{
    approval::Wanted,
    policy::{AbsPath, Denial, PolicySet, Program, Request, Streams},
    session::SessionId,
};

const SOON: Duration = Duration::from_secs(60);

/// A question about `command`, of the policy's first generation.
fn wanted(uid: u32, command: &str) -> Wanted {
    let policy = PolicySet::parse(
        "p",
        "default_profile='a'\n[profile.a]\n[[rule]]\nid='all'\ndecision='ask'\nargv=['**']\n",
    )
    .unwrap();
    let principal = Principal { uid };
    let program = Program::Command { command: command.into(), args: vec![] };
    let root = AbsPath::parse("/work").unwrap();
    let request = Request {
        principal: principal.to_string(),
        labels: Arc::default(),
        roots: Arc::from([root.clone()]),
        session_env: Arc::from([]),
        program: program.clone(),
        env: vec![],
        cwd: root,
        profile: None,
        network: None,
        output_limit_bytes: None,
        streams: Streams::Merged,
        stdin: crate::policy::Stdin::Closed,
        overflow: crate::policy::Overflow::DropOldest,
        time_limit: None,
        idle_limit: None,
        kill_grace: None,
    };
    struct Nothing;
    impl policy::Views for Nothing {
        fn under<'a>(
            &'a self,
            _: &'a policy::profile::Profile,
        ) -> Box<dyn policy::command::program::Programs + 'a> {
            Box::new(policy::command::program::Nominal)
        }
    }
    let Err(Denial::NeedsApproval(question)) = policy::judge(&policy, &request, &Nothing, None) else {
        panic!("the rule asks")
    };
    Wanted {
        principal,
        session: SessionId::generate(),
        question: *question,
        program,
        cwd: "/work".into(),
        profile: "a".into(),
        env_names: vec![],
        request_id: None,
    }
}

fn answer(said: Said) -> Answer {
    let (approver, at) = (Principal { uid: 0 }, SystemTime::now());
    Answer { said, approver, on_behalf_of: String::new(), comment: String::new(), at }
}

fn terms() -> Terms {
    Terms { expiry: SOON, open_per_principal: 2, open: 3, ..Terms::default() }
}

fn post(table: &mut Table, wanted: Wanted, now: Instant) -> Result<ApprovalId, Full> {
    let asked = Asked::new(wanted, Asking::Posted);
    table.insert(asked, None, &terms(), now).map(|approval| approval.id())
}

#[test]
fn a_yes_is_found_by_its_request_only_and_once() {
    let (mut table, now, mine) = (Table::default(), Instant::now(), wanted(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let id = post(&mut table, mine, now).unwrap();
    assert!(table.redeem(Principal { uid: 1 }, digest, generation, now).is_none(), "nobody has answered");
    table.answer(id, answer(Said::Yes), &terms(), now).unwrap();
    assert_eq!(table.answer(id, answer(Said::No), &terms(), now).unwrap_err(), State::Approved);
    let other = wanted(1, "make").question.digest;
    for (uid, digest, generation) in [(2, digest, generation), (1, other, generation), (1, digest, 2)] {
        assert!(table.redeem(Principal { uid }, digest, generation, now).is_none());
    }
    let found = table.redeem(Principal { uid: 1 }, digest, generation, now);
    assert!(matches!(found, Some((Found::Approved(_), approval)) if approval.state == State::Used));
    assert!(table.redeem(Principal { uid: 1 }, digest, generation, now).is_none());
    assert_eq!(table.get(id).unwrap().state, State::Used);
}

#[test]
fn nothing_is_open_after_its_time_even_before_it_is_swept() {
    let (mut table, now) = (Table::default(), Instant::now());
    let late = now + SOON;
    let id = post(&mut table, wanted(1, "ls"), now).unwrap();
    assert_eq!(table.next_deadline(), Some(late));
    assert_eq!(table.answer(id, answer(Said::Yes), &terms(), late).unwrap_err(), State::Expired);
    let mine = wanted(1, "make");
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let granted = post(&mut table, mine, now).unwrap();
    table.answer(granted, answer(Said::Yes), &terms(), now).unwrap();
    assert!(table.redeem(Principal { uid: 1 }, digest, generation, late).is_none());
    assert!(table.take(granted, late).is_none());
    let states: Vec<State> = table.expire(late).iter().map(|approval| approval.state).collect();
    assert_eq!(states, [State::Expired, State::Expired]);
    assert_eq!((table.open().count(), table.over().count(), table.next_deadline()), (0, 2, None));
}

#[test]
fn a_question_that_a_call_waits_with_is_for_that_call_alone() {
    let (mut table, now, mine) = (Table::default(), Instant::now(), wanted(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let (tell, mut told) = oneshot::channel();
    let asked = Asked::new(mine, Asking::Waiting);
    let id = table.insert(asked, Some(tell), &terms(), now).unwrap().id();
    assert!(table.take(id, now).is_none());
    assert!(told.try_recv().is_err());
    assert!(table.posted(Principal { uid: 1 }, digest, generation, now).is_none());
    table.answer(id, answer(Said::Yes), &terms(), now).unwrap();
    assert!(told.try_recv().is_ok());
    assert!(table.posted(Principal { uid: 1 }, digest, generation, now).is_none());
    assert!(table.redeem(Principal { uid: 1 }, digest, generation, now).is_none());
    assert!(table.take(id, now).is_some());
    assert!(table.take(id, now).is_none());
    assert!(table.withdraw(id).is_none(), "what is used is not taken back");
}

#[test]
fn one_principal_cannot_fill_the_table_and_all_together_can() {
    let (mut table, now) = (Table::default(), Instant::now());
    for command in ["a", "b"] {
        post(&mut table, wanted(1, command), now).unwrap();
    }
    assert_eq!(post(&mut table, wanted(1, "c"), now).unwrap_err(), Full::Principal(2));
    let last = post(&mut table, wanted(2, "a"), now).unwrap();
    assert_eq!(post(&mut table, wanted(2, "b"), now).unwrap_err(), Full::Gateway(3));
    table.withdraw(last);
    post(&mut table, wanted(2, "b"), now).unwrap();
}

#[test]
fn a_newer_policy_ends_all_that_was_asked_under_an_older_one() {
    let (mut table, now) = (Table::default(), Instant::now());
    post(&mut table, wanted(1, "a"), now).unwrap();
    assert!(table.supersede(1).is_empty(), "it is of this one");
    assert_eq!(table.supersede(2)[0].state, State::Superseded);
    for _ in 0..2 * HISTORY {
        let id = post(&mut table, wanted_again(), now).unwrap();
        table.withdraw(id);
    }
    assert_eq!(table.over().count(), HISTORY);
}

#[test]
fn a_posted_question_is_found_again_by_its_request_while_nobody_has_answered() {
    let (mut table, now, mine) = (Table::default(), Instant::now(), wanted(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let id = post(&mut table, mine, now).unwrap();
    let found = |table: &Table, uid: u32, digest, generation, at| {
        table.posted(Principal { uid }, digest, generation, at).map(|approval| approval.id())
    };
    assert_eq!(found(&table, 1, digest, generation, now), Some(id));
    let other = wanted(1, "make").question.digest;
    assert_eq!(found(&table, 2, digest, generation, now), None);
    assert_eq!(found(&table, 1, other, generation, now), None);
    assert_eq!(found(&table, 1, digest, generation + 1, now), None);
    assert_eq!(found(&table, 1, digest, generation, now + SOON), None);
    table.answer(id, answer(Said::Yes), &terms(), now).unwrap();
    assert_eq!(found(&table, 1, digest, generation, now), None);
}

#[test]
fn a_no_is_kept_for_who_posted_the_question_and_is_over_for_who_waits() {
    let (mut table, now, mine) = (Table::default(), Instant::now(), wanted(1, "ls"));
    let (digest, generation) = (mine.question.digest, mine.question.generation);
    let posted = post(&mut table, mine, now).unwrap();
    let asked = Asked::new(wanted(1, "make"), Asking::Waiting);
    let waiting = table.insert(asked, None, &terms(), now).unwrap().id();
    for id in [posted, waiting] {
        table.answer(id, answer(Said::No), &terms(), now).unwrap();
        assert!(table.take(id, now).is_none());
    }
    let open: Vec<ApprovalId> = table.open().map(Approval::id).collect();
    assert_eq!(open, [posted]);
    let found = table.redeem(Principal { uid: 1 }, digest, generation, now);
    assert!(matches!(found, Some((Found::Denied(_), approval)) if approval.state == State::Denied));
    for id in [posted, waiting] {
        assert_eq!(table.get(id).map(|approval| (approval.id(), approval.state)), Some((id, State::Denied)));
    }
}

#[test]
fn what_ends_a_denied_question_does_not_make_it_less_denied() {
    let (mut table, now) = (Table::default(), Instant::now());
    let id = post(&mut table, wanted(1, "ls"), now).unwrap();
    table.answer(id, answer(Said::No), &terms(), now).unwrap();
    assert_eq!(table.expire(now + SOON)[0].state, State::Denied);
    assert_eq!(table.get(id).unwrap().state, State::Denied);
}

fn wanted_again() -> Wanted {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Wanted> = OnceLock::new();
    WANTED.get_or_init(|| wanted(1, "again")).clone()
}
