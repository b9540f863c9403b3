//! The sessions of a server: each is a client's, and stays for a while when the client's connection breaks.
//!
//! A session has one connection or none. Who resumes it has to name its id; what ends is ended at the gateway, with all that runs in it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

use super::{
    ExecServerOptions,
    errors::{ErrorCode, RpcError},
    open_session::OpenSession,
    session::ExecSession,
};
use crate::{client::RetryingClient, json_rpc::LineSender};

/// Sessions at once, those without a connection among them.
pub const SESSIONS_MAX: usize = 64;

/// What becomes of a session whose connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detachment {
    /// It ends.
    Ended,
    /// It ends after this time, if the client has not come back.
    Kept(Duration),
}

/// All sessions of this server.
#[derive(Debug)]
pub(super) struct Sessions {
    client: RetryingClient,
    options: ExecServerOptions,
    detachment: Detachment,
    places: Arc<Semaphore>,
    known: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    open: Arc<OpenSession>,
    /// Counts connections, so that a wait knows whether the client has been back.
    connection: u64,
    is_attached: bool,
    _place: OwnedSemaphorePermit,
}

/// A connection's hold on its session.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) open: Arc<OpenSession>,
    connection: u64,
}

impl Sessions {
    pub(super) fn new(client: RetryingClient, options: ExecServerOptions, detachment: Detachment) -> Self {
        Self {
            client,
            options,
            detachment,
            places: Arc::new(Semaphore::new(SESSIONS_MAX)),
            known: Mutex::default(),
        }
    }

    /// Opens a session for a connection.
    pub(super) async fn open(&self, client_name: &str, to: LineSender) -> Result<Attachment, RpcError> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| RpcError::too_many("sessions", SESSIONS_MAX))?;
        let session = ExecSession::open(self.client.clone(), &self.options, client_name).await?;
        let open = Arc::new(OpenSession::new(session, self.options.env_names.clone(), to));
        let entry = Entry { open: open.clone(), connection: 0, is_attached: true, _place: place };
        self.lock().insert(open.id().to_owned(), entry);
        Ok(Attachment { open, connection: 0 })
    }

    /// Takes up a session whose connection has ended.
    pub(super) fn resume(&self, id: &str, to: LineSender) -> Result<Attachment, RpcError> {
        let mut known = self.lock();
        let entry = known.get_mut(id).ok_or_else(|| {
            let problem = "resumeSessionId: there is no such session, or it has ended";
            RpcError::new(ErrorCode::InvalidRequest, "UNKNOWN_SESSION", problem)
        })?;
        if entry.is_attached {
            let problem = "resumeSessionId: the session has a connection";
            return Err(RpcError::new(ErrorCode::SessionAttached, "SESSION_ATTACHED", problem));
        }
        entry.is_attached = true;
        entry.connection += 1;
        entry.open.outlet.attach(to);
        tracing::info!(gateway.session = id, "the client has come back");
        Ok(Attachment { open: entry.open.clone(), connection: entry.connection })
    }

    /// The connection has ended. The session ends with it, or a while later.
    pub(super) async fn detach(self: &Arc<Self>, attachment: Attachment) {
        let Attachment { open, connection } = attachment;
        open.outlet.detach();
        let id = open.id().to_owned();
        drop(open);
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.is_attached = false;
        }
        match self.detachment {
            Detachment::Ended => self.close(&id, connection).await,
            Detachment::Kept(time) => {
                let sessions = self.clone();
                tokio::spawn(async move {
                    sleep(time).await;
                    sessions.close(&id, connection).await;
                });
            }
        }
    }

    /// Ends a session that its client is not given.
    pub(super) async fn abandon(&self, attachment: Attachment) {
        let Attachment { open, connection } = attachment;
        let id = open.id().to_owned();
        drop(open);
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.is_attached = false;
        }
        self.close(&id, connection).await;
    }

    /// Ends all sessions.
    pub(super) async fn close_all(&self) {
        let entries: Vec<Entry> = self.lock().drain().map(|(_, entry)| entry).collect();
        for entry in entries {
            entry.open.close().await;
        }
    }

    /// Ends a session, unless its client has been back since this connection.
    async fn close(&self, id: &str, connection: u64) {
        let entry = {
            let mut known = self.lock();
            match known.get(id) {
                Some(entry) if !entry.is_attached && entry.connection == connection => known.remove(id),
                Some(_) | None => None,
            }
        };
        if let Some(entry) = entry {
            entry.open.close().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.known.lock().expect("no code panics while it holds the sessions")
    }
}
