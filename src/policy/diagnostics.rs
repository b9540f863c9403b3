//! What is said about policy files: mistakes, each shown with its file, line, column, the line itself and a caret; and warnings about a
//! policy that is valid and perhaps not what its author means, with the list that silences them.

use std::fmt;

use crate::printable;

/// A mistake in a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFileError {
    /// The file, as it was named to the loader.
    pub file: String,
    /// 1-based.
    pub line: usize,
    /// 1-based, in characters.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    source_line: String,
    width: usize,
}

impl PolicyFileError {
    /// At a byte range of the file's text; a range past the end means the end.
    pub fn at(file: &str, text: &str, range: std::ops::Range<usize>, problem: impl Into<String>) -> Self {
        let mut start = range.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let marked_end = range.end.clamp(start, line_end.max(start));
        Self {
            file: file.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            problem: problem.into(),
            source_line: text[line_start..line_end].trim_end_matches('\r').to_owned(),
            width: text.get(start..marked_end).map_or(1, |marked| marked.chars().count()).max(1),
        }
    }
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, problem, source_line, width } = self;
        // The reader's terminal must not obey control characters of the file's author.
        let (file, problem) = (printable::line(file), printable::lines(problem));
        let shown_width = |text: String| printable::line(&text).chars().count();
        let margin = " ".repeat(line.to_string().len());
        let indent = " ".repeat(shown_width(source_line.chars().take(column - 1).collect()));
        let marked = shown_width(source_line.chars().skip(column - 1).take(*width).collect());
        let carets = "^".repeat(marked.max(1));
        writeln!(f, "{file}:{line}:{column}: {problem}")?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{line} | {}", printable::line(source_line))?;
        write!(f, "{margin} | {indent}{carets}")
    }
}

impl std::error::Error for PolicyFileError {}

/// Where a rule stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleLocation {
    /// The file, as it was named to the loader.
    pub file: String,
    /// 1-based.
    pub line: usize,
}

/// The kinds of warnings. Their names are stable: files silence warnings by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningId {
    /// An option before its subcommand gets round the rule.
    UnknownOptions,
    /// No command can match the rule.
    NeverMatches,
    /// A stricter rule catches everything that the rule matches.
    Shadowed,
    /// A rule finds several short options in one spelling only.
    ClusteredFlags,
    /// A profile has no exec gate: what commands start is not judged.
    NoGate,
    /// A rule is about requests of a port where they come in TLS, which it does not open.
    HiddenRequests,
    /// The file of a secret lies in a directory that a profile shows.
    ShownSecret,
}

impl WarningId {
    const ALL: [Self; 7] = [
        Self::UnknownOptions,
        Self::NeverMatches,
        Self::Shadowed,
        Self::ClusteredFlags,
        Self::NoGate,
        Self::HiddenRequests,
        Self::ShownSecret,
    ];

    /// As files and people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownOptions => "unknown-options",
            Self::NeverMatches => "never-matches",
            Self::Shadowed => "shadowed",
            Self::ClusteredFlags => "clustered-flags",
            Self::NoGate => "no-gate",
            Self::HiddenRequests => "hidden-requests",
            Self::ShownSecret => "shown-secret",
        }
    }
}

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyWarning {
    /// Its kind.
    pub id: WarningId,
    /// The rule, the profile or the secret, by its name.
    pub subject: String,
    /// Where it stands.
    pub location: Option<RuleLocation>,
    /// What is odd, as the rest of a sentence about the subject.
    pub problem: String,
}

/// One item of a file's `silence`: `"ID"`, or `"ID:NAME"` for one rule or profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Silenced {
    id: WarningId,
    subject: Option<String>,
}

impl Silenced {
    /// Reads an item; the error says what there is.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, subject) = match text.split_once(':') {
            Some((name, subject)) => (name, Some(subject.to_owned())),
            None => (text, None),
        };
        match WarningId::ALL.into_iter().find(|id| id.name() == name) {
            Some(id) => Ok(Self { id, subject }),
            None => {
                let known = WarningId::ALL.map(WarningId::name).join(", ");
                Err(format!("{name:?} is no warning; there are {known}"))
            }
        }
    }

    /// Whether the warning is not to be shown.
    pub(super) fn covers(&self, warning: &PolicyWarning) -> bool {
        self.id == warning.id && self.subject.as_ref().is_none_or(|subject| *subject == warning.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_shown_with_a_caret() {
        let text = "a = 1\nbb = 2\n";
        let error = PolicyFileError::at("p.toml", text, 6..8, "unknown key");
        assert_eq!((error.line, error.column), (2, 1));
        assert_eq!(error.to_string(), "p.toml:2:1: unknown key\n  |\n2 | bb = 2\n  | ^^");
    }

    #[test]
    fn what_drives_a_terminal_is_written_out_and_the_caret_stays_below_its_place() {
        let error = PolicyFileError::at("p\u{1b}[2J", "a\u{9b} = 1", 5..6, "no \u{202e}");
        assert_eq!(error.to_string(), "p\\u{1b}[2J:1:5: no \\u{202e}\n  |\n1 | a\\u{9b} = 1\n  |          ^");
    }

    #[test]
    fn a_place_past_the_end_or_inside_a_character_does_not_panic() {
        assert_eq!(PolicyFileError::at("p", "", 9..12, "x").line, 1);
        assert_eq!(PolicyFileError::at("p", "é\n", 1..2, "x").column, 1);
    }

    #[test]
    fn an_item_silences_one_kind_or_one_subject_and_nothing_else() {
        let warning = |id, subject: &str| PolicyWarning {
            id,
            subject: subject.into(),
            location: None,
            problem: String::new(),
        };
        let all = Silenced::parse("shadowed").unwrap();
        let one = Silenced::parse("shadowed:push").unwrap();
        assert!(
            all.covers(&warning(WarningId::Shadowed, "x"))
                && all.covers(&warning(WarningId::Shadowed, "push"))
        );
        assert!(
            one.covers(&warning(WarningId::Shadowed, "push"))
                && !one.covers(&warning(WarningId::Shadowed, "x"))
        );
        assert!(!all.covers(&warning(WarningId::NoGate, "push")));
        assert!(Silenced::parse("everything").is_err_and(|problem| problem.contains("never-matches")));
    }
}
