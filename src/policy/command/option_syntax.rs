//! How programs read options in general: `policies/data/option-syntax.toml`, compiled in.

use std::{collections::HashSet, sync::LazyLock};

use serde::Deserialize;

/// How a program reads its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSyntax {
    /// What stands behind `--`.
    pub behind_dashes: BehindDashes,
    /// How long options are written.
    pub long_options: LongOptions,
}

/// What stands behind `--`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BehindDashes {
    /// No option.
    Operands,
    /// Nobody knows.
    Unknown,
    /// Options, as before.
    Options,
}

/// How long options are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongOptions {
    /// `--word`; behind one dash stand letters.
    TwoDashes,
    /// `-word`, and mostly `--word`, too.
    OneDash,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SyntaxData {
    ends_options: HashSet<String>,
    ends_nothing: HashSet<String>,
    one_dash: HashSet<String>,
}

static DATA: LazyLock<SyntaxData> = LazyLock::new(|| {
    toml::from_str(include_str!("../policies/data/option-syntax.toml"))
        .expect("the data file is part of the build, and a test reads it")
});

impl OptionSyntax {
    /// That of a program by its names. Of several, each may be what runs.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let behind_dashes = match () {
            () if names.iter().any(|name| DATA.ends_nothing.contains(*name)) => BehindDashes::Options,
            () if !names.is_empty() && names.iter().all(|name| DATA.ends_options.contains(*name)) => {
                BehindDashes::Operands
            }
            () => BehindDashes::Unknown,
        };
        let long_options = match names.iter().any(|name| DATA.one_dash.contains(*name)) {
            true => LongOptions::OneDash,
            false => LongOptions::TwoDashes,
        };
        Self { behind_dashes, long_options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_two_dashes_is_known_by_program() {
        let behind = |names: &[&str]| OptionSyntax::of(names.iter().copied()).behind_dashes;
        assert_eq!(behind(&["git"]), BehindDashes::Operands);
        assert_eq!(behind(&["find"]), BehindDashes::Options);
        assert_eq!(behind(&["mytool"]), BehindDashes::Unknown);
        assert_eq!(behind(&["git", "mytool"]), BehindDashes::Unknown);
        assert_eq!(behind(&["git", "find"]), BehindDashes::Options);
        assert_eq!(behind(&[]), BehindDashes::Unknown);
        assert_eq!(OptionSyntax::of(["go"]).long_options, LongOptions::OneDash);
        assert_eq!(OptionSyntax::of(["git"]).long_options, LongOptions::TwoDashes);
    }

    #[test]
    fn no_program_is_in_both_lists() {
        assert_eq!(DATA.ends_options.intersection(&DATA.ends_nothing).count(), 0);
        // An option of these may take two words, or its value without a dash before it: `jq --arg NAME VALUE`, `tar cf FILE`.
        for program in ["jq", "tar", "zip", "ps", "ar"] {
            assert!(!DATA.ends_options.contains(program), "{program}");
        }
    }
}
