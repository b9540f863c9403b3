//! Tests of the table of sessions, with sessions on directories of the test's own.

use std::path::Path;

use futures_util::FutureExt;

use super::*;
use crate::{
    policy::AbsPath,
    session::{DescriptorQuotaReached, Lifetime, WorkspaceExtent},
    sys::rights::Rights,
};

fn peer() -> Peer {
    let Rights { uid, gid, groups } = Rights::own();
    Peer { principal: Principal { uid }, gid, groups, process: None, given_input: std::sync::Weak::new() }
}

fn new_session(roots: &[&Path]) -> NewSession {
    NewSession {
        roots: roots.iter().map(|root| AbsPath::parse(root.to_str().unwrap()).unwrap()).collect(),
        read_only_roots: Vec::new(),
        extent: WorkspaceExtent::Named,
        cwd: None,
        env: Vec::new(),
        labels: BTreeMap::new(),
        front_end: String::new(),
        profile: None,
        network: None,
        ssh_agent: None,
        lifetime: Lifetime::Explicit,
        owner_process: None,
        name: None,
        request_id: None,
    }
}

/// A table of a gateway of this process's user, which may open so many descriptors.
fn table(state: &Path, persistence: Persistence, descriptors: u64) -> Sessions {
    let quota = DescriptorQuota::new(peer().principal.uid, descriptors);
    Sessions::new(state.to_owned(), Arc::default(), persistence, 10, Arc::new(Pool::new(2, 2)), quota)
}

async fn open(sessions: &Sessions, new: NewSession) -> Result<Opened, OpenError> {
    sessions.open(&Arc::new(PolicySet::compiled_in()), &peer(), new).await
}

fn is_new(opened: Result<Opened, OpenError>) -> Arc<Session> {
    match opened {
        Ok(Opened::New(session)) => session,
        other => panic!("no new session: {other:?}"),
    }
}

#[tokio::test]
async fn a_request_that_comes_again_is_answered_with_its_session_until_that_is_removed() {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let sessions = table(state.path(), Persistence::InFiles, 1_000);
    let asked = || NewSession { request_id: Some("once".into()), ..new_session(&[&root]) };
    let first = is_new(open(&sessions, asked()).await);
    assert_eq!(store::names(state.path()).unwrap().len(), 1);
    // Nothing is looked at any more.
    std::fs::remove_dir(&root).unwrap();
    let again = open(&sessions, asked()).await;
    assert!(matches!(&again, Ok(Opened::Existing(one)) if one.id == first.id), "{again:?}");

    sessions.remove(&first);
    assert!(store::names(state.path()).unwrap().is_empty());
    assert!(sessions.find(first.principal, &first.id.to_string()).is_none());
    std::fs::create_dir(&root).unwrap();
    assert_ne!(is_new(open(&sessions, asked()).await).id, first.id);
}

#[tokio::test]
async fn a_session_takes_a_descriptor_for_each_root_and_those_of_its_own() {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = tempfile::tempdir().unwrap();
    // The gateway's own user may hold half of them.
    let sessions = table(state.path(), Persistence::InMemory, 2 * (SESSION_DESCRIPTORS + 1));
    let refused = open(&sessions, new_session(&[place.path(), other.path()])).await;
    let reached = DescriptorQuotaReached(SESSION_DESCRIPTORS + 1);
    assert!(matches!(&refused, Err(OpenError::Descriptors(max)) if *max == reached), "{refused:?}");
    let opened = is_new(open(&sessions, new_session(&[place.path()])).await);
    assert_eq!(sessions.descriptors.reserve(opened.principal, 1).unwrap_err(), reached, "all are taken");
}

#[tokio::test]
async fn requests_of_a_principal_take_turns_and_nothing_is_remembered_of_turns_that_are_over() {
    let state = tempfile::tempdir().unwrap();
    let sessions = table(state.path(), Persistence::InMemory, 1_000);
    let [one, other] = [1, 2].map(|uid| Principal { uid });
    let turn = sessions.creation_lock(one).await;
    assert!(sessions.creation_lock(one).now_or_never().is_none());
    assert!(sessions.creation_lock(other).now_or_never().is_some(), "another principal waits for nobody");
    assert!(sessions.creation_lock(one).now_or_never().is_none(), "the turn is not over");
    drop(turn);
    drop(sessions.creation_lock(one).await);
    drop(sessions.creation_lock(other).await);
    assert_eq!(sessions.creation_locks.lock().unwrap().keys().collect::<Vec<_>>(), [&other]);
}
