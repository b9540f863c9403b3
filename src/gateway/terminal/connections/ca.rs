//! The certificates by which a rule has the servers of its requests verified: of its file, as it is when a request is sent.
//!
//! The file is trusted as what governs is: nobody but root and the gateway's user can change it. One that cannot be used refuses the request.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use crate::{
    certificate::read_trust_anchors,
    policy::{AbsPath, connect_decision::AppliedCa},
    printable,
};

/// The name of a refusal that no rule of a file makes.
const CA_RULE: &str = "network.ca";

/// The longest file. Its certificates go with each request to the net process.
pub(in crate::terminal) const MAX_CA_FILE_BYTES: u64 = 256 << 10;

/// Write permission for others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What is wrong with such a file.
#[derive(Debug, thiserror::Error)]
enum CaFault {
    /// open(2).
    #[error("cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// read(2).
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A directory, a pipe, a device.
    #[error("is no regular file")]
    NotAFile,
    /// Its owner.
    #[error("belongs to uid {0}, and must belong to root or to the gateway's user")]
    Owner(u32),
    /// Its mode.
    #[error("can be written by others than its owner (mode {0:04o})")]
    Writable(u32),
    /// Its length.
    #[error("has more than {MAX_CA_FILE_BYTES} bytes")]
    TooLong,
    /// Its content.
    #[error("has no certificate that a server can be verified by")]
    NoCertificate,
}

/// The certificates (DER) that rules name; none: they name none. Or the rule's name of a refusal, and its reason.
pub(in crate::terminal) async fn trusted_roots(
    applied: &[AppliedCa],
) -> Result<Vec<Vec<u8>>, (&'static str, String)> {
    let Some(first) = applied.first() else { return Ok(Vec::new()) };
    if let Some(other) = applied.iter().find(|one| one.file != first.file) {
        let problem = format!(
            "rules {:?} and {:?} have the server verified by different files",
            first.rule, other.rule
        );
        return Err((CA_RULE, problem));
    }
    let file: AbsPath = first.file.clone();
    let read = tokio::task::spawn_blocking(move || read(file.as_path())).await;
    let read = read.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    read.map_err(|fault| {
        let file = printable::path(first.file.as_path()).to_string();
        tracing::error!(rule = first.rule, ca.file = file, error = %fault, "no certificates for a request");
        (CA_RULE, format!("the certificates of rule {:?} cannot be used: {file} {fault}", first.rule))
    })
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>, CaFault> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(CaFault::Open)?;
    let found = file.metadata().map_err(CaFault::Read)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_file() {
        return Err(CaFault::NotAFile);
    }
    if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
        return Err(CaFault::Owner(owner));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(CaFault::Writable(mode));
    }
    let mut text = Vec::new();
    file.take(MAX_CA_FILE_BYTES + 1).read_to_end(&mut text).map_err(CaFault::Read)?;
    if text.len() as u64 > MAX_CA_FILE_BYTES {
        return Err(CaFault::TooLong);
    }
    let roots = read_trust_anchors(&text);
    if roots.is_empty() { Err(CaFault::NoCertificate) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use super::*;

    #[test]
    fn a_file_that_others_can_change_or_that_has_no_certificate_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let of = |name: &str, content: &[u8], mode| {
            fs::write(at(name), content).unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
            read(&at(name)).unwrap_err()
        };
        assert!(matches!(of("none", b"no certificate", 0o644), CaFault::NoCertificate));
        let pem = crate::certificate::write_certificate(b"no certificate");
        assert!(matches!(of("unreadable", pem.as_bytes(), 0o644), CaFault::NoCertificate));
        assert!(matches!(of("group", b"", 0o664), CaFault::Writable(0o664)));
        assert!(matches!(of("all", b"", 0o646), CaFault::Writable(0o646)));
        let long = vec![b'x'; MAX_CA_FILE_BYTES as usize + 1];
        assert!(matches!(of("long", &long, 0o644), CaFault::TooLong));
        assert!(matches!(read(directory.path()).unwrap_err(), CaFault::NotAFile));
        assert!(matches!(read(&at("missing")).unwrap_err(), CaFault::Open(_)));
    }
}
