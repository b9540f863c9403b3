//! Words of a shell line with their quoting undone.
//!
//! A word is literal when every shell would see the same text whatever the environment and the files are;
//! all else is opaque and says why. Nothing is expanded here.

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Known text.
    Literal(String),
    /// Text that is known only when it runs.
    Opaque {
        /// As written.
        text: String,
        /// Why.
        reason: OpaqueReason,
    },
}

impl Word {
    /// The known text, if it is known.
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Opaque { .. } => None,
        }
    }
}

/// Why a part of a line can't be known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum OpaqueReason {
    /// `$NAME`, `${...}`, `$((...))`.
    #[error("the value of a variable or an arithmetic expression")]
    Expansion,
    /// `$(...)`, backticks, `<(...)`.
    #[error("the output of a command")]
    Substitution,
    /// `*`, `?`, `[...]`, `{a,b}`, `~`.
    #[error("names that a pattern expands to")]
    Pattern,
    /// Not a line of the grammar.
    #[error("a line that the shell grammar does not accept")]
    Syntax,
    /// A control character other than newline and tab, or another that cannot be seen.
    #[error("a character that cannot be seen")]
    ControlCharacter,
    /// Read differently by different shells.
    #[error("a construct that shells read differently")]
    Dialect,
    /// A word over two lines.
    #[error("a word that goes on after an escaped newline")]
    Continuation,
    /// Longer than is parsed.
    #[error("a line longer than is parsed")]
    TooLong,
    /// More commands, or commands within commands, than are evaluated.
    #[error("more commands than are judged in one line")]
    TooMany,
    /// A file whose commands are run by the shell.
    #[error("commands read from a file")]
    Script,
    /// A shell or interpreter that reads its commands from its input.
    #[error("commands read from standard input")]
    Input,
    /// An option of a wrapper that is not known, so that the inner command can't be found.
    #[error("a wrapper used in a way that hides its command")]
    Wrapper,
    /// The environment decides what the command word means.
    #[error("an assignment that changes which program runs")]
    Assignment,
    /// The line makes a link, and runs a path that may be it.
    #[error("a program that the line may have made a link to another")]
    Link,
    /// A file that only the sandbox has, or that cannot be read.
    #[error("a program that cannot be read, and may be a script for another one")]
    Interpreter,
    /// The working directory can't be seen, and the program is named relative to it.
    #[error("a program relative to a directory that is not known")]
    UnknownCwd,
}

/// A word while it is read.
#[derive(Debug, Default)]
pub(super) struct WordBuilder {
    /// What is known of its text.
    pub(super) value: String,
    /// Only what stands outside quotes, where patterns have their meaning.
    pub(super) bare: String,
    /// A part of it was quoted or escaped: it is no word of the grammar.
    pub(super) is_quoted: bool,
    /// An escaped newline stands behind it.
    pub(super) is_continued: bool,
    /// Why it is not known, if it is not.
    pub(super) reason: Option<OpaqueReason>,
    /// Where it begins and ends in the line, in bytes.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl WordBuilder {
    pub(super) fn hide(&mut self, reason: OpaqueReason) {
        self.reason.get_or_insert(reason);
    }

    pub(super) fn push_bare(&mut self, text: &str) {
        self.value.push_str(text);
        self.bare.push_str(text);
    }

    pub(super) fn push_quoted(&mut self, text: &str) {
        self.value.push_str(text);
        self.is_quoted = true;
    }

    /// The text, if it is known and as plain as a word of the grammar must be.
    pub(super) fn plain(&self) -> Option<&str> {
        (self.reason.is_none() && !self.is_quoted).then_some(self.value.as_str())
    }

    /// The finished word. `line` is the line that it was read from.
    pub(super) fn finish(self, line: &str) -> Word {
        let reason =
            self.reason.or_else(|| is_pattern(&self.bare, &self.value).then_some(OpaqueReason::Pattern));
        match reason {
            None => Word::Literal(self.value),
            Some(reason) => {
                Word::Opaque { text: line.get(self.start..self.end).unwrap_or("").to_owned(), reason }
            }
        }
    }
}

/// Whether a shell would expand unquoted text to other words.
fn is_pattern(bare: &str, value: &str) -> bool {
    if !bare.contains(['*', '?', '[', '{', '~', '=']) {
        return false;
    }
    let brace = bare.find('{').is_some_and(|open| {
        let rest = &bare[open..];
        rest.contains('}') && (rest.contains(',') || rest.contains(".."))
    });
    let home = bare.starts_with('~') && value.starts_with('~') || bare.contains("=~") || bare.contains(":~");
    // zsh(1): `=git` is the file that `git` names.
    let equals = bare.starts_with('=') && value.starts_with('=');
    // `[` alone is the name of a builtin; a bracket expression needs both ends.
    let bracket = bare.contains('[') && bare.contains(']');
    brace || home || equals || bracket || bare.contains(['*', '?'])
}

/// Whether text that is only data here holds something that a shell would run where it takes the text for code.
pub(crate) fn holds_substitution(text: &str) -> bool {
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'`' => return true,
            b'$' | b'<' | b'>' | b'=' if bytes.peek() == Some(&b'(') => return true,
            b'$' if matches!(bytes.peek(), Some(b'{' | b'[')) => return true,
            _ => {}
        }
    }
    false
}

/// Whether a variable is a number to a shell, so that what it is given is taken for arithmetic.
pub(in crate::command) fn holds_number(name: &str) -> bool {
    matches!(
        name,
        "COLUMNS"
            | "HISTCMD"
            | "LINENO"
            | "LINES"
            | "OPTIND"
            | "PPID"
            | "RANDOM"
            | "SECONDS"
            | "SRANDOM"
            | "TMOUT"
    )
}
