//! The protocol of SSH agents (draft-ietf-sshm-ssh-agent), as far as a signature for git needs it. Pure.
//!
//! Requests come from hostile commands, answers from the caller's agent. What is not understood whole is no request and no answer. What
//! may be signed is decided elsewhere.

#![forbid(unsafe_code)]

mod login;
mod message;
mod signed;
mod wire;

pub use login::{Binding, HostKey, NotBound, NotTheLogin, binding, is_binding};
pub use message::{
    Request, SignRequest, failure, identities, is_signature, list_keys, read_request, success,
};
pub use signed::{NotSigned, namespace};
pub use wire::{MAX_MESSAGE_BYTES, frame};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest as _, Sha256};

/// A public key as people compare it: `SHA256:...`, as ssh-keygen(1) prints it.
#[must_use]
pub fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key)))
}
