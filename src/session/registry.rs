//! All sessions of the gateway.
//!
//! A session exists only for the principal that opened it: for anybody else its id is one that never was.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::SystemTime,
};

use super::{
    Lifetime, Peer, Principal, Session, SessionId,
    sandboxes::Sandboxes,
    session::{Gate, rebase},
};
use crate::{
    policy::{AbsPath, Denial, PolicySet, environment::Entry, judge_session},
    sandbox::{
        roots::{self, RootError},
        spec::Owner,
    },
};

/// A session to be opened; every field checked for form.
#[derive(Debug)]
pub struct NewSession {
    /// At least one.
    pub roots: Vec<AbsPath>,
    /// Absent: the first root.
    pub cwd: Option<AbsPath>,
    /// No name twice.
    pub env: Vec<Entry>,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// Absent: the policy's default.
    pub profile: Option<String>,
    /// When it ends by itself.
    pub lifetime: Lifetime,
    /// Makes a repeated request answer with the first session.
    pub request_id: Option<String>,
}

/// Why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Policy refuses it.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// A root cannot be used: its place in the list, and why.
    #[error("roots[{0}]")]
    Root(usize, #[source] RootError),
    /// A root's own name, without links, is no text.
    #[error("roots[{0}] leads to a folder whose name is not text")]
    RootName(usize),
    /// The session is to end with its owner's process, and the kernel does not tell which one that is.
    #[error("the calling process is not known, so the session cannot end with it")]
    NoOwnerProcess,
    /// The gateway is going down.
    #[error("the gateway is draining")]
    Draining,
    /// The principal has as many sessions as it may.
    #[error("{0} sessions are open, the most that one principal may have")]
    TooMany(u32),
}

/// What opening did.
#[derive(Debug)]
pub enum Opened {
    /// A new session.
    New(Arc<Session>),
    /// The session that the same request had opened before.
    Before(Arc<Session>),
}

/// The table of sessions.
#[derive(Debug)]
pub struct Sessions {
    state: PathBuf,
    per_principal_max: u32,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: BTreeMap<SessionId, Arc<Session>>,
    by_request: HashMap<(Principal, String), SessionId>,
}

impl Sessions {
    /// An empty table. `state` is the gateway's own folder, which no session may work in.
    pub fn new(state: PathBuf, per_principal_max: u32) -> Self {
        Self { state, per_principal_max, table: Mutex::default() }
    }

    /// Opens a session for the caller.
    pub fn open(&self, policy: &PolicySet, peer: &Peer, new: NewSession) -> Result<Opened, OpenError> {
        if let Some(session) = self.opened_before(peer.principal, new.request_id.as_deref()) {
            return Ok(Opened::Before(session));
        }
        let session = Arc::new(prepare(policy, &self.state, peer, new)?);
        let mut table = self.lock();
        // Another request with the same id may have been faster.
        if let Some(first) = table.opened_before(peer.principal, session.request_id.as_deref()) {
            return Ok(Opened::Before(first));
        }
        let open = table.by_id.values().filter(|other| other.principal == peer.principal).count();
        if open >= self.per_principal_max as usize {
            return Err(OpenError::TooMany(self.per_principal_max));
        }
        if let Some(request_id) = session.request_id.clone() {
            table.by_request.insert((peer.principal, request_id), session.id);
        }
        table.by_id.insert(session.id, session.clone());
        tracing::info!(session.id = %session.id, principal = %session.principal, "session opened");
        Ok(Opened::New(session))
    }

    /// The caller's session of that id. `None` for a malformed, unknown or foreign one, without a difference.
    pub fn find(&self, principal: Principal, id: &str) -> Option<Arc<Session>> {
        let id = SessionId::parse(id)?;
        self.lock().by_id.get(&id).filter(|session| session.principal == principal).cloned()
    }

    /// The caller's sessions, oldest first.
    pub fn list(&self, principal: Principal) -> Vec<Arc<Session>> {
        self.lock().by_id.values().filter(|session| session.principal == principal).cloned().collect()
    }

    /// All sessions.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Takes a session out of the table: its id is unknown from here on.
    pub fn remove(&self, session: &Session) {
        let mut table = self.lock();
        table.by_id.remove(&session.id);
        if let Some(request_id) = &session.request_id {
            table.by_request.remove(&(session.principal, request_id.clone()));
        }
        tracing::info!(session.id = %session.id, "session closed");
    }

    fn opened_before(&self, principal: Principal, request_id: Option<&str>) -> Option<Arc<Session>> {
        self.lock().opened_before(principal, request_id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().expect("no code panics while it holds the table of sessions")
    }
}

impl Table {
    fn opened_before(&self, principal: Principal, request_id: Option<&str>) -> Option<Arc<Session>> {
        let id = self.by_request.get(&(principal, request_id?.to_owned()))?;
        self.by_id.get(id).cloned()
    }
}

fn prepare(policy: &PolicySet, state: &Path, peer: &Peer, new: NewSession) -> Result<Session, OpenError> {
    if new.lifetime == Lifetime::OwnerProcess && peer.process.is_none() {
        return Err(OpenError::NoOwnerProcess);
    }
    let owner = Owner { uid: peer.principal.uid, gid: peer.gid };
    let mut roots = Vec::with_capacity(new.roots.len());
    let mut root_descriptors = Vec::with_capacity(new.roots.len());
    for (index, root) in new.roots.iter().enumerate() {
        let opened =
            roots::open(root.as_path(), owner, state).map_err(|error| OpenError::Root(index, error))?;
        let name = opened.path.to_str().and_then(|name| AbsPath::parse(name).ok());
        roots.push(name.ok_or(OpenError::RootName(index))?);
        root_descriptors.push(opened);
    }
    let cwd = match &new.cwd {
        Some(cwd) => rebase(cwd, &new.roots, &roots),
        None => roots[0].clone(),
    };
    let profile = judge_session(policy, new.profile.as_deref(), &roots, &cwd, &new.env)?;
    Ok(Session {
        id: SessionId::generate(),
        principal: peer.principal,
        owner,
        roots: roots.into(),
        named_roots: new.roots,
        root_descriptors,
        cwd,
        env: new.env.into(),
        labels: new.labels,
        profile: profile.to_string(),
        lifetime: new.lifetime,
        created_at: SystemTime::now(),
        request_id: new.request_id,
        sandboxes: Sandboxes::default(),
        gate: Gate::default(),
    })
}
