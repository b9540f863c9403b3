//! Prints what an append costs by each rule of syncing. Run with `--release -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use provost::journal::{Journal, SyncRule};

use crate::{kill, options, report};

#[test]
#[ignore = "a measurement, not a promise"]
fn an_append_is_measured_by_each_rule() {
    let within = Duration::from_millis(50);
    let rules = [("batch", SyncRule::Batch { within }), ("always", SyncRule::Always), ("off", SyncRule::Off)];
    for (name, sync) in rules {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let folder = root.path().join("journal");
        let mut options = options(&folder);
        options.sync = sync;
        let journal = Journal::open(options).unwrap();
        let mut spans: Vec<Duration> = (0..5000)
            .map(|n| {
                let start = Instant::now();
                journal.append(&kill(n)).unwrap();
                start.elapsed()
            })
            .collect();
        spans.sort();
        let start = Instant::now();
        let threads: Vec<_> = (0..64)
            .map(|thread| {
                let journal = journal.clone();
                std::thread::spawn(move || (0..500).for_each(|n| drop(journal.append(&kill(thread * n)))))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let rate = 32_000.0 / start.elapsed().as_secs_f64();
        journal.close();
        let start = Instant::now();
        let records = report(&folder).records;
        let verified = records as f64 / start.elapsed().as_secs_f64();
        println!(
            "{name:>6}: one at a time p50 {:?} p99 {:?}; 64 threads {rate:.0} records/s; verify {verified:.0} records/s",
            spans[spans.len() / 2],
            spans[spans.len() * 99 / 100],
        );
    }
}
