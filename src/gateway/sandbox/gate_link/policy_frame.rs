//! The policy in force, encoded once for all gates.

use std::sync::{Arc, Mutex, PoisonError};

use super::error::GateError;
use crate::{
    policy::{ActivePolicy, PolicySet, command::known_directories::KnownByPattern},
    proto::gate::{PolicyFile, SetPolicy, ToGate, to_gate::Message},
    wire,
};

/// A policy, as a frame.
#[derive(Debug, Clone)]
pub(super) struct PolicyFrame {
    pub(super) generation: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// Encodes the policy in force, when first asked for.
#[derive(Debug)]
pub(super) struct PolicyEncoder {
    active: Arc<ActivePolicy>,
    encoded: Mutex<Option<PolicyFrame>>,
}

impl PolicyEncoder {
    pub(super) fn new(active: Arc<ActivePolicy>) -> Self {
        Self { active, encoded: Mutex::default() }
    }

    /// What the directories of its rules are: their number, with its generation, and all of them.
    pub(super) fn directories(&self) -> ((u64, usize), Arc<KnownByPattern>) {
        let policy = self.active.current();
        let (count, known) = policy.known_directories().all();
        ((policy.generation(), count), known)
    }

    /// The policy in force.
    pub(super) fn current(&self) -> Result<PolicyFrame, GateError> {
        // Every change of it is one assignment.
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = self.active.current();
        match &*encoded {
            Some(frame) if frame.generation == policy.generation() => Ok(frame.clone()),
            Some(_) | None => {
                let frame = encode(&policy)?;
                *encoded = Some(frame.clone());
                Ok(frame)
            }
        }
    }
}

fn encode(policy: &PolicySet) -> Result<PolicyFrame, GateError> {
    let generation = policy.generation();
    let files = policy.texts().iter();
    let files = files.map(|file| PolicyFile { name: file.name.clone(), text: file.text.clone() }).collect();
    let message = ToGate { message: Some(Message::SetPolicy(SetPolicy { generation, files })) };
    let bytes = wire::encode(&message, 0).map_err(GateError::PolicyTooLong)?;
    Ok(PolicyFrame { generation, bytes: bytes.into() })
}
