//! Random lines: none panics, a rule that denies never allows more, and the order of rules means nothing.

use proptest::prelude::*;

use super::*;

fn line() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "ls",
        "rm",
        "git",
        "push",
        "status",
        "env",
        "sh",
        "-c",
        "'ls; rm x'",
        "$X",
        "$(",
        ")",
        "`",
        "|",
        ";",
        "&&",
        "\n",
        "<<E",
        "E",
        "\"",
        "'",
        "(",
        "{",
        "}",
        "cd",
        "/x",
        "if",
        "then",
        "fi",
        "xargs",
        "find",
        "-exec",
        "A=b",
        "sudo",
        "-u",
        "timeout",
        "5",
        "\\",
        "eval",
        "-f",
    ]);
    prop::collection::vec(word, 0..14).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_line_panics(line: String) {
        let _ = verdict(CommandInput::ShellLine(&line, Dialect::Posix), &rules());
    }

    #[test]
    fn adding_a_deny_never_allows_more(line in line(), at in 0usize..7) {
        let rules = rules();
        let before = verdict(CommandInput::ShellLine(&line, Dialect::Posix), &rules).decision;
        let mut more = rules.clone();
        let mut deny = rules[at].clone();
        deny.id = "added".into();
        deny.decision = Decision::Deny;
        deny.mode = RuleMode::Enforce;
        deny.effects = Effects::default();
        more.push(deny);
        let after = verdict(CommandInput::ShellLine(&line, Dialect::Posix), &more).decision;
        prop_assert!(after >= before, "{before:?} became {after:?}");
    }

    #[test]
    fn the_order_of_rules_means_nothing(line in line(), order in Just((0..7).collect::<Vec<_>>()).prop_shuffle()) {
        let rules = rules();
        let shuffled: Vec<Rule> = order.iter().map(|at| rules[*at].clone()).collect();
        let (a, b) = (verdict(CommandInput::ShellLine(&line, Dialect::Posix), &rules), verdict(CommandInput::ShellLine(&line, Dialect::Posix), &shuffled));
        prop_assert_eq!(a, b);
    }
}
