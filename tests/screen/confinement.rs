//! What a screen process has, as the kernel says it.

use std::{collections::HashSet, fs};

use crate::screen::harness::{Stage, TERMINAL, size};

fn status(pid: i32) -> Vec<(String, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

#[tokio::test]
async fn a_screen_process_has_no_privilege_no_file_no_network_and_no_other_process() {
    let mut stage = Stage::new(1 << 16);
    let (link, pid) = stage.start().await;
    stage.add(&link, size(20, 3), 0).await;
    link.snapshot(TERMINAL).await.unwrap();
    let status = status(pid);
    let value = |name: &str| status.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(value(set), Some("0000000000000000"), "{set}");
    }
    assert_eq!((value("NoNewPrivs"), value("Seccomp"), value("Threads")), (Some("1"), Some("2"), Some("1")));
    if nix::unistd::geteuid().is_root() {
        let uids: HashSet<_> = value("Uid").unwrap().split_whitespace().collect();
        assert!(uids.len() == 1 && !uids.contains("0"), "{uids:?}");
        assert_eq!(value("Groups"), Some(""));
    }
    for namespace in ["user", "mnt", "pid", "ipc", "uts", "net", "cgroup"] {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{namespace}")).unwrap();
        assert_ne!(of(&pid.to_string()), of("self"), "{namespace}");
    }
    let root: Vec<_> = fs::read_dir(format!("/proc/{pid}/root")).unwrap().collect();
    assert!(root.is_empty(), "{root:?}");
    for open in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let target = fs::read_link(open.unwrap().path()).unwrap().to_string_lossy().into_owned();
        // The host's /dev is not mounted any more.
        let known = ["socket:", "anon_inode:", "/memfd:", "/null", "/dev/null"];
        let is_lock = target.ends_with("/ids");
        assert!(known.iter().any(|kind| target.starts_with(kind)) || is_lock, "{target}");
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let memory = limits.lines().find(|line| line.starts_with("Max address space")).unwrap();
    assert!(memory.contains("1073741824"), "{memory}");
    if cfg!(target_arch = "x86_64") {
        // The ring cannot be written through what was handed over.
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("memfd:provost-output"), "{maps}");
    }
}
