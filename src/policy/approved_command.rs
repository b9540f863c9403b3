//! What a person's approval of a request covers when its commands are executed.

use super::command::{
    rule::{Decision, base_name},
    shell::Word,
    verdict::{DecisionReason, Unit},
};

/// A command of a request that a rule asked about and a person approved. In the terminal of that request the rule does not ask about
/// it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCommand {
    /// The rule.
    pub rule: String,
    /// Its words, the program first.
    pub argv: Vec<String>,
}

impl ApprovedCommand {
    /// What is approved with a request. A command with words that are not known before it runs is not among it: a person has not seen
    /// what it will be.
    pub(super) fn all_of(units: &[Unit]) -> Vec<Self> {
        let asked = units.iter().filter(|unit| unit.decision == Decision::Ask);
        let approved = asked.filter_map(|unit| {
            let DecisionReason::Rule(rule) = &unit.reason else { return None };
            let words = unit.words.iter().map(|word| word.literal().map(str::to_owned));
            Some(Self { rule: rule.clone(), argv: words.collect::<Option<_>>()? })
        });
        approved.collect()
    }

    /// Whether this is the rule, and these are the words but for the place of the program. Bytes that are no UTF-8 stand as the same
    /// character in all words: who has seen one has not seen the others.
    pub(super) fn covers(&self, rule: &str, words: &[Word]) -> bool {
        let (Some((given, arguments)), Some((program, rest))) =
            (words.split_first(), self.argv.split_first())
        else {
            return false;
        };
        let is_exact =
            |word: &Word| word.literal().is_some_and(|text| !text.contains(char::REPLACEMENT_CHARACTER));
        self.rule == rule
            && words.iter().all(is_exact)
            && given.literal().map(base_name) == Some(base_name(program))
            && arguments.iter().map(Word::literal).eq(rest.iter().map(|word| Some(word.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::command::{program::Resolved, shell::OpaqueReason},
        *,
    };

    fn literals(words: &[&str]) -> Vec<Word> {
        words.iter().map(|word| Word::Literal((*word).to_owned())).collect()
    }

    fn unit(words: Vec<Word>, decision: Decision, reason: DecisionReason) -> Unit {
        Unit { words, file: Resolved::Unknown, within: Vec::new(), decision, reason, matched: Vec::new() }
    }

    #[test]
    fn only_what_a_rule_asked_about_and_a_person_has_seen_in_full_is_approved() {
        let rule = || DecisionReason::Rule("careful".to_owned());
        let unseen = Word::Opaque { text: "$X".to_owned(), reason: OpaqueReason::Expansion };
        let units = [
            unit(literals(&["touch", "a"]), Decision::Ask, rule()),
            unit(literals(&["touch", "b"]), Decision::Allow, rule()),
            unit([literals(&["touch"]), vec![unseen]].concat(), Decision::Ask, rule()),
            unit(literals(&["touch", "c"]), Decision::Ask, DecisionReason::Opaque(OpaqueReason::Expansion)),
        ];
        let approved = ApprovedCommand::all_of(&units);
        assert_eq!(
            approved,
            [ApprovedCommand { rule: "careful".into(), argv: vec!["touch".into(), "a".into()] }]
        );
        assert!(approved[0].covers("careful", &literals(&["/usr/bin/touch", "a"])));
        for (rule, words) in [
            ("other", &["touch", "a"][..]),
            ("careful", &["touch", "b"]),
            ("careful", &["touch", "a", "b"]),
            ("careful", &["touch"]),
            ("careful", &["rm", "a"]),
            ("careful", &[]),
        ] {
            assert!(!approved[0].covers(rule, &literals(words)), "{rule} {words:?}");
        }
        let lossy = ApprovedCommand { rule: "careful".into(), argv: vec!["rm".into(), "f-\u{fffd}".into()] };
        assert!(!lossy.covers("careful", &literals(&["rm", "f-\u{fffd}"])), "it may be another byte");
    }
}
