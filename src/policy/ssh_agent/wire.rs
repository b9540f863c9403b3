//! Strings and numbers of the protocol (RFC 4251, section 5).

/// The longest message, in bytes: as OpenSSH has it.
pub const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// A message with its length before it.
#[must_use]
pub fn frame(message: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

/// Reads from the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// Nothing is left.
    pub(super) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

pub(super) fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.extend(frame(string));
}
