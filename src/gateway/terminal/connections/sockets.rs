//! Decides about connections to unix sockets of the host, and makes those that are allowed: as the caller, to the very file that was looked
//! at. The net process only carries them.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use ulid::Ulid;

use crate::{
    journal::{ConnectionRecord, Record, RecordedVerdict},
    network::socket_path::SocketPath,
    policy::{
        PolicySet,
        command::rule::Decision,
        connect::{Approved, SocketRequest},
        connect_decision::{ConnectDecision, SOCKET_RULE},
    },
    proto::net::{AboutHost, AboutOpen, Denied, Dial, Ended, Resolve, question::About, verdict::Verdict},
    sandbox::net_link::{ConnectionObserver as _, HostSocketError, Judged},
    session::Principal,
    terminal::connections::{
        attempt::{Wanted, principal, record},
        connections::{BYTES_RULE, Connections, JOURNAL_RULE},
        questions::AskedPlace,
    },
};

/// How long the file system of a socket, and its listener, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Connections {
    /// Answers a question about a socket of the host.
    pub(in crate::terminal) async fn decide_socket(
        &self,
        wanted: Wanted<'_>,
        about: Option<About>,
    ) -> Judged {
        let path = match SocketPath::parse_connection(&wanted.attempt.host) {
            Some(Ok(path)) => path,
            Some(Err(error)) => return self.deny(wanted, SOCKET_RULE, &error.to_string(), None).await.into(),
            None => return self.deny(wanted, SOCKET_RULE, "it names no socket", None).await.into(),
        };
        let policy = self.policy.current();
        let (principal, text) = (principal(wanted.owner), path.to_string());
        let grant = self.grants.find(&wanted.attempt.approval, (&wanted.owner.sandbox_id, &text));
        let approved = grant.as_ref().map(|grant| grant.approved_under(policy.generation()));
        let request = SocketRequest {
            principal: &principal,
            profile: &wanted.owner.profile,
            path: &path,
            program: wanted.program,
            is_approved: approved.is_some_and(|approved| approved != Approved::Nothing),
        };
        match about {
            Some(About::Host(AboutHost { bytes_left })) => {
                if let Some(reason) = self.bytes_are_spent(wanted.owner, bytes_left) {
                    return self.deny(wanted, BYTES_RULE, &reason, None).await.into();
                }
                self.judge_socket(wanted, &policy, &request).await
            }
            Some(About::Open(AboutOpen { connection_id, .. })) => {
                let decided = policy.connect_socket(&request);
                let stays = match decided.decision {
                    Decision::Allow => true,
                    Decision::Ask => grant.is_some(),
                    Decision::Deny => false,
                };
                match stays {
                    true => Verdict::Resolve(Resolve::default()).into(),
                    false => self.close(wanted, &connection_id, &decided, None::<IpAddr>).await.into(),
                }
            }
            // Nothing else is asked about a socket.
            None
            | Some(
                About::Addresses(_)
                | About::Disagreement(_)
                | About::Name(_)
                | About::BadRequest(_)
                | About::Bytes(_),
            ) => self.deny(wanted, SOCKET_RULE, "a socket has no names and no requests", None).await.into(),
        }
    }

    async fn judge_socket(
        &self,
        wanted: Wanted<'_>,
        policy: &PolicySet,
        request: &SocketRequest<'_>,
    ) -> Judged {
        let mut decided = policy.connect_socket(request);
        let mut approval = String::new();
        if decided.decision == Decision::Ask {
            match self.ask(wanted, (policy, &AskedPlace::from(request.path)), &decided, &[]).await {
                Ok(word) => approval = word,
                Err(reason) => return self.deny(wanted, decided.reason.rule(), &reason, None).await.into(),
            }
            decided = policy.connect_socket(&SocketRequest { is_approved: true, ..*request });
        }
        match decided.decision {
            Decision::Allow => self.connect_socket(wanted, (policy, request.path), &decided, approval).await,
            Decision::Ask | Decision::Deny => self.deny_by(wanted, &decided, None).await.into(),
        }
    }

    /// Looks at the socket, writes down what is allowed, and then connects. It looks first, because a connection
    /// that is written down and then cannot be made needs a refusal and an end as well.
    async fn connect_socket(
        &self,
        wanted: Wanted<'_>,
        (policy, path): (&PolicySet, &SocketPath),
        by: &ConnectDecision,
        approval: String,
    ) -> Judged {
        let Some(session) = self.session(wanted.owner) else {
            return self.deny(wanted, SOCKET_RULE, "no command of the session runs", None).await.into();
        };
        if self.can_be_replaced(wanted, path) {
            let reason = "it is below a root in which commands write, who can put another one in its place";
            return self.deny(wanted, SOCKET_RULE, reason, None).await.into();
        }
        let (caller, path, governing) = (session.host_socket_caller(), path.clone(), self.governing.clone());
        let socket = match self.on_callers_files(wanted, move || caller.find(&path, &governing)).await {
            Ok(socket) => socket,
            Err(reason) => return self.deny(wanted, SOCKET_RULE, &reason, None).await.into(),
        };
        let id = Ulid::generate().to_string();
        let record = Record::Connection(ConnectionRecord {
            verdict: RecordedVerdict::Allow,
            rule: Some(by.reason.rule().to_owned()),
            connection: Some(id.clone()),
            observed: by.observed.clone(),
            ..record(wanted)
        });
        self.counters.connections_allowed.inc();
        if self.recorder.record_all_within_share(&[record]).await.is_err() {
            let reason = "the journal cannot be written".to_owned();
            return Verdict::Denied(Denied { rule: JOURNAL_RULE.to_owned(), reason }).into();
        }
        let began = Instant::now();
        match self.on_callers_files(wanted, move || socket.connect()).await {
            Ok(connection) => {
                let dial = Dial {
                    connection_id: id,
                    any_protocol: true,
                    approval,
                    is_counted: self.max_bytes(wanted.owner).is_some(),
                    generation: policy.generation(),
                    is_connected: true,
                    ..Dial::default()
                };
                Judged { verdict: Verdict::Dial(dial), connection: Some(connection) }
            }
            Err(reason) => self.end_socket(wanted, id, &reason, began).await.into(),
        }
    }

    /// Whether commands of the caller's sessions may have given a socket its name. Which one has which is what rules are about.
    fn can_be_replaced(&self, wanted: Wanted<'_>, path: &SocketPath) -> bool {
        let terminals = self.registry.list(Principal { uid: wanted.owner.uid }, None);
        let mut roots = terminals.iter().flat_map(|terminal| terminal.session.writable_roots());
        roots.any(|root| path.as_path().starts_with(root.as_path()))
    }

    /// Work on the file system of a socket. The text of an error.
    async fn on_callers_files<T: Send + 'static>(
        &self,
        wanted: Wanted<'_>,
        work: impl FnOnce() -> Result<T, HostSocketError> + Send + 'static,
    ) -> Result<T, String> {
        match self.pool.run(wanted.owner.uid, CONNECT_TIMEOUT, work).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What was allowed has failed: it is refused after all, and ends.
    async fn end_socket(&self, wanted: Wanted<'_>, id: String, failure: &str, began: Instant) -> Verdict {
        let refused = self.deny_allowed(wanted, &id, (SOCKET_RULE, failure), None).await;
        let ended = Ended {
            attempt: Some(wanted.attempt.clone()),
            connection_id: id,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            failure: failure.to_owned(),
            ..Ended::default()
        };
        self.ended(wanted.owner, ended, wanted.terminal.map(|terminal| terminal.id.to_string()));
        refused
    }
}
