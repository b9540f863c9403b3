//! A disk without room: records are refused with a typed error, and taken again when there is room.

use std::{fs, path::Path};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use provost_journal::{AppendError, Health, Journal, Record, WriteStep};

use crate::audit::{assert_intact, kill, options};

struct SmallDisk<'a>(&'a Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

fn small_disk(at: &Path) -> Option<SmallDisk<'_>> {
    match mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("size=256k,mode=0700")) {
        Ok(()) => Some(SmallDisk(at)),
        Err(errno) => {
            println!("SKIPPED: a small tmpfs cannot be mounted: {errno}");
            // CI runs this suite as root.
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI can mount");
            None
        }
    }
}

#[test]
fn a_full_disk_refuses_records_and_recovers_by_itself() {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = small_disk(root.path()) else { return };
    let directory = root.path().join("journal");
    let ballast = root.path().join("ballast");
    fs::write(&ballast, vec![0; 64 * 1024]).unwrap();
    let journal = Journal::open(options(&directory)).unwrap();
    let mut written = 0;
    let refusal = loop {
        match journal.append(&kill(written)) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the disk never filled");
    };
    let AppendError::Unwritable(failure) = &refusal else { panic!("{refusal:?}") };
    assert_eq!(failure.step, WriteStep::Append);
    assert_eq!(failure.source.kind(), std::io::ErrorKind::StorageFull);
    assert!(matches!(journal.health(), Health::Unwritable(_)));
    for n in 0..5 {
        assert!(matches!(journal.append(&kill(n)), Err(AppendError::Unwritable(_))));
    }
    // Not even half a record is left behind.
    assert_eq!(crate::audit::report(&directory).torn_line, None);
    fs::remove_file(&ballast).unwrap();
    journal.append(&kill(written)).unwrap();
    assert!(matches!(journal.health(), Health::Writable));
    journal.close();
    let report = assert_intact(&directory);
    let Record::Unwritten(unwritten) = &report.notices[0].record else { panic!("{report:#?}") };
    assert_eq!(unwritten.records, 6);
    drop(disk);
}

#[test]
fn a_journal_opens_on_a_full_disk_and_is_written_when_there_is_room() {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = small_disk(root.path()) else { return };
    let directory = root.path().join("journal");
    crate::audit::written(options(&directory), 3);
    let ballast = root.path().join("ballast");
    // As much as fits.
    let _ = fs::write(&ballast, vec![0; 512 * 1024]);
    let journal = Journal::open(options(&directory)).unwrap();
    let first_refusal = loop {
        match journal.append(&kill(0)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(first_refusal, AppendError::Unwritable(_)));
    fs::remove_file(&ballast).unwrap();
    journal.append(&kill(1)).unwrap();
    journal.close();
    assert_intact(&directory);
    drop(disk);
}
