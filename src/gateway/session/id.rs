//! Session ids: `sess_` and a ULID, in one canonical spelling.

use std::fmt;

use ulid::Ulid;

/// A session's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Ulid);

impl SessionId {
    /// A new one; 80 of its bits are random.
    pub fn generate() -> Self {
        Self(Ulid::generate())
    }

    /// Reads an id. Another spelling of a ULID (lower case) is another text, and names nothing.
    pub fn parse(text: &str) -> Option<Self> {
        parse_ulid("sess_", text).map(Self)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sess_{}", self.0)
    }
}

/// A ULID after a prefix, in its canonical spelling only.
pub(crate) fn parse_ulid(prefix: &str, text: &str) -> Option<Ulid> {
    let encoded = text.strip_prefix(prefix)?;
    let ulid = Ulid::from_string(encoded).ok()?;
    let mut canonical = [0; ulid::ULID_LEN];
    (ulid.array_to_str(&mut canonical) == encoded).then_some(ulid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = SessionId::generate();
        let text = id.to_string();
        assert_eq!(SessionId::parse(&text), Some(id));
        for other in [
            text.to_lowercase(),
            text.replace("sess_", "term_"),
            format!("{text} "),
            format!("{text}A"),
            text[..text.len() - 1].to_owned(),
            String::new(),
            "sess_".into(),
            "sess_ZZZZZZZZZZZZZZZZZZZZZZZZZZ".into(),
        ] {
            assert_eq!(SessionId::parse(&other), None, "{other}");
        }
    }
}
