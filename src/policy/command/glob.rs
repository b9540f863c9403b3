//! Globs over whole texts: `*` any text, `?` one character, `[...]` one of several, `\` the next character as it is.
//!
//! A glob takes no more memory than its own text, so that ten thousand rules may have some each.

/// A glob, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Box<[Token]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    AnyText,
    AnyChar,
    OneOf { is_negated: bool, ranges: Box<[(char, char)]> },
}

/// What a text is: a glob where something in it stands for other texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ParsedText {
    /// It stands for itself, without its backslashes.
    Literal(String),
    /// It stands for several texts.
    Glob(Glob),
}

/// Characters between brackets that are no range: none, or a range that ends before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadRange;

/// Parses a text.
///
/// # Errors
/// [`BadRange`].
pub(super) fn parse(source: &str) -> Result<ParsedText, BadRange> {
    let mut tokens = Vec::new();
    let mut rest = source.chars();
    while let Some(c) = rest.next() {
        tokens.push(match c {
            '\\' => Token::Char(rest.next().unwrap_or('\\')),
            '*' => Token::AnyText,
            '?' => Token::AnyChar,
            '[' => match rest.as_str().split_once(']') {
                Some((inner, behind)) => {
                    rest = behind.chars();
                    one_of(inner)?
                }
                None => Token::Char('['),
            },
            c => Token::Char(c),
        });
    }
    let literal = tokens.iter().map(|token| match token {
        Token::Char(c) => Some(*c),
        Token::AnyText | Token::AnyChar | Token::OneOf { .. } => None,
    });
    Ok(match literal.collect() {
        Some(literal) => ParsedText::Literal(literal),
        None => ParsedText::Glob(Glob(tokens.into())),
    })
}

fn one_of(inner: &str) -> Result<Token, BadRange> {
    let (is_negated, inner) = match inner.strip_prefix('!') {
        Some(inner) => (true, inner),
        None => (false, inner),
    };
    let mut ranges = Vec::new();
    let mut chars = inner.chars().peekable();
    while let Some(first) = chars.next() {
        // A dash at the end is itself.
        let mut behind = chars.clone();
        let last = behind.next_if_eq(&'-').and_then(|_| behind.next());
        if last.is_some() {
            chars = behind;
        }
        let last = last.unwrap_or(first);
        if last < first {
            return Err(BadRange);
        }
        ranges.push((first, last));
    }
    if ranges.is_empty() { Err(BadRange) } else { Ok(Token::OneOf { is_negated, ranges: ranges.into() }) }
}

impl Token {
    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Char(wanted) => *wanted == c,
            Self::AnyChar | Self::AnyText => true,
            Self::OneOf { is_negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *is_negated
            }
        }
    }
}

impl Glob {
    /// Whether the whole text matches.
    pub fn accepts(&self, text: &str) -> bool {
        let mut text = text.chars();
        let mut at = 0;
        // Behind the last `*`, and where in the text what it stands for ended so far.
        let mut retry = None;
        loop {
            let before = text.clone();
            match (self.0.get(at), text.next()) {
                (Some(Token::AnyText), _) => {
                    at += 1;
                    text = before.clone();
                    retry = Some((at, before));
                    continue;
                }
                (Some(token), Some(c)) if token.accepts(c) => {
                    at += 1;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            // The last `*` takes one character more; an earlier one need not.
            let Some((behind, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            (at, text) = (*behind, from.clone());
        }
    }

    /// The characters that it begins with, before anything that stands for others.
    pub fn beginning(&self) -> String {
        let literal = |token: &Token| match token {
            Token::Char(c) => Some(*c),
            Token::AnyText | Token::AnyChar | Token::OneOf { .. } => None,
        };
        self.0.iter().map_while(literal).collect()
    }

    /// Whether it names this character, itself or among others.
    pub fn names(&self, wanted: char) -> bool {
        self.0.iter().any(|token| match token {
            Token::Char(c) => *c == wanted,
            Token::OneOf { ranges, .. } => {
                ranges.iter().any(|(first, last)| [*first, *last].contains(&wanted))
            }
            Token::AnyText | Token::AnyChar => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(glob: &str, text: &str) -> bool {
        match parse(glob) {
            Ok(ParsedText::Glob(glob)) => glob.accepts(text),
            Ok(ParsedText::Literal(literal)) => literal == text,
            Err(BadRange) => panic!("{glob:?} is no glob"),
        }
    }

    #[test]
    fn a_glob_matches_whole_texts_and_every_star_takes_what_it_must() {
        for (glob, text) in [
            ("*", ""),
            ("*", "a\nb"),
            ("a*b*c", "a-b-b-c"),
            ("a*b*c", "abcabc"),
            ("**a", "bba"),
            ("?é", "aé"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[a-]", "-"),
            ("[-a]", "-"),
            ("[^a]", "^"),
            ("[.", "[."),
            ("\\*\\[", "*["),
            ("a\\", "a\\"),
        ] {
            assert!(accepts(glob, text), "{glob:?} {text:?}");
        }
        for (glob, text) in [
            ("a*b", "ab-"),
            ("?", ""),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("a*b*c", "acb"),
            ("\\*", "x"),
        ] {
            assert!(!accepts(glob, text), "{glob:?} {text:?}");
        }
        assert_eq!(
            [parse("[]x"), parse("[!]"), parse("[z-a]")],
            [Err(BadRange), Err(BadRange), Err(BadRange)]
        );
    }

    #[test]
    fn many_stars_take_no_longer_than_their_number_times_the_text() {
        let glob = "a*".repeat(200) + "b";
        assert!(!accepts(&glob, &"a".repeat(20_000)));
    }
}
