//! Builds the exact command from a request, its profile and the effects of the rules that allow it.
//!
//! A request is never changed into something that its caller did not ask for, except that ceilings lower what it asks
//! for and that rules add what their effects say.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    command::{
        interpreter::Interpreter,
        program::{DirectoryId, FileId, PathStability, ProgramResolver, Resolved},
        rule::{Decision, Effects},
        verdict::RuleVerdict,
    },
    denial::Denial,
    environment::{self, EnvEntry},
    exec_spec::ExecSpec,
    implied_variables::{self, OpenedTls},
    profile::{CgroupLimits, Network, Profile, ProfileName},
    request::{CommandSpec, Request},
    secret::SecretGrant,
    set::PolicySet,
};
use crate::byte_text;

/// Builds the command. An error where the profile does not offer the network that the request asks for.
pub(super) fn build_spec(
    policy: &PolicySet,
    request: &Request,
    (name, profile): (&ProfileName, &Arc<Profile>),
    verdict: &RuleVerdict,
    programs: &dyn ProgramResolver,
) -> Result<ExecSpec, Denial> {
    let effects = &verdict.effects;
    let network = choose_network(name, profile, request)?;
    let (program, argv) = command_line(profile, &request.command);
    let resolved = resolve(programs, &program, request);
    if let Resolved::File(file) = &resolved
        && profile.seccomp.enabled
        && verdict.decision != Decision::Deny
        && programs.is_32_bit(file)
    {
        return Err(Denial::Program32Bit { profile: name.clone(), path: file.path.clone() });
    }
    let secrets = grants(policy, profile, effects);
    let has_program_rules =
        network == Network::Proxy && policy.has_program_rules(&request.principal, name.as_str());
    let opened_tls = opened_tls(policy, request, name, network, &secrets);
    Ok(ExecSpec {
        profile_name: name.clone(),
        profile: with_limits(profile, effects),
        confinement: policy.confinement(name),
        network,
        interpreters: match &resolved {
            Resolved::File(file) => {
                executed_in_place(file, programs.interpreters(file, request.cwd.as_str()).chain)
            }
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => Vec::new(),
        },
        resolved,
        program,
        argv,
        env: env_list(profile, implied_variables::implied_by_network(network, &opened_tls), request, effects),
        opened_tls,
        has_program_rules,
        secrets,
        effects: effects.clone(),
        cwd: request.cwd.clone(),
        directory: directory(policy, request, verdict, programs),
        output_limit_bytes: request
            .output_limit_bytes
            .unwrap_or(profile.output.default_bytes)
            .min(profile.output.ceiling_bytes),
        streams: request.streams,
        stdin: request.stdin,
        overflow: request.overflow,
        time_limit: min_duration(time_limit(profile, request.time_limit), effects.time_limit),
        idle_limit: min_duration(min_duration(profile.times.idle, request.idle_limit), effects.idle_limit),
        kill_grace: request.kill_grace.unwrap_or(profile.times.grace),
        umask: profile.filesystem.umask.or(request.umask).unwrap_or_default(),
        relative_from: request.relative_from(),
        starts_any_rule: verdict.starts_any.clone(),
        approved: Vec::new(),
    })
}

/// The working directory, where rules or a person's answer depend on what it is.
fn directory(
    policy: &PolicySet,
    request: &Request,
    verdict: &RuleVerdict,
    programs: &dyn ProgramResolver,
) -> Option<DirectoryId> {
    if verdict.decision != Decision::Ask && !policy.reads_directories() {
        return None;
    }
    Some(programs.directories(request.cwd.as_str())?.first()?.id)
}

fn choose_network(name: &ProfileName, profile: &Profile, request: &Request) -> Result<Network, Denial> {
    let network = request.network.unwrap_or(profile.network.default);
    if profile.network.choices.contains(&network) {
        Ok(network)
    } else {
        Err(Denial::NetworkNotOffered {
            profile: name.clone(),
            network,
            offered: profile.network.choices.clone(),
        })
    }
}

/// The program and its argument vector, with `argv[0]`.
fn command_line(profile: &Profile, program: &CommandSpec) -> (String, Vec<Bytes>) {
    match program {
        CommandSpec::Argv { command, args } => {
            let argv = std::iter::once(command).chain(args).map(|arg| bytes_of(arg)).collect();
            (command.clone(), argv)
        }
        CommandSpec::ShellLine(line) => {
            let shell = profile.shell.to_string_lossy().into_owned();
            let argv = vec![shell.clone().into(), Bytes::from_static(b"-c"), bytes_of(line)];
            (shell, argv)
        }
    }
}

fn bytes_of(text: &str) -> Bytes {
    byte_text::to_bytes(text).into_owned().into()
}

fn resolve(programs: &dyn ProgramResolver, program: &str, request: &Request) -> Resolved {
    match program.contains('/') {
        true => programs.resolve_path(program, request.cwd.as_str()),
        false => programs.find_command(program),
    }
}

/// The interpreters that are executed in place of a script which another process could exchange. What nobody can exchange is executed by
/// its path, and the kernel finds its interpreter.
fn executed_in_place(file: &FileId, chain: Vec<Interpreter>) -> Vec<Interpreter> {
    let mut is_exchangeable = file.stability == PathStability::Changeable;
    let executed = chain.into_iter().take_while(|interpreter| {
        let is_next = is_exchangeable;
        is_exchangeable =
            matches!(&interpreter.file, Resolved::File(next) if next.stability == PathStability::Changeable);
        is_next
    });
    executed.collect()
}

/// What rules about connections do to TLS of the command. A secret that the command itself is given needs no placeholder.
fn opened_tls(
    policy: &PolicySet,
    request: &Request,
    profile: &ProfileName,
    network: Network,
    given: &[SecretGrant],
) -> OpenedTls {
    if network != Network::Proxy {
        return OpenedTls::default();
    }
    let mut secrets = policy.credential_secrets(&request.principal, profile.as_str());
    secrets.retain(|secret| !given.contains(secret));
    let hosts = match policy.opens_tls(&request.principal, profile.as_str()) {
        true => policy.opened_hosts(&request.principal),
        false => BTreeSet::new(),
    };
    OpenedTls { hosts, secrets }
}

/// The environment without secrets: what is implied, the profile's, the session's, the caller's, then what the rules set.
fn env_list(
    profile: &Profile,
    implied: Vec<(String, String)>,
    request: &Request,
    effects: &Effects,
) -> Vec<Bytes> {
    let set = effects
        .environment
        .iter()
        .filter_map(|(name, value)| EnvEntry::new(name.clone(), value.clone()).ok());
    let caller: Vec<EnvEntry> = request.env.iter().cloned().chain(set).collect();
    environment::merge_to_list(profile, implied, &request.session_env, &caller)
}

/// The secrets of the profile and of the rules.
fn grants(policy: &PolicySet, profile: &Profile, effects: &Effects) -> Vec<SecretGrant> {
    let names: BTreeSet<&String> = profile.secrets.iter().chain(&effects.secrets).collect();
    // Loading has refused names that no secret has.
    names.into_iter().filter_map(|name| policy.secret_grant(name)).collect()
}

/// The profile, with the terminal's limits as low as the rules say.
fn with_limits(profile: &Arc<Profile>, effects: &Effects) -> Arc<Profile> {
    let (own, more) = (profile.limits.terminal, effects.limits);
    let terminal = CgroupLimits {
        memory_bytes: min_limit(own.memory_bytes, more.memory_bytes),
        swap_bytes: min_limit(own.swap_bytes, more.swap_bytes),
        pids: min_limit(own.pids, more.pids),
        cpu_millis: min_limit(own.cpu_millis, more.cpu_millis),
    };
    if terminal == own {
        return profile.clone();
    }
    let mut profile = Profile::clone(profile);
    profile.limits.terminal = terminal;
    Arc::new(profile)
}

fn min_limit(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The caller's limit may go up to the ceiling, or where there is none, to the profile's own limit.
fn time_limit(profile: &Profile, asked: Option<Duration>) -> Option<Duration> {
    let ceiling = profile.times.ceiling.or(profile.times.limit);
    min_duration(ceiling, asked.or(profile.times.limit))
}

fn min_duration(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
