//! The caller's deadline, from the header `grpc-timeout`.

use std::time::Duration;

use tonic::{Status, metadata::MetadataMap};

use super::errors;

/// The transport gives a request up at its deadline, as cancelled. An answer of our own, with the right status, must
/// be there before; its clock starts earlier than ours, on a busy machine by many milliseconds.
const HEAD_START_MIN: Duration = Duration::from_millis(3);
const HEAD_START_MAX: Duration = Duration::from_millis(500);
/// The head start is the whole time divided by this.
const HEAD_START_DIVISOR: u32 = 10;

/// How long an answer may take; `None`: as long as it takes.
pub(super) fn timeout_of(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    parse(text).map(|timeout| timeout.saturating_sub(head_start(timeout)))
}

/// As [`timeout_of`], for what ends itself at that time and says more than that it is over: a little later.
pub(super) fn last_timeout_of(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    parse(text).map(|timeout| timeout.saturating_sub(head_start(timeout) / 3))
}

/// What comes of a step that may take so long. At the end of the time it is dropped, as when the caller goes away.
pub(super) async fn within<T>(limit: Option<Duration>, step: impl Future<Output = T>) -> Result<T, Status> {
    match limit {
        None => Ok(step.await),
        Some(limit) => tokio::time::timeout(limit, step).await.map_err(|_| errors::deadline_passed()),
    }
}

fn head_start(timeout: Duration) -> Duration {
    (timeout / HEAD_START_DIVISOR).clamp(HEAD_START_MIN, HEAD_START_MAX)
}

/// At most eight digits and a unit, as the gRPC protocol over HTTP/2 defines it.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_types::StatusExt;

    use super::*;

    #[test]
    fn every_unit_of_the_protocol_is_known() {
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("15m"), Some(Duration::from_millis(15)));
        assert_eq!(parse("15000u"), Some(Duration::from_millis(15)));
        assert_eq!(parse("15000000n"), Some(Duration::from_millis(15)));
        for bad in ["", "S", "1", "1s", "999999999S", "-1S", "+1S", "1é"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_comes_before_the_deadline_by_a_tenth_of_the_time_within_bounds() {
        let timeout = |text: &'static str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            timeout_of(&metadata)
        };
        assert_eq!(timeout("200m"), Some(Duration::from_millis(180)));
        assert_eq!(timeout("20S"), Some(Duration::from_millis(19_500)));
        assert_eq!(timeout("10m"), Some(Duration::from_millis(7)));
        assert_eq!(timeout("1m"), Some(Duration::ZERO));
        assert_eq!(timeout("soon"), None);
        assert_eq!(timeout_of(&MetadataMap::new()), None);
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", "300m".parse().unwrap());
        assert_eq!(timeout_of(&metadata), Some(Duration::from_millis(270)));
        assert_eq!(last_timeout_of(&metadata), Some(Duration::from_millis(290)));
    }

    #[tokio::test]
    async fn a_step_that_takes_too_long_is_answered_with_the_reason() {
        let late = within(Some(Duration::from_millis(1)), std::future::pending::<()>()).await.unwrap_err();
        let reason = late.get_details_error_info().map(|info| info.reason);
        assert_eq!((late.code(), reason.as_deref()), (Code::DeadlineExceeded, Some("DEADLINE")));
        assert_eq!(within(Some(Duration::ZERO), std::future::ready(1)).await.unwrap(), 1);
        assert_eq!(within(None, std::future::ready(2)).await.unwrap(), 2);
    }
}
