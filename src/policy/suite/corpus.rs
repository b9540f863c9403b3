//! Bypasses that must not work, as data: lines that hide a command, and lines that only mention it.

use serde::Deserialize;

use crate::{
    apply_rules::apply_rules,
    command::{
        pattern::Match,
        program::NominalResolver,
        rule::{Decision, RequestContext},
        shell::{self, Dialect},
        verdict::{CommandInput, RuleVerdict, Unit},
    },
    profile::Profile,
    set::PolicySet,
};

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
        toml::from_str(include_str!("../policies/tests/corpus.toml"))
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
