//! Tests of policies, as data: cases with the expected decision, and bypasses that must not work.
//!
//! Cases are evaluated without a host: every bare name is a program of its own in `/usr/bin`, and links are those that the
//! suite lists. Reads no file and prints nothing.

mod connect_case;
mod corpus;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

pub use self::corpus::{Bypass, Corpus, Findings};
use super::{
    apply_rules::{apply_rules, shell_line},
    caller_checks::check_variables,
    command::{
        interpreter::{Interpreter, interpreted_argv},
        program::{NominalResolver, ProgramResolver, Resolved, resolve_command, script_name},
        rule::{Decision, RequestContext, RuleAt},
        shell::LineCwd,
        verdict::CommandInput,
    },
    environment::{self, EnvEntry},
    exec_gate::{ExecRequest, ExecVerdict, executed_path},
    file_error::PolicyFileError,
    profile::{Profile, ProfileName},
    set::PolicySet,
};

/// A test file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The context of cases that do not give their own.
    #[serde(default)]
    pub defaults: CaseContext,
    /// Links: the path, and the path that it leads to.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// The cases.
    #[serde(default, rename = "case")]
    pub cases: Vec<Spanned<SuiteCase>>,
}

/// One expectation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteCase {
    /// A line for the profile's shell.
    #[serde(default)]
    pub line: Option<String>,
    /// Or an argument vector.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Or a destination, as `"example.org:443"`, which a command of a sandbox with the network `proxy` connects to.
    #[serde(default)]
    pub connect: Option<String>,
    /// With `connect`: an address that the name leads to. Absent: what is decided about the name.
    #[serde(default)]
    pub address: Option<std::net::IpAddr>,
    /// With `connect`: the program that connects, by its path. Absent: it is not known, and what restricts programs holds.
    #[serde(default)]
    pub program: Option<String>,
    /// `"tree"`: `command` is what a process of a running terminal executes. Otherwise it is a request.
    #[serde(default)]
    pub at: RuleAt,
    /// The expected decision.
    pub expect: Decision,
    /// The rule that should make it.
    #[serde(default)]
    pub rule: Option<String>,
    /// The context of this case.
    #[serde(default)]
    pub context: CaseContext,
}

/// The principal, working directory, labels and variables of a case.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseContext {
    /// The principal.
    pub principal: Option<String>,
    /// The working directory.
    pub cwd: Option<String>,
    /// Labels of the session.
    pub labels: BTreeMap<String, String>,
    /// The caller's variables.
    pub env: BTreeMap<String, String>,
    /// The profile.
    pub profile: Option<String>,
    /// Whether every exec is evaluated; absent: as the profile has it.
    pub gate: Option<bool>,
    /// For an exec: the rule, if there is one, by which the terminal's processes may execute what no rule matches.
    pub starts_any: Option<String>,
    /// For an exec: the paths of what interprets the script that is executed.
    pub interpreters: Vec<String>,
}

/// A case with another decision than expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedCase {
    /// In the test file, 1-based.
    pub line: usize,
    /// The command of the case.
    pub command: String,
    /// The expected and the actual decision.
    pub problem: String,
}

impl Suite {
    /// Reads a test file.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyFileError> {
        let suite: Self = toml::from_str(text).map_err(|error| {
            PolicyFileError::at(file, text, error.span().unwrap_or(0..0), error.message())
        })?;
        let problem = |case: &SuiteCase| match (case.line.is_some(), case.command.is_some(), case.at) {
            _ if case.connect.is_some() => connect_case::problem(case),
            _ if case.address.is_some() => Some("only a case with `connect` has an address"),
            _ if case.program.is_some() => Some("only a case with `connect` has a program"),
            (true, true, _) | (false, false, _) => {
                Some("a case has either a line or a command, or `connect`")
            }
            (true, false, RuleAt::Tree) => {
                Some("a case with at = \"tree\" has a command: processes execute no lines")
            }
            (true, false, RuleAt::Request) | (false, true, _) => None,
        };
        match suite.cases.iter().find_map(|case| Some((case, problem(case.get_ref())?))) {
            Some((case, problem)) => Err(PolicyFileError::at(file, text, case.span(), problem)),
            None => Ok(suite),
        }
    }

    /// Evaluates every case. `text` is the file's, for the line numbers of failures.
    pub fn run(&self, policy: &PolicySet, text: &str) -> Vec<FailedCase> {
        self.cases.iter().filter_map(|case| self.check_case(policy, text, case)).collect()
    }

    fn check_case(&self, policy: &PolicySet, text: &str, case: &Spanned<SuiteCase>) -> Option<FailedCase> {
        let line = text.get(..case.span().start).unwrap_or("").matches('\n').count() + 1;
        let case = case.get_ref();
        let command = match (&case.line, &case.command) {
            _ if case.connect.is_some() => case.connect.clone().unwrap_or_default(),
            (Some(line), _) => line.clone(),
            (None, Some(words)) => words.join(" "),
            (None, None) => String::new(),
        };
        let failed = |problem: String| Some(FailedCase { line, command: command.clone(), problem });
        let (decision, by) = match self.evaluate_case(policy, case) {
            Ok(decided) => decided,
            Err(problem) => return failed(problem),
        };
        if decision != case.expect {
            return failed(format!("expected {}, got {decision} (rule {by})", case.expect));
        }
        match &case.rule {
            Some(rule) if *rule != by => failed(format!("expected rule {rule}, got rule {by}")),
            _ => None,
        }
    }

    /// The decision on a case, and the rule that made it.
    fn evaluate_case(&self, policy: &PolicySet, case: &SuiteCase) -> Result<(Decision, String), String> {
        let (own, other) = (&case.context, &self.defaults);
        let profile = own.profile.as_deref().or(other.profile.as_deref());
        let (name, profile) =
            policy.profile(profile).ok_or_else(|| format!("there is no profile {profile:?}"))?;
        if let Some(connect) = &case.connect {
            let principal = own.principal.as_deref().or(other.principal.as_deref()).unwrap_or_default();
            return connect_case::evaluate(
                policy,
                (principal, name),
                connect,
                case.address,
                case.program.as_deref(),
            );
        }
        let mut profile = Profile::clone(profile);
        profile.gate.enabled = own.gate.or(other.gate).unwrap_or(profile.gate.enabled);
        let passed: BTreeMap<&String, &String> = other.env.iter().chain(&own.env).collect();
        let entry = |(name, value): (&&String, &&String)| EnvEntry::new((*name).clone(), (*value).clone());
        let passed: Vec<EnvEntry> =
            passed.iter().map(entry).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        if case.at == RuleAt::Request
            && let Err(denial) = check_variables(policy, name, &profile, &passed)
        {
            // The gateway, too, asks the rules only after this check.
            return Ok((denial.decision(), denial.rule()));
        }
        let env = environment::merge_variables(&profile, &[], &passed);
        let context = RequestContext {
            principal: own.principal.clone().or(other.principal.clone()).unwrap_or_default(),
            labels: other.labels.clone().into_iter().chain(own.labels.clone()).collect(),
            cwd: own.cwd.clone().or(other.cwd.clone()).unwrap_or_else(|| "/workspace".to_owned()),
            relative_from: Vec::new(),
            env,
            ..RequestContext::default()
        };
        let resolver = LinkedResolver { links: &self.links };
        let words = case.command.as_deref().unwrap_or_default();
        let (decision, rule) = match (&case.line, case.at) {
            (_, RuleAt::Tree) => {
                let starts_any = own.starts_any.as_deref().or(other.starts_any.as_deref());
                let verdict =
                    evaluate_exec(policy, name, &context, words, &own.interpreters, starts_any, &resolver)?;
                (verdict.decision, verdict.rule)
            }
            (line, RuleAt::Request) => {
                let command = match line {
                    Some(line) => shell_line(&profile, line),
                    None => CommandInput::Argv(words),
                };
                let verdict = apply_rules(policy, (name.as_str(), &profile), &resolver, &context, command);
                (verdict.decision, verdict.cause_rule)
            }
        };
        Ok((decision, rule.unwrap_or_else(|| "none".to_owned())))
    }
}

/// Evaluates what a process would execute, as a case describes it.
fn evaluate_exec(
    policy: &PolicySet,
    profile: &ProfileName,
    context: &RequestContext,
    argv: &[String],
    interpreters: &[String],
    starts_any_rule: Option<&str>,
    resolver: &dyn ProgramResolver,
) -> Result<ExecVerdict, String> {
    let given = argv.first().map_or("", String::as_str);
    let found = resolve_command(resolver, given, &context.cwd, &LineCwd::Start);
    let Resolved::File(file) = found else { return Err(format!("{given:?} is no file")) };
    let interpreter = |path: &String| Interpreter {
        path: path.clone().into_bytes(),
        argument: None,
        file: resolver.resolve_path(path, &context.cwd),
    };
    let interpreters: Vec<Interpreter> = interpreters.iter().map(interpreter).collect();
    let lines = interpreters.iter().map(|one| (one.path_text(), one.argument_text()));
    let final_argv =
        interpreted_argv(script_name(given, &file).to_owned(), argv.iter().skip(1).cloned(), lines);
    Ok(policy.evaluate_exec(
        &ExecRequest {
            principal: &context.principal,
            labels: &context.labels,
            profile,
            cwd: &context.cwd,
            relative_from: &context.relative_from,
            path: &executed_path(given, &file, &context.cwd),
            argv,
            env: Some(&context.env),
            further_env: &context.further_env,
            file,
            interpreters: &interpreters,
            final_argv: &final_argv,
            starts_any_rule,
            approved: &[],
        },
        resolver,
    ))
}

/// Nominal files, with the links of the suite.
struct LinkedResolver<'a> {
    links: &'a BTreeMap<String, String>,
}

impl ProgramResolver for LinkedResolver<'_> {
    fn find_in_path(&self, name: &str) -> Resolved {
        self.resolve_path(&format!("/usr/bin/{name}"), "/")
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let found = NominalResolver.resolve_path(path, cwd);
        match found.path().and_then(|path| self.links.get(path)) {
            Some(target) => NominalResolver.resolve_path(target, "/"),
            None => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_finds_no_way_round_a_plain_deny() {
        let text = "default_profile='a'\n[profile.a]\n\
            [[rule]]\nid='all'\ndecision='allow'\nargv=['**']\n\
            [[rule]]\nid='no-rm'\ndecision='deny'\nargv=['rm','**']\nmatches=['rm -rf x']\n\
            [[rule]]\nid='push'\ndecision='ask'\nargv=['git','**','push','**']\nmatches=['git push origin main']\n";
        let policy = PolicySet::parse("p", text).unwrap_or_else(|e| panic!("{e}"));
        let findings = Corpus::compiled_in().run(&policy);
        assert_eq!(findings.bypasses, []);
        assert_eq!(findings.mistaken, []);
        assert!(findings.evaluated > 150, "{}", findings.evaluated);
    }

    #[test]
    fn a_case_that_comes_out_otherwise_is_named_with_its_line() {
        let policy = PolicySet::compiled_in();
        let text = "[[case]]\nline = 'ls'\nexpect = 'deny'\n[[case]]\ncommand = ['ls']\nexpect = 'allow'\nrule = 'anything'\n";
        let suite = Suite::parse("t", text).unwrap_or_else(|e| panic!("{e}"));
        let failed = suite.run(&policy, text);
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].line, failed[0].command.as_str()), (1, "ls"));
        assert!(Suite::parse("t", "[[case]]\nexpect='deny'").is_err());
        assert!(Suite::parse("t", "[[case]]\nline='x'\nat='tree'\nexpect='deny'").is_err());
    }

    #[test]
    fn a_case_is_a_request_or_an_exec_with_or_without_a_gate() {
        let policy = PolicySet::parse(
            "p",
            "default_profile='a'\n[profile.a]\n[[rule]]\nid='make'\ndecision='allow'\nargv=['make']\nstarts='any'\n\
             [[rule]]\nid='rm'\ndecision='deny'\nargv=['rm', '**']\n",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let text = "[[case]]\nline = '$X'\nexpect = 'ask'\n\
                    [[case]]\nline = '$X'\nexpect = 'allow'\ncontext = { gate = true }\n\
                    [[case]]\ncommand = ['cc']\nat = 'tree'\nexpect = 'deny'\n\
                    [[case]]\ncommand = ['cc']\nat = 'tree'\nexpect = 'allow'\ncontext = { starts_any = 'make' }\n\
                    [[case]]\ncommand = ['/bin/rm']\nat = 'tree'\nexpect = 'deny'\nrule = 'rm'\ncontext = { starts_any = 'make' }\n\
                    [[case]]\ncommand = ['./x']\nat = 'tree'\nexpect = 'deny'\nrule = 'rm'\n\
                    context = { starts_any = 'make', interpreters = ['/usr/bin/rm'] }\n\
                    [[case]]\ncommand = ['sh', '-c', 'rm x']\nat = 'tree'\nexpect = 'allow'\n";
        let suite = Suite::parse("t", text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(suite.run(&policy, text), []);
    }
}
