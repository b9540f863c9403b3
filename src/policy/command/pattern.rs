//! Patterns of rules: single words and argument vectors.
//!
//! Matching has three answers, because parts of a command may not be known before it runs: yes, no, perhaps.
//! What an answer means for a decision is not decided here.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    glob::{self, BadRange, Glob, ParsedText},
    shell::Word,
};

/// The most that the regular expressions of one policy may take, in the compiled bytes of [`REGEX_SIZES`].
pub const REGEXES_MAX_BYTES: usize = 16 << 20;
/// An expression counts as the smallest of these that it compiles in; one that needs more than the largest is refused. What matching
/// needs in addition is a small multiple of this.
pub const REGEX_SIZES: [usize; 4] = [4 << 10, 32 << 10, 256 << 10, 1 << 20];
/// The most that matching keeps for an expression in each thread.
const REGEX_CACHE_BYTES: usize = 64 << 10;

/// Whether something matches, when parts of it may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    /// Whatever the unknown parts turn out to be, it does not.
    No,
    /// It depends on the unknown parts.
    Perhaps,
    /// Whatever the unknown parts turn out to be, it does.
    Yes,
}

impl Match {
    /// Both hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

    /// One of them holds.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// From something that is known.
    pub fn of(known: bool) -> Self {
        if known { Self::Yes } else { Self::No }
    }
}

/// Why a pattern is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The argument vector is empty, or an alternative has no words.
    #[error("a pattern needs at least one word")]
    Empty,
    /// A `[...]` without characters, or with a range that ends before it begins.
    #[error("{0:?} is no glob: a [...] in it names no characters, or a range that ends before it begins")]
    Glob(String),
    /// Larger than one expression may be when it is compiled.
    #[error("{pattern:?} takes more than {} KiB when it is compiled, the most that one expression may", REGEX_SIZES[REGEX_SIZES.len() - 1] >> 10)]
    RegexTooLarge {
        /// As written.
        pattern: String,
    },
    /// With it, all expressions of the policy are larger than they may be together.
    #[error("with {pattern:?}, the regular expressions of the policy take more than {} MiB when they are compiled, the most that they may together", REGEXES_MAX_BYTES >> 20)]
    RegexesTooLarge {
        /// As written.
        pattern: String,
    },
    /// Not a regular expression of the regex crate's syntax.
    #[error("{pattern:?} is not a regular expression: {cause}")]
    Regex {
        /// As written.
        pattern: String,
        /// What the parser said.
        cause: String,
    },
    /// `**` among alternatives or inside a word.
    #[error("\"**\" stands for any number of words, so it must be a word of its own: {0:?}")]
    Rest(String),
    /// A flag that does not begin with a dash.
    #[error("a flag begins with a dash: {0:?}")]
    Flag(String),
}

/// One word of a pattern, as a policy file writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WordSource {
    /// A literal or a glob; `"**"` for any number of words.
    Text(String),
    /// Alternatives.
    OneOf(Vec<String>),
    /// A regular expression that must match the whole word.
    Regex(RegexSource),
}

/// `{ regex = "..." }`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegexSource {
    /// In the syntax of the `regex` crate.
    pub regex: String,
}

/// A compiled pattern for one word.
#[derive(Debug, Clone)]
pub enum TextPattern {
    /// Exactly this.
    Literal(String),
    /// What a glob accepts.
    Glob(Glob),
    /// What a regular expression accepts, over the whole word.
    Expression(Regex),
}

/// The regular expressions of one policy: each is compiled once, and together they take no more than they may.
#[derive(Debug)]
pub struct Regexes {
    compiled: RefCell<HashMap<String, Regex>>,
    left_bytes: Cell<usize>,
}

impl Default for Regexes {
    fn default() -> Self {
        Self { compiled: RefCell::default(), left_bytes: Cell::new(REGEXES_MAX_BYTES) }
    }
}

impl Regexes {
    fn compile(&self, source: &str) -> Result<Regex, PatternError> {
        if let Some(regex) = self.compiled.borrow().get(source) {
            return Ok(regex.clone());
        }
        let whole = format!("(?s)^(?:{source})$");
        let pattern = || source.to_owned();
        for size in REGEX_SIZES {
            let left = self.left_bytes.get().checked_sub(size);
            let left = left.ok_or_else(|| PatternError::RegexesTooLarge { pattern: pattern() })?;
            let mut builder = regex::RegexBuilder::new(&whole);
            match builder.size_limit(size).dfa_size_limit(REGEX_CACHE_BYTES).build() {
                Ok(regex) => {
                    self.left_bytes.set(left);
                    self.compiled.borrow_mut().insert(pattern(), regex.clone());
                    return Ok(regex);
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(cause) => {
                    return Err(PatternError::Regex { pattern: pattern(), cause: cause.to_string() });
                }
            }
        }
        Err(PatternError::RegexTooLarge { pattern: pattern() })
    }
}

impl TextPattern {
    /// Compiles a literal or glob: `*` any text, `?` one character, `[...]` one of several, `\` the next as it is.
    pub fn compile(source: &str) -> Result<Self, PatternError> {
        if source.contains("**") {
            return Err(PatternError::Rest(source.to_owned()));
        }
        match glob::parse(source) {
            Ok(ParsedText::Literal(literal)) => Ok(Self::Literal(literal)),
            Ok(ParsedText::Glob(glob)) => Ok(Self::Glob(glob)),
            Err(BadRange) => Err(PatternError::Glob(source.to_owned())),
        }
    }

    /// Whether the text matches.
    pub fn accepts(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => literal == text,
            Self::Glob(glob) => glob.accepts(text),
            Self::Expression(regex) => regex.is_match(text),
        }
    }

    /// Whether a word matches. An unknown word may turn out to be several words, or none: it never surely does.
    pub fn matches(&self, word: &Word) -> Match {
        match (word, self) {
            (Word::Literal(text), _) => Match::of(self.accepts(text)),
            (Word::Opaque { .. }, _) => Match::Perhaps,
        }
    }
}

/// A compiled word of an argument pattern.
#[derive(Debug, Clone)]
pub enum Element {
    /// One word that one of these accepts.
    OneOf(Vec<TextPattern>),
    /// Any number of words.
    Rest,
}

impl Element {
    /// Compiles one word of a pattern.
    pub fn compile(source: &WordSource, regexes: &Regexes) -> Result<Self, PatternError> {
        match source {
            WordSource::Text(text) if text == "**" => Ok(Self::Rest),
            WordSource::Text(text) => Ok(Self::OneOf(vec![TextPattern::compile(text)?])),
            WordSource::OneOf(texts) if texts.is_empty() => Err(PatternError::Empty),
            WordSource::OneOf(texts) => {
                texts.iter().map(|t| TextPattern::compile(t)).collect::<Result<_, _>>().map(Self::OneOf)
            }
            WordSource::Regex(RegexSource { regex }) => {
                Ok(Self::OneOf(vec![TextPattern::Expression(regexes.compile(regex)?)]))
            }
        }
    }
}

impl Element {
    /// Whether it stands for a word that no option is: a literal, or a glob that begins with a letter or digit.
    pub fn is_plain_word(&self) -> bool {
        let is_plain = |text: &TextPattern| match text {
            TextPattern::Literal(text) => !text.is_empty() && !text.starts_with('-'),
            TextPattern::Glob(glob) => glob.beginning().starts_with(|c: char| c.is_ascii_alphanumeric()),
            TextPattern::Expression(_) => false,
        };
        matches!(self, Self::OneOf(texts) if texts.iter().any(is_plain))
    }

    /// Whether it stands for this one word.
    pub fn matches(&self, word: &Word) -> Match {
        match self {
            Self::OneOf(texts) => texts.iter().fold(Match::No, |m, text| m.or(text.matches(word))),
            Self::Rest => Match::Yes,
        }
    }
}

/// Matches arguments (without the program) against the elements behind the program's.
pub fn match_arguments(elements: &[Element], words: &[Word]) -> Match {
    // One row of the usual table for patterns with gaps: what holds for elements[..i] against words[..j].
    let mut row = vec![Match::No; words.len() + 1];
    row[0] = Match::Yes;
    for element in elements {
        match element {
            Element::Rest => {
                for at in 1..row.len() {
                    row[at] = row[at].or(row[at - 1]);
                }
            }
            Element::OneOf(_) => {
                for at in (1..row.len()).rev() {
                    // An unknown word may also turn out to be none or several.
                    row[at] = row[at - 1].and(element.matches(&words[at - 1]));
                }
                row[0] = Match::No;
            }
        }
    }
    let answer = row[words.len()];
    let may_split = words.iter().any(|w| w.literal().is_none());
    if may_split && answer == Match::No && could_match(elements, words) { Match::Perhaps } else { answer }
}

/// Whether a match is possible when each unknown word may become any number of words.
fn could_match(elements: &[Element], words: &[Word]) -> bool {
    let mut row = vec![false; words.len() + 1];
    row[0] = true;
    let spread = |row: &mut Vec<bool>| {
        for at in 1..row.len() {
            row[at] |= row[at - 1] && words[at - 1].literal().is_none();
        }
    };
    spread(&mut row);
    for element in elements {
        match element {
            Element::Rest => {
                for at in 1..row.len() {
                    row[at] |= row[at - 1];
                }
            }
            Element::OneOf(texts) => {
                let before = row.clone();
                for at in 0..row.len() {
                    let taken = at > 0
                        && before[at - 1]
                        && texts.iter().any(|t| t.matches(&words[at - 1]) != Match::No);
                    let within = at > 0 && before[at] && words[at - 1].literal().is_none();
                    row[at] = taken || within;
                }
                spread(&mut row);
            }
        }
    }
    row[words.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::shell::OpaqueReason;
    use super::*;

    fn words(texts: &[&str]) -> Vec<Word> {
        let word = |t: &&str| match *t {
            "$" => Word::Opaque { text: "$".into(), reason: OpaqueReason::Expansion },
            text => Word::Literal(text.into()),
        };
        texts.iter().map(word).collect()
    }

    fn matched(pattern: &[&str], given: &[&str]) -> Match {
        let elements: Result<Vec<_>, _> = pattern
            .iter()
            .map(|p| Element::compile(&WordSource::Text((*p).into()), &Regexes::default()))
            .collect();
        match_arguments(&elements.unwrap_or_else(|e| panic!("{e}")), &words(given))
    }

    #[test]
    fn words_match_one_by_one_and_a_rest_takes_any_number() {
        assert_eq!(matched(&["a"], &["a"]), Match::Yes);
        assert_eq!(matched(&["a"], &["a", "b"]), Match::No);
        assert_eq!(matched(&["a", "**"], &["a"]), Match::Yes);
        assert_eq!(matched(&["a", "**"], &["a", "b", "c"]), Match::Yes);
        assert_eq!(matched(&["**", "c"], &["a", "b", "c"]), Match::Yes);
        assert_eq!(matched(&["**", "x", "**"], &["a", "b", "c"]), Match::No);
        assert_eq!(matched(&["a*", "?"], &["abc", "d"]), Match::Yes);
        assert_eq!(matched(&["[ab]c"], &["bc"]), Match::Yes);
        assert_eq!(matched(&["[!ab]c"], &["bc"]), Match::No);
        assert_eq!(matched(&["\\*"], &["*"]), Match::Yes);
        assert_eq!(matched(&["\\*"], &["x"]), Match::No);
        assert_eq!(matched(&["*"], &["a\nb"]), Match::Yes);
        assert_eq!(matched(&[], &[]), Match::Yes);
    }

    #[test]
    fn an_unknown_word_matches_perhaps_and_surely_only_what_takes_anything() {
        assert_eq!(matched(&["a"], &["$"]), Match::Perhaps);
        assert_eq!(matched(&["*"], &["$"]), Match::Perhaps);
        assert_eq!(matched(&["**"], &["$"]), Match::Yes);
        assert_eq!(matched(&["a", "**"], &["a", "$"]), Match::Yes);
        assert_eq!(matched(&["a", "**"], &["b", "$"]), Match::No);
        assert_eq!(matched(&["-rf", "/"], &["$"]), Match::Perhaps);
        assert_eq!(matched(&["-rf"], &["-rf", "$"]), Match::Perhaps);
        assert_eq!(matched(&["-rf"], &["-x", "$"]), Match::No);
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern: String, text: String) {
            if let Ok(pattern) = TextPattern::compile(&pattern) {
                let _ = pattern.accepts(&text);
            }
        }

        #[test]
        fn an_escaped_text_matches_itself_only(text in "[^*]{0,12}", other: String) {
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            let pattern = TextPattern::compile(&escaped).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert!(pattern.accepts(&text));
            prop_assert_eq!(pattern.accepts(&other), text == other);
        }
    }
}
