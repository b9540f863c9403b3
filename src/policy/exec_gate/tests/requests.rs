//! What a gate changes about the evaluation of requests.

use std::sync::Arc;

use super::{
    super::super::{AbsPath, CommandSpec, Denial, Permit, ProfileResolvers, Request, profile::Profile},
    *,
};

impl ProfileResolvers for Links {
    fn for_profile<'a>(&'a self, _: &'a Profile) -> Box<dyn ProgramResolver + 'a> {
        Box::new(Links(self.0))
    }
}

pub(super) fn request(profile: &str, command: CommandSpec) -> Request {
    let work = AbsPath::parse("/work").unwrap();
    let plain = Request::plain("uid:1000".into(), Arc::from([work.clone()]), work, command);
    Request { profile: Some(profile.to_owned()), ..plain }
}

pub(super) fn decided(policy: &PolicySet, profile: &str, command: CommandSpec) -> Result<Permit, Denial> {
    policy.evaluate(&request(profile, command), &LINKS).decide(None)
}

pub(super) fn requested(policy: &PolicySet, profile: &str, argv: Vec<String>) -> ExecDecision {
    let mut argv = argv.into_iter();
    let command = argv.next().unwrap_or_default();
    match decided(policy, profile, CommandSpec::Argv { command, args: argv.collect() }) {
        Ok(_) => Allow,
        Err(denial) => denial.decision(),
    }
}

#[test]
fn a_rule_is_for_requests_or_for_the_tree() {
    let rules = rule("request", "allow", "['a', '**']", "at = 'request'\nmatches = ['a']")
        + &rule("tree", "allow", "['b', '**']", "at = 'tree'\nmatches = ['b']")
        + &rule("both", "allow", "['c', '**']", "")
        + &rule("not-in-tree", "deny", "['c', 'x']", "at = 'tree'")
        + &rule("not-asked-for", "deny", "['c', 'y']", "at = 'request'");
    let policy = policy(&rules);
    for (line, in_request, in_line, in_tree) in [
        ("a", Allow, Allow, Deny),
        ("b", Deny, Deny, Allow),
        ("c", Allow, Allow, Allow),
        // What is certain to be refused is refused before the line begins.
        ("c x", Allow, Deny, Deny),
        ("c y", Deny, Deny, Allow),
    ] {
        assert_eq!(decision(&policy, &format!("/usr/bin/{line}")), in_tree, "{line}");
        let words = line.split(' ').map(str::to_owned).collect();
        assert_eq!(requested(&policy, "gated", words), in_request, "{line}");
        let shell = vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        assert_eq!(requested(&policy, "gated", shell), in_line, "{line}");
    }
}

#[test]
fn a_permit_carries_the_rule_by_which_its_processes_may_start_anything() {
    let rules =
        rule("make", "allow", "['make', '**']", "starts = 'any'") + &rule("ls", "allow", "['ls']", "");
    let policy = policy(&rules);
    let carried = |line: &str| {
        let command = CommandSpec::ShellLine(line.to_owned());
        let permit = decided(&policy, "gated", command).unwrap_or_else(|denial| panic!("{line}: {denial}"));
        permit.spec().starts_any_rule().map(str::to_owned)
    };
    assert_eq!(carried("ls"), None);
    assert_eq!(carried("ls && env make all").as_deref(), Some("make"));
}

#[test]
fn what_cannot_be_seen_in_a_line_is_left_to_the_gate_where_there_is_one() {
    let rules = rule("git", "allow", "['git', 'status', '**']", "")
        + &rule("push", "deny", "['git', 'push', '**']", "")
        + &rule("publish", "ask", "['npm', 'publish', '**']", "")
        + &rule("npm", "allow", "['npm', '**']", "");
    let policy = policy(&rules);
    let line = |profile: &str, line: &str| {
        let command = CommandSpec::ShellLine(line.to_owned());
        decided(&policy, profile, command).map_or_else(|denial| denial.decision(), |_| Allow)
    };
    for unseen in [
        "$X",
        "eval \"$(git status)\"",
        "git $X",
        "npm $X",
        ". ./x",
        "bash ./x.sh",
        "xargs git < x",
        "PATH=/x:$PATH; git status",
        "cd \"$d\" && ./x",
        "$(git status)",
        "a=(1 2",
        "env -S 'git push'",
        "case $x in *) $x;; esac",
    ] {
        assert_eq!(line("gated", unseen), Allow, "{unseen}");
        assert_ne!(line("a", unseen), Allow, "{unseen}");
    }
    // What can be seen is refused, or asked about, before the line begins.
    for (seen, decision) in [
        ("git push", Deny),
        ("$X; git push", Deny),
        ("$(git push)", Deny),
        ("env git push $X", Deny),
        ("make", Deny),
        ("make $X", Deny),
        ("rm \"$X\"", Deny),
        ("npm publish; $X", Ask),
        ("npm publish $X", Ask),
        ("LD_PRELOAD=x git status", Deny),
    ] {
        assert_eq!(line("gated", seen), decision, "{seen}");
    }
}

#[test]
fn a_first_command_is_judged_as_without_a_gate() {
    let rules = rule("all", "allow", "['git', '**']", "")
        + &rule("push", "deny", "['git', '**']", "flags = ['--force']");
    let policy = policy(&rules);
    let both = |line: &str| {
        ["gated", "a"]
            .map(|profile| requested(&policy, profile, line.split(' ').map(str::to_owned).collect()))
    };
    assert_eq!(both("git push --forc"), [Ask, Ask]);
    // The gate does not see what these run: they do it by themselves.
    assert_eq!(both("/lib64/ld-linux.so.2 --preload x git")[0], Deny);
    let open = self::policy(
        &(rule("all", "allow", "['/lib64/*', '**']", "") + &rule("no", "deny", "['rm', '**']", "")),
    );
    for profile in ["gated", "a"] {
        let loader = ["/lib64/ld-linux.so.2", "--preload", "x", "y"].map(str::to_owned).to_vec();
        assert_eq!(requested(&open, profile, loader), Ask, "{profile}");
        let busybox = ["busybox", "sh", "-c", "$X"].map(str::to_owned).to_vec();
        assert_eq!(requested(&open, profile, busybox), Ask, "{profile}");
    }
    assert_eq!(requested(&open, "gated", ["sh", "-c", "$X"].map(str::to_owned).to_vec()), Allow);
}
