//! Words of a shell line with their quoting undone.
//!
//! A word is literal when every shell would see the same text whatever the environment and the files are;
//! all else is opaque and says why. Nothing is expanded here.

use tree_sitter::Node;

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
    /// More commands, or commands within commands, than are judged.
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
    /// The working folder can't be seen, and the program is named relative to it.
    #[error("a program relative to a folder that is not known")]
    Place,
}

/// The text of a node; empty where the tree cuts a character in two.
pub(super) fn text_of<'a>(source: &'a str, node: Node<'_>) -> &'a str {
    source.get(node.byte_range()).unwrap_or("")
}

/// Undoes the quoting of the word at `node`.
pub(super) fn read(source: &str, node: Node<'_>) -> Word {
    let text = text_of(source, node);
    let mut parts = Parts::default();
    parts.add(source, node);
    match parts.reason() {
        Some(reason) => Word::Opaque { text: text.to_owned(), reason },
        None => Word::Literal(parts.value),
    }
}

#[derive(Default)]
struct Parts {
    value: String,
    /// Only what stands outside quotes, where patterns have their meaning.
    bare: String,
    reason: Option<OpaqueReason>,
}

impl Parts {
    fn add(&mut self, source: &str, node: Node<'_>) {
        let text = text_of(source, node);
        match node.kind() {
            "word" | "number" | "variable_name" | "test_operator" | "extglob_pattern" | "regex" => {
                self.add_bare(text);
            }
            "raw_string" => self.value.push_str(inside(text, 1, '\'')),
            "ansi_c_string" => match ansi_c(inside(text, 2, '\'')) {
                Some(value) => self.value.push_str(&value),
                None => self.hide(OpaqueReason::Syntax),
            },
            "string" | "translated_string" => {
                let start = if text.starts_with('$') { 2 } else { 1 };
                self.add_double_quoted(inside(text, start, '"'));
            }
            "concatenation" | "command_name" => {
                let mut cursor = node.walk();
                let children: Vec<_> = node.children(&mut cursor).collect();
                if children.is_empty() {
                    self.add_bare(text);
                }
                for child in children {
                    self.add(source, child);
                }
            }
            "command_substitution" | "process_substitution" => self.hide(OpaqueReason::Substitution),
            "simple_expansion" | "expansion" | "arithmetic_expansion" => self.hide(OpaqueReason::Expansion),
            "brace_expression" => self.hide(OpaqueReason::Pattern),
            _ if node.child_count() == 0 => self.add_bare(text),
            _ => self.hide(OpaqueReason::Syntax),
        }
    }

    fn add_bare(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.value.push(escaped),
                },
                '$' | '`' => {
                    self.hide(OpaqueReason::Expansion);
                }
                _ => {
                    self.value.push(c);
                    self.bare.push(c);
                }
            }
        }
    }

    fn add_double_quoted(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.peek() {
                    Some('\n') => {
                        chars.next();
                    }
                    Some(&escaped @ ('$' | '`' | '"' | '\\')) => {
                        self.value.push(escaped);
                        chars.next();
                    }
                    _ => self.value.push('\\'),
                },
                '`' => self.hide(OpaqueReason::Substitution),
                '$' => match chars.peek() {
                    Some('(') => self.hide(OpaqueReason::Substitution),
                    Some(c) if c.is_ascii_alphanumeric() || "_{@*#?-$!".contains(*c) => {
                        self.hide(OpaqueReason::Expansion);
                    }
                    _ => self.value.push('$'),
                },
                _ => self.value.push(c),
            }
        }
    }

    fn hide(&mut self, reason: OpaqueReason) {
        self.reason.get_or_insert(reason);
    }

    fn reason(&self) -> Option<OpaqueReason> {
        self.reason.or_else(|| is_pattern(&self.bare, &self.value).then_some(OpaqueReason::Pattern))
    }
}

/// Whether a shell would expand unquoted text to other words.
fn is_pattern(bare: &str, value: &str) -> bool {
    let brace = bare.find('{').is_some_and(|open| {
        let rest = &bare[open..];
        rest.contains('}') && (rest.contains(',') || rest.contains(".."))
    });
    let home = bare.starts_with('~') && value.starts_with('~') || bare.contains("=~") || bare.contains(":~");
    // zsh(1): `=git` is the file that `git` names.
    let equals = bare.starts_with('=') && value.starts_with('=');
    // `[` alone is the name of a builtin; a bracket expression needs both ends.
    let bracket = bare.contains('[') && bare.contains(']') && bare != "[" && bare != "]";
    brace || home || equals || bracket || bare.contains(['*', '?'])
}

/// The text between an opening quote of `start` bytes and the closing one.
fn inside(text: &str, start: usize, quote: char) -> &str {
    let text = text.get(start..).unwrap_or("");
    text.strip_suffix(quote).unwrap_or(text)
}

/// Whether text that the grammar took for plain holds something that a shell would run.
pub fn holds_substitution(text: &str) -> bool {
    holds(text, &['$', '<', '>', '='])
}

/// As [`holds_substitution`], for text inside double quotes or of a here-document.
pub(super) fn holds_quoted_substitution(text: &str) -> bool {
    holds(text, &['$'])
}

fn holds(text: &str, before_parenthesis: &[char]) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '`' => return true,
            c if before_parenthesis.contains(&c) && chars.peek() == Some(&'(') => return true,
            '$' if matches!(chars.peek(), Some('{' | '[')) => return true,
            _ => {}
        }
    }
    false
}

/// Undoes `$'...'` as bash(1) describes under QUOTING. None: a NUL, or no Unicode character.
fn ansi_c(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut push = |c: char| {
        let mut buffer = [0; 4];
        bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    };
    while let Some(c) = chars.next() {
        if c != '\\' {
            push(c);
            continue;
        }
        let digits = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>, radix: u32, most: usize| {
            let mut value = None;
            for _ in 0..most {
                let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
                chars.next();
                value = Some(value.unwrap_or(0) * radix + digit);
            }
            value
        };
        match chars.next()? {
            'a' => push('\u{7}'),
            'b' => push('\u{8}'),
            'e' | 'E' => push('\u{1b}'),
            'f' => push('\u{c}'),
            'n' => push('\n'),
            'r' => push('\r'),
            't' => push('\t'),
            'v' => push('\u{b}'),
            c @ ('\\' | '\'' | '"' | '?') => push(c),
            'x' => {
                let value = digits(&mut chars, 16, 2)?;
                push(ascii(value)?);
            }
            'u' => push(char::from_u32(digits(&mut chars, 16, 4)?).filter(|c| *c != '\0')?),
            'U' => push(char::from_u32(digits(&mut chars, 16, 8)?).filter(|c| *c != '\0')?),
            'c' => push(char::from_u32(u32::from(chars.next()?) & 0x1f).filter(|c| *c != '\0')?),
            c @ '0'..='7' => {
                let mut value = c.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    chars.next();
                    value = value * 8 + digit;
                }
                push(ascii(value)?);
            }
            c => {
                push('\\');
                push(c);
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// A byte escape that is a character by itself. A higher byte is half a character, or none: not worth guessing.
fn ascii(value: u32) -> Option<char> {
    char::from_u32(value).filter(|c| c.is_ascii() && *c != '\0')
}
