//! Masking against its definition, byte by byte.

use proptest::prelude::*;

use super::*;

fn masked(secrets: &[&str], text: &str) -> String {
    Masker::new(secrets).unwrap().mask_text(text).into_owned()
}

/// Covered, without what is not certain.
fn covered(secrets: &[&str], part: &str, begins: StreamStart, ends: StreamEnd) -> String {
    let mut part = part.as_bytes().to_vec();
    let certain = Masker::new(secrets).unwrap().mask_in_place(&mut part, begins, ends);
    part.truncate(certain);
    String::from_utf8(part).unwrap()
}

#[test]
fn overlapping_values_leave_nothing_of_either() {
    assert_eq!(masked(&["hunter2"], "pass hunter2!"), "pass ***!");
    assert_eq!(masked(&["abcd", "cdef"], "xabcdefx"), "x***x");
    assert_eq!(masked(&["abcd", "cdefgh"], "xabcdefx"), "x***efx");
    assert_eq!(masked(&["abcd", "zabcdz"], "zabcdy"), "z***y");
    assert_eq!(masked(&["abcd", "bcdefg"], "abcdefg abcd"), "*** ***");
}

#[test]
fn each_byte_of_output_keeps_its_place() {
    assert_eq!(
        covered(&["hunter2"], "pass hunter2!", StreamStart::Whole, StreamEnd::MayContinue),
        "pass *******!"
    );
    assert_eq!(
        covered(&["abcd", "cdef"], "xabcdefx", StreamStart::Whole, StreamEnd::MayContinue),
        "x******x"
    );
}

#[test]
fn only_what_may_be_a_beginning_is_held_back_and_only_until_the_end() {
    assert_eq!(
        covered(&["hunter2"], "all of this and hun", StreamStart::Whole, StreamEnd::MayContinue),
        "all of this and "
    );
    assert_eq!(
        covered(&["hunter2"], "all of this and hun", StreamStart::Whole, StreamEnd::Whole),
        "all of this and hun"
    );
    // What has come may be the end of one and the beginning of the next.
    assert_eq!(covered(&["abcabd"], "abcabdab", StreamStart::Whole, StreamEnd::MayContinue), "******");
}

#[test]
fn a_beginning_that_was_cut_is_covered_where_a_secret_may_end_with_it() {
    assert_eq!(covered(&["hunter2"], "ter2 hunt", StreamStart::Truncated, StreamEnd::Whole), "**** hunt");
    assert_eq!(covered(&["hunter2"], "ter2 hunt", StreamStart::Whole, StreamEnd::Whole), "ter2 hunt");
    assert_eq!(covered(&["hunter2"], "ter3", StreamStart::Truncated, StreamEnd::Whole), "ter3");
}

#[test]
fn each_line_of_a_key_is_masked_by_itself() {
    let key = "-----BEGIN KEY-----\nabcdefghijkl\n-----END KEY-----\n";
    assert_eq!(masked(&[key], "it is abcdefghijkl\r\n"), "it is ***\r\n");
}

#[test]
fn values_that_cannot_be_masked_are_refused_without_being_named() {
    let error = Masker::new(["long enough", "abc"]).unwrap_err();
    assert!(matches!(error, MaskError::TooShort { index: 1, bytes: 3 }));
    assert!(!error.to_string().contains("abc"));
    assert!(!format!("{:?}", Masker::new(["hunter2"]).unwrap()).contains("hunter2"));
    assert!(matches!(Masker::new([vec![0; 65537]]), Err(MaskError::TooLong { index: 0, .. })));
}

#[test]
fn without_secrets_nothing_is_changed_or_held() {
    let none = Masker::new(Vec::<&str>::new()).unwrap();
    assert_eq!(
        (
            none.context_bytes(),
            none.mask_in_place(&mut [0; 7], StreamStart::Truncated, StreamEnd::MayContinue)
        ),
        (0, 7)
    );
    assert!(matches!(Masker::NONE.mask_text("text"), Cow::Borrowed("text")));
}

/// The longest secret, of the worst kind, on the worst text: in quadratic time this would not end.
#[test]
fn the_worst_text_takes_no_longer_than_any() {
    let mut secret = vec![b'a'; SECRET_MAX_BYTES];
    secret[0] = b'b';
    let masker = Masker::new([&secret]).unwrap();
    for _ in 0..50 {
        let mut text = vec![b'a'; SECRET_MAX_BYTES - 1];
        let all = text.len();
        assert_eq!(masker.mask_in_place(&mut text, StreamStart::Truncated, StreamEnd::MayContinue), all);
        assert!(text.iter().all(|byte| *byte == MASK_BYTE));
    }
}

/// What is part of a secret, by the definition.
fn secret_bytes(secrets: &[Vec<u8>], text: &[u8]) -> Vec<bool> {
    let mut is_secret = vec![false; text.len()];
    for secret in secrets {
        for start in 0..(text.len() + 1).saturating_sub(secret.len()) {
            if text[start..].starts_with(secret) {
                is_secret[start..start + secret.len()].fill(true);
            }
        }
    }
    is_secret
}

fn few_letters(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"ab".to_vec()), length)
}

proptest! {
    #[test]
    fn a_text_is_masked_as_the_definition_says(
        secrets in prop::collection::vec(few_letters(4..9), 1..4),
        text in few_letters(0..60),
    ) {
        let is_secret = secret_bytes(&secrets, &text);
        let mut expected = Vec::new();
        for (at, byte) in text.iter().enumerate() {
            match (is_secret[at], at > 0 && is_secret[at - 1]) {
                (false, _) => expected.push(*byte),
                (true, false) => expected.extend_from_slice(MASK.as_bytes()),
                (true, true) => {}
            }
        }
        prop_assert_eq!(Masker::new(&secrets).unwrap().mask(&text).into_owned(), expected);
    }

    /// Whichever part is looked at, and however much has come by then: what is certain is what it is in the end.
    #[test]
    fn any_part_is_covered_as_the_whole_is(
        secrets in prop::collection::vec(few_letters(4..9), 1..4),
        text in few_letters(1..60),
        cuts in (0usize..60, 0usize..60, 0usize..60),
    ) {
        let masker = Masker::new(&secrets).unwrap();
        let is_secret = secret_bytes(&secrets, &text);
        let mut cuts = [cuts.0 % text.len(), cuts.1 % text.len(), cuts.2 % text.len()];
        cuts.sort_unstable();
        let [from, to, head] = cuts;
        let start = from.saturating_sub(masker.context_bytes());
        let end = head.min(to + masker.context_bytes());
        let mut part = text[start..end].to_vec();
        let ends = if end == to + masker.context_bytes() { StreamEnd::Whole } else { StreamEnd::MayContinue };
        let certain = start + masker.mask_in_place(&mut part, StreamStart::Whole, ends);
        prop_assert!(certain + masker.context_bytes() >= end);
        for at in from..to.min(certain) {
            let expected = if is_secret[at] { MASK_BYTE } else { text[at] };
            prop_assert_eq!(part[at - start], expected, "at {} of {}..{}", at, from, to);
        }
    }

    /// What was lost before a part leaves nothing of a secret in it; and nothing is covered for no reason.
    #[test]
    fn nothing_of_a_secret_is_left_where_its_beginning_was_lost(
        secrets in prop::collection::vec(few_letters(4..9), 1..4),
        text in few_letters(1..60),
        lost in 0usize..60,
    ) {
        let masker = Masker::new(&secrets).unwrap();
        let lost = lost % text.len();
        let is_secret = secret_bytes(&secrets, &text);
        let mut part = text[lost..].to_vec();
        prop_assert_eq!(masker.mask_in_place(&mut part, StreamStart::Truncated, StreamEnd::Whole), part.len());
        let longest_end = (0..=part.len()).rev().find(|length| {
            secrets.iter().any(|secret| *length < secret.len() && secret.ends_with(&text[lost..lost + length]))
        });
        for (at, byte) in part.iter().enumerate() {
            if is_secret[lost + at] {
                prop_assert_eq!(*byte, MASK_BYTE);
            } else if at >= longest_end.unwrap_or(0) {
                prop_assert_eq!(*byte, text[lost + at]);
            }
        }
    }
}
