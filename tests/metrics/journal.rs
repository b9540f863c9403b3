//! A journal that cannot be written is seen, and that it can be again.

use crate::{
    metrics::{
        disk::{SmallDisk, journaling_in},
        scrape::{address, scrape, until},
    },
    support::{in_session, within},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_disk_is_seen_and_that_it_has_room_again() {
    let Some(disk) = SmallDisk::mount() else { return };
    let gateway = journaling_in(&disk.directory(), "[metrics]\nlisten = \"127.0.0.1:0\"");
    let at = address(&gateway).await;
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        let well = scrape(at).await;
        assert_eq!((well.of("provost_ready"), well.of("provost_journal_writable")), (1.0, 1.0));
        assert_eq!(well.of("provost_journal_records_unwritten_total"), 0.0);
        disk.fill();
        // The last page of the file has room for some: for a command's records, or for the one that says what was refused.
        let mut refusals = 0.0;
        let full = within("a journal that is full", async {
            loop {
                match session.command("true").try_create().await {
                    Ok(terminal) => drop((terminal.wait().await, terminal.release().await)),
                    Err(refused) => {
                        assert_eq!(refused.reason, "JOURNAL_UNWRITABLE");
                        refusals += 1.0;
                    }
                }
                let metrics = scrape(at).await;
                if metrics.of("provost_ready") == 0.0 {
                    break metrics;
                }
            }
        })
        .await;
        assert_eq!(full.of("provost_terminals_refused_total{reason=\"journal_unwritable\"}"), refusals);
        assert!(full.of("provost_journal_records_unwritten_total") >= 1.0);
        assert!(full.of("provost_journal_write_failures_total") >= 1.0);
        disk.empty();
        until(at, "the journal's recovery", |metrics| metrics.of("provost_ready") == 1.0).await;
        session.command("true").finish().await;
    })
    .await;
}
