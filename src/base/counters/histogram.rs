//! A histogram of durations with fixed buckets.

use std::time::Duration;

use super::Counter;

/// The bounds, in microseconds; what took longer than the last is counted behind it. The same for everything, so that
/// times can be compared.
pub const BUCKETS_US: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// Times that were taken. No lock: who reads may see a time in one of its places and not yet in the other.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BUCKETS_US.len() + 1],
    nanoseconds: Counter,
}

/// The times at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// How many took at most the bound of this place and more than that of the one before; the last, more than all.
    pub counts: [u64; BUCKETS_US.len() + 1],
    /// All together.
    pub sum: Duration,
}

impl Histogram {
    /// Something took so long.
    pub fn observe(&self, time: Duration) {
        let bucket = BUCKETS_US.partition_point(|bound| Duration::from_micros(*bound) < time);
        self.counts[bucket].inc();
        self.nanoseconds.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All of them by now.
    pub fn read(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: std::array::from_fn(|bucket| self.counts[bucket].read()),
            sum: Duration::from_nanos(self.nanoseconds.read()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_at_the_first_bound_that_it_does_not_exceed() {
        let times = Histogram::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            times.observe(Duration::from_micros(micros));
        }
        let seen = times.read();
        assert_eq!((seen.counts[0], seen.counts[1], seen.counts[14], seen.counts[15]), (2, 1, 1, 1));
        assert_eq!(seen.counts.iter().sum::<u64>(), 5);
        assert_eq!(seen.sum, Duration::from_micros(20_000_202));
    }
}
