//! Fields that several requests have, each parsed or named as invalid.

use std::{collections::BTreeMap, collections::HashMap, time::Duration};

use crate::{
    byte_text,
    policy::{
        AbsPath, PtySize, PtySizeError,
        environment::{self, EnvEntry},
        profile,
    },
    proto::v1::{EnvVar, Network},
};

/// Labels of one session or terminal.
const LABELS_MAX: usize = 64;
/// Bytes of a label's name, or of a request id.
pub(super) const NAME_MAX_BYTES: usize = 128;
/// Bytes of a label's value.
const LABEL_VALUE_MAX_BYTES: usize = 1_024;
/// Bytes of a command with its arguments and its variables, as the kernel counts them: by default it takes no more (execve(2)).
pub(super) const ARGUMENTS_MAX_BYTES: usize = 2 << 20;
/// What each of them counts for in addition to its text: its NUL and its pointer.
pub(super) const ARGUMENT_OVERHEAD_BYTES: usize = 9;
/// Variables of a session, or of a command.
const VARIABLES_MAX: usize = 4_096;
/// The longest grace: nobody may keep a release waiting for longer.
const GRACE_MAX: Duration = Duration::from_secs(600);

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(crate) struct FieldError {
    /// Its name in the request, with its place: `env[2].name`.
    pub field: String,
    /// The problem.
    pub problem: String,
}

pub(super) fn field_error(field: impl Into<String>, problem: impl ToString) -> FieldError {
    FieldError { field: field.into(), problem: problem.to_string() }
}

/// A network that is asked for; `None`: no particular one.
pub(super) fn network(field: &str, value: i32) -> Result<Option<profile::Network>, FieldError> {
    match Network::try_from(value) {
        Ok(Network::Unspecified) => Ok(None),
        Ok(Network::None) => Ok(Some(profile::Network::None)),
        Ok(Network::Host) => Ok(Some(profile::Network::Host)),
        Ok(Network::Proxy) => Ok(Some(profile::Network::Proxy)),
        Err(_) => Err(unknown_value(field, value)),
    }
}

/// The size of a pseudo-terminal. `within` is the place of its fields.
pub(crate) fn pty_size(within: &str, columns: u32, rows: u32) -> Result<PtySize, FieldError> {
    PtySize::new(columns, rows).map_err(|error| {
        let field = match error {
            PtySizeError::Columns => "columns",
            PtySizeError::Rows | PtySizeError::Cells => "rows",
        };
        field_error(format!("{within}{field}"), error)
    })
}

/// A text that is given as a string or as bytes, in the form of [`byte_text`].
pub(super) fn text(field: &str, string: String, bytes: &[u8]) -> Result<String, FieldError> {
    match (string.is_empty(), bytes.is_empty()) {
        (_, true) => Ok(byte_text::from_string(string)),
        (true, false) => Ok(byte_text::from_bytes(bytes)),
        (false, false) => Err(given_twice(field)),
    }
}

/// As [`text`], of a list.
pub(super) fn texts(
    field: &str,
    strings: Vec<String>,
    bytes: &[prost::bytes::Bytes],
) -> Result<Vec<String>, FieldError> {
    match (strings.is_empty(), bytes.is_empty()) {
        (_, true) => Ok(strings.into_iter().map(byte_text::from_string).collect()),
        (true, false) => Ok(bytes.iter().map(|one| byte_text::from_bytes(one)).collect()),
        (false, false) => Err(given_twice(field)),
    }
}

fn given_twice(field: &str) -> FieldError {
    field_error(format!("{field}_bytes"), format!("must be empty if {field} is set"))
}

pub(super) fn directory(field: &str, text: &str) -> Result<Option<AbsPath>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    AbsPath::parse(text).map(Some).map_err(|error| field_error(field, error))
}

pub(super) fn env(field: &str, variables: Vec<EnvVar>) -> Result<Vec<EnvEntry>, FieldError> {
    let bytes: usize = variables.iter().map(variable_bytes).sum();
    if variables.len() > VARIABLES_MAX || bytes > ARGUMENTS_MAX_BYTES {
        let problem = format!("must be at most {VARIABLES_MAX}, with {ARGUMENTS_MAX_BYTES} bytes");
        return Err(field_error(field, problem));
    }
    let pair = |(index, one): (usize, EnvVar)| {
        let at = |part: &str| format!("{field}[{index}].{part}");
        Ok((text(&at("name"), one.name, &one.name_bytes)?, text(&at("value"), one.value, &one.value_bytes)?))
    };
    let pairs = variables.into_iter().enumerate().map(pair).collect::<Result<Vec<_>, _>>()?;
    environment::parse_list(pairs).map_err(|(index, error)| {
        let part = match error {
            environment::EnvVarError::EmptyName
            | environment::EnvVarError::EqualsInName
            | environment::EnvVarError::NulInName
            | environment::EnvVarError::Duplicate => "name",
            environment::EnvVarError::NulInValue | environment::EnvVarError::TooLong => "value",
        };
        field_error(format!("{field}[{index}].{part}"), error)
    })
}

/// What a variable counts for.
pub(super) fn variable_bytes(one: &EnvVar) -> usize {
    let text = one.name.len() + one.name_bytes.len() + one.value.len() + one.value_bytes.len();
    text + 1 + ARGUMENT_OVERHEAD_BYTES
}

pub(super) fn labels(
    field: &str,
    labels: HashMap<String, String>,
) -> Result<BTreeMap<String, String>, FieldError> {
    if labels.len() > LABELS_MAX {
        return Err(field_error(field, format!("must be at most {LABELS_MAX}")));
    }
    for (name, value) in &labels {
        if name.is_empty() || name.len() > NAME_MAX_BYTES {
            return Err(field_error(field, format!("a name must have 1 to {NAME_MAX_BYTES} bytes")));
        }
        if value.len() > LABEL_VALUE_MAX_BYTES {
            return Err(field_error(
                format!("{field}[{name}]"),
                format!("must have at most {LABEL_VALUE_MAX_BYTES} bytes"),
            ));
        }
    }
    Ok(labels.into_iter().collect())
}

pub(super) fn request_id(field: &str, id: String) -> Result<Option<String>, FieldError> {
    if id.len() > NAME_MAX_BYTES {
        return Err(field_error(field, format!("must have at most {NAME_MAX_BYTES} bytes")));
    }
    Ok(Some(id).filter(|id| !id.is_empty()))
}

/// A limit in time: more than nothing.
pub(super) fn time_limit(
    field: &str,
    time: Option<prost_types::Duration>,
) -> Result<Option<Duration>, FieldError> {
    match duration(field, time)? {
        Some(time) if time.is_zero() => Err(field_error(field, "must be more than 0")),
        time => Ok(time),
    }
}

/// A grace: may be nothing.
pub(crate) fn grace(
    field: &str,
    time: Option<prost_types::Duration>,
) -> Result<Option<Duration>, FieldError> {
    match duration(field, time)? {
        Some(time) if time > GRACE_MAX => {
            Err(field_error(field, format!("must be at most {} s", GRACE_MAX.as_secs())))
        }
        time => Ok(time),
    }
}

fn duration(field: &str, time: Option<prost_types::Duration>) -> Result<Option<Duration>, FieldError> {
    let Some(time) = time else { return Ok(None) };
    match (u64::try_from(time.seconds), u32::try_from(time.nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Some(Duration::new(seconds, nanos))),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => {
            Err(field_error(field, "must not be negative, with nanos from 0 to 999999999"))
        }
    }
}

pub(super) fn unknown_value(field: impl Into<String>, value: i32) -> FieldError {
    field_error(field, format!("{value} is not a known value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_none_are_refused() {
        let time = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        assert_eq!(time_limit("f", None), Ok(None));
        assert_eq!(time_limit("f", time(1, 5)), Ok(Some(Duration::new(1, 5))));
        assert!(time_limit("f", time(0, 0)).is_err());
        assert!(time_limit("f", time(-1, 0)).is_err());
        assert!(time_limit("f", time(1, -5)).is_err());
        assert!(time_limit("f", time(1, 1_000_000_000)).is_err());
        assert_eq!(grace("f", time(0, 0)), Ok(Some(Duration::ZERO)));
        assert!(grace("f", time(601, 0)).is_err());
        assert!(time_limit("f", time(i64::MAX, 0)).is_ok());
    }
}
