//! Where every terminal has a sandbox of its own: because the profile wants it, or because an ordinary user has no
//! cgroup by which a tree could be killed. Kills of the gateway are survived as in a shared one.

use std::{fs, sync::Arc};

use crate::{
    restart::lines::{Until, must_be_whole, printing, starts, stop},
    support::{
        Caller, Gateway, Options, Process, Session,
        api::{ExitCause, TerminalState},
        code, eventually, is_root, skip,
    },
};

/// An id above those of people and services, and below the ranges that containers get.
const NOBODYS_ID: u32 = 59_998;

/// Every terminal has a sandbox of its own.
pub(crate) fn each_its_own(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["isolation"] = "terminal".into();
}

/// Limits are had where they can be.
fn prefer_limits(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

/// A kind of gateway, and who calls it.
pub(crate) struct Place {
    pub(crate) gateway: Arc<Gateway>,
    user: Option<u32>,
}

impl Place {
    /// Sandboxes that terminals share, sandboxes of their own, and an ordinary user's.
    pub(crate) fn all() -> Vec<Self> {
        let shared = Self { gateway: Gateway::start(), user: None };
        [Some(shared), Some(Self::alone()), Self::of_a_user()].into_iter().flatten().collect()
    }

    /// Each terminal has its own.
    fn alone() -> Self {
        Self { gateway: Gateway::with_policy(each_its_own), user: None }
    }

    /// Run by an ordinary user. None where that is not possible, which is said.
    fn of_a_user() -> Option<Self> {
        // Run by an ordinary user, all of these tests are about one.
        let user = is_root().then_some(NOBODYS_ID);
        if user.is_some() && !may_make_namespaces() {
            skip("this machine lets no ordinary user make a user namespace");
            return None;
        }
        let options = Options { policy: Some(prefer_limits), user, ..Options::default() };
        Some(Self { gateway: Gateway::start_with(options), user })
    }

    pub(crate) async fn caller(&self) -> Caller {
        match self.user {
            Some(user) => self.gateway.caller_as(user).await,
            None => self.gateway.caller().await,
        }
    }

    pub(crate) async fn session(&self) -> Session {
        match self.user {
            Some(user) => Session::open_as(&self.gateway, user).await,
            None => Session::open(&self.gateway).await,
        }
    }

    fn sandboxes(&self) -> usize {
        fs::read_dir(self.gateway.state.join("sandboxes")).map_or(0, Iterator::count)
    }
}

fn may_make_namespaces() -> bool {
    let mut tried = std::process::Command::new("setpriv");
    tried.arg(format!("--reuid={NOBODYS_ID}")).arg(format!("--regid={NOBODYS_ID}")).arg("--clear-groups");
    tried.args(["unshare", "--user", "true"]).status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn sandboxes_of_their_own_survive_kills_of_the_gateway() {
    survive_kills(Place::alone()).await;
}

#[tokio::test]
async fn an_ordinary_users_commands_survive_kills_of_the_gateway() {
    if let Some(place) = Place::of_a_user() {
        survive_kills(place).await;
    }
}

async fn survive_kills(place: Place) {
    let gateway = &place.gateway;
    let mut session = place.session().await;
    let mut terminals = Vec::new();
    for number in 0..8_u32 {
        // Some end while there is no gateway, or another one.
        let until = if number < 3 { Until::Lines(3 + number * 7) } else { Until::Stopped };
        let name = format!("alone-{number}");
        let terminal = printing(&session, &name, until, number).request_id(&name).create().await;
        terminals.push((terminal, name, until));
    }
    let limited = Some(prost_types::Duration { seconds: 2, nanos: 0 });
    let timed = session.sh("sleep 600").with(|request| request.time_limit = limited).create().await;
    let alone = place.sandboxes() == terminals.len() + 1;
    assert!(alone || place.user.is_none(), "{} sandboxes", place.sandboxes());
    for _ in 0..5 {
        gateway.crash();
        gateway.start_again();
        let caller = place.caller().await;
        session.go_on(&caller);
        for (terminal, name, until) in &mut terminals {
            *terminal = terminal.over(&caller);
            terminal.get().await.unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
            // What is repeated is found.
            let again = printing(&session, name, *until, 0).request_id(name).create().await;
            assert_eq!(again.id, terminal.id);
        }
    }
    let timed = timed.over(&session.caller);
    assert_eq!(timed.wait().await.cause(), ExitCause::TimeLimit);
    stop(&session.workspace);
    for ((terminal, name, _), number) in terminals.iter().zip(0..) {
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause()), (number, ExitCause::Exited), "{name}");
        must_be_whole(terminal, name).await;
        assert_eq!(starts(&session.workspace, name), 1, "{name} was started once");
        assert_eq!(terminal.get().await.expect("it is there").state(), TerminalState::Finished);
    }
    // Ended ones keep their sandbox, and with it their output, over a restart; released ones leave nothing.
    gateway.crash();
    gateway.start_again();
    session.go_on(&place.caller().await);
    for (terminal, name, _) in &terminals {
        let terminal = terminal.over(&session.caller);
        must_be_whole(&terminal, name).await;
        terminal.release().await;
    }
    timed.over(&session.caller).release().await;
    if alone {
        eventually("no sandbox is left", || (place.sandboxes() == 0).then_some(())).await;
    }
    assert_eq!(code(&session.command("true").finish().await.outcome), 0, "the session goes on");
    session.close().await;
    gateway.stop();
}

/// A sandbox that has waited for a gateway since about now, with a marked command in it.
async fn left_alone(config: &str) -> (Arc<Gateway>, String) {
    let gateway = Gateway::start_with(Options { config: Some(config.to_owned()), ..Options::default() });
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    gateway.crash();
    (gateway, marker)
}

#[tokio::test]
async fn a_sandbox_that_no_gateway_can_reach_any_more_ends_and_others_wait() {
    let (waiting, its_marker) = left_alone("unreachable_kept = \"1s\"\n").await;
    let (forgotten, marker) = left_alone("unreachable_kept = \"1s\"\n").await;
    let (bounded, bounded_marker) = left_alone("without_gateway_kept = \"1s\"\n").await;
    fs::remove_dir_all(&forgotten.state).expect("the state directory can be removed");
    for (gateway, marker) in [(&forgotten, &marker), (&bounded, &bounded_marker)] {
        let is_over =
            || (Process::all_marked(marker).is_empty() && gateway.group.processes().is_empty()).then_some(());
        eventually("the sandbox ends with its gate, screen and net process", is_over).await;
    }
    // It has waited for longer than both, and its gateway comes.
    assert_eq!(Process::all_marked(&its_marker).len(), 1);
    waiting.start_again();
    assert_eq!(Process::all_marked(&its_marker).len(), 1);
    waiting.stop();
}
