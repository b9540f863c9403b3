//! Parses the request for a session.

use super::fields::{
    FieldError, NAME_MAX_BYTES, directory, env, field_error, labels, network, request_id, unknown_value,
};
use crate::{
    policy::AbsPath,
    proto::v1::{CreateSessionRequest, Lifetime as LifetimeWord, WorkspaceExtent as WorkspaceExtentWord},
    session::{Lifetime, NewSession, WorkspaceExtent},
};

/// Roots of one session, of each kind.
const ROOTS_MAX: usize = 64;

/// A session to be opened.
pub fn new_session(request: CreateSessionRequest) -> Result<NewSession, FieldError> {
    if request.roots.is_empty() {
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
    Ok(NewSession {
        roots: directories("roots", &request.roots)?,
        read_only_roots: directories("read_only_roots", &request.read_only_roots)?,
        extent,
        cwd: directory("cwd", &request.cwd)?,
        env: env("env", request.env)?,
        labels: labels("labels", request.labels)?,
        profile: Some(request.profile).filter(|name| !name.is_empty()),
        network: network("network", request.network)?,
        lifetime,
        name: session_name(request.name)?,
        request_id: request_id("request_id", request.request_id)?,
    })
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
        let env = vec![EnvVar { name: "A=".into(), value: String::new() }];
        assert_eq!(error(CreateSessionRequest { env, ..roots(&["/a"]) }), "env[0].name");
    }
}
