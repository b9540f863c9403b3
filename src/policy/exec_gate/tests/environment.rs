//! Rules about variables, and execs that have one twice.

use super::*;

#[test]
fn the_environment_is_needed_only_where_a_rule_reads_it() {
    let plain = policy(&rule("rm", "deny", "['rm', '**']", ""));
    assert!(!plain.judges_environment_of_execs());
    let at_request = policy(&rule("rm", "deny", "['rm', '**']", "when.env = { X = '1' }\nat = 'request'"));
    assert!(!at_request.judges_environment_of_execs());
    let rules = rule("ls", "allow", "['cat']", "") + &rule("rm", "deny", "['cat']", "when.env = { X = '1' }");
    let reads = policy(&rules);
    assert!(reads.judges_environment_of_execs());
    let with = |value: Option<&str>| {
        let env = value.map(|value| BTreeMap::from([("X".to_owned(), value.to_owned())]));
        Exec { env, ..Exec::of("/usr/bin/cat") }.under(&reads)
    };
    assert_eq!((with(Some("1")).decision, with(Some("1")).env_was_read), (Deny, true));
    assert_eq!((with(Some("2")).decision, with(Some("2")).env_was_read), (Allow, true));
    let unread = with(None);
    assert_eq!((unread.decision, unread.rule), (Deny, None));
    assert!(unread.reason.is_some_and(|reason| reason.contains("environment")));
    assert!(!Exec::of("/usr/bin/cat").under(&plain).env_was_read);
}

#[test]
fn a_variable_that_is_there_twice_has_any_of_its_values_and_allows_by_none() {
    let rules = rule("ls", "allow", "['cat']", "")
        + &rule("prod", "deny", "['cat']", "when.env = { X = 'prod' }")
        + &rule("dev", "allow", "['tool']", "when = { env = { X = 'dev' }, principal = ['uid:1000'] }");
    let policy = policy(&rules);
    let decision = |line: &str, values: &[&str]| {
        let mut values = values.iter().map(|value| (*value).to_owned());
        let env = BTreeMap::from_iter(values.next().map(|value| ("X".to_owned(), value)));
        let further_env = BTreeMap::from([("X".to_owned(), values.collect())]);
        Exec { env: Some(env), further_env, ..Exec::of(line) }.decision(&policy)
    };
    for values in [&["prod"][..], &["dev", "prod"], &["prod", "dev"], &["dev", "x", "prod"]] {
        assert_eq!(decision("/usr/bin/cat", values), Deny, "{values:?}");
        assert_eq!(decision("/usr/bin/tool", values), Deny, "{values:?}");
    }
    for values in [&["dev"][..], &["dev", "dev"]] {
        assert_eq!(decision("/usr/bin/cat", values), Allow, "{values:?}");
        assert_eq!(decision("/usr/bin/tool", values), Allow, "{values:?}");
    }
    assert_eq!(decision("/usr/bin/tool", &[]), Deny);
}
