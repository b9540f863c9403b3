//! The exact command that a permit allows: what `execve(2)` gets, and under which limits. The code that starts the command reads it.
//!
//! It is built from a request, its profile and the effects of the rules that allow it, and nothing else makes one. Its digest, with that of
//! the request, is what an approval is bound to.
//!
//! A request is never changed into something that its caller did not ask for, except that ceilings lower what it asks for and that rules
//! add what their effects say.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::Digest as _;

use crate::{
    approval::ApprovedCommand,
    byte_text,
    command::{
        program::{DirectoryId, FileId, Interpreter, PathStability, ProgramResolver, Resolved},
        rule::{Decision, Effects},
        verdict::RuleVerdict,
    },
    denial::Denial,
    environment::{self, EnvEntry},
    implied_variables::{self, OpenedTls},
    path::AbsPath,
    profile::{Network, Profile, ProfileName, Umask, lower_limit},
    request::{CommandSpec, OverflowMode, Request, StdinSource, StreamMode},
    set::{Digest, PolicySet, SecretGrant},
};

/// The command that is executed, with everything that decides how it runs.
#[derive(Debug)]
pub struct ExecSpec {
    pub(super) profile_name: ProfileName,
    pub(super) profile: Arc<Profile>,
    pub(super) confinement: u64,
    pub(super) network: Network,
    pub(super) program: String,
    pub(super) resolved: Resolved,
    pub(super) interpreters: Vec<Interpreter>,
    pub(super) argv: Vec<Bytes>,
    pub(super) env: Vec<Bytes>,
    pub(super) effects: Effects,
    pub(super) secrets: Vec<SecretGrant>,
    pub(super) opened_tls: OpenedTls,
    pub(super) has_program_rules: bool,
    pub(super) cwd: AbsPath,
    pub(super) directory: Option<DirectoryId>,
    pub(super) output_limit_bytes: u64,
    pub(super) streams: StreamMode,
    pub(super) stdin: StdinSource,
    pub(super) overflow: OverflowMode,
    pub(super) time_limit: Option<Duration>,
    pub(super) idle_limit: Option<Duration>,
    pub(super) kill_grace: Duration,
    pub(super) umask: Umask,
    pub(super) relative_from: Vec<String>,
    pub(super) starts_any_rule: Option<String>,
    pub(super) approved: Vec<ApprovedCommand>,
}

impl ExecSpec {
    /// The name of the profile that the command runs under.
    pub fn profile_name(&self) -> &ProfileName {
        &self.profile_name
    }

    /// The profile, with the limits that the rules have lowered.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// Tells apart profiles of one name in two policies: a sandbox of one is not used for a command of the other.
    pub fn confinement(&self) -> u64 {
        self.confinement
    }

    /// The network that the command has.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The program: a bare name to look for in [`Self::search_path`], or a path.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The file that the rules have seen. Nothing else may be executed.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// As [`Self::resolved`], where it is a file. Absent where there is no such file, or it could not be seen.
    pub fn resolved_file(&self) -> Option<&FileId> {
        match &self.resolved {
            Resolved::File(file) => Some(file),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => None,
        }
    }

    /// The interpreters of a script that another process could exchange. They are executed in its place.
    pub fn interpreters(&self) -> &[Interpreter] {
        &self.interpreters
    }

    /// The argument vector, with `argv[0]`.
    pub fn argv(&self) -> &[Bytes] {
        &self.argv
    }

    /// The whole environment without the secrets, each entry as `NAME=value`.
    pub fn env(&self) -> &[Bytes] {
        &self.env
    }

    /// What the rules change about the command. The other fields have it already.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The secrets that are added to the environment, sorted by name, no name twice.
    pub fn secrets(&self) -> &[SecretGrant] {
        &self.secrets
    }

    /// What rules about connections do to its TLS.
    pub fn opened_tls(&self) -> &OpenedTls {
        &self.opened_tls
    }

    /// Whether rules by program are about its connections.
    pub fn has_program_rules(&self) -> bool {
        self.has_program_rules
    }

    /// The working directory.
    pub fn cwd(&self) -> &AbsPath {
        &self.cwd
    }

    /// Where relative patterns of rules that deny or ask begin, also for what the command executes: the working directory and the
    /// session's roots.
    pub fn relative_from(&self) -> &[String] {
        &self.relative_from
    }

    /// The directories in which a bare program name is looked up: the profile's, whatever `PATH` says, and those of the workspace that the
    /// caller has in PATH.
    pub fn search_path(&self) -> &[PathBuf] {
        self.profile.searched()
    }

    /// Bytes of output to retain for each stream.
    pub fn output_limit_bytes(&self) -> u64 {
        self.output_limit_bytes
    }

    /// Whether stdout and stderr are one stream or two, or a pseudo-terminal.
    pub fn streams(&self) -> StreamMode {
        self.streams
    }

    /// Where stdin comes from.
    pub fn stdin(&self) -> StdinSource {
        self.stdin
    }

    /// What happens when the ring is full.
    pub fn overflow(&self) -> OverflowMode {
        self.overflow
    }

    /// The command is stopped after this time.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// The command is stopped when it has written nothing for this long.
    pub fn idle_limit(&self) -> Option<Duration> {
        self.idle_limit
    }

    /// The time between TERM and KILL.
    pub fn kill_grace(&self) -> Duration {
        self.kill_grace
    }

    /// The rule with `starts = "any"` that lets a part of the command run: processes of its terminal may execute what no rule matches.
    pub fn starts_any_rule(&self) -> Option<&str> {
        self.starts_any_rule.as_deref()
    }

    /// The file mode creation mask that the command starts with.
    pub fn umask(&self) -> Umask {
        self.umask
    }

    /// What the working directory is, where a rule or a person has looked at it. The command begins in no other.
    pub fn directory(&self) -> Option<DirectoryId> {
        self.directory
    }

    /// What a person has approved of the request, if rules asked: it is not asked about again when it is executed.
    pub fn approved(&self) -> impl Iterator<Item = ApprovedCommand> {
        self.approved.iter().map(|one| one.beginning_in(&self.env))
    }
}

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
        time_limit: lower_limit(time_limit(profile, request.time_limit), effects.time_limit),
        idle_limit: lower_limit(lower_limit(profile.times.idle, request.idle_limit), effects.idle_limit),
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
    let own = profile.limits.terminal;
    let terminal = own.lowered_by(effects.limits);
    if terminal == own {
        return profile.clone();
    }
    let mut profile = Profile::clone(profile);
    profile.limits.terminal = terminal;
    Arc::new(profile)
}

/// The caller's limit may go up to the ceiling, or where there is none, to the profile's own limit.
fn time_limit(profile: &Profile, asked: Option<Duration>) -> Option<Duration> {
    let ceiling = profile.times.ceiling.or(profile.times.limit);
    lower_limit(ceiling, asked.or(profile.times.limit))
}

/// Hashes every field that says what will run, the files that it names, and what the session lets it touch. Each part
/// goes in with its length, so that no two requests share a text.
pub(super) fn request_digest(request: &Request, verdict: &RuleVerdict, spec: &ExecSpec) -> Digest {
    let mut hash = sha2::Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(b"provost.order.v4");
    part(request.principal.as_bytes());
    part(&(request.roots.len() as u64).to_le_bytes());
    request.roots.iter().for_each(|root| part(root.as_str().as_bytes()));
    part(&(request.labels.len() as u64).to_le_bytes());
    request.labels.iter().flat_map(|(name, value)| [name, value]).for_each(|text| part(text.as_bytes()));
    part(spec.profile_name.as_str().as_bytes());
    part(spec.program.as_bytes());
    part(spec.cwd.as_str().as_bytes());
    let directory = spec.directory.map_or([0; 2], |id| [id.device, id.inode]);
    directory.iter().for_each(|number| part(&number.to_le_bytes()));
    for list in [&spec.argv, &spec.env] {
        part(&(list.len() as u64).to_le_bytes());
        list.iter().for_each(|item| part(item));
    }
    part(&(spec.secrets.len() as u64).to_le_bytes());
    for SecretGrant { name, file } in &spec.secrets {
        part(name.as_bytes());
        part(file.as_os_str().as_encoded_bytes());
    }
    let millis = |time: Option<Duration>| time.map_or(u64::MAX, |time| time.as_millis() as u64);
    let units = verdict.units.iter().map(|unit| &unit.file);
    let interpreters = spec.interpreters.iter().map(|interpreter| &interpreter.file);
    let named: Vec<[u64; 3]> = spec
        .resolved_file()
        .map(identity)
        .into_iter()
        .chain(units.chain(interpreters).map(|found| match found {
            Resolved::File(file) => identity(file),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => [0; 3],
        }))
        .collect();
    let limits = spec.profile.limits.terminal;
    for number in [named.len() as u64].into_iter().chain(named.into_iter().flatten()).chain(
        [limits.memory_bytes, limits.swap_bytes, limits.pids, limits.cpu_millis]
            .map(|limit| limit.unwrap_or(u64::MAX)),
    ) {
        part(&number.to_le_bytes());
    }
    for number in [
        spec.network as u64,
        spec.streams.digest_number(),
        spec.stdin as u64,
        spec.overflow as u64,
        spec.output_limit_bytes,
        millis(spec.time_limit),
        millis(spec.idle_limit),
        millis(Some(spec.kill_grace)),
        u64::from(spec.umask.bits()),
    ] {
        part(&number.to_le_bytes());
    }
    Digest(hash.finalize().into())
}

fn identity(file: &FileId) -> [u64; 3] {
    [file.device, file.inode, file.changed_nanos as u64]
}
