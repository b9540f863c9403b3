//! Tests of one session: since when it is unused, how it closes, and what it keeps of its directories.

use std::{collections::HashSet, fs, path::Path};

use futures_util::FutureExt as _;

use super::*;
use crate::{
    proto::state::{RootRecord, SessionRecord},
    sandbox::roots::governing::{GoverningKind, GoverningPath},
    session::store,
};

/// A session of this process's user with that root.
fn session(root: &Path) -> Arc<Session> {
    let (state, id) = (tempfile::tempdir().unwrap(), SessionId::generate().to_string());
    let path = root.to_str().unwrap().to_owned();
    let record = SessionRecord {
        id: id.clone(),
        principal_uid: nix::unistd::geteuid().as_raw(),
        cwd: path.clone(),
        roots: vec![RootRecord { requested_path: path.clone(), path, ..RootRecord::default() }],
        ..SessionRecord::default()
    };
    store::write(state.path(), &record).unwrap();
    Arc::new(store::read(state.path(), &id, &Arc::default(), &mut HashSet::new()).unwrap())
}

#[test]
fn a_session_is_unused_from_the_first_look_at_which_nothing_ran() {
    let place = tempfile::tempdir().unwrap();
    let session = session(&place.path().canonicalize().unwrap());
    let since = || *session.unused_since.0.lock().unwrap();
    session.unused_for(0);
    let first = since();
    assert!(first.is_some());
    session.unused_for(0);
    assert_eq!(since(), first);
    let some_time = Duration::from_millis(1);
    *session.unused_since.0.lock().unwrap() = Instant::now().checked_sub(some_time);
    assert!(session.unused_for(0) >= some_time);
    assert_eq!((session.unused_for(1), since()), (Duration::ZERO, None), "something runs");
    session.unused_for(0);
    session.unused_since.reset();
    assert_eq!(since(), None, "it is about to be used");
}

#[tokio::test]
async fn one_that_closes_lets_nobody_in_and_waits_for_those_inside() {
    let place = tempfile::tempdir().unwrap();
    let session = session(&place.path().canonicalize().unwrap());
    let guard = session.enter().unwrap();
    assert!(!session.is_closing());
    let mut closing = Box::pin(session.begin_close());
    assert_eq!(closing.as_mut().now_or_never(), None, "one is inside");
    assert!(session.is_closing() && session.enter().is_none());
    drop(guard);
    assert_eq!(closing.await, Closing::Yours);
    assert_eq!(session.begin_close().await, Closing::AlreadyUnderWay);
    assert!(session.wait_closing().now_or_never().is_some());
    assert!(session.wait_closed().now_or_never().is_none(), "something is left");
    session.mark_closed();
    assert!(session.wait_closed().now_or_never().is_some());
}

#[test]
fn its_open_roots_are_looked_at_again_when_other_files_govern() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let session = session(&root);
    assert_eq!(session.open_roots().iter().map(|root| &root.path).collect::<Vec<_>>(), [&root]);
    assert!(session.check_roots(&Governing::default()).is_ok());
    let secret = root.join("secret");
    fs::write(&secret, "").unwrap();
    let governing = Governing::default();
    governing.replace(vec![GoverningPath { kind: GoverningKind::Secret, path: secret }]);
    let refused = session.check_roots(&governing);
    assert!(matches!(&refused, Err(GoverningError::Reached { path, .. }) if *path == root), "{refused:?}");
}

#[test]
fn toolchains_are_looked_for_once() {
    let place = tempfile::tempdir().unwrap();
    let session = session(&place.path().canonicalize().unwrap());
    assert!(session.known_toolchains().is_none());
    let found: *const Toolchains = session.toolchains(&Governing::default());
    assert!(session.known_toolchains().is_some_and(|known| std::ptr::eq(known, found)));
}
