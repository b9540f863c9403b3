//! The built-in profiles, for policies that write rules and no profile.

use super::{ParsedFile, parse};
use crate::PolicyFileError;

/// The name of the built-in policy in errors.
pub(super) const NAME: &str = "policies/default.toml";

/// The built-in policy, as it stands in `policies/default.toml`.
pub const TEXT: &str = include_str!("../policies/default.toml");

/// The profiles of the built-in policy, without its rules, where no file has a profile. None where one has, or where there is no file.
pub(super) fn where_none_is_written(
    files: &[ParsedFile<'_>],
) -> Result<Option<ParsedFile<'static>>, PolicyFileError> {
    if files.is_empty() || files.iter().any(|file| !file.file.profile.is_empty()) {
        return Ok(None);
    }
    let mut built_in = parse(NAME, TEXT)?;
    built_in.file.rule.clear();
    built_in.file.connect.clear();
    built_in.file.secrets.clear();
    Ok(Some(built_in))
}
