//! When a record was made: wall time for people, time since boot for order.
//!
//! Wall time may step either way and nothing breaks: order is the sequence's, spans are taken from the boot clock.

use std::{
    fs, io,
    time::{SystemTime, UNIX_EPOCH},
};

use nix::time::{ClockId, clock_gettime};

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970 in UTC; until the year 2554.
    pub wall_ns: u64,
    /// CLOCK_BOOTTIME of clock_gettime(2): counts suspension, never steps.
    pub boot_ns: u64,
}

impl Moment {
    /// As `2026-11-21T10:26:27.123456789Z`.
    pub fn rfc3339(&self) -> String {
        rfc3339(self.wall_ns)
    }
}

/// Where moments come from.
pub trait Clock: Send {
    /// The present.
    fn now(&mut self) -> Moment;
}

/// The host's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&mut self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Cannot fail for a clock that every Linux since 2.6.39 has; then the record still has its wall time.
        let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
            seconds * NS_PER_SECOND + u64::try_from(time.tv_nsec()).unwrap_or(0)
        });
        Moment { wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX), boot_ns: boot }
    }
}

/// The kernel's name for this boot.
pub(crate) fn boot_id() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim_end().to_owned())
}

/// A random UUID, by the kernel.
pub(crate) fn random_uuid() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(id.trim_end().to_owned())
}

const NS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// Nanoseconds since 1970 as RFC 3339 in UTC, always 30 characters.
pub fn rfc3339(wall_ns: u64) -> String {
    let seconds = wall_ns / NS_PER_SECOND;
    let (year, month, day) = civil(seconds / SECONDS_PER_DAY);
    let of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let nanos = wall_ns % NS_PER_SECOND;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
///
/// Counts in eras of 400 years that begin on 1 March, so that the leap day is the last day of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Reads `2026-11-21`, `2026-11-21T10:26:27Z` or with a fraction, as nanoseconds since 1970. UTC only.
pub fn parse_utc(text: &str) -> Option<u64> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_fraction = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|c| c.is_ascii_digit());
    if !is_fraction || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
    let days = days_of(year, month, day)?;
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(NS_PER_SECOND)?.checked_add(nanos)
}

/// The day since 1970, where there is such a day.
fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let of_march = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (of_march / 400, of_march % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468;
    (civil(days) == (year, month, day)).then_some(days)
}

fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments_are_written_right() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_795_256_787, "2026-11-21T10:26:27.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * NS_PER_SECOND), text);
        }
        assert_eq!(rfc3339(u64::MAX).len(), 30);
    }

    #[test]
    fn what_is_no_moment_is_not_read() {
        for text in [
            "",
            "yesterday",
            "2026-02-30",
            "2026-13-01",
            "2026-1-1",
            "2026-11-21T10:26:27",
            "1969-12-31",
            "2026-11-21T24:00:00Z",
            "2026-11-21T10:26:27.Z",
            "2026-11-21T10:26:27.0000000000Z",
            "2026-11-21T+1:00:00Z",
        ] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
        assert_eq!(parse_utc("1970-01-02"), Some(86_400 * NS_PER_SECOND));
        assert_eq!(parse_utc("1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
    }

    proptest! {
        #[test]
        fn reading_gives_back_what_was_written(wall_ns in any::<u64>()) {
            prop_assert_eq!(parse_utc(&rfc3339(wall_ns)), Some(wall_ns));
        }

        #[test]
        fn text_order_is_time_order(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(rfc3339(a).cmp(&rfc3339(b)), a.cmp(&b));
        }
    }
}
