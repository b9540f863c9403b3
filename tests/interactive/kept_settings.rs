//! Kept shells after a line that changed how the shell reads, traces, traps or prompts: later lines are as they would be without marks.

use std::sync::Arc;

use crate::{
    interactive::{
        kept_shell::shells,
        shell_line::{KeptShellCalls, Ran, kept, request},
    },
    support::{
        Gateway, Session, Terminal,
        api::{LineDoubt, LineEnding, outcome::End},
        in_session, skip,
    },
};

/// Runs a test's body in a new kept shell for each shell and each of these lines.
async fn after_each(lines: &[&str], body: impl AsyncFn(&Terminal, &str, &str)) {
    in_session(&Gateway::shared(), async |session| {
        for shell in shells(session).await {
            for line in lines {
                let terminal = kept(session, shell).await;
                body(&terminal, shell, line).await;
                terminal.release().await;
            }
        }
    })
    .await;
}

async fn in_bash(gateway: &Arc<Gateway>, body: impl AsyncFn(&Session, &Terminal)) {
    in_session(gateway, async |session| {
        if !shells(session).await.contains(&"bash") {
            return skip("bash is not in the sandbox");
        }
        let terminal = kept(session, "bash").await;
        body(session, &terminal).await;
        terminal.release().await;
    })
    .await;
}

fn must_end(ran: &Ran, status: u32, context: &str) {
    let end = (ran.end.ending(), ran.end.exit_status);
    assert_eq!(end, (LineEnding::Confirmed, Some(status)), "{context}: {ran:?}");
}

/// Nothing of what was typed for the marks.
fn must_show_no_marks(ran: &Ran, context: &str) {
    for hidden in ["_provost", "7711", "printf", "return"] {
        assert!(!ran.output.contains(hidden), "{context}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_editing_ends_no_kept_shell() {
    after_each(&["set -o vi", "set -o emacs"], async |terminal, shell, line| {
        let refused = terminal.try_line(request(terminal, line)).await;
        match (shell, refused) {
            ("bash", refused) => refused.err().expect("bash would end").must_name_the_field("line"),
            (_, running) => {
                let ran = running.expect("it is run").finish().await;
                assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{shell}: {line}: {ran:?}");
            }
        }
        for number in 0..3 {
            let ran = terminal.line(&format!("echo on-{number}; (exit {number})")).await;
            must_end(&ran, number, shell);
            assert!(ran.output.contains(&format!("on-{number}\r\n")), "{shell}: {line}: {ran:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_file_turns_on_in_bash_is_off_at_the_next_prompt() {
    in_bash(&Gateway::shared(), async |session, terminal| {
        std::fs::write(session.workspace.join("editing"), "set -o vi\n").expect("a file can be written");
        terminal.line(". ./editing").await.must_be("", 0);
        // Keys of an editor that does not read.
        let ran = terminal.line("bind '\"x\":\"y\"'").await;
        assert_eq!(ran.end.ending(), LineEnding::Confirmed, "{ran:?}");
        terminal.line("echo xx; set -o | grep -c 'vi .*off'").await.must_be("xx\n1\n", 0);
        let mut running = terminal.begin(". ./editing; sh -c 'echo begun; exec sleep 1000'").await;
        running.until_output("begun").await;
        terminal.interrupt().await;
        must_end(&running.finish().await, 130, "interrupted");
        terminal.line("echo on").await.must_be("on\n", 0);
        // What cannot be seen in the line ends some versions of bash, and the call says so.
        let ran = terminal.line("mode=vi; set -o $mode").await;
        if ran.end.ending() == LineEnding::ShellEnded {
            let end = ran.end.outcome.as_ref().and_then(|outcome| outcome.end.clone());
            assert!(matches!(end, Some(End::Signal(_))), "{ran:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_shows_the_line_and_no_marks() {
    after_each(&["set -x"], async |terminal, shell, line| {
        must_end(&terminal.line(line).await, 0, shell);
        for _ in 0..2 {
            let running = terminal.begin("echo hi; (exit 5)").await;
            let id = running.id.clone();
            let ran = running.finish().await;
            must_end(&ran, 5, shell);
            assert!(ran.output.contains("\r\nhi\r\n"), "{shell}: {ran:?}");
            match shell {
                "bash" => ran.must_be("++ echo hi\nhi\n++ exit 5\n", 5),
                "dash" => ran.must_be("+ echo hi\nhi\n+ exit 5\n", 5),
                // No redirection takes its trace along: the call itself is shown.
                "mksh" => assert!(!ran.output.contains("7711"), "{ran:?}"),
                _ => {
                    assert!(!ran.output.contains(&id), "{shell}: {ran:?}");
                    must_show_no_marks(&ran, shell);
                }
            }
            let ran = terminal.line("echo $?").await;
            assert!(ran.output.contains("5\r\n"), "{shell}: {ran:?}");
        }
        // A line that cannot be read leaves the trace on.
        assert_ne!(terminal.line("if true").await.end.exit_status, Some(0), "{shell}");
        let ran = terminal.line("case $- in *x*) echo traced;; esac; set +x").await;
        assert!(ran.output.contains("\ntraced\r\n"), "{shell}: {ran:?}");
        terminal.line("echo quiet").await.must_be("quiet\n", 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trap_for_failures_fires_as_often_as_the_shell_does() {
    after_each(&["trap 'echo ERR' ERR"], async |terminal, shell, line| {
        // dash has no such trap.
        let is_set = terminal.line(line).await.end.exit_status == Some(0);
        assert_eq!(is_set, shell != "dash", "{shell}");
        if !is_set {
            return;
        }
        for _ in 0..2 {
            let ran = terminal.line("echo hi; (exit 5)").await;
            must_end(&ran, 5, shell);
            // The eval of mksh fails itself, too.
            let expected = if shell == "mksh" { "hi\nERR\nERR\n" } else { "hi\nERR\n" };
            ran.must_be(expected, 5);
            terminal.line("echo $?").await.must_be("5\n", 0);
        }
        terminal.line("false || echo no").await.must_be("no\n", 0);
        terminal.line("trap - ERR; false").await.must_be("", 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traps_and_settings_of_bash_are_the_lines_own() {
    in_bash(&Gateway::shared(), async |_, terminal| {
        must_end(&terminal.line("trap 'echo D' DEBUG").await, 0, "DEBUG");
        terminal.line("echo hi; (exit 5)").await.must_be("D\nhi\n", 5);
        terminal.line("echo $?").await.must_be("D\n5\n", 0);
        terminal.line("trap -p DEBUG").await.must_be("D\ntrap -- 'echo D' DEBUG\n", 0);
        // Both, and what cannot be read between.
        must_end(&terminal.line("trap 'echo \"E $?\"' ERR").await, 0, "ERR");
        assert_eq!(terminal.line("if true").await.end.exit_status, Some(2));
        // The command of the trap for failures is one of its own.
        terminal.line("false").await.must_be("D\nD\nE 1\n", 1);
        must_end(&terminal.line("trap - DEBUG ERR").await, 0, "none");
        terminal.line("echo ${traps-none}; trap").await.must_be("none\n", 0);
        terminal.line("set -u; echo on").await.must_be("on\n", 0);
        terminal.line("IFS=05").await.must_be("", 0);
        terminal.line("(exit 50)").await.must_be("", 50);
        terminal.line("unset IFS; set -e").await.must_be("", 0);
        terminal.line("false || echo on").await.must_be("on\n", 0);
        let ran = terminal.line("(exit 3)").await;
        assert_eq!((ran.end.ending(), ran.end.exit_status), (LineEnding::ShellEnded, Some(3)), "{ran:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_without_line_editing_shows_no_marks() {
    after_each(&["stty raw", "stty -icanon", "stty raw -echo"], async |terminal, shell, line| {
        let ran = terminal.line(line).await;
        ran.must_be("", 0);
        for _ in 0..2 {
            let ran = terminal.line("echo hi; (exit 5)").await;
            must_end(&ran, 5, shell);
            assert_eq!(ran.output.trim_end(), "hi", "{shell}: {line}: {ran:?}");
            assert_eq!(ran.end.doubts().count(), 0, "{shell}: {line}: {ran:?}");
        }
        must_end(&terminal.line("stty sane").await, 0, shell);
        terminal.line("echo on").await.must_be("on\n", 0);
    })
    .await;
}

/// Interrupts a line, and runs another one.
async fn interrupt_once(terminal: &Terminal, context: &str) {
    let mut running = terminal.begin("sh -c 'echo begun; exec sleep 1000'").await;
    running.until_output("begun").await;
    terminal.interrupt().await;
    let ran = running.finish().await;
    must_end(&ran, 130, context);
    // fish goes on behind the line, and marks its end.
    assert_eq!(ran.has_doubt(LineDoubt::MarksMissing), context != "fish", "{context}: {ran:?}");
    let ran = terminal.line("echo on").await;
    must_end(&ran, 0, context);
    assert!(ran.output.contains("on\r\n"), "{context}: {ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_interrupt_is_enough_without_the_shells_own_prompt() {
    let lines = ["PS1='> '", "exec 2>/dev/null", "PS1='> '; _provost() { :; }"];
    after_each(&lines, async |terminal, shell, line| {
        // zsh writes its prompt to the terminal itself.
        if shell == "zsh" && line.starts_with("exec") {
            return;
        }
        if !line.contains("_provost") {
            must_end(&terminal.line(line).await, 0, shell);
            interrupt_once(terminal, &format!("{shell}: {line}")).await;
        } else {
            interrupt_once_in_line(terminal, line, shell).await;
        }
    })
    .await;
    in_session(&Gateway::shared(), async |session| {
        if session.sh("command -v fish").finish().await.text().is_empty() {
            return skip("fish is not in the sandbox");
        }
        let terminal = kept(session, "fish").await;
        must_end(&terminal.line("function fish_prompt; echo -n '> '; end").await, 0, "fish");
        interrupt_once(&terminal, "fish").await;
        terminal.release().await;
    })
    .await;
}

/// The same where the line itself takes the marks away.
async fn interrupt_once_in_line(terminal: &Terminal, line: &str, shell: &str) {
    let mut running = terminal.begin(&format!("{line}; sh -c 'echo begun; exec sleep 1000'")).await;
    running.until_output("begun").await;
    terminal.interrupt().await;
    must_end(&running.finish().await, 130, shell);
    terminal.line("echo on").await.must_be("on\n", 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_shell_names_what_helps() {
    in_bash(&Gateway::shared(), async |_, terminal| {
        let mut running = terminal.begin("echo begun; exec sleep 1000").await;
        running.until_output("begun").await;
        let busy = terminal.try_line(request(terminal, "echo x")).await.err().expect("a line runs");
        assert_eq!(busy.reason, "SHELL_BUSY");
        assert!(busy.message.contains("interrupt"), "{busy:?}");
    })
    .await;
}
