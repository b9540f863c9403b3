//! Decides about the connections of sandboxes with the network `proxy`, by the policy in force at that moment.
//!
//! A refusal is in the journal before it is answered, and so is a connection before it is dialled. What cannot be written down is
//! refused.

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
        connect::{Approved, ConnectRequest, ConnectingProgram, DialTarget, Tunnel},
        connect_decision::{AGREEMENT_RULE, ConnectDecision, NAME_RULE},
    },
    pool::Pool,
    printable,
    proto::{
        net::{
            AboutHost, AboutOpen, Attempt, BadRequest, Denied, Dial, Disagreement, Ended, Ports, Protocol,
            Question, Resolve, question::About, verdict::Verdict,
        },
        v1::ConnectDenial,
    },
    sandbox::{
        governing::Governing,
        net_link::{Asker, Authorities, ConnectionObserver, ConnectionOrigin, Judged, NetOwner},
    },
    terminal::{
        audit::recorder::Recorder,
        connections::{
            attempt::{OPENED_TLS, OpenConnection, Wanted, bounded, http_request, port, principal, record},
            bytes::ConnectBytes,
            grants::ConnectGrants,
            questions::ConnectQuestions,
            tls::{self, CREDENTIAL_RULE},
        },
        counters::TerminalCounters,
        id::TerminalId,
        secrets::redactor::KnownSecrets,
        state::{registry::Registry, terminal::Terminal},
    },
};

/// The names of refusals that no rule of a file makes.
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

    /// What a name may be used for. Only a refusal is written down: a name is nothing before it is connected to.
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
        let _ = self.recorder.record_refusal(&record).await;
        Verdict::Denied(Denied { rule: rule.to_owned(), reason })
    }

    /// Counts a refusal, for its terminal too: of a request, or of the connection.
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
