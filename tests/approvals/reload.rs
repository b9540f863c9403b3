//! The policy in force: what the gateway says of it, and how it follows its files.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use nix::sys::signal::Signal;
use tonic::{Code, transport::Channel};

use crate::{
    approvals::desk::{RULE, gateway, touch},
    support::{
        Caller, Refusal,
        api::{
            CheckPolicyRequest, CreateTerminalRequest, Decision, ExplainRequest, ExplainResponse,
            GetPolicyRequest, Policy, PolicyFile, ReloadPolicyRequest, policies_client::PoliciesClient,
        },
        in_session, is_root, within,
    },
};

fn policies(caller: &Caller) -> PoliciesClient<Channel> {
    PoliciesClient::new(caller.channel())
}

async fn get(policies: &PoliciesClient<Channel>) -> Policy {
    within("the policy", policies.clone().get_policy(GetPolicyRequest {}))
        .await
        .expect("anybody may ask")
        .into_inner()
        .policy
        .expect("it is set")
}

/// Waits until the policy in force is as wanted.
async fn until(policies: &PoliciesClient<Channel>, what: &str, wanted: impl Fn(&Policy) -> bool) -> Policy {
    let seen = async {
        loop {
            let policy = get(policies).await;
            if wanted(&policy) {
                break policy;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(what, seen).await
}

/// Changes the files.
type Change<'a> = Box<dyn Fn() + 'a>;

fn rule(id: &str) -> String {
    format!("[[rule]]\nid = '{id}'\ndecision = 'deny'\nargv = ['no-such-program-{id}']\n")
}

async fn explained(caller: &Caller, create: CreateTerminalRequest) -> Result<ExplainResponse, Refusal> {
    let request = ExplainRequest { create: Some(create) };
    Ok(within("an explanation", policies(caller).explain(request)).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_way_of_changing_a_file_is_followed() {
    let gateway = gateway("");
    let policies = policies(&gateway.caller().await);
    let directory = gateway.directory().join("policies");
    let file = directory.join("more.toml");
    let first = get(&policies).await;
    assert_eq!((first.generation, first.loads), (1, 1));
    assert_eq!(first.files, [directory.join("default.toml").display().to_string()]);
    assert_eq!((first.rules, first.default_profile.as_str()), (3, "workspace"));
    assert!(first.load_problem.is_none());
    let begun = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later");
    let loaded_at = first.loaded_at.expect("it was loaded").seconds;
    assert!((begun.as_secs().cast_signed() - loaded_at).abs() < 3_600, "{loaded_at}");

    // Each is the same number of rules as before it, so that nothing but the content tells.
    let steps: Vec<(&str, u32, Change<'_>)> = vec![
        ("a new file", 4, Box::new(|| write(&file, &rule("a")))),
        ("a file that is written in place", 4, Box::new(|| write(&file, &rule("b")))),
        ("a file that is replaced by rename", 4, Box::new(|| rename_over(&file, &rule("c")))),
        ("a file of the same length", 4, Box::new(|| rename_over(&file, &rule("d")))),
        ("a file that is taken away", 3, Box::new(|| fs::remove_file(&file).expect("it can be removed"))),
        (
            "a file that is a link",
            4,
            Box::new(|| {
                write(&directory.join("e.text"), &rule("e"));
                symlink("e.text", &file).expect("a link can be made");
            }),
        ),
        (
            "a link that leads elsewhere",
            4,
            Box::new(|| {
                write(&directory.join("f.text"), &rule("f"));
                symlink("f.text", directory.join("new")).expect("a link can be made");
                fs::rename(directory.join("new"), &file).expect("it can be put in place");
            }),
        ),
        ("the file that a link leads to", 4, Box::new(|| write(&directory.join("f.text"), &rule("g")))),
    ];
    let mut before = first;
    for (what, rules, change) in steps {
        change();
        let after = until(&policies, what, |policy| policy.generation > before.generation).await;
        assert_eq!((after.generation, after.rules), (before.generation + 1, rules), "{what}");
        assert_ne!(after.digest, before.digest, "{what}");
        assert!(after.load_problem.is_none(), "{what}: {:?}", after.load_problem);
        before = after;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_directory_that_is_swapped_is_followed_as_a_whole() {
    // As Kubernetes mounts a ConfigMap: the files are links through `..data`, which is swapped by rename.
    let gateway = gateway("");
    let policies = policies(&gateway.caller().await);
    let directory = gateway.directory().join("policies");
    let shipped = fs::read_to_string(directory.join("default.toml")).expect("it can be read");
    let version = |name: &str| {
        let version = directory.join(format!("..{name}"));
        fs::create_dir(&version).expect("a directory can be made");
        write(&version.join("default.toml"), &shipped);
        write(&version.join("more.toml"), &rule(name));
        symlink(format!("..{name}"), directory.join("..new")).expect("a link can be made");
        fs::rename(directory.join("..new"), directory.join("..data")).expect("it can be put in place");
    };
    version("v1");
    fs::remove_file(directory.join("default.toml")).expect("it can be removed");
    for name in ["default.toml", "more.toml"] {
        symlink(format!("..data/{name}"), directory.join(name)).expect("a link can be made");
    }
    let before = until(&policies, "the first version", |policy| policy.rules == 4).await;
    version("v2");
    let after = until(&policies, "the second version", |policy| policy.generation > before.generation).await;
    assert_eq!((after.generation, after.rules), (before.generation + 1, 4));

    // The directory itself is replaced.
    let next = gateway.directory().join("policies-next");
    fs::create_dir(&next).expect("a directory can be made");
    write(&next.join("default.toml"), &shipped);
    fs::rename(&directory, gateway.directory().join("policies-before")).expect("it can be moved");
    fs::rename(&next, &directory).expect("it can be put in place");
    let replaced = until(&policies, "the other directory", |policy| policy.rules == 3).await;
    assert_eq!(replaced.files.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn broken_files_leave_the_policy_in_force_and_status_says_where() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let policies = policies(&session.caller);
        let file = gateway.directory().join("policies/more.toml");
        let before = get(&policies).await;
        rename_over(&file, "[[rule]]\nid = 'x'\ndecision = 'perhaps'\n");
        let status = until(&policies, "the refusal", |policy| policy.load_problem.is_some()).await;
        let refused = status.load_problem.clone().expect("it was refused");
        assert_eq!(refused.file, file.display().to_string());
        assert_eq!((refused.line, refused.column), (3, 12), "{refused:?}");
        assert!(!refused.message.contains('\n') && refused.message.contains("perhaps"), "{refused:?}");
        assert!(refused.rendered.contains("^") && refused.refused_at.is_some(), "{refused:?}");
        assert_eq!((status.generation, &status.digest), (before.generation, &before.digest));
        assert_eq!(status.refused_loads, before.refused_loads + 1);
        assert_eq!(touch(session, "x").with(|it| it.on_ask = 2).refusal().await.meta("rule"), RULE);

        // The directory is gone altogether: the same.
        let (directory, aside) = (gateway.directory().join("policies"), gateway.directory().join("aside"));
        fs::rename(&directory, &aside).expect("it can be moved");
        let gone = until(&policies, "the other refusal", |policy| {
            policy.load_problem.as_ref().is_some_and(|refused| refused.file.is_empty())
        })
        .await;
        assert_eq!(gone.generation, before.generation);
        fs::rename(&aside, &directory).expect("it can be moved back");

        rename_over(&file, &rule("x"));
        let repaired = until(&policies, "the repaired policy", |policy| policy.load_problem.is_none()).await;
        assert_eq!(repaired.generation, before.generation + 1);
        if is_root() {
            // Who may not read the files is told the place, and not what stands there.
            rename_over(&file, "[[rule]]\nid = 'secret name\n");
            let other = crate::approvals::reload::policies(&gateway.caller_as(54_321).await);
            let refused =
                until(&other, "the refusal", |policy| policy.load_problem.is_some()).await.load_problem;
            let refused = refused.expect("it was refused");
            assert!(refused.line == 2 && refused.rendered.is_empty(), "{refused:?}");
            assert!(!refused.message.contains("secret"), "{refused:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hangup_and_a_call_load_at_once_and_a_stranger_may_not_call() {
    let gateway = gateway("");
    let policies = policies(&gateway.caller().await);
    // Files that were written just before the start are loaded once more all the same: not three times.
    for _ in 0..3 {
        let before = get(&policies).await.unchanged_loads;
        gateway.signal(Signal::SIGHUP);
        let same = until(&policies, "a load", |policy| policy.unchanged_loads > before).await;
        assert_eq!((same.generation, same.loads), (1, 1), "nothing has changed");
    }

    let file = gateway.directory().join("policies/more.toml");
    rename_over(&file, &rule("x"));
    let answer = policies.clone().reload_policy(ReloadPolicyRequest {}).await.expect("we may").into_inner();
    let policy = answer.policy.expect("it says what is in force");
    assert_eq!((policy.generation, policy.rules), (2, 4));
    rename_over(&file, "no toml");
    let answer = policies.clone().reload_policy(ReloadPolicyRequest {}).await.expect("we may").into_inner();
    assert!(!answer.changed);
    let policy = answer.policy.expect("it says what is in force");
    assert_eq!(policy.generation, 2);
    assert_eq!(policy.load_problem.expect("it was refused").line, 1);
    if is_root() {
        let mut other = crate::approvals::reload::policies(&gateway.caller_as(54_321).await);
        let refused =
            Refusal::from(other.reload_policy(ReloadPolicyRequest {}).await.expect_err("it may not"));
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "NOT_AN_ADMINISTRATOR"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_explanation_is_for_the_callers_own_sessions_only() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let asks = touch(session, "made").env("A", "secret-value");
        let explained_ask = explained(&session.caller, asks.request.clone()).await.expect("it is explained");
        assert_eq!((explained_ask.decision(), explained_ask.rule.as_str()), (Decision::Ask, RULE));
        let run = explained_ask.run.clone().expect("it may run");
        assert_eq!((run.argv.join(" ").as_str(), run.profile.as_str()), ("touch made", "workspace"));
        assert!(run.env_names.contains(&"A".to_owned()), "{run:?}");
        assert!(!format!("{explained_ask:?}").contains("secret-value"), "values are nobody's business");
        assert!(
            explained_ask.commands[0]
                .matched_rules
                .iter()
                .any(|it| it.rule == RULE && !it.location.is_empty())
        );
        assert!(!session.workspace.join("made").exists(), "nothing ran");

        let unknown = explained(&session.caller, Default::default()).await.expect_err("it has no session");
        assert_eq!((unknown.code, unknown.reason.as_str()), (Code::NotFound, "SESSION_NOT_FOUND"));
        if is_root() {
            let other = gateway.caller_as(54_321).await;
            let foreign = explained(&other, asks.request).await.expect_err("it is another's");
            assert_eq!(foreign, unknown);
        }

        let check = async |name: &str, text: &str| {
            let files = vec![PolicyFile { name: name.into(), text: text.into() }];
            let request = CheckPolicyRequest { files };
            policies(&session.caller).check_policy(request).await.map(tonic::Response::into_inner)
        };
        let valid = format!("default_profile = 'a'\n[profile.a]\n{}", rule("r"));
        let good = check("p.toml", &valid).await.expect("it is checked");
        assert!(good.problem.is_none() && good.profiles == ["a"] && good.digest.len() == 64, "{good:?}");
        let bad = check("p.toml", "default_profile = 'a'\n[profile.a]\nno_such_key = 1\n").await;
        let problem = bad.expect("it is checked").problem.expect("it is wrong");
        assert_eq!((problem.file.as_str(), problem.line, problem.column), ("p.toml", 3, 1), "{problem:?}");
        assert!(problem.rendered.contains("3 | no_such_key = 1\n  | ^"), "{problem:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_that_a_write_left_short_leaves_the_policy_in_force() {
    let gateway = gateway("");
    let caller = gateway.caller().await;
    let policies = policies(&caller);
    let directory = gateway.directory().join("policies");
    let (file, shipped) = (directory.join("more.toml"), directory.join("default.toml"));
    let whole = "[[rule]]\nid = 'a'\ndecision = 'deny'\nargv = ['no-such-a']\n\n[[rule]]\nid = 'b'\ndecision = 'allow'\n\
                 argv = ['no-such-b']\nwhen = { cwd = ['/nowhere'] }\n";
    write(&file, whole);
    let mut before = until(&policies, "the whole file", |policy| policy.rules == 5).await;
    let text = fs::read_to_string(&shipped).expect("it can be read");
    let cut = &whole[..whole.find("when").expect("it is there")];
    let unfinished = whole.trim_end();
    let kept = fs::read_to_string(&file).expect("it can be read");
    for (what, path, left, line, column) in [
        ("an emptied file", &file, "", 1, 1),
        ("a file of blank lines and comments", &file, "\n# rules\n\n", 1, 1),
        ("a rule without its condition", &file, cut, 10, 1),
        ("an emptied file of profiles", &shipped, "", 1, 1),
    ] {
        write(path, left);
        let refused = until(&policies, what, |policy| policy.refused_loads > before.refused_loads).await;
        assert_eq!((refused.generation, &refused.digest), (before.generation, &before.digest), "{what}");
        let problem = refused.load_problem.clone().expect("it says what is wrong");
        assert_eq!((problem.line, problem.column), (line, column), "{what}: {problem:?}");
        assert_eq!(problem.file, path.display().to_string(), "{what}");
        assert!(problem.message.contains("cut short"), "{what}: {problem:?}");
        write(path, if path == &file { &kept } else { &text });
        let whole_again = |policy: &Policy| policy.load_problem.is_none() && policy.digest == before.digest;
        before = until(&policies, what, whole_again).await;
    }
    // Where one asks for it, the file is loaded as it is.
    write(&file, cut);
    let answer = policies.clone().reload_policy(ReloadPolicyRequest {}).await.expect("we may").into_inner();
    assert!(answer.changed, "{answer:?}");
    before = get(&policies).await;
    // A rule that is removed as a whole, and a line that is only not ended, are edits.
    write(&file, whole);
    before = until(&policies, "whole again", |policy| policy.generation > before.generation).await;
    write(&file, unfinished);
    until(&policies, "without its last line end", |policy| policy.generation > before.generation).await;
    write(&file, &whole[..whole.find("\n[[rule]]\nid = 'b'").expect("it is there")]);
    before = until(&policies, "without the last rule", |policy| policy.rules == 4).await;
    // No file at all.
    for path in [&file, &shipped] {
        fs::rename(path, path.with_extension("away")).expect("it can be moved away");
    }
    let refused =
        until(&policies, "an emptied directory", |policy| policy.refused_loads > before.refused_loads).await;
    assert_eq!(refused.generation, before.generation);
}

/// Expressions that are small to write and large when they are compiled.
fn large_expressions(count: usize) -> String {
    let rule = |number: usize| {
        format!(
            "[[rule]]\nid = 'r{number}'\ndecision = 'deny'\nargv = [{{ regex = '\\w{{10}}x{number}' }}]\n"
        )
    };
    let profile = "default_profile = 'a'\n[profile.a]\n".to_owned();
    profile + &(0..count).map(rule).collect::<String>()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_check_of_expressions_takes_is_bounded_and_given_back() {
    let gateway = gateway("");
    let caller = gateway.caller().await;
    let check = async |text: String| {
        let files = vec![PolicyFile { name: "p.toml".into(), text }];
        let mut policies = policies(&caller);
        within("the answer", policies.check_policy(CheckPolicyRequest { files }))
            .await
            .expect("anybody may ask")
            .into_inner()
    };
    check(large_expressions(1)).await;
    let before = resident_bytes(gateway.pid);
    // Ten thousand of them would be gigabytes.
    let problem = check(large_expressions(9_999)).await.problem.expect("it is refused");
    assert!(
        problem.message.contains("regular expressions of the policy take more than 16 MiB"),
        "{problem:?}"
    );
    assert!(problem.message.contains("rule \"r") && problem.line > 3, "{problem:?}");
    let grown = resident_bytes(gateway.pid).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes are left in the gateway");
    let one = check("default_profile='a'\n[profile.a]\n[[rule]]\nid='big'\ndecision='deny'\nargv=[{regex='(\\w{100}){100}'}]\n".into());
    let problem = one.await.problem.expect("it is refused");
    assert!(problem.message.contains("rule \"big\"") && problem.message.contains("1024 KiB"), "{problem:?}");
    assert_eq!((problem.line, problem.file.as_str()), (6, "p.toml"));
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("a policy can be written");
}

fn rename_over(file: &Path, text: &str) {
    let new = file.with_extension("new");
    write(&new, text);
    fs::rename(&new, file).expect("it can be put in place");
}
