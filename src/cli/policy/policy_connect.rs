//! `provost policy explain --connect`: what a policy says about one connection. Resolves no name and connects to nothing.

use std::net::IpAddr;

use serde::Serialize;

use crate::{
    cli::{console::error::CliError, request::arguments::OutputFormat},
    network::{
        destination::Host,
        http_request::{Scheme, WantedConnection},
        socket_path::SocketPath,
    },
    policy::{
        PolicySet,
        command::rule::Decision,
        connect::{ConnectingProgram, SocketRequest, TlsHandling, Tunnel},
        connect_decision::{AppliedCa, AppliedCredential, ConnectDecision, NAME_RULE, SOCKET_RULE},
    },
    printable,
};

/// Who would connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    /// The principal.
    pub(in crate::cli) principal: &'a str,
    /// The profile's name; absent: the default one.
    pub(in crate::cli) profile: Option<&'a str>,
    /// The program; absent: it is not known.
    pub(in crate::cli) program: Option<&'a str>,
}

/// A decision about a name or an address.
#[derive(Debug, Serialize)]
struct ExplainedConnection {
    /// "allow", "ask" or "deny".
    decision: Decision,
    /// The rule that decided, `default`, or the name of a check of the proxy's own.
    rule: String,
    /// Why.
    reason: String,
    /// File and line of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    /// As the rules see it.
    destination: String,
    /// The address that was decided on; absent: the name was.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// What may be spoken, unless it is denied: "checked" or "any".
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<Tunnel>,
    /// Only HTTP requests may be spoken, each of which is judged.
    requests_only: bool,
    /// What becomes of TLS, unless it is denied: "carry" or "terminate".
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsHandling>,
    /// The headers into which secrets are put, in opened TLS, and the rules that say so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    credentials: Vec<ExplainedCredential>,
    /// The files by which servers are verified in opened TLS, in the place of the host's trusted roots, and the rules that say so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorities: Vec<ExplainedCa>,
    /// Rules that only watch and that are about it.
    observed: Vec<String>,
}

/// A secret that a request is given.
#[derive(Debug, Serialize)]
struct ExplainedCredential {
    /// The name of the secret.
    secret: String,
    /// The header.
    header: String,
    /// The rule.
    rule: String,
}

/// A file by whose certificates a server is verified.
#[derive(Debug, Serialize)]
struct ExplainedCa {
    /// The file.
    file: String,
    /// The rule.
    rule: String,
}

/// The explanation, and the exit status.
pub(in crate::cli) fn explain(
    policy: &PolicySet,
    caller: Caller<'_>,
    destination: &str,
    addresses: &[IpAddr],
    format: OutputFormat,
) -> Result<(String, u8), CliError> {
    let (profile, _) = policy
        .profile(caller.profile)
        .ok_or_else(|| CliError::message_only(format!("there is no profile {:?}", caller.profile)))?;
    let program = match caller.program {
        Some(one) => ConnectingProgram::Known(vec![one.to_owned()]),
        None => ConnectingProgram::Unknown,
    };
    let by = (caller.principal, profile.as_str(), &program);
    let explained = match (SocketPath::parse_connection(destination), WantedConnection::parse(destination)) {
        (Some(Ok(path)), _) => vec![decide_socket(policy, by, &path)],
        (Some(Err(error)), _) => vec![malformed(destination, SOCKET_RULE, error.to_string())],
        (None, Err(error)) => vec![malformed(destination, NAME_RULE, error.to_string())],
        (None, Ok(wanted)) => decide(policy, by, &wanted, addresses),
    };
    let shown = match format {
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(&explained)
                .map_err(|e| CliError::caused_by("explanation", e))?;
            printable::json(&json).into_owned()
        }
        OutputFormat::Text => explained.iter().map(text).collect::<Vec<_>>().join("\n"),
    };
    let is_allowed = explained.iter().all(|one| one.decision == Decision::Allow);
    Ok((shown, u8::from(!is_allowed)))
}

/// What is refused before any rule is looked at.
fn malformed(destination: &str, rule: &str, reason: String) -> ExplainedConnection {
    ExplainedConnection {
        decision: Decision::Deny,
        rule: rule.to_owned(),
        reason,
        location: None,
        destination: destination.to_owned(),
        address: None,
        tunnel: None,
        requests_only: false,
        tls: None,
        credentials: Vec::new(),
        authorities: Vec::new(),
        observed: Vec::new(),
    }
}

fn decide_socket(
    policy: &PolicySet,
    (principal, profile, program): (&str, &str, &ConnectingProgram),
    path: &SocketPath,
) -> ExplainedConnection {
    let request = SocketRequest { principal, profile, path, program, is_approved: false };
    let decided = policy.connect_socket(&request);
    ExplainedConnection {
        decision: decided.decision,
        location: location(policy, &decided),
        tunnel: (decided.decision != Decision::Deny).then_some(decided.tunnel),
        observed: decided.observed.clone(),
        ..malformed(&path.to_string(), decided.reason.rule(), decided.reason.text())
    }
}

/// File and line of the rule.
fn location(policy: &PolicySet, decided: &ConnectDecision) -> Option<String> {
    policy.rule_location(decided.reason.rule()).map(|at| format!("{}:{}", at.file, at.line))
}

fn decide(
    policy: &PolicySet,
    (principal, profile, program): (&str, &str, &ConnectingProgram),
    wanted: &WantedConnection,
    addresses: &[IpAddr],
) -> Vec<ExplainedConnection> {
    let caller = (principal, profile);
    let explained = |decided: ConnectDecision, address: Option<IpAddr>| ExplainedConnection {
        decision: decided.decision,
        rule: decided.reason.rule().to_owned(),
        reason: decided.reason.text(),
        location: location(policy, &decided),
        destination: match &wanted.request {
            None => wanted.destination.to_string(),
            Some(http) => format!("{} {http}", wanted.destination),
        },
        address,
        tunnel: (decided.decision != Decision::Deny).then_some(decided.tunnel),
        requests_only: decided.requests_only,
        tls: (decided.decision != Decision::Deny).then_some(decided.tls),
        credentials: decided
            .credentials
            .into_iter()
            .filter(|_| wanted.scheme != Some(Scheme::Http))
            .map(|AppliedCredential { credential, rule }| ExplainedCredential {
                secret: credential.secret,
                header: credential.header,
                rule,
            })
            .collect(),
        authorities: decided
            .authorities
            .into_iter()
            .filter(|_| wanted.scheme != Some(Scheme::Http))
            .map(|AppliedCa { file, rule }| ExplainedCa { file: file.to_string(), rule })
            .collect(),
        observed: decided.observed,
    };
    let at = |address: IpAddr| {
        explained(policy.connect_wanted(caller, wanted, Some(address), program), Some(address))
    };
    if let Host::Address(address) = wanted.destination.host {
        return vec![at(address)];
    }
    let name = explained(policy.connect_wanted(caller, wanted, None, program), None);
    // A name that is refused is not resolved.
    let is_resolved = name.decision != Decision::Deny;
    std::iter::once(name)
        .chain(addresses.iter().filter(|_| is_resolved).map(|address| at(*address)))
        .collect()
}

fn text(one: &ExplainedConnection) -> String {
    let place = one.location.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
    let address = one.address.map(|address| format!(" at {address}")).unwrap_or_default();
    let mut lines = vec![format!(
        "{}: {}{address}: {} ({}{place})",
        one.decision,
        printable::line(&one.destination),
        printable::line(&one.reason),
        one.rule
    )];
    match one.tunnel {
        Some(_) if one.tls == Some(TlsHandling::Terminate) => {
            lines.push("  HTTP, also in TLS, which is opened: its requests are judged".to_owned());
        }
        Some(_) if one.requests_only => {
            lines.push("  HTTP without TLS: rules are about its requests".to_owned());
        }
        Some(Tunnel::Checked) => lines.push("  TLS that names the same host, or HTTP".to_owned()),
        Some(Tunnel::Any) => lines.push("  any protocol".to_owned()),
        None => {}
    }
    lines.extend(one.credentials.iter().map(|ExplainedCredential { secret, header, rule }| {
        format!("  in TLS the secret {secret} as the header {header} ({rule})")
    }));
    lines.extend(one.authorities.iter().map(|ExplainedCa { file, rule }| {
        format!("  in TLS the server verified by {} ({rule})", printable::line(file))
    }));
    lines.extend(one.observed.iter().map(|rule| format!("  watched by {rule}")));
    lines.join("\n")
}
