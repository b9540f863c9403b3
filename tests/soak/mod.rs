//! Many commands: one after another, at once, and short ones without end. Nothing is lost, nothing is left.
//!
//! Every wait in them has its deadline, so that a machine that is too slow fails instead of passing with less.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use crate::support::{Gateway, Session, api::ExitCause, code, in_session, within};

/// Creates, waits and releases a number of commands from `width` tasks at once; gives how many came back.
async fn storm(session: &Session, count: usize, width: usize) -> usize {
    let (left, done) = (Arc::new(AtomicUsize::new(count)), Arc::new(AtomicUsize::new(0)));
    let take = |left: &AtomicUsize| {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    };
    let tasks: Vec<_> = (0..width)
        .map(|_| {
            let (command, left, done) = (session.command("/bin/true"), left.clone(), done.clone());
            tokio::spawn(async move {
                while take(&left) {
                    let terminal = command.clone().create().await;
                    let outcome = terminal.wait().await;
                    assert_eq!((code(&outcome), outcome.cause()), (0, ExitCause::Exited));
                    terminal.release().await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no command hangs and no exit is lost");
    }
    done.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn a_thousand_commands_one_after_another_leave_nothing() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        storm(session, 100, 1).await;
        let (before, resident) = (gateway.footprint(), gateway.process().resident_bytes());
        let begun = Instant::now();
        for i in 0..1000_u32 {
            let done = session.sh(&format!("echo {i}; exit {}", i % 256)).finish().await;
            assert_eq!((done.text(), code(&done.outcome)), (format!("{i}\n"), i % 256));
        }
        println!("1,000 one after another: {:?}", begun.elapsed());
        gateway.comes_back_to(&before).await;
        let now = gateway.process().resident_bytes();
        println!("resident: {} KiB before, {} KiB after", resident >> 10, now >> 10);
        assert!(now < resident + (4 << 20), "the gateway grew from {resident} to {now} bytes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_commands_at_once_are_all_there_and_then_all_gone() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        storm(session, 100, 4).await;
        let before = gateway.footprint();
        let begun = Instant::now();
        let marker = session.marker();
        let starts: Vec<_> = (0..200)
            .map(|i| {
                let command = session
                    .sh(&format!("echo {i}; read go; exit {}", i % 256))
                    .args([marker.as_str()])
                    .stdin();
                tokio::spawn(command.try_create())
            })
            .collect();
        let mut all = Vec::new();
        for start in starts {
            all.push(within("a start", start).await.expect("the task ends").expect("it starts"));
        }
        crate::support::eventually("two hundred at once", || {
            (crate::support::Process::all_marked(&marker).len() == 200).then_some(())
        })
        .await;
        for (i, terminal) in all.iter().enumerate() {
            terminal.write(b"\n", crate::support::EndOfInput::After).await.expect("it is open");
            assert_eq!(code(&terminal.wait().await), i as u32 % 256);
            assert_eq!(terminal.output().await.data, format!("{i}\n").as_bytes());
            terminal.release().await;
        }
        println!("200 at once: {:?}", begun.elapsed());
        gateway.comes_back_to(&before).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn of_two_thousand_short_commands_none_hangs_and_no_exit_is_lost() {
    none_hangs_and_none_is_lost(2_000).await;
}

async fn none_hangs_and_none_is_lost(count: usize) {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        storm(session, 200, 8).await;
        let (before, resident) = (gateway.footprint(), gateway.process().resident_bytes());
        let begun = Instant::now();
        let mut done = 0;
        while done < count {
            done += storm(session, count.min(1000), 8).await;
        }
        println!("{done} short commands, 8 at a time: {:?}", begun.elapsed());
        gateway.comes_back_to(&before).await;
        let now = gateway.process().resident_bytes();
        println!("resident: {} KiB before, {} KiB after", resident >> 10, now >> 10);
        assert!(now < resident + (4 << 20), "the gateway grew from {resident} to {now} bytes");
    })
    .await;
}

/// Run by `.ci/long` alone.
mod nightly {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: .ci/long soak runs it"]
    async fn of_twenty_thousand_short_commands_none_hangs_and_no_exit_is_lost() {
        none_hangs_and_none_is_lost(20_000).await;
    }
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_five_hundred_short_commands_none_hangs_and_no_exit_is_lost() {
        none_hangs_and_none_is_lost(500).await;
    }
}
