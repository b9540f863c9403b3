//! Says what would let pass what was refused: which rule of the policy or which line of the profile, where no rule decided; and for a
//! program that a sandbox does not show, where it is on this host and which line of its profile would show it.
//!
//! What a rule denies is denied on purpose, and its reason is said. A program is looked for with this process's own rights, in its own
//! search path: what is said is what the caller can see anyway.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use crate::{
    cli::{console::error::CliError, request::known_agents::is_program},
    client,
    policy::{profile::Filesystem, toolchain},
    printable,
    proto::v1::{ConnectDenial, ExecDenial, ExecDenialCause, Network, Outcome, ProtectionHint, Unreachable},
};

/// The rule of a refusal for want of one.
const DEFAULT: &str = "default";
/// The rule of a working directory outside of the workspace.
const OUTSIDE_ROOTS: &str = "session.roots";
/// Programs and destinations for which a rule is written out.
const REMEDIES_MAX: usize = 3;

/// Adds the rule or line to a refusal of a request.
pub(super) fn advise(failure: CliError) -> CliError {
    if failure.reason != "POLICY_DENIED" || failure.advice.is_some() {
        return failure;
    }
    let Some(rule) = failure.details.get("rule") else { return failure };
    let of_profile = rule.strip_prefix("profile.").and_then(|rest| rest.split_once('.'));
    let advice = match (rule.as_str(), of_profile) {
        (DEFAULT, _) => {
            "a [[rule]] of the policy with decision = \"allow\" and its argv would allow it".to_owned()
        }
        (_, Some((_, "network.choices"))) => {
            "its line `network = { choices = [...] }` lists the networks that may be asked for".to_owned()
        }
        (_, Some((_, "environment.allow"))) => {
            "its line `environment = { allow = [...] }` lists what may be passed".to_owned()
        }
        (_, Some((_, key))) if key.starts_with("environment.deny:") => {
            let pattern = printable::line(key.trim_start_matches("environment.deny:")).into_owned();
            format!("this line of the profile would let it pass: `environment = {{ drop = [{pattern:?}] }}`")
        }
        (OUTSIDE_ROOTS, _) => {
            "-w names a directory of the workspace, and --root says how much is in the workspace".to_owned()
        }
        _ => return failure,
    };
    failure.with_advice(advice)
}

/// As [`advise`], for a command of a session that is open: its roots stay as they are.
pub(super) fn advise_on_workdir(failure: CliError) -> CliError {
    match failure.details.get("rule").map(String::as_str) {
        Some(OUTSIDE_ROOTS) => failure.with_advice("-w names a directory of the session's roots"),
        _ => failure,
    }
}

/// A line for each program and destination that no rule allowed, within the bound.
pub(super) fn remedy_lines(outcome: &Outcome) -> Vec<String> {
    let is_default =
        |denial: &&ExecDenial| denial.cause() == ExecDenialCause::Default && !denial.program.is_empty();
    let execs = outcome.exec_denials.iter().filter(is_default).map(|denial| allowing_rule(&denial.program));
    let is_default =
        |denial: &&ConnectDenial| denial.rule == DEFAULT && denial.host.parse::<IpAddr>().is_err();
    let connections = outcome.connect_denials.iter().filter(is_default).map(|denial| {
        let ConnectDenial { host, port, method, path, .. } = denial;
        let rule = match host.strip_prefix("unix:") {
            None if !method.is_empty() => {
                let path = toml::Value::from(path.as_str());
                format!("decision = \"allow\", host = [{host:?}], port = [{port}], method = [{method:?}], path = [{path}]")
            }
            Some(path) => format!("decision = \"allow\", unix = [{path:?}]"),
            None => format!("decision = \"allow\", host = [{host:?}], port = [{port}]"),
        };
        format!("a [[connect]] rule of the policy would allow it: {rule}")
    });
    let unprotected = outcome.protection_hints.iter().filter_map(unprotecting_line);
    let network = client::network_cause(outcome).into_iter().filter_map(other_network);
    let mut lines: Vec<String> = Vec::new();
    for line in execs.chain(connections).chain(unprotected).chain(network) {
        if lines.len() < REMEDIES_MAX && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// How a command gets a network that reaches names. With the network `proxy` it has one.
fn other_network(unreachable: &Unreachable) -> Option<String> {
    if unreachable.network() == Network::Proxy {
        return None;
    }
    Some(match client::offers_proxy(unreachable) {
        true => "this option would give it one: --network proxy".to_owned(),
        false => "this line of its profile would offer one: `network = { choices = [\"none\", \"proxy\"] }`"
            .to_owned(),
    })
}

/// The line that takes a path out of those that are protected. The shipped lists have it by its place in the workspace, which is its end.
fn unprotecting_line(hint: &ProtectionHint) -> Option<String> {
    let files = Filesystem::default();
    let list = match hint.key.as_str() {
        "filesystem.protected" => files.protected,
        "filesystem.reserved" => files.reserved,
        _ => return None,
    };
    let listed = list.into_iter().find(|listed| Path::new(&hint.path).ends_with(listed))?;
    // What a command makes there is looked at for what it does, whether the place is protected or not.
    let changes = if listed.starts_with(".git") { ", changes = \"report\"" } else { "" };
    let listed = toml::Value::from(listed.to_str()?);
    Some(format!(
        "this line of the profile would let it pass: `filesystem = {{ drop = [{listed}]{changes} }}`"
    ))
}

/// A bare name means the file that the trusted path has. What lies elsewhere, as in a virtual environment of the workspace, is named by its path.
fn allowing_rule(program: &str) -> String {
    let is_systems = ["/usr/", "/bin/", "/sbin/"].iter().any(|directory| program.starts_with(directory));
    if program.contains('/') && !is_systems {
        let path = printable::line(program);
        return format!(
            "that is {path}, which a rule that allows the name does not mean; a [[rule]] of the policy would allow it: \
             decision = \"allow\", argv = [{path:?}, \"**\"]"
        );
    }
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = printable::line(name);
    format!("a [[rule]] of the policy would allow it: decision = \"allow\", argv = [{name:?}, \"**\"]")
}

/// Adds the advice to a failure whose command was not found.
pub(super) fn advise_on_missing_program(failure: CliError, program: &str) -> CliError {
    if failure.reason != "COMMAND_NOT_FOUND" {
        return failure;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let Some(found) = find(program, &home) else { return failure };
    // What is shown by default was not found there for another reason.
    if ["/usr", "/bin", "/sbin", "/opt"].iter().any(|shown| found.starts_with(shown)) {
        return failure;
    }
    let of_home = found.strip_prefix(&home).ok().and_then(toolchain::holding);
    let directory = found.parent().map(|parent| toml::Value::from(printable::path(parent)).to_string());
    let directory = directory.unwrap_or_default();
    let line = match of_home {
        Some(toolchain) => format!("`toolchains = [\"{}\"]`", toolchain.name),
        None if program.contains('/') => format!("`filesystem = {{ read_only = [{directory}] }}`"),
        None => format!("`filesystem = {{ read_only = [{directory}] }}` and {directory} in `path`"),
    };
    let advice = format!(
        "{} is {} on this host, which the profile does not show; this line of the profile would: {line}",
        printable::line(program),
        printable::path(&found)
    );
    failure.with_advice(advice)
}

/// The program that a shell would run here.
fn find(program: &str, home: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return std::path::absolute(program).ok().filter(|path| is_program(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let parts = toolchain::all().iter().flat_map(|one| &one.part);
    let of_home = parts.flat_map(|part| &part.path).map(|directory| home.join(directory));
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute()).chain(of_home);
    directories.map(|directory| directory.join(program)).find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_named_once_for_what_no_rule_allowed_and_never_for_what_one_denies() {
        let exec = |program: &str, cause: ExecDenialCause| ExecDenial {
            program: program.into(),
            cause: cause.into(),
            ..ExecDenial::default()
        };
        let connect = |host: &str, rule: &str| ConnectDenial {
            host: host.into(),
            port: 443,
            rule: rule.into(),
            ..ConnectDenial::default()
        };
        let request =
            ConnectDenial { method: "DELETE".into(), path: "/all".into(), ..connect("example.org", DEFAULT) };
        let outcome = Outcome {
            exec_denials: vec![
                exec("/usr/bin/nc", ExecDenialCause::Default),
                exec("/bin/nc", ExecDenialCause::Default),
                exec("/bin/git", ExecDenialCause::Rule),
            ],
            connect_denials: vec![
                connect("example.org", DEFAULT),
                connect("10.0.0.1", DEFAULT),
                connect("example.net", "mine"),
                request,
            ],
            ..Outcome::default()
        };
        let lines = remedy_lines(&outcome);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].ends_with("decision = \"allow\", argv = [\"nc\", \"**\"]"), "{lines:?}");
        assert!(lines[1].ends_with("host = [\"example.org\"], port = [443]"), "{lines:?}");
        assert!(lines[2].ends_with("port = [443], method = [\"DELETE\"], path = [\"/all\"]"), "{lines:?}");
    }

    #[test]
    fn the_option_is_named_where_the_profile_offers_it_and_else_its_line() {
        let lines = |network: Network, offered: Vec<i32>| {
            let unreachable = Unreachable { network: network.into(), offered, ..Unreachable::default() };
            remedy_lines(&Outcome { unreachable: Some(unreachable), ..Outcome::default() })
        };
        let offered = lines(Network::None, vec![Network::Proxy.into()]);
        assert_eq!(offered, ["this option would give it one: --network proxy"]);
        assert!(lines(Network::None, vec![])[0].contains("`network = { choices = [\"none\", \"proxy\"] }`"));
        assert_eq!(lines(Network::Proxy, vec![]), [""; 0]);
    }
}
