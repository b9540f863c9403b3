//! Judging: a complete request against a policy. The only place where a [`Permit`] is made.
//!
//! Decides by what the request and the policy say, and by which files there are, which the caller brings as
//! [`ProgramResolver`]: no clock, no file system. A request is allowed as a whole or refused with the one rule that
//! refused it; it is never changed into something that the caller did not ask for, but for what ceilings cut
//! and what the rules that allow it say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sha2::Digest as _;

use super::{
    AbsPath, ApprovalGrant, ApprovalQuestion, CommandSpec, Denial, Digest, ExecSpec, Permit, PolicySet,
    ProfileName, Request,
    command::{
        program::{CachedResolver, FileId, ProgramResolver, Resolved},
        rule::{Decision, Effects, RequestContext},
        shell::{self, Dialect},
        verdict::{self, AssignmentVerdict, CommandInput, EvalContext, Lookup, RuleVerdict},
    },
    environment::{self, EnvEntry, VariableDenial},
    profile::{Network, Profile},
    secret::SecretGrant,
};

/// A request with everything that was found out about it: for judging, and for explaining.
#[derive(Debug)]
pub struct Evaluation {
    /// The profile that it would run under.
    pub profile_name: ProfileName,
    /// What the rules say.
    pub verdict: RuleVerdict,
    /// What exactly would be run.
    pub spec: ExecSpec,
}

/// Which files there are, under each profile: profiles have search paths and directories of their own.
pub trait ProfileResolvers {
    /// What a command under this profile finds.
    fn for_profile<'a>(&'a self, profile: &'a Profile) -> Box<dyn ProgramResolver + 'a>;
}

/// What is to be kept of a judging, whatever it ended with.
#[derive(Debug, Default)]
pub struct EvaluationTrace {
    /// Of the request; absent where it was refused before it had a normal form.
    pub digest: Option<Digest>,
    /// Every command that was seen in it, in its normal form.
    pub commands: Vec<String>,
    /// Rules that only watch, and what they would have decided.
    pub observed: Vec<(String, Decision)>,
}

/// Judges a request. The permit holds for this request and this generation of the policy only. An `approval`
/// answers the question of a rule that asks, if it was given for the very same request and policy.
pub fn judge(
    policy: &PolicySet,
    request: &Request,
    views: &dyn ProfileResolvers,
    approval: Option<ApprovalGrant>,
) -> Result<Permit, Denial> {
    judge_with_minutes(policy, request, views, approval, &mut EvaluationTrace::default())
}

/// As [`judge`], and fills in what is to be kept of it.
pub fn judge_with_minutes(
    policy: &PolicySet,
    request: &Request,
    views: &dyn ProfileResolvers,
    approval: Option<ApprovalGrant>,
    trace: &mut EvaluationTrace,
) -> Result<Permit, Denial> {
    *trace = EvaluationTrace::default();
    let Evaluation { verdict, spec: order, .. } = evaluate(policy, request, views)?;
    let (digest, generation) = (digest(request, &verdict, &order), policy.generation());
    *trace = EvaluationTrace {
        digest: Some(digest),
        commands: verdict.units.iter().map(|unit| shell::print(&unit.words)).collect(),
        observed: verdict.observed.clone(),
    };
    match verdict.decision {
        Decision::Allow => {}
        Decision::Deny => return Err(Denial::from_verdict(policy, &order.profile_name, &verdict)),
        Decision::Ask => match approval {
            Some(approval) if approval.covers(digest, generation, &request.principal) => {}
            _ => {
                let question = ApprovalQuestion::from_verdict(policy, &verdict, digest, generation);
                return Err(Denial::NeedsApproval(Box::new(question)));
            }
        },
    }
    let observed = verdict.observed;
    Ok(Permit { digest, generation, rule: verdict.cause_rule, observed, spec: order })
}

/// Finds out everything about a request, without deciding. An error where even that cannot be done: the profile
/// does not exist, does not offer the network, denies a variable; the directory is outside.
pub fn evaluate(
    policy: &PolicySet,
    request: &Request,
    views: &dyn ProfileResolvers,
) -> Result<Evaluation, Denial> {
    let asked = policy
        .profile(request.profile.as_deref())
        .ok_or_else(|| Denial::UnknownProfile(request.profile.clone().unwrap_or_default()))?;
    let programs = CachedResolver::new(views.for_profile(asked.1));
    let (verdict, (name, profile), programs) = match apply_rules(policy, request, asked, &programs)? {
        // A rule names another profile: what it changes (files, variables, directories) is judged again.
        verdict if selects_other_profile(&verdict, asked.0) => {
            let wanted = verdict.effects.profile.clone().unwrap_or_default();
            let other = policy.profile(Some(&wanted)).ok_or(Denial::UnknownProfile(wanted))?;
            let programs = CachedResolver::new(views.for_profile(other.1));
            let again = apply_rules(policy, request, other, &programs)?;
            if selects_other_profile(&again, other.0) {
                return Err(Denial::ProfileChain(asked.0.clone(), other.0.clone()));
            }
            (again, other, programs)
        }
        verdict => (verdict, asked, programs),
    };
    let network = choose_network(name, profile, request)?;
    let effects = &verdict.effects;
    let set: Vec<EnvEntry> = effects
        .environment
        .iter()
        .filter_map(|(name, value)| EnvEntry::new(name.clone(), value.clone()).ok())
        .collect();
    let caller: Vec<EnvEntry> = request.env.iter().chain(&set).cloned().collect();
    let (program, argv) = command_line(profile, &request.command);
    let judged = programs_file(&programs, &program, request);
    let spec = ExecSpec {
        profile_name: name.clone(),
        profile: with_limits(profile, effects),
        confinement: policy.confinement(name),
        network,
        interpreters: match &judged {
            Resolved::File(file) => programs.interpreters(file, request.cwd.as_str()),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => Vec::new(),
        },
        resolved: judged,
        program,
        argv,
        env: environment::merge_to_list(profile, &request.session_env, &caller),
        secrets: grants(policy, profile, effects),
        cwd: request.cwd.clone(),
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
    };
    Ok(Evaluation { profile_name: name.clone(), verdict, spec })
}

fn selects_other_profile(verdict: &RuleVerdict, name: &ProfileName) -> bool {
    verdict.effects.profile.as_deref().is_some_and(|wanted| wanted != name.as_str())
}

/// Lets the profile's own rules and the command rules speak.
fn apply_rules(
    policy: &PolicySet,
    request: &Request,
    (name, profile): (&ProfileName, &Arc<Profile>),
    programs: &dyn ProgramResolver,
) -> Result<RuleVerdict, Denial> {
    check_variables(policy, name, profile, request.session_env.iter().chain(&request.env))?;
    check_cwd(&request.roots, &request.cwd)?;
    let env = environment::merge_variables(profile, &request.session_env, &request.env);
    let context = RequestContext {
        principal: request.principal.clone(),
        labels: (*request.labels).clone(),
        cwd: request.cwd.as_str().to_owned(),
        env,
    };
    let eval = EvalContext {
        rules: policy.rules(),
        resolver: programs,
        request: &context,
        lookup: lookup(profile, &context.env),
        assignment_verdict: &|name, value| assignment_verdict(policy, profile, name, value),
    };
    Ok(match &request.command {
        CommandSpec::Argv { command, args } => {
            let argv: Vec<String> = std::iter::once(command).chain(args).cloned().collect();
            verdict::evaluate_rules(CommandInput::Argv(&argv), eval)
        }
        CommandSpec::ShellLine(line) => {
            let shell = profile.shell.file_name().and_then(|name| name.to_str()).unwrap_or("sh");
            verdict::evaluate_rules(CommandInput::ShellLine(line, Dialect::of(shell)), eval)
        }
    })
}

/// What becomes of a line that sets a variable.
pub(super) fn assignment_verdict(
    policy: &PolicySet,
    profile: &Profile,
    name: &str,
    value: Option<&str>,
) -> AssignmentVerdict {
    match policy.is_secret(name) {
        true => AssignmentVerdict::Denied,
        false => environment::assignment_verdict(&profile.environment, name, value),
    }
}

/// What names in lines mean in an environment.
pub(super) fn lookup(profile: &Profile, env: &BTreeMap<String, String>) -> Lookup {
    if environment::keeps_lookup(profile, env) { Lookup::Trusted } else { Lookup::Changed }
}

/// What the profile gives, and what the rules add.
fn grants(policy: &PolicySet, profile: &Profile, effects: &Effects) -> Vec<SecretGrant> {
    let names: BTreeSet<&String> = profile.secrets.iter().chain(&effects.secrets).collect();
    // Loading has refused names that are none.
    let grant = |name: &String| {
        Some(SecretGrant { name: name.clone(), file: policy.secrets.get(name)?.file.clone() })
    };
    names.into_iter().filter_map(grant).collect()
}

fn programs_file(programs: &dyn ProgramResolver, program: &str, request: &Request) -> Resolved {
    match program.contains('/') {
        true => programs.resolve_path(program, request.cwd.as_str()),
        false => programs.find_in_path(program),
    }
}

/// The profile, with the terminal's limits as low as the rules say.
fn with_limits(profile: &Arc<Profile>, effects: &Effects) -> Arc<Profile> {
    let (own, more) = (profile.limits.terminal, effects.limits);
    let terminal = super::profile::CgroupLimits {
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

/// Judges what a session brings for all of its terminals, so that a mistake is told at once. Each terminal's
/// request is judged as a whole all the same. Returns the name of the profile.
pub fn check_session(
    policy: &PolicySet,
    profile: Option<&str>,
    roots: &[AbsPath],
    cwd: &AbsPath,
    env: &[EnvEntry],
) -> Result<ProfileName, Denial> {
    let (name, profile) = policy
        .profile(profile)
        .ok_or_else(|| Denial::UnknownProfile(profile.unwrap_or_default().to_owned()))?;
    check_variables(policy, name, profile, env)?;
    check_cwd(roots, cwd)?;
    Ok(name.clone())
}

fn choose_network(name: &ProfileName, profile: &Profile, request: &Request) -> Result<Network, Denial> {
    let network = request.network.unwrap_or(profile.network.default);
    if profile.network.choices.contains(&network) {
        Ok(network)
    } else {
        Err(Denial::NetworkNotOffered { profile: name.clone(), network })
    }
}

/// Judges what a caller passes. A value that the command has anyway changes nothing, and is let through.
pub(super) fn check_variables<'a>(
    policy: &PolicySet,
    name: &ProfileName,
    profile: &Profile,
    entries: impl IntoIterator<Item = &'a EnvEntry>,
) -> Result<(), Denial> {
    for entry in entries {
        if policy.is_secret(entry.name()) {
            return Err(Denial::SecretVariable(entry.name().to_owned()));
        }
        let judged = environment::check_variable(&profile.environment, entry.name(), Some(entry.value()));
        let Err(refused) = judged else { continue };
        if environment::merge_variables(profile, &[], &[])
            .get(entry.name())
            .is_some_and(|own| own == entry.value())
        {
            continue;
        }
        return Err(match refused {
            VariableDenial::Denied { pattern, reason, on_assignment: _ } => Denial::EnvironmentDenied {
                profile: name.clone(),
                name: entry.name().to_owned(),
                pattern: pattern.to_owned(),
                reason,
            },
            VariableDenial::NotAllowed => {
                Denial::EnvironmentNotAllowed { profile: name.clone(), name: entry.name().to_owned() }
            }
        });
    }
    Ok(())
}

/// By its text only. The sandbox's own view is the boundary: what a link in the workspace points to outside of
/// it does not exist there.
fn check_cwd(roots: &[AbsPath], cwd: &AbsPath) -> Result<(), Denial> {
    if roots.iter().any(|root| cwd.is_within(root)) {
        Ok(())
    } else {
        Err(Denial::CwdOutsideRoots(cwd.clone()))
    }
}

fn command_line(profile: &Profile, program: &CommandSpec) -> (String, Vec<Bytes>) {
    match program {
        CommandSpec::Argv { command, args } => {
            let argv = std::iter::once(command).chain(args).map(|arg| Bytes::from(arg.clone())).collect();
            (command.clone(), argv)
        }
        CommandSpec::ShellLine(line) => {
            let shell = profile.shell.to_string_lossy().into_owned();
            let argv = vec![shell.clone().into(), Bytes::from_static(b"-c"), line.clone().into()];
            (shell, argv)
        }
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

/// Of every field that says what will run, of the files that it names, and of what the session lets it touch: an approval
/// is for all of that. Each part goes in with its length, so that no two requests share a text.
fn digest(request: &Request, verdict: &RuleVerdict, spec: &ExecSpec) -> Digest {
    let mut hash = sha2::Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(b"provost.order.v3");
    part(request.principal.as_bytes());
    part(&(request.roots.len() as u64).to_le_bytes());
    request.roots.iter().for_each(|root| part(root.as_str().as_bytes()));
    part(&(request.labels.len() as u64).to_le_bytes());
    request.labels.iter().flat_map(|(name, value)| [name, value]).for_each(|text| part(text.as_bytes()));
    part(spec.profile_name.as_str().as_bytes());
    part(spec.program.as_bytes());
    part(spec.cwd.as_str().as_bytes());
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
        spec.streams as u64,
        spec.stdin as u64,
        spec.overflow as u64,
        spec.output_limit_bytes,
        millis(spec.time_limit),
        millis(spec.idle_limit),
        millis(Some(spec.kill_grace)),
    ] {
        part(&number.to_le_bytes());
    }
    Digest(hash.finalize().into())
}

fn identity(file: &FileId) -> [u64; 3] {
    [file.device, file.inode, file.changed_nanos as u64]
}

#[cfg(test)]
mod tests;
