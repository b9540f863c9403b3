//! Links, and files that call themselves what they are not, as programs of requests.

use super::*;

/// Links in a workspace.
struct Links;

impl ProgramResolver for Links {
    fn find_in_path(&self, name: &str) -> Resolved {
        NominalResolver.find_in_path(if name == "reboot" { "systemctl" } else { name })
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let Resolved::File(file) = NominalResolver.resolve_path(path, cwd) else { return Resolved::Missing };
        match file.path.as_str() {
            "/work/bb" | "/work/busybox-x" | "/work/env" => self.find_in_path("busybox"),
            "/work/s" => self.find_in_path("systemctl"),
            "/work/ll" | "/work/bash" => NominalResolver.resolve_path("/lib64/ld-linux-x86-64.so.2", "/"),
            "/work/git-log" => NominalResolver.resolve_path("/usr/lib/git-core/git-remote-https", "/"),
            "/work/h" => NominalResolver.resolve_path("/work/gradlew", "/"),
            _ => Resolved::File(file),
        }
    }
}

fn decide(rules: &[Rule], line: &str, unseen: Unseen) -> [Decision; 2] {
    let request = in_work();
    let context = EvalContext { unseen, ..context(rules, &Links, &request) };
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    [CommandInput::ShellLine(line, Dialect::Bash), CommandInput::Argv(&words)]
        .map(|form| evaluate_rules(form, context).decision)
}

const OPEN: &str = r#"
rule = [
    { id = "all", decision = "allow", argv = ["**"] },
    { id = "no", decision = "deny", argv = [["dd", "systemctl"], "**"] },
    { id = "push", decision = "deny", argv = ["git", "push", "**"] },
    { id = "publish", decision = "ask", argv = ["./gradlew", "publish", "**"] },
]
"#;

const STRICT: &str = r#"
rule = [
    { id = "git", decision = "allow", argv = ["git", ["status", "log"], "**"] },
    { id = "scripts", decision = "allow", argv = ["./scripts/*", "**"] },
    { id = "dd", decision = "allow", argv = [["dd", "busybox"], "**"] },
]
"#;

#[test]
fn what_a_program_may_also_be_is_denied_and_asked_about() {
    let rules = rules_of(OPEN);
    for unseen in [Unseen::Asked, Unseen::JudgedAtExec] {
        for (line, expected) in [
            ("./bb dd x", Decision::Deny),
            ("./busybox-x dd x", Decision::Deny),
            ("./bb busybox dd x", Decision::Deny),
            ("./env dd x", Decision::Deny),
            ("env ./bb dd x", Decision::Deny),
            ("./s --version", Decision::Deny),
            ("./ll /usr/bin/dd x", Decision::Deny),
            ("./bash /usr/bin/git push", Decision::Deny),
            ("./ll ./ll /usr/bin/git push", Decision::Deny),
            ("./ll --preload x /usr/bin/ls", Decision::Ask),
            ("git-core/git-push x", Decision::Deny),
            ("./git-push x", Decision::Deny),
            ("./bb ls x", Decision::Allow),
            ("./bb -x dd", Decision::Allow),
            ("reboot now", Decision::Allow),
            ("./ll /usr/bin/ls x", Decision::Allow),
            ("git-core/git-log x", Decision::Allow),
            ("./gradlew publish", Decision::Ask),
            ("/work/gradlew publish", Decision::Ask),
            ("././gradlew publish", Decision::Ask),
            (".//gradlew publish", Decision::Ask),
            ("app/../gradlew publish", Decision::Ask),
            ("./h publish", Decision::Ask),
            ("./h build", Decision::Allow),
        ] {
            assert_eq!(decide(&rules, line, unseen), [expected; 2], "{line}, {unseen:?}");
        }
    }
    assert_eq!(decide(&rules, "cd app && ../gradlew publish", Unseen::Asked)[0], Decision::Ask);
    assert_eq!(decide(&rules, "cd /srv && /work/gradlew publish", Unseen::Asked)[0], Decision::Ask);
}

#[test]
fn what_a_program_may_also_be_is_no_permission() {
    let rules = rules_of(STRICT);
    for (line, expected) in [
        ("git status", Decision::Allow),
        ("/usr/lib/git-core/git-log x", Decision::Allow),
        ("git-core/git-status", Decision::Deny),
        ("/work/usr/lib/git-core/git-status", Decision::Deny),
        ("./git-log x", Decision::Deny),
        ("./bb dd x", Decision::Deny),
        ("./ll /usr/bin/dd x", Decision::Deny),
        ("./scripts/x", Decision::Allow),
        ("scripts/../scripts/x", Decision::Allow),
        ("./scripts/../x", Decision::Deny),
        ("./scripts/../../usr/bin/getconf", Decision::Deny),
    ] {
        assert_eq!(decide(&rules, line, Unseen::Asked), [expected; 2], "{line}");
    }
}

#[test]
fn what_an_applet_runs_is_seen_whatever_leads_to_it() {
    let rules = rules_of(OPEN);
    for line in [
        "busybox find . -exec dd x ;",
        "./toybox nice dd x",
        "./toybox nosuchprogram/timeout 5 dd x",
        "busybox xargs setsid dd",
        "./bb find . -exec dd x ;",
        "./env dd x",
        "./env nice dd x",
        "./busybox-x xargs dd",
    ] {
        for unseen in [Unseen::Asked, Unseen::JudgedAtExec] {
            assert_eq!(argv_decision(&rules, line, unseen), Decision::Deny, "{line}");
        }
    }
    for line in ["busybox xargs grep x", "./env ls x", "./toybox nice ls", "./bb find . -name x"] {
        assert_eq!(argv_decision(&rules, line, Unseen::JudgedAtExec), Decision::Allow, "{line}");
    }
    assert_eq!(argv_decision(&rules, "./toybox inotifyd dd x", Unseen::JudgedAtExec), Decision::Ask);
    assert_eq!(argv_decision(&rules, "./toybox xargs {} x", Unseen::JudgedAtExec), Decision::Allow);
    assert_eq!(argv_decision(&rules, "./toybox xargs -I{} {} x", Unseen::JudgedAtExec), Decision::Ask);
    // A link is no permission for itself.
    assert_eq!(argv_decision(&rules_of(STRICT), "./env git status", Unseen::Asked), Decision::Deny);
}

fn argv_decision(rules: &[Rule], line: &str, unseen: Unseen) -> Decision {
    decide(rules, line, unseen)[1]
}
