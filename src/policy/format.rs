//! The one layout of policy files: blank lines, indents and blanks around `=`. Comments, order and values stay as they are.
//!
//! Works on the text, line by line, and says nothing about what it means: a result that would mean something else is refused.

use toml::Table;

/// What the layout has for each level of brackets.
const INDENT: &str = "    ";

/// Why a text is not laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It is no TOML.
    #[error("{0}")]
    Toml(String),
    /// The result would mean something else. The text is left alone.
    #[error("cannot be laid out without a change of what it means")]
    Meaning,
}

/// The same policy file, laid out.
///
/// # Errors
/// For what is no TOML, and for what this cannot lay out safely.
pub fn format(text: &str) -> Result<String, FormatError> {
    let before: Table = toml::from_str(text)
        .map_err(|error: toml::de::Error| FormatError::Toml(error.message().to_owned()))?;
    let formatted = layout(text);
    match toml::from_str::<Table>(&formatted) {
        Ok(after) if after == before => Ok(formatted),
        Ok(_) | Err(_) => Err(FormatError::Meaning),
    }
}

fn layout(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut scanner = Scanner::default();
    for line in text.lines() {
        let (within, depth) = (scanner.within, scanner.depth);
        scanner.line(line);
        if within.is_some() {
            lines.push(line.to_owned());
            continue;
        }
        let opens_text = scanner.within.is_some();
        let bare = if opens_text { line.trim_start() } else { line.trim() };
        let closes = bare.starts_with([']', '}']);
        let laid_out = match depth {
            _ if bare.is_empty() => String::new(),
            0 => key_and_value(bare),
            depth => INDENT.repeat(depth.saturating_sub(usize::from(closes))) + bare,
        };
        let is_header = depth == 0 && bare.starts_with('[');
        if is_header {
            separate(&mut lines);
        }
        let follows_blank = lines.last().is_none_or(String::is_empty);
        if !(laid_out.is_empty() && follows_blank) {
            lines.push(laid_out);
        }
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// One blank line before a table and the comment above it.
fn separate(lines: &mut Vec<String>) {
    let comments = lines.iter().rev().take_while(|line| line.starts_with('#')).count();
    let at = lines.len() - comments;
    if at > 0 && !lines[at - 1].is_empty() {
        lines.insert(at, String::new());
    }
}

/// `key = value` with one blank on each side of the first `=` that is in no quotes.
fn key_and_value(line: &str) -> String {
    if line.starts_with(['#', '[']) {
        return line.to_owned();
    }
    let mut quote = None;
    let at = line.char_indices().find(|(_, c)| {
        match quote {
            Some(open) if *c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(*c),
            _ => {}
        }
        quote.is_none() && *c == '='
    });
    match at {
        Some((at, _)) => format!("{} = {}", line[..at].trim_end(), line[at + 1..].trim_start()),
        None => line.to_owned(),
    }
}

/// A text over several lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LongText {
    /// `"""`
    Basic,
    /// `'''`
    Literal,
}

/// Where the end of a line is: in a long text, and in how many brackets.
#[derive(Debug, Default)]
struct Scanner {
    within: Option<LongText>,
    depth: usize,
}

impl Scanner {
    fn line(&mut self, line: &str) {
        // A table's own brackets hold nothing.
        if self.within.is_none() && self.depth == 0 && line.trim_start().starts_with('[') {
            return;
        }
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            rest = match self.within {
                Some(LongText::Basic) if rest.starts_with("\"\"\"") => self.leave(rest),
                Some(LongText::Literal) if rest.starts_with("'''") => self.leave(rest),
                Some(LongText::Basic) if c == '\\' => after(rest, 2),
                Some(_) => after(rest, 1),
                None if rest.starts_with("\"\"\"") => self.enter(LongText::Basic, rest),
                None if rest.starts_with("'''") => self.enter(LongText::Literal, rest),
                None => match c {
                    '#' => return,
                    '"' | '\'' => behind_text(rest, c),
                    '[' | '{' => {
                        self.depth += 1;
                        after(rest, 1)
                    }
                    ']' | '}' => {
                        self.depth = self.depth.saturating_sub(1);
                        after(rest, 1)
                    }
                    _ => after(rest, 1),
                },
            };
        }
    }

    fn enter<'a>(&mut self, kind: LongText, rest: &'a str) -> &'a str {
        self.within = Some(kind);
        after(rest, 3)
    }

    fn leave<'a>(&mut self, rest: &'a str) -> &'a str {
        self.within = None;
        after(rest, 3)
    }
}

/// What follows this many characters.
fn after(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or("", |(at, _)| &text[at..])
}

/// What follows a text in quotes, of one line.
fn behind_text(text: &str, quote: char) -> &str {
    let mut rest = after(text, 1);
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '\\' if quote == '"' => after(rest, 2),
            _ => after(rest, 1),
        };
        if c == quote {
            break;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_laid_out_once_and_then_stays() {
        let text = "# head\ndefault_profile='a'\n\n\n[profile.a]   \n  gate.enabled=true # a=b\n# of the rule\n[[rule]]\n\
                    id  =  \"x\"\nargv = [\n\"a\",\n      [\"b\", # ]\n  \"c = d\"],\n]\nreason = \"\"\"\n  kept  = so   \n\n\n\"\"\"\n\
                    \"odd = key\"=1\n\n\n";
        let expected = "# head\ndefault_profile = 'a'\n\n[profile.a]\ngate.enabled = true # a=b\n\n# of the rule\n[[rule]]\n\
                        id = \"x\"\nargv = [\n    \"a\",\n    [\"b\", # ]\n        \"c = d\"],\n]\nreason = \"\"\"\n  kept  = so   \n\n\n\"\"\"\n\
                        \"odd = key\" = 1\n";
        let once = format(text).unwrap();
        assert_eq!(once, expected);
        assert_eq!(format(&once).unwrap(), once);
        assert!(matches!(format("a = ["), Err(FormatError::Toml(_))));
        assert_eq!(format("").unwrap(), "");
    }

    #[test]
    fn the_shipped_files_are_laid_out() {
        for text in [
            include_str!("policies/default.toml"),
            include_str!("policies/presets/node.toml"),
            include_str!("policies/presets/review.toml"),
            include_str!("policies/examples/profiles.toml"),
        ] {
            assert_eq!(format(text).unwrap(), text);
        }
    }
}
