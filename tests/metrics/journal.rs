//! A journal that cannot be written is seen, and that it can be again.

use crate::{
    disk::{SmallDisk, journaling_in},
    scrape::{address, scrape, until},
    support::in_session,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_disk_is_seen_and_that_it_has_room_again() {
    let Some(disk) = SmallDisk::mount() else { return };
    let gateway = journaling_in(&disk.folder(), "[metrics]\nlisten = \"127.0.0.1:0\"");
    let at = address(&gateway).await;
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        let well = scrape(at).await;
        assert_eq!((well.of("provost_ready"), well.of("provost_journal_writable")), (1.0, 1.0));
        assert_eq!(well.of("provost_journal_records_unwritten_total"), 0.0);
        disk.fill();
        // The last page of the file has room for some.
        let mut started = 0;
        let refused = loop {
            match session.command("true").try_create().await {
                Err(refused) => break refused,
                Ok(terminal) => drop((terminal.wait().await, terminal.release().await)),
            }
            started += 1;
            assert!(started < 20, "the disk is full, and commands are started");
        };
        assert_eq!(refused.reason, "JOURNAL_UNWRITABLE");
        let full = scrape(at).await;
        assert_eq!((full.of("provost_ready"), full.of("provost_journal_writable")), (0.0, 0.0));
        assert!(full.of("provost_journal_records_unwritten_total") >= 2.0);
        assert!(full.of("provost_journal_write_failures_total") >= 1.0);
        assert_eq!(full.of("provost_terminals_refused_total{reason=\"journal_unwritable\"}"), 1.0);
        disk.empty();
        until(at, "the journal's recovery", |metrics| metrics.of("provost_ready") == 1.0).await;
        session.command("true").finish().await;
    })
    .await;
}
