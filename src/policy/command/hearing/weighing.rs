//! The rules speak on one command, and what they said of all of them becomes the verdict.
//!
//! A denial beats a question beats a permission, whatever the order of rules; nothing is decided here by what a program is.

use super::{
    super::{
        effects::{Excluded, merge},
        pattern::Match,
        program::Found,
        rule::{Decision, Effects, Mode, Rule, Subject},
        shell::{self, OpaqueReason, Place, Word},
        verdict::{Ground, Unit, Verdict},
    },
    Answered, Hearing,
};

impl Hearing<'_> {
    /// Lets every rule speak about one command.
    pub(super) fn rules(
        &mut self,
        words: &[Word],
        file: Found,
        is_itself: bool,
        place: &Place,
        within: &[String],
        otherwise: Option<Ground>,
    ) -> Answered {
        let subject = Subject::of(words, &file, is_itself, place, self.bench.circumstances);
        let mut matched = Vec::new();
        let mut strictest: Option<(Decision, &Rule)> = None;
        let mut doubted_by: Option<&Rule> = None;
        for rule in self.bench.rules {
            let answer = rule.matches(&subject, self.bench.programs);
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
            if rule.mode == Mode::Observe {
                self.observed.push((rule.id.clone(), decision));
                continue;
            }
            // But it asks about nothing that would be denied without it.
            if rule.decision == Decision::Deny && answer == Match::Perhaps {
                doubted_by = doubted_by.filter(|other| other.id < rule.id).or(Some(rule));
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
        let (decision, ground, answered) = match (strictest, doubted_by, otherwise) {
            (Some((Decision::Allow, _)), Some(doubt), _) | (None, Some(doubt), Some(_)) => {
                (Decision::Ask, Ground::Rule(doubt.id.clone()), Answered::Otherwise)
            }
            (Some((Decision::Allow, rule)), None, _) if !rule.is_about_everything() => {
                (Decision::Allow, Ground::Rule(rule.id.clone()), Answered::AllowedByName)
            }
            (Some((decision, rule)), _, _) => (decision, Ground::Rule(rule.id.clone()), Answered::Otherwise),
            (None, None, Some(Ground::Opaque(reason))) => {
                (Decision::Ask, Ground::Opaque(reason), Answered::Otherwise)
            }
            (None, None, Some(ground)) => (Decision::Allow, ground, Answered::Otherwise),
            (None, _, None) => (Decision::Deny, Ground::Default, Answered::Otherwise),
        };
        matched.sort_unstable();
        self.units.push(Unit {
            words: words.to_vec(),
            file,
            within: within.to_vec(),
            decision,
            ground,
            matched,
        });
        answered
    }

    pub(super) fn hide_words(&mut self, words: &[Word], reason: OpaqueReason, within: &[String]) {
        self.hide(&shell::print(words), reason, within);
    }

    /// Judges a part that can't be seen, as what it is: any command whatever.
    pub(super) fn hide(&mut self, text: &str, reason: OpaqueReason, within: &[String]) {
        let words = [Word::Opaque { text: text.to_owned(), reason }];
        self.rules(&words, Found::Unknown, false, &Place::Unknown, within, Some(Ground::Opaque(reason)));
    }

    pub(super) fn close(mut self) -> Verdict {
        let mut effects = Effects::default();
        self.effects.sort_by(|a, b| a.0.cmp(&b.0));
        let mut by: Option<String> = None;
        for (id, more) in std::mem::take(&mut self.effects) {
            if let Err(Excluded) = merge(&mut effects, &more) {
                let other = by.clone().unwrap_or_default();
                self.units.push(Unit {
                    words: Vec::new(),
                    file: Found::Unknown,
                    within: Vec::new(),
                    decision: Decision::Deny,
                    ground: Ground::Conflict(other, id),
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
        let cause_rule = cause.and_then(|unit| match &unit.ground {
            Ground::Rule(id) => Some(id.clone()),
            _ => None,
        });
        Verdict { decision, units: self.units, cause_rule, effects, observed: self.observed }
    }
}
