//! The certificates by which the host verifies servers: of a file, as it is when it is asked for.

use std::path::{Path, PathBuf};

use crate::{certificate::read_certificates, printable};

/// Where distributions have them all in one file.
const PLACES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
];

/// The most of the file that is read.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedRoots(PathBuf);

impl TrustedRoots {
    /// Takes the certificates of this file.
    pub fn of(file: PathBuf) -> Self {
        Self(file)
    }

    /// The file where the host has it; the first place that is known where it has none.
    pub fn of_host() -> Self {
        let found = PLACES.iter().map(Path::new).find(|path| path.exists());
        Self(found.unwrap_or(Path::new(PLACES[0])).to_owned())
    }

    /// Its text. What cannot be read has none, and then no server is verified.
    pub(super) fn text(&self) -> Vec<u8> {
        crate::sys::text_file::read_text(&self.0, MAX_FILE_BYTES).map(String::into_bytes).unwrap_or_else(
            |error| {
                tracing::warn!(path = %printable::path(&self.0), %error, "the trusted roots cannot be read");
                Vec::new()
            },
        )
    }

    /// The certificates in it (DER).
    pub(super) fn certificates(&self) -> Vec<Vec<u8>> {
        read_certificates(&self.text())
    }
}
