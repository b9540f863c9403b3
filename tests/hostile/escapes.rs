//! What a caller names comes back in an answer that every client can take, and that drives no terminal.

use provost_base::printable::needs_escape;
use tonic::Code;

use crate::support::{Command, Gateway, Refusal, Session, in_session};

/// Longer than a header that clients take.
const LONG: usize = 40_000;

fn must_be_short_and_seen(what: &str, refusal: &Refusal, code: Code) {
    assert_eq!(refusal.code, code, "{what}: {refusal:?}");
    assert!(refusal.message.len() <= 1_024, "{what}: {} bytes", refusal.message.len());
    let hidden = refusal.message.chars().find(|c| needs_escape(*c) && *c != '\n');
    assert_eq!(hidden, None, "{what}: {:?}", refusal.message);
}

async fn refused(session: &Session, what: &str, long: &str) {
    let of = |command: Command| command.with(|request| request.on_ask = 2).refusal();
    let denied = Code::PermissionDenied;
    must_be_short_and_seen(what, &of(session.command(long)).await, denied);
    must_be_short_and_seen(what, &of(session.sh(&format!("ls; {long}"))).await, denied);
    let long_name = session.command("ls").env(&format!("LD_{long}"), "x");
    must_be_short_and_seen(what, &of(long_name).await, denied);
    let profile = session.command("ls").with(|request| request.profile = long.to_owned());
    must_be_short_and_seen(what, &of(profile).await, denied);
    let label = [(long.to_owned(), "x".repeat(2_000))].into();
    let labelled = session.command("ls").with(|request| request.labels = label);
    must_be_short_and_seen(what, &of(labelled).await, Code::InvalidArgument);
    let nul = session.command("ls").env(&format!("{long}="), "x");
    must_be_short_and_seen(what, &of(nul).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refusal_is_never_longer_than_a_header_and_never_drives_a_terminal() {
    let gateway = Gateway::with_policy(|policy| {
        let rules = "rule = [{ id = 'ls', decision = 'allow', argv = [['ls', 'sleep'], '**'] }]";
        policy["rule"] = rules.parse::<toml::Table>().expect("rules")["rule"].clone();
        // What a line hides is asked about only where no gate judges it.
        policy["profile"]["workspace"]["gate"]["enabled"] = false.into();
    });
    in_session(&gateway, async |session| {
        refused(session, "a long name", &"x".repeat(LONG)).await;
        refused(session, "a name in two bytes a character", &"\u{e4}".repeat(LONG / 2)).await;
        refused(session, "controls", &"\u{1b}\u{9b}\u{202e}".repeat(LONG / 8)).await;
        refused(session, "a few controls", "a\u{1b}[31m\u{9b}2J\u{202e}\u{7f}b").await;
        let terminal = session.command("sleep").args(["1000"]).create().await;
        for name in ["S".repeat(10_000), "\u{1b}[2J".repeat(2_500), "\u{202e}".to_owned()] {
            let refusal = terminal.signal(&name).await.expect_err("no signal has such a name");
            must_be_short_and_seen("a signal", &refusal, Code::InvalidArgument);
            assert!(refusal.message.len() < 256, "{}", refusal.message);
        }
        terminal.release().await;
    })
    .await;
}
