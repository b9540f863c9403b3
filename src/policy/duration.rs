//! Durations as policy files and command lines write them: a whole number and a unit, "500ms", "5s", "10m", "2h".
//!
//! Refuses a bare number, a fraction and an overflow: a time without its unit is a mistake waiting.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No unit, or one that is not known.
    #[error("{0:?} needs one of the units ms, s, m, h, as in \"5s\"")]
    Unit(String),
    /// What stands before the unit is no whole number.
    #[error("{0:?} is not a whole number before its unit")]
    Number(String),
    /// More than 64 bits of milliseconds.
    #[error("{0:?} is too long a time")]
    Overflow(String),
}

/// Reads a duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let split =
        text.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| DurationError::Unit(text.to_owned()))?;
    let (digits, unit) = text.split_at(split);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(DurationError::Unit(text.to_owned())),
    };
    if digits.is_empty() {
        return Err(DurationError::Number(text.to_owned()));
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit_ms))
        .map(Duration::from_millis)
        .ok_or_else(|| DurationError::Overflow(text.to_owned()))
}

/// For `#[serde(with = ...)]` on a [`Duration`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(D::Error::custom)
}

/// For `#[serde(with = ...)]` on an [`Option`] of a [`Duration`].
pub mod optional {
    use serde::{Serialize, Serializer};

    use super::{Deserialize, Deserializer, Duration, Error, parse};

    /// Writes what [`deserialize`] reads.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(|time| format!("{}ms", time.as_millis())).serialize(serializer)
    }

    /// As [`super::deserialize`], for a value that may be absent.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map(Some).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_unit_is_a_duration() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        for text in ["", "5", "s", "5 s", "-5s", "1.5s", "5d", "5sec"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(matches!(parse("99999999999999999999s"), Err(DurationError::Overflow(_))));
    }
}
