//! Finds rules that decide nothing, because a stricter one matches whatever they match.

use std::cell::Cell;

use super::{
    super::command::{
        pattern::{Element, Regexes, TextPattern, WordSource},
        rule::{Decision, RuleMode},
    },
    WrittenRule, is_rest, texts,
};

/// Rules of larger policies are not compared with one another.
const COMPARED_RULES_MAX: usize = 1_000;

/// Words of two rules that are compared. Longer ones are not.
const COMPARED_WORDS_MAX: usize = 32;

/// Texts of one rule that are held against those of another, in all. When so many are done, no more rules are compared.
const COMPARISONS_MAX: usize = 20_000_000;

/// A word as it is written, and what it accepts.
struct ComparedWord<'a> {
    source: &'a WordSource,
    accepted: Option<Element>,
}

/// The rules that a stricter one covers, by their places, each with what is odd about it.
pub(super) fn find(rules: &[WrittenRule<'_>], regexes: &Regexes) -> Vec<(usize, String)> {
    if rules.len() > COMPARED_RULES_MAX {
        return Vec::new();
    }
    let compared: Vec<Vec<ComparedWord<'_>>> = rules.iter().map(|rule| compared(rule, regexes)).collect();
    let left = Cell::new(COMPARISONS_MAX);
    let mut found = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let covers = |other: usize| {
            is_unconditional(&rules[other], rule) && covers_all(&compared[other], &compared[at], &left)
        };
        let Some(by) = (0..rules.len()).find(|other| covers(*other)) else { continue };
        let by = rules[by].source;
        let what = match by.decision {
            Decision::Deny => "denies",
            Decision::Ask | Decision::Allow => "asks about",
        };
        found.push((at, format!("decides nothing: rule {:?} {what} everything that it matches", by.id)));
    }
    found
}

fn compared<'a>(rule: &WrittenRule<'a>, regexes: &Regexes) -> Vec<ComparedWord<'a>> {
    let word = |source| ComparedWord { source, accepted: Element::compile(source, regexes).ok() };
    rule.source.argv.iter().map(word).collect()
}

/// Whether a rule decides more strictly than another one, whenever its words match.
fn is_unconditional(by: &WrittenRule<'_>, of: &WrittenRule<'_>) -> bool {
    let mode = by.mode;
    let (by, of) = (by.source, of.source);
    by.decision > of.decision
        && mode == RuleMode::Enforce
        // After a yes, the effects of all rules count.
        && (by.decision == Decision::Deny || of.effects == Default::default())
        && by.flags.is_empty()
        && by.skip == Default::default()
        && by.when == Default::default()
        && (by.at.is_none() || by.at == of.at)
        && by.argv.len().max(of.argv.len()) <= COMPARED_WORDS_MAX
}

/// Whether a pattern matches everything that another one matches. False where that is not plain to see.
fn covers_all(by: &[ComparedWord<'_>], of: &[ComparedWord<'_>], left: &Cell<usize>) -> bool {
    // What holds for by[..i] against of[..j]: one row at a time, whatever the number of `**`.
    let mut row = vec![false; of.len() + 1];
    row[0] = true;
    for word in by {
        if is_rest(word.source) {
            for at in 1..row.len() {
                row[at] |= row[at - 1];
            }
            continue;
        }
        for at in (1..row.len()).rev() {
            let other = &of[at - 1];
            row[at] = row[at - 1] && !is_rest(other.source) && covers_word(word, other, left);
        }
        row[0] = false;
    }
    row[of.len()]
}

fn covers_word(by: &ComparedWord<'_>, of: &ComparedWord<'_>, left: &Cell<usize>) -> bool {
    let comparisons = (1 + texts(by.source).len()) * (1 + texts(of.source).len());
    left.set(left.get().saturating_sub(comparisons));
    if left.get() == 0 {
        return false;
    }
    if by.source == of.source || texts(by.source).iter().any(|text| text == "*") {
        return true;
    }
    let (Some(Element::OneOf(patterns)), Some(Element::OneOf(words))) = (&by.accepted, &of.accepted) else {
        return false;
    };
    let is_accepted = |word: &TextPattern, text: &String| match word {
        // What `..` leads to is not plain to see.
        TextPattern::Literal(word) => {
            !word.contains("..") && patterns.iter().any(|pattern| pattern.accepts(word))
        }
        TextPattern::Glob(_) | TextPattern::Expression(_) => {
            texts(by.source).iter().any(|by| by == text || covers_glob(by, text))
        }
    };
    // A regular expression has no texts.
    let texts = texts(of.source);
    words.len() == texts.len() && words.iter().zip(texts).all(|(word, text)| is_accepted(word, text))
}

/// `s*` accepts whatever `st*` does.
fn covers_glob(by: &str, of: &str) -> bool {
    let is_special = |c: char| ['*', '?', '[', '\\'].contains(&c);
    by.strip_suffix('*').is_some_and(|beginning| !beginning.contains(is_special) && of.starts_with(beginning))
}
