//! fish as a kept shell: what the other shells are shown to do, in a grammar of its own and with an editor that cannot be turned off.

use crate::support::lacks;
use std::sync::Arc;

use tonic::Code;

use crate::{
    interactive::{
        keyboard::Keyboard,
        shell_line::{KeptShellCalls, Ran, kept, quiet, request},
    },
    support::{
        Gateway, Session, Terminal, add_rule,
        api::{LineDoubt, LineEnding, ShellActivity},
        in_session, skip,
    },
};

/// Runs a test's body in a kept fish, if the sandbox has one.
async fn in_fish(gateway: &Arc<Gateway>, body: impl AsyncFn(&Session, &Terminal)) {
    in_session(gateway, async |session| {
        if session.sh("command -v fish").finish().await.text().is_empty() {
            return skip("fish is not in the sandbox");
        }
        let terminal = kept(session, "fish").await;
        body(session, &terminal).await;
        terminal.release().await;
    })
    .await;
}

/// What the line wrote, without the words of the shell's own editor.
fn must_end(ran: &Ran, status: u32) {
    assert_eq!((ran.end.ending(), ran.end.exit_status), (LineEnding::Confirmed, Some(status)), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_of_fish_has_its_own_output_and_exit_status() {
    in_fish(&Gateway::shared(), async |session, terminal| {
        let cases: &[(&str, &str, u32)] = &[
            ("echo hello", "hello\n", 0),
            ("false", "", 1),
            ("echo $status", "1\n", 0),
            ("sh -c 'exit 7'", "", 7),
            ("printf no-newline", "no-newline", 0),
            (r#"echo 'it\'s' "a  b" \\ \! '$HOME' "\$x""#, "it's a  b \\ ! $HOME $x\n", 0),
            ("function f; return 9; end\nf", "", 9),
            ("begin\n  echo one\n    echo ' two'\nend", "one\n two\n", 0),
            ("printf '%s\\n' 'tab\there' 'é€日'", "tab\there\né€日\n", 0),
            ("for i in 1 2 3; echo $i; end; sh -c 'exit 4'", "1\n2\n3\n", 4),
            ("true; and echo yes; or echo no", "yes\n", 0),
            ("not true", "", 1),
            ("echo (echo inner | tr a-z A-Z)", "INNER\n", 0),
            ("if test 1 -eq 2\n  echo never\nelse\n  echo else\nend", "else\n", 0),
            ("true # nothing", "", 0),
        ];
        for (line, output, status) in cases {
            terminal.line(line).await.must_be(output, *status);
        }
        std::fs::create_dir_all(session.workspace.join("inner")).expect("a directory can be made");
        terminal.line("cd inner; and set -g X 'kept value'; and set -gx Y exported").await.must_be("", 0);
        let ran = terminal.line("echo $X; sh -c 'echo $Y'; alias hi='echo hi there'").await;
        ran.must_be("kept value\nexported\n", 0);
        assert!(ran.end.cwd.ends_with("/inner"), "{ran:?}");
        terminal.line("hi").await.must_be("hi there\n", 0);
        // Longer than the kernel edits a line of a terminal, as one word and as many.
        for (word, count) in [("x".repeat(20_000), 20_000), ("ab ".repeat(1_500), 4_499)] {
            let ran = terminal.line(&format!("printf %s (string trim '{word}') | wc -c")).await;
            assert_eq!(ran.output.trim(), count.to_string(), "{ran:?}");
            assert_eq!(ran.end.ending(), LineEnding::Confirmed);
        }
        let status = terminal.waits_until(ShellActivity::Idle).await;
        assert!(status.line_id.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_syntax_error_and_an_interrupt_end_the_line_and_not_fish() {
    in_fish(&Gateway::shared(), async |_, terminal| {
        for wrong in ["if true", "echo )", "'", "end"] {
            let ran = terminal.line(wrong).await;
            assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{wrong}: {ran:?}");
            assert_ne!(ran.end.exit_status, Some(0), "{wrong}: {ran:?}");
        }
        for line in ["sh -c 'echo begun; exec sleep 1000'; echo not", "echo begun; while true; end"] {
            let mut running = terminal.begin(line).await;
            running.until_output("begun").await;
            assert_eq!(terminal.status().await.activity(), ShellActivity::Busy, "{line}");
            terminal.interrupt().await;
            let ran = running.finish().await;
            must_end(&ran, 130);
            assert!(!ran.output.contains("not"), "{ran:?}");
        }
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_input_in_fish_is_reported_and_can_be_given_it() {
    in_fish(&Gateway::shared(), async |_, terminal| {
        let mut running = terminal.begin("head -n 1").await;
        running.until_it_waits().await;
        assert_eq!(terminal.status().await.activity(), ShellActivity::WaitingForInput);
        terminal.give(&running.id, "given\r").await.expect("the line runs");
        let ran = running.finish().await;
        must_end(&ran, 0);
        assert!(ran.output.ends_with("given\r\n"), "{ran:?}");
        // fish itself reads, with its editor.
        let ran = terminal.line_with("read answer", quiet).await;
        assert_eq!(ran.end.ending(), LineEnding::Quiet, "{ran:?}");
        assert!(ran.waited && ran.end.exit_status.is_none(), "{ran:?}");
        assert!(ran.has_doubt(LineDoubt::MarksMissing), "{ran:?}");
        let busy = terminal.try_line(request(terminal, "echo too early")).await.err().expect("it reads");
        assert_eq!((busy.code, busy.reason.as_str()), (Code::FailedPrecondition, "SHELL_BUSY"));
        terminal.types("by hand\r").await;
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.line("echo $answer").await.must_be("by hand\n", 0);
        let mut running = terminal.begin("read answer").await;
        running.until_it_waits().await;
        terminal.interrupt().await;
        assert_eq!(running.finish().await.end.ending(), LineEnding::Confirmed);
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fish_that_is_left_or_replaced_is_told_as_such() {
    in_fish(&Gateway::shared(), async |session, terminal| {
        let ran = terminal.line("echo last; exit 5").await;
        assert_eq!((ran.end.ending(), ran.end.exit_status), (LineEnding::ShellEnded, Some(5)), "{ran:?}");
        assert!(ran.output.starts_with("last"), "{ran:?}");
        assert_eq!(terminal.status().await.activity(), ShellActivity::Ended);
        let other = kept(session, "fish").await;
        let ran = other.line_with("exec cat", quiet).await;
        assert_eq!(ran.end.ending(), LineEnding::Quiet, "{ran:?}");
        assert!(ran.has_doubt(LineDoubt::ShellReplaced), "{ran:?}");
        other.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_marks_end_no_line_of_fish_and_are_reported() {
    in_fish(&Gateway::shared(), async |session, terminal| {
        let forging = r"while not test -s nonce; sleep 0.1; end; printf '\e]7711;E;%s;0;/\a' (cat nonce); sleep 1; echo after; rm nonce; sh -c 'exit 6'";
        let mut running = terminal.begin(forging).await;
        std::fs::write(session.workspace.join("nonce"), &running.id).expect("it can be written");
        running.until_output("after").await;
        let ran = running.finish().await;
        must_end(&ran, 6);
        assert!(ran.has_doubt(LineDoubt::MarksFalse), "{ran:?}");
        let ran = terminal.line(r"printf '\e]7711;A;0011223344556677;0;/\a'; sh -c 'exit 8'").await;
        must_end(&ran, 8);
        assert!(ran.has_doubt(LineDoubt::MarksFalse), "{ran:?}");
        // A line that takes the marks away.
        let ran = terminal.line_with("function _provost; end; function fish_prompt; end", quiet).await;
        assert_eq!(ran.end.ending(), LineEnding::Quiet, "{ran:?}");
        assert!(ran.has_doubt(LineDoubt::MarksMissing), "{ran:?}");
        terminal.interrupt().await;
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_keys_and_abbreviations_of_a_line_change_no_later_line() {
    in_fish(&Gateway::shared(), async |_, terminal| {
        // Hooks of fish's own, which write around every line.
        for event in ["fish_preexec", "fish_postexec", "fish_prompt"] {
            terminal.line(&format!("function on_{event} --on-event {event}; echo from-{event}; end")).await;
        }
        terminal.line("echo quiet; false").await.must_be("quiet\n", 1);
        assert!(terminal.output_text().await.text.contains("from-fish_postexec"), "the hooks run");
        // The keys of its editor, its abbreviations, and its other set of keys.
        terminal
            .line("abbr -a hi 'echo no'; abbr -a _p --position anywhere no; fish_default_key_bindings")
            .await;
        terminal.line("echo hi").await.must_be("hi\n", 0);
        terminal.line("fish_vi_key_bindings").await;
        terminal.line("echo 'x  y'").await.must_be("x  y\n", 0);
        // A person has typed half a line. The prompt is there a moment after the end of the line before it.
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.types("echo half").await;
        terminal.line("echo whole").await.must_be("whole\n", 0);
        // In several rows it looks like what a program has written, until it is taken away.
        terminal.types_until("begin\recho in-it", "in-it").await;
        let busy = terminal.try_line(request(terminal, "echo x")).await.err().expect("a person edits");
        assert_eq!(busy.reason, "SHELL_BUSY");
        terminal.interrupt().await;
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.line("echo whole again").await.must_be("whole again\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_jobs_and_whole_screens_are_no_surprise_in_fish() {
    in_fish(&Gateway::shared(), async |_, terminal| {
        let ran = terminal.line("sleep 1000 & ; echo begun").await;
        must_end(&ran, 0);
        assert!(ran.output.contains("begun"), "{ran:?}");
        let ran = terminal.line("kill -KILL $last_pid; wait; echo over").await;
        assert!(ran.output.contains("over"), "{ran:?}");
        let ran = terminal.line(r"printf '\e[?1049h\e[Hfull\e[?1049l'; sh -c 'exit 2'").await;
        must_end(&ran, 2);
        assert!(ran.has_doubt(LineDoubt::FullScreen), "{ran:?}");
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

fn with_denied_program(policy: &mut toml::Table) {
    add_rule(policy, "id = 'no-id'\ndecision = 'deny'\nargv = ['id', '**']");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lines_of_fish_rename_is_judged_at_its_exec() {
    const LINES: [&str; 5] = ["id -u", "harmless", "also", "echo (id -u)", "begin; id -u; end | cat"];
    let is_number = |line: &str| !line.is_empty() && line.chars().all(|c| c.is_ascii_digit());
    let shows_id = |ran: &Ran| ran.output.lines().map(str::trim).any(is_number);
    // Without the rule the program runs under every name.
    in_fish(&Gateway::shared(), async |_, terminal| {
        terminal.line("alias harmless='id -u'; function also; id -u; end").await.must_be("", 0);
        for line in LINES {
            let ran = terminal.line(line).await;
            assert!(shows_id(&ran), "{line}: {ran:?}");
        }
    })
    .await;
    let gateway = Gateway::with_policy(with_denied_program);
    in_fish(&gateway, async |_, terminal| {
        terminal
            .line("set a i; set b d; alias harmless=\"$a$b -u\"; eval \"function also; $a$b -u; end\"")
            .await;
        for line in LINES {
            let ran = match terminal.try_line(request(terminal, line)).await {
                Err(denied) => {
                    assert_eq!(
                        (denied.code, denied.meta("rule")),
                        (Code::PermissionDenied, "no-id"),
                        "{line}"
                    );
                    continue;
                }
                Ok(running) => running.finish().await,
            };
            assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{line}: {ran:?}");
            assert!(!shows_id(&ran), "{line}: {ran:?}");
        }
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
    gateway.stop();
}

/// For sh it echoes two words. For fish a quoted quote ends no word, and `id` is a command.
const TWO_READINGS: &str = r"echo 'a\' 'b; id -u #'";

fn without_gate(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["shell"] = toml::Value::String("/usr/bin/fish".into());
    policy["profile"]["workspace"]["gate"]["enabled"] = toml::Value::Boolean(false);
}

fn without_gate_or_id(policy: &mut toml::Table) {
    without_gate(policy);
    with_denied_program(policy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_for_fish_is_not_read_as_one_for_sh() {
    if lacks(&["fish"]) {
        return;
    }
    // What fish makes of it, where it may run.
    in_fish(&Gateway::shared(), async |session, _| {
        let ran = session.command("fish").args(["--no-config", "-c", TWO_READINGS]).finish().await.text();
        assert!(ran.trim().lines().last().is_some_and(|line| line.parse::<u32>().is_ok()), "{ran}");
        let as_sh = session.sh(TWO_READINGS).finish().await.text();
        assert!(as_sh.trim().ends_with("b; id -u #"), "{as_sh}");
    })
    .await;
    // Without a gate the line is all that can be judged.
    let gateway = Gateway::with_policy(without_gate_or_id);
    in_session(&gateway, async |session| {
        let refuse = |request: &mut crate::support::api::CreateTerminalRequest| {
            request.on_ask = crate::support::api::OnAsk::Refuse.into();
        };
        let asked = session.command(TWO_READINGS).shell_line().with(refuse).refusal().await;
        assert_eq!(
            (asked.code, asked.reason.as_str()),
            (Code::PermissionDenied, "APPROVAL_REQUIRED"),
            "{asked:?}"
        );
        let asked = session.command("fish").args(["-c", TWO_READINGS]).with(refuse).refusal().await;
        assert_eq!(
            (asked.code, asked.reason.as_str()),
            (Code::PermissionDenied, "APPROVAL_REQUIRED"),
            "{asked:?}"
        );
        let denied = session.command("id -u; true").shell_line().refusal().await;
        assert_eq!((denied.code, denied.meta("rule")), (Code::PermissionDenied, "no-id"), "{denied:?}");
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_files_and_variables_that_a_command_wrote_are_not_read_by_fish() {
    in_fish(&Gateway::shared(), async |session, terminal| {
        let poison = "mkdir -p ~/.config/fish/conf.d ~/.config/fish/functions
            echo 'echo poisoned; set -g poison yes' >~/.config/fish/config.fish
            cp ~/.config/fish/config.fish ~/.config/fish/conf.d/a.fish
            echo 'function ls; echo poisoned; end' >~/.config/fish/functions/ls.fish
            fish -c 'set -U poisoned_everywhere yes'";
        session.sh(poison).finish().await;
        // A fish that is started as ever does read them.
        let usual = session.command("fish").args(["-i", "-c", "echo $poison $poisoned_everywhere; ls"]);
        let usual = usual.finish().await.text();
        assert!(usual.contains("yes yes") && usual.matches("poisoned").count() >= 2, "{usual}");
        let fresh = kept(session, "fish").await;
        fresh.line("echo \"$poison$poisoned_everywhere-clean\"").await.must_be("-clean\n", 0);
        fresh.line("ls -d /").await;
        assert!(
            !fresh.output_text().await.text.contains("poisoned\r"),
            "{:?}",
            fresh.output_text().await.text
        );
        fresh.release().await;
        // Its own lines are kept in no file.
        terminal.line("echo once-only").await.must_be("once-only\n", 0);
        let found = session.sh("grep -rl once-only ~/.local ~/.config 2>/dev/null").finish().await.text();
        assert_eq!(found, "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_fish_and_its_line_outlive_the_gateway() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    if session.sh("command -v fish").finish().await.text().is_empty() {
        skip("fish is not in the sandbox");
    } else {
        let terminal = kept(&session, "fish").await;
        terminal.line("cd /tmp; and set -g X kept").await.must_be("", 0);
        let mut gone = terminal.begin("echo begun; while not test -e go; sleep 0.1; end; echo over").await;
        gone.until_output("begun").await;
        drop(gone);
        gateway.crash();
        gateway.start_again();
        session.go_on(&gateway.caller().await);
        let terminal = terminal.over(&session.caller);
        assert_eq!(terminal.status().await.activity(), ShellActivity::Busy);
        session.sh("touch /tmp/go").finish().await;
        terminal.waits_until(ShellActivity::Idle).await;
        terminal.line("echo \"$X $PWD\"").await.must_be("kept /tmp\n", 0);
        assert!(terminal.output_text().await.text.contains("over"), "the output is there");
    }
    session.close().await;
    gateway.stop();
}

/// The line of this number, with what it writes and how it exits.
fn numbered(number: u32) -> (String, String, u32) {
    let status = number * 7 % 256;
    let exit = format!("sh -c 'exit {status}'");
    match number % 8 {
        0 => (format!("printf 'n%s' {number}; {exit}"), format!("n{number}"), status),
        1 => (format!("echo {number}; {exit}"), format!("{number}\n"), status),
        2 => (format!("set -g V {number}; {exit}"), String::new(), status),
        3 => (format!("echo $V; sleep 0.01 & ; {exit}"), format!("{}\n", number - 1), status),
        4 => (
            format!("function f; echo in-{number}; return {status}; end\nf"),
            format!("in-{number}\n"),
            status,
        ),
        5 => (format!("begin\n  echo {number}\nend\n{exit}"), format!("{number}\n"), status),
        6 => (format!("wait; seq 1 {number} | tail -n 1"), format!("{number}\n"), 0),
        _ => (format!("sh -c 'echo out; echo err >&2'; {exit}"), "out\nerr\n".into(), status),
    }
}

async fn many_lines(lines: u32) {
    in_fish(&Gateway::shared(), async |_, terminal| {
        for number in 1..=lines {
            let (line, output, status) = numbered(number);
            let ran = terminal.line(&line).await;
            assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{number}: {ran:?}");
            assert_eq!(ran.end.doubts().count(), 0, "{number}: {ran:?}");
            assert_eq!(ran.end.exit_status, Some(status), "{number}: {ran:?}");
            // fish says of jobs that they have ended, at any time.
            let own = ran.output.replace("\r\n", "\n");
            assert!(
                own.contains(&output) && (own == output || own.contains("has ended")),
                "{number}: {ran:?}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: 1,000 lines"]
async fn a_thousand_lines_in_fish_are_answered_rightly() {
    many_lines(1_000).await;
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn forty_lines_in_fish_are_answered_rightly() {
        many_lines(40).await;
    }
}
