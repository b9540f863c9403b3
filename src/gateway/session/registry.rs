//! The registry of all sessions of the gateway.
//!
//! A session exists only for the principal that opened it. For other principals its id is unknown.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
    time::SystemTime,
};

use super::{
    FILESYSTEM_TIMEOUT,
    descriptors::DescriptorQuota,
    git_configuration, git_identity,
    id::SessionId,
    new_session::{self, NewSession, OpenError},
    principal::{Peer, Principal},
    real_path,
    sandboxes::{Sandboxes, SessionNetworks},
    session::{CloseBarrier, Session, UnusedSince, rebase},
    store::{self, Persistence, RestoreError},
    workspace_roots,
};
use crate::{
    failpoint,
    policy::{PolicySet, check_session, profile::Profile},
    pool::Pool,
    proto::state::SessionRecord,
    sandbox::{
        roots::{self, Ownership, governing::Governing},
        spec::{GitConfiguration, Owner},
    },
};

/// Descriptors that a session holds in addition to one for each root: its sandbox's control connection, processes, groups and
/// files, what its sandboxes share, and its owner's process.
const SESSION_DESCRIPTORS: u64 = 19;

/// What opening did.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A new session.
    New(Arc<Session>),
    /// The session that the same request had opened before.
    Existing(Arc<Session>),
}

/// The table of sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    state: PathBuf,
    governing: Arc<Governing>,
    persistence: Persistence,
    per_principal_max: u32,
    pool: Arc<Pool>,
    descriptors: Arc<DescriptorQuota>,
    table: Mutex<SessionTable>,
    creation_locks: Mutex<HashMap<Principal, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct SessionTable {
    by_id: BTreeMap<SessionId, Arc<Session>>,
    by_request: HashMap<(Principal, String), SessionId>,
}

impl Sessions {
    /// An empty table. `state` is where sessions are kept; no session may reach what is `governing`.
    pub(crate) fn new(
        state: PathBuf,
        governing: Arc<Governing>,
        persistence: Persistence,
        per_principal_max: u32,
        pool: Arc<Pool>,
        descriptors: Arc<DescriptorQuota>,
    ) -> Self {
        let (table, creation_locks) = (Mutex::default(), Mutex::default());
        Self { state, governing, persistence, per_principal_max, pool, descriptors, table, creation_locks }
    }

    /// Adopts the sessions of the gateway before this one: those that came back, and the names of the files that
    /// make none, with the reason. Blocks.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn restore(&self) -> std::io::Result<RestoredSessions> {
        let (mut restored, mut hung) = (RestoredSessions::default(), HashSet::new());
        for name in store::names(&self.state)? {
            match store::read(&self.state, &name, &self.governing, &mut hung) {
                Ok(session) => {
                    let descriptors =
                        self.descriptors.reserve_unchecked(session.principal, descriptor_count(&session));
                    // It was made just now.
                    let _ = session.descriptors.set(descriptors);
                    restored.sessions.push(self.lock().insert(Arc::new(session)));
                }
                Err(error) => restored.refused.push((name, error)),
            }
        }
        Ok(restored)
    }

    /// Opens a session for the caller.
    ///
    /// # Errors
    /// [`OpenError`]: there is no session, and nothing of it is kept open.
    pub(crate) async fn open(
        &self,
        policy: &Arc<PolicySet>,
        peer: &Peer,
        new: NewSession,
    ) -> Result<Opened, OpenError> {
        if let Some(session) = self.find_existing(peer.principal, new.request_id.as_deref()) {
            return Ok(Opened::Existing(session));
        }
        let mut generation = self.governing.generation();
        let (session, record) = self.prepare_on_pool(policy.clone(), peer.clone(), new).await?;
        // Who changes what governs looks at the sessions of this table afterwards: a session that was checked before is
        // checked again before it is in the table.
        let mut table = loop {
            {
                let table = self.lock();
                if generation == self.governing.generation() {
                    break table;
                }
            }
            generation = self.governing.generation();
            let (checked, governing) = (session.clone(), self.governing.clone());
            let check = move || checked.check_roots(&governing);
            let uid = peer.principal.uid;
            self.pool.run(uid, FILESYSTEM_TIMEOUT, check).await?.map_err(OpenError::Governing)?;
        };
        if let Some(named) = table.find_named(peer.principal, session.name.as_deref()) {
            if let Some(field) = named.differing_field(&session, policy) {
                return Err(OpenError::OtherSession { field });
            }
            if let Some(root) = named.replaced_root(&session) {
                return Err(OpenError::RootReplaced(root.clone()));
            }
            named.unused_since.reset();
            return Ok(Opened::Existing(named));
        }
        // Another request with the same id may have been faster.
        if let Some(first) = table.find_existing(peer.principal, session.request_id.as_deref()) {
            return Ok(Opened::Existing(first));
        }
        let open = table.by_id.values().filter(|other| other.principal == peer.principal).count();
        if open >= self.per_principal_max as usize {
            return Err(OpenError::TooMany(self.per_principal_max));
        }
        let descriptors = self.descriptors.reserve(peer.principal, descriptor_count(&session))?;
        // Nobody else has this session yet.
        let _ = session.descriptors.set(descriptors);
        // Under the lock, so that of two requests with one id only one writes: some microseconds, without a sync.
        if let Some(written) = record {
            store::write(&self.state, &written).map_err(OpenError::StateUnwritable)?;
            failpoint::reach("session.kept");
        }
        table.insert(session.clone());
        failpoint::reach("session.opened");
        tracing::info!(session.id = %session.id, principal = %session.principal, "session opened");
        Ok(Opened::New(session))
    }

    /// All that is asked of file systems that a caller has chosen, in the caller's places of the pool.
    async fn prepare_on_pool(
        &self,
        policy: Arc<PolicySet>,
        peer: Peer,
        new: NewSession,
    ) -> Result<(Arc<Session>, Option<SessionRecord>), OpenError> {
        let (governing, persistence, uid) = (self.governing.clone(), self.persistence, peer.principal.uid);
        let look = move || {
            let session = prepare(&policy, &governing, &peer, new)?;
            let written = match persistence {
                Persistence::InFiles => Some(store::to_record(&session).map_err(OpenError::StateUnwritable)?),
                Persistence::InMemory => None,
            };
            Ok((Arc::new(session), written))
        };
        self.pool.run(uid, FILESYSTEM_TIMEOUT, look).await?
    }

    /// The caller's session of that id. `None` for a malformed, unknown or foreign one, without a difference.
    pub(crate) fn find(&self, principal: Principal, id: &str) -> Option<Arc<Session>> {
        let id = SessionId::parse(id)?;
        self.lock().by_id.get(&id).filter(|session| session.principal == principal).cloned()
    }

    /// The caller's open session of that name, which is about to be used.
    pub(crate) fn find_named(&self, principal: Principal, name: &str) -> Option<Arc<Session>> {
        let session = self.lock().find_named(principal, Some(name))?;
        session.unused_since.reset();
        Some(session)
    }

    /// The caller's sessions, oldest first.
    pub(crate) fn list(&self, principal: Principal) -> Vec<Arc<Session>> {
        self.lock().by_id.values().filter(|session| session.principal == principal).cloned().collect()
    }

    /// Held by a request of this principal that may come again, until it is known what became of it.
    pub(crate) async fn creation_lock(&self, principal: Principal) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.creation_locks.lock().expect("no code panics while it holds the turns");
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(principal).or_default().clone()
        };
        lock.lock_owned().await
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// All sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Takes a session out of the table: its id is unknown from here on.
    pub(crate) fn remove(&self, session: &Session) {
        let mut table = self.lock();
        table.by_id.remove(&session.id);
        if let Some(request_id) = &session.request_id {
            table.by_request.remove(&(session.principal, request_id.clone()));
        }
        if self.persistence == Persistence::InFiles {
            store::remove(&self.state, session.id);
        }
        tracing::info!(session.id = %session.id, "session closed");
    }

    fn find_existing(&self, principal: Principal, request_id: Option<&str>) -> Option<Arc<Session>> {
        self.lock().find_existing(principal, request_id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SessionTable> {
        self.table.lock().expect("no code panics while it holds the table of sessions")
    }
}

/// What came of the files of a gateway's sessions.
#[derive(Debug, Default)]
pub(crate) struct RestoredSessions {
    /// Open again.
    pub sessions: Vec<Arc<Session>>,
    /// Left as they are: the files' names, and the reasons.
    pub refused: Vec<(String, RestoreError)>,
}

impl SessionTable {
    fn insert(&mut self, session: Arc<Session>) -> Arc<Session> {
        if let Some(request_id) = session.request_id.clone() {
            self.by_request.insert((session.principal, request_id), session.id);
        }
        self.by_id.insert(session.id, session.clone());
        session
    }

    /// The one that is open: one that closes is nobody's any more.
    fn find_named(&self, principal: Principal, name: Option<&str>) -> Option<Arc<Session>> {
        let name = name?;
        let is_it = |session: &&Arc<Session>| {
            session.principal == principal && session.name.as_deref() == Some(name) && !session.is_closing()
        };
        self.by_id.values().find(is_it).cloned()
    }

    fn find_existing(&self, principal: Principal, request_id: Option<&str>) -> Option<Arc<Session>> {
        let id = self.by_request.get(&(principal, request_id?.to_owned()))?;
        self.by_id.get(id).cloned()
    }
}

fn descriptor_count(session: &Session) -> u64 {
    SESSION_DESCRIPTORS + session.roots.len() as u64
}

fn prepare(
    policy: &PolicySet,
    governing: &Governing,
    peer: &Peer,
    new: NewSession,
) -> Result<Session, OpenError> {
    let owner_process = new_session::find_owner(peer, &new)?;
    let (owner, rights) = (Owner { uid: peer.principal.uid, gid: peer.gid }, peer.rights());
    let is_shared = |(_, profile): (_, &Arc<Profile>)| profile.filesystem.shared_workspaces;
    let ownership = match policy.profile(new.profile.as_deref()).is_some_and(is_shared) {
        true => Ownership::Anybodys,
        false => Ownership::Callers,
    };
    let workspace = workspace_roots::open(&new, &rights, governing, ownership)?;
    let cwd = match &new.cwd {
        Some(cwd) => rebase(cwd, &workspace.named),
        None => workspace.first,
    };
    let profile = check_session(policy, new.profile.as_deref(), &workspace.paths, &cwd, &new.env)?;
    let home = roots::home_of(rights.uid);
    let git_identity = home.as_ref().and_then(|home| git_identity::of(home, &rights));
    let shows_git = policy
        .profile(Some(profile.as_str()))
        .is_some_and(|(_, profile)| profile.git.identity && profile.git.configuration);
    let git_configuration =
        home.map(|home| match (git_configuration::of(&home, &rights, &workspace.paths), shows_git) {
            (read, true) => read,
            // Nothing to name where nothing is given.
            (read, false) => GitConfiguration { left_out: Vec::new(), ..read },
        });
    Ok(Session {
        id: SessionId::generate(),
        principal: peer.principal,
        owner,
        rights,
        roots: workspace.paths.into(),
        roles: workspace.open.iter().map(|root| root.role).collect(),
        named_roots: workspace.named,
        repository: workspace.repository,
        root_objects: workspace.open.iter().map(|root| real_path::object_of(&root.descriptor)).collect(),
        root_descriptors: workspace.open,
        lost_roots: Vec::new(),
        cwd,
        env: new.env.into(),
        labels: new.labels,
        front_end: new.front_end,
        profile: profile.to_string(),
        lifetime: new.lifetime,
        git_identity,
        git_configuration,
        ssh_agent: new.ssh_agent,
        owner_process,
        created_at: SystemTime::now(),
        request_id: new.request_id,
        toolchains: OnceLock::new(),
        caches: tokio::sync::OnceCell::new(),
        kept_caches: Default::default(),
        name: new.name,
        network: new.network,
        policy: policy.digest(),
        unused_since: UnusedSince::default(),
        sandboxes: Sandboxes::default(),
        networks: SessionNetworks::default(),
        files: Arc::default(),
        descriptors: OnceLock::new(),
        close_barrier: CloseBarrier::default(),
    })
}

#[cfg(test)]
mod tests;
