//! A small disk for a journal, which can be filled and emptied.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{Gateway, Options, skip, within};

/// A file system in memory, of 512 KiB.
pub(crate) struct SmallDisk {
    root: TempDir,
}

impl SmallDisk {
    /// Absent, and said, where this process may not mount.
    pub(crate) fn mount() -> Option<Self> {
        let root = tempfile::tempdir().expect("a temporary directory");
        match mount(Some("tmpfs"), root.path(), Some("tmpfs"), MsFlags::empty(), Some("size=512k,mode=0700"))
        {
            Ok(()) => Some(Self { root }),
            Err(errno) => {
                skip(&format!("a small tmpfs cannot be mounted: {errno}"));
                None
            }
        }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.root.path().join("journal")
    }

    /// Leaves no byte free.
    pub(crate) fn fill(&self) {
        use std::io::Write;
        let mut ballast = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.root.path().join("ballast"))
            .expect("a file can be made");
        for size in [4096, 1] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Makes room.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.root.path().join("ballast")).expect("the ballast is there");
    }

    /// A gateway whose journal is here.
    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        journaling_in(&self.directory(), "")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.root.path(), MntFlags::MNT_DETACH);
    }
}

/// A gateway whose journal is in this directory, with more of its section.
pub(crate) fn journaling_in(directory: &Path, more: &str) -> Arc<Gateway> {
    let config = Some(format!("[journal]\ndirectory = {:?}\n{more}\n", directory.display().to_string()));
    Gateway::start_with(Options { config, ..Options::default() })
}

/// What the health service says of a service.
pub(crate) async fn health(gateway: &Gateway, service: &str) -> ServingStatus {
    let mut client = HealthClient::new(gateway.caller().await.channel());
    let request = HealthCheckRequest { service: service.to_owned() };
    within("the health", client.check(request)).await.expect("health is told").into_inner().status()
}

/// Waits until the health service says so of the terminals and of the sessions.
pub(crate) async fn becomes(gateway: &Gateway, wanted: ServingStatus) {
    for service in ["provost.v1.Terminals", "provost.v1.Sessions"] {
        within("the health", async {
            while health(gateway, service).await != wanted {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}
