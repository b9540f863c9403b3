//! The file mode creation mask of a command, as umask(2) takes it.
//!
//! In policy files it is text in octal digits, as shells write it: a bare number would be read as a decimal one.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error};

/// A file mode creation mask: the permissions that new files do not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Umask(#[schemars(with = "String")] u32);

/// A number that is no mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be at most 511 (0o777)")]
pub struct UmaskError;

impl Umask {
    const MAX: u32 = 0o777;

    /// A mask.
    ///
    /// # Errors
    /// The number has more than permissions.
    pub fn new(bits: u32) -> Result<Self, UmaskError> {
        if bits > Self::MAX { Err(UmaskError) } else { Ok(Self(bits)) }
    }

    /// The number that umask(2) takes.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// What a command has whose caller says nothing.
impl Default for Umask {
    fn default() -> Self {
        Self(0o022)
    }
}

impl<'de> Deserialize<'de> for Umask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_octal =
            (1..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let bits = if is_octal { u32::from_str_radix(&text, 8).ok() } else { None };
        bits.and_then(|bits| Self::new(bits).ok())
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no umask in octal digits, as in \"0027\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_octal_text_and_has_nothing_but_permissions() {
        let read = |json: &str| serde_json::from_str::<Umask>(json).map(Umask::bits).ok();
        assert_eq!(read("\"077\""), Some(0o77));
        assert_eq!(read("\"0027\""), Some(0o27));
        assert_eq!(read("\"0\""), Some(0));
        for refused in ["\"\"", "\"1000\"", "\"08\"", "\"+22\"", "\"00022\"", "\"u=rwx\"", "22"] {
            assert_eq!(read(refused), None, "{refused}");
        }
        assert_eq!(Umask::new(0o777).map(Umask::bits), Ok(0o777));
        assert_eq!(Umask::new(0o1000), Err(UmaskError));
        assert_eq!(Umask::default().bits(), 0o22);
    }
}
