//! Checks the values of one complete profile: paths, limits, times, names.
//!
//! Names the key that is wrong. [`super::load`] finds its line in the file.

use std::path::{Component, Path, PathBuf};

use super::{
    cache,
    environment::EnvEntry,
    profile::{Isolation, Profile, SIGNED_NAMESPACES, SocketPlace, SshAgentRule, SshHost},
    toolchain, variables,
};
use crate::{
    network::{name::HostName, socket_path::SocketPath},
    ssh_agent::HostKey,
};

/// The names of setrlimit(2) that a profile may set, without their prefix.
const RLIMIT_NAMES: [&str; 11] =
    ["as", "core", "cpu", "data", "fsize", "memlock", "msgqueue", "nofile", "nproc", "sigpending", "stack"];

/// The longest list of protected, or of reserved, paths.
const MAX_PROTECTED_PATHS: usize = 240;

/// The longest list of executable paths.
const MAX_EXECUTABLE_PATHS: usize = 256;

/// The longest list of TCP ports.
const MAX_TCP_PORTS: usize = 1_024;

/// The most sockets of the host that a profile lets in: their listeners travel with the plan.
const MAX_SOCKETS: usize = 8;

/// The most hosts that a profile lets commands log in to, and keys of each.
const MAX_SSH_HOSTS: usize = 256;
const MAX_HOST_KEYS: usize = 16;

/// A key of a profile, and what is wrong with its value.
pub(super) struct InvalidValue {
    /// The key.
    pub(super) key: &'static str,
    /// What is wrong with it.
    pub(super) problem: String,
}

fn invalid(key: &'static str, problem: impl Into<String>) -> Result<(), InvalidValue> {
    Err(InvalidValue { key, problem: problem.into() })
}

/// Checks a profile, and its name.
pub(super) fn check_profile(name: &str, profile: &Profile) -> Result<(), InvalidValue> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(named) {
        return invalid(
            "profile",
            format!("the name {name:?} must be 1 to 64 of a-z, A-Z, 0-9, \"-\" and \"_\""),
        );
    }
    check_paths(profile)?;
    check_landlock_lists(profile)?;
    check_network(profile)?;
    check_identity(profile)?;
    check_limits(profile)?;
    check_environment(profile)?;
    check_times(profile)?;
    check_toolchains(profile)?;
    check_caches(profile)?;
    check_ssh_agent(profile)?;
    if profile.output.default_bytes > profile.output.ceiling_bytes {
        return invalid("default_bytes", "must not be above ceiling_bytes");
    }
    Ok(())
}

fn check_toolchains(profile: &Profile) -> Result<(), InvalidValue> {
    let known: Vec<&str> = toolchain::all().iter().map(|one| one.name.as_str()).collect();
    match profile.toolchains.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            invalid("toolchains", format!("{name:?} is no toolchain; there are {}", known.join(", ")))
        }
    }
}

fn check_caches(profile: &Profile) -> Result<(), InvalidValue> {
    let known: Vec<&str> = cache::all().iter().map(|one| one.name.as_str()).collect();
    match profile.caches.iter().find(|name| !known.contains(&name.as_str())) {
        None => check_kept_caches(profile),
        Some(name) => invalid("caches", format!("{name:?} is no cache; there are {}", known.join(", "))),
    }
}

/// What is kept belongs to a session: a terminal with a sandbox of its own leaves nothing, and neither does one with
/// secrets.
fn check_kept_caches(profile: &Profile) -> Result<(), InvalidValue> {
    let kept = &profile.kept_caches;
    if let Some(name) = kept.names.iter().find(|name| !profile.caches.contains(name)) {
        return invalid("names", format!("{name:?} is not one of the profile's caches"));
    }
    if kept.names.is_empty() {
        return Ok(());
    }
    if profile.isolation == Isolation::Terminal {
        return invalid("kept_caches", "nothing is kept where each terminal is isolated");
    }
    if !profile.secrets.is_empty() {
        return invalid("kept_caches", "nothing is kept where every command has secrets");
    }
    if kept.max_bytes == 0 {
        return invalid("max_bytes", "must not be 0");
    }
    if kept.max_age.is_zero() {
        return invalid("max_age", "must not be 0");
    }
    Ok(())
}

fn check_ssh_agent(profile: &Profile) -> Result<(), InvalidValue> {
    let SshAgentRule { sign, hosts } = &profile.ssh_agent;
    if let Some(name) = sign.iter().find(|name| !SIGNED_NAMESPACES.contains(&name.as_str())) {
        let known = SIGNED_NAMESPACES.join(", ");
        return invalid("sign", format!("{name:?} cannot be signed for; there are {known}"));
    }
    if hosts.len() > MAX_SSH_HOSTS {
        return invalid("hosts", format!("must name at most {MAX_SSH_HOSTS} hosts"));
    }
    for SshHost { name, keys } in hosts {
        if let Err(error) = HostName::parse(name) {
            return invalid("name", error.to_string());
        }
        if keys.is_empty() || keys.len() > MAX_HOST_KEYS {
            return invalid("keys", format!("must be 1 to {MAX_HOST_KEYS} keys of {name}"));
        }
        if let Some(key) = keys.iter().find(|key| HostKey::parse(key).is_none()) {
            return invalid("keys", format!("{key:?} is no key of the form \"ssh-ed25519 AAAA...\""));
        }
    }
    Ok(())
}

fn check_paths(profile: &Profile) -> Result<(), InvalidValue> {
    let files = &profile.filesystem;
    let none = Vec::new();
    let lists = [
        ("system", &files.system),
        ("read_only", &files.read_only),
        ("writable", &files.writable),
        ("path", &profile.path),
        ("execute", files.execute.as_ref().unwrap_or(&none)),
    ];
    for (key, list) in lists {
        if let Some(path) = list.iter().find(|path| !is_plain_absolute(path)) {
            return invalid(
                key,
                format!("{} must be absolute, without \"..\"", crate::printable::path(path)),
            );
        }
    }
    for (key, list) in [("protected", &files.protected), ("reserved", &files.reserved)] {
        if list.len() > MAX_PROTECTED_PATHS {
            return invalid(key, format!("must name no more than {MAX_PROTECTED_PATHS} paths"));
        }
        let is_plain = |path: &&PathBuf| {
            let mut parts = path.components().peekable();
            parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        if let Some(path) = list.iter().find(|path| !is_plain(path)) {
            return invalid(
                key,
                format!("{} must be relative to a root, without \"..\"", crate::printable::path(path)),
            );
        }
    }
    for (key, path) in [("shell", &profile.shell), ("home", &profile.identity.home)] {
        if !is_plain_absolute(path) {
            return invalid(
                key,
                format!("{} must be absolute, without \"..\"", crate::printable::path(path)),
            );
        }
    }
    if let Some(path) = profile.path.iter().find(|path| path.to_string_lossy().contains(':')) {
        return invalid("path", format!("{} must not hold \":\"", crate::printable::path(path)));
    }
    if profile.path.is_empty() {
        return invalid("path", "must name at least one directory");
    }
    if files.tmp_bytes == 0 {
        return invalid("tmp_bytes", "must not be 0");
    }
    if files.tmp_inodes == 0 {
        return invalid("tmp_inodes", "must not be 0");
    }
    Ok(())
}

fn is_plain_absolute(path: &Path) -> bool {
    path.to_str().is_some_and(|text| super::AbsPath::parse(text).is_ok())
}

/// Lists that landlock enforces. A profile that lists something and does not demand the layer means nothing.
fn check_landlock_lists(profile: &Profile) -> Result<(), InvalidValue> {
    let (execute, network) = (&profile.filesystem.execute, &profile.network);
    if execute.as_ref().is_some_and(|paths| paths.len() > MAX_EXECUTABLE_PATHS) {
        return invalid("execute", format!("must name no more than {MAX_EXECUTABLE_PATHS} paths"));
    }
    if execute.is_some() && !(profile.landlock.enabled && profile.seccomp.enabled) {
        return invalid("execute", "needs landlock and seccomp, of which the profile has one switched off");
    }
    for (key, ports) in [("tcp_connect", &network.tcp_connect), ("tcp_bind", &network.tcp_bind)] {
        let Some(ports) = ports else { continue };
        if ports.len() > MAX_TCP_PORTS {
            return invalid(key, format!("must name no more than {MAX_TCP_PORTS} ports"));
        }
        if !profile.landlock.enabled {
            return invalid(key, "needs landlock, which the profile has switched off");
        }
    }
    Ok(())
}

fn check_network(profile: &Profile) -> Result<(), InvalidValue> {
    check_sockets(&profile.network.sockets)?;
    if profile.network.choices.contains(&profile.network.default) {
        Ok(())
    } else {
        invalid("network", "default must be one of choices")
    }
}

/// Sockets of the host are named in one way, and are seen where nothing else is.
fn check_sockets(sockets: &[SocketPlace]) -> Result<(), InvalidValue> {
    if sockets.len() > MAX_SOCKETS {
        return invalid("sockets", format!("must name no more than {MAX_SOCKETS} sockets"));
    }
    for (index, socket) in sockets.iter().enumerate() {
        let host = socket.host.to_str().unwrap_or_default();
        if let Err(error) = SocketPath::parse(host) {
            return invalid("sockets", format!("host: {host:?}: {error}"));
        }
        let inside = socket.inside();
        let is_below_run =
            inside.starts_with("/run") && !inside.starts_with("/run/provost") && inside != Path::new("/run");
        if !(is_plain_absolute(inside) && is_below_run) {
            return invalid("sockets", format!("inside: {inside:?} is no path of a file below /run"));
        }
        let meets = |other: &SocketPlace| {
            other.host == socket.host
                || other.inside().starts_with(inside)
                || inside.starts_with(other.inside())
        };
        if sockets.iter().skip(index + 1).any(meets) {
            return invalid(
                "sockets",
                format!("{host:?} and another one are the same, or in one another's place"),
            );
        }
    }
    Ok(())
}

fn check_identity(profile: &Profile) -> Result<(), InvalidValue> {
    let identity = &profile.identity;
    if identity.uid == 0 || identity.gid == 0 {
        return invalid("identity", "uid and gid must not be 0: no command is ever root");
    }
    let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if identity.user.is_empty() || identity.user.len() > 31 || !identity.user.chars().all(named) {
        return invalid("user", "must be 1 to 31 of a-z, 0-9, \"-\" and \"_\"");
    }
    Ok(())
}

fn check_limits(profile: &Profile) -> Result<(), InvalidValue> {
    for limits in [&profile.limits.terminal, &profile.limits.session] {
        for (key, value) in
            [("memory_bytes", limits.memory_bytes), ("pids", limits.pids), ("cpu_millis", limits.cpu_millis)]
        {
            if value == Some(0) {
                return invalid(key, "must not be 0");
            }
        }
    }
    match profile.limits.rlimits.keys().find(|name| !RLIMIT_NAMES.contains(&name.as_str())) {
        Some(name) => invalid("rlimits", format!("{name:?} is not one of {}", RLIMIT_NAMES.join(", "))),
        None => Ok(()),
    }
}

fn check_environment(profile: &Profile) -> Result<(), InvalidValue> {
    let rule = &profile.environment;
    for (name, value) in &rule.set {
        if let Err(error) = EnvEntry::new(name.clone(), value.clone()) {
            return invalid("set", format!("{name:?}: {error}"));
        }
        if name == "PATH" {
            return invalid("set", "\"PATH\": is what `path` of the profile says: names are judged by that");
        }
    }
    for (key, patterns) in [("allow", &rule.allow), ("deny", &rule.deny)] {
        let bad =
            |pattern: &&String| pattern.is_empty() || pattern.contains(['=', '\0']) || pattern.contains("**");
        if let Some(pattern) = patterns.iter().find(bad) {
            return invalid(
                key,
                format!("{pattern:?} must be a name, in which each \"*\" stands for any text"),
            );
        }
    }
    let is_shipped = |dropped: &&String| {
        variables::all().iter().any(|variable| variable.pattern == **dropped)
            || (!dropped.contains('*') && variables::matching(dropped, None).next().is_some())
    };
    if let Some(dropped) = rule.drop.iter().find(|dropped| !is_shipped(dropped)) {
        return invalid(
            "drop",
            format!("{dropped:?} is not in the shipped list of variables that are denied"),
        );
    }
    Ok(())
}

fn check_times(profile: &Profile) -> Result<(), InvalidValue> {
    let times = &profile.times;
    for (key, value) in [("limit", times.limit), ("ceiling", times.ceiling), ("idle", times.idle)] {
        if value.is_some_and(|value| value.is_zero()) {
            return invalid(key, "must not be 0: leave it out for none");
        }
    }
    if let (Some(limit), Some(ceiling)) = (times.limit, times.ceiling)
        && limit > ceiling
    {
        return invalid("limit", "must not be above ceiling");
    }
    Ok(())
}
