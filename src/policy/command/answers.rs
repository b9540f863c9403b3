//! What the rules say about one command: those that match it, and the one that decides.
//!
//! Shared by the evaluation of requests and by that of execs. What becomes of a command that no rule matches is decided there.

use super::{
    pattern::Match,
    program::ProgramResolver,
    rule::{CommandRole, Decision, Rule, RuleMode, RuleSubject, Starts},
};

/// What a rule means that matches only perhaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It allows nothing, and asks where it would deny.
    Counts,
    /// Nothing: the command is evaluated again when it is executed, and then there is no doubt.
    Waits,
}

/// The answers of all rules to one command.
#[derive(Debug, Default)]
pub struct RuleAnswers<'r> {
    /// Every rule that matches, surely or perhaps, by id.
    pub matched: Vec<(String, Match)>,
    /// Rules that only watch, and what they would have decided.
    pub observed: Vec<(String, Decision)>,
    /// The strictest decision, and the first rule by id that made it.
    pub strictest: Option<(Decision, &'r Rule)>,
    /// The first rule by id that denies, if it matches.
    pub possible_deny: Option<&'r Rule>,
    /// Rules that surely match, and allow or ask: their effects count. What only perhaps matches gives nothing.
    pub effective: Vec<&'r Rule>,
    /// Whether a rule perhaps allows.
    pub may_be_allowed: bool,
    /// The first rule by id that lets the command run, perhaps after a question, and start anything.
    pub starts_any: Option<&'r str>,
}

impl<'r> RuleAnswers<'r> {
    /// Asks the rules that count for a command in this role.
    pub fn of(
        rules: impl Iterator<Item = &'r Rule>,
        subject: &RuleSubject<'_>,
        role: CommandRole,
        resolver: &dyn ProgramResolver,
        doubt: Doubt,
    ) -> Self {
        let mut answers = Self::default();
        for rule in rules.filter(|rule| rule.counts_for(role)) {
            let answer = rule.matches(subject, resolver);
            if answer != Match::No {
                answers.matched.push((rule.id.clone(), answer));
                answers.add(rule, answer, doubt);
            }
        }
        answers.matched.sort_unstable();
        answers
    }

    fn add(&mut self, rule: &'r Rule, answer: Match, doubt: Doubt) {
        let decision = match (rule.decision, answer, doubt) {
            (Decision::Allow, Match::Yes, _) => Decision::Allow,
            (Decision::Allow, _, _) => {
                self.may_be_allowed |= rule.mode == RuleMode::Enforce;
                return;
            }
            (_, Match::Perhaps, Doubt::Waits) => return,
            (Decision::Deny, Match::Perhaps, Doubt::Counts) => Decision::Ask,
            (decision, _, _) => decision,
        };
        if rule.mode == RuleMode::Observe {
            self.observed.push((rule.id.clone(), decision));
            return;
        }
        // It asks about nothing that would be denied without it.
        if rule.decision == Decision::Deny && answer == Match::Perhaps {
            self.possible_deny = self.possible_deny.filter(|other| other.id < rule.id).or(Some(rule));
            return;
        }
        if answer == Match::Yes && decision != Decision::Deny {
            self.effective.push(rule);
        }
        if rule.starts == Some(Starts::Any) {
            self.starts_any = self.starts_any.filter(|other| *other < rule.id.as_str()).or(Some(&rule.id));
        }
        let wins = self
            .strictest
            .is_none_or(|(so_far, by)| decision > so_far || (decision == so_far && rule.id < by.id));
        if wins {
            self.strictest = Some((decision, rule));
        }
    }
}
