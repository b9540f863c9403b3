//! What an append costs by each rule of syncing: one at a time, two records together as a spawn has them, and with
//! many threads; and how fast the journal is verified.
//!
//! Run by `cargo bench --bench journal`, with `--records N` for another number. The directory is below `target`, so that
//! it is on the disk that is built on.

use std::{
    num::NonZeroU32,
    path::Path,
    task::{Context, Poll, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use provost_journal::{
    AppendResult, Journal, JournalDirectory, JournalOptions, KillRequested, Record, Retention, SyncRule,
    verify,
};

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use support::{machine, statistics::Samples};

const THREADS: u64 = 64;

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## The journal\n");
    machine::print_facts();
    let records = support::number("records", 5_000) as u64;
    println!(
        "| sync | one record, median µs | p99 µs | two together, median µs | p99 µs | {THREADS} threads, records/s | verified, records/s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let within = Duration::from_millis(50);
    let rules = [("batch", SyncRule::Batch { within }), ("always", SyncRule::Always), ("off", SyncRule::Off)];
    for (name, sync) in rules {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        let directory = root.path().join("journal");
        let journal = Journal::open(options(&directory, sync)).expect("a journal can be opened");
        let single = measured(records, |n| {
            journal.append(&record(n)).expect("the disk takes it");
        });
        let pair = measured(records, |n| {
            wait(journal.append_all_async(&[record(n), record(n)])).expect("the disk takes it");
        });
        let each = (records / 10).max(1);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let journal = journal.clone();
                scope.spawn(move || (0..each).for_each(|n| drop(journal.append(&record(thread * n)))));
            }
        });
        let rate = (THREADS * each) as f64 / begun.elapsed().as_secs_f64();
        journal.close();
        let begun = Instant::now();
        let report = verify(&JournalDirectory::new(&directory), None).expect("the journal can be read");
        assert!(report.faults.is_empty(), "{report:?}");
        let verified = report.records as f64 / begun.elapsed().as_secs_f64();
        println!(
            "| {name} | {} | {} | {} | {} | {rate:.0} | {verified:.0} |",
            single.median().as_micros(),
            single.percentile(99).as_micros(),
            pair.median().as_micros(),
            pair.percentile(99).as_micros(),
        );
    }
}

fn measured(rounds: u64, mut work: impl FnMut(u64)) -> Samples {
    let mut samples = Samples::default();
    for n in 0..rounds {
        let begun = Instant::now();
        work(n);
        samples.add(begun.elapsed());
    }
    samples
}

fn record(n: u64) -> Record {
    Record::KillRequested(KillRequested {
        terminal: format!("term_{n:026}"),
        session: "sess_00000000000000000000000001".to_owned(),
        principal: "uid:1000".to_owned(),
        by: Some("uid:1000".to_owned()),
        cause: "kill".to_owned(),
        grace_ms: Some(n),
    })
}

fn options(directory: &Path, sync: SyncRule) -> JournalOptions {
    let retention = Retention { files: None, age: None, files_at_least: NonZeroU32::MIN };
    JournalOptions { sync, retention, ..JournalOptions::new(directory) }
}

/// Waits for an append on this thread, as a task would.
fn wait(append: impl Future<Output = AppendResult>) -> AppendResult {
    struct Unpark(Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut append = std::pin::pin!(append);
    loop {
        match append.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}
