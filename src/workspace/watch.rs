//! One workspace, watched by a thread of its own: at the start and the end of each command, and from time to time while
//! one runs.
//!
//! The thread has the workspace owner's rights to files and nobody else waits on its files: a file system that hangs holds
//! up the commands of that workspace alone. Where nothing has changed, neither the start nor the end of a command comes
//! here: both ask the kernel's queue, which never blocks.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
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

/// Between two looks at what the kernel has noticed, while a command runs.
const GLANCE: Duration = Duration::from_millis(100);
/// Between two looks that compare the files themselves, too.
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
    /// The look at a command's end was cut short, and its rest is still to come.
    is_owed: AtomicBool,
    /// Changes were found of which those who run have not been told. Changed by the thread, set with the lock on `eyes`.
    is_telling: AtomicBool,
}

struct Running {
    id: String,
    /// As [`super::control::Sight::changed_at`].
    since: i64,
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
            is_owed: AtomicBool::new(false),
            is_telling: AtomicBool::new(false),
        });
        let looker = Looker { shared: shared.clone(), owner, owed: None };
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(now.saturating_sub(FILE_CLOCK_LAG).as_nanos()).unwrap_or(i64::MAX);
        self.shared.lock_running().push(Running { id, since, observer, on_change });
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

    /// The rest of a look that was cut short, before nobody watches any more. `None`: there is none.
    pub fn finish(&self) -> Option<Settling> {
        if !self.shared.is_owed.load(Ordering::Acquire) {
            return None;
        }
        let (ready, is_ready) = oneshot::channel();
        // Whoever waited may have gone.
        let ready = Mutex::new(Some(ready));
        let ending = Ending::new(move || {
            if let Some(ready) = ready.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = ready.send(());
            }
        });
        self.shared.queue.ask(|asked| asked.ends.push((String::new(), ending)));
        Some(Settling(is_ready))
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
    /// What is left of a look at a command's end.
    owed: Option<Owed>,
}

/// A look that was cut short: what it finds is judged as if those commands still ran.
struct Owed {
    on_change: OnChange,
    observers: Vec<Weak<dyn Observer>>,
}

/// How far a look goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// What the kernel has noticed.
    Heard,
    /// The known files themselves, too.
    Compared,
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
        let (mut pause, mut until_compared) = (GLANCE, TICK);
        let mut compared_at = Instant::now();
        loop {
            let due = until_compared.saturating_sub(compared_at.elapsed());
            let Some(Asked { starts, ends, .. }) = self.next(pause, due) else { return };
            if !ends.is_empty() {
                // One look is all of theirs.
                self.look_at_end(&ends);
                self.shared.lock_running().retain(|one| ends.iter().all(|(id, _)| one.id != *id));
            } else if starts.is_empty() && self.has_to_judge() {
                let begun = Instant::now();
                let is_due = compared_at.elapsed() >= until_compared;
                self.look_while_running(if is_due { Depth::Compared } else { Depth::Heard });
                let rest = begun.elapsed() * SHARE;
                pause = GLANCE.max(rest);
                if is_due {
                    (compared_at, until_compared) = (Instant::now(), TICK.max(rest));
                }
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

    /// What is asked for next, or nothing when it is time for a look at what commands do: after a pause where the kernel
    /// has noticed something, and when the files are due to be compared.
    fn next(&self, pause: Duration, due: Duration) -> Option<Asked> {
        if self.has_to_judge() && (self.owed.is_some() || !self.lock_eyes().has_baseline) {
            return self.shared.queue.next(Some(Duration::ZERO));
        }
        let begun = Instant::now();
        let mut wait = pause;
        while begun.elapsed() < AWAKE || self.has_to_judge() {
            let asked = self.shared.queue.next(Some(wait))?;
            let passed = begun.elapsed();
            let is_time = passed >= pause && self.has_to_judge();
            let is_time = is_time && (passed >= due || self.lock_eyes().has_word());
            if !asked.starts.is_empty() || !asked.ends.is_empty() || is_time {
                return Some(asked);
            }
            wait = pause.saturating_sub(begun.elapsed()).max(GLANCE);
        }
        self.shared.is_asleep.store(true, Ordering::Release);
        // Who has come in meanwhile did not wake anybody.
        let is_idle = self.shared.lock_running().is_empty();
        let asked = self.shared.queue.next((!is_idle).then_some(Duration::ZERO));
        self.shared.is_asleep.store(false, Ordering::Release);
        asked
    }

    /// Whether what changes is judged: a command runs, or what one has left is not looked at yet.
    fn has_to_judge(&self) -> bool {
        self.owed.is_some() || !self.shared.lock_running().is_empty()
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
    }

    fn look_while_running(&mut self, depth: Depth) {
        {
            let mut eyes = self.lock_eyes();
            eyes.hear();
            if depth == Depth::Compared {
                eyes.compare(false);
            }
        }
        self.look(Instant::now() + SLICE);
    }

    fn look_at_end(&mut self, ends: &[(String, Arc<Ending>)]) {
        let is_last = self
            .shared
            .lock_running()
            .iter()
            .all(|one| one.observer.strong_count() == 0 || ends.iter().any(|(id, _)| one.id == *id));
        {
            let mut eyes = self.lock_eyes();
            eyes.hear();
            eyes.look_again_if_deaf();
            eyes.compare(is_last);
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
                drop(eyes);
                return self.owe();
            }
        }
    }

    /// The rest comes later, and is judged as if these commands still ran.
    fn owe(&mut self) {
        let running = self.shared.lock_running();
        let Some(on_change) = running.iter().map(|one| one.on_change).max() else { return };
        let observers = running.iter().map(|one| one.observer.clone()).collect();
        drop(running);
        self.owed = Some(Owed { on_change, observers });
        self.shared.is_owed.store(true, Ordering::Release);
    }

    /// One look, and what comes of it told to every command that runs.
    fn look(&mut self, until: Instant) {
        let mode = self.mode();
        let mut eyes = self.lock_eyes();
        let changes = eyes.look(mode, until);
        let shortfall = eyes.shortfall().map(str::to_owned);
        let is_done = eyes.is_done();
        self.shared.is_telling.store(!changes.is_empty(), Ordering::Release);
        drop(eyes);
        *self.shared.lock_shortfall() = shortfall;
        if !changes.is_empty() {
            self.tell(&changes);
            self.shared.is_telling.store(false, Ordering::Release);
        }
        if is_done && self.owed.take().is_some() {
            self.shared.is_owed.store(false, Ordering::Release);
        }
    }

    /// Told without the lock: who is told may be the last who holds its terminal.
    fn tell(&self, changes: &[Change]) {
        let mut observers: Vec<_> =
            self.shared.lock_running().iter().filter_map(|one| one.observer.upgrade()).collect();
        let late = self.owed.iter().flat_map(|owed| &owed.observers).filter_map(Weak::upgrade);
        let late: Vec<_> =
            late.filter(|one| !observers.iter().any(|other| Arc::ptr_eq(one, other))).collect();
        observers.extend(late);
        for change in changes {
            observers.iter().for_each(|observer| observer.changed(change));
        }
    }

    fn mode(&self) -> Mode {
        let running = self.shared.lock_running();
        let strictest = running.iter().map(|one| one.on_change).max();
        let since = running.iter().map(|one| one.since).min();
        drop(running);
        let strictest = strictest.max(self.owed.as_ref().map(|owed| owed.on_change));
        match (strictest, since) {
            (None, _) => Mode::Accept,
            (Some(on_change), _) if self.lock_eyes().has_baseline => Mode::Judge(on_change),
            (Some(on_change), Some(since)) => Mode::AcceptBefore(since, on_change),
            (Some(on_change), None) => Mode::Judge(on_change),
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
