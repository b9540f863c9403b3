//! T1, T3, T4: what Create takes, and what it makes of it.

use std::{collections::BTreeSet, fs, time::Duration};

use tonic::Code;

use crate::support::{
    Gateway, Process, Session,
    api::{EnvVar, Network},
    code, eventually, in_session, seconds, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_runs_and_its_output_and_exit_code_come_back() {
    in_session(&Gateway::shared(), async |session| {
        let done = session.sh("echo out; echo err >&2; exit 42").finish().await;
        assert_eq!(done.text(), "out\nerr\n");
        assert_eq!(code(&done.outcome), 42);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_unique_under_concurrency() {
    in_session(&Gateway::shared(), async |session| {
        let creations: Vec<_> =
            (0..100).map(|_| tokio::spawn(session.command("true").with(|_| {}).try_create())).collect();
        let mut ids = BTreeSet::new();
        for creation in creations {
            let terminal = creation.await.expect("the task ends").expect("the command starts");
            let ulid = terminal.id.strip_prefix("term_").expect("the prefix");
            assert_eq!(ulid.len(), 26, "a ULID has 26 characters: {ulid}");
            assert!(ids.insert(terminal.id.clone()), "{} was given twice", terminal.id);
            assert_eq!(code(&terminal.wait().await), 0);
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_id_sent_a_hundred_times_starts_one_process_even_when_connections_are_cut() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let marker = session.marker();
        let command = session
            .sh("echo started >> starts; exec ./escape idle $0")
            .args([marker.as_str()])
            .request_id("the-same-every-time");
        session.attack("escape");
        let mut tries = Vec::new();
        for i in 0..100_u64 {
            let caller = gateway.caller().await;
            let mut request = tonic::Request::new(command.request.clone());
            request.set_timeout(Duration::from_secs(50));
            tries.push(tokio::spawn(async move {
                let mut terminals = caller.terminals.clone();
                let creation = terminals.create_terminal(request);
                if i % 2 == 0 {
                    // Cut at a different moment each time: the future is dropped, and the connection with it.
                    tokio::time::timeout(Duration::from_micros(i * 150), creation).await.ok()
                } else {
                    Some(creation.await)
                }
            }));
        }
        let mut ids = BTreeSet::new();
        for one in tries {
            if let Some(answer) = within("a creation", one).await.expect("the task ends") {
                ids.insert(
                    answer
                        .expect("the same request is the same terminal")
                        .into_inner()
                        .terminal
                        .expect("it is set")
                        .id,
                );
            }
        }
        assert_eq!(ids.len(), 1, "one request id, one terminal: {ids:?}");
        let terminal = command.create().await;
        assert!(ids.contains(&terminal.id));
        assert_eq!(fs::read_to_string(session.workspace.join("starts")).expect("it has run"), "started\n");
        eventually("the one process", || (Process::all_marked(&marker).len() == 1).then_some(())).await;
        terminal.kill(Some(Duration::ZERO)).await;
        terminal.release().await;
        eventually("no process", || Process::all_marked(&marker).is_empty().then_some(())).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_id_means_another_terminal_in_another_session() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |one| {
        in_session(&gateway, async |other| {
            let first = one.command("true").request_id("r").create().await;
            let second = other.command("true").request_id("r").create().await;
            assert_ne!(first.id, second.id);
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_session_gives_the_working_directory_when_the_command_names_none() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let done = session.command("pwd").finish().await;
        assert_eq!(done.text().trim(), session.workspace.display().to_string());
    })
    .await;
    let session = Session::open_with(&gateway, gateway.caller().await, None, |request| {
        let inner = format!("{}/inner", request.roots[0]);
        fs::create_dir(&inner).expect("a directory can be made");
        request.cwd = inner;
    })
    .await;
    let done = session.command("pwd").finish().await;
    assert_eq!(done.text().trim(), session.workspace.join("inner").display().to_string());
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_working_directory_inside_the_workspace_is_entered() {
    in_session(&Gateway::shared(), async |session| {
        let deep = session.workspace.join("a/b c");
        fs::create_dir_all(&deep).expect("directories can be made");
        let done = session.command("pwd").cwd(&deep).finish().await;
        assert_eq!(done.text().trim(), deep.display().to_string());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_working_directory_that_is_not_plain_and_absolute_is_refused_with_its_field() {
    in_session(&Gateway::shared(), async |session| {
        let up = format!("{}/..", session.workspace.display());
        for cwd in [".", "sub", "~", "../x", "a\0b", "/proc/../etc", &up] {
            session.command("pwd").cwd(cwd).refusal().await.must_name_the_field("cwd");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_working_directory_outside_of_the_roots_is_denied_by_a_rule() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let workspace = session.workspace.display().to_string();
        std::os::unix::fs::symlink("/etc", session.workspace.join("way-out")).expect("a link can be made");
        std::os::unix::fs::symlink("..", session.workspace.join("up")).expect("a link can be made");
        // The neighbour whose name begins with the same letters.
        fs::create_dir(format!("{workspace}x")).expect("a directory can be made");
        for cwd in [
            "/".to_owned(),
            "/etc".to_owned(),
            "/root".to_owned(),
            format!("{workspace}x"),
            format!("{workspace}/way-out"),
            format!("{workspace}/up"),
            gateway.state.display().to_string(),
        ] {
            let refusal = session.command("pwd").cwd(&cwd).refusal().await;
            assert_eq!(refusal.code, Code::PermissionDenied, "{cwd}: {refusal:?}");
            assert!(!refusal.meta("rule").is_empty(), "{cwd}: a denial names its rule: {refusal:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn links_to_a_working_directory_tell_nothing_of_what_is_outside() {
    in_session(&Gateway::shared(), async |session| {
        fs::create_dir_all(session.workspace.join("deep/inner")).expect("directories can be made");
        for (target, link) in [
            ("/etc", "out"),
            ("/no/such/directory", "nowhere"),
            ("..", "up"),
            ("deep/inner", "near"),
            ("gone", "dangling"),
        ] {
            std::os::unix::fs::symlink(target, session.workspace.join(link)).expect("a link can be made");
        }
        let at = |name: &str| session.command("pwd").cwd(session.workspace.join(name));
        let mut answers = Vec::new();
        for out in ["out", "nowhere", "out/gone", "up"] {
            let mut refusal = at(out).refusal().await;
            assert_eq!(refusal.code, Code::PermissionDenied, "{out}: {refusal:?}");
            assert_eq!(refusal.meta("rule"), "session.roots", "{out}: {refusal:?}");
            refusal.message = refusal.message.replace(&format!("/{out} "), "");
            answers.push((refusal.reason, refusal.message));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
        let inner = session.workspace.join("deep/inner").canonicalize().expect("it is there");
        assert_eq!(at("near").finish().await.text().trim(), inner.display().to_string());
        assert_eq!(at("dangling").refusal().await.reason, "CWD_GONE");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_denial_names_its_exact_rule_and_a_bad_request_its_exact_field() {
    in_session(&Gateway::shared(), async |session| {
        let plain = || session.command("true");
        for (command, rule) in [
            (plain().env("LD_PRELOAD", "x"), "profile.workspace.environment.deny:LD_*"),
            (plain().cwd("/etc"), "session.roots"),
            (plain().with(|r| r.profile = "none".into()), "profile.exists"),
            (
                plain().with(|r| {
                    r.profile = "offline".into();
                    r.network = Network::Host as i32;
                }),
                "profile.offline.network.choices",
            ),
        ] {
            let refusal = command.refusal().await;
            assert_eq!((refusal.code, refusal.meta("rule")), (Code::PermissionDenied, rule), "{refusal:?}");
        }
        for (command, field) in [
            (session.command(""), "command"),
            (plain().args(["a", "b\0"]), "args[1]"),
            (plain().cwd("work"), "cwd"),
            (plain().env("A=B", "x"), "env[0].name"),
            (plain().with(|r| r.network = 77), "network"),
        ] {
            let refusal = command.refusal().await;
            assert_eq!((refusal.code, &*refusal.fields), (Code::InvalidArgument, &[field.to_owned()][..]));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn magic_links_are_no_working_directories() {
    in_session(&Gateway::shared(), async |session| {
        for cwd in ["/proc/self/fd/0", "/proc/self/fd/3", "/proc/self/cwd", "/proc/self/root", "/proc/1/root"]
        {
            let refusal = session.command("pwd").cwd(cwd).refusal().await;
            assert_eq!(refusal.code, Code::PermissionDenied, "{cwd}: {refusal:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_commands_variables_go_over_the_sessions_and_those_over_the_profiles() {
    let gateway = Gateway::shared();
    let session = Session::open_with(&gateway, gateway.caller().await, None, |request| {
        for (name, value) in [("ONLY_SESSION", "session"), ("BOTH", "session")] {
            request.env.push(EnvVar { name: name.into(), value: value.into(), ..Default::default() });
        }
    })
    .await;
    let done = session
        .command("env")
        .env("BOTH", "command")
        .env("EMPTY", "")
        .env("ODD", "a=b\n\u{e9}")
        .finish()
        .await;
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    for line in ["ONLY_SESSION=session", "BOTH=command", "EMPTY=", "ODD=a=b", "\u{e9}"] {
        assert_eq!(lines.iter().filter(|l| **l == line).count(), 1, "{line} in {lines:?}");
    }
    assert!(!text.contains("BOTH=session"), "{text}");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_of_the_gateways_environment_reaches_a_command() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let own = fs::read(format!("/proc/{}/environ", gateway.pid)).expect("root or owner can read it");
        assert!(String::from_utf8_lossy(&own).contains("PROVOST_TEST_SECRET"), "the gateway has the secret");
        let done = session.command("env").finish().await;
        assert!(!done.text().contains("PROVOST_TEST_SECRET"), "{}", done.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_variable_that_cannot_be_one_is_refused_with_its_field() {
    in_session(&Gateway::shared(), async |session| {
        for (name, value) in [("", "x"), ("A=B", "x"), ("=", "x"), ("A\0B", "x"), ("A", "x\0y")] {
            session.command("env").env(name, value).refusal().await.must_name_the_field("env");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loader_and_interpreter_hooks_are_denied_by_a_rule() {
    in_session(&Gateway::shared(), async |session| {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "BASH_ENV",
            "ENV",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "GIT_SSH_COMMAND",
            "PERL5OPT",
            "RUBYOPT",
        ] {
            let refusal = session.command("env").env(name, "x").refusal().await;
            assert_eq!(refusal.code, Code::PermissionDenied, "{name}: {refusal:?}");
            assert!(!refusal.meta("rule").is_empty(), "{name}: a denial names its rule: {refusal:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_variable_given_twice_reaches_the_command_once_at_most() {
    in_session(&Gateway::shared(), async |session| {
        match session.command("env").env("TWICE", "1").env("TWICE", "2").try_create().await {
            Err(refusal) => refusal.must_name_the_field("env"),
            Ok(terminal) => {
                terminal.wait().await;
                let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
                assert_eq!(text.lines().filter(|l| l.starts_with("TWICE=")).count(), 1, "{text}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_that_cannot_be_one_is_refused_with_its_field() {
    in_session(&Gateway::shared(), async |session| {
        session.command("").refusal().await.must_name_the_field("command");
        session.command("a\0b").refusal().await.must_name_the_field("command");
        session.command("true").args(["a\0b"]).refusal().await.must_name_the_field("args");
        session.command("echo hi").args(["more"]).shell_line().refusal().await.must_name_the_field("args");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn numbers_that_mean_nothing_are_refused_with_their_field() {
    in_session(&Gateway::shared(), async |session| {
        let negative = Some(seconds(-1));
        let garbled = Some(prost_types::Duration { seconds: 1, nanos: -5 });
        for bad in [negative, garbled] {
            session
                .command("true")
                .with(|r| r.time_limit = bad)
                .refusal()
                .await
                .must_name_the_field("time_limit");
            session
                .command("true")
                .with(|r| r.idle_limit = bad)
                .refusal()
                .await
                .must_name_the_field("idle_limit");
            session
                .command("true")
                .with(|r| r.kill_grace = bad)
                .refusal()
                .await
                .must_name_the_field("kill_grace");
        }
        session.command("true").with(|r| r.network = 99).refusal().await.must_name_the_field("network");
        session
            .command("true")
            .with(|r| r.output_mode = 99)
            .refusal()
            .await
            .must_name_the_field("output_mode");
        session.command("true").with(|r| r.stdin_mode = -1).refusal().await.must_name_the_field("stdin_mode");
        session.command("true").with(|r| r.overflow = 99).refusal().await.must_name_the_field("overflow");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_whole_line_goes_to_the_profiles_shell() {
    in_session(&Gateway::shared(), async |session| {
        let done = session.command("echo a; echo b | tr b c").shell_line().finish().await;
        assert_eq!(done.text(), "a\nc\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_profile_that_is_not_there_or_a_network_that_is_not_offered_is_denied() {
    in_session(&Gateway::shared(), async |session| {
        let refusal = session.command("true").with(|r| r.profile = "no-such-profile".into()).refusal().await;
        assert!(
            matches!(refusal.code, Code::PermissionDenied | Code::InvalidArgument | Code::NotFound),
            "{refusal:?}"
        );
    })
    .await;
    let closed = Gateway::with_policy(|policy| {
        let profiles = policy["profile"].as_table_mut().expect("profiles");
        for (_, profile) in profiles.iter_mut() {
            let network: toml::Table = "default = \"none\"\nchoices = [\"none\"]".parse().expect("TOML");
            profile.as_table_mut().expect("a table").insert("network".into(), network.into());
        }
    });
    in_session(&closed, async |session| {
        let refusal = session.command("true").with(|r| r.network = 2).refusal().await;
        assert_eq!(refusal.code, Code::PermissionDenied, "{refusal:?}");
        assert!(!refusal.meta("rule").is_empty(), "{refusal:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn arguments_arrive_byte_for_byte() {
    in_session(&Gateway::shared(), async |session| {
        let odd = ["", " ", "a b", "\n", "$HOME `x` $(y)", "'\"\\", "--", "\u{1F980}", "*"];
        let done = session.command("printf").args(["[%s]"]).args(odd).finish().await;
        let expected: String = odd.iter().map(|a| format!("[{a}]")).collect();
        assert_eq!(done.text(), expected);
    })
    .await;
}
