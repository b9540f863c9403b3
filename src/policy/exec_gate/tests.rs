//! Verdicts on execs, with small policies and nominal files.

use super::{
    super::{
        PolicyFileError,
        command::program::{Interpreters, NominalResolver, interpreted_argv},
    },
    *,
};
use ExecDecision::{Allow, Ask, Deny};

mod environment;
mod interpreted;
mod links;
mod requests;
mod scripts;

const HEAD: &str =
    "default_profile = 'a'\n[profile.a]\n[profile.gated]\ngate.enabled = true\n[profile.other]\n";

/// Nominal files, where these names in `/usr/bin` lead to other files there, and these paths to other files.
struct Links(&'static [(&'static str, &'static str)]);

impl ProgramResolver for Links {
    fn find_in_path(&self, name: &str) -> Resolved {
        let target = self.0.iter().find(|(link, _)| *link == name).map_or(name, |(_, target)| target);
        NominalResolver.find_in_path(target)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        match NominalResolver.resolve_path(path, cwd) {
            Resolved::File(file) if file.path.starts_with("/usr/bin/") => {
                self.find_in_path(base_name(&file.path))
            }
            Resolved::File(file) => match self.0.iter().find(|(link, _)| *link == file.path) {
                Some((_, target)) => NominalResolver.resolve_path(target, "/"),
                None => Resolved::File(file),
            },
            other => other,
        }
    }

    fn interpreters(&self, file: &FileId, _cwd: &str) -> Interpreters {
        scripts::interpreters(&file.path)
    }
}

const LINKS: Links = Links(&[
    ("ls", "busybox"),
    ("rmdir", "busybox"),
    ("sh", "dash"),
    ("reboot", "systemctl"),
    ("/work/bb", "/usr/bin/busybox"),
    ("/work/busybox-x", "/usr/bin/busybox"),
    ("/work/s", "/usr/bin/systemctl"),
    ("/work/ll", "/lib64/ld-linux-x86-64.so.2"),
    ("/work/busybox", "/lib64/ld-linux-x86-64.so.2"),
    ("/work/git-status", "/usr/lib/git-core/git-remote-https"),
    ("/work/h", "/work/gradlew"),
    ("/work/scripts/out", "/usr/bin/getconf"),
]);

fn policy(rules: &str) -> PolicySet {
    try_policy(rules).unwrap_or_else(|error| panic!("{error}"))
}

fn try_policy(rules: &str) -> Result<PolicySet, PolicyFileError> {
    PolicySet::parse("p.toml", &format!("{HEAD}{rules}"))
}

fn rule(id: &str, decision: &str, argv: &str, rest: &str) -> String {
    format!("[[rule]]\nid = '{id}'\ndecision = '{decision}'\nargv = {argv}\n{rest}\n")
}

/// An exec, to be changed where a test needs another.
struct Exec {
    labels: BTreeMap<String, String>,
    profile: ProfileName,
    path: String,
    argv: Vec<String>,
    env: Option<BTreeMap<String, String>>,
    further_env: BTreeMap<String, Vec<String>>,
    interpreters: Vec<Interpreter>,
    /// What the kernel has for the script's name; absent: the path.
    script: Option<&'static str>,
    starts_any_rule: Option<&'static str>,
}

fn file(path: &str) -> Resolved {
    LINKS.resolve_path(path, "/")
}

impl Exec {
    /// `line`: the path and the arguments, separated by blanks.
    fn of(line: &str) -> Self {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Self {
            labels: BTreeMap::new(),
            profile: ProfileName::from_recorded("gated"),
            path: words[0].clone(),
            argv: words,
            env: None,
            further_env: BTreeMap::new(),
            interpreters: Vec::new(),
            script: None,
            starts_any_rule: None,
        }
    }

    fn named(mut self, name: &str) -> Self {
        self.argv[0] = name.to_owned();
        self
    }

    fn by(mut self, interpreters: &[(&str, Option<&str>)]) -> Self {
        let interpreter = |(path, argument): &(&str, Option<&str>)| Interpreter {
            path: path.as_bytes().to_vec(),
            argument: argument.map(|argument| argument.as_bytes().to_vec()),
            file: file(path),
        };
        self.interpreters = interpreters.iter().map(interpreter).collect();
        self
    }

    fn called_script(mut self, name: &'static str) -> Self {
        self.script = Some(name);
        self
    }

    fn starting_anything(mut self) -> Self {
        self.starts_any_rule = Some("make");
        self
    }

    fn under(&self, policy: &PolicySet) -> ExecVerdict {
        let Resolved::File(file) = file(&self.path) else { panic!("{} is no file", self.path) };
        self.verdict(policy, file, &LINKS)
    }

    /// Where there are these links.
    fn decision_with(&self, policy: &PolicySet, links: &Links) -> ExecDecision {
        let Resolved::File(file) = links.resolve_path(&self.path, "/") else {
            panic!("{} is no file", self.path)
        };
        self.verdict(policy, file, links).decision
    }

    fn verdict(&self, policy: &PolicySet, file: FileId, links: &Links) -> ExecVerdict {
        let lines = self.interpreters.iter().map(|one| (one.path_text(), one.argument_text()));
        let script = self.script.map_or_else(|| self.path.clone(), str::to_owned);
        let final_argv = interpreted_argv(script, self.argv.iter().skip(1).cloned(), lines);
        let request = ExecRequest {
            principal: "uid:1000",
            labels: &self.labels,
            profile: &self.profile,
            relative_from: &[],
            cwd: "/work",
            path: &self.path,
            argv: &self.argv,
            env: self.env.as_ref(),
            further_env: &self.further_env,
            file,
            interpreters: &self.interpreters,
            final_argv: &final_argv,
            starts_any_rule: self.starts_any_rule,
            approved: &[],
        };
        policy.evaluate_exec(&request, links)
    }

    fn decision(&self, policy: &PolicySet) -> ExecDecision {
        self.under(policy).decision
    }
}

fn decision(policy: &PolicySet, line: &str) -> ExecDecision {
    Exec::of(line).decision(policy)
}

#[test]
fn deny_beats_ask_beats_allow_beats_the_default() {
    let rules = rule("a-git", "allow", "['git', '**']", "")
        + &rule("b-push", "ask", "['git', 'push', '**']", "reason = 'publishing'")
        + &rule("c-force", "deny", "['git', 'push', '**']", "flags = ['--force']\nreason = 'never'");
    let policy = policy(&rules);
    let verdict = |line: &str| {
        let verdict = Exec::of(line).under(&policy);
        (verdict.decision, verdict.rule.unwrap_or_default(), verdict.reason.unwrap_or_default())
    };
    assert_eq!(verdict("/usr/bin/git status"), (Allow, "a-git".into(), "".into()));
    assert_eq!(verdict("/usr/bin/git push"), (Ask, "b-push".into(), "publishing".into()));
    assert_eq!(verdict("/usr/bin/git push --force"), (Deny, "c-force".into(), "never".into()));
    assert_eq!(verdict("/usr/bin/git push --forc").0, Ask, "an option that is cut short is one perhaps");
    assert_eq!(verdict("/usr/bin/make"), (Deny, "".into(), "".into()));
    // An allowed name is the file of the trusted path; a denied one is any file that calls itself so.
    assert_eq!(verdict("/work/git status"), (Deny, "".into(), "".into()));
    assert_eq!(verdict("/work/git push --force").1, "c-force");
}

#[test]
fn a_terminal_that_may_start_anything_runs_what_no_rule_matches_and_nothing_else() {
    let rules = rule("push", "ask", "['git', 'push', '**']", "") + &rule("rm", "deny", "['rm', '**']", "");
    let policy = policy(&rules);
    let started = |line: &str| Exec::of(line).starting_anything().under(&policy);
    assert_eq!(started("/work/target/build-script").decision, Allow);
    assert_eq!(started("/work/target/build-script").rule, None);
    assert_eq!(started("/usr/bin/git push").decision, Ask);
    assert_eq!(started("/usr/bin/rm x").decision, Deny);
    assert_eq!(decision(&policy, "/work/target/build-script"), Deny);
}

#[test]
fn a_shell_and_a_wrapper_need_no_rule_and_are_only_themselves() {
    let policy = policy(&rule("rm", "deny", "['rm', '**']", ""));
    for line in [
        "/bin/sh -c rm",
        "/usr/bin/bash x.sh",
        "/usr/bin/bash --rcfile x -i",
        "/usr/bin/env rm x",
        "/usr/bin/xargs rm",
        "/usr/bin/timeout 5 rm x",
        "/usr/bin/nice",
    ] {
        let verdict = Exec::of(line).under(&policy);
        assert_eq!((verdict.decision, verdict.rule), (Allow, None), "{line}");
    }
    // These do something by themselves, and these only have the name.
    for line in
        ["/usr/bin/find . -exec rm x", "/usr/bin/sudo ls", "/work/env ls", "/work/sh -c ls", "/work/bash"]
    {
        assert_eq!(decision(&policy, line), Deny, "{line}");
    }
    let no_shell = self::policy(&rule("bash", "deny", "['bash', '**']", ""));
    assert_eq!(decision(&no_shell, "/usr/bin/bash -c ls"), Deny);
}

#[test]
fn a_program_that_is_many_is_what_its_name_says() {
    let rules = rule("ls", "allow", "['ls', '**']", "") + &rule("rm", "deny", "['rm', '**']", "");
    let policy = policy(&rules);
    assert_eq!(decision(&policy, "/usr/bin/ls -l"), Allow);
    assert_eq!(decision(&policy, "/usr/bin/busybox ls -l"), Allow);
    assert_eq!(decision(&policy, "/usr/bin/busybox rm x"), Deny);
    assert_eq!(decision(&policy, "/usr/bin/busybox busybox rm x"), Deny);
    assert_eq!(decision(&policy, "/usr/bin/busybox wget x"), Deny);
    // By the name that it is started under, whatever its path is.
    assert_eq!(Exec::of("/usr/bin/ls x").named("rm").under(&policy).rule.as_deref(), Some("rm"));
    assert_eq!(Exec::of("/usr/bin/ls x").named("wget").decision(&policy), Deny);
    assert_eq!(Exec::of("/usr/bin/rmdir x").named("ls").decision(&policy), Deny);
    // A shell in it runs the other applets without an exec.
    assert_eq!(decision(&policy, "/usr/bin/busybox sh -c x"), Deny);
    // It may run `rm` without an exec.
    assert_eq!(Exec::of("/usr/bin/busybox sh -c x").starting_anything().decision(&policy), Ask);
    // A program that is one keeps what it is, and is also what it calls itself.
    let one = self::policy(&(rule("cat", "allow", "['cat']", "") + &rule("rm", "deny", "['rm', '**']", "")));
    assert_eq!(Exec::of("/usr/bin/cat").named("dog").decision(&one), Allow);
    assert_eq!(Exec::of("/usr/bin/cat").named("rm").decision(&one), Deny);
    assert_eq!(Exec::of("/usr/bin/bash").named("-bash").decision(&one), Allow);
}

#[test]
fn git_is_its_subcommand_by_whatever_name() {
    let rules = rule("git", "allow", "['git', ['status', 'fetch'], '**']", "")
        + &rule("push", "deny", "['git', 'push', '**']", "");
    let policy = policy(&rules);
    assert_eq!(decision(&policy, "/usr/lib/git-core/git-fetch origin"), Allow);
    assert_eq!(decision(&policy, "/usr/lib/git-core/git-push origin"), Deny);
    assert_eq!(Exec::of("/usr/bin/git origin").named("git-push").decision(&policy), Deny);
    assert_eq!(decision(&policy, "/work/git-fetch origin"), Deny);
}

#[test]
fn a_loader_is_also_the_program_that_it_loads() {
    let rules = rule("loader", "allow", "['/lib64/ld-*', '**']", "")
        + &rule("ls", "allow", "['cat', '**']", "")
        + &rule("rm", "deny", "['rm', '**']", "");
    let policy = policy(&rules);
    let loader = "/lib64/ld-linux-x86-64.so.2";
    assert_eq!(decision(&policy, &format!("{loader} /usr/bin/cat x")), Allow);
    assert_eq!(decision(&policy, &format!("{loader} /usr/bin/rm x")), Deny);
    assert_eq!(decision(&policy, &format!("{loader} /usr/bin/make")), Deny);
    assert_eq!(decision(&policy, &format!("{loader} {loader} /usr/bin/rm x")), Deny);
    assert_ne!(decision(&policy, &format!("{loader} --preload x /usr/bin/cat")), Allow);
    let started = |line: String| Exec::of(&line).starting_anything().decision(&policy);
    assert_eq!(started(format!("{loader} /usr/bin/make")), Allow);
    assert_eq!(started(format!("{loader} /usr/bin/rm x")), Deny);
    assert_eq!(started(format!("{loader} --preload x /usr/bin/rm")), Ask);
}

#[test]
fn a_rule_says_that_its_commands_may_start_anything() {
    let rules = rule("b-make", "allow", "['make', '**']", "starts = 'any'")
        + &rule("a-make", "allow", "['make', '**']", "")
        + &rule("npm", "ask", "['npm', '**']", "starts = 'any'")
        + &rule("no", "deny", "['make', 'no']", "")
        + &rule("see", "allow", "['cargo', '**']", "starts = 'any'\nmode = 'observe'");
    let policy = policy(&rules);
    let verdict = |line: &str| Exec::of(line).under(&policy);
    let starts = |line: &str| verdict(line).starts_any;
    assert_eq!(starts("/usr/bin/make all").as_deref(), Some("b-make"));
    assert_eq!(verdict("/usr/bin/make all").rule.as_deref(), Some("a-make"));
    assert_eq!(starts("/usr/bin/npm install").as_deref(), Some("npm"));
    assert_eq!(starts("/usr/bin/make no"), None);
    assert_eq!(starts("/usr/bin/cargo"), None);
    assert_eq!(verdict("/usr/bin/cargo").observed, [("see".to_owned(), Allow)]);
    assert_eq!(starts("/bin/sh -c make"), None);
    let error = try_policy(&rule("x", "deny", "['x']", "starts = 'any'")).unwrap_err();
    assert!(error.problem.starts_with("starts: ") && error.line == 10, "{error}");
}

#[test]
fn who_asks_and_where_count_as_for_requests() {
    let rules = rule("mine", "allow", "['a']", "when.principal = ['uid:1000']")
        + &rule("theirs", "allow", "['b']", "when.principal = ['uid:7']")
        + &rule("here", "allow", "['c']", "when.cwd = ['/work']")
        + &rule("there", "allow", "['d']", "when.cwd = ['/elsewhere']")
        + &rule("review", "deny", "['a']", "when.labels = { task = 'review' }");
    let policy = policy(&rules);
    let decisions = ["a", "b", "c", "d"].map(|name| decision(&policy, &format!("/usr/bin/{name}")));
    assert_eq!(decisions, [Allow, Deny, Allow, Deny]);
    let labels = BTreeMap::from([("task".to_owned(), "review".to_owned())]);
    assert_eq!(Exec { labels, ..Exec::of("/usr/bin/a") }.decision(&policy), Deny);
}

#[test]
fn a_rule_that_allows_under_another_profile_allows_no_exec_under_this_one() {
    let policy = policy(&rule("a", "allow", "['a']", "effects = { profile = 'other', time_limit = '1s' }"));
    assert_eq!(decision(&policy, "/usr/bin/a"), Deny);
    let under_it = Exec { profile: ProfileName::from_recorded("other"), ..Exec::of("/usr/bin/a") };
    assert_eq!(under_it.decision(&policy), Allow);
}

#[test]
fn the_gate_of_a_profile_is_off_unless_it_is_enabled() {
    let policy = policy("");
    let layer = |name: &str| policy.profile(Some(name)).unwrap().1.gate;
    assert!(!layer("a").enabled && layer("gated").enabled);
    assert_eq!(layer("gated").requirement, super::super::profile::Requirement::Require);
}
