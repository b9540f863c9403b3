//! Decodes bytes that were cut out of a stream of text.
//!
//! A cut can go through a character. Such a partial character is left out, so that a replacement character never stands for a
//! character that was whole in the stream. Other invalid UTF-8 becomes U+FFFD.

/// Whether the stream goes on beyond an end of what was cut out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The stream begins, or ends for good, here: nothing is missing.
    Whole,
    /// The stream was cut here, or more of it may come.
    Cut,
}

/// The longest UTF-8 sequence, in bytes.
const UTF8_MAX_BYTES: usize = 4;

/// The bytes as text, with partial characters at cut edges left out.
pub fn to_text(bytes: &[u8], start: Edge, end: Edge) -> String {
    let from = match start {
        Edge::Whole => 0,
        Edge::Cut => leading_continuation_bytes(bytes),
    };
    let bytes = &bytes[from..];
    let until = match end {
        Edge::Whole => bytes.len(),
        Edge::Cut => bytes.len() - trailing_partial_bytes(bytes),
    };
    String::from_utf8_lossy(&bytes[..until]).into_owned()
}

/// The bytes without a character at their end that is not whole.
pub fn whole_characters(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() - trailing_partial_bytes(bytes)]
}

/// How many bytes at the start can be the rest of a character that began before the cut: continuation bytes, at
/// most three. More in a row are the rest of nothing.
fn leading_continuation_bytes(bytes: &[u8]) -> usize {
    let rest = bytes.iter().take(UTF8_MAX_BYTES).take_while(|byte| is_continuation(**byte)).count();
    if rest < UTF8_MAX_BYTES { rest } else { 0 }
}

/// How many bytes at the end are the beginning of a character that may go on after the cut.
fn trailing_partial_bytes(bytes: &[u8]) -> usize {
    for length in 1..UTF8_MAX_BYTES.min(bytes.len() + 1) {
        let tail = &bytes[bytes.len() - length..];
        if is_continuation(tail[0]) {
            continue;
        }
        // `error_len` is None exactly when the input ended in the middle of a valid sequence.
        let partial = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        return if partial { length } else { 0 };
    }
    0
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_text_stays_as_it_is() {
        assert_eq!(to_text("añ€😀".as_bytes(), Edge::Cut, Edge::Cut), "añ€😀");
        assert_eq!(to_text(b"", Edge::Cut, Edge::Cut), "");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_inside_and_at_whole_edges() {
        assert_eq!(to_text(b"a\xffb", Edge::Cut, Edge::Cut), "a\u{fffd}b");
        assert_eq!(to_text(b"\x80a\xe2\x82", Edge::Whole, Edge::Whole), "\u{fffd}a\u{fffd}");
        assert_eq!(to_text(b"\x80a\xe2\x82", Edge::Cut, Edge::Cut), "a");
        assert_eq!(to_text(b"a\xff", Edge::Cut, Edge::Cut), "a\u{fffd}");
    }

    #[test]
    fn four_continuation_bytes_are_the_rest_of_nothing() {
        assert_eq!(to_text(b"\x80\x80\x80\x80a", Edge::Cut, Edge::Whole).chars().last(), Some('a'));
        assert!(to_text(b"\x80\x80\x80\x80a", Edge::Cut, Edge::Whole).contains('\u{fffd}'));
    }

    #[test]
    fn a_character_that_is_not_whole_waits_for_its_rest() {
        assert_eq!(whole_characters(b"a\xe2\x82"), b"a");
        assert_eq!(whole_characters("a€".as_bytes()), "a€".as_bytes());
        assert_eq!(whole_characters(b"a\xff"), b"a\xff");
    }

    proptest! {
        #[test]
        fn no_cut_through_text_makes_a_replacement_character(
            text in any::<String>(), from in 0usize..100, until in 0usize..100,
        ) {
            let plain = !text.contains('\u{fffd}');
            prop_assume!(plain);
            let bytes = text.as_bytes();
            let from = from.min(bytes.len());
            let until = until.clamp(from, bytes.len());
            let piece = to_text(&bytes[from..until], Edge::Cut, Edge::Cut);
            let replaced = piece.contains('\u{fffd}');
            prop_assert!(!replaced);
            prop_assert!(text.contains(&piece));
            prop_assert!(piece.len() + 6 >= until - from);
        }
    }
}
