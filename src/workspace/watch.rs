//! One workspace, watched by a thread of its own: at the start and the end of each command, and from time to time while
//! one runs.
//!
//! The thread has the workspace owner's rights to files and nobody else waits on its files: a file system that hangs holds
//! up the commands of that workspace alone. Where nothing has changed, neither the start nor the end of a command comes
//! here: both ask the kernel's queue, which never blocks.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::unistd::{Gid, Uid};
use tokio::sync::oneshot;

use super::{
    eyes::{Change, Eyes, Mode},
    known::Store,
    queue::{Asked, Ending, Queue},
};
use crate::{policy::profile::OnChange, sys::credentials};

/// Between two looks while a command runs.
const TICK: Duration = Duration::from_secs(1);
/// After so long without a command the thread sleeps until there is one.
const AWAKE: Duration = Duration::from_secs(3);
/// Looking while a command runs takes at most one part in so many of a processor.
const SHARE: u32 = 20;
/// How long one look goes on before others are let in.
const SLICE: Duration = Duration::from_millis(50);
/// How long the first command waits for the first look; the rest of it is done while the command runs.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How long the end of a command waits for the look at what it changed.
const LAST_LOOK: Duration = Duration::from_secs(5);
/// How long the start of a command waits for the thread, on a file system that hangs.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How much the clock that stamps files may lag behind.
const FILE_CLOCK_LAG: Duration = Duration::from_millis(50);

/// Who is told of changes while a command runs.
pub trait Observer: Send + Sync {
    /// Something has changed, and something was done about it.
    fn changed(&self, change: &Change);
}

/// A workspace that is watched.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    eyes: Mutex<Eyes>,
    running: Mutex<Vec<Running>>,
    /// Of the last look that came to its end.
    shortfall: Mutex<Option<String>>,
    store: Option<Store>,
    /// The thread waits for a job, and for nothing else.
    is_asleep: AtomicBool,
    /// Changes were found of which those who run have not been told. Changed by the thread, set with the lock on `eyes`.
    is_telling: AtomicBool,
}

struct Running {
    id: String,
    observer: Weak<dyn Observer>,
    on_change: OnChange,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Watch {
    /// Begins to watch, with the rights of the owner.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn start(eyes: Eyes, owner: (u32, u32), store: Option<Store>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            eyes: Mutex::new(eyes),
            running: Mutex::default(),
            shortfall: Mutex::default(),
            store,
            is_asleep: AtomicBool::new(false),
            is_telling: AtomicBool::new(false),
        });
        let looker = Looker { shared: shared.clone(), owner, late_since: None };
        thread::Builder::new().name("workspace".into()).spawn(move || looker.run())?;
        Ok(Self { shared })
    }

    /// Knows all that is there before a command starts. `None`: it does already.
    pub fn settle(&self, tools: &[PathBuf]) -> Option<Settling> {
        let is_first = self.shared.lock_running().is_empty();
        if let Ok(mut eyes) = self.shared.eyes.try_lock() {
            eyes.add_tools(tools);
            // What is heard while another command runs is not taken for what was there before.
            if eyes.has_baseline && (!is_first || eyes.is_quiet()) {
                return None;
            }
        }
        let (ready, is_ready) = oneshot::channel();
        self.shared.queue.ask(|asked| asked.starts.push(ready));
        Some(Settling(is_ready))
    }

    /// Whether it is known what was there before.
    pub fn has_baseline(&self) -> bool {
        // Whoever looks just now has it, or will say that it has not.
        self.shared.eyes.try_lock().map_or(true, |eyes| eyes.has_baseline)
    }

    /// A command is about to start.
    pub fn enter(&self, id: String, observer: Weak<dyn Observer>, on_change: OnChange) {
        self.shared.lock_running().push(Running { id, observer, on_change });
        if self.shared.is_asleep.swap(false, Ordering::AcqRel) {
            self.shared.queue.wake();
        }
    }

    /// A command has ended, and nothing can have changed: it is not running any more. Does not block.
    pub fn leave_quietly(&self, id: &str) -> bool {
        let mut running = self.shared.lock_running();
        let is_alone = running.iter().all(|one| one.id == id || one.observer.strong_count() == 0);
        let is_quiet = self.shared.eyes.try_lock().is_ok_and(|mut eyes| {
            // A known file that one of the others holds mapped changes without a word.
            let can_be_heard = is_alone || eyes.knows_nothing();
            can_be_heard
                && eyes.has_baseline
                && eyes.is_quiet()
                && !self.shared.is_telling.load(Ordering::Acquire)
        });
        if is_quiet {
            running.retain(|one| one.id != id && one.observer.strong_count() > 0);
        }
        is_quiet
    }

    /// A command has ended: `ending` comes after the look at what it changed.
    pub fn leave(&self, id: String, ending: Arc<Ending>) {
        self.shared.queue.ask(|asked| asked.ends.push((id, ending)));
    }

    /// A command that was about to start does not.
    pub fn withdraw(&self, id: &str) {
        self.shared.lock_running().retain(|one| one.id != id);
    }

    /// The last session has ended: what is known is not kept.
    pub(super) fn forget(&self) {
        if let Some(store) = &self.shared.store {
            store.forget();
        }
    }

    /// Why some of the workspace is not looked at.
    pub fn shortfall(&self) -> Option<String> {
        self.shared.lock_shortfall().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// A look that a command waits for.
#[derive(Debug)]
pub struct Settling(oneshot::Receiver<()>);

impl Settling {
    /// Waits for it, but not for ever. Whether it came.
    pub async fn wait(self) -> bool {
        matches!(tokio::time::timeout(START_PATIENCE, self.0).await, Ok(Ok(())))
    }
}

impl Shared {
    fn lock_running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().expect("no code panics while it holds the commands of a workspace")
    }

    fn lock_shortfall(&self) -> MutexGuard<'_, Option<String>> {
        self.shortfall.lock().expect("no code panics while it holds a shortfall")
    }
}

struct Looker {
    shared: Arc<Shared>,
    owner: (u32, u32),
    /// A command runs since then, and the first look is not done.
    late_since: Option<i64>,
}

impl Drop for Looker {
    fn drop(&mut self) {
        // However it ended: nobody waits for it any more.
        self.shared.queue.close();
    }
}

impl Looker {
    fn run(mut self) {
        let (uid, gid) = self.owner;
        if let Err(errno) = credentials::act_with_rights_of(Uid::from_raw(uid), Gid::from_raw(gid)) {
            let reason = format!("the rights of uid {uid} cannot be had: {}", errno.desc());
            *self.shared.lock_shortfall() = Some(reason);
            return;
        }
        let mut pause = TICK;
        while let Some(Asked { starts, ends, .. }) = self.next(pause) {
            if !ends.is_empty() {
                // One look is all of theirs.
                self.look_at_end();
                self.shared.lock_running().retain(|one| ends.iter().all(|(id, _)| one.id != *id));
            } else if starts.is_empty() && !self.shared.lock_running().is_empty() {
                let begun = Instant::now();
                self.look_while_running();
                pause = TICK.max(begun.elapsed() * SHARE);
            } else if starts.is_empty() && self.is_behind() {
                // No command runs, or not yet: the first look goes on, with nobody to wait for.
                self.look(Instant::now() + SLICE);
            }
            drop(ends);
            if !starts.is_empty() {
                self.settle();
            }
            for ready in starts {
                // Whoever waited may have gone.
                let _ = ready.send(());
            }
            self.write_down();
        }
    }

    /// What is asked for next, or nothing when it is time for a look at what commands do.
    fn next(&self, pause: Duration) -> Option<Asked> {
        if self.is_behind() {
            return self.shared.queue.next(Some(Duration::ZERO));
        }
        let begun = Instant::now();
        let mut wait = pause;
        while begun.elapsed() < AWAKE || !self.shared.lock_running().is_empty() {
            let asked = self.shared.queue.next(Some(wait))?;
            let is_time = begun.elapsed() >= pause && !self.shared.lock_running().is_empty();
            if !asked.starts.is_empty() || !asked.ends.is_empty() || is_time {
                return Some(asked);
            }
            wait = pause.saturating_sub(begun.elapsed()).max(TICK);
        }
        self.shared.is_asleep.store(true, Ordering::Release);
        // Who has come in meanwhile did not wake anybody.
        let is_idle = self.shared.lock_running().is_empty();
        let asked = self.shared.queue.next((!is_idle).then_some(Duration::ZERO));
        self.shared.is_asleep.store(false, Ordering::Release);
        asked
    }

    /// Whether the first look was cut short, and is not done.
    fn is_behind(&self) -> bool {
        self.late_since.is_some() && !self.lock_eyes().has_baseline
    }

    /// Before a command starts. The first look is cut short and goes on beside it.
    fn settle(&mut self) {
        self.lock_eyes().hear();
        let begun = Instant::now();
        while begun.elapsed() < FIRST_LOOK {
            self.look(Instant::now() + SLICE);
            if self.lock_eyes().is_done() {
                return;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let late_since = now.saturating_sub(FILE_CLOCK_LAG).as_nanos();
        self.late_since.get_or_insert(i64::try_from(late_since).unwrap_or(i64::MAX));
    }

    fn look_while_running(&mut self) {
        {
            let mut eyes = self.lock_eyes();
            eyes.hear();
            eyes.compare();
        }
        self.look(Instant::now() + SLICE);
    }

    fn look_at_end(&mut self) {
        {
            let mut eyes = self.lock_eyes();
            eyes.hear();
            eyes.look_again_if_deaf();
            eyes.compare();
        }
        let begun = Instant::now();
        loop {
            self.look(Instant::now() + SLICE);
            let mut eyes = self.lock_eyes();
            let is_done = if eyes.has_baseline { eyes.is_done() } else { eyes.has_no_news() };
            if is_done {
                return;
            }
            if begun.elapsed() > LAST_LOOK {
                eyes.fall_short("the look at a command's end was cut short: the rest of it comes later");
                return;
            }
        }
    }

    /// One look, and what comes of it told to every command that runs.
    fn look(&self, until: Instant) {
        let mode = self.mode();
        let mut eyes = self.lock_eyes();
        let changes = eyes.look(mode, until);
        let shortfall = eyes.shortfall().map(str::to_owned);
        self.shared.is_telling.store(!changes.is_empty(), Ordering::Release);
        drop(eyes);
        *self.shared.lock_shortfall() = shortfall;
        if changes.is_empty() {
            return;
        }
        // Told without the lock: who is told may be the last who holds its terminal.
        let running: Vec<_> =
            self.shared.lock_running().iter().filter_map(|one| one.observer.upgrade()).collect();
        for change in &changes {
            running.iter().for_each(|observer| observer.changed(change));
        }
        self.shared.is_telling.store(false, Ordering::Release);
    }

    fn mode(&self) -> Mode {
        let strictest = self.shared.lock_running().iter().map(|one| one.on_change).max();
        let has_baseline = self.lock_eyes().has_baseline;
        match (strictest, self.late_since) {
            (strictest, Some(since)) if !has_baseline => {
                Mode::AcceptBefore(since, strictest.unwrap_or_default())
            }
            (Some(on_change), _) if has_baseline => Mode::Judge(on_change),
            (None, _) | (Some(_), _) => Mode::Accept,
        }
    }

    fn write_down(&self) {
        let Some(store) = &self.shared.store else { return };
        let mut eyes = self.lock_eyes();
        if !std::mem::replace(&mut eyes.is_unwritten, false) {
            return;
        }
        let record = store.record(&eyes);
        drop(eyes);
        store.write(&record, self.owner);
    }

    fn lock_eyes(&self) -> MutexGuard<'_, Eyes> {
        self.shared.eyes.lock().expect("no code panics while it holds what is known of a workspace")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use nix::unistd::{getegid, geteuid};

    use super::*;
    use crate::workspace::{budget::Budget, tree::Tree};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn eyes(root: &Path) -> Eyes {
        let descriptor = fs::File::open(root).unwrap().into();
        let share = Budget::of_host().instance(geteuid().as_raw());
        Eyes::new(Tree::new(root.to_owned(), descriptor), share, None)
    }

    fn owner() -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }

    #[test]
    fn a_first_look_that_was_cut_short_comes_to_its_end_although_no_command_runs() {
        let root = tempfile::tempdir().unwrap();
        for directory in 0..100 {
            fs::create_dir_all(root.path().join(format!("{directory}/in"))).unwrap();
        }
        let late = Arc::new(Shared {
            queue: Queue::default(),
            eyes: Mutex::new(eyes(root.path())),
            running: Mutex::default(),
            shortfall: Mutex::default(),
            store: None,
            is_asleep: AtomicBool::new(false),
            is_telling: AtomicBool::new(false),
        });
        let looker = Looker { shared: late.clone(), owner: owner(), late_since: Some(0) };
        let thread = thread::spawn(move || looker.run());
        let begun = Instant::now();
        while !late.eyes.lock().unwrap().has_baseline {
            assert!(begun.elapsed() < PATIENCE, "the look has not come to its end");
            thread::yield_now();
        }
        late.queue.close();
        thread.join().unwrap();
    }

    /// A command that runs beside.
    #[derive(Debug)]
    struct Beside;

    impl Observer for Beside {
        fn changed(&self, _: &Change) {}
    }

    #[test]
    fn beside_others_an_end_is_quiet_only_where_nothing_is_known_that_changes_without_a_word() {
        let root = tempfile::tempdir().unwrap();
        let beside: Arc<dyn Observer> = Arc::new(Beside);
        let watch_two = || {
            let watch = Watch::start(eyes(root.path()), owner(), None).unwrap();
            if let Some(Settling(is_ready)) = watch.settle(&[]) {
                is_ready.blocking_recv().unwrap();
            }
            for id in ["one", "other"] {
                watch.enter(id.to_owned(), Arc::downgrade(&beside), OnChange::default());
            }
            watch
        };
        let watch = watch_two();
        if watch.shortfall().is_some() {
            eprintln!("SKIPPED: this host gives no inotify");
            return;
        }
        let begun = Instant::now();
        while !watch.leave_quietly("one") {
            // Its thread may look just now, and then nobody can say at once.
            assert!(begun.elapsed() < PATIENCE, "nothing is known, and nothing has changed");
            thread::yield_now();
        }
        let left: Vec<String> =
            watch.shared.lock_running().iter().map(|running| running.id.clone()).collect();
        assert_eq!(left, ["other"], "the other one runs on");
        for directory in [".git/objects", ".git/refs"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join(".git/config"), "[core]\n\tbare = false\n").unwrap();
        assert!(!watch_two().leave_quietly("one"), "a configuration is known");
    }
}
