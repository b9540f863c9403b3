//! What the kernel counts by user or by namespace and not by cgroup: one session takes all that it can, and another
//! session of the same principal, another principal, and the host's root still can have one.

use std::time::Duration;

use crate::{
    hostile::principals::number,
    support::{Attack, Gateway, Options, Session, is_root, run_outside, skip},
};

/// Another principal.
const OTHER: u32 = 54_381;

/// What one session does with a kind.
#[derive(Clone, Copy, PartialEq)]
enum Bound {
    /// It comes to an end of what it may have, which is at most this.
    AtMost(i64),
    /// It has none at all: the filter answers with this.
    Refused(&'static str),
    /// It is let have as many as the test asks for: its memory is the bound.
    Memory,
}

/// Each kind, how many a session tries to have, and where it must end.
const KINDS: [(&str, i64, Bound); 22] = [
    ("inotify", 1_000, Bound::AtMost(128)),
    ("pending", 200_000, Bound::AtMost(8_192)),
    ("timer", 200_000, Bound::AtMost(8_192)),
    ("pty", 4_000, Bound::AtMost(64)),
    ("queue", 2_000, Bound::AtMost(256)),
    ("aio", 1_000, Bound::Refused("ENOSYS")),
    ("shm", 5_000, Bound::AtMost(4_096)),
    ("sem", 40_000, Bound::AtMost(32_000)),
    ("msg", 40_000, Bound::AtMost(32_000)),
    ("pipe", 1_000, Bound::AtMost(600)),
    ("huge", 1_000, Bound::Refused("EPERM")),
    ("filter", 100, Bound::Refused("EPERM")),
    ("key", 1_000, Bound::Refused("EPERM")),
    ("space", 10, Bound::Refused("EPERM")),
    ("in-flight", 4_000, Bound::Memory),
    ("watch", 10_000, Bound::Memory),
    ("epoll", 20_000, Bound::Memory),
    ("file", 20_000, Bound::Memory),
    ("flock", 20_000, Bound::Memory),
    ("range", 20_000, Bound::Memory),
    ("lease", 10_000, Bound::Refused("EPERM")),
    ("calls", 10_000, Bound::Memory),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_session_takes_what_it_can_and_the_others_and_the_host_have_theirs() {
    if !is_root() {
        return skip("only root has a range of ids, and can be two principals");
    }
    let gateway = Gateway::start();
    let (hostile, neighbour) = (Session::open(&gateway).await, Session::open(&gateway).await);
    let other = Session::open_as(&gateway, OTHER).await;
    let attack = Attack::compiled("counted");
    let mut wrong = Vec::new();
    for (kind, most, bound) in KINDS {
        // What the machine does not have for its root is nothing to take.
        let (_, before) = run_outside(&attack, &["one", kind]);
        let alone = neighbour.attack("counted").args(["one", kind]).finish().await.text();
        let holder = hostile.attack("counted").args(["hold", kind, &most.to_string()]).create().await;
        let said = holder.until("ready").await;
        let took = number(&said, "took");
        println!("{kind}: {}", said.trim());
        let is_right = match bound {
            Bound::AtMost(limit) => (1..=limit).contains(&took) && took < most,
            Bound::Refused(errno) => took == 0 && said.contains(errno),
            Bound::Memory => took > 0,
        };
        if !is_right {
            wrong.push(format!("{kind}: one session: {}", said.trim()));
        }
        if !matches!(bound, Bound::Refused(_)) {
            for (who, session) in [("its neighbour", &neighbour), ("another principal", &other)] {
                let one = session.attack("counted").args(["one", kind]).finish().await;
                if one.text() != alone {
                    wrong.push(format!("{kind}: {who}: {}, before: {alone}", one.text().trim()));
                }
            }
        }
        let (_, root) = run_outside(&attack, &["one", kind]);
        if root != before {
            wrong.push(format!("{kind}: the host's root: {root:?}, before: {before:?}"));
        }
        holder.kill(Some(Duration::ZERO)).await;
        holder.wait().await;
        holder.release().await;
    }
    for session in [hostile, neighbour, other] {
        session.close().await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Without a range of ids all sandboxes are charged to one user: each is held to a part of what that user has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_an_ordinary_users_gateway_takes_a_part_of_what_the_user_has() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    let user = 54_382;
    let gateway = Gateway::start_with(Options {
        user: Some(user),
        policy: Some(|policy| policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into()),
        ..Options::default()
    });
    let (hostile, neighbour) =
        (Session::open_as(&gateway, user).await, Session::open_as(&gateway, user).await);
    let mut wrong = Vec::new();
    for (kind, most) in [("inotify", 1_000), ("pending", 200_000), ("timer", 200_000), ("pty", 4_000)] {
        let holder = hostile.attack("counted").args(["hold", kind, &most.to_string()]).create().await;
        let said = holder.until("ready").await;
        println!("{kind}: {}", said.trim());
        let one = neighbour.attack("counted").args(["one", kind]).finish().await;
        if number(&one.text(), "took") != 1 {
            wrong.push(format!("{kind}: its neighbour: {}; it: {}", one.text().trim(), said.trim()));
        }
        holder.kill(Some(Duration::ZERO)).await;
        holder.wait().await;
        holder.release().await;
    }
    hostile.close().await;
    neighbour.close().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}
