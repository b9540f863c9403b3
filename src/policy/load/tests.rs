//! Policies that load, and mistakes that are shown where they stand.

use std::path::Path;

use super::{super::profile::Requirement, *};

const HEAD: &str = "default_profile = \"a\"\n[profile.a]\n";

fn error(rest: &str) -> PolicyFileError {
    PolicySet::parse("p.toml", &format!("{HEAD}{rest}")).expect_err(rest)
}

#[test]
fn the_compiled_in_policy_loads_and_denies_the_loaders_hooks() {
    let policy = PolicySet::compiled_in();
    let (_, profile) = policy.profile(None).unwrap();
    for name in ["LD_PRELOAD", "BASH_ENV", "BASH_FUNC_ls%%", "NODE_OPTIONS", "GIT_SSH_COMMAND", "IFS"] {
        let checked = super::super::environment::check_variable(&profile.environment, name, Some("x"));
        assert!(checked.is_err(), "{name}");
    }
    assert_eq!(profile.limits.requirement, Requirement::Require);
    let preferring = PolicySet::compiled_in().preferring_limits();
    assert_eq!(preferring.profile(None).unwrap().1.limits.requirement, Requirement::Prefer);
}

#[test]
fn a_profile_that_says_nothing_about_variables_has_the_shipped_list_and_only_drop_takes_one_away() {
    let text = "[profile.b]\nenvironment.deny = ['CORP_*']\nenvironment.drop = ['HOME', 'npm_config_registry']\n\
                [profile.c]\nextends = 'b'\nenvironment.deny = ['HOME', 'MORE']\nenvironment.drop = ['GOFLAGS']\n";
    let policy = PolicySet::parse("p.toml", &format!("{HEAD}{text}")).unwrap_or_else(|e| panic!("{e}"));
    let passes = |profile: &str, name: &str| {
        let (_, profile) = policy.profile(Some(profile)).unwrap();
        super::super::environment::check_variable(&profile.environment, name, Some("x")).is_ok()
    };
    for (name, a, b, c) in [
        ("PATH", false, false, false),
        ("LD_PRELOAD", false, false, false),
        ("HOME", false, true, false),
        ("npm_config_registry", false, true, true),
        ("npm_config_shell", false, false, false),
        ("CORP_TOKEN", true, false, false),
        ("MORE", true, true, false),
        ("GOFLAGS", false, false, true),
        ("ANYTHING", true, true, true),
    ] {
        assert_eq!([passes("a", name), passes("b", name), passes("c", name)], [a, b, c], "{name}");
    }
    for (rest, key) in [
        ("environment.drop = ['NOT_LISTED']\n", "drop"),
        ("environment.drop = ['*']\n", "drop"),
        ("environment.drop = ['LD_*', 'LD_P*']\n", "drop"),
        ("environment.deny = ['A**']\n", "deny"),
        ("environment.set = { PATH = '/x' }\n", "set"),
    ] {
        let error = error(rest);
        assert!(error.line == 3 && error.problem.starts_with(&format!("{key}: ")), "{error}");
    }
    for (name, text) in [
        ("PATH", "[secrets.PATH]\nfile = '/x'\n"),
        ("CDPATH", "[secrets.CDPATH]\nfile = '/x'\n"),
        ("PATH", "[[rule]]\nid='r'\ndecision='allow'\nargv=['x']\neffects.environment = { PATH = '/x' }\n"),
        (
            "BASH_ENV",
            "[[rule]]\nid='r'\ndecision='allow'\nargv=['x']\neffects.environment = { BASH_ENV = '/x' }\n",
        ),
    ] {
        assert!(error(text).problem.contains(name), "{}", error(text));
    }
}

#[test]
fn protected_paths_add_up_and_are_dropped_by_name() {
    let text = "filesystem.protected = ['own']\n[profile.b]\nextends = 'a'\nfilesystem.drop = ['.vscode', '.git/hooks']\n\
                filesystem.reserved = ['made']\n[profile.c]\nextends = 'b'\nfilesystem.protected = ['.vscode']\n\
                [profile.d]\nfilesystem = { workspace = 'read', protected = [], reserved = [] }\n";
    let policy = PolicySet::parse("p.toml", &format!("{HEAD}{text}")).unwrap_or_else(|e| panic!("{e}"));
    let holds = |profile: &str, path: &str| {
        let files = &policy.profile(Some(profile)).unwrap().1.filesystem;
        files.protected.iter().chain(&files.reserved).any(|protected| protected == Path::new(path))
    };
    for (path, expected) in [
        (".mcp.json", [true, true, true, true]),
        (".vscode", [true, false, true, true]),
        (".git/hooks", [true, false, false, true]),
        ("own", [true, true, true, false]),
        ("made", [false, true, true, false]),
    ] {
        assert_eq!(["a", "b", "c", "d"].map(|profile| holds(profile, path)), expected, "{path}");
    }
    let error = error("filesystem.drop = ['.vscode', 'nothing']\n");
    assert_eq!((error.line, error.problem.starts_with("drop: \"nothing\"")), (3, true), "{error}");
}

#[test]
fn a_list_that_nothing_would_enforce_is_refused() {
    for (text, problem) in [
        ("filesystem.execute = ['bin']\n", "execute: bin must be absolute"),
        (
            "filesystem.execute = ['/bin']\nseccomp = { enabled = false }\n",
            "execute: needs landlock and seccomp",
        ),
        ("filesystem.execute = []\nlandlock = { enabled = false }\n", "execute: needs landlock and seccomp"),
        ("network.tcp_bind = [80]\nlandlock = { enabled = false }\n", "tcp_bind: needs landlock"),
        ("network.tcp_connect = [70000]\n", "expected u16"),
    ] {
        let error = error(text);
        assert!(error.problem.contains(problem), "{error}");
    }
}

#[test]
fn what_a_caller_claims_gives_it_nothing() {
    let with = |decision: &str, when: &str, effects: &str| {
        let rule = format!("[[rule]]\nid='r'\ndecision='{decision}'\nargv=['x']\nwhen={when}\n{effects}\n");
        PolicySet::parse("p.toml", &format!("{HEAD}{rule}"))
    };
    let (label, variable) = ("labels = { team = 'core' }", "env = { CI = 'true' }");
    let profile = "effects = { profile = 'a' }";
    for claim in [label, variable] {
        for principals in [
            "",
            ", principal = ['*']",
            ", principal = ['uid:*']",
            ", principal = ['uid:?*']",
            ", principal = ['uid:[0-4]*', 'uid:[5-9]*']",
            ", principal = ['uid:1000', '?*']",
            ", principal = ['uid:[1-9]*']",
            ", principal = ['*0', '*1', '*2', '*3', '*4', '*5', '*6', '*7', '*8', '*9']",
        ] {
            let when = format!("{{ {claim}{principals} }}");
            for (decision, effects) in [("allow", ""), ("ask", profile), ("allow", profile)] {
                let error = with(decision, &when, effects).expect_err(&when);
                let key = claim.split(' ').next().unwrap();
                assert!(error.problem.starts_with(&format!("when.{key}: ")), "{when}: {error}");
                assert_eq!(error.line, 7, "{error}");
            }
            // What restricts may rest on a claim.
            for (decision, effects) in [("deny", ""), ("ask", ""), ("ask", "effects = { time_limit = '1m' }")]
            {
                with(decision, &when, effects).unwrap_or_else(|error| panic!("{when}: {error}"));
            }
        }
        for principal in ["uid:1000", "uid:10*", "uid:1???"] {
            let when = format!("{{ {claim}, principal = ['{principal}'] }}");
            with("allow", &when, profile).unwrap_or_else(|error| panic!("{when}: {error}"));
        }
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_place() {
    let error = error("netwrok = { default = \"none\" }\n");
    assert_eq!((error.file.as_str(), error.line, error.column), ("p.toml", 3, 1));
    assert!(error.to_string().ends_with("^^^^^^^"), "{error}");
}

#[test]
fn a_default_profile_that_does_not_exist_is_refused() {
    let error = PolicySet::parse("p.toml", "default_profile = \"b\"\n[profile.a]\n").unwrap_err();
    assert_eq!((error.line, error.column), (1, 19));
}

#[test]
fn values_that_cannot_mean_anything_are_refused_where_they_stand() {
    for (text, line) in [
        ("shell = \"sh\"\n", 3),
        ("\npath = [\"bin\"]\n", 4),
        ("path = []\n", 3),
        ("network = { default = \"host\", choices = [\"none\"] }\n", 3),
        ("identity = { uid = 0 }\n", 3),
        ("[profile.a.limits.terminal]\npids = 0\n", 4),
        ("[profile.a.limits.rlimits]\nno_such = 1\n", 3),
        ("environment.deny = [\"A**B\"]\n", 3),
        ("environment.set = { \"A=\" = \"x\" }\n", 3),
        ("times = { limit = \"2s\", ceiling = \"1s\" }\n", 3),
        ("output = { default_bytes = 2, ceiling_bytes = 1 }\n", 3),
        ("times = { grace = \"5\" }\n", 3),
    ] {
        assert_eq!(error(text).line, line, "{text}: {}", error(text));
    }
}

fn rule_error(rules: &str) -> String {
    PolicySet::load(&[("a.toml", HEAD), ("b.toml", rules)]).expect_err(rules).to_string()
}

#[test]
fn mistakes_of_meaning_in_rules_are_shown_where_they_stand() {
    for (rule, place, says) in [
        ("id = 'x y'\ndecision = 'deny'\nargv = ['a']", "b.toml:2:1", "id \"x y\""),
        ("id = 'x'\ndecision = 'deny'\nargv = [{ regex = '(' }]", "b.toml:4:1", "regular expression"),
        ("id = 'x'\ndecision = 'deny'\nargv = []", "b.toml:4:1", "at least one word"),
        ("id = 'x'\ndecision = 'deny'\nargv = ['a**']", "b.toml:4:1", "\"**\""),
        ("id = 'x'\ndecision = 'deny'\nargv = ['a']\nflags = ['f']", "b.toml:5:1", "a flag begins"),
        (
            "id = 'x'\ndecision = 'deny'\nargv = ['a']\neffects.profile = 'a'",
            "b.toml:5:1",
            "only an allowing",
        ),
        ("id = 'x'\ndecision = 'allow'\nargv = ['a']\neffects.profile = 'b'", "b.toml:5:9", "no [profile.b]"),
        (
            "id = 'x'\ndecision = 'allow'\nargv = ['a']\neffects.time_limit = '0s'",
            "b.toml:5:9",
            "must not be 0",
        ),
        ("id = 'x'\ndecision = 'allow'\nargv = ['a']\nmatches = ['a', 'b']", "b.toml:5:17", "own example"),
        (
            "id = 'x'\ndecision = 'allow'\nargv = ['a']\nrejects = ['b', 'a']",
            "b.toml:5:17",
            "says it rejects",
        ),
        ("id = 'x'\ndecision = 'maybe'\nargv = ['a']", "b.toml:3:12", "unknown variant"),
        ("id = 'x'\ndecision = 'deny'\nargv = ['a']\nwhen.host = 'x'", "b.toml:5:6", "unknown field"),
        (
            "id = 'x'\ndecision = 'deny'\nargv = ['a']\n[[rule]]\nid = 'x'\ndecision = 'deny'\nargv = ['a']",
            "b.toml:6:1",
            "taken by b.toml:1",
        ),
    ] {
        let error = rule_error(&format!("[[rule]]\n{rule}\n"));
        assert!(error.starts_with(place) && error.contains(says), "{rule}\n{error}");
        assert!(error.contains('^'), "{error}");
    }
}

#[test]
fn files_are_one_whole_in_any_order() {
    let (a, b) = (
        ("a.toml", HEAD),
        ("b.toml", "mode = 'observe'\n[[rule]]\nid = 'x'\ndecision = 'deny'\nargv = ['a']\n"),
    );
    let (one, two) = (PolicySet::load(&[a, b]), PolicySet::load(&[b, a]));
    let (one, two) = (one.unwrap_or_else(|e| panic!("{e}")), two.unwrap_or_else(|e| panic!("{e}")));
    assert_eq!(one.digest(), two.digest());
    assert_eq!(one.rules()[0].mode, RuleMode::Observe);
    assert_eq!(one.rule_location("x").map(|o| (o.file.as_str(), o.line)), Some(("b.toml", 2)));
    assert!(PolicySet::load(&[]).is_err());
    assert!(PolicySet::load(&[a, ("c.toml", "default_profile = 'a'")]).is_err());
    assert!(PolicySet::load(&[a, ("c.toml", "[profile.a]")]).is_err());
    assert!(PolicySet::load(&[("c.toml", "[profile.a]")]).is_err());
}

#[test]
fn a_policy_without_a_rule_is_none_and_neither_is_a_file_that_says_nothing() {
    let rule = "[[rule]]\nid = 'x'\ndecision = 'deny'\nargv = ['**']\n";
    let error = PolicySet::load(&[("a.toml", HEAD)]).unwrap_err();
    assert!((error.line, error.column) == (1, 1) && error.problem.starts_with("there is no rule"), "{error}");
    assert!(PolicySet::load(&[("a.toml", HEAD), ("b.toml", rule)]).is_ok());
    assert!(PolicySet::load(&[("b.toml", rule)]).is_ok());
    for empty in ["", "\n", "\u{feff}", "# x\n", " \r\n# x"] {
        for files in [[("a.toml", empty), ("b.toml", rule)], [("a.toml", rule), ("b.toml", empty)]] {
            let error = PolicySet::load(&files).unwrap_err();
            assert!(
                error.line == 1 && error.problem.starts_with("the file says nothing"),
                "{empty:?}: {error}"
            );
        }
    }
}

#[test]
fn a_file_that_ends_in_the_middle_of_the_one_in_force_is_found() {
    let first = format!("{HEAD}[[rule]]\nid = 'x'\ndecision = 'deny'\nargv = ['a']\n");
    let whole =
        format!("{first}\n# more\n[[rule]]\nid = 'y'\ndecision = 'allow'\nargv = ['b']\nmode = 'observe'\n");
    let set = |text: &str| PolicySet::load(&[("p.toml", text)]).unwrap_or_else(|e| panic!("{e}"));
    let found = |text: &str| set(&whole).cut_short(&set(text)).map(|error| (error.line, error.column));
    let cut = whole.rfind("mode").unwrap();
    assert_eq!(found(&whole[..cut]), Some((13, 1)));
    for edited in [&first, &whole, whole.trim_end(), &whole.replace("'b'", "'c'"), &format!("{whole}# x")] {
        assert_eq!(found(edited), None, "{edited}");
    }
    // Whatever is cut off: it does not parse, is found, or was a whole table.
    for end in HEAD.len()..whole.len() {
        let Ok(set) = PolicySet::load(&[("p.toml", &whole[..end])]) else { continue };
        let lost = whole[end..].trim_start();
        let is_edit = lost.is_empty() || lost.starts_with(['[', '#']) || found(&whole[..end]).is_some();
        assert!(is_edit, "{:?}", set.texts());
    }
}

#[test]
fn what_expressions_and_examples_take_is_bounded_and_the_rule_is_named() {
    let rule =
        |number: usize, argv: &str| format!("[[rule]]\nid = 'r{number}'\ndecision = 'deny'\nargv = {argv}\n");
    let same: String = (0..500).map(|number| rule(number, "[{ regex = '\\w{10}' }]")).collect();
    assert!(PolicySet::parse("p.toml", &format!("{HEAD}{same}")).is_ok(), "one expression counts once");
    let globs: String =
        (0..5_000).map(|number| rule(number, &format!("['x{number}*', '[a-z]?*']"))).collect();
    assert!(PolicySet::parse("p.toml", &format!("{HEAD}{globs}")).is_ok(), "globs are no expressions");
    let many: String =
        (0..500).map(|number| rule(number, &format!("[{{ regex = '\\w{{10}}{number}' }}]"))).collect();
    let error = error(&many);
    assert!(error.problem.starts_with("rule \"r") && error.problem.contains("16 MiB"), "{error}");
    assert_eq!((error.line - 2) % 4, 0, "{error}");
    let words = "'a', ".repeat(20_000);
    let line = "a".repeat(60_000);
    let long = format!("[[rule]]\nid = 'long'\ndecision = 'deny'\nargv = [{words}]\nrejects = ['{line}']\n");
    let error = super::super::set::PolicySet::parse("p.toml", &format!("{HEAD}{long}")).unwrap_err();
    assert!(error.problem.starts_with("rule \"long\": with its examples"), "{}", error.problem);
}

#[test]
fn warnings_of_rules_with_many_gaps_take_no_longer_than_their_words() {
    let gaps = "'**', 'a', ".repeat(15);
    let text = format!(
        "{HEAD}[[rule]]\nid = 'r'\ndecision = 'deny'\nargv = ['x', {gaps}'b']\n[[rule]]\nid = 's'\ndecision = 'allow'\nargv = ['x', {}]\n",
        ["'a'"; 31].join(", ")
    );
    assert!(PolicySet::parse("p.toml", &text).is_ok());
}

#[test]
fn a_profile_is_laid_over_the_one_that_it_extends() {
    let text = "default_profile = 'c'\n\
        [profile.a]\ndescription = 'A'\nnetwork = { default = 'host', choices = ['host', 'none'] }\n\
        environment.set = { A = '1', B = '2' }\nlimits.terminal.pids = 5\n\
        [profile.b]\nextends = 'a'\nlimits.terminal.memory_bytes = 7\nenvironment.set = { B = '3' }\n\
        [profile.c]\nextends = 'b'\nnetwork = { default = 'none' }\n";
    let set = PolicySet::parse("p.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let (_, c) = set.profile(None).expect("there is a default");
    assert_eq!((c.limits.terminal.pids, c.limits.terminal.memory_bytes), (Some(5), Some(7)));
    assert_eq!(c.environment.set.get("A").map(String::as_str), Some("1"));
    assert_eq!(c.environment.set.get("B").map(String::as_str), Some("3"));
    assert_eq!(c.network.choices.len(), 2);
    assert_eq!(c.description, "");
    let circle = "default_profile='a'\n[profile.a]\nextends='b'\n[profile.b]\nextends='a'\n";
    let error = PolicySet::parse("p.toml", circle).expect_err("a circle").to_string();
    assert!(error.starts_with("p.toml:3:1") && error.contains("circle: a -> b -> a"), "{error}");
    let unknown = "default_profile='a'\n[profile.a]\nextends='z'\n";
    assert!(PolicySet::parse("p.toml", unknown).is_err());
}

#[test]
fn rules_without_a_profile_have_the_built_in_ones() {
    let rule = "[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['ls']\n";
    let policy = PolicySet::parse("p.toml", rule).unwrap();
    let shipped = PolicySet::compiled_in();
    assert!(policy.has_built_in_profiles() && !shipped.has_built_in_profiles());
    assert_eq!(policy.profile(None).unwrap(), shipped.profile(None).unwrap());
    assert_eq!(policy.profiles().count(), shipped.profiles().count());
    // Its rules are not meant: what this policy does not allow is denied.
    assert_eq!((policy.rules().len(), policy.connect_rules().len()), (1, 0));
    let other = PolicySet::parse("p.toml", &format!("default_profile = 'offline'\n{rule}")).unwrap();
    assert_eq!(other.profile(None).unwrap().0.as_str(), "offline");
    // Who writes one profile writes all, and says which is the default.
    assert!(PolicySet::parse("p.toml", &format!("[profile.a]\n{rule}")).is_err());
    assert!(
        PolicySet::parse("p.toml", &format!("default_profile = 'workspace'\n[profile.a]\n{rule}")).is_err()
    );
    assert!(PolicySet::load(&[]).is_err());
}

#[test]
fn a_profile_from_scratch_keeps_the_shipped_protections() {
    let policy = PolicySet::parse("p.toml", HEAD).unwrap();
    let shipped = PolicySet::compiled_in();
    let (own, shipped) = (policy.profile(None).unwrap().1, shipped.profile(None).unwrap().1);
    assert_eq!(own.filesystem, shipped.filesystem);
    assert_eq!((own.seccomp, own.landlock), (shipped.seccomp, shipped.landlock));
    assert_eq!((&own.identity, own.git), (&shipped.identity, shipped.git));
    assert_eq!(own.environment.deny, shipped.environment.deny);
    assert_eq!(
        (&own.environment.drop, &own.environment.allow),
        (&shipped.environment.drop, &shipped.environment.allow)
    );
    assert_eq!(own.limits.requirement, shipped.limits.requirement);
    // It has less than the shipped one where that is the stricter choice.
    assert!(own.toolchains.is_empty() && own.secrets.is_empty() && own.filesystem.writable.is_empty());
    assert_eq!(own.network.choices, [super::super::profile::Network::None]);
}
