//! Terminal ids: `term_` and a ULID, in one canonical spelling.

use std::fmt;

use ulid::Ulid;

use crate::session::parse_ulid;

/// A terminal's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminalId(Ulid);

impl TerminalId {
    /// A new one; 80 of its bits are random.
    pub fn generate() -> Self {
        Self(Ulid::generate())
    }

    /// Of its random bits, 64.
    pub(super) fn random_bits(self) -> u64 {
        self.0.random() as u64
    }

    /// Reads an id; any other spelling names nothing.
    pub fn parse(text: &str) -> Option<Self> {
        parse_ulid("term_", text).map(Self)
    }
}

impl fmt::Display for TerminalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term_{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_its_last_bits_are_the_random_ones() {
        let text = "term_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let id = TerminalId::parse(text).unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(TerminalId::parse("term_0000000000000000000000002Z").unwrap().random_bits(), 2 * 32 + 31);
        assert_eq!(TerminalId::parse("term_7ZZZZZZZZZZZZZZZZZZZZZZZZZ").unwrap().random_bits(), u64::MAX);
        assert_eq!(TerminalId::parse(&text.replace("term_", "sess_")), None);
        assert_ne!(TerminalId::generate(), TerminalId::generate());
    }
}
