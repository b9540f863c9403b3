//! Marked commands: each sleeps for a time of its own, by which the host's processes are told apart.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Gateway, eventually};

/// A mark that no other process of the host has in its command line, and that is part of no other. It is a number of seconds.
pub fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("31{:010}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes of the host that sleep for the marked time. A process that has ended counts until it is reaped.
pub fn sleeping(mark: &str) -> usize {
    sleepers(mark).len()
}

/// The ids of those processes.
pub fn sleepers(mark: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let is_marked = |id: &i32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.starts_with(b"sleep\0") && String::from_utf8_lossy(&line).contains(mark)
    };
    ids.filter(is_marked).collect()
}

/// Waits until that many sleep for the marked time.
pub fn wait_for_sleepers(mark: &str, count: usize) {
    wait_until("as many marked commands", || sleeping(mark) == count);
}

/// Waits until a gateway has no session.
pub fn wait_for_sessions_end(gateway: &Gateway) {
    let sessions = gateway.state.join("sessions");
    wait_until("the end of all sessions", || std::fs::read_dir(&sessions).map_or(0, Iterator::count) == 0);
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(eventually(what, || is_so().then_some(())));
}
