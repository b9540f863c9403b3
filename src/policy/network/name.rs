//! Names of hosts, as strict as a rule needs them: what two programs could read as two names is none.

use std::fmt;

/// The longest name, in bytes (RFC 1035, without the last dot).
pub const MAX_NAME_BYTES: usize = 253;
/// The longest label.
const MAX_LABEL_BYTES: usize = 63;

/// A name in its only form: ASCII, lower case, without a dot at its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or only a dot.
    #[error("the name is empty")]
    Empty,
    /// More than a name can have.
    #[error("the name has more than {MAX_NAME_BYTES} bytes")]
    TooLong,
    /// A label is empty or longer than 63 bytes.
    #[error("a part of the name is empty or has more than {MAX_LABEL_BYTES} bytes")]
    Label,
    /// A character that names do not have: also a control character, NUL, or one beyond ASCII.
    #[error(
        "the name has a character other than a-z, 0-9, \"-\" and \"_\" (write a name beyond ASCII in its xn-- form)"
    )]
    Character,
    /// A label begins or ends with a hyphen.
    #[error("a part of the name begins or ends with \"-\"")]
    Hyphen,
    /// The last label is a number, as in an address.
    #[error("the name ends with a number, and is no address")]
    Number,
}

impl HostName {
    /// Reads a name. Upper case becomes lower case, and one dot at the end is left out.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(NameError::TooLong);
        }
        for label in text.split('.') {
            if label.is_empty() || label.len() > MAX_LABEL_BYTES {
                return Err(NameError::Label);
            }
            if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
                return Err(NameError::Character);
            }
            if label.starts_with('-') || label.ends_with('-') {
                return Err(NameError::Hyphen);
            }
        }
        if text.rsplit('.').next().is_some_and(looks_like_number) {
            return Err(NameError::Number);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it lies below another one: `a.b` below `b`, and no name below itself.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|front| front.ends_with('.'))
    }
}

/// Whether readers of addresses take a last label for a number: decimal, octal or hexadecimal.
pub(super) fn looks_like_number(label: &str) -> bool {
    let digits = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match digits {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        for (text, name) in [
            ("Registry.Example.ORG", "registry.example.org"),
            ("registry.example.org.", "registry.example.org"),
            ("localhost", "localhost"),
            ("_dmarc.example.org", "_dmarc.example.org"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("3com.net4", "3com.net4"),
        ] {
            assert_eq!(HostName::parse(text).unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_name() {
        let long = format!("{}.org", "a".repeat(64));
        let longer = ["abcdefg"; 40].join(".");
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "a b",
            "a\0.example.org",
            "a\n",
            "a\r\nHost: b",
            "bücher.example",
            "a/b",
            "a@b",
            "a:b",
            "a%00b",
            "[a]",
            "-a.org",
            "a-.org",
            "1.2.3.4",
            "0x7f.1",
            "a.0x7f",
            "127.1",
            "a.1",
            "２.org",
            "a\u{200b}b.org",
            "a,b",
            "*.org",
            &long,
            &longer,
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn below_means_a_label_more_and_not_an_ending() {
        let name = |text| HostName::parse(text).unwrap();
        assert!(name("a.example.org").is_below(&name("example.org")));
        assert!(name("a.b.example.org").is_below(&name("example.org")));
        assert!(!name("example.org").is_below(&name("example.org")));
        assert!(!name("badexample.org").is_below(&name("example.org")));
        assert!(!name("example.org.evil.net").is_below(&name("example.org")));
    }
}
