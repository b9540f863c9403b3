//! Parses the request for a session.

use super::fields::{
    FieldError, NAME_MAX_BYTES, directory, env, field_error, labels, network, request_id, text, texts,
    unknown_value,
};
use crate::{
    policy::AbsPath,
    proto::v1::{
        CreateSessionRequest, Lifetime as LifetimeWord, ProcessIdentity,
        WorkspaceExtent as WorkspaceExtentWord,
    },
    session::{Lifetime, NamedProcess, NewSession, WorkspaceExtent},
};

/// Roots of one session, of each kind.
const ROOTS_MAX: usize = 64;
/// Bytes of the name of a front end.
const FRONT_END_MAX_BYTES: usize = 64;
/// The front end of a program that calls the API itself.
const NO_FRONT_END: &str = "grpc";

/// A session to be opened.
pub(crate) fn new_session(request: CreateSessionRequest) -> Result<NewSession, FieldError> {
    let roots = texts("roots", request.roots, &request.roots_bytes)?;
    let read_only_roots = texts("read_only_roots", request.read_only_roots, &request.read_only_roots_bytes)?;
    let cwd = text("cwd", request.cwd, &request.cwd_bytes)?;
    if roots.is_empty() {
        return Err(field_error("roots", "must name at least one directory"));
    }
    let extent = match WorkspaceExtentWord::try_from(request.extent) {
        Ok(WorkspaceExtentWord::Unspecified) => WorkspaceExtent::Named,
        Ok(WorkspaceExtentWord::Repository) => WorkspaceExtent::Repository,
        Err(_) => return Err(unknown_value("extent", request.extent)),
    };
    let lifetime = match LifetimeWord::try_from(request.lifetime) {
        Ok(LifetimeWord::Unspecified | LifetimeWord::Explicit) => Lifetime::Explicit,
        Ok(LifetimeWord::OwnerProcess) => Lifetime::OwnerProcess,
        Err(_) => return Err(unknown_value("lifetime", request.lifetime)),
    };
    let owner_process = request.owner_process.map(|named| owner_process(named, lifetime)).transpose()?;
    Ok(NewSession {
        roots: directories("roots", &roots)?,
        read_only_roots: directories("read_only_roots", &read_only_roots)?,
        extent,
        cwd: directory("cwd", &cwd)?,
        env: env("env", request.env)?,
        labels: labels("labels", request.labels)?,
        profile: Some(request.profile).filter(|name| !name.is_empty()),
        network: network("network", request.network)?,
        lifetime,
        owner_process,
        front_end: front_end(request.front_end)?,
        ssh_agent: directory("ssh_agent", &request.ssh_agent)?,
        name: session_name(request.name)?,
        request_id: request_id("request_id", request.request_id)?,
    })
}

/// The name of a front end, which is the same in every file.
fn front_end(name: String) -> Result<String, FieldError> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    if name.len() > FRONT_END_MAX_BYTES || !name.bytes().all(is_plain) {
        let problem = format!("must be at most {FRONT_END_MAX_BYTES} of a-z, 0-9, \".\", \"_\" and \"-\"");
        return Err(field_error("front_end", problem));
    }
    Ok(if name.is_empty() { NO_FRONT_END.to_owned() } else { name })
}

/// The process that a session is to end with.
fn owner_process(named: ProcessIdentity, lifetime: Lifetime) -> Result<NamedProcess, FieldError> {
    if lifetime != Lifetime::OwnerProcess {
        return Err(field_error(
            "owner_process",
            "must be absent, unless lifetime is LIFETIME_OWNER_PROCESS",
        ));
    }
    if named.pid <= 0 {
        return Err(field_error("owner_process.pid", "must be greater than 0"));
    }
    Ok(NamedProcess { pid: named.pid, start_ticks: named.start_ticks })
}

/// A name that is the same in every terminal and file.
fn session_name(name: String) -> Result<Option<String>, FieldError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.len() > NAME_MAX_BYTES || !name.bytes().all(is_plain) {
        let problem = format!("must be at most {NAME_MAX_BYTES} of a-z, A-Z, 0-9, \".\", \"_\" and \"-\"");
        return Err(field_error("name", problem));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// A session's directories.
fn directories(field: &str, paths: &[String]) -> Result<Vec<AbsPath>, FieldError> {
    if paths.len() > ROOTS_MAX {
        return Err(field_error(field, format!("must name at most {ROOTS_MAX} directories")));
    }
    let parse = |(index, path): (usize, &String)| {
        AbsPath::parse(path).map_err(|error| field_error(format!("{field}[{index}]"), error))
    };
    paths.iter().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::EnvVar;

    #[test]
    fn a_session_without_roots_or_with_bad_ones_names_the_field() {
        let error = |request| new_session(request).unwrap_err().field;
        assert_eq!(error(CreateSessionRequest::default()), "roots");
        let roots = |roots: &[&str]| CreateSessionRequest {
            roots: roots.iter().map(|&root| root.into()).collect(),
            ..Default::default()
        };
        assert_eq!(error(roots(&["/a", "b"])), "roots[1]");
        assert_eq!(error(CreateSessionRequest { cwd: "b".into(), ..roots(&["/a"]) }), "cwd");
        assert_eq!(error(CreateSessionRequest { lifetime: 9, ..roots(&["/a"]) }), "lifetime");
        assert_eq!(error(CreateSessionRequest { front_end: "A b".into(), ..roots(&["/a"]) }), "front_end");
        assert_eq!(new_session(roots(&["/a"])).unwrap().front_end, "grpc");
        let owner_process = Some(ProcessIdentity { pid: 1, start_ticks: 1 });
        assert_eq!(error(CreateSessionRequest { owner_process, ..roots(&["/a"]) }), "owner_process");
        let lifetime = LifetimeWord::OwnerProcess.into();
        let owner_process = Some(ProcessIdentity { pid: -1, start_ticks: 1 });
        let negative = CreateSessionRequest { owner_process, lifetime, ..roots(&["/a"]) };
        assert_eq!(error(negative), "owner_process.pid");
        let env = vec![EnvVar { name: "A=".into(), value: String::new(), ..Default::default() }];
        assert_eq!(error(CreateSessionRequest { env, ..roots(&["/a"]) }), "env[0].name");
    }
}
