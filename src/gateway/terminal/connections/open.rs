//! Judges connections that are open: whether they stay so under another policy, and how many bytes they may carry.

use std::{net::IpAddr, sync::Arc};

use crate::{
    journal::{ConnectionRecord, Record},
    policy::{
        PolicySet,
        command::rule::Decision,
        connect::{ConnectRequest, DialTarget},
        connect_decision::ConnectDecision,
        profile::OnReload,
    },
    proto::net::{Bytes, Denied, Resolve, verdict::Verdict},
    sandbox::net_link::NetOwner,
    session::{Principal, Session, SessionId},
    terminal::connections::{
        attempt::{OpenConnection, Wanted, record},
        connections::{BYTES_RULE, Connections},
    },
};

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
        self.refuse_allowed(wanted, connection, (by.reason.rule(), &by.reason.text()), address).await
    }

    /// Refuses what was allowed before.
    pub(in crate::terminal) async fn refuse_allowed(
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
        let _ = self.recorder.record_refusal(&record).await;
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
