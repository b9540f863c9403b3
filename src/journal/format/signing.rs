//! Signed checkpoints: the key files, what exactly is signed, and how it is checked.
//!
//! A key is Ed25519 in the PEM form that `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write.
//! Refuses a private key that others can read. Knows nothing of files of the journal.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use super::{
    chain::{ChainHead, hex, parse_hex},
    maintenance::Checkpoint,
};
use crate::sys::text_file;

/// The most that a key file may hold.
const KEY_FILE_BYTES: u64 = 4096;
/// PKCS #8 of RFC 8410 before the 32 bytes of a private key: these are its only DER.
const PRIVATE_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// SubjectPublicKeyInfo of RFC 8410 before the 32 bytes of a public key.
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Signs the journal.
#[derive(Debug, Clone)]
pub struct JournalKey(SigningKey);

/// Checks what a [`JournalKey`] signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPublicKey(VerifyingKey);

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("the key {} cannot be read", crate::printable::path(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others than its owner can read it.
    #[error(
        "the key {} can be read by others: its mode is {mode:o}, and must be 600 or 400",
        crate::printable::path(path)
    )]
    InsecurePermissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no Ed25519 key of this kind in PEM.
    #[error("{} is no Ed25519 {wanted} key in PEM", crate::printable::path(path))]
    InvalidFormat {
        /// The file.
        path: PathBuf,
        /// `private` or `public`.
        wanted: &'static str,
    },
}

impl JournalKey {
    /// Reads a private key.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let found = fs::metadata(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
        let mode = found.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::InsecurePermissions { path: path.to_owned(), mode });
        }
        let secret = load(path, "PRIVATE KEY", &PRIVATE_PREFIX, "private")?;
        Ok(Self(SigningKey::from_bytes(&secret)))
    }

    /// A key of these bytes, for tests and for keys that come from elsewhere.
    pub fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(secret))
    }

    /// What others check it with.
    pub fn public_key(&self) -> JournalPublicKey {
        JournalPublicKey(self.0.verifying_key())
    }

    /// Signs all of the journal up to and with `chain_head`.
    pub(crate) fn sign(&self, chain_head: ChainHead) -> Checkpoint {
        let signature = self.0.sign(signed_text(chain_head).as_bytes());
        Checkpoint { public_key: self.public_key().to_hex(), signature: hex(&signature.to_bytes()) }
    }
}

impl JournalPublicKey {
    /// Reads a public key.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let form = || KeyError::InvalidFormat { path: path.to_owned(), wanted: "public" };
        let bytes = load(path, "PUBLIC KEY", &PUBLIC_PREFIX, "public")?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| form())
    }

    /// The key of a text in PEM; `None` where it is none.
    pub fn from_pem(text: &str) -> Option<Self> {
        let bytes = decode_pem_key(text, "PUBLIC KEY", &PUBLIC_PREFIX)?;
        VerifyingKey::from_bytes(&bytes).map(Self).ok()
    }

    /// In hexadecimal, as checkpoints name it.
    pub fn to_hex(&self) -> String {
        hex(self.0.as_bytes())
    }

    /// Whether `checkpoint` signs all of the journal up to and with `chain_head`.
    pub(crate) fn verifies(&self, chain_head: ChainHead, checkpoint: &Checkpoint) -> bool {
        let mut signature = [0; 64];
        parse_hex(checkpoint.signature.as_bytes(), &mut signature)
            && self
                .0
                .verify_strict(signed_text(chain_head).as_bytes(), &Signature::from_bytes(&signature))
                .is_ok()
    }
}

/// What is signed: the purpose, so that no other use of the key can be taken for it, and the chain's end.
fn signed_text(chain_head: ChainHead) -> String {
    format!("provost journal checkpoint v1\n{}\n{}\n", chain_head.sequence, chain_head.hash)
}

fn load(path: &Path, label: &str, prefix: &[u8], wanted: &'static str) -> Result<[u8; 32], KeyError> {
    let read = |source| KeyError::Read { path: path.to_owned(), source };
    let form = || KeyError::InvalidFormat { path: path.to_owned(), wanted };
    let text = match text_file::read_text(path, KEY_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(form()),
        Err(error) => return Err(read(error)),
    };
    decode_pem_key(&text, label, prefix).ok_or_else(form)
}

fn decode_pem_key(text: &str, label: &str, prefix: &[u8]) -> Option<[u8; 32]> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (inner, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let der = decode_base64(inner)?;
    der.strip_prefix(prefix)?.try_into().ok()
}

/// Decodes base64 of RFC 4648 with padding; white space between is left out.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
    let unpadded = digits.strip_suffix(b"==").or_else(|| digits.strip_suffix(b"=")).unwrap_or(&digits);
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    let mut bits = 0_u32;
    for (at, digit) in unpadded.iter().enumerate() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        if at % 4 > 0 {
            // The lowest 8 bits of what is complete; later bits come from below.
            bytes.push((bits >> (6 - 2 * (at % 4))) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::format::chain::Hash;

    // Test 1 of RFC 8032 in the forms of RFC 8410.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";

    #[test]
    fn keys_are_read_as_openssl_writes_them() {
        let root = tempfile::tempdir().unwrap();
        let (private, public) = (root.path().join("key.pem"), root.path().join("key.pub"));
        fs::write(&private, PRIVATE).unwrap();
        fs::write(&public, PUBLIC).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(JournalKey::load(&private), Err(KeyError::InsecurePermissions { mode: 0o640, .. })));
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        let key = JournalKey::load(&private).unwrap();
        assert_eq!(key.public_key(), JournalPublicKey::load(&public).unwrap());
        assert_eq!(
            key.public_key().to_hex(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        );
        assert!(matches!(
            JournalPublicKey::load(&private),
            Err(KeyError::InvalidFormat { wanted: "public", .. })
        ));
    }

    #[test]
    fn a_signature_holds_for_its_place_only() {
        let key = JournalKey::from_bytes(&[7; 32]);
        let chain_head = ChainHead { sequence: 9, hash: Hash([1; 32]) };
        let checkpoint = key.sign(chain_head);
        assert!(key.public_key().verifies(chain_head, &checkpoint));
        assert!(!key.public_key().verifies(ChainHead { sequence: 8, ..chain_head }, &checkpoint));
        assert!(!key.public_key().verifies(ChainHead { hash: Hash([2; 32]), ..chain_head }, &checkpoint));
        assert!(!JournalKey::from_bytes(&[8; 32]).public_key().verifies(chain_head, &checkpoint));
    }

    #[test]
    fn base64_is_decoded_strictly() {
        assert_eq!(decode_base64("TWFu\nTWE=").as_deref(), Some(&b"ManMa"[..]));
        assert_eq!(decode_base64("TQ==").as_deref(), Some(&b"M"[..]));
        for wrong in ["TWF", "T*==", "TWFuT"] {
            assert_eq!(decode_base64(wrong), None);
        }
    }
}
