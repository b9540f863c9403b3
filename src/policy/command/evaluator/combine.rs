//! Asks the rules about one command, and combines the decisions on all commands into the verdict.
//!
//! A denial beats a question beats a permission, whatever the order of rules; nothing is decided here by what a program is.

use super::{
    super::{
        effects::{Excluded, merge},
        pattern::Match,
        program::Resolved,
        rule::{Decision, Effects, Rule, RuleMode, RuleSubject},
        shell::{self, LineCwd, OpaqueReason, Word},
        verdict::{DecisionReason, RuleVerdict, Unit},
    },
    Evaluator, RuleAnswer,
};

impl Evaluator<'_> {
    /// Asks every rule about one command.
    pub(super) fn apply_rules(
        &mut self,
        words: &[Word],
        file: Resolved,
        is_itself: bool,
        place: &LineCwd,
        within: &[String],
        otherwise: Option<DecisionReason>,
    ) -> RuleAnswer {
        let subject = RuleSubject::of(words, &file, is_itself, place, self.context.request);
        let mut matched = Vec::new();
        let mut strictest: Option<(Decision, &Rule)> = None;
        let mut possible_deny: Option<&Rule> = None;
        for rule in self.context.rules {
            let answer = rule.matches(&subject, self.context.resolver);
            if answer == Match::No {
                continue;
            }
            matched.push((rule.id.clone(), answer));
            // What only perhaps matches allows nothing, and asks where it would deny.
            let decision = match (rule.decision, answer) {
                (Decision::Allow, Match::Perhaps) => continue,
                (Decision::Deny, Match::Perhaps) => Decision::Ask,
                (decision, _) => decision,
            };
            if rule.mode == RuleMode::Observe {
                self.observed.push((rule.id.clone(), decision));
                continue;
            }
            // But it asks about nothing that would be denied without it.
            if rule.decision == Decision::Deny && answer == Match::Perhaps {
                possible_deny = possible_deny.filter(|other| other.id < rule.id).or(Some(rule));
                continue;
            }
            if decision == Decision::Allow && rule.effects != Effects::default() {
                self.effects.push((rule.id.clone(), rule.effects.clone()));
            }
            let wins = strictest
                .is_none_or(|(so_far, by)| decision > so_far || (decision == so_far && rule.id < by.id));
            if wins {
                strictest = Some((decision, rule));
            }
        }
        let (decision, reason, answered) = match (strictest, possible_deny, otherwise) {
            (Some((Decision::Allow, _)), Some(doubt), _) | (None, Some(doubt), Some(_)) => {
                (Decision::Ask, DecisionReason::Rule(doubt.id.clone()), RuleAnswer::Otherwise)
            }
            (Some((Decision::Allow, rule)), None, _) if !rule.is_about_everything() => {
                (Decision::Allow, DecisionReason::Rule(rule.id.clone()), RuleAnswer::AllowedByName)
            }
            (Some((decision, rule)), _, _) => {
                (decision, DecisionReason::Rule(rule.id.clone()), RuleAnswer::Otherwise)
            }
            (None, None, Some(DecisionReason::Opaque(reason))) => {
                (Decision::Ask, DecisionReason::Opaque(reason), RuleAnswer::Otherwise)
            }
            (None, None, Some(reason)) => (Decision::Allow, reason, RuleAnswer::Otherwise),
            (None, _, None) => (Decision::Deny, DecisionReason::Default, RuleAnswer::Otherwise),
        };
        matched.sort_unstable();
        self.units.push(Unit {
            words: words.to_vec(),
            file,
            within: within.to_vec(),
            decision,
            reason,
            matched,
        });
        answered
    }

    pub(super) fn hide_words(&mut self, words: &[Word], reason: OpaqueReason, within: &[String]) {
        self.hide(&shell::print(words), reason, within);
    }

    /// Evaluates a part that can't be seen, as what it is: any command whatever.
    pub(super) fn hide(&mut self, text: &str, reason: OpaqueReason, within: &[String]) {
        let words = [Word::Opaque { text: text.to_owned(), reason }];
        self.apply_rules(
            &words,
            Resolved::Unknown,
            false,
            &LineCwd::Unknown,
            within,
            Some(DecisionReason::Opaque(reason)),
        );
    }

    pub(super) fn combine(mut self) -> RuleVerdict {
        let mut effects = Effects::default();
        self.effects.sort_by(|a, b| a.0.cmp(&b.0));
        let mut by: Option<String> = None;
        for (id, more) in std::mem::take(&mut self.effects) {
            if let Err(Excluded) = merge(&mut effects, &more) {
                let other = by.clone().unwrap_or_default();
                self.units.push(Unit {
                    words: Vec::new(),
                    file: Resolved::Unknown,
                    within: Vec::new(),
                    decision: Decision::Deny,
                    reason: DecisionReason::Conflict(other, id),
                    matched: Vec::new(),
                });
                break;
            }
            by = Some(id);
        }
        // Nothing to run is nothing to allow.
        let decision = self.units.iter().map(|unit| unit.decision).max().unwrap_or(Decision::Deny);
        self.observed.sort();
        self.observed.dedup();
        let cause = self.units.iter().find(|unit| unit.decision == decision);
        let cause_rule = cause.and_then(|unit| match &unit.reason {
            DecisionReason::Rule(id) => Some(id.clone()),
            _ => None,
        });
        RuleVerdict { decision, units: self.units, cause_rule, effects, observed: self.observed }
    }
}
