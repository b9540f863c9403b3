//! One session: its owner, its roots and how far its workspace reaches around the directory that its caller names, and its sandboxes.
//!
//! It knows nothing of terminals. Once its closing has begun, nothing new can be created in it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    HeldDescriptors, Principal, SessionId, Toolchains,
    files::SharedFiles,
    home_search::{self, FoundCache},
    opened_caches::OpenedCaches,
    sandboxes::{Sandboxes, SessionNetworks},
};
use crate::{
    policy::{AbsPath, Digest, PolicySet, environment::EnvEntry, profile::Network},
    proto::v1::Repository,
    sandbox::{
        net_link::HostSocketCaller,
        roots::{
            self,
            governing::{Governing, GoverningError},
            path_walk::ObjectId,
        },
        spec::{GitConfiguration, GitIdentity, NamedDirectory, Owner, Root, RootRole},
    },
    sys::{process::ProcessIdentity, rights::Rights},
};

/// When a session ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Never.
    Explicit,
    /// With a process: the one that made the connection on which it was created, or another one of the same user.
    OwnerProcess,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its id.
    pub id: SessionId,
    /// Who opened it: the only one for whom it exists.
    pub principal: Principal,
    /// To whom the files belong that its commands write.
    pub owner: Owner,
    /// By what the host permits it something: what is looked at for it is looked at with these.
    pub rights: Rights,
    /// What its commands see of the workspace; the first is where they work.
    pub roots: Arc<[AbsPath]>,
    /// What each of them is for.
    pub(super) roles: Vec<RootRole>,
    /// What the caller calls these directories, or directories in them: links may have led to them.
    pub(super) named_roots: Vec<NamedRoot>,
    /// What was found of a repository around the first directory that the caller named.
    pub repository: RepositoryOutcome,
    /// The same directories, opened when the session was, or when this gateway found it.
    pub(super) root_descriptors: Vec<Root>,
    /// What they were, in the order of the directories; `None`: it is not known.
    pub(super) root_objects: Vec<Option<ObjectId>>,
    /// Those that were not there any more when this gateway found the session: no new sandbox can show them.
    pub(super) lost_roots: Vec<AbsPath>,
    /// Where its commands start.
    pub cwd: AbsPath,
    /// Its commands' environment.
    pub env: Arc<[EnvEntry]>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// By which front end it was opened, as the caller claims.
    pub front_end: String,
    /// The default profile of its terminals, by name.
    pub profile: String,
    /// When it ends by itself.
    pub lifetime: Lifetime,
    /// What git gave to the caller's commits when it was opened.
    pub(super) git_identity: Option<GitIdentity>,
    /// What git has of the caller's configuration.
    pub(super) git_configuration: Option<GitConfiguration>,
    /// The socket of the caller's SSH agent, where the caller has named one.
    pub(super) ssh_agent: Option<AbsPath>,
    /// The process that it ends with. `None` where its lifetime is not a process's, or it could not be seen.
    pub owner_process: Option<ProcessIdentity>,
    /// When it was opened.
    pub created_at: SystemTime,
    /// The request that opened it, where the caller gave an id.
    pub(super) request_id: Option<String>,
    /// The toolchains of its caller's home, once they were looked for.
    pub(super) toolchains: OnceLock<Toolchains>,
    /// The caches of its caller's home, once they were looked for, and what they take of the gateway's descriptors.
    pub(super) caches: tokio::sync::OnceCell<(Vec<FoundCache>, HeldDescriptors)>,
    /// The kept caches that its sandboxes have begun with.
    pub(super) kept_caches: OpenedCaches,
    /// By which its principal finds it again.
    pub name: Option<String>,
    /// The policy under which it was opened.
    pub(super) policy: Digest,
    /// The network of its terminals that ask for none; absent: their profile's.
    pub network: Option<Network>,
    /// Since when nothing has run in it, as far as anybody has looked.
    pub(super) unused_since: UnusedSince,
    /// Its sandboxes.
    pub sandboxes: Sandboxes,
    /// The networks that these have in common.
    pub(super) networks: SessionNetworks,
    /// What they have in common.
    pub(super) files: Arc<SharedFiles>,
    /// What it holds of the gateway's descriptors.
    pub(super) descriptors: OnceLock<HeldDescriptors>,
    pub(super) close_barrier: CloseBarrier,
}

impl Session {
    /// The keys of the caller's git configuration that were left out.
    pub(crate) fn git_left_out(&self) -> &[String] {
        self.git_configuration.as_ref().map(|configuration| &configuration.left_out[..]).unwrap_or_default()
    }

    /// A directory that the caller named, with a root's own name in place of the one that the caller has for it.
    pub(crate) fn resolve(&self, directory: &AbsPath) -> AbsPath {
        rebase(directory, &self.named_roots)
    }

    /// The name that the caller has for a directory, where links lead to it: the one of its shell, which `pwd` prints.
    pub(crate) fn callers_name(&self, directory: &AbsPath) -> Option<AbsPath> {
        let linked = self.named_roots.iter().filter(|one| one.requested != one.real);
        linked.filter_map(|one| directory.rebase(&one.real, &one.requested)).next()
    }

    /// The directories that the caller names by way of links, by both names.
    pub(crate) fn linked_names(&self) -> Vec<NamedDirectory> {
        let linked = self.named_roots.iter().filter(|one| one.requested != one.real);
        let path = |path: &AbsPath| path.as_path().to_owned();
        linked.map(|one| NamedDirectory { name: path(&one.requested), real: path(&one.real) }).collect()
    }

    /// As whom sockets of the host are connected to for its commands.
    pub(crate) fn host_socket_caller(&self) -> HostSocketCaller {
        let agent = self.ssh_agent.as_ref().map(|agent| agent.as_path().to_owned());
        HostSocketCaller { rights: self.rights.clone(), agent }
    }

    /// The roots that commands may write to, as far as the profile lets them.
    pub(crate) fn writable_roots(&self) -> impl Iterator<Item = &AbsPath> {
        self.roots_where(|role| role != RootRole::ReadOnly)
    }

    /// The roots that commands may only read.
    pub(crate) fn read_only_roots(&self) -> impl Iterator<Item = &AbsPath> {
        self.roots_where(|role| role == RootRole::ReadOnly)
    }

    fn roots_where(&self, is_meant: impl Fn(RootRole) -> bool) -> impl Iterator<Item = &AbsPath> {
        self.roots.iter().zip(&self.roles).filter(move |(_, role)| is_meant(**role)).map(|(root, _)| root)
    }

    /// The toolchains of its caller's home. The first call looks for them, on file systems that the caller chooses.
    pub(crate) fn toolchains(&self, governing: &Governing) -> &Toolchains {
        self.toolchains
            .get_or_init(|| home_search::find_toolchains(&self.rights, &self.root_descriptors, governing))
    }

    /// The toolchains, where they were looked for.
    pub(crate) fn known_toolchains(&self) -> Option<&Toolchains> {
        self.toolchains.get()
    }

    /// The field in which a request of the same name, under this policy, asks for another session than this one.
    pub(super) fn differing_field(&self, asked: &Self, policy: &PolicySet) -> Option<&'static str> {
        let network = |one: &Self| {
            let profile_default =
                || policy.profile(Some(&one.profile)).map(|(_, profile)| profile.network.default);
            one.network.or_else(profile_default)
        };
        let pairs = [
            ("roots", self.writable_roots().eq(asked.writable_roots())),
            ("read_only_roots", self.read_only_roots().eq(asked.read_only_roots())),
            ("profile", self.profile == asked.profile),
            ("network", network(self) == network(asked)),
            ("env", self.env == asked.env),
            ("lifetime", self.lifetime == asked.lifetime),
            ("owner_process", self.owner_process == asked.owner_process),
            ("name", self.policy == asked.policy),
        ];
        pairs.into_iter().find(|(_, is_same)| !is_same).map(|(field, _)| field)
    }

    /// The directory that was removed or replaced since this session was opened, of the ones that another request names, too.
    pub(super) fn replaced_root(&self, asked: &Self) -> Option<&AbsPath> {
        let pairs = self.root_objects.iter().zip(&asked.root_objects);
        let is_other =
            |(opened, now): (&Option<ObjectId>, &Option<ObjectId>)| opened.is_none() || opened != now;
        self.roots.iter().zip(pairs).find(|(_, objects)| is_other(*objects)).map(|(root, _)| root)
    }

    /// How long nothing has run in it, as far as those who call this have seen.
    pub(crate) fn unused_for(&self, live_terminals: u32) -> Duration {
        self.unused_since.observe(live_terminals)
    }

    /// Refuses roots that reach what governs commands.
    pub(crate) fn check_roots(&self, governing: &Governing) -> Result<(), GoverningError> {
        governing.check(&self.root_descriptors.iter().map(roots::visible).collect::<Vec<_>>())
    }

    /// Its roots that are there.
    pub(crate) fn open_roots(&self) -> &[Root] {
        &self.root_descriptors
    }

    /// Comes in to create something; refused when the closing has begun.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<SessionGuard> {
        let mut inside = self.close_barrier.state();
        if inside.closing {
            return None;
        }
        inside.guards += 1;
        Some(SessionGuard(self.clone()))
    }

    /// Lets nobody in any more, and waits until those inside have left. The first who calls this is to do the
    /// closing; the others may wait for [`Session::wait_closed`].
    pub(crate) async fn begin_close(&self) -> Closing {
        let role = {
            let mut inside = self.close_barrier.state();
            self.close_barrier.shut.cancel();
            if std::mem::replace(&mut inside.closing, true) {
                Closing::AlreadyUnderWay
            } else {
                Closing::Yours
            }
        };
        loop {
            let dropped = self.close_barrier.guard_dropped.notified();
            if self.close_barrier.state().guards == 0 {
                return role;
            }
            dropped.await;
        }
    }

    /// Whether the closing has begun.
    pub(super) fn is_closing(&self) -> bool {
        self.close_barrier.shut.is_cancelled()
    }

    /// Waits until the closing has begun.
    pub(crate) async fn wait_closing(&self) {
        self.close_barrier.shut.cancelled().await;
    }

    /// Says that nothing is left.
    pub(crate) fn mark_closed(&self) {
        self.close_barrier.closed.cancel();
    }

    /// Waits until nothing is left.
    pub(crate) async fn wait_closed(&self) {
        self.close_barrier.closed.cancelled().await;
    }
}

/// Who does the closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The one who asked.
    Yours,
    /// Another one.
    AlreadyUnderWay,
}

#[derive(Debug, Default)]
pub(super) struct CloseBarrier {
    state: Mutex<BarrierState>,
    guard_dropped: Notify,
    shut: CancellationToken,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct BarrierState {
    closing: bool,
    guards: u32,
}

impl CloseBarrier {
    fn state(&self) -> std::sync::MutexGuard<'_, BarrierState> {
        self.state.lock().expect("no code panics while it holds a session's gate")
    }
}

/// A call that creates something in a session. The closing waits for it.
#[derive(Debug)]
pub(crate) struct SessionGuard(Arc<Session>);

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.close_barrier.state().guards -= 1;
        self.0.close_barrier.guard_dropped.notify_waiters();
    }
}

/// When nothing of a session ran for the first time in a row.
#[derive(Debug, Default)]
pub(super) struct UnusedSince(Mutex<Option<Instant>>);

impl UnusedSince {
    fn observe(&self, live_terminals: u32) -> Duration {
        let mut since = self.0.lock().expect("no code panics while it holds a time");
        if live_terminals > 0 {
            *since = None;
            return Duration::ZERO;
        }
        since.get_or_insert_with(Instant::now).elapsed()
    }

    /// It is about to be used.
    pub(super) fn reset(&self) {
        *self.0.lock().expect("no code panics while it holds a time") = None;
    }
}

/// A directory that the caller named, and its own name without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedRoot {
    pub(super) requested: AbsPath,
    pub(super) real: AbsPath,
}

/// `directory` with the first of the `named` directories that holds it replaced by its real name.
pub(super) fn rebase(directory: &AbsPath, named: &[NamedRoot]) -> AbsPath {
    if named.iter().any(|one| directory.is_within(&one.real)) {
        return directory.clone();
    }
    let moved = named.iter().find_map(|one| directory.rebase(&one.requested, &one.real));
    moved.unwrap_or_else(|| directory.clone())
}

/// How much of what lies around the first directory belongs to a session's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WorkspaceExtent {
    /// Nothing.
    #[default]
    Named,
    /// The repository that it lies in.
    Repository,
}

/// What became of the repository around a session's first directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum RepositoryOutcome {
    /// Nobody asked, or there is none.
    #[default]
    None,
    /// It is the workspace.
    Taken {
        /// The directory of its files.
        worktree: AbsPath,
        /// Its git directory, where that is a root of its own.
        git_directory: Option<AbsPath>,
    },
    /// The reason, as one sentence.
    NotTaken(String),
}

impl RepositoryOutcome {
    /// For the caller; `None` where there is nothing to say.
    pub(crate) fn to_report(&self) -> Option<Repository> {
        match self {
            Self::None => None,
            Self::Taken { worktree, git_directory } => Some(Repository {
                worktree: worktree.to_string(),
                git_directory: git_directory.as_ref().map(ToString::to_string).unwrap_or_default(),
                not_taken: String::new(),
            }),
            Self::NotTaken(reason) => Some(Repository { not_taken: reason.clone(), ..Repository::default() }),
        }
    }
}

#[cfg(test)]
mod tests;
