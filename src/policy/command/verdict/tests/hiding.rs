//! What hides its command behind options, or in values that become expressions.

use super::*;

#[test]
fn a_rule_for_a_wrapper_allows_no_option_that_hides_its_command() {
    let rule = "id='a'\ndecision='allow'\nargv=[['env','bash','sudo','nice','strace'],'**']";
    let allowed: RuleSource = toml::from_str(rule).unwrap_or_else(|e| panic!("{e}"));
    let rules =
        [Rule::compile(&allowed, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"))];
    let decide = |line: &str| verdict(CommandInput::ShellLine(line, Dialect::Bash), &rules).decision;
    for line in [
        "env -S 'git push'",
        "env -C /x env",
        "bash --rcfile x -ic 'env'",
        "bash --debugger -c 'env'",
        "sudo -s env",
        "nice --adj=5 env",
    ] {
        assert_eq!(decide(line), Decision::Ask, "{line}");
    }
    // Files that a shell reads at its start, options that take the next word, and options that zsh takes for nothing.
    for line in [
        "bash -lc env",
        "bash --login -c env",
        "bash -ic env",
        "bash +O extglob -c env",
        "bash -O extglob -c env",
        "bash -ooc errexit pipefail env",
        "sh -c + env",
        "ksh -c env",
        "zsh -c env",
    ] {
        assert_eq!(decide(line), Decision::Ask, "{line}");
    }
    for line in ["bash -euo pipefail -c env", "bash -e -c env", "bash +x -c env"] {
        assert_eq!(decide(line), Decision::Allow, "{line}");
    }
    // What runs a file, and what nobody looks into, is what the rule allows.
    for line in ["env", "env -u X env", "bash build.sh", "bash -c env", "sudo -u x env", "strace -f git push"]
    {
        assert_eq!(decide(line), Decision::Allow, "{line}");
    }
}

#[test]
fn a_variable_that_becomes_arithmetic_hides_what_is_in_it() {
    let rules = rules();
    let with = |value: &str, line: &str| {
        let env = BTreeMap::from([("n".to_owned(), value.to_owned())]);
        let request = RequestContext { env, ..in_work() };
        let context = context(&rules, &LinkedHost, &request);
        evaluate_rules(CommandInput::ShellLine(line, Dialect::Bash), context).decision
    };
    assert_eq!(with("a[$(rm x)]", "ls; ((n))"), Decision::Ask);
    assert_eq!(with("PATH=63", "[[ n -eq 1 ]]; ls"), Decision::Ask);
    assert_eq!(with("3", "ls; ((n))"), Decision::Ask);
    assert_eq!(with("3", "ls $((1 + 2))"), Decision::Allow);
    assert_eq!(with("see [x](`y`)", "ls $n"), Decision::Allow);
}

#[test]
fn what_a_shell_takes_for_itself_is_seen_through_where_all_but_one_program_is_allowed() {
    let parse = |rule: &str| -> Rule {
        let source: RuleSource = toml::from_str(rule).unwrap_or_else(|e| panic!("{e}"));
        Rule::compile(&source, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    let rules = [
        parse("id='all'\ndecision='allow'\nargv=['**']"),
        parse("id='no'\ndecision='deny'\nargv=['rm','**']"),
    ];
    let decide = |line: &str, dialect| verdict(CommandInput::ShellLine(line, dialect), &rules).decision;
    for line in ["noglob rm x", "nocorrect rm x", " - rm x", "repeat 3 rm x", "jobs -x rm x"] {
        assert_eq!(decide(line, Dialect::Bash), Decision::Deny, "{line}");
        assert_eq!(decide(line, Dialect::Other), Decision::Deny, "{line}");
    }
    for line in ["emulate sh -c 'rm x'", "zmodload zsh/files; zf_rm x", "autoload f; f", "disable ls; ls"] {
        assert_eq!(decide(line, Dialect::Other), Decision::Ask, "{line}");
    }
    assert_eq!(decide("jobs -lx rm x", Dialect::Bash), Decision::Deny);
    for line in ["compgen -C 'rm x'", "mapfile -C 'rm x' -c 1 a", "complete -C 'rm x' y", "fc -e rm 1"] {
        assert_eq!(decide(line, Dialect::Bash), Decision::Ask, "{line}");
    }
    for line in ["jobs", "jobs -l", "jobs %1", "ls; noglob ls *", "compgen"] {
        assert_ne!(decide(line, Dialect::Bash), Decision::Deny, "{line}");
    }
    assert_eq!(decide("jobs -l; noglob ls", Dialect::Bash), Decision::Allow);
}

#[test]
fn what_runs_another_version_or_machines_program_hides_it() {
    let parse = |rule: &str| -> Rule {
        let source: RuleSource = toml::from_str(rule).unwrap_or_else(|e| panic!("{e}"));
        Rule::compile(&source, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    let all = parse("id='all'\ndecision='allow'\nargv=['**']");
    let no = parse("id='no'\ndecision='deny'\nargv=['rm','**']");
    let rules = [all, no, parse("id='a'\ndecision='allow'\nargv=['rbenv','**']")];
    let decide = |line: &str| verdict(CommandInput::ShellLine(line, Dialect::Bash), &rules).decision;
    for line in [
        "x86_64 rm x",
        "i686 ls",
        "pyenv exec rm x",
        "bundle exec rm x",
        "direnv exec . rm x",
        "mise x -- rm",
    ] {
        assert_eq!(decide(line), Decision::Ask, "{line}");
    }
    for line in ["pyenv versions", "bundle install", "rbenv exec ruby", "uname -m"] {
        assert_eq!(decide(line), Decision::Allow, "{line}");
    }
}

/// A host of files that anybody can change.
struct Changeable;

impl ProgramResolver for Changeable {
    fn find_in_path(&self, name: &str) -> Resolved {
        NominalResolver.find_in_path(name)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        match NominalResolver.resolve_path(path, cwd) {
            Resolved::File(file) if path.starts_with('.') => {
                Resolved::File(FileId { stability: PathStability::Changeable, ..file })
            }
            other => other,
        }
    }
}

#[test]
fn a_path_that_the_same_line_may_have_made_a_link_is_asked_about() {
    let parse = |rule: &str| -> Rule {
        let source: RuleSource = toml::from_str(rule).unwrap_or_else(|e| panic!("{e}"));
        Rule::compile(&source, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    let rules = [
        parse("id='all'\ndecision='allow'\nargv=['**']"),
        parse("id='no'\ndecision='deny'\nargv=['rm','**']"),
    ];
    let decide = |line: &str| {
        let request = in_work();
        let context = context(&rules, &Changeable, &request);
        evaluate_rules(CommandInput::ShellLine(line, Dialect::Bash), context).decision
    };
    for line in [
        "ln -s /bin/rm x; ./x y",
        "ln /bin/rm x && sh -c './x y'",
        "cp -s /bin/rm x; ./x",
        "cp -al a b; ./b/x",
    ] {
        assert_eq!(decide(line), Decision::Ask, "{line}");
    }
    for line in ["./x; ln -s a b", "ln -s a b; ls b", "cp a b; ./b", "ln -s a b; /usr/bin/ls"] {
        assert_eq!(decide(line), Decision::Allow, "{line}");
    }
}

/// A host on which the trusted path has a program of its own, and the system another one of that name.
struct TwoTools;

impl ProgramResolver for TwoTools {
    fn find_in_path(&self, name: &str) -> Resolved {
        match name {
            "tool" => NominalResolver.resolve_path("/opt/safe/tool", "/"),
            name => NominalResolver.find_in_path(name),
        }
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        NominalResolver.resolve_path(path, cwd)
    }
}

#[test]
fn what_runs_without_a_path_is_another_program_where_the_system_has_another() {
    let rule = "id='a'\ndecision='allow'\nargv=[['tool','ls'],'**']";
    let allowed: RuleSource = toml::from_str(rule).unwrap_or_else(|e| panic!("{e}"));
    let rules =
        [Rule::compile(&allowed, RuleMode::Enforce, &Regexes::default()).unwrap_or_else(|e| panic!("{e}"))];
    let decide = |line: &str, lookup, env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = RequestContext { env, ..in_work() };
        let setting = |name: &str, _: Option<&str>| match name {
            "GUARDED" => AssignmentVerdict::Guarded,
            _ => AssignmentVerdict::Allowed,
        };
        let context =
            EvalContext { lookup, assignment_verdict: &setting, ..context(&rules, &TwoTools, &request) };
        evaluate_rules(CommandInput::ShellLine(line, Dialect::Bash), context).decision
    };
    let usual: &[(&str, &str)] = &[("PATH", "/opt/safe:/usr/bin"), ("HOME", "/home/agent")];
    for line in
        ["tool", "env tool", "env -i ls", "env -u PATH ls", "env - ls", "command -p ls", "env -u A tool"]
    {
        assert_eq!(decide(line, Lookup::Trusted, usual), Decision::Allow, "{line}");
        assert_eq!(
            decide(line, Lookup::Changed, usual),
            Decision::Ask,
            "{line}, with a path of the caller's"
        );
    }
    for line in [
        "env -i tool",
        "env - tool",
        "env -vi tool",
        "env -u PATH tool",
        "env -uPATH tool",
        "env -iu A tool",
        "env --unset=PATH tool",
        "env --unset PATH tool",
        "env --ignore-environment tool",
        "command -p tool",
        "exec -c tool",
        "exec -cl tool",
        "env -i sh -c ls",
        "env -u PATH timeout 5 ls",
        "GUARDED=1 ls",
        "export GUARDED=1; ls",
        "bash -c ': ${!x:=v}'; ls",
        "export GUARDED; let GUARDED=1; ls",
        "read GUARDED; export GUARDED; ls",
    ] {
        assert_eq!(decide(line, Lookup::Trusted, usual), Decision::Ask, "{line}");
    }
    // What the profile sets to protect is not taken away either.
    let guarded = [usual, &[("GUARDED", "1")]].concat();
    for (line, expected) in [
        ("env -i ls", Decision::Ask),
        ("env -u GUARDED ls", Decision::Ask),
        ("unset GUARDED; ls", Decision::Ask),
        ("unset OTHER; ls", Decision::Allow),
        ("export GUARDED; ls", Decision::Allow),
        ("env -u OTHER ls", Decision::Allow),
    ] {
        assert_eq!(decide(line, Lookup::Trusted, &guarded), expected, "{line}");
    }
}
