//! Decides about signatures by callers' SSH agents: what the sandbox's profile names, and nothing else.
//!
//! Each decision is in the journal before it takes effect. What cannot be written down is refused.

use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{
    journal::{Record, RecordedVerdict, SignatureRecord},
    policy::profile::{SshAgentRule, SshHost},
    sandbox::agent_link::{AgentOwner, SignatureObserver, SignatureRequest, SignatureVerdict},
    session::Principal,
    ssh_agent::HostKey,
    terminal::recorder::Recorder,
};

/// The lines of the profile that decide.
const SIGN_RULE: &str = "profile.ssh_agent.sign";
const HOSTS_RULE: &str = "profile.ssh_agent.hosts";

/// Decides about the signatures of all sandboxes of a gateway.
#[derive(Debug)]
pub(in crate::terminal) struct Signatures {
    pub(in crate::terminal) recorder: Recorder,
}

impl SignatureObserver for Signatures {
    fn judge<'a>(
        &'a self,
        owner: &'a AgentOwner,
        request: SignatureRequest,
    ) -> BoxFuture<'a, SignatureVerdict> {
        self.decide(owner, request).boxed()
    }
}

impl Signatures {
    async fn decide(&self, owner: &AgentOwner, request: SignatureRequest) -> SignatureVerdict {
        let record = record(owner, request);
        if record.verdict == RecordedVerdict::Allow {
            return match self.recorder.record_all_within_share(&[Record::Signature(record)]).await {
                Ok(()) => SignatureVerdict::Allowed,
                Err(_) => SignatureVerdict::Denied,
            };
        }
        tracing::info!(sandbox.id = %owner.sandbox_id, reason = %record.reason, "a request to the SSH agent is refused");
        // It is refused all the same when it cannot be written.
        let _ = self.recorder.record_denial(&Record::Signature(record)).await;
        SignatureVerdict::Denied
    }
}

fn record(owner: &AgentOwner, request: SignatureRequest) -> SignatureRecord {
    let denied = SignatureRecord {
        session: owner.session_id.clone(),
        principal: Principal { uid: owner.uid }.to_string(),
        sandbox: owner.sandbox_id.clone(),
        verdict: RecordedVerdict::Deny,
        rule: SIGN_RULE.to_owned(),
        reason: String::new(),
        namespace: None,
        key: None,
        host: None,
        user: None,
    };
    let of_login = SignatureRecord { rule: HOSTS_RULE.to_owned(), ..denied.clone() };
    let to_host = |host: &HostKey| match name_of(&owner.rule, host) {
        Some(name) => SignatureRecord {
            verdict: RecordedVerdict::Allow,
            host: Some(name.to_owned()),
            ..of_login.clone()
        },
        None => SignatureRecord {
            reason: "the profile names no host with this key".to_owned(),
            ..of_login.clone()
        },
    };
    match request {
        SignatureRequest::Text { namespace, key } if owner.rule.sign.contains(&namespace) => {
            SignatureRecord {
                verdict: RecordedVerdict::Allow,
                namespace: Some(namespace),
                key: Some(key),
                ..denied
            }
        }
        SignatureRequest::Text { namespace, key } => SignatureRecord {
            reason: "the profile does not name this namespace".to_owned(),
            namespace: Some(namespace),
            key: Some(key),
            ..denied
        },
        SignatureRequest::Bind { host } => to_host(&host),
        SignatureRequest::Login { host, user, key } => {
            SignatureRecord { user: Some(user), key: Some(key), ..to_host(&host) }
        }
        SignatureRequest::Unknown { key } => SignatureRecord {
            reason: "it is neither a text of a namespace nor a login to a host that has proven itself"
                .to_owned(),
            key: Some(key),
            ..of_login
        },
        SignatureRequest::Unproven { problem } => SignatureRecord { reason: problem.to_string(), ..of_login },
        SignatureRequest::OtherMessage { kind } => SignatureRecord {
            reason: format!(
                "message {kind} of the protocol is never passed on: it changes an agent, or asks for more"
            ),
            ..denied
        },
    }
}

/// The name of the host with this key.
fn name_of<'a>(rule: &'a SshAgentRule, host: &HostKey) -> Option<&'a str> {
    let has_key = |one: &&SshHost| one.keys.iter().any(|key| HostKey::parse(key).as_ref() == Some(host));
    rule.hosts.iter().find(has_key).map(|one| one.name.as_str())
}
