//! What a connection of opened TLS needs of the gateway: a certificate for its host, the secrets that its requests are given, and by what
//! their server is verified.
//!
//! Where a rule names a file of trusted certificates, that is as it is when a request is sent. The file is trusted as what governs is: nobody
//! but root and the gateway's user can change it. One that cannot be used refuses the request.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use crate::{
    certificate::read_trust_anchors,
    network::{destination::Host, name::HostName},
    policy::{
        AbsPath, PolicySet,
        connect::{ConnectRequest, Credential, SECRET_PLACE, TlsHandling},
        connect_decision::{AppliedCa, AppliedCredential, ConnectDecision},
    },
    printable,
    proto::net::{Attempt, Header, ServerCertificate},
    sandbox::net_link::Authorities,
    terminal::secrets::command_secrets::read_for_request,
};

/// The names of denials that no rule of a file makes.
const TLS_RULE: &str = "network.tls";
pub(in crate::terminal) const CREDENTIAL_RULE: &str = "network.credential";

/// Why something allowed is refused all the same: the rule's name, and the reason.
pub(in crate::terminal) type Refused = (&'static str, String);

/// What goes with the address that is dialled.
#[derive(Default)]
pub(in crate::terminal) struct TlsParts {
    pub(in crate::terminal) certificate: Option<ServerCertificate>,
    pub(in crate::terminal) headers: Vec<Header>,
    /// The secrets in them, by name.
    pub(in crate::terminal) secrets: Vec<String>,
    /// Their values, of which the output of the command must be free.
    pub(in crate::terminal) values: Vec<Vec<u8>>,
    /// By which alone the server is verified; none: by the host's.
    pub(in crate::terminal) trusted_roots: Vec<Vec<u8>>,
}

/// Reads secrets and makes keys, for what was allowed.
pub(in crate::terminal) async fn parts(
    (policy, authorities, session): (&PolicySet, &Arc<Authorities>, &str),
    attempt: &Attempt,
    request: &ConnectRequest<'_>,
    by: &ConnectDecision,
) -> Result<TlsParts, Refused> {
    match (&request.destination.host, by.tls) {
        (Host::Address(_), _) | (_, TlsHandling::Carry) => Ok(TlsParts::default()),
        (Host::Name(_), TlsHandling::Terminate) if attempt.in_opened_tls => {
            let (headers, values) = headers(policy, &by.credentials).await?;
            let secrets = by.credentials.iter().map(|one| one.credential.secret.clone()).collect();
            let trusted_roots = trusted_roots(&by.authorities).await?;
            Ok(TlsParts { certificate: None, headers, secrets, values, trusted_roots })
        }
        // A request without TLS is seen by everybody on its way, and has no secret.
        (Host::Name(_), TlsHandling::Terminate) if !attempt.method.is_empty() => Ok(TlsParts::default()),
        (Host::Name(name), TlsHandling::Terminate) => {
            let certificate = certificate(authorities, session, name, policy, request.principal).await?;
            Ok(TlsParts { certificate: Some(certificate), ..TlsParts::default() })
        }
    }
}

async fn certificate(
    authorities: &Arc<Authorities>,
    session: &str,
    name: &HostName,
    policy: &PolicySet,
    principal: &str,
) -> Result<ServerCertificate, Refused> {
    match authorities.issue(session, name, &policy.opened_hosts(principal)).await {
        Ok(issued) => Ok(ServerCertificate {
            certificate: issued.certificate.clone().into(),
            key: issued.key.clone().into(),
        }),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(session.id = session, host = %name, %error, cause, "no certificate for opened TLS");
            Err((TLS_RULE, format!("TLS to {name} cannot be opened: {error}")))
        }
    }
}

async fn headers(
    policy: &PolicySet,
    applied: &[AppliedCredential],
) -> Result<(Vec<Header>, Vec<Vec<u8>>), Refused> {
    let mut values = Vec::new();
    let mut headers: Vec<(&AppliedCredential, Header)> = Vec::new();
    for one in applied {
        let Credential { header, secret, format } = &one.credential;
        let name = header.to_ascii_lowercase();
        if let Some((other, _)) = headers.iter().find(|(_, given)| given.name == name) {
            if (&other.credential.secret, &other.credential.format) == (secret, format) {
                continue;
            }
            let problem = format!(
                "rules {:?} and {:?} put different secrets into the header {header:?}",
                other.rule, one.rule
            );
            return Err((CREDENTIAL_RULE, problem));
        }
        let refused = |problem: &str| {
            (CREDENTIAL_RULE, format!("the secret {secret:?} of rule {:?} {problem}", one.rule))
        };
        let grant = policy.secret_grant(secret).ok_or_else(|| refused("is in no file"))?;
        let read = tokio::task::spawn_blocking(move || read_for_request(&grant)).await;
        let read = read.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        let value = read.map_err(|fault| {
            tracing::error!(secret.name = secret, error = %fault, "no secret for a request");
            refused(&format!("cannot be used: {fault}"))
        })?;
        // What ends a line would begin another header.
        if !value.iter().all(|byte| matches!(byte, b' '..=b'~' | 0x80..)) {
            return Err(refused("has a character that no header has"));
        }
        let (before, behind) = format.split_once(SECRET_PLACE).unwrap_or((format, ""));
        let whole = [before.as_bytes(), &value, behind.as_bytes()].concat();
        values.push(value);
        headers.push((one, Header { name, value: whole.into() }));
    }
    Ok((headers.into_iter().map(|(_, header)| header).collect(), values))
}

/// The name of a denial that no rule of a file makes.
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
    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

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
