//! Judged is executed: whatever becomes of a file between policy and exec, no other one runs.
//!
//! The attacker changes what is at a path as fast as it can, from another thread of the host, which is as good as from
//! another terminal of the session. That it wins the race is seen by the refusals: each of them is a command that
//! would have run something that policy had not judged.

mod names;
mod races;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::support::Gateway;

/// A gateway that allows everything but `/usr/bin/id`, by whatever name.
pub(crate) fn gateway() -> Arc<Gateway> {
    Gateway::with_policy(|policy| {
        crate::support::add_rule(policy, "id = 'no-id'\ndecision = 'deny'\nargv = ['id', '**']");
    })
}

/// Writes a program into a directory.
pub(crate) fn program(path: &Path, content: &[u8]) {
    let aside = path.with_extension("aside");
    fs::write(&aside, content).expect("a program can be written");
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    fs::rename(aside, path).expect("it can be put in place");
}

/// Does something again and again, at a pace that drifts through all the moments of a spawn, until it is dropped.
pub(crate) struct Again {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Again {
    pub(crate) fn and_again(mut what: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut turn, mut pause) = (0_u32, 0);
            while !seen.load(Ordering::Relaxed) {
                what();
                turn += 1;
                pause = (pause + 37) % 1_500;
                // Now and then long enough that a spawn comes through on a slow machine, too, and on a very slow one.
                let micros = match turn {
                    _ if turn.is_multiple_of(512) => 500_000,
                    _ if turn.is_multiple_of(16) => 20_000,
                    _ => pause,
                };
                std::thread::park_timeout(Duration::from_micros(micros));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("the attacker ends");
        }
    }
}

/// Exchanges two names, as one step.
pub(crate) fn exchange(a: &Path, b: &Path) {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, a, AT_FDCWD, b, RenameFlags::RENAME_EXCHANGE).expect("the names can be exchanged");
}

/// The file that a link leads to.
pub(crate) fn real(path: &str) -> PathBuf {
    Path::new(path).canonicalize().expect("it is there")
}
