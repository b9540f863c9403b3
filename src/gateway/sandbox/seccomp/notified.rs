//! Calls that are notified to the sandbox's gate: every exec, except for those that have the sandbox's nonce in the argument
//! registers that they do not use.
//!
//! And clone3(2), which nobody has then but the supervisor: its flags lie in memory, where a filter cannot see whether two processes
//! come to share a working directory. Programs go on with clone(2).
//!
//! Without a gate the supervisor is notified of changes of mode with `S_ISGID`, and changes it itself with the nonce.

use libc::c_long;

use super::{arch::Arch, table::Numbers};
use crate::wire::gate::NONCE_BYTES;

/// Who is notified of calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Listener<'a> {
    /// Nobody.
    None,
    /// The supervisor, which is under the filter itself.
    Supervisor(&'a ExecNonce),
    /// The sandbox's gate.
    Gate(&'a ExecNonce),
}

/// What the supervisor has in the unused registers of its own calls, and of a command's first exec, which was evaluated as the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecNonce([u8; NONCE_BYTES]);

impl ExecNonce {
    /// Makes a nonce of random bytes that no other process knows.
    #[must_use]
    pub(crate) fn new(bytes: [u8; NONCE_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the supervisor.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }

    /// As 32-bit words, the lower half of each register first.
    fn words(&self) -> Vec<u32> {
        let registers = self.0.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        registers.flat_map(|register| [register as u32, (register >> 32) as u32]).collect()
    }
}

/// A call that is allowed if its registers from `first_register` on have these values.
pub(super) struct NotifiedRule {
    pub(super) call: c_long,
    pub(super) first_register: u32,
    /// The lower half of each register, then its upper half.
    pub(super) unless: Vec<u32>,
    pub(super) otherwise: Otherwise,
}

/// What becomes of a call that does not have the nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Otherwise {
    Notified,
    /// `ENOSYS`.
    Absent,
    /// As the rule of the call says.
    Ruled,
}

/// All of them.
pub(super) fn calls(machine: Arch, listener: Listener<'_>) -> impl Iterator<Item = NotifiedRule> {
    let calls = match listener {
        Listener::None => Vec::new(),
        Listener::Supervisor(nonce) => vec![(FCHMODAT, 3, nonce.words(), Otherwise::Ruled)],
        Listener::Gate(nonce) => {
            let words = nonce.words();
            let last = words[words.len() - 2..].to_vec();
            let first = words[..4].to_vec();
            vec![
                (EXECVE, 3, words, Otherwise::Notified),
                (EXECVEAT, 5, last, Otherwise::Notified),
                (CLONE3, 2, first, Otherwise::Absent),
            ]
        }
    };
    calls.into_iter().filter_map(move |(numbers, first_register, unless, otherwise)| {
        Some(NotifiedRule { call: numbers.on(machine)?, first_register, unless, otherwise })
    })
}

const FCHMODAT: Numbers = Numbers::new(268, 53);
const EXECVE: Numbers = Numbers::new(59, 221);
const EXECVEAT: Numbers = Numbers::new(322, 281);
const CLONE3: Numbers = Numbers::same(435);
