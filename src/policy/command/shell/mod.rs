//! Shell lines: what a line would run, as far as it can be seen without running it.
//!
//! The line is parsed by a real grammar of bash and walked once. What comes out is a list of simple commands
//! with their quoting undone, and a list of the parts that nobody can know before they run. This is advice for
//! a judge, never the boundary: the boundary is the sandbox. Pure; it expands nothing and reads no file.

mod walk;
mod word;

#[cfg(test)]
mod tests;

pub use word::{OpaqueReason, Word, holds_substitution};

/// The longest line that is parsed, in bytes. A longer one is opaque as a whole.
pub const LONGEST_LINE: usize = 64 * 1024;

/// The most simple commands that one line may hold. A line with more is opaque as a whole.
pub const MOST_COMMANDS: usize = 256;

/// Which shell reads a line: where they differ, a line is judged by the reading of the one that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `sh`, whichever shell that is. What bash and dash read differently is opaque.
    Posix,
    /// `bash`.
    Bash,
    /// `zsh`. What it reads unlike bash is opaque.
    Zsh,
}

impl Dialect {
    /// Of a shell, by its base name.
    pub fn of(shell: &str) -> Self {
        match shell {
            "bash" | "rbash" => Self::Bash,
            "zsh" => Self::Zsh,
            _ => Self::Posix,
        }
    }
}

/// One simple command of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Assignments before the command word, or of an `export` and its kind: name and value.
    pub assignments: Vec<(String, Word)>,
    /// The command word and its arguments; never empty unless there are only assignments.
    pub words: Vec<Word>,
    /// Where the command runs, as far as the line tells.
    pub place: Place,
    /// The command names a function that the line itself has defined before, unconditionally.
    pub of_function: Named,
}

/// Whether a command word names a function of the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A program or a builtin.
    Program,
    /// A function whose body has been judged where it stands.
    Function,
}

/// The working folder of a command, relative to the line's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The line's own folder.
    Start,
    /// After `cd` to this folder: absolute, or relative to the line's own.
    After(String),
    /// After a `cd` that may or may not have happened, or whose target can't be seen.
    Unknown,
}

/// A part of a line that can't be known before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// The part, as written.
    pub text: String,
    /// Why.
    pub reason: OpaqueReason,
}

/// What a line would run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// In the order in which they stand.
    pub commands: Vec<SimpleCommand>,
    /// Parts that make the line as a whole unknowable (a syntax error, too many commands, ...).
    pub opaque: Vec<Opaque>,
}

/// Parses a line. Never fails: what can't be understood is in [`Line::opaque`].
pub fn parse(line: &str, dialect: Dialect) -> Line {
    let whole = |reason| Line {
        commands: Vec::new(),
        opaque: vec![Opaque { text: line.chars().take(120).collect(), reason }],
    };
    if line.len() > LONGEST_LINE {
        return whole(OpaqueReason::TooLong);
    }
    // The grammar takes a carriage return for a blank; a shell takes it for a letter of the word.
    if line.chars().any(is_unseen) {
        return whole(OpaqueReason::ControlCharacter);
    }
    if dialect == Dialect::Zsh && line.match_indices('(').any(|(at, _)| !line[..at].ends_with('$')) {
        return whole(OpaqueReason::Dialect);
    }
    if splits_a_word(line) {
        return whole(OpaqueReason::Continuation);
    }
    let mut parser = tree_sitter::Parser::new();
    if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
        return whole(OpaqueReason::Syntax);
    }
    match parser.parse(only_ascii(line), None) {
        Some(tree) => walk::walk(line, &tree, dialect),
        None => whole(OpaqueReason::Syntax),
    }
}

/// Words as a line that means the same: quoted where they must be, and as written where they are not known.
pub fn print(words: &[Word]) -> String {
    let quote = |word: &Word| match word {
        Word::Opaque { text, .. } => text.clone(),
        Word::Literal(text) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+".contains(c);
            match !text.is_empty() && text.chars().all(plain) {
                true => text.clone(),
                false => format!("'{}'", text.replace('\'', "'\\''")),
            }
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Characters that a reader of the line takes for nothing or for a blank, and a shell for a letter.
fn is_unseen(c: char) -> bool {
    let invisible =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    invisible || (c.is_control() && c != '\n' && c != '\t') || (!c.is_ascii() && c.is_whitespace())
}

/// The line with every other character replaced by as many letters as it has bytes, so that places stay the same.
///
/// To a shell they are letters like others. The parser is C, and a `{` before a character of four bytes is known
/// to make it read where nothing is: it never gets to see one.
fn only_ascii(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    for c in line.chars() {
        match c.is_ascii() {
            true => plain.push(c),
            // A letter of words, but not of names: `\u{e9}=1` is no assignment.
            false => plain.extend(std::iter::repeat_n('%', c.len_utf8())),
        }
    }
    plain
}

/// Whether an escaped newline stands in the middle of a word. A shell joins its halves; the grammar does not.
fn splits_a_word(line: &str) -> bool {
    let bytes = line.as_bytes();
    let blank = |at: usize| bytes.get(at).is_none_or(|b| b.is_ascii_whitespace());
    line.match_indices("\\\n").any(|(at, _)| at > 0 && !blank(at - 1) && !blank(at + 2))
}
