//! A host with v1 hierarchies and no v2 tree: terminals are told apart by the v1 groups of their processes.

use std::fs;

use crate::{
    gate::told::{RULE, records, rules},
    support::{Gateway, Options, Session, code, is_root},
};

/// The limits of the shipped profile need a v2 tree, by which a command's processes are killed together.
fn without_limits(policy: &mut toml::Table) {
    rules(policy);
    policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

/// Where the v2 tree of a host with v1 hierarchies is mounted.
fn v2_tree_of_a_hybrid_host() -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("a host has mounts");
    let of_kind = |kind: &str| {
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.find(|words| words.get(2) == Some(&kind)).map(|words| words[1].to_owned())
    };
    of_kind("cgroup").and(of_kind("cgroup2"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_v2_tree_execs_are_judged_and_told_for_their_terminals() {
    let Some(tree) = v2_tree_of_a_hybrid_host().filter(|_| is_root()) else {
        println!("SKIPPED: needs root, v1 hierarchies and a v2 tree that can be hidden");
        return;
    };
    let gateway = Gateway::start_with(Options {
        policy: Some(without_limits),
        hidden_mount: Some(tree.clone()),
        ..Options::default()
    });
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", gateway.pid)).expect("it runs");
    assert!(!mounts.lines().any(|line| line.split(' ').nth(1) == Some(tree.as_str())), "{tree} is hidden");
    let session = Session::open(&gateway).await;
    fs::write(session.workspace.join("script"), "/usr/bin/touch published; /usr/bin/touch $1")
        .expect("a file");
    let started = ["one", "two"].map(|name| session.command("sh").args(["script", name]));
    let [one, two] = started;
    let (one, two) = tokio::join!(one.finish(), two.finish());
    for (done, made) in [(&one, "one"), (&two, "two")] {
        assert_eq!(code(&done.outcome), 0, "{}", done.text());
        assert!(session.workspace.join(made).exists(), "what no rule denies runs");
        let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
        assert_eq!(denial.rule, RULE);
    }
    assert!(!session.workspace.join("published").exists());
    let denied = records(&gateway, "exec_denied");
    let mut terminals: Vec<_> = denied.iter().filter_map(|record| record["terminal"].as_str()).collect();
    let mut expected = [one.id.as_str(), two.id.as_str()];
    terminals.sort_unstable();
    expected.sort_unstable();
    assert_eq!(terminals, expected);
    session.close().await;
    gateway.stop();
}
