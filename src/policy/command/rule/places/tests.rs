//! Rules for paths, against files and links of a small host.

use super::{
    super::{RequestContext, Rule, RuleMode, RuleSource, RuleSubject},
    *,
};
use crate::command::{
    pattern::{Match, Regexes},
    program::{NominalResolver, resolve_command},
    shell::Word,
};

/// Links in a workspace: to a file, out of it, and a directory.
struct Workspace;

impl ProgramResolver for Workspace {
    fn find_in_path(&self, name: &str) -> Resolved {
        NominalResolver.find_in_path(name)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let whole = if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") };
        let target = match plain(&whole).as_str() {
            "/work/h" => "/work/gradlew",
            "/work/scripts/out" => "/usr/bin/getconf",
            "/work/linked/gradlew" => "/srv/other/gradlew",
            "/work/linked/scripts/x" => "/srv/other/scripts/x",
            path => return NominalResolver.resolve_path(path, "/"),
        };
        NominalResolver.resolve_path(target, "/")
    }

    fn real_directory(&self, path: &str) -> Option<String> {
        Some(path.replace("/work/linked", "/srv/other"))
    }
}

fn answer(decision: &str, pattern: &str, given: &str, place: &str) -> Match {
    answer_in("/work", decision, pattern, given, place)
}

fn answer_in(cwd: &str, decision: &str, pattern: &str, given: &str, place: &str) -> Match {
    answer_from(&[], cwd, decision, pattern, given, place)
}

fn answer_from(from: &[&str], cwd: &str, decision: &str, pattern: &str, given: &str, place: &str) -> Match {
    let source = format!("id = 'a'\ndecision = '{decision}'\nargv = ['{pattern}', '**']");
    let source: RuleSource = toml::from_str(&source).unwrap_or_else(|e| panic!("{e}"));
    let rule =
        Rule::compile(&source, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"));
    let place = match place {
        "" => LineCwd::Start,
        "?" => LineCwd::Unknown,
        place => LineCwd::After(place.to_owned()),
    };
    let relative_from = from.iter().map(|path| (*path).to_owned()).collect();
    let request = RequestContext { cwd: cwd.to_owned(), relative_from, ..RequestContext::default() };
    let file = resolve_command(&Workspace, given, &request.cwd, &place);
    let words = [Word::Literal(given.to_owned())];
    let is_itself = !given.contains('/');
    rule.matches(&RuleSubject::of(&words, &file, is_itself, &place, &request), &Workspace)
}

#[test]
fn a_relative_pattern_allows_the_file_that_lies_there() {
    let allows =
        |pattern: &str, given: &str, place: &str| answer("allow", pattern, given, place) == Match::Yes;
    for (pattern, given, place) in [
        ("./scripts/*", "./scripts/x", ""),
        ("./scripts/*", "scripts/x", ""),
        ("./scripts/*", "/work/scripts/x", ""),
        ("./scripts/*", ".//scripts/./x", ""),
        ("./scripts/*", "./scripts/../scripts/x", ""),
        ("./scripts/*", "./scripts/x", "sub"),
        ("./scripts/*", "./scripts/x", "linked"),
        ("../scripts/*", "../scripts/x", "sub"),
        (".//scripts/x", "./scripts/x", ""),
        ("/opt/tool/*", "/opt/tool/x", ""),
    ] {
        assert!(allows(pattern, given, place), "{pattern} {given} {place}");
    }
    for (pattern, given, place) in [
        ("./scripts/*", "./scripts/../../usr/bin/getconf", ""),
        ("./scripts/*", "./scripts/../gradlew", ""),
        ("./scripts/*", "./scripts/out", ""),
        ("./scripts/*", "./scripts/x", "?"),
        ("./*", "../usr/bin/getconf", ""),
        ("../*", "../../usr/bin/getconf", "sub"),
        ("./usr/bin/*", "getconf", "/"),
        ("/opt/tool/*", "/opt/tool/../../usr/bin/getconf", ""),
    ] {
        assert!(!allows(pattern, given, place), "{pattern} {given} {place}");
    }
}

#[test]
fn a_relative_pattern_denies_the_file_by_whatever_path() {
    for (given, place) in [
        ("./gradlew", ""),
        ("gradlew/", ""),
        ("././gradlew", ""),
        (".//gradlew", ""),
        ("app/../gradlew", ""),
        ("/work/gradlew", ""),
        ("/work//./gradlew", ""),
        ("../gradlew", "app"),
        ("../../gradlew", "app/sub"),
        ("/work/gradlew", "/srv"),
        ("/work/gradlew", "?"),
        ("./h", ""),
        ("./gradlew", "app"),
        ("./gradlew", "linked"),
        ("/srv/other/gradlew", "linked"),
    ] {
        assert_eq!(answer("deny", "./gradlew", given, place), Match::Yes, "{given} {place}");
        assert_eq!(answer("ask", "./gradl*", given, place), Match::Yes, "{given} {place}");
    }
    for (given, place) in
        [("./app/gradlew", ""), ("gradlew", ""), ("./gradlew2", ""), ("ls", ""), ("ls", "?")]
    {
        assert_eq!(answer("deny", "./gradlew", given, place), Match::No, "{given} {place}");
    }
    assert_eq!(answer("deny", "./gradlew", "/srv/app/gradlew", "?"), Match::Perhaps);
    assert_eq!(answer("deny", "scripts/x", "./scripts/x", ""), Match::Yes);
    assert_eq!(answer("deny", "/bin/rm", "rm", ""), Match::Yes, "the same file by another path");
    assert_eq!(answer("deny", "/opt/tool/x", "./tool/x", "/opt"), Match::Yes);
    // The workspace's own, for a process further down.
    for given in ["../gradlew", "/work/gradlew", "../h"] {
        assert_eq!(answer_in("/work/app", "deny", "./gradlew", given, ""), Match::Yes, "{given}");
    }
    // And for one that has left it.
    for given in ["/work/gradlew", "../work/gradlew", "../work/h"] {
        assert_eq!(answer_in("/srv", "deny", "./gradlew", given, ""), Match::No, "{given}");
        for (decision, pattern) in [("deny", "./gradlew"), ("ask", "./g*")] {
            let found = answer_from(&["/work"], "/srv", decision, pattern, given, "");
            assert_eq!(found, Match::Yes, "{given} {pattern}");
        }
        assert_eq!(answer_from(&["/work"], "/srv", "allow", "./gradlew", given, ""), Match::No, "{given}");
    }
    assert_eq!(
        answer_from(&["/work/linked"], "/srv", "deny", "./gradlew", "./other/gradlew", ""),
        Match::Yes
    );
    // A pattern for everything below is not about the programs of the system.
    assert_eq!(answer("ask", "./*", "ls", ""), Match::No);
}

#[test]
fn what_a_path_says_is_found_by_its_letters() {
    for (path, expected) in [
        ("./a//b/./c", "./a/b/c"),
        ("a/../../b", "../b"),
        ("/a/../../b/", "/b"),
        ("../../a", "../../a"),
        ("./", "./"),
    ] {
        assert_eq!(plain(path), expected, "{path}");
    }
    let from = |path, directory| from_directory(path, directory);
    assert_eq!(from("/a/b/c", "/a").as_deref(), Some("./b/c"));
    assert_eq!(from("/a/b/c", "/a/x/y").as_deref(), Some("../../b/c"));
    assert_eq!(from("/a/b", "/a/b/c"), None);
    assert_eq!(from("/ab", "/a").as_deref(), Some("../ab"));
}
