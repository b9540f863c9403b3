//! File systems that are mounted below a workspace: what the caller could work in outside is worked in, and protected as the directory
//! around it is; what belongs to another user, to the system or to the kernel is not.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use crate::{
    confinement::covered::{USER, gateways, outside},
    support::{Gateway, Mounted, Session, code, is_root, skip},
};

/// Whose what is mounted is that nobody works in.
const OTHER: u32 = 58_998;

/// A workspace of the caller's with what is mounted in it: `disk` and `memory` are theirs, and so is the directory that is at `bound`.
/// Mounted before a gateway starts, which may have mounts of its own.
struct Volumes {
    caller: u32,
    mounted: Vec<Mounted>,
    place: TempDir,
}

impl Volumes {
    fn new(caller: u32) -> Self {
        let place = tempfile::Builder::new().prefix("provost-test-").tempdir().expect("a directory");
        let made = ["", "workspace", "elsewhere"].map(|name| place.path().join(name));
        for (directory, owner) in made.iter().zip([0, caller, caller]) {
            fs::create_dir_all(directory).expect("a directory can be made");
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
            chown(directory, Some(owner), Some(owner)).expect("root can give it away");
        }
        let mut volumes = Self { caller, mounted: Vec::new(), place };
        let owner = format!("uid={caller},gid={caller}");
        volumes.mount("disk", &["-t", "tmpfs", "-o", &format!("mode=755,{owner}"), "none"]);
        volumes.mount("memory", &["-t", "tmpfs", "-o", &owner, "none"]);
        volumes.mount("bound", &["--bind", &made[2].display().to_string()]);
        for name in OWN {
            fs::write(volumes.at(name).join("host"), "host\n").expect("root can write");
        }
        volumes
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join("workspace").join(name)
    }

    fn mount(&mut self, name: &str, arguments: &[&str]) {
        let at = self.at(name);
        fs::create_dir(&at).expect("a directory can be made");
        self.mounted.push(Mounted::try_new(arguments, &at).expect("root can mount"));
    }

    /// A session in it, by this gateway.
    async fn open(&self, gateway: &Arc<Gateway>) -> Session {
        let (caller, owner) = match self.caller {
            0 => (gateway.caller().await, None),
            _ => (gateway.caller_in_groups(USER, &[USER]).await, Some(USER)),
        };
        let root = self.at("").display().to_string();
        Session::open_with(gateway, caller, owner, |new| new.roots = vec![root]).await
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        // Before the directory goes.
        self.mounted.clear();
    }
}

const OWN: [&str; 3] = ["disk", "memory", "bound"];

fn work_in(names: &[&str]) -> String {
    format!(
        "for d in {}; do cat $d/host && echo in > $d/made && mkdir $d/deep && mv $d/made $d/deep/; done",
        names.join(" ")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_caller_has_mounted_in_a_workspace_is_worked_in_and_protected() {
    if !is_root() {
        return skip("only root can mount");
    }
    let all = [0, USER].map(Volumes::new);
    for (user, gateway) in gateways() {
        for volumes in all.iter().filter(|volumes| user == 0 || volumes.caller == user) {
            let (caller, at) = (volumes.caller, |name: &str| volumes.at(name));
            let cell = format!("uid {user}'s gateway for uid {caller}");
            for name in OWN {
                let probe =
                    format!("cd {} && echo > outside && rm outside && echo could", at(name).display());
                assert_eq!(outside(caller, &probe), "could\n", "{cell}: outside {name} is written");
            }
            let session = volumes.open(&gateway).await;
            let planting = "git init -q disk/repository && git -C disk/repository config core.fsmonitor ./x";
            let done = session
                .sh(&format!("{} && {planting}; echo over > disk/.envrc", work_in(&OWN)))
                .finish()
                .await;
            assert!(done.text().starts_with("host\nhost\nhost\n"), "{cell}: {}", done.text());
            for name in OWN {
                let made = fs::metadata(at(name).join("deep/made"));
                assert_eq!(made.map(|made| made.uid()).ok(), Some(caller), "{cell}: {name}");
            }
            let kept = fs::read_to_string(at("disk/repository/.git/config")).unwrap_or_default();
            assert!(!kept.contains("fsmonitor"), "{cell}: {kept}");
            let changed = done.outcome.workspace_changes.iter().map(|change| change.path.as_str());
            let changed: BTreeSet<_> =
                changed.filter_map(|path| path.rsplit_once("/disk/")).map(|(_, name)| name).collect();
            assert_eq!(changed, BTreeSet::from([".envrc", "repository/.git/config"]), "{cell}");
            assert!(!at("disk/.envrc").exists(), "{cell}: {:?}", done.outcome.workspace_changes);
            assert_eq!(done.outcome.workspace_shortfall, "", "{cell}");
            // Its own file systems are no way out, nor are they renamed or removed.
            let done = session.sh("mv disk x; rmdir bound; ls -d disk bound").finish().await;
            assert!(done.text().ends_with("bound\ndisk\n"), "{cell}: {}", done.text());
            session.close().await;
            for name in OWN {
                fs::remove_dir_all(at(name).join("deep")).expect("it can be removed");
            }
            fs::remove_dir_all(at("disk/repository")).expect("it can be removed");
        }
        gateway.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_not_the_callers_in_a_workspace_is_not_worked_in_wherever_it_is_mounted() {
    if !is_root() {
        return skip("only root can mount");
    }
    let all = [0, USER].map(|caller| {
        let mut volumes = Volumes::new(caller);
        volumes.mount("etc", &["--bind", "/etc"]);
        volumes.mount("kernel", &["-t", "proc", "none"]);
        volumes.mount("shared", &["--bind", "/dev/shm"]);
        volumes.mount("others", &["-t", "tmpfs", "-o", &format!("mode=777,uid={OTHER}"), "none"]);
        volumes
    });
    for (user, gateway) in gateways() {
        let volumes = all.iter().find(|volumes| volumes.caller == user).expect("there is one");
        let session = volumes.open(&gateway).await;
        let tries =
            "for d in etc kernel/self others shared; do echo > $d/made; done; ls kernel/1; cat etc/shadow";
        let line = format!("{} ; {{ {tries}; }} 2>&1; false", work_in(&OWN));
        let done = session.sh(&line).finish().await;
        assert!(done.text().starts_with("host\nhost\nhost\n"), "uid {user}: {}", done.text());
        assert_eq!(code(&done.outcome), 1);
        for made in ["/etc/made", "/dev/shm/made"].map(Path::new) {
            assert!(!made.exists(), "uid {user}: {} {}", made.display(), done.text());
        }
        // The host's root may work in what is anybody's, as outside.
        assert_eq!(volumes.at("others/made").exists(), user == 0, "{}", done.text());
        assert!(
            !done.text().contains("root:") && !done.text().contains("environ"),
            "uid {user}: {}",
            done.text()
        );
        let hints = &done.outcome.protection_hints;
        assert!(
            hints.iter().any(|hint| hint.path.ends_with("/etc") && hint.key == "roots"),
            "uid {user}: {hints:?}"
        );
        session.close().await;
        for name in OWN {
            fs::remove_dir_all(volumes.at(name).join("deep")).expect("it can be removed");
        }
        gateway.stop();
    }
}
