//! What a connection of opened TLS needs of the gateway: a certificate for its host, the secrets that its requests are given, and by what
//! their server is verified.

use std::sync::Arc;

use crate::{
    network::{destination::Host, name::HostName},
    policy::{
        PolicySet,
        connect::{ConnectRequest, Credential, SECRET_PLACE, TlsHandling},
        connect_decision::{AppliedCredential, ConnectDecision},
    },
    proto::net::{Attempt, Header, ServerCertificate},
    sandbox::net_link::Authorities,
    terminal::{connections::ca, secrets::command_secrets::read_for_request},
};

/// The names of refusals that no rule of a file makes.
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
            let trusted_roots = ca::trusted_roots(&by.authorities).await?;
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
