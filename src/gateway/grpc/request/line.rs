//! Parses the request for a line in a kept shell.

use std::time::Duration;

use super::fields::{FieldError, field_error, time_limit, unknown_value};
use crate::{
    kept_shell::checked_line,
    proto::v1::{OnAsk as OnAskWord, RunLineRequest, WhenBusy as WhenBusyWord},
    terminal::{NewLine, OnAsk, WhenBusy},
};

/// What the idle fallback waits for when the caller does not say.
const DEFAULT_QUIET_LIMIT: Duration = Duration::from_secs(5);
/// The shortest that a caller may ask for.
const MIN_QUIET_LIMIT: Duration = Duration::from_millis(100);
/// The longest.
const MAX_QUIET_LIMIT: Duration = Duration::from_secs(3_600);

/// A line to be run. `caller_limit` is how long the caller waits.
pub fn new_line(request: RunLineRequest, caller_limit: Option<Duration>) -> Result<NewLine, FieldError> {
    checked_line(&request.line).map_err(|error| field_error("line", error.to_string()))?;
    let when_busy = match WhenBusyWord::try_from(request.when_busy) {
        Ok(WhenBusyWord::Unspecified | WhenBusyWord::Refuse) => WhenBusy::Refuse,
        Ok(WhenBusyWord::Queue) => WhenBusy::Queue,
        Err(_) => return Err(unknown_value("when_busy", request.when_busy)),
    };
    let on_ask = match OnAskWord::try_from(request.on_ask) {
        Ok(OnAskWord::Unspecified | OnAskWord::Wait) => OnAsk::Wait,
        Ok(OnAskWord::Refuse) => OnAsk::Refuse,
        Err(_) => return Err(unknown_value("on_ask", request.on_ask)),
    };
    let quiet_limit = time_limit("quiet_limit", request.quiet_limit)?.unwrap_or(DEFAULT_QUIET_LIMIT);
    if !(MIN_QUIET_LIMIT..=MAX_QUIET_LIMIT).contains(&quiet_limit) {
        return Err(field_error("quiet_limit", "must be 100 ms to 1 hour"));
    }
    Ok(NewLine { line: request.line, when_busy, on_ask, quiet_limit, time_limit: caller_limit })
}
