//! The policy in force. A set is parsed when it is first needed, because most sandboxes see their first exec late or never.

use std::{rc::Rc, sync::Arc};

use crate::{
    policy::{
        PolicySet,
        command::{
            known_directories::{KnownDirectories, KnownDirectory},
            program::DirectoryId,
        },
    },
    proto::gate::{self, PolicyInForce, SetPolicy},
};

/// The policy of the sandbox.
#[derive(Debug, Default)]
pub(super) struct PolicyState {
    in_force: Option<(u64, Rc<PolicySet>)>,
    /// Received and not parsed.
    waiting: Option<SetPolicy>,
    /// An exec was notified.
    is_used: bool,
    /// The directories that the rules of all policies so far name, by what they are.
    directories: Arc<KnownDirectories>,
}

impl PolicyState {
    /// Takes a new policy. The answer is for the gateway.
    pub(super) fn set(&mut self, policy: SetPolicy) -> PolicyInForce {
        let generation = policy.generation;
        self.waiting = Some(policy);
        let failure = if self.is_used { self.parse() } else { None };
        PolicyInForce { generation, failure: failure.unwrap_or_default() }
    }

    /// Takes what directories of rules are.
    pub(super) fn know(&self, directories: Vec<gate::KnownDirectory>) {
        for gate::KnownDirectory { pattern, path, device, inode, left_out_since_ns } in directories {
            let left_out_since = Some(left_out_since_ns).filter(|since| *since != 0);
            self.directories
                .add(&pattern, KnownDirectory { path, id: DirectoryId { device, inode }, left_out_since });
        }
    }

    /// The policy for an exec. A set that turns out to be unusable is returned as the answer that it should have got.
    pub(super) fn current(&mut self) -> (Option<Rc<PolicySet>>, Option<PolicyInForce>) {
        self.is_used = true;
        let generation = self.waiting.as_ref().map(|waiting| waiting.generation);
        let failure = self.parse();
        let failed =
            generation.zip(failure).map(|(generation, failure)| PolicyInForce { generation, failure });
        (self.in_force.as_ref().map(|(_, policy)| policy.clone()), failed)
    }

    /// 0: there is none.
    pub(super) fn generation(&self) -> u64 {
        let waiting = self.waiting.as_ref().map(|waiting| waiting.generation);
        waiting.or(self.in_force.as_ref().map(|(generation, _)| *generation)).unwrap_or_default()
    }

    /// Why the waiting set cannot be used, if so; then the one before stays.
    fn parse(&mut self) -> Option<String> {
        let policy = self.waiting.take()?;
        let files: Vec<_> =
            policy.files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
        match PolicySet::load(&files) {
            Ok(parsed) => {
                self.in_force = {
                    let parsed = parsed.with_generation(policy.generation).knowing(self.directories.clone());
                    Some((policy.generation, Rc::new(parsed)))
                };
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }
}
