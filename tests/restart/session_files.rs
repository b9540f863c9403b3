//! `/tmp`, the home and the id of a session are there after its gateway, for profiles that had no sandbox before, too.

use std::sync::Arc;

use crate::support::{Finished, Gateway, Options, Session, Terminal, code, is_root, skip};

/// A user that nobody is.
const USER: u32 = 54_373;

fn prefer_limits(policy: &mut toml::Table) {
    for profile in ["workspace", "offline"] {
        policy["profile"][profile]["limits"]["requirement"] = "prefer".into();
    }
}

async fn under(session: &Session, profile: &str, script: &str) -> Finished {
    session.sh(script).with(|request| request.profile = profile.into()).finish().await
}

fn host_id(terminal: &Terminal) -> u32 {
    terminal.info.receipt.as_ref().expect("a receipt").host_uid
}

async fn must_survive(gateway: &Arc<Gateway>, mut session: Session, user: Option<u32>) {
    let waits = "echo before > /tmp/file; echo before > ~/file; echo ready; exec sleep 1000";
    let waiting = session.sh(waits).create().await;
    waiting.until("ready").await;
    for kill in 0..2 {
        gateway.crash();
        gateway.start_again();
        let caller = match user {
            Some(user) => gateway.caller_as(user).await,
            None => gateway.caller().await,
        };
        session.go_on(&caller);
        for profile in ["offline", "workspace"] {
            let found = under(&session, profile, "cat /tmp/file ~/file; echo $$ >> /tmp/seen").await;
            let expected = (0, "before\nbefore\n".to_owned());
            assert_eq!((code(&found.outcome), found.text()), expected, "{profile}, kill {kill}");
        }
    }
    let seen = under(&session, "workspace", "wc -l < /tmp/seen").await;
    assert_eq!(seen.text(), "4\n");
    let other = session.sh("exec sleep 1000").with(|request| request.profile = "offline".into());
    let other = other.create().await;
    assert_eq!(host_id(&waiting), host_id(&other), "one id on the host");
    session.close().await;
}

#[tokio::test]
async fn a_sessions_tmp_home_and_id_survive_kills_of_the_gateway() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    must_survive(&gateway, session, None).await;
    gateway.stop();
}

#[tokio::test]
async fn an_ordinary_users_sessions_tmp_and_home_survive_kills_of_the_gateway() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    for delegated in [true, false] {
        let policy: Option<fn(&mut toml::Table)> = Some(prefer_limits);
        let gateway =
            Gateway::start_with(Options { user: Some(USER), delegated, policy, ..Options::default() });
        let session = Session::open_as(&gateway, USER).await;
        must_survive(&gateway, session, Some(USER)).await;
        gateway.stop();
    }
}
