//! Decides about the connections of sandboxes with the network `proxy`, by the policy in force at that moment: those that are to be made,
//! and whether those that are open stay so.
//!
//! A denial is in the journal before it is answered, and so is a connection before it is dialled. What cannot be written down is
//! refused. Before a request is given a secret, its value is masked in what the commands write that may get it back: the file of a secret may
//! have changed since a command began, and the server may say the new value again.

use std::{net::IpAddr, sync::Arc, time::SystemTime};

use futures_util::{FutureExt as _, future::BoxFuture};
use ulid::Ulid;

use crate::{
    journal::{ConnectionEndedRecord, ConnectionRecord, Record, RecordedVerdict},
    network::{
        destination::{Destination, Host},
        name::HostName,
    },
    policy::{
        ActivePolicy, PolicySet,
        command::rule::Decision,
        connect::{Approved, ConnectRequest, ConnectRule, ConnectingProgram, DialTarget, Tunnel},
        connect_decision::{AGREEMENT_RULE, ConnectDecision, ConnectReason, NAME_RULE},
        profile::{Network, OnReload},
    },
    pool::Pool,
    printable,
    proto::{
        net::{
            AboutHost, AboutOpen, Attempt, BadRequest, Bytes, Denied, Dial, Disagreement, Ended, Ports,
            Protocol, Question, Resolve, question::About, verdict::Verdict,
        },
        v1::ConnectDenial,
    },
    sandbox::{
        net_link::{Asker, Authorities, ConnectionObserver, ConnectionOrigin, Judged, NetOwner},
        roots::governing::Governing,
    },
    session::{Principal, Session, SessionId},
    terminal::{
        connections::{
            attempt::{
                ConnectBytes, OPENED_TLS, OpenConnection, Wanted, bounded, http_request, port, principal,
                record,
            },
            questions::{
                Answered, AskedPlace, ConnectGrant, ConnectGrants, ConnectQuestion, ConnectQuestions,
            },
            tls::{self, CREDENTIAL_RULE},
        },
        counters::TerminalCounters,
        recorder::Recorder,
        registry::Registry,
        secrets::redactor::KnownSecrets,
        spec::TerminalId,
        state::Terminal,
    },
};

/// The names of denials that no rule of a file makes.
const REQUEST_RULE: &str = "network.request";
pub(in crate::terminal) const JOURNAL_RULE: &str = "network.journal";
pub(in crate::terminal) const BYTES_RULE: &str = "network.max_bytes";
const REASON_MAX_BYTES: usize = 1_024;
/// The most addresses of a name that are looked at.
const ADDRESSES_MAX: usize = 64;
/// The most of them that a person is asked about at once.
const ASKED_ADDRESSES_MAX: usize = 4;

/// Decides about the connections of all sandboxes of a gateway.
#[derive(Debug)]
pub(in crate::terminal) struct Connections {
    pub(in crate::terminal) registry: Arc<Registry>,
    pub(in crate::terminal) recorder: Recorder,
    pub(in crate::terminal) policy: Arc<ActivePolicy>,
    pub(in crate::terminal) counters: Arc<TerminalCounters>,
    pub(in crate::terminal) questions: ConnectQuestions,
    pub(in crate::terminal) grants: ConnectGrants,
    pub(in crate::terminal) bytes: ConnectBytes,
    pub(in crate::terminal) known_secrets: Arc<KnownSecrets>,
    pub(in crate::terminal) authorities: Arc<Authorities>,
    /// Threads for callers' file systems, on which sockets of the host are.
    pub(in crate::terminal) pool: Arc<Pool>,
    pub(in crate::terminal) governing: Arc<Governing>,
}

impl ConnectionObserver for Connections {
    fn judge<'a>(
        &'a self,
        owner: &'a NetOwner,
        question: Question,
        origin: ConnectionOrigin,
        asker: &'a Asker,
    ) -> BoxFuture<'a, Judged> {
        async move {
            let attempt = question.attempt.unwrap_or_default();
            let ConnectionOrigin { terminal, program } = origin;
            if self.resolves_for_any_program(owner, &attempt, question.about.as_ref()) {
                return Verdict::Resolve(Resolve::default()).into();
            }
            let program = program.await;
            let terminal = self.terminal(owner, terminal.as_deref());
            let path = match attempt.path.is_empty() {
                true => String::new(),
                false => self.known_secrets.redactor(&self.policy.current()).redact_text(&attempt.path),
            };
            let (terminal, program) = (terminal.as_ref(), &program);
            let wanted = Wanted { owner, attempt: &attempt, path: &path, terminal, program, asker };
            match attempt.protocol() {
                Protocol::Unix => self.decide_socket(wanted, question.about).await,
                Protocol::Unspecified
                | Protocol::Connect
                | Protocol::Http
                | Protocol::Socks
                | Protocol::Transparent
                | Protocol::Dns => self.decide(wanted, question.about).await.into(),
            }
        }
        .boxed()
    }

    fn judges_open(&self, owner: &NetOwner) -> Option<u64> {
        self.closes_on_reload(owner)
    }

    fn ended(&self, owner: &NetOwner, ended: Ended, terminal: Option<String>) {
        let attempt = ended.attempt.unwrap_or_default();
        self.counters.connection_bytes_sent.add(ended.sent_bytes);
        self.counters.connection_bytes_received.add(ended.received_bytes);
        let record = Record::ConnectionEnded(ConnectionEndedRecord {
            session: owner.session_id.clone(),
            principal: principal(owner),
            sandbox: owner.sandbox_id.clone(),
            terminal,
            connection: Ulid::from_string(&ended.connection_id).ok().map(|id| id.to_string()),
            host: bounded(&attempt.host),
            port: port(&attempt),
            address: ended.address.parse::<IpAddr>().ok().map(|address| address.to_string()),
            sent_bytes: ended.sent_bytes,
            received_bytes: ended.received_bytes,
            duration_ms: ended.duration_ms,
            failure: bounded(&ended.failure),
        });
        self.recorder.record_or_count(&record);
    }
}

impl Connections {
    /// Whether a name may be resolved, and no rule depends on the program. Who that is need not be known before the connection is written
    /// down, and is looked for meanwhile.
    fn resolves_for_any_program(&self, owner: &NetOwner, attempt: &Attempt, about: Option<&About>) -> bool {
        let Some(About::Host(AboutHost { bytes_left })) = about else { return false };
        let http = http_request(attempt);
        let (Ok(host), port @ 1.., None | Some(Ok(_))) = (Host::parse(&attempt.host), port(attempt), &http)
        else {
            return false;
        };
        let (policy, principal) = (self.policy.current(), principal(owner));
        if attempt.protocol() == Protocol::Unix
            || policy.has_program_rules(&principal, &owner.profile)
            || self.bytes_are_spent(owner, *bytes_left).is_some()
        {
            return false;
        }
        let request = ConnectRequest {
            principal: &principal,
            profile: &owner.profile,
            destination: &Destination { host, port },
            http: http.as_ref().and_then(|read| read.as_ref().ok()),
            program: &ConnectingProgram::Unknown,
            approved: Approved::Nothing,
        };
        policy.connect_name(&request).decision == Decision::Allow
    }

    async fn decide(&self, wanted: Wanted<'_>, about: Option<About>) -> Verdict {
        if let Some(About::Bytes(_)) = about {
            return self.allow_bytes(wanted.owner);
        }
        let parsed = Host::parse(&wanted.attempt.host);
        if let Some(About::BadRequest(BadRequest { problem })) = about {
            return self.deny(wanted, REQUEST_RULE, &bounded(&problem), None).await;
        }
        if let Some(About::Name(_)) = about {
            return match parsed {
                Ok(Host::Name(name)) => self.ports(wanted, &name).await,
                Ok(Host::Address(_)) => self.deny(wanted, NAME_RULE, "it is an address", None).await,
                Err(error) => self.deny(wanted, NAME_RULE, &error.to_string(), None).await,
            };
        }
        let (host, port) = match (parsed, port(wanted.attempt)) {
            (Ok(host), port @ 1..) => (host, port),
            (Err(error), _) => return self.deny(wanted, NAME_RULE, &error.to_string(), None).await,
            (Ok(_), 0) => return self.deny(wanted, NAME_RULE, "it has no port from 1 to 65535", None).await,
        };
        let destination = Destination { host, port };
        let policy = self.policy.current();
        let principal = principal(wanted.owner);
        let place = (&*wanted.owner.sandbox_id, &*destination.to_string());
        let grant = self.grants.find(&wanted.attempt.approval, place);
        let http = http_request(wanted.attempt);
        let request = ConnectRequest {
            principal: &principal,
            profile: &wanted.owner.profile,
            destination: &destination,
            http: http.as_ref().and_then(|read| read.as_ref().ok()),
            program: wanted.program,
            approved: grant.as_ref().map_or(Approved::Nothing, |one| one.approved_under(policy.generation())),
        };
        if let Some(Err(error)) = &http
            && policy.connect_name(&request).requests_only
        {
            return self.deny(wanted, REQUEST_RULE, &error.to_string(), None).await;
        }
        match about {
            // Names, bytes and bad requests are answered above.
            None | Some(About::Host(_) | About::Name(_) | About::Bytes(_) | About::BadRequest(_)) => {
                let left = if let Some(About::Host(host)) = &about { host.bytes_left } else { 0 };
                if let Some(reason) = self.bytes_are_spent(wanted.owner, left) {
                    return self.deny(wanted, BYTES_RULE, &reason, None).await;
                }
                let decided = policy.connect_name(&request);
                match decided.decision {
                    Decision::Allow => Verdict::Resolve(Resolve::default()),
                    Decision::Deny => self.deny_by(wanted, &decided, None).await,
                    // Before anything of the name leaves the host.
                    Decision::Ask => {
                        match self.ask(wanted, (&policy, &(&destination).into()), &decided, &[]).await {
                            Ok(approval) => Verdict::Resolve(Resolve { approval }),
                            Err(reason) => self.deny(wanted, decided.reason.rule(), &reason, None).await,
                        }
                    }
                }
            }
            Some(About::Addresses(asked)) => {
                let targets = asked.addresses.iter().take(ADDRESSES_MAX).filter_map(|one| {
                    Some(DialTarget { address: one.address.parse().ok()?, is_hosts_own: one.is_hosts_own })
                });
                self.choose(wanted, &policy, &request, &targets.collect::<Vec<_>>()).await
            }
            Some(About::Open(AboutOpen { connection_id, address })) => {
                let open =
                    OpenConnection { id: &connection_id, address: address.as_ref(), grant: grant.as_ref() };
                self.judge_open(wanted, (&policy, &request), open).await
            }
            Some(About::Disagreement(Disagreement { found, connection_id: _ })) => {
                let reason = format!("{}; the connection is for {}", bounded(&found), destination.host);
                self.deny(wanted, AGREEMENT_RULE, &reason, None).await
            }
        }
    }

    /// What a name may be used for. Only a denial is written down: a name is nothing before it is connected to.
    async fn ports(&self, wanted: Wanted<'_>, name: &HostName) -> Verdict {
        let policy = self.policy.current();
        let decided = policy.connect_ports(&principal(wanted.owner), &wanted.owner.profile, name);
        match decided {
            Ok(ports) => Verdict::Ports(Ports { ports: ports.into_iter().map(u32::from).collect() }),
            Err(decided) => self.deny_by(wanted, &decided, None).await,
        }
    }

    /// The addresses that may be dialled, or the first reason why none may.
    async fn choose(
        &self,
        wanted: Wanted<'_>,
        policy: &PolicySet,
        request: &ConnectRequest<'_>,
        targets: &[DialTarget],
    ) -> Verdict {
        let judge = |request: &ConnectRequest<'_>| -> Vec<_> {
            targets.iter().map(|target| (target.address, policy.connect_address(request, *target))).collect()
        };
        let mut decided = judge(request);
        let mut approval = String::new();
        let is = |wanted: Decision| move |one: &&(IpAddr, ConnectDecision)| one.1.decision == wanted;
        if !decided.iter().any(|one| is(Decision::Allow)(&one))
            && let Some((first, by)) = decided.iter().find(is(Decision::Ask))
        {
            let asked = decided.iter().filter(is(Decision::Ask)).take(ASKED_ADDRESSES_MAX);
            let asked: Vec<IpAddr> = asked.map(|(address, _)| *address).collect();
            match self.ask(wanted, (policy, &request.destination.into()), by, &asked).await {
                Ok(word) => approval = word,
                Err(reason) => return self.deny(wanted, by.reason.rule(), &reason, Some(*first)).await,
            }
            decided = judge(&ConnectRequest { approved: Approved::Addresses(&asked), ..*request });
        }
        let mut allowed: Vec<&(IpAddr, ConnectDecision)> =
            decided.iter().filter(|(_, decided)| decided.decision == Decision::Allow).collect();
        let Some((first, by)) = allowed.first() else {
            return match decided.first() {
                Some((address, by)) => self.deny_by(wanted, by, Some(*address)).await,
                None => self.deny(wanted, NAME_RULE, "it has no address", None).await,
            };
        };
        // A secret is for the addresses of its rule, and so is what verifies the server.
        allowed.retain(|(_, one)| one.credentials == by.credentials && one.authorities == by.authorities);
        let signing = (policy, &self.authorities, &*wanted.owner.session_id);
        let tls = match tls::parts(signing, wanted.attempt, request, by).await {
            Ok(tls) => tls,
            Err((rule, reason)) => return self.deny(wanted, rule, &reason, Some(*first)).await,
        };
        if let Err(reason) = self.mask_values(wanted, &tls.values) {
            return self.deny(wanted, CREDENTIAL_RULE, &reason, Some(*first)).await;
        }
        let id = Ulid::generate().to_string();
        let opened = wanted.attempt.in_opened_tls || tls.certificate.is_some();
        let record = Record::Connection(ConnectionRecord {
            verdict: RecordedVerdict::Allow,
            tls: if opened { OPENED_TLS.to_owned() } else { String::new() },
            secrets: tls.secrets,
            rule: Some(by.reason.rule().to_owned()),
            address: Some(first.to_string()),
            connection: Some(id.clone()),
            observed: by.observed.clone(),
            ..record(wanted)
        });
        self.counters.connections_allowed.inc();
        if self.recorder.record_all_within_share(&[record]).await.is_err() {
            let reason = "the journal cannot be written";
            return Verdict::Denied(Denied { rule: JOURNAL_RULE.to_owned(), reason: reason.to_owned() });
        }
        Verdict::Dial(Dial {
            addresses: allowed
                .iter()
                .map(|(address, _)| crate::network::address::dialled(*address).to_string())
                .collect(),
            connection_id: id,
            any_protocol: allowed.iter().all(|(_, by)| by.tunnel == Tunnel::Any && !by.requests_only),
            requests_only: by.requests_only,
            approval,
            is_counted: self.max_bytes(wanted.owner).is_some(),
            generation: policy.generation(),
            opens_tls: tls.certificate,
            headers: tls.headers,
            is_connected: false,
            trusted_roots: tls.trusted_roots.into_iter().map(Into::into).collect(),
        })
    }

    pub(in crate::terminal) async fn deny_by(
        &self,
        wanted: Wanted<'_>,
        decided: &ConnectDecision,
        address: Option<IpAddr>,
    ) -> Verdict {
        let (rule, reason) = (decided.reason.rule(), decided.reason.text());
        self.deny_as(wanted, (rule, &reason), address, decided.requests_only).await
    }

    pub(in crate::terminal) async fn deny(
        &self,
        wanted: Wanted<'_>,
        rule: &str,
        reason: &str,
        address: Option<IpAddr>,
    ) -> Verdict {
        self.deny_as(wanted, (rule, reason), address, false).await
    }

    /// `is_of_request`: the rules for the host are about single requests, and this one is refused.
    async fn deny_as(
        &self,
        wanted: Wanted<'_>,
        (rule, reason): (&str, &str),
        address: Option<IpAddr>,
        is_of_request: bool,
    ) -> Verdict {
        let reason = printable::truncate(reason, REASON_MAX_BYTES).to_owned();
        self.count_denial(wanted, rule, &reason, is_of_request);
        let record = Record::Connection(ConnectionRecord {
            rule: Some(rule.to_owned()),
            reason: reason.clone(),
            address: address.map(|address| address.to_string()),
            ..record(wanted)
        });
        // It is refused all the same when it cannot be written.
        let _ = self.recorder.record_denial(&record).await;
        Verdict::Denied(Denied { rule: rule.to_owned(), reason })
    }

    /// Counts a denial, for its terminal too: of a request, or of the connection.
    pub(in crate::terminal) fn count_denial(
        &self,
        wanted: Wanted<'_>,
        rule: &str,
        reason: &str,
        is_of_request: bool,
    ) {
        self.counters.connections_denied.inc();
        let of_request = |part| if is_of_request { part } else { "" };
        if let Some(terminal) = wanted.terminal {
            terminal.denials.connections.count(ConnectDenial {
                host: bounded(&wanted.attempt.host),
                port: port(wanted.attempt).into(),
                rule: rule.to_owned(),
                reason: reason.to_owned(),
                method: bounded(of_request(&wanted.attempt.method)),
                path: bounded(of_request(wanted.path)),
                denied_at: Some(SystemTime::now().into()),
            });
        }
    }

    /// A terminal of the sandbox's session.
    fn terminal(&self, owner: &NetOwner, id: Option<&str>) -> Option<Arc<Terminal>> {
        let terminal = TerminalId::parse(id?).and_then(|id| self.registry.get(id))?;
        (terminal.session.id.to_string() == owner.session_id).then_some(terminal)
    }
}

impl Connections {
    /// Waits for a person's answer. The word for a yes, or why there is none.
    pub(in crate::terminal) async fn ask(
        &self,
        wanted: Wanted<'_>,
        (policy, place): (&PolicySet, &AskedPlace),
        by: &ConnectDecision,
        addresses: &[IpAddr],
    ) -> Result<String, String> {
        let sandbox = wanted.owner.sandbox_id.clone();
        let asking = policy.connect_rules().iter().find(|rule| rule.id == by.reason.rule());
        let request = match asking.is_some_and(ConnectRule::is_about_requests) {
            true => format!("{} {}", bounded(&wanted.attempt.method), bounded(wanted.path)),
            false => String::new(),
        };
        let question = ConnectQuestion {
            sandbox: sandbox.clone(),
            terminals: self.asking_terminals(wanted),
            host: place.host.clone(),
            port: place.port,
            addresses: addresses.to_vec(),
            request,
            rule: by.reason.rule().to_owned(),
            reason: match &by.reason {
                ConnectReason::Rule(_, Some(reason)) => reason.clone(),
                ConnectReason::Rule(_, None)
                | ConnectReason::Default
                | ConnectReason::NotPublic(..)
                | ConnectReason::HiddenRequests
                | ConnectReason::SocketNotLetIn => String::new(),
            },
            generation: policy.generation(),
            record: Record::Connection(ConnectionRecord {
                verdict: RecordedVerdict::Ask,
                rule: Some(by.reason.rule().to_owned()),
                address: addresses.first().map(ToString::to_string),
                ..record(wanted)
            }),
        };
        match self.questions.ask(question, wanted.asker).await {
            Answered::Refused(reason) => Err(reason),
            // It was for another policy.
            Answered::Approved if self.policy.current().generation() != policy.generation() => {
                Err("the policy was replaced while it waited for a person".to_owned())
            }
            Answered::Approved => Ok(self.grants.give(ConnectGrant {
                sandbox,
                destination: place.text.clone(),
                generation: policy.generation(),
                addresses: addresses.to_vec(),
            })),
        }
    }

    /// The terminal of a connection; where it is not known, all that run in its session: it may be of any of them.
    fn asking_terminals(&self, wanted: Wanted<'_>) -> Vec<Arc<Terminal>> {
        match wanted.terminal {
            Some(terminal) => vec![terminal.clone()],
            None => self.running_terminals(wanted),
        }
    }
}

impl Connections {
    /// The generation of the policy, if the profile has connections closed that it does not allow.
    pub(in crate::terminal) fn closes_on_reload(&self, owner: &NetOwner) -> Option<u64> {
        let policy = self.policy.current();
        let (_, profile) = policy.profile(Some(&owner.profile))?;
        (profile.network.on_reload == OnReload::Close).then(|| policy.generation())
    }

    /// Whether an open connection stays open. One that a person has approved does where a rule only asks.
    pub(in crate::terminal) async fn judge_open(
        &self,
        wanted: Wanted<'_>,
        (policy, request): (&PolicySet, &ConnectRequest<'_>),
        OpenConnection { id, address, grant }: OpenConnection<'_>,
    ) -> Verdict {
        let target = address.and_then(|one| {
            Some(DialTarget { address: one.address.parse().ok()?, is_hosts_own: one.is_hosts_own })
        });
        let stays = |decided: &ConnectDecision| match decided.decision {
            Decision::Allow => true,
            Decision::Ask => grant.is_some(),
            Decision::Deny => false,
        };
        let by_name = policy.connect_name(request);
        if !stays(&by_name) {
            return self.close(wanted, id, &by_name, target.map(|target| target.address)).await;
        }
        let Some(target) = target else { return Verdict::Denied(Denied::default()) };
        let by_address = policy.connect_address(request, target);
        match stays(&by_address) {
            true => Verdict::Resolve(Resolve::default()),
            false => self.close(wanted, id, &by_address, Some(target.address)).await,
        }
    }

    pub(in crate::terminal) async fn close(
        &self,
        wanted: Wanted<'_>,
        connection: &str,
        by: &ConnectDecision,
        address: Option<IpAddr>,
    ) -> Verdict {
        self.deny_allowed(wanted, connection, (by.reason.rule(), &by.reason.text()), address).await
    }

    /// Denies what was allowed before.
    pub(in crate::terminal) async fn deny_allowed(
        &self,
        wanted: Wanted<'_>,
        connection: &str,
        (rule, reason): (&str, &str),
        address: Option<IpAddr>,
    ) -> Verdict {
        let (rule, reason) = (rule.to_owned(), reason.to_owned());
        self.count_denial(wanted, &rule, &reason, false);
        let record = Record::Connection(ConnectionRecord {
            rule: Some(rule.clone()),
            reason: reason.clone(),
            address: address.map(|address| address.to_string()),
            connection: ulid::Ulid::from_string(connection).ok().map(|id| id.to_string()),
            ..record(wanted)
        });
        // It is closed all the same when that cannot be written.
        let _ = self.recorder.record_denial(&record).await;
        Verdict::Denied(Denied { rule, reason })
    }

    /// The bytes that the connections of a session may carry; `None`: any number.
    pub(in crate::terminal) fn max_bytes(&self, owner: &NetOwner) -> Option<u64> {
        self.policy.current().profile(Some(&owner.profile))?.1.network.max_bytes
    }

    /// Some more bytes for the connections of a sandbox.
    pub(in crate::terminal) fn allow_bytes(&self, owner: &NetOwner) -> Verdict {
        // As many as may be asked for at once, where the policy does not bound them any more.
        let more = match (self.max_bytes(owner), self.session(owner)) {
            (max_bytes, Some(session)) => self.bytes.allow(&session, max_bytes.unwrap_or(u64::MAX)),
            (_, None) => None,
        };
        match more {
            Some(count) => Verdict::Bytes(Bytes { count }),
            None => Verdict::Denied(Denied { rule: BYTES_RULE.to_owned(), reason: String::new() }),
        }
    }

    /// Why another connection may not be made; `None`: it may.
    pub(in crate::terminal) fn bytes_are_spent(&self, owner: &NetOwner, left: u64) -> Option<String> {
        let max_bytes = self.max_bytes(owner)?;
        let session = SessionId::parse(&owner.session_id)?;
        (!self.bytes.has_more(session, max_bytes, left))
            .then(|| format!("the session has carried all of its {max_bytes} bytes"))
    }

    /// The session, while a terminal of it is there.
    pub(in crate::terminal) fn session(&self, owner: &NetOwner) -> Option<Arc<Session>> {
        let id = SessionId::parse(&owner.session_id)?;
        let terminals = self.registry.list(Principal { uid: owner.uid }, Some(id));
        terminals.first().map(|terminal| terminal.session.clone())
    }
}

impl Connections {
    /// Masks these values in the output of all commands of the session that can reach the proxy: a request says which terminal it belongs
    /// to, and any of them can say another. An error says why that is not possible: the request is refused then.
    pub(in crate::terminal) fn mask_values(
        &self,
        wanted: Wanted<'_>,
        values: &[Vec<u8>],
    ) -> Result<(), String> {
        if values.is_empty() {
            return Ok(());
        }
        for terminal in self.running_terminals(wanted) {
            let spec = &terminal.spec;
            // Commands of another profile have another loopback.
            let can_ask =
                spec.network == Network::Proxy.name() && spec.profile.as_str() == wanted.owner.profile;
            let Some(live) = terminal.live().filter(|_| can_ask) else { continue };
            // Masking works on a stream of bytes; a reader of the screen would see it.
            if terminal.pty_size().is_some() && !live.masker.masks_any() {
                return Err(
                    "its secret could not be read when a command of the session began, whose screen \
                            cannot be masked"
                        .to_owned(),
                );
            }
            for value in values {
                live.masker.add(value).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// All that run in the session of a connection.
    pub(in crate::terminal) fn running_terminals(&self, wanted: Wanted<'_>) -> Vec<Arc<Terminal>> {
        let Some(session) = SessionId::parse(&wanted.owner.session_id) else { return Vec::new() };
        let principal = Principal { uid: wanted.owner.uid };
        let mut terminals = self.registry.list(principal, Some(session));
        terminals.retain(|terminal| !terminal.stage().is_over());
        terminals
    }
}
