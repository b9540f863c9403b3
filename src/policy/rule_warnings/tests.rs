//! Which rules are warned of, and which are not.

use super::super::set::PolicySet;

/// The warnings about a policy: id, subject and line.
fn warnings(rules: &str) -> Vec<(&'static str, String, usize)> {
    let text = format!("default_profile = 'a'\n[profile.a]\ngate.enabled = true\n{rules}");
    let policy = PolicySet::parse("p.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let warnings = policy.warnings().iter();
    warnings.map(|one| (one.id.name(), one.subject.clone(), one.location.as_ref().unwrap().line)).collect()
}

#[test]
fn a_secret_in_what_a_profile_shows_is_warned_of_and_one_elsewhere_is_not() {
    let warnings = |file: &str, more: &str| {
        let rule = "[[rule]]\nid = 'r'\ndecision = 'deny'\nargv = ['x']\n";
        let text = format!("{more}[secrets.TOKEN]\nfile = {file:?}\n{rule}");
        let policy = PolicySet::load(&[("a.toml", &text)]).unwrap();
        let found = policy.warnings().iter();
        found.map(|one| (one.id.name(), one.subject.clone(), one.problem.clone())).collect::<Vec<_>>()
    };
    for file in ["/etc/provost/secrets/npm", "/opt/x", "/usr/local/etc/x"] {
        let found = warnings(file, "");
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        let (id, subject, problem) = &found[0];
        assert_eq!((*id, subject.as_str()), ("shown-secret", "TOKEN"));
        assert!(problem.contains("/var/lib/provost-secrets"), "{problem}");
        assert_eq!(warnings(file, "silence = ['shown-secret:TOKEN']\n"), []);
    }
    assert_eq!(warnings("/var/lib/provost-secrets/npm", ""), []);
    assert_eq!(warnings("/etcetera/npm", ""), []);
    let shown = "silence = ['no-gate']\ndefault_profile = 'a'\n[profile.a]\nfilesystem = { read_only = ['/srv/tools'] }\n";
    let found = warnings("/srv/tools/token", shown);
    assert!(found.len() == 1 && found[0].2.contains("refuses"), "{found:?}");
}

#[test]
fn a_rule_that_an_option_gets_round_is_warned_of() {
    let warned = |rule: &str| warnings(&format!("[[rule]]\nid = 'r'\n{rule}"));
    let expected = [("unknown-options", "r".to_owned(), 4)];
    assert_eq!(warned("decision = 'deny'\nargv = ['mytool', 'publish', '**']"), expected);
    assert_eq!(warned("decision = 'ask'\nargv = [['git', 'mytool'], ['push', 'publish'], '**']").len(), 1);
    for argv in [
        "['mytool', 'pub*', '**']",
        "['mytool', { regex = '(publish|deploy)' }, '**']",
        "['mytool', { regex = '(?i)publish.*' }]",
        "['/opt/x/mytool', 'publish', '**']",
        "['./gradlew', 'publish']",
        "['/opt/x/*', 'publish']",
        "['my*', 'publish', '**']",
        "['python3.11', 'install']",
        "[{ regex = 'git|hg' }, 'push']",
    ] {
        assert_eq!(warned(&format!("decision = 'deny'\nargv = {argv}")), expected, "{argv}");
    }
    for quiet in [
        "decision = 'allow'\nargv = ['mytool', 'publish', '**']",
        "decision = 'deny'\nargv = ['git', 'push', '**']",
        "decision = 'deny'\nargv = ['mytool', '**', 'publish', '**']",
        "decision = 'deny'\nargv = ['mytool', 'publish']\nskip = { flags = ['-q'] }",
        "decision = 'deny'\nargv = ['rm', '-rf', '**']",
        "decision = 'deny'\nargv = ['cat', '/etc/*']",
        "decision = 'deny'\nargv = ['mytool']",
        "decision = 'deny'\nargv = ['/usr/bin/git', 'pu*']",
        "decision = 'deny'\nargv = ['tar', { regex = '[a-z]*I[a-z]*' }, '**']",
        "decision = 'deny'\nargv = ['mytool', '*.rs']",
        "decision = 'deny'\nargv = ['my*', '**', 'publish']",
        "decision = 'deny'\nargv = ['**', 'publish']",
    ] {
        assert_eq!(warned(quiet), [], "{quiet}");
    }
}

/// What is said about one rule, with the word that says what to write.
fn problems(rule: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        "default_profile = 'a'\n[profile.a]\ngate.enabled = true\n[[rule]]\nid = 'r'\ndecision = 'deny'\n{rule}"
    );
    let policy = PolicySet::parse("p.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    policy.warnings().iter().map(|one| (one.id.name(), one.problem.clone())).collect()
}

/// That a rule is warned of by one warning, which says what to write.
fn assert_warned(rule: &str, id: &str, said: &str) {
    let found = problems(rule);
    assert!(
        matches!(found.as_slice(), [(kind, problem)] if *kind == id && problem.contains(said)),
        "{rule}: {found:?}"
    );
}

#[test]
fn words_that_a_shell_takes_for_itself_match_nothing() {
    for (argv, said) in [
        ("['curl', '**', '|', ['sh', 'bash'], '**']", "\"|\""),
        ("['echo', '**', '>', '*']", "\">\""),
        ("['make', '**', '2>&1']", "2>&1"),
        ("['make', '**', '>/dev/null']", ">/dev/null"),
        ("['cd', '*', ';', 'rm', '**']", "\";\""),
        ("['sleep', '*', '&']", "\"&\""),
        ("['cat', '<<', '*']", "\"<<\""),
        ("['make', ['|', '||'], '**']", "\"|\""),
        ("['if', '**']", "the commands"),
        ("['{', '**']", "the commands"),
        ("['SKIP=1', 'git', '**']", "when.env"),
        ("['X+=1', 'git', '**']", "when.env"),
        ("['~/bin/deploy', '**']", "\"*/bin/deploy\""),
        ("['cat', '~/.ssh/*']", "\"*/.ssh/*\""),
        ("['cat', '$HOME/.ssh/*']", "\"*/.ssh/*\""),
    ] {
        assert_warned(&format!("argv = {argv}"), "never-matches", said);
    }
    for argv in [
        "['find', '**', '-exec', '**', ';']",
        "['test', '!', '**']",
        "['expr', '*', '>', '*']",
        "['cat', '<div>']",
        "['rm', { regex = '~' }]",
        "['make', 'A=1']",
        "['cat', 'a~/x']",
        "['./a=b', '**']",
    ] {
        assert_eq!(problems(&format!("argv = {argv}")), [], "{argv}");
    }
}

#[test]
fn several_words_in_one_match_nothing() {
    for (rule, said) in [
        ("argv = ['git', 'branch -D', '**']", "write \"branch\", \"-D\""),
        ("argv = ['gh', 'pr merge', '**']", "write \"pr\", \"merge\""),
        ("argv = ['git', 'push', 'origin --force']", "\"--force\""),
        ("argv = ['kubectl', 'get', '-o json']", "write \"-o\", \"json\""),
        ("argv = ['git', 'commit', '**']\nflags = ['--amend --no-edit']", "write \"--amend\", \"--no-edit\""),
        ("argv = ['git', 'push', '**']\nflags = ['--force*']", "no globs"),
    ] {
        assert_warned(rule, "never-matches", said);
    }
    for rule in [
        "argv = ['git', 'commit', '-m', 'a -b']",
        "argv = ['git', 'bisect', 'run', 'make -j4']",
        "argv = ['ssh', '*', 'rm -rf *']",
        "argv = ['echo', 'x -y']",
        "argv = ['git', 'log', '**']\nflags = ['--pretty=%h %s']",
    ] {
        assert_eq!(problems(rule), [], "{rule}");
    }
}

#[test]
fn flags_need_room_among_the_words() {
    for rule in [
        "argv = ['git', 'push']\nflags = ['--force']",
        "argv = ['git', 'push', ['origin', 'upstream']]\nflags = ['-f', '--force']",
        "argv = ['git', 'push', 'o*']\nflags = ['--force']",
        "argv = ['rm']\nflags = ['-r']",
    ] {
        assert_warned(rule, "never-matches", "\"**\"");
    }
    for rule in [
        "argv = ['git', 'push', '**']\nflags = ['--force']",
        "argv = ['**']\nflags = ['--force']",
        "argv = ['git', 'push', '*']\nflags = ['--force']",
        "argv = ['git', 'push', ['--force', '-f']]\nflags = ['-f']",
        "argv = ['git', 'push']\nflags = ['--force']\nskip = { flags = ['--force'] }",
        "argv = ['git', 'log']\nflags = ['--paginate']",
    ] {
        assert_eq!(problems(rule), [], "{rule}");
    }
}

#[test]
fn short_flags_in_one_word_are_warned_of() {
    let said = "write [\"-r\", \"-f\"]";
    assert_warned("argv = ['rm', '**']\nflags = ['-rf']", "clustered-flags", said);
    assert_warned("argv = ['mytool', '**']\nflags = ['-x', '-rf']", "clustered-flags", said);
    for rule in [
        "argv = ['find', '**']\nflags = ['-ok', '-delete']",
        "argv = ['java', '**']\nflags = ['-cp']",
        "argv = ['mytool', '**']\nflags = ['-exec']",
        "argv = ['npm', '**']\nflags = ['-iwr']",
        "argv = ['rm', '**']\nflags = ['-r', '--rf']",
    ] {
        assert_eq!(problems(rule), [], "{rule}");
    }
}

#[test]
fn principals_and_directories_that_there_are_not_are_warned_of() {
    for (when, said) in [
        ("principal = ['1000']", "\"uid:1000\""),
        ("principal = ['uid:1', 'alice']", "\"uid:1000\""),
        ("principal = ['user:*']", "\"uid:1000\""),
        ("cwd = ['src']", "\"*/src\""),
        ("cwd = ['./src/']", "\"*/src\""),
        ("cwd = ['~/work']", "\"*/work\""),
        ("cwd = ['/srv/projects/']", "\"/srv/projects\""),
    ] {
        assert_warned(&format!("argv = ['make', '**']\nwhen = {{ {when} }}"), "never-matches", said);
    }
    for when in [
        "principal = ['uid:0', 'uid:1*', '*', 'uid:?']",
        "principal = ['u*']",
        "cwd = ['/', '/srv/*', '*/src', '/srv/projects']",
    ] {
        assert_eq!(problems(&format!("argv = ['make', '**']\nwhen = {{ {when} }}")), [], "{when}");
    }
}

#[test]
fn a_rule_that_no_command_can_match_is_warned_of() {
    let warned = |rule: &str| !warnings(&format!("[[rule]]\nid = 'r'\n{rule}")).is_empty();
    assert!(warned("decision = 'allow'\nargv = ['git status']"));
    assert!(warned("decision = 'deny'\nargv = ['cd', '*', '&&', 'rm', '**']"));
    assert!(!warned("decision = 'allow'\nargv = ['/opt/My Tool/run']"));
    assert!(!warned("decision = 'allow'\nargv = ['git', 'commit', '-m', 'a b']"));
    assert!(!warned("decision = 'allow'\nargv = ['cc']\nat = 'tree'"));
    let without = "default_profile = 'a'\n[profile.a]\n[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['cc']\nat = 'tree'";
    let policy = PolicySet::parse("p.toml", without).unwrap();
    assert_eq!(policy.warnings()[0].id.name(), "never-matches");
}

#[test]
fn a_rule_that_a_stricter_one_covers_is_warned_of_and_one_that_decides_something_is_not() {
    let warned = |strict: &str, other: &str| {
        let rules = format!(
            "[[rule]]\nid = 'strict'\n{strict}\n[[rule]]\nid = 'other'\ndecision = 'allow'\nargv = {other}\n"
        );
        warnings(&rules).iter().any(|(id, subject, _)| *id == "shadowed" && subject == "other")
    };
    let deny = |argv: &str| format!("decision = 'deny'\nargv = {argv}");
    for (strict, other) in [
        ("['git', '**']", "['git', 'status']"),
        ("['git', '**']", "['git', ['status', 'log'], '**']"),
        ("[['git', 'hg'], '*']", "['git', 'status']"),
        ("['**']", "['git', '**']"),
        ("['git', '**', '-f']", "['git', 'push', '-f']"),
        ("['git', '**', '-f']", "['git', '**', 'x', '-f']"),
        ("['git', 's*']", "['git', 'status']"),
        ("['git', 's*', '**']", "['git', ['status', 'show'], '-*']"),
        ("['git', 's*']", "['git', 'st*']"),
        ("['g*', '**']", "['git', 'status']"),
        ("['/usr/bin/*', '**']", "['/usr/bin/git']"),
        ("['git', { regex = 'st.*' }]", "['git', 'status']"),
    ] {
        assert!(warned(&deny(strict), other), "{strict} {other}");
    }
    for (strict, other) in [
        ("['git', 'push']", "['git', '**']"),
        ("['git', 'push', '**']", "['git', ['push', 'log'], '**']"),
        ("['git', '*']", "['git', '**']"),
        ("['git', 's*']", "['git', ['status', 'log']]"),
        ("['git', 'st*']", "['git', 's*']"),
        ("['git', 's?*']", "['git', 'st*']"),
        ("['git', 's*']", "['git', { regex = 'st.*' }]"),
        ("['/usr/bin/*', '**']", "['git']"),
        ("['./x/*', '**']", "['./x/../y']"),
        ("['git', { regex = 'st.*' }]", "['git', 'st*']"),
        ("['git', '**', '-f']", "['git', 'push']"),
    ] {
        assert!(!warned(&deny(strict), other), "{strict} {other}");
    }
    for condition in ["when.cwd = ['/x']", "flags = ['-f']", "mode = 'observe'", "at = 'tree'"] {
        assert!(!warned(&format!("{}\n{condition}", deny("['git', '**']")), "['git', 'x']"), "{condition}");
    }
    assert!(warned("decision = 'ask'\nargv = ['git', '**']", "['git', 'x']"));
    let with_effects = "['git', 'x']\neffects.time_limit = '5s'";
    assert!(!warned("decision = 'ask'\nargv = ['git', '**']", with_effects));
    assert!(warned(&deny("['git', '**']"), with_effects));
}

#[test]
fn a_warning_is_silenced_in_the_file_and_one_of_another_name_is_refused() {
    let rule = "[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['git status']\n[[rule]]\nid = 'd'\ndecision = 'deny'\nargv = ['x']\n";
    let with = |silence: &str| {
        let text = format!("default_profile = 'a'\nsilence = {silence}\n[profile.a]\n{rule}");
        PolicySet::parse("p.toml", &text)
            .map(|policy| policy.warnings().iter().map(|one| one.id.name()).collect::<Vec<_>>())
    };
    assert_eq!(with("[]").unwrap(), ["never-matches", "no-gate"]);
    assert_eq!(with("['no-gate']").unwrap(), ["never-matches"]);
    assert_eq!(with("['no-gate:a', 'never-matches:r']").unwrap(), [""; 0]);
    assert_eq!(with("['no-gate:b']").unwrap().len(), 2);
    let refused = with("['nothing']").unwrap_err();
    assert_eq!((refused.line, refused.problem.contains("silence")), (2, true), "{refused}");
}
