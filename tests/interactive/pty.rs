//! The pseudo-terminal itself: controlling terminal, job control, size, end of input, its end, its bounds.

use std::time::Instant;

use tonic::Code;

use crate::{
    interactive::keyboard::{INTERRUPT, InPty, Keyboard, LONG_GRACE, SUSPEND, shell},
    support::{
        EndOfInput, Gateway, Options, Refusal, Session,
        api::{self, ExitCause, OutputMode, Pty, StdinMode},
        code, in_session, is_root, signal_name, skip,
    },
};

#[tokio::test]
async fn a_command_has_its_terminal_by_name_as_controlling_terminal_and_nothing_else() {
    in_session(&Gateway::shared(), async |session| {
        let script = "tty; stty size; echo $TERM; \
            stat -c '%u %a' $(tty) | sed s/^$(id -u)/mine/; \
            echo through >/dev/tty; ls -l /proc/self/fd | grep -c /dev/pts/";
        let terminal = session.sh(script).pty(132, 43).create().await;
        let size = terminal.info.pty.clone().expect("it is a pseudo-terminal");
        assert_eq!((size.columns, size.rows), (132, 43));
        let receipt =
            terminal.info.receipt.clone().and_then(|receipt| receipt.pty).expect("it is in the receipt");
        assert_eq!((receipt.columns, receipt.rows), (132, 43));
        assert_eq!(code(&terminal.wait().await), 0);
        let text = terminal.output_text().await.text;
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert!(lines[0].starts_with("/dev/pts/"), "{text:?}");
        // grep has a pipe as stdin, ls has one as stdout: 0 and 2 of ls are the terminal.
        assert_eq!(lines[1..], ["43 132", "xterm-256color", "mine 600", "through", "2", ""], "{text:?}");
        let plain = session.sh("tty; echo $TERM").finish().await;
        assert_eq!(plain.text(), "not a tty\ndumb\n");
    })
    .await;
}

#[tokio::test]
async fn ctrl_c_reaches_the_foreground_group() {
    in_session(&Gateway::shared(), async |session| {
        // Not dash, which takes no signal while it starts a program, and loses it.
        let script = ["-c", "echo started; sleep 1000; echo never"];
        let terminal = session.command("bash").args(script).pty(80, 24).create().await;
        terminal.until("started").await;
        terminal.types(INTERRUPT).await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGINT", ExitCause::Signalled));
        assert!(!terminal.output_text().await.text.contains("never"));
    })
    .await;
}

#[tokio::test]
async fn a_shell_has_job_control() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = shell(session).await;
        terminal.types_until("sleep 1000\r", "sleep 1000").await;
        let stopped = stop_job(&terminal).await;
        assert!(stopped.contains("[1]+"), "{stopped:?}");
        terminal.types_until("jobs -l\r", "Stopped").await;
        terminal.types_until("bg\r", "sleep 1000 &").await;
        terminal.types_until("jobs\r", "Running").await;
        terminal.types_until("fg\r", "sleep 1000\r\n").await;
        interrupt_job(&terminal).await;
        terminal.types_until("echo code-$?\r", "code-130").await;
        terminal.types("exit 7\r").await;
        assert_eq!(code(&terminal.wait().await), 7);
    })
    .await;
}

/// Types ^Z until the job is stopped: one that comes before the job has the terminal only makes a new prompt.
async fn stop_job(terminal: &crate::support::Terminal) -> String {
    for _ in 0..200 {
        let seen = terminal.types_until(SUSPEND, "^Z").await;
        let more =
            tokio::time::timeout(std::time::Duration::from_millis(250), terminal.until("Stopped")).await;
        if let Ok(text) = more {
            return text;
        }
        drop(seen);
    }
    panic!("the job does not stop");
}

/// Types ^C until the job is ended: one that comes before the job has the terminal is the shell's.
async fn interrupt_job(terminal: &crate::support::Terminal) {
    for _ in 0..200 {
        let typed = terminal.types_until(INTERRUPT, "ready> ");
        if tokio::time::timeout(std::time::Duration::from_millis(250), typed).await.is_ok() {
            return;
        }
    }
    panic!("the job does not end");
}

#[tokio::test]
async fn a_new_size_is_seen_by_the_program_and_by_callers() {
    in_session(&Gateway::shared(), async |session| {
        let script = "trap 'stty size' WINCH; echo started; while :; do sleep 0.02 & wait $!; done";
        let terminal = session.sh(script).pty(80, 24).create().await;
        terminal.until("started").await;
        terminal.resize(100, 30).await.expect("it can be resized");
        terminal.until("30 100").await;
        let size = terminal.get().await.expect("it runs").pty.expect("it is a pseudo-terminal");
        assert_eq!((size.columns, size.rows), (100, 30));

        let pipes = session.command("sleep").args(["1000"]).create().await;
        assert_eq!(pipes.resize(80, 24).await.expect_err("it has pipes").reason, "NO_PTY");
        terminal.kill(None).await;
        terminal.wait().await;
        assert_eq!(terminal.resize(80, 24).await.expect_err("it has ended").code, Code::FailedPrecondition);
    })
    .await;
}

#[tokio::test]
async fn sizes_and_modes_that_no_terminal_has_are_refused_with_the_field() {
    in_session(&Gateway::shared(), async |session| {
        let refused = async |change: fn(&mut api::CreateTerminalRequest)| {
            let refusal = session.command("true").pty(80, 24).with(change).refusal().await;
            assert_eq!(refusal.code, Code::InvalidArgument, "{refusal:?}");
            refusal.fields.concat()
        };
        let sized = |columns, rows| session.command("true").pty(columns, rows);
        for (columns, rows, field) in [
            (1, 24, "pty.columns"),
            (1_001, 24, "pty.columns"),
            (80, 0, "pty.rows"),
            (80, 501, "pty.rows"),
            (1_000, 500, "pty.rows"),
        ] {
            sized(columns, rows).refusal().await.must_name_the_field(field);
        }
        assert!(
            refused(|r| r.pty = Some(Pty { columns: 80, rows: 24, term: "x\0".into() }))
                .await
                .starts_with("pty.term")
        );
        assert!(refused(|r| r.output_mode = OutputMode::Split as i32).await.starts_with("output_mode"));
        let twice = |r: &mut api::CreateTerminalRequest| {
            r.pty = Some(Pty { columns: 80, rows: 24, term: "vt100".into() });
            r.env.push(api::EnvVar { name: "TERM".into(), value: "xterm".into(), ..Default::default() });
        };
        assert!(refused(twice).await.starts_with("pty.term"));
        let given = |r: &mut api::CreateTerminalRequest| {
            r.pty = Some(Pty { columns: 80, rows: 24, term: "vt100".into() });
        };
        assert_eq!(session.sh("echo $TERM").with(given).finish().await.text(), "vt100\r\n");
    })
    .await;
}

#[tokio::test]
async fn term_is_judged_as_a_variable() {
    let gateway = Gateway::with_policy(|policy| {
        let deny = toml::Value::try_from(vec!["TERM"]).expect("a list");
        policy["profile"]["workspace"]["environment"]
            .as_table_mut()
            .expect("a table")
            .insert("deny".into(), deny);
    });
    in_session(&gateway, async |session| {
        let refusal = session.command("true").pty(80, 24).refusal().await;
        assert_eq!(refusal.code, Code::PermissionDenied, "{refusal:?}");
        assert!(refusal.message.contains("TERM"), "{refusal:?}");
    })
    .await;
}

#[tokio::test]
async fn the_end_of_input_is_typed() {
    in_session(&Gateway::shared(), async |session| {
        for (typed, expected) in [("line\r", "line\r\nline\r\n"), ("begun", "begunbegun")] {
            let terminal = session.command("cat").pty(80, 24).create().await;
            terminal.write(typed.as_bytes(), EndOfInput::After).await.expect("it takes input");
            assert_eq!(code(&terminal.wait().await), 0);
            let text = terminal.output_text().await.text.replace("^D\u{8}\u{8}", "");
            assert_eq!(text, expected);
        }
        // It is one character of many: the terminal goes on.
        let terminal = session.sh("cat; echo again; cat").pty(80, 24).create().await;
        terminal.write(b"", EndOfInput::After).await.expect("it takes input");
        terminal.until("again").await;
        terminal.write(b"more\r", EndOfInput::After).await.expect("it takes input still");
        assert_eq!(code(&terminal.wait().await), 0);
        let closed = |request: &mut api::CreateTerminalRequest| request.stdin_mode = StdinMode::Closed as i32;
        let terminal = session.command("cat").pty(80, 24).with(closed).create().await;
        let refusal = terminal.write(b"x", EndOfInput::NotYet).await.expect_err("nobody types there");
        assert_eq!(refusal.reason, "STDIN_CLOSED");
    })
    .await;
}

#[tokio::test]
async fn all_output_is_there_at_the_end_although_a_process_keeps_the_terminal() {
    in_session(&Gateway::shared(), async |session| {
        for script in [
            "seq 30000; exit 3",
            // Hung up and left behind, in the terminal's session and in one of its own.
            "(trap '' HUP; sleep 1000)& seq 30000; exit 3",
            "setsid sleep 1000 & seq 30000; exit 3",
        ] {
            let terminal = session.sh(script).pty(80, 24).create().await;
            let outcome = terminal.wait().await;
            assert_eq!((code(&outcome), outcome.cause()), (3, ExitCause::Exited), "{script}");
            let text = terminal.output_text().await.text;
            assert!(
                text.ends_with("29999\r\n30000\r\n"),
                "{script}: {:?}",
                &text[text.len().saturating_sub(40)..]
            );
            assert_eq!(text.lines().count(), 30_000, "{script}");
        }
    })
    .await;
}

#[tokio::test]
async fn output_goes_on_after_the_command_has_closed_its_descriptors() {
    in_session(&Gateway::shared(), async |session| {
        let script = "exec </dev/null >/dev/null 2>&1; sleep 0.3; echo back >/dev/tty";
        let done = session.sh(script).pty(80, 24).finish().await;
        assert_eq!(done.text(), "back\r\n");
    })
    .await;
}

#[tokio::test]
async fn a_shell_at_its_prompt_is_hung_up_by_a_kill() {
    in_session(&Gateway::shared(), async |session| {
        // A shell with pipes dies of TERM. At a prompt it ignores TERM, and KILL would come after the grace.
        let terminal = shell(session).await;
        terminal.types_until("sleep 1000 &\r", "ready> ").await;
        let begun = Instant::now();
        terminal.kill(Some(LONG_GRACE)).await;
        let outcome = terminal.wait().await;
        assert!(begun.elapsed() < LONG_GRACE / 2, "it was not hung up: {outcome:?}");
        assert_eq!((outcome.cause(), outcome.survivors), (ExitCause::Killed, 0), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn what_goes_on_after_it_was_hung_up_is_hung_up_again() {
    in_session(&Gateway::shared(), async |session| {
        let script =
            "trap '' TERM; trap 'echo again; trap - HUP' HUP; echo ready; while :; do sleep 0.1 & wait $!; done";
        let terminal = session.sh(script).pty(80, 24).create().await;
        terminal.until("ready").await;
        terminal.kill(Some(LONG_GRACE)).await;
        terminal.until("again").await;
        let outcome = terminal.wait().await;
        assert_eq!((outcome.cause(), signal_name(&outcome)), (ExitCause::Killed, "SIGHUP"), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn limits_hold_as_for_pipes() {
    in_session(&Gateway::shared(), async |session| {
        let soon = Some(prost_types::Duration { seconds: 0, nanos: 300_000_000 });
        let limited =
            session.command("cat").pty(80, 24).with(|request| request.time_limit = soon).create().await;
        assert_eq!(limited.wait().await.cause(), ExitCause::TimeLimit);
        let idle =
            session.command("cat").pty(80, 24).with(|request| request.idle_limit = soon).create().await;
        assert_eq!(idle.wait().await.cause(), ExitCause::IdleLimit);
        // A flood is bounded by the ring, and the newest output is kept.
        let flood = session.command("seq").args(["200000"]).pty(80, 24).retain(64 << 10).finish().await;
        assert!(
            flood.text().ends_with("200000\r\n") && flood.output.len() <= 64 << 10,
            "{}",
            flood.output.len()
        );
    })
    .await;
}

#[tokio::test]
async fn nothing_can_be_typed_into_the_terminal_by_its_programs() {
    in_session(&Gateway::shared(), async |session| {
        // That they work outside, or reach the kernel, is shown in confinement::refusals.
        for case in ["tiocsti_direct", "tioclinux_direct"] {
            let terminal = session.attack("attack").args([case]).pty(80, 24).create().await;
            terminal.wait().await;
            let text = terminal.output_text().await.text;
            assert!(text.contains("EPERM"), "{case}: {text:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_session_whose_commands_took_all_pseudo_terminals_is_refused_more() {
    in_session(&Gateway::shared(), async |session| {
        let holder = session.attack("counted").args(["hold", "pty", "4000"]).create().await;
        holder.until("64").await;
        let refusal = session.command("true").pty(80, 24).refusal().await;
        assert_eq!(
            (&*refusal.reason, refusal.code),
            ("LIMIT_REACHED", Code::ResourceExhausted),
            "{refusal:?}"
        );
        holder.kill(None).await;
        holder.wait().await;
        assert_eq!(code(&session.command("true").pty(80, 24).finish().await.outcome), 0);
        // And what ends gives its own back.
        for _ in 0..100 {
            assert_eq!(code(&session.command("true").pty(80, 24).finish().await.outcome), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_terminal_survives_a_crash_of_the_gateway_with_its_size() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let terminal = shell(&session).await;
    terminal.resize(97, 31).await.expect("it can be resized");
    terminal.types_until("variable=kept\r", "ready> ").await;
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    let size = terminal.get().await.expect("it runs").pty.expect("it is a pseudo-terminal");
    assert_eq!((size.columns, size.rows), (97, 31));
    terminal.types_until("echo value-$variable; stty size\r", "value-kept\r\n31 97").await;
    terminal.resize(80, 25).await.expect("it can be resized");
    terminal.types_until("stty size\r", "25 80").await;
    terminal.types("exit 5\r").await;
    assert_eq!(code(&terminal.wait().await), 5);
    session.close().await;
}

#[tokio::test]
async fn an_ordinary_user_has_the_same() {
    if !is_root() {
        return skip("only root can run a gateway as another user; the other tests have run as one");
    }
    let user = 4_321;
    let gateway = Gateway::start_with(Options {
        user: Some(user),
        delegated: true,
        policy: Some(|policy| {
            for profile in ["workspace", "offline"] {
                policy["profile"][profile]["limits"]["requirement"] = "prefer".into();
            }
        }),
        ..Options::default()
    });
    let session = Session::open_as(&gateway, user).await;
    let text =
        session.sh("tty; stty size; stat -c %a $(tty); echo through >/dev/tty").pty(90, 20).finish().await;
    let text = text.text();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{text:?}");
    assert_eq!(lines[1..], ["20 90", "600", "through", ""], "{text:?}");
    let script = ["-c", "echo started; sleep 1000; echo never"];
    let terminal = session.command("bash").args(script).pty(80, 24).create().await;
    terminal.until("started").await;
    terminal.types(INTERRUPT).await;
    assert_eq!(signal_name(&terminal.wait().await), "SIGINT");
    let terminal = shell(&session).await;
    let begun = Instant::now();
    terminal.kill(Some(LONG_GRACE)).await;
    assert_eq!(terminal.wait().await.cause(), ExitCause::Killed);
    assert!(begun.elapsed() < LONG_GRACE / 2);
    session.close().await;
}

#[tokio::test]
async fn the_first_terminal_is_primary_until_it_is_released_or_another_is_chosen() {
    in_session(&Gateway::shared(), async |session| {
        let primary = async || {
            let request = api::GetSessionRequest { session_id: session.id.clone() };
            let answer = session.caller.sessions.clone().get_session(request).await.expect("it is open");
            answer.into_inner().session.expect("it is set").primary_terminal_id
        };
        let choose = async |terminal: &str| {
            let request = api::SetPrimaryTerminalRequest {
                session_id: session.id.clone(),
                terminal_id: terminal.to_owned(),
            };
            let answer = session.caller.sessions.clone().set_primary_terminal(request).await;
            answer.map(drop).map_err(Refusal::from)
        };
        let pipes = session.command("cat").stdin().create().await;
        assert_eq!(primary().await, "", "a terminal with pipes is none");
        let mut terminals = Vec::new();
        for _ in 0..3 {
            terminals.push(session.command("cat").pty(80, 24).create().await);
        }
        assert_eq!(primary().await, terminals[0].id);
        choose(&terminals[2].id).await.expect("it can be chosen");
        assert_eq!(primary().await, terminals[2].id);
        terminals[2].release().await;
        assert_eq!(primary().await, terminals[0].id);
        terminals[0].release().await;
        assert_eq!(primary().await, terminals[1].id);
        assert_eq!(choose(&pipes.id).await.expect_err("it has pipes").reason, "NO_PTY");
        assert_eq!(choose(&terminals[0].id).await.expect_err("it is gone").code, Code::NotFound);
        terminals[1].release().await;
        assert_eq!(primary().await, "");
    })
    .await;
}
