//! Kept shells: each line's own output and exit status, in every shell, and the honest answer to what cannot be known.

use std::{sync::Arc, time::Duration};

use tonic::Code;

use crate::{
    interactive::{
        keyboard::{InPty, Keyboard},
        shell_line::{KeptShellCalls, kept, queued, quiet, request},
    },
    support::{
        EndOfInput, Gateway, Session, Terminal, add_rule,
        api::{
            AttachRequest, AttachStart, KeptShell, LineDoubt, LineEnding, Pty, SendInputRequest,
            ShellActivity, TerminalInput, attach_request::Message, create_terminal_request::Command,
            screens_client::ScreensClient, terminal_input::Input,
        },
        api_duration, in_session, skip, within,
    },
};

const SHELLS: [&str; 4] = ["bash", "zsh", "dash", "mksh"];

/// The shells that the sandbox has.
pub(super) async fn shells(session: &Session) -> Vec<&'static str> {
    let mut found = Vec::new();
    for shell in SHELLS {
        match session.sh(&format!("command -v {shell}")).finish().await.text().is_empty() {
            true => skip(&format!("{shell} is not in the sandbox")),
            false => found.push(shell),
        }
    }
    assert!(!found.is_empty(), "a host has a shell");
    found
}

/// Runs a test's body in a kept shell of each kind.
async fn in_each(gateway: &Arc<Gateway>, body: impl AsyncFn(&Session, &Terminal, &str)) {
    in_session(gateway, async |session| {
        for shell in shells(session).await {
            let terminal = kept(session, shell).await;
            body(session, &terminal, shell).await;
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_has_its_own_output_and_exit_status() {
    in_each(&Gateway::shared(), async |session, terminal, _| {
        let cases: &[(&str, &str, u32)] = &[
            ("echo hello", "hello\n", 0),
            ("false", "", 1),
            // The status of the line before is there, as at a prompt.
            ("echo $?", "1\n", 0),
            ("(exit 7)", "", 7),
            ("printf no-newline", "no-newline", 0),
            ("echo 'it'\"'\"'s' \"a  b\" \\! !! '$HOME'", "it's a  b ! !! $HOME\n", 0),
            ("f() { return 9; }\nf", "", 9),
            ("cat <<END\none\n two\nEND", "one\n two\n", 0),
            ("printf '%s\\n' 'tab\there' 'é€日'", "tab\there\né€日\n", 0),
            ("for i in 1 2 3; do echo $i; done; (exit 4)", "1\n2\n3\n", 4),
            ("true | (exit 3)", "", 3),
            (": # nothing", "", 0),
        ];
        for (line, output, status) in cases {
            terminal.line(line).await.must_be(output, *status);
        }
        // Directory, variables, functions and aliases stay.
        std::fs::create_dir_all(session.workspace.join("inner")).expect("a directory can be made");
        terminal.line("cd inner && X='kept value' && export Y=exported").await.must_be("", 0);
        let ran = terminal.line("echo \"$X\"; sh -c 'echo $Y'; alias hi='echo hi there'").await;
        ran.must_be("kept value\nexported\n", 0);
        assert!(ran.end.cwd.ends_with("/inner"), "{ran:?}");
        terminal.line("hi").await.must_be("hi there\n", 0);
        // What is sent elsewhere hides no mark.
        terminal.line("exec 3>&1 >/dev/null 2>&1").await.must_be("", 0);
        terminal.line("echo gone").await.must_be("", 0);
        terminal.line("exec >&3 2>&3 3>&-").await.must_be("", 0);
        // Longer than the kernel edits a line of a terminal.
        let long = "x".repeat(20_000);
        let ran = terminal.line(&format!("printf %s {long} | wc -c")).await;
        // What a shell's editor draws of a line that is longer than the screen can come after the mark of the line's begin.
        assert_eq!(ran.output.trim().lines().last(), Some("20000"), "{ran:?}");
        assert_eq!(ran.end.ending(), LineEnding::Confirmed);
        let status = terminal.waits_until(ShellActivity::Idle).await;
        assert!(status.line_id.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_syntax_error_and_an_interrupt_end_the_line_and_not_the_shell() {
    in_each(&Gateway::shared(), async |_, terminal, shell| {
        let ran = terminal.line("if true").await;
        assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{shell}: {ran:?}");
        assert_ne!(ran.end.exit_status, Some(0), "{shell}: {ran:?}");
        // What has begun has the terminal: an interrupt before that is the shell's.
        for line in ["sh -c 'echo begun; exec sleep 1000'; echo not", "echo begun; while :; do :; done"] {
            let mut running = terminal.begin(line).await;
            running.until_output("begun").await;
            assert_eq!(terminal.status().await.activity(), ShellActivity::Busy, "{shell}");
            terminal.interrupt().await;
            let ran = running.finish().await;
            assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{shell}: {ran:?}");
            // zsh has a status of its own for a loop of the shell's.
            let is_loop_of_zsh = shell == "zsh" && line.contains("while");
            assert!(ran.end.exit_status == Some(130) || is_loop_of_zsh, "{shell}: {ran:?}");
            assert!(!ran.output.contains("not"), "{shell}: {ran:?}");
        }
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_input_is_reported_and_can_be_given_it() {
    in_each(&Gateway::shared(), async |_, terminal, shell| {
        // A program of the line reads.
        let mut running = terminal.begin("head -n 1").await;
        running.until_it_waits().await;
        assert_eq!(terminal.status().await.activity(), ShellActivity::WaitingForInput, "{shell}");
        terminal.give(&running.id, "given\r").await.expect("the line runs");
        let other = terminal.give("0123456789abcdef", "x").await.expect_err("it is another line");
        assert_eq!(other.reason, "LINE_OVER");
        let ran = running.finish().await;
        assert_eq!(
            (ran.end.ending(), ran.end.exit_status),
            (LineEnding::Confirmed, Some(0)),
            "{shell}: {ran:?}"
        );
        assert!(ran.output.ends_with("given\r\n"), "{shell}: {ran:?}");
        // The shell itself reads: it looks as at a prompt, and only the time without output ends the call.
        let ran = terminal.line_with("read answer", quiet).await;
        assert_eq!(ran.end.ending(), LineEnding::Quiet, "{shell}: {ran:?}");
        assert!(ran.waited && ran.end.exit_status.is_none(), "{shell}: {ran:?}");
        assert!(ran.has_doubt(LineDoubt::MarksMissing), "{shell}: {ran:?}");
        let busy = terminal.try_line(request(terminal, "echo too early")).await.err().expect("it reads");
        assert_eq!((busy.code, busy.reason.as_str()), (Code::FailedPrecondition, "SHELL_BUSY"));
        // Its input is free again.
        terminal.types("by hand\r").await;
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.line("echo \"$answer\"").await.must_be("by hand\n", 0);
        // Or it is interrupted.
        let mut running = terminal.begin("read answer").await;
        running.until_it_waits().await;
        terminal.interrupt().await;
        assert_eq!(running.finish().await.end.ending(), LineEnding::Confirmed, "{shell}");
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_is_left_is_told_as_such() {
    in_session(&Gateway::shared(), async |session| {
        for shell in shells(session).await {
            let terminal = kept(session, shell).await;
            let ran = terminal.line("echo last; exit 5").await;
            assert_eq!(ran.end.ending(), LineEnding::ShellEnded, "{shell}: {ran:?}");
            assert_eq!(ran.end.exit_status, Some(5), "{shell}: {ran:?}");
            assert!(ran.output.starts_with("last"), "{shell}: {ran:?}");
            assert_eq!(terminal.status().await.activity(), ShellActivity::Ended);
            let ended = terminal.try_line(request(&terminal, "echo x")).await.err().expect("it has ended");
            assert_eq!(ended.reason, "COMMAND_ENDED");
            terminal.release().await;
            // Another program in its place ends with it, and is known as another one while it waits.
            let terminal = kept(session, shell).await;
            let ran = terminal.line_with("exec cat", quiet).await;
            assert_eq!(ran.end.ending(), LineEnding::Quiet, "{shell}: {ran:?}");
            assert!(ran.has_doubt(LineDoubt::ShellReplaced), "{shell}: {ran:?}");
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_marks_end_no_line_and_are_reported() {
    in_each(&Gateway::shared(), async |session, terminal, shell| {
        // Marks with the line's own nonce: a line can read what was typed to run it, here from the terminal's own output by its
        // caller, who puts it into a file.
        let mut running = terminal.begin("while [ ! -s nonce ]; do sleep 0.1; done; n=$(cat nonce); printf '\\033]7711;E;%s;0;/\\007' \"$n\"; sleep 1; echo after; rm nonce; (exit 6)").await;
        std::fs::write(session.workspace.join("nonce"), &running.id).expect("it can be written");
        running.until_output("after").await;
        let ran = running.finish().await;
        assert_eq!((ran.end.ending(), ran.end.exit_status), (LineEnding::Confirmed, Some(6)), "{shell}: {ran:?}");
        assert!(ran.has_doubt(LineDoubt::MarksFalse), "{shell}: {ran:?}");
        // An answer to a question that nobody has asked.
        let ran = terminal.line("printf '\\033]7711;A;0011223344556677;0;/\\007'; (exit 8)").await;
        assert_eq!((ran.end.ending(), ran.end.exit_status), (LineEnding::Confirmed, Some(8)), "{shell}: {ran:?}");
        assert!(ran.has_doubt(LineDoubt::MarksFalse), "{shell}: {ran:?}");
        // A line that takes the marks away.
        let ran = terminal.line_with("_provost() { :; }; PS1='$ '", quiet).await;
        assert_eq!(ran.end.ending(), LineEnding::Quiet, "{shell}: {ran:?}");
        assert!(ran.has_doubt(LineDoubt::MarksMissing), "{shell}: {ran:?}");
        // They come back after an interrupt.
        terminal.interrupt().await;
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_jobs_and_whole_screens_are_no_surprise() {
    in_each(&Gateway::shared(), async |_, terminal, shell| {
        let ran = terminal.line("sleep 1000 & echo begun").await;
        assert_eq!(
            (ran.end.ending(), ran.end.exit_status),
            (LineEnding::Confirmed, Some(0)),
            "{shell}: {ran:?}"
        );
        assert!(ran.output.contains("begun"), "{shell}: {ran:?}");
        let ran = terminal.line("kill -KILL $!; wait; echo over").await;
        assert!(ran.output.contains("over"), "{shell}: {ran:?}");
        // A program that takes the whole screen and gives it back.
        let ran = terminal.line("printf '\\033[?1049h\\033[Hfull\\033[?1049l'; (exit 2)").await;
        assert_eq!(
            (ran.end.ending(), ran.end.exit_status),
            (LineEnding::Confirmed, Some(2)),
            "{shell}: {ran:?}"
        );
        assert!(ran.has_doubt(LineDoubt::FullScreen), "{shell}: {ran:?}");
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_line_runs_nobody_else_types_and_a_second_line_is_refused_or_waits() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = kept(session, "bash").await;
        terminal.write(b"", EndOfInput::NotYet).await.expect("the input is free");
        let mut running = terminal.begin("echo begun; head -n 1").await;
        running.until_output("begun").await;
        let refused = terminal.write(b"x", EndOfInput::NotYet).await.expect_err("a line runs");
        assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "LINE_RUNNING"));
        let mut screens = ScreensClient::new(terminal.caller.channel());
        let inputs = vec![TerminalInput { input: Some(Input::Text("x".into())) }];
        let typed = SendInputRequest { terminal_id: terminal.id.clone(), inputs, ..Default::default() };
        let refused = within("SendInput", screens.send_input(typed)).await.expect_err("a line runs");
        assert_eq!(crate::support::Refusal::from(refused).reason, "LINE_RUNNING");
        assert_eq!(attached_input(&terminal).await, "LINE_RUNNING");
        let busy = terminal.try_line(request(&terminal, "echo second")).await.err().expect("one runs");
        assert_eq!(busy.reason, "SHELL_BUSY");
        let mut waiting = request(&terminal, "echo second");
        queued(&mut waiting);
        let waiting = {
            let (terminal, caller) = (terminal.over(&terminal.caller), terminal.caller.clone());
            tokio::spawn(async move {
                terminal.over(&caller).try_line(waiting).await.expect("its turn comes").finish().await
            })
        };
        within("one that waits", async {
            while terminal.status().await.queued_lines == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        terminal.give(&running.id, "go\r").await.expect("the line runs");
        assert_eq!(running.finish().await.end.exit_status, Some(0));
        waiting.await.expect("it is not aborted").must_be("second\n", 0);
        // A person has typed half a line, and a line of a person's own.
        terminal.types("echo half").await;
        terminal.line("echo whole").await.must_be("whole\n", 0);
        terminal.types_until("sh -c 'echo job-$((1 + 1)); exec sleep 1000'\r", "job-2").await;
        terminal.waits_until(ShellActivity::Busy).await;
        let busy = terminal.try_line(request(&terminal, "echo x")).await.err().expect("a program runs");
        assert_eq!(busy.reason, "SHELL_BUSY");
        terminal.types("\u{3}").await;
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

/// The reason for which an attached caller's keys are refused.
async fn attached_input(terminal: &Terminal) -> String {
    let (messages, received) = tokio::sync::mpsc::channel(4);
    let start = AttachStart { terminal_id: terminal.id.clone(), ..AttachStart::default() };
    for message in [Message::Start(start), Message::Input(b"x".to_vec().into())] {
        messages.send(AttachRequest { message: Some(message) }).await.expect("it is held");
    }
    let mut terminals = terminal.caller.terminals.clone();
    let received = tokio_stream::wrappers::ReceiverStream::new(received);
    let mut events = within("Attach", terminals.attach(received)).await.expect("it is attached").into_inner();
    loop {
        match within("an event", events.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ends without a reason"),
            Err(status) => return crate::support::Refusal::from(status).reason,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_shell_with_a_gate_and_a_terminal_is_kept_and_only_there_lines_run() {
    in_session(&Gateway::shared(), async |session| {
        let plain = session.command("sleep").args(["1000"]).create().await;
        let refused = plain.try_line(request(&plain, "echo x")).await.err().expect("it is no shell");
        assert_eq!(refused.reason, "NOT_A_KEPT_SHELL");
        let keep = |request: &mut crate::support::api::CreateTerminalRequest| {
            request.kept_shell = Some(KeptShell {});
        };
        session.command("bash").with(keep).refusal().await.must_name_the_field("pty");
        let with_pty = |request: &mut crate::support::api::CreateTerminalRequest| {
            request.kept_shell = Some(KeptShell {});
            request.pty = Some(Pty { columns: 80, rows: 24, ..Pty::default() });
        };
        session.command("cat").with(with_pty).refusal().await.must_name_the_field("command");
        session.command("bash").args(["-c", "x"]).with(with_pty).refusal().await.must_name_the_field("args");
        let line = |request: &mut crate::support::api::CreateTerminalRequest| {
            with_pty(request);
            request.command = Some(Command::ShellLine("echo".into()));
        };
        session.command("bash").with(line).refusal().await.must_name_the_field("command");
        // The profile's shell, without a name.
        let terminal = kept(session, "").await;
        terminal.line("echo $((1 + 1))").await.must_be("2\n", 0);
        for (bad, field) in [("", "line"), ("a\0b", "line")] {
            let refused = terminal.try_line(request(&terminal, bad)).await.err().expect("it is no line");
            refused.must_name_the_field(field);
        }
    })
    .await;
    let gateway = Gateway::with_policy(|policy| {
        policy["profile"]["workspace"]["gate"]["enabled"] = toml::Value::Boolean(false);
    });
    in_session(&gateway, async |session| {
        let terminal = kept(session, "bash").await;
        let refused = terminal.try_line(request(&terminal, "echo x")).await.err().expect("there is no gate");
        assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "NO_EXEC_GATE"));
    })
    .await;
    gateway.stop();
}

fn with_denied_program(policy: &mut toml::Table) {
    add_rule(policy, "id = 'no-id'\ndecision = 'deny'\nargv = ['id', '**']");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_judged_first_and_what_earlier_lines_renamed_is_judged_at_its_exec() {
    // Without the rule the program runs under every name.
    in_each(&Gateway::shared(), async |_, terminal, shell| {
        terminal.line("alias harmless='id -u'; also() { id -u; }").await.must_be("", 0);
        for line in ["id -u", "harmless", "also"] {
            let ran = terminal.line(line).await;
            assert_eq!(ran.end.exit_status, Some(0), "{shell}: {ran:?}");
            assert!(ran.output.trim().parse::<u32>().is_ok(), "{shell}: {ran:?}");
        }
    })
    .await;
    let gateway = Gateway::with_policy(with_denied_program);
    in_each(&gateway, async |_, terminal, shell| {
        let denied =
            terminal.try_line(request(terminal, "echo x; id -u")).await.err().expect("a rule denies it");
        assert_eq!((denied.code, denied.meta("rule")), (Code::PermissionDenied, "no-id"), "{shell}");
        terminal.line("alias harmless='echo no'; also() { echo no; }").await.must_be("", 0);
        // What the reader of lines cannot see: the name comes from a variable.
        terminal.line("a=i; b=d; alias harmless=\"$a$b -u\"; eval \"also() { $a$b -u; }\"").await;
        for line in ["harmless", "also"] {
            let ran = terminal.line(line).await;
            assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{shell}: {ran:?}");
            assert_ne!(ran.end.exit_status, Some(0), "{shell}: {ran:?}");
            // What `id -u` writes.
            let is_number = |line: &str| !line.is_empty() && line.chars().all(|c| c.is_ascii_digit());
            assert!(!ran.output.lines().map(str::trim).any(is_number), "{shell}: {ran:?}");
        }
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
    gateway.stop();
}

/// Rules that give effects to `basename NAME`, and what each of them gives.
const EFFECTS: [(&str, &str); 7] = [
    ("profile", "profile = 'offline'"),
    ("secrets", "secrets = ['TOKEN']"),
    ("environment", "environment = { GIVEN = 'by-a-rule' }"),
    ("time_limit", "time_limit = '1h'"),
    ("idle_limit", "idle_limit = '1h'"),
    ("limits", "limits = { pids = 9 }"),
    ("network", "profile = 'hosts'"),
];

fn with_effects(policy: &mut toml::Table) {
    use std::fmt::Write as _;
    let mut text = String::from(
        "[secrets.TOKEN]\nfile = '/nowhere/token'\n\
         [profile.hosts]\nextends = 'workspace'\nnetwork = { default = 'host', choices = ['host'] }\n",
    );
    for (name, effects) in EFFECTS {
        writeln!(text, "[[rule]]\nid = 'with-{name}'\ndecision = 'allow'\nargv = ['basename', '{name}']")
            .and_then(|()| writeln!(text, "effects = {{ {effects} }}"))
            .expect("a string takes it");
    }
    let mut more: toml::Table = text.parse().expect("it is TOML");
    let rules = more.remove("rule").expect("there are rules");
    let rules = rules.as_array().expect("they are a list").clone();
    policy["rule"].as_array_mut().expect("there are rules").extend(rules);
    let profiles = more["profile"].as_table().expect("there is a profile").clone();
    policy["profile"].as_table_mut().expect("there are profiles").extend(profiles);
    policy.insert("secrets".into(), more["secrets"].clone());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_rules_give_what_the_shell_does_not_have_is_refused() {
    let gateway = Gateway::with_policy(with_effects);
    in_session(&gateway, async |session| {
        // Not the shell's profile, and then the profile's shell: the two ways in which lines are judged.
        for shell in ["bash", ""] {
            let terminal = kept(session, shell).await;
            for (name, _) in EFFECTS {
                // A terminal of its own can have it. The file of the secret is missing, and ordinary users have no host's network.
                if !["secrets", "network"].contains(&name) {
                    let own = session.command("basename").args([name]).finish().await;
                    assert_eq!(own.text(), format!("{name}\n"));
                }
                for line in [format!("basename {name}"), format!("cd . && basename {name}")] {
                    let refused = terminal.try_line(request(&terminal, &line)).await.err().expect(name);
                    if name == "network" {
                        assert_eq!(refused.code, Code::PermissionDenied, "{refused:?}");
                        continue;
                    }
                    assert_eq!(refused.code, Code::FailedPrecondition, "{line}: {refused:?}");
                    assert_eq!(refused.reason, "LINE_NEEDS_OTHER_TERMINAL", "{line}: {refused:?}");
                    assert_eq!(refused.meta("effects"), name, "{line}: {refused:?}");
                    assert!(refused.message.contains(name), "{refused:?}");
                }
            }
            // Nothing has run, and the shell is free.
            terminal.line("echo \"${GIVEN:-none}\"").await.must_be("none\n", 0);
            terminal.line("basename other").await.must_be("other\n", 0);
            terminal.release().await;
        }
        // A shell that must end sooner than the rules want lets no line run longer than they want.
        let limited = session.command("bash").pty(80, 24).with(|request| {
            request.kept_shell = Some(KeptShell {});
            request.time_limit = Some(api_duration(Duration::from_secs(3_000)));
        });
        let terminal = limited.create().await;
        terminal.line("basename time_limit").await.must_be("time_limit\n", 0);
        let refused = terminal.try_line(request(&terminal, "basename idle_limit")).await.err();
        assert_eq!(refused.expect("it has no such limit").meta("effects"), "idle_limit");
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_files_that_a_command_wrote_are_not_read() {
    const FILES: &str = ".bashrc .bash_profile .profile .zshrc .zshenv .mkshrc .kshrc .shrc .inputrc";
    in_each(&Gateway::shared(), async |session, terminal, shell| {
        let poison = format!("for f in {FILES}; do echo 'echo poisoned; poison=yes' >~/$f && printf x; done");
        assert_eq!(session.sh(&poison).finish().await.text().trim(), "x".repeat(9));
        // A shell that is started as ever does read one.
        let usual = session.command("bash").args(["-i", "-c", "echo $poison"]).finish().await;
        assert!(usual.text().contains("yes"), "{}", usual.text());
        let fresh = kept(session, shell).await;
        fresh.line("echo \"${poison:-clean}\"").await.must_be("clean\n", 0);
        assert!(!fresh.output_text().await.text.contains("poisoned"), "{shell}");
        fresh.release().await;
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_shell_and_its_line_outlive_caller_and_gateway() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let mut kept_ones = Vec::new();
    for shell in shells(&session).await {
        let terminal = kept(&session, shell).await;
        terminal.line("cd /tmp && X=kept").await.must_be("", 0);
        // A caller who goes away ends nothing.
        let line = format!("echo begun; while [ ! -e go-{shell} ]; do sleep 0.1; done; echo over");
        let mut gone = terminal.begin(&line).await;
        gone.until_output("begun").await;
        drop(gone);
        kept_ones.push((shell, terminal));
    }
    gateway.crash();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    for (shell, terminal) in kept_ones {
        let terminal = terminal.over(&session.caller);
        assert_eq!(terminal.status().await.activity(), ShellActivity::Busy, "{shell}");
        let busy = terminal.try_line(request(&terminal, "echo x")).await.err().expect("the line runs");
        assert_eq!(busy.reason, "SHELL_BUSY", "{shell}");
        let go = session.sh(&format!("touch /tmp/go-{shell}")).finish().await;
        assert_eq!(crate::support::code(&go.outcome), 0);
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.line("echo \"$X $PWD\"").await.must_be("kept /tmp\n", 0);
        assert!(terminal.output_text().await.text.contains("over"), "{shell}: the output is there");
    }
    session.close().await;
    gateway.stop();
}

/// The line of this number, with what it writes and how it exits.
fn numbered(number: u32) -> (String, String, u32) {
    let status = number * 7 % 256;
    match number % 8 {
        0 => (format!("printf 'n%s' {number}; (exit {status})"), format!("n{number}"), status),
        1 => (format!("echo {number}; sh -c 'exit {status}'"), format!("{number}\n"), status),
        2 => (format!("V={number}; (exit {status})"), String::new(), status),
        3 => (format!("echo \"$V\"; sleep 0.01 & (exit {status})"), String::new(), status),
        4 => (format!("f() {{ echo in-{number}; return {status}; }}; f"), format!("in-{number}\n"), status),
        5 => (format!("cat <<END\n{number}\nEND\n(exit {status})"), format!("{number}\n"), status),
        6 => (format!("wait; seq 1 {number} | tail -n 1"), String::new(), 0),
        _ => (format!("(echo out; echo err >&2; exit {status})"), "out\nerr\n".into(), status),
    }
}

async fn many_lines(lines: u32) {
    in_each(&Gateway::shared(), async |_, terminal, shell| {
        for number in 1..=lines {
            let (line, output, status) = numbered(number);
            let ran = terminal.line(&line).await;
            assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{shell} {number}: {ran:?}");
            assert_eq!(ran.end.doubts().count(), 0, "{shell} {number}: {ran:?}");
            assert_eq!(ran.end.exit_status, Some(status), "{shell} {number}: {ran:?}");
            match number % 8 {
                // With words of the shell's own about its jobs.
                3 => assert!(ran.output.contains(&(number - 1).to_string()), "{shell} {number}: {ran:?}"),
                6 => assert!(ran.output.ends_with(&format!("{number}\r\n")), "{shell} {number}: {ran:?}"),
                // zsh reports jobs that have ended at any time.
                _ => {
                    let lines = ran.output.split_inclusive("\r\n").filter(|line| !line.starts_with('['));
                    let own = lines.collect::<String>().replace("\r\n", "\n");
                    assert_eq!(own, output, "{shell} {number}: {ran:?}");
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: 1,000 lines in each of four shells; fish has its own"]
async fn a_thousand_lines_in_each_shell_are_answered_rightly() {
    many_lines(1_000).await;
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn forty_lines_in_each_shell_are_answered_rightly() {
        many_lines(40).await;
    }
}
