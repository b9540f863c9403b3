//! Shell lines: what a line would run, as far as it can be seen without running it.
//!
//! A strict reader of our own. It reads a line once, and what it understands it understands as every shell of the
//! line's [`Dialect`] would; what two of them might read in different ways, and what is known only at run time, it
//! says to be opaque, with the place and the reason. It never guesses, expands nothing, reads no file, and takes any
//! text. This is advice for the evaluator, never the boundary: the boundary is the sandbox.
//!
//! From the outside in: [`lists`] reads lists and pipelines, [`compound`] what has words of its own, [`simple`]
//! simple commands, [`redirection`] what goes in and out, [`quoting`] words, [`expansion`] what
//! begins with a dollar sign or a backquote; [`arithmetic`] what is taken for an expression. [`shell_state`] follows the working directory and the functions of the line.

mod arithmetic;
mod compound;
mod expansion;
mod lists;
mod parser;
mod quoting;
mod redirection;
mod shell_state;
mod simple;
mod word;

use std::ops::Range;

use parser::Parser;
pub use quoting::print;
pub(super) use word::holds_number;
pub(crate) use word::holds_substitution;
pub use word::{OpaqueReason, Word};

/// The longest line that is read, in bytes. A longer one is opaque as a whole.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// The most simple commands that one line may hold. What is beyond is opaque.
pub const MAX_COMMANDS: usize = 256;

/// Constructs within constructs that are followed. What is deeper is opaque.
pub const MAX_DEPTH: usize = 48;

/// Which shell reads a line: where they differ, a line is evaluated by the reading of the one that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `sh`, whichever shell that is. What bash and dash read differently is opaque.
    Posix,
    /// `bash`.
    Bash,
    /// Any other shell: zsh, the Korn shells, fish. Read as bash reads it, and opaque as a whole.
    Other,
}

impl Dialect {
    /// The dialect of a shell, by its base name.
    pub fn of(shell: &str) -> Self {
        match shell {
            "bash" | "rbash" => Self::Bash,
            "sh" | "dash" | "ash" => Self::Posix,
            _ => Self::Other,
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
    pub place: LineCwd,
    /// The command names a function that the line itself has defined before, unconditionally.
    pub of_function: Named,
}

/// Whether a command word names a function of the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A program or a builtin.
    Program,
    /// A function whose body has been evaluated where it stands.
    Function,
}

/// The working directory of a command, relative to the line's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineCwd {
    /// The line's own directory.
    Start,
    /// After `cd` to this directory: absolute, or relative to the line's own.
    After(String),
    /// After a `cd` that may or may not have happened, or whose target can't be seen.
    Unknown,
}

/// A part of a line that can't be known before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// Where it begins, in bytes from the start of the line.
    pub at: usize,
    /// The part, as written, or its beginning.
    pub text: String,
    /// Why.
    pub reason: OpaqueReason,
}

/// What a line would run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedLine {
    /// In the order in which they stand, what is substituted before what it is substituted into.
    pub commands: Vec<SimpleCommand>,
    /// The commands that may run again after those behind them: bodies and conditions of loops.
    pub loops: Vec<Range<usize>>,
    /// Functions that the line defines, perhaps.
    pub defined: Vec<String>,
    /// Parts that make the line as a whole unknowable (a syntax error, too many commands, ...).
    pub opaque: Vec<Opaque>,
    /// Redirections to files whose names are expanded: the name may show the value of a variable.
    pub expanded_targets: Vec<String>,
}

/// Reads a line. Never fails: what can't be understood is in [`ParsedLine::opaque`].
pub fn parse(line: &str, dialect: Dialect) -> ParsedLine {
    let opaque = |at: usize, reason| Opaque { at, text: beginning(line), reason };
    if line.len() > MAX_LINE_BYTES {
        return ParsedLine { opaque: vec![opaque(0, OpaqueReason::TooLong)], ..ParsedLine::default() };
    }
    if dialect == Dialect::Other {
        let mut parsed = parse(line, Dialect::Bash);
        parsed.opaque.insert(0, opaque(0, OpaqueReason::Dialect));
        return parsed;
    }
    let Some((at, _)) = line.char_indices().find(|(_, c)| is_unseen(*c)) else {
        return Parser::new(line, dialect).parse();
    };
    // What stands on the lines before it runs before it is read.
    let before = line[..at].rfind('\n').map_or("", |newline| &line[..=newline]);
    let mut parsed = Parser::new(before, dialect).parse();
    parsed.opaque.push(opaque(at, OpaqueReason::ControlCharacter));
    parsed
}

/// As much of an opaque part as is worth showing.
fn beginning(text: &str) -> String {
    text.chars().take(120).collect()
}

/// Characters that a reader of the line takes for nothing or for a blank, and a shell for a letter.
fn is_unseen(c: char) -> bool {
    if matches!(c, ' '..='~' | '\n' | '\t') {
        return false;
    }
    let invisible = matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}' | '\u{e0000}'..='\u{e007f}');
    invisible || c.is_control() || c.is_whitespace()
}

#[cfg(test)]
mod tests;
