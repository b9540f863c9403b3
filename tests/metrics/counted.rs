//! What is counted, and that nothing of what callers say can be read from it.

use std::{fs, time::Duration};

use nix::sys::signal::{Signal, kill};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::{
    metrics::scrape::{Metrics, address, gateway, parsed, scrape, until},
    support::{
        Caller, Gateway, Options, Session, add_rule,
        api::{
            ApprovalDecision, ListApprovalsRequest, OnAsk, ResolveApprovalRequest,
            approvals_client::ApprovalsClient,
        },
        code, in_session, within,
    },
};

/// By how much each of these samples has grown.
fn grown<const N: usize>(before: &Metrics, after: &Metrics, names: [&str; N]) -> [f64; N] {
    names.map(|name| after.of(name) - before.of(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_are_counted_as_they_begin_run_and_end() {
    let (gateway, at) = gateway(Options::default()).await;
    let first = scrape(at).await;
    assert_eq!((first.of("provost_ready"), first.of("provost_draining")), (1.0, 0.0));
    assert_eq!((first.of("provost_sessions"), first.of("provost_terminals_live")), (0.0, 0.0));
    in_session(&gateway, async |session| {
        let printed = session.sh("printf 12345").finish().await;
        assert_eq!(code(&printed.outcome), 0);
        let idle = session.idle("metrics").create().await;
        let running = scrape(at).await;
        assert_eq!((running.of("provost_sessions"), running.of("provost_sandboxes")), (1.0, 1.0));
        assert_eq!(running.of("provost_terminals_live"), 1.0);
        session.command("no-such-program").refusal().await;
        session.command("true").env("LD_PRELOAD", "x").refusal().await;
        idle.kill(Some(Duration::from_secs(20))).await;
        idle.wait().await;
        let stubborn = session.sh("trap '' TERM; echo ready; while :; do sleep 1; done").create().await;
        stubborn.until("ready").await;
        stubborn.kill(Some(Duration::ZERO)).await;
        stubborn.wait().await;
        idle.release().await;
        stubborn.release().await;
    })
    .await;
    let last = until(at, "the session's end", |metrics| metrics.of("provost_sandboxes") == 0.0).await;
    assert_eq!(
        grown(
            &first,
            &last,
            [
                "provost_sessions_opened_total",
                "provost_sessions_closed_total{cause=\"requested\"}",
                "provost_terminals_started_total",
                "provost_terminals_ended_total{cause=\"exited\"}",
                "provost_terminals_ended_total{cause=\"killed\"}",
                "provost_terminals_force_killed_total",
                "provost_terminals_refused_total{reason=\"policy_denied\"}",
                "provost_terminals_refused_total{reason=\"command_not_found\"}",
                "provost_policy_decisions_total{decision=\"deny\"}",
                "provost_sandboxes_launched_total",
                "provost_sandboxes_lost_total",
                "provost_create_seconds_count{step=\"spawn\"}",
                "provost_create_seconds_count{step=\"sandbox\"}",
                "provost_create_seconds_bucket{le=\"+Inf\",step=\"whole\"}",
            ]
        ),
        [1.0, 1.0, 3.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 3.0, 1.0, 3.0],
    );
    assert_eq!((last.of("provost_sessions"), last.of("provost_terminals_retained")), (0.0, 0.0));
    assert_eq!(last.of("provost_output_reserved_bytes"), 0.0);
    // "12345", "ready\n", and what `idle` says.
    assert!(last.of("provost_output_bytes_total") >= 11.0);
    let [records, bytes] =
        grown(&first, &last, ["provost_journal_records_total", "provost_journal_bytes_total"]);
    assert!(records >= 15.0 && bytes > records * 100.0, "{records} records, {bytes} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_that_does_not_load_is_seen_and_one_that_does_clears_it() {
    let (gateway, at) = gateway(Options::default()).await;
    let good = scrape(at).await;
    assert_eq!((good.of("provost_policy_generation"), good.of("provost_policy_refused")), (1.0, 0.0));
    let file = gateway.directory().join("policies/more.toml");
    // Written under another name and renamed: a reload never sees half a file.
    let put = |rules: &str| {
        fs::write(file.with_extension("new"), rules).expect("a policy can be written");
        fs::rename(file.with_extension("new"), &file).expect("a policy can be put in place");
    };
    put("[[rule]]\nid = 'broken'\n");
    let bad = until(at, "the refusal", |metrics| metrics.of("provost_policy_refused") == 1.0).await;
    assert_eq!(bad.of("provost_policy_generation"), 1.0, "the one in force stays");
    assert!(bad.of("provost_policy_loads_total{result=\"refused\"}") >= 1.0);
    let at_first = good.of("provost_policy_loaded_timestamp_seconds");
    assert_eq!(bad.of("provost_policy_loaded_timestamp_seconds"), at_first);
    assert_eq!(bad.of("provost_ready"), 1.0, "commands are judged by the one in force");

    let rule = "[[rule]]\nid = 'more'\ndecision = 'deny'\nargv = ['no-such-program']\n";
    put(rule);
    let repaired = until(at, "the load", |metrics| metrics.of("provost_policy_refused") == 0.0).await;
    assert_eq!(repaired.of("provost_policy_generation"), 2.0);
    assert_eq!(repaired.of("provost_policy_loads_total{result=\"taken\"}"), 2.0);
    assert!(repaired.of("provost_policy_loaded_timestamp_seconds") > at_first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn questions_and_their_ends_are_counted() {
    let policy = Some(ask_before_touch as fn(&mut toml::Table));
    let (gateway, at) = gateway(Options { policy, ..Options::default() }).await;
    in_session(&gateway, async |session| {
        let asking =
            || session.command("touch").args(["x"]).with(|request| request.on_ask = OnAsk::Refuse.into());
        let id = asking().refusal().await.meta("approval_id").to_owned();
        let asked = scrape(at).await;
        assert_eq!(asked.of("provost_approvals_pending"), 1.0);
        assert_eq!(asked.of("provost_approvals_asked_total"), 1.0);
        assert_eq!(asked.of("provost_terminals_refused_total{reason=\"approval_required\"}"), 1.0);
        assert_eq!(asked.of("provost_policy_decisions_total{decision=\"ask\"}"), 1.0);
        approve(&session.caller, &id).await;
        asking().finish().await;
        let used = scrape(at).await;
        assert_eq!(used.of("provost_approvals_pending"), 0.0);
        for state in ["approved", "used"] {
            assert_eq!(used.of(&format!("provost_approvals_resolved_total{{state=\"{state}\"}}")), 1.0);
        }
    })
    .await;
}

fn ask_before_touch(policy: &mut toml::Table) {
    add_rule(policy, "id = 'careful'\ndecision = 'ask'\nargv = ['touch', '**']\nreason = 'ask first'");
}

async fn approve(caller: &Caller, id: &str) {
    let mut approvals = ApprovalsClient::new(caller.channel());
    let pending = within("a list", approvals.list_approvals(ListApprovalsRequest::default())).await;
    assert_eq!(pending.expect("it can be listed").into_inner().approvals.len(), 1);
    let request = ResolveApprovalRequest {
        approval_id: id.to_owned(),
        decision: ApprovalDecision::Approve.into(),
        ..ResolveApprovalRequest::default()
    };
    within("an answer", approvals.resolve_approval(request)).await.expect("it can be answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_gateway_takes_back_and_what_it_loses_is_counted() {
    let (gateway, _) = gateway(Options::default()).await;
    let mut session = Session::open(&gateway).await;
    let idle = session.idle("metrics-lost").create().await;
    gateway.crash();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let at = fresh_address(&gateway).await;
    let back = scrape(at).await;
    assert_eq!(
        (back.of("provost_terminals_adopted_total"), back.of("provost_sandboxes_adopted_total")),
        (1.0, 1.0)
    );
    assert_eq!((back.of("provost_terminals_live"), back.of("provost_sandboxes")), (1.0, 1.0));
    assert_eq!((back.of("provost_sessions"), back.of("provost_quarantined{kind=\"sandbox\"}")), (1.0, 0.0));
    // PID 1 of the sandbox: with it, all of it.
    let idle = idle.over(&session.caller);
    let pid = supervisor_of(&gateway.group.processes());
    kill(nix::unistd::Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("it is ours");
    idle.wait().await;
    let lost = until(at, "the loss", |metrics| metrics.of("provost_sandboxes") == 0.0).await;
    assert_eq!(lost.of("provost_sandboxes_lost_total"), 1.0);
    assert_eq!(lost.of("provost_terminals_ended_total{cause=\"sandbox_lost\"}"), 1.0);
    idle.release().await;
    session.close().await;
}

/// Where the gateway that runs now serves: the log has the addresses of those before it, too.
async fn fresh_address(gateway: &Gateway) -> std::net::SocketAddr {
    let seen = async {
        loop {
            let at = address(gateway).await;
            if tokio::net::TcpStream::connect(at).await.is_ok() {
                break at;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the metrics of the gateway that runs", seen).await
}

/// The one process of a namespace of its own whose id there is 1.
fn supervisor_of(processes: &[u32]) -> u32 {
    let is_first = |pid: &&u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let mut ids = ids.split_whitespace();
        ids.next().is_some() && ids.next_back() == Some("1")
    };
    *processes.iter().find(is_first).expect("the sandbox has its first process")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_that_a_caller_says_is_in_a_name_or_a_label() {
    const MARK: &str = "xyzzy";
    let (gateway, at) = gateway(Options::default()).await;
    let before = scrape(at).await.names().count();
    in_session(&gateway, async |session| {
        let name = format!("{MARK}\"}} 1\nforged_total 1\n");
        session.command(&name).refusal().await;
        let labels = [(MARK.to_owned(), MARK.to_owned())].into();
        let command = session.sh(&format!("echo {MARK}")).env(MARK, MARK).request_id(MARK);
        command.with(|request| request.labels = labels).finish().await;
        session.command("true").cwd(format!("/{MARK}")).refusal().await;
    })
    .await;
    let after = scrape(at).await;
    assert_eq!(after.names().count(), before, "callers make no series");
    let user = format!("uid:{}", nix::unistd::geteuid());
    for name in after.names() {
        assert!(!name.contains(MARK) && !name.contains(&user) && !name.contains('/'), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn metrics_may_be_at_a_socket_of_its_users_own() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("metrics.sock");
    let config = Some(format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display()));
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let mode = fs::metadata(&socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).await.expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("it reads");
    let mut text = String::new();
    within("an answer", stream.read_to_string(&mut text)).await.expect("it is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("there is a head");
    assert!(head.contains(" 200 "), "{head}");
    assert_eq!(parsed(body).of("provost_ready"), 1.0);
    gateway.stop();
    assert!(!socket.exists(), "it is gone with the gateway");
}
