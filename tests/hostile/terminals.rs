//! Pseudo-terminals, of which the kernel has one number for the whole host: a principal that takes all that its sandboxes
//! may have, however many they are, leaves another principal and the host theirs, also after a restart of the gateway.

use std::fs;

use crate::{
    hostile::principals::number,
    support::{Attack, Gateway, Session, Terminal, is_root, run_outside, skip},
};

/// Another principal.
const OTHER: u32 = 54_383;
/// One sandbox has so many.
const PTYS: i64 = 64;
/// With more on the host, taking them all would take too long here.
const TESTED_MAX: i64 = 8_192;

fn setting(name: &str) -> i64 {
    let text =
        fs::read_to_string(format!("/proc/sys/kernel/pty/{name}")).expect("a host has pseudo-terminals");
    text.trim().parse().expect("a number")
}

/// Takes all that a session may have, and how many that were.
async fn take_all(session: &Session) -> (Terminal, i64) {
    let holder = session.attack("counted").args(["hold", "pty", "4000"]).create().await;
    let took = number(&holder.until("ready").await, "took");
    (holder, took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_with_many_sessions_leaves_the_others_their_pseudo_terminals() {
    if !is_root() {
        return skip("only root can be two principals");
    }
    let whole = setting("max") - setting("reserve");
    if whole > TESTED_MAX {
        println!("SKIPPED: this host has {whole} pseudo-terminals");
        return;
    }
    let gateway = Gateway::start();
    let mut sessions = Vec::new();
    let mut taken = 0;
    // As many as would take all of the host's if each had what one may have.
    for _ in 0..=whole / PTYS {
        let session = Session::open(&gateway).await;
        let (holder, took) = take_all(&session).await;
        assert!(took <= PTYS, "{took}");
        taken += took;
        sessions.push((session, holder));
    }
    println!("{} sessions took {taken} of {whole}", sessions.len());
    let attack = Attack::compiled("counted");
    let one = "took=1 error=0\n";
    let other = Session::open_as(&gateway, OTHER).await;
    assert_eq!(other.attack("counted").args(["one", "pty"]).finish().await.text(), one, "another principal");
    assert_eq!(run_outside(&attack, &["one", "pty"]).1, one, "the host's root");
    assert!((1..=whole / 4).contains(&taken), "{taken} of {whole}");

    // What runs on is counted by the next gateway too.
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    for (session, _) in &mut sessions {
        session.go_on(&caller);
    }
    let late = Session::open(&gateway).await;
    let (_, more) = take_all(&late).await;
    assert!(taken + more <= whole / 4, "{taken} and {more} of {whole}");
    late.close().await;

    // What has ended is given back.
    for (session, _) in sessions {
        session.close().await;
    }
    let (_, again) = take_all(&Session::open(&gateway).await).await;
    assert_eq!(again, PTYS.min(whole / 4 / 8));
    gateway.stop();
}
