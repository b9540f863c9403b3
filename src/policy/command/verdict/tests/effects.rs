//! Effects of several rules on one line.

use super::*;

#[test]
fn effects_that_exclude_one_another_are_refused() {
    let text = r#"
[[rule]]
id = "a"
decision = "allow"
argv = ["ls", "**"]
effects = { profile = "one", time_limit = "10s", environment = { A = "1" } }
[[rule]]
id = "b"
decision = "allow"
argv = ["cat", "**"]
effects = { time_limit = "5s" }
[[rule]]
id = "c"
decision = "allow"
argv = ["grep", "**"]
effects = { profile = "two" }
"#;
    let rules = rules_of(text);
    let judged = |line| verdict(CommandInput::ShellLine(line, Dialect::Posix), &rules);
    let both = judged("cat x; cat y");
    assert_eq!((both.decision, both.effects.profile), (Decision::Allow, None));
    assert_eq!(both.effects.time_limit, Some(std::time::Duration::from_secs(5)));
    let both = judged("cd x && echo hi; A=5 ls; ls -l");
    assert_eq!(both.decision, Decision::Allow);
    assert_eq!(both.effects.profile.as_deref(), Some("one"));
    assert_eq!(both.effects.time_limit, Some(std::time::Duration::from_secs(10)));
    assert_eq!(both.effects.environment, BTreeMap::from([("A".to_owned(), "1".to_owned())]));
    for line in ["ls | cat", "ls | grep x", "sh -c 'ls; cat x'", "cat $(ls)"] {
        assert_eq!(judged(line).decision, Decision::Deny, "{line}");
    }
}
