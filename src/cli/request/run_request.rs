//! The request that the arguments of `provost run` make.

use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use super::arguments::{NetworkChoice, RunArguments};
use crate::{byte_text, cli::console::error::CliError, client, proto::v1};

/// The workspace's directories as the caller names them: links may lead to them, which the sandbox then has, too. At least one.
pub(in crate::cli) fn workspace_roots(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    if given.is_empty() {
        let current = named_current_directory();
        return Ok(vec![current.map_err(|error| unusable("the current directory", error))?]);
    }
    named_paths(given)
}

/// Directories as the caller names them.
pub(in crate::cli) fn named_paths(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let named = |path: &PathBuf| {
        let unusable = |error| unusable(&crate::printable::path(path), error);
        let real = path.canonicalize().map_err(unusable)?;
        let whole = if path.is_absolute() {
            path.clone()
        } else {
            named_current_directory().map_err(unusable)?.join(path)
        };
        Ok(if is_plain(&whole) { whole } else { real })
    };
    given.iter().map(named).collect()
}

/// The current directory as the caller's shell names it, like `pwd -L`: by the links that led to it, where it is that one.
pub(in crate::cli) fn named_current_directory() -> io::Result<PathBuf> {
    let real = std::env::current_dir()?;
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|named| is_plain(named));
    let object = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    Ok(match (named, object(&real)) {
        (Some(named), Ok(here)) if object(&named).is_ok_and(|there| there == here) => named,
        _ => real,
    })
}

/// Whether where a path leads does not depend on links before a `..`.
fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// As [`workspace_roots`], for a client whose protocol has paths as texts: each is one, and where links lead, too.
pub(in crate::cli) fn text_roots(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let roots = workspace_roots(given)?;
    let real = real_paths(&roots)?;
    match roots.iter().chain(&real).find(|root| root.to_str().is_none()) {
        None => Ok(roots),
        Some(root) => {
            let root = crate::printable::path(root);
            Err(CliError::message_only(format!("the workspace's path is no UTF-8: {root}")))
        }
    }
}

/// The real paths of directories.
pub(in crate::cli) fn real_paths(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let real =
        |path: &PathBuf| path.canonicalize().map_err(|error| unusable(&crate::printable::path(path), error));
    given.iter().map(real).collect()
}

fn unusable(name: &str, error: io::Error) -> CliError {
    CliError::caused_by(format!("cannot use {name} as the workspace"), error)
}

/// The request for the command. Its session, working directory and input are for the caller to say.
pub(in crate::cli) fn request(arguments: RunArguments) -> Result<v1::CreateTerminalRequest, CliError> {
    let mut words = arguments.command.iter().map(text);
    let command = words.next().unwrap_or_default();
    let args = words.collect();
    let limit = |given: Option<Duration>, option: &str| {
        let limit = given.map(prost_types::Duration::try_from).transpose();
        limit.map_err(|error| CliError::caused_by(format!("{option} is too long"), error))
    };
    let mut env = Vec::new();
    for variable in arguments.env {
        env.extend(variable.resolve().map(|(name, value)| v1::EnvVar { name, value, ..Default::default() }));
    }
    Ok(v1::CreateTerminalRequest {
        command: Some(v1::create_terminal_request::Command::Program(command)),
        args,
        env,
        labels: arguments.label.into_iter().collect(),
        profile: arguments.profile.unwrap_or_default(),
        network: match arguments.network {
            None => v1::Network::Unspecified,
            Some(NetworkChoice::None) => v1::Network::None,
            Some(NetworkChoice::Host) => v1::Network::Host,
            Some(NetworkChoice::Proxy) => v1::Network::Proxy,
        }
        .into(),
        overflow: v1::Overflow::Block.into(),
        time_limit: limit(arguments.timeout, "--timeout")?,
        idle_limit: limit(arguments.idle, "--idle")?,
        ..client::new_terminal()
    })
}

/// A word or a path, in the form of [`byte_text`].
pub(in crate::cli) fn text(word: impl AsRef<OsStr>) -> String {
    byte_text::from_bytes(word.as_ref().as_bytes())
}
