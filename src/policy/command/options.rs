//! Options of wrappers: how to find where their own options end and the inner command begins.
//!
//! Follows getopt(3) as the wrappers use it: clusters of short options, attached and separate values, `--`. An
//! option that the table does not know is an error, never skipped.

use super::shell::{OpaqueReason, Word};

/// How the options of a wrapper are written.
pub(super) struct OptionSpec {
    /// Short options that take a value, attached or as the next word.
    pub(super) short_with_value: &'static str,
    /// Short options whose value, if there is one, is the rest of the same word.
    pub(super) short_attached: &'static str,
    /// Short options that take none.
    pub(super) short: &'static str,
    /// Long options that take a value, attached by `=` or as the next word.
    pub(super) long_with_value: &'static [&'static str],
    /// Long options that take none (or one attached by `=` only).
    pub(super) long: &'static [&'static str],
    /// Words between the options and the inner command (`timeout DURATION`).
    pub(super) operands: usize,
}

/// No options of its own.
pub(super) const PLAIN: OptionSpec = OptionSpec {
    short_with_value: "",
    short_attached: "",
    short: "",
    long_with_value: &[],
    long: &["help", "version"],
    operands: 0,
};

/// The words after a wrapper's own options and operands. `Err` where an option is not known or not visible.
pub(super) fn skip<'a>(args: &'a [Word], options: &OptionSpec) -> Result<&'a [Word], OpaqueReason> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let Some(text) = word.literal() else { return Err(OpaqueReason::Wrapper) };
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, attached) = match long.split_once('=') {
                Some((name, _)) => (name, true),
                None => (long, false),
            };
            if options.long_with_value.contains(&name) {
                at += if attached { 1 } else { 2 };
            } else if options.long.contains(&name) {
                at += 1;
            } else {
                return Err(OpaqueReason::Wrapper);
            }
        } else if text.len() > 1 && text.starts_with('-') {
            at += 1 + short_values(&text[1..], options)?;
        } else {
            break;
        }
    }
    let rest = args.get(at..).unwrap_or(&[]);
    Ok(rest.get(options.operands..).unwrap_or(&[]))
}

/// How many of the next words a cluster of short options takes for its value.
fn short_values(cluster: &str, options: &OptionSpec) -> Result<usize, OpaqueReason> {
    for (at, c) in cluster.char_indices() {
        if options.short_with_value.contains(c) {
            let attached = at + c.len_utf8() < cluster.len();
            return Ok(usize::from(!attached));
        }
        if options.short_attached.contains(c) {
            return Ok(0);
        }
        // `nice -10`, `ionice -c3`: a number is a value by itself.
        if !options.short.contains(c) && !c.is_ascii_digit() {
            return Err(OpaqueReason::Wrapper);
        }
    }
    Ok(0)
}
