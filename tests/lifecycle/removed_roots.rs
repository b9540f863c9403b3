//! A session whose directory was removed or replaced says so, and runs nothing elsewhere.

use std::fs;

use tonic::Code;

use crate::support::{Gateway, Options, Session, is_root, skip};

/// A user that nobody is.
const USER: u32 = 54_373;

fn without_limits(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

async fn must_be_said(options: Options) {
    let user = options.user;
    let gateway = Gateway::start_with(options);
    let session = match user {
        Some(user) => Session::open_as(&gateway, user).await,
        None => Session::open(&gateway).await,
    };
    fs::remove_dir_all(&session.workspace).expect("it is there");
    let refusal = session.sh("echo ran").refusal().await;
    assert_eq!(
        (refusal.code, refusal.reason.as_str()),
        (Code::FailedPrecondition, "ROOT_GONE"),
        "{refusal:?}"
    );
    // Another directory of the same name is not the one that the session was opened on.
    fs::create_dir(&session.workspace).expect("a directory can be made");
    let refusal = session.sh("echo ran").refusal().await;
    assert_eq!(refusal.reason, "ROOT_GONE", "{refusal:?}");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_root_that_is_gone_is_named() {
    must_be_said(Options::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_root_that_is_gone_is_named_by_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    must_be_said(Options { user: Some(USER), policy: Some(without_limits), ..Options::default() }).await;
}
