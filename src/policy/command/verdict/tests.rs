//! Verdicts on commands of every shape, against a small set of rules.

mod effects;
mod hiding;
mod links;
mod options;
mod own_variables;
mod properties;

use std::collections::BTreeMap;

use super::super::evaluate_rules;
use super::{
    super::{
        examples::{self, ExampleBudget},
        pattern::Regexes,
        program::{FileId, NominalResolver, PathStability},
        rule::{RuleError, RuleMode, RuleSource, base_name},
    },
    *,
};

#[derive(serde::Deserialize)]
struct CaseFile {
    rule: Vec<RuleSource>,
}

const RULES: &str = r#"
[[rule]]
id = "git-read"
decision = "allow"
argv = ["git", ["status", "log", "diff"], "**"]
skip = { with_value = ["-C"], flags = ["--no-pager"] }
matches = ["git status", "git -C x log", "git --no-pager diff a b"]
rejects = ["git push", "git -c alias.x=y status"]

[[rule]]
id = "git-publish"
decision = "ask"
argv = ["git", ["push", "tag"], "**"]
reason = "publishing needs a person"
matches = ["git push origin main"]

[[rule]]
id = "no-force"
decision = "deny"
argv = ["git", "push", "**"]
flags = ["-f", "--force"]
matches = ["git push -f", "git push origin main --force"]
rejects = ["git push"]

[[rule]]
id = "read"
decision = "allow"
argv = [["ls", "cat", "grep", "head"], "**"]

[[rule]]
id = "no-rm"
decision = "deny"
argv = ["rm", "**"]

[[rule]]
id = "python"
decision = "allow"
argv = [{ regex = "python3?" }, "**"]
when = { cwd = ["/work"] }

[[rule]]
id = "watch-head"
decision = "deny"
mode = "observe"
argv = ["head", "**"]
"#;

fn rules() -> Vec<Rule> {
    let file: CaseFile = toml::from_str(RULES).unwrap_or_else(|e| panic!("{e}"));
    file.rule
        .iter()
        .map(|source| {
            let rule = Rule::compile(source, RuleMode::Enforce, &Regexes::default())
                .unwrap_or_else(|e| panic!("{}: {e}", source.id));
            examples::check(source, &rule, &ExampleBudget::default())
                .unwrap_or_else(|e| panic!("{}: {e}", source.id));
            rule
        })
        .collect()
}

/// `git` and its friends in /usr/bin; a copy, a link and a stranger in the workspace.
struct LinkedHost;

impl ProgramResolver for LinkedHost {
    fn find_in_path(&self, name: &str) -> Resolved {
        match name {
            "git" | "ls" | "cat" | "grep" | "head" | "rm" | "python3" | "env" | "sudo" | "xargs" | "find"
            | "sh" | "bash" | "timeout" | "nice" | "busybox" | "nohup" => NominalResolver.find_in_path(name),
            _ => Resolved::Missing,
        }
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        match NominalResolver.resolve_path(path, cwd) {
            Resolved::File(file) if file.path == "/work/link-to-rm" => self.find_in_path("rm"),
            Resolved::File(file) if file.path == "/work/link-to-ls" => self.find_in_path("ls"),
            Resolved::File(file) if file.path.starts_with("/usr/bin/") => {
                self.find_in_path(base_name(&file.path))
            }
            found => found,
        }
    }
}

/// What a request in `/work` is evaluated by, where a line may set any variable and what it hides is asked about.
fn context<'a>(
    rules: &'a [Rule],
    resolver: &'a dyn ProgramResolver,
    request: &'a RequestContext,
) -> EvalContext<'a> {
    EvalContext {
        rules,
        resolver,
        request,
        own_profile: "workspace",
        lookup: Lookup::Trusted,
        unseen: Unseen::Asked,
        assignment_verdict: &|_, _| AssignmentVerdict::Allowed,
    }
}

fn in_work() -> RequestContext {
    RequestContext { cwd: "/work".into(), ..RequestContext::default() }
}

fn rules_of(text: &str) -> Vec<Rule> {
    let file: CaseFile = toml::from_str(text).unwrap_or_else(|e| panic!("{e}"));
    let compile = |source| {
        Rule::compile(source, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    file.rule.iter().map(compile).collect()
}

fn verdict(form: CommandInput<'_>, rules: &[Rule]) -> RuleVerdict {
    let request = in_work();
    let context = EvalContext {
        assignment_verdict: &|name, _| match name {
            name if name.starts_with("LD_") || name == "GIT_SSH_COMMAND" => AssignmentVerdict::Denied,
            "GUARDED" => AssignmentVerdict::Guarded,
            _ => AssignmentVerdict::Allowed,
        },
        ..context(rules, &LinkedHost, &request)
    };
    evaluate_rules(form, context)
}

#[test]
fn every_line_gets_the_verdict_of_its_strictest_command() {
    use Decision::{Allow, Ask, Deny};
    let rules = rules();
    let cases: &[(&str, Decision)] = &[
        ("git status", Allow),
        ("git -C /x status", Allow),
        ("/usr/bin/git status", Allow),
        ("//usr/bin/git status", Allow),
        ("/usr/./bin/git log", Allow),
        ("g'i't status", Allow),
        ("git status && ls | grep x", Allow),
        ("cd sub && git log", Allow),
        ("echo hi; true; ls", Allow),
        ("cat <<'E'\nrm -rf /\nE", Allow),
        ("echo 'rm -rf /'", Allow),
        ("ls *.c", Allow),
        ("ls $HOME", Allow),
        ("env git status", Allow),
        ("env A=b git status", Allow),
        ("timeout 5 git status", Allow),
        ("nice -n 5 timeout -k 1 5 env X=y git log", Allow),
        ("sh -c 'git status'", Allow),
        ("bash -lc 'cd x && git status'", Ask),
        ("bash -c \"sh -c 'git status'\"", Allow),
        ("xargs ls", Allow),
        ("busybox ls", Allow),
        ("f() { ls; }; f", Allow),
        ("python3 x.py", Allow),
        ("git push", Ask),
        ("git tag v1", Ask),
        ("git $X", Ask),
        ("$X status", Ask),
        ("ls; $X", Ask),
        ("eval \"$X\"", Ask),
        ("sh script.sh", Ask),
        ("bash", Ask),
        ("cat x | sh", Ask),
        ("sh -c \"$X\"", Ask),
        ("source x", Ask),
        (". x", Ask),
        ("PATH=/x ls", Ask),
        ("export PATH=/x; ls", Ask),
        ("cd $X && ./tool", Ask),
        ("if then", Ask),
        ("cd /elsewhere && python3 x.py", Deny),
        ("cd $X && python3 x.py", Deny),
        ("git push --force", Deny),
        ("git push origin -f main", Deny),
        ("git push origin main --force=yes", Deny),
        ("git checkout x", Deny),
        ("git -c alias.status=!sh status", Deny),
        ("rm x", Deny),
        ("ls; rm x", Deny),
        ("ls && ls && ls || rm x", Deny),
        ("ls\nrm x", Deny),
        ("ls & rm x", Deny),
        ("echo $(rm x)", Deny),
        ("echo `rm x`", Deny),
        ("cat <(rm x)", Deny),
        ("cat <<E\n$(rm x)\nE", Deny),
        ("$(rm x)", Deny),
        ("r\\m x", Deny),
        ("$'\\x72m' x", Deny),
        ("'r'\"m\" x", Deny),
        ("env rm x", Deny),
        ("env -i A=b rm x", Deny),
        ("sudo rm x", Deny),
        ("sudo -u root rm x", Deny),
        ("nice rm x", Deny),
        ("nohup rm x &", Deny),
        ("timeout 5 rm x", Deny),
        ("xargs rm", Deny),
        ("xargs -n 1 -I{} rm {}", Deny),
        ("find . -exec rm {} +", Deny),
        // find writes and deletes by itself, too: it needs a rule of its own.
        ("find . -name x -exec ls {} \\;", Deny),
        ("git > x push --force", Deny),
        ("git 2>&1 push -f", Deny),
        ("git <<X push -f\nX", Deny),
        ("ls <<X\n`rm x`\nX", Deny),
        ("ls <<-X\n\t$(rm x)\n\tX", Deny),
        ("x=${y:-`rm z`} ls", Deny),
        ("xargs -i rm {}", Deny),
        ("xargs --eof rm x", Deny),
        ("xargs -I{} {} x", Ask),
        ("xargs -I % sh -c %", Ask),
        ("trap -- 'rm x' EXIT", Deny),
        ("export \"LD_PRELOAD=x\"; ls", Deny),
        ("read LD_PRELOAD; ls", Deny),
        ("export 'PATH=/x'; ls", Ask),
        ("read PATH; ls", Ask),
        ("printf -v PATH /x; ls", Ask),
        ("for PATH in /x; do ls; done", Ask),
        ("unset PATH; ls", Ask),
        ("hash -p ./x ls; ls", Ask),
        ("BASH_CMDS[ls]=./x; ls", Ask),
        ("x='a[$(rm y)]'; : $((x))", Ask),
        ("test -v 'a[$(rm y)]'", Ask),
        ("f() { ls; } & f", Deny),
        ("f() { ls; }; unset -f f; f", Deny),
        ("exec -a rm ls", Ask),
        ("sudo -s", Deny),
        ("env -C /x ls", Ask),
        ("=rm x", Ask),
        ("[[ x || rm y ]]", Ask),
        ("echo $'\\'; rm x #'", Ask),
        ("ls &> x rm y", Ask),
        ("git push --forc", Ask),
        ("/usr/lib/git-core/git-push -f", Deny),
        ("ld-linux-x86-64.so.2 --preload ./x /usr/bin/ls", Deny),
        ("ls\u{a0}x", Ask),
        ("find . -exec ls {} \\; -exec rm {} \\;", Deny),
        ("busybox rm x", Deny),
        ("sh -c 'rm x'", Deny),
        ("bash -lc 'ls; rm x'", Deny),
        ("bash -ec 'sh -c \"rm x\"'", Deny),
        ("eval 'rm x'", Deny),
        ("eval rm x", Deny),
        ("exec rm x", Deny),
        ("command rm x", Deny),
        ("trap 'rm x' EXIT", Deny),
        ("f() { rm x; }; f", Deny),
        ("if false; then rm x; fi", Deny),
        ("false && f() { ls; }; unknown", Deny),
        ("./rm x", Deny),
        ("/work/rm x", Deny),
        ("./link-to-rm x", Deny),
        ("./git status", Deny),
        ("./link-to-ls", Deny),
        ("./env git status", Deny),
        ("/lib64/ld-linux-x86-64.so.2 /usr/bin/rm x", Deny),
        ("LD_PRELOAD=./x ls", Deny),
        ("export LD_PRELOAD=./x; ls", Deny),
        ("env LD_PRELOAD=./x ls", Deny),
        ("GIT_SSH_COMMAND=x git status", Deny),
        ("unknown", Deny),
        ("gіt status", Deny),
        ("git\u{200b} status", Ask),
        ("GIT status", Deny),
        ("", Deny),
        ("# only a comment", Deny),
    ];
    for (line, expected) in cases {
        let verdict = verdict(CommandInput::ShellLine(line, Dialect::Posix), &rules);
        assert_eq!(verdict.decision, *expected, "{line:?}: {verdict:#?}");
    }
}

#[test]
fn an_argument_vector_is_no_line() {
    let rules = rules();
    let argv = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        verdict(CommandInput::Argv(&words), &rules).decision
    };
    assert_eq!(argv(&["ls", "; rm x"]), Decision::Allow);
    assert_eq!(argv(&["ls; rm x"]), Decision::Deny);
    assert_eq!(argv(&["echo", "x"]), Decision::Deny);
    assert_eq!(argv(&["sh", "-c", "ls"]), Decision::Allow);
    assert_eq!(argv(&["sh", "-c", "rm x"]), Decision::Deny);
    assert_eq!(argv(&["env", "sh", "-lc", "cd /x && rm y"]), Decision::Deny);
    assert_eq!(argv(&[]), Decision::Deny);
    assert_eq!(argv(&[""]), Decision::Deny);
}

#[test]
fn a_rule_that_observes_decides_nothing() {
    let verdict = verdict(CommandInput::ShellLine("head x", Dialect::Posix), &rules());
    assert_eq!(verdict.decision, Decision::Allow);
    assert_eq!(verdict.observed, [("watch-head".to_owned(), Decision::Deny)]);
}

#[test]
fn the_cause_names_the_rule_and_the_command() {
    let verdict = verdict(CommandInput::ShellLine("ls && env git push", Dialect::Posix), &rules());
    let cause = verdict.cause().unwrap_or_else(|| panic!("no cause"));
    assert_eq!(cause.reason, DecisionReason::Rule("git-publish".into()));
    assert_eq!(cause.within, ["env"]);
}

#[test]
fn a_rule_that_misses_its_own_examples_does_not_compile() {
    let source = |text: &str| -> RuleSource { toml::from_str(text).unwrap_or_else(|e| panic!("{e}")) };
    let missed = source("id='a'\ndecision='deny'\nargv=['ls']\nmatches=['ls x']");
    let rule =
        Rule::compile(&missed, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        examples::check(&missed, &rule, &ExampleBudget::default()),
        Err(RuleError::ExampleMissed("ls x".into()))
    );
    let caught = source("id='a'\ndecision='deny'\nargv=['ls', '**']\nrejects=['ls x']");
    let rule =
        Rule::compile(&caught, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        examples::check(&caught, &rule, &ExampleBudget::default()),
        Err(RuleError::ExampleCaught("ls x".into()))
    );
}
