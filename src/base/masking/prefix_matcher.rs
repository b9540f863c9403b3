//! Finds the longest prefix of a value that a text ends with, by the search of Knuth, Morris and Pratt.
//!
//! The time is linear for every text, because a command that knows a secret chooses the text.

/// A value, prepared.
pub(super) struct PrefixMatcher {
    value: Vec<u8>,
    /// For each length of a beginning, the length of the longest shorter one that it ends with.
    failure: Vec<u32>,
}

impl PrefixMatcher {
    /// Prepares a value. It is not empty, and shorter than 4 GiB.
    pub(super) fn new(value: Vec<u8>) -> Self {
        let mut failure = vec![0_u32; value.len() + 1];
        let mut length = 0;
        for at in 1..value.len() {
            while length > 0 && value[at] != value[length] {
                length = failure[length] as usize;
            }
            length += usize::from(value[at] == value[length]);
            failure[at + 1] = length as u32;
        }
        Self { value, failure }
    }

    /// The value.
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The length of the longest beginning of the value, but not all of it, that the text ends with.
    pub(super) fn longest_prefix_at_end<'a>(&self, text: impl Iterator<Item = &'a u8>) -> usize {
        let mut length = 0;
        for byte in text {
            if length == self.value.len() {
                length = self.failure[length] as usize;
            }
            while length > 0 && self.value[length] != *byte {
                length = self.failure[length] as usize;
            }
            length += usize::from(self.value[length] == *byte);
        }
        if length == self.value.len() { self.failure[length] as usize } else { length }
    }
}
