//! Asks a person about a connection that a rule asks about, and gives the word for a yes.

use std::{net::IpAddr, sync::Arc};

use crate::{
    journal::{ConnectionRecord, Record, RecordedVerdict},
    policy::{
        PolicySet,
        connect::ConnectRule,
        connect_decision::{ConnectDecision, ConnectReason},
    },
    terminal::{
        connections::{
            attempt::{Wanted, bounded, record},
            connections::Connections,
            grants::ConnectGrant,
            questions::{Answered, AskedPlace, ConnectQuestion},
        },
        state::terminal::Terminal,
    },
};

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
