//! Tests of policies, as data: cases with the expected decision, and bypasses that must not work.
//!
//! Cases are evaluated without a host: every bare name is a program of its own in `/usr/bin`, and links are those that the suite lists.
//! Cases about connections have a destination, and perhaps an address that its name leads to. The corpus has lines that hide a command, and
//! lines that only mention it. Reads no file and prints nothing.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;
use toml::Spanned;

use crate::{
    command::{
        pattern::Match,
        program::{
            Interpreter, NominalResolver, ProgramResolver, Resolved, interpreted_argv, resolve_command,
            script_name,
        },
        rule::{Decision, RequestContext, RuleAt},
        shell::{self, Dialect, LineCwd},
        verdict::{CommandInput, RuleVerdict, Unit},
    },
    connect::{ConnectingProgram, SocketRequest},
    connect_decision::{NAME_RULE, SOCKET_RULE},
    diagnostics::PolicyFileError,
    environment::{self, EnvEntry},
    evaluate::{apply_rules, check_variables, shell_line},
    exec_gate::{ExecRequest, ExecVerdict, executed_path},
    network::{destination::Host, http_request::WantedConnection, socket_path::SocketPath},
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
            _ if case.connect.is_some() => connect_problem(case),
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
            return evaluate_connect_case(
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

/// What is wrong with a case.
fn connect_problem(case: &SuiteCase) -> Option<&'static str> {
    let is_alone = case.line.is_none() && case.command.is_none() && case.at == RuleAt::Request;
    (!is_alone).then_some("a case with `connect` has neither a line nor a command")
}

/// The program that a person names; without one it is not known.
fn programs(program: Option<&str>) -> ConnectingProgram {
    program.map_or(ConnectingProgram::Unknown, |one| ConnectingProgram::Known(vec![one.to_owned()]))
}

/// The decision on a destination, and the rule that made it.
fn evaluate_connect_case(
    policy: &PolicySet,
    (principal, profile): (&str, &ProfileName),
    destination: &str,
    address: Option<IpAddr>,
    program: Option<&str>,
) -> Result<(Decision, String), String> {
    let program = &programs(program);
    if let Some(socket) = SocketPath::parse_connection(destination) {
        let Ok(path) = &socket else { return Ok((Decision::Deny, SOCKET_RULE.to_owned())) };
        let profile = profile.as_str();
        let decided =
            policy.connect_socket(&SocketRequest { principal, profile, path, program, is_approved: false });
        return Ok((decided.decision, decided.reason.rule().to_owned()));
    }
    let Ok(wanted) = WantedConnection::parse(destination) else {
        return Ok((Decision::Deny, NAME_RULE.to_owned()));
    };
    let address = match (&wanted.destination.host, address) {
        (Host::Address(_), Some(_)) => return Err("an address leads to no other address".to_owned()),
        (Host::Address(own), None) => Some(*own),
        (Host::Name(_), given) => given,
    };
    let decided = policy.connect_wanted((principal, profile.as_str()), &wanted, address, program);
    Ok((decided.decision, decided.reason.rule().to_owned()))
}

/// Known bypasses of policies, as data.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    /// Lines that hide a command.
    attack: Vec<LineTemplate>,
    /// Lines that only mention it.
    honest: Vec<LineTemplate>,
}

/// A line with a command in it: `{line}` as it is, `{quoted}` as one word, `{name}` its program, `{rest}` the rest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineTemplate {
    line: String,
}

/// A line that a policy treats otherwise than the plain command in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bypass {
    /// The rule that is bypassed, or that matches what it should not.
    pub rule: String,
    /// The plain command, which the rule matches.
    pub plain: String,
    /// The line that hides or mentions it.
    pub line: String,
    /// The decision on the line.
    pub decision: Decision,
    /// The rule that made it.
    pub by: Option<String>,
}

/// The result of running a corpus on a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of lines that were evaluated.
    pub evaluated: usize,
    /// Attacks that are allowed although the plain command is not.
    pub bypasses: Vec<Bypass>,
    /// Lines that only mention the command, and that a rule matches as the command.
    pub mistaken: Vec<Bypass>,
}

impl Corpus {
    /// The corpus that is compiled in: `policies/tests/corpus.toml`.
    pub fn compiled_in() -> Self {
        toml::from_str(include_str!("policies/tests/corpus.toml"))
            .expect("the corpus that is compiled in is valid: a unit test loads it")
    }

    /// Tries every attack with every command that the policy's own rules give as an example of what they deny or
    /// ask about.
    pub fn run(&self, policy: &PolicySet) -> Findings {
        let mut findings = Findings::default();
        for rule in policy.rules().iter().filter(|rule| rule.decision != Decision::Allow) {
            for plain in &rule.examples {
                self.try_command(policy, &rule.id, plain, &mut findings);
            }
        }
        findings
    }

    fn try_command(&self, policy: &PolicySet, rule: &str, plain: &str, findings: &mut Findings) {
        let words: Option<Vec<String>> = match shell::parse(plain, Dialect::Posix) {
            parsed if parsed.opaque.is_empty() && parsed.commands.len() == 1 => {
                parsed.commands[0].words.iter().map(|word| word.literal().map(str::to_owned)).collect()
            }
            // Only single commands can be put into the templates.
            _ => None,
        };
        let Some(words) = words.filter(|words| !words.is_empty()) else { return };
        let evaluate = |line: &str| evaluate_line(policy, line);
        let limit = evaluate(plain).decision;
        if limit == Decision::Allow {
            // It observes, or holds under conditions that are not met here.
            return;
        }
        for template in &self.attack {
            let Some(line) = template.fill(plain, &words) else { continue };
            let verdict = evaluate(&line);
            findings.evaluated += 1;
            // What hides a command may be asked about instead of denied.
            if verdict.decision == Decision::Allow {
                findings.bypasses.push(Bypass {
                    rule: rule.to_owned(),
                    plain: plain.to_owned(),
                    line,
                    decision: verdict.decision,
                    by: verdict.cause_rule,
                });
            }
        }
        for template in &self.honest {
            let Some(line) = template.fill(plain, &words) else { continue };
            let verdict = evaluate(&line);
            findings.evaluated += 1;
            let matches =
                |unit: &Unit| unit.matched.iter().any(|(id, answer)| id == rule && *answer == Match::Yes);
            if verdict.units.iter().any(matches) {
                findings.mistaken.push(Bypass {
                    rule: rule.to_owned(),
                    plain: plain.to_owned(),
                    line,
                    decision: verdict.decision,
                    by: verdict.cause_rule,
                });
            }
        }
    }
}

/// Asks the rules about a line under the default profile, in an empty environment.
fn evaluate_line(policy: &PolicySet, line: &str) -> RuleVerdict {
    let context = RequestContext { cwd: "/workspace".to_owned(), ..RequestContext::default() };
    let command = CommandInput::ShellLine(line, Dialect::Posix);
    let mut profile =
        policy.profile(None).map_or_else(Profile::default, |(_, profile)| Profile::clone(profile));
    // What a line hides is what this is about: with a gate it would be left to the exec.
    profile.gate.enabled = false;
    apply_rules(policy, ("", &profile), &NominalResolver, &context, command)
}

impl LineTemplate {
    /// None: the command cannot stand there, because it has quotes and would stand in quotes.
    fn fill(&self, plain: &str, words: &[String]) -> Option<String> {
        let (name, rest) = words.split_first()?;
        let before = self.line.split("{line}").next().unwrap_or("");
        if before.matches('\'').count() % 2 == 1 && plain.contains('\'') {
            return None;
        }
        let literal = |words: &[String]| {
            shell::print(&words.iter().cloned().map(shell::Word::Literal).collect::<Vec<_>>())
        };
        let line = literal(words);
        let mut scattered = String::new();
        for (at, c) in name.chars().enumerate() {
            if at == 1 {
                scattered.push_str("''");
            }
            scattered.push(c);
        }
        let filled = self
            .line
            .replace("{line}", plain)
            .replace("{quoted}", &literal(std::slice::from_ref(&line)))
            .replace("{twice}", &literal(&[literal(&["sh".into(), "-c".into(), line])]))
            .replace("{name}", name)
            .replace("{scattered}", &scattered)
            .replace("{escaped}", &name.chars().flat_map(|c| ['\\', c]).collect::<String>())
            .replace("{rest}", &literal(rest));
        Some(filled)
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
