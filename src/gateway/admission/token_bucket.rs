//! A token bucket: a rate limit that allows bursts.
//!
//! Taking never blocks. Taking more than there is makes a debt, and returns how long the debt lasts.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Tokens that come back with time.
#[derive(Debug)]
pub(super) struct TokenBucket {
    per_s: f64,
    burst: f64,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full one.
    pub(super) fn new(per_s: f64, burst: f64) -> Self {
        Self { per_s, burst, level: Mutex::new(Level { tokens: burst, at: Instant::now() }) }
    }

    /// Takes so many tokens. `Some`: the bucket is in debt for this long.
    pub(super) fn take(&self, tokens: f64) -> Option<Duration> {
        self.take_at(tokens, Instant::now())
    }

    /// Takes one token, where there is one.
    pub(super) fn try_take_one(&self) -> bool {
        let mut level = self.level.lock().expect("no code panics while it holds a bucket");
        self.refill(&mut level, Instant::now());
        let is_there = level.tokens >= 1.0;
        if is_there {
            level.tokens -= 1.0;
        }
        is_there
    }

    fn refill(&self, level: &mut Level, now: Instant) {
        let passed = now.saturating_duration_since(level.at).as_secs_f64();
        level.tokens = (level.tokens + passed * self.per_s).min(self.burst);
        level.at = level.at.max(now);
    }

    fn take_at(&self, tokens: f64, now: Instant) -> Option<Duration> {
        let mut level = self.level.lock().expect("no code panics while it holds a bucket");
        self.refill(&mut level, now);
        // The debt is bounded too, so that what was refused does not count against the user for ever.
        level.tokens = (level.tokens - tokens).max(-self.burst);
        (level.tokens < 0.0).then(|| Duration::from_secs_f64(-level.tokens / self.per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_there_is_a_debt_that_ends_with_time() {
        let bucket = TokenBucket::new(10.0, 20.0);
        let start = Instant::now();
        assert_eq!(bucket.take_at(20.0, start), None);
        assert_eq!(bucket.take_at(5.0, start), Some(Duration::from_millis(500)));
        assert_eq!(bucket.take_at(0.0, start + Duration::from_millis(600)), None);
        assert!(bucket.take_at(1e9, start + Duration::from_secs(60)).is_some_and(|debt| debt.as_secs() <= 2));
    }
}
