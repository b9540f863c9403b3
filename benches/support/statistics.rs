//! Medians and percentiles of durations, and the table that shows them.
//!
//! No means: one slow round must not move a figure.

use std::time::Duration;

/// What one candidate took, round by round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    durations: Vec<Duration>,
}

impl Samples {
    /// Adds one round.
    pub(crate) fn add(&mut self, duration: Duration) {
        self.durations.push(duration);
    }

    /// How many rounds.
    pub(crate) fn count(&self) -> usize {
        self.durations.len()
    }

    /// The duration that this share of the rounds did not exceed; zero when there are none.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
    }

    /// The middle one.
    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }
}

/// One candidate's row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// What was measured.
    pub name: String,
    /// Its rounds.
    pub samples: Samples,
}

/// Prints the rows as a markdown table, in microseconds, with each median's ratio to the first row's.
pub(crate) fn print_durations(rows: &[Row]) {
    println!("| what | rounds | median µs | p90 µs | p99 µs | ratio to bare |");
    println!("|---|---:|---:|---:|---:|---:|");
    let bare = rows.first().map_or(Duration::ZERO, |row| row.samples.median());
    for Row { name, samples } in rows {
        let ratio = samples.median().as_secs_f64() / bare.as_secs_f64();
        println!(
            "| {name} | {} | {} | {} | {} | {ratio:.2} |",
            samples.count(),
            samples.median().as_micros(),
            samples.percentile(90).as_micros(),
            samples.percentile(99).as_micros(),
        );
    }
    println!();
}

/// The middle of some numbers; zero when there are none.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Prints whether an aim is met, as one line that the page of all benchmarks makes a row of.
pub(crate) fn print_aim(aim: &str, result: &str, is_met: bool) {
    println!("\nAim: {aim} | {result} | {}", if is_met { "met" } else { "**missed**" });
}
