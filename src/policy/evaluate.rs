//! Evaluates a request against a policy, and decides. The only place where a [`Permit`] is made.
//!
//! [`PolicySet::evaluate`] checks what the caller brings, finds what the request would run and what the rules say about it.
//! [`Evaluation::decide`] turns that into a permit or a denial, and nothing else does. Both depend on the request, the policy and the files
//! that the caller resolves names to, and on nothing else: no clock, no file system.
//!
//! A permit is the proof that policy has allowed one exact request. Its fields are private to this file, and it is neither `Clone` nor
//! `Default`. The only way to the [`ExecSpec`] inside is to give the permit up. Policies' own tests and the corpus of known bypasses ask
//! the rules about a command as requests do.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    approval::{ApprovalGrant, ApprovalQuestion, ApprovedCommand},
    command::{
        evaluate_rules,
        program::{CachedResolver, NominalResolver, ProgramResolver},
        rule::{Decision, RequestContext},
        shell,
        verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, RuleVerdict, Unseen},
    },
    denial::Denial,
    environment::{self, EnvEntry, VariableDenial},
    exec_spec::{ExecSpec, build_spec, request_digest},
    path::AbsPath,
    profile::{Profile, ProfileName, Requirement},
    request::{CommandSpec, Request},
    search_path,
    set::{Digest, PolicySet},
};

/// Resolves program names, under each profile: profiles have search paths and directories of their own.
pub trait ProfileResolvers {
    /// The resolver for a command under this profile.
    fn for_profile<'a>(&'a self, profile: &'a Profile) -> Box<dyn ProgramResolver + 'a>;

    /// The profile as it is for this caller: with those toolchains of the caller's home that it names.
    fn adapt(&self, profile: &Arc<Profile>) -> Arc<Profile> {
        profile.clone()
    }
}

impl ProfileResolvers for NominalResolver {
    fn for_profile<'a>(&'a self, _: &'a Profile) -> Box<dyn ProgramResolver + 'a> {
        Box::new(Self)
    }
}

/// Everything that was found out about a request. [`Self::decide`] turns it into a permit or a denial.
#[derive(Debug)]
#[must_use = "an evaluation that nobody decides on allows nothing"]
pub struct Evaluation<'p> {
    pub(super) policy: &'p PolicySet,
    pub(super) result: Result<Evaluated, Denial>,
}

/// A request that could be evaluated.
#[derive(Debug)]
pub(super) struct Evaluated {
    /// Who asks.
    principal: String,
    /// What the rules say.
    pub(super) verdict: RuleVerdict,
    /// The command that would run.
    pub(super) spec: ExecSpec,
    digest: Digest,
}

/// What the journal keeps of an evaluation, whatever was decided.
#[derive(Debug, Default)]
pub struct EvaluationTrace {
    /// The digest of the request; absent where it was refused before it had a normal form.
    pub digest: Option<Digest>,
    /// Every command that was seen in the request, in its normal form.
    pub commands: Vec<String>,
    /// Rules in mode `observe`, and what they would have decided.
    pub observed: Vec<(String, Decision)>,
}

impl PolicySet {
    /// Evaluates a request, without deciding.
    pub fn evaluate(&self, request: &Request, resolvers: &dyn ProfileResolvers) -> Evaluation<'_> {
        let result = self.verdict_and_spec(request, resolvers).map(|(verdict, spec)| Evaluated {
            digest: request_digest(request, &verdict, &spec),
            principal: request.principal.clone(),
            verdict,
            spec,
        });
        Evaluation { policy: self, result }
    }

    /// The evaluation of a request that is denied before its rules are asked.
    pub fn deny(&self, denial: Denial) -> Evaluation<'_> {
        Evaluation { policy: self, result: Err(denial) }
    }

    /// An error where the rules cannot be asked or nothing can be built: the profile does not exist or does not offer
    /// the network, a variable is denied, the working directory is outside.
    fn verdict_and_spec(
        &self,
        request: &Request,
        resolvers: &dyn ProfileResolvers,
    ) -> Result<(RuleVerdict, ExecSpec), Denial> {
        let (verdict, spec) = self.verdict_and_spec_of(request, resolvers)?;
        let profile = spec.profile();
        let is_plain = profile.searched() == profile.path;
        if is_plain || judges_execs(profile) || self.allows_any_program(request, profile, resolvers) {
            return Ok((verdict, spec));
        }
        self.verdict_and_spec_of(&search_path::without_workspace(request, &spec), resolvers)
    }

    /// Whether the rules allow whatever program commands put into the directories of the workspace that are searched: an allowed
    /// command may run any of them by a name, and without a gate nobody sees which.
    fn allows_any_program(
        &self,
        request: &Request,
        profile: &Profile,
        resolvers: &dyn ProfileResolvers,
    ) -> bool {
        let in_workspace = profile.searched().iter().filter(|directory| !profile.path.contains(directory));
        in_workspace.map(|directory| search_path::any_program(request, directory)).all(|any| {
            let judged = self.verdict_and_spec_of(&any, resolvers);
            judged.is_ok_and(|(verdict, _)| verdict.decision == Decision::Allow)
        })
    }

    fn verdict_and_spec_of(
        &self,
        request: &Request,
        resolvers: &dyn ProfileResolvers,
    ) -> Result<(RuleVerdict, ExecSpec), Denial> {
        let requested = self
            .profile(request.profile.as_deref())
            .ok_or_else(|| Denial::UnknownProfile(request.profile.clone().unwrap_or_default()))?;
        let adapted = search_path::adapt(resolvers.adapt(requested.1), request);
        let requested = (requested.0, &adapted);
        let programs = CachedResolver::new(resolvers.for_profile(requested.1));
        let (verdict, approved) = self.verdict_under(requested, requested.0, request, &programs)?;
        if !selects_other_profile(&verdict, requested.0) {
            let spec = build_spec(self, request, requested, &verdict, &programs)?;
            return Ok((verdict, ExecSpec { approved, ..spec }));
        }
        // A rule selects another profile, whose files, variables and directories may mean something else: the rules
        // are asked again.
        let name = verdict.effects.profile.unwrap_or_default();
        let selected = self.profile(Some(&name)).ok_or(Denial::UnknownProfile(name))?;
        let adapted = search_path::adapt(resolvers.adapt(selected.1), request);
        let selected = (selected.0, &adapted);
        let programs = CachedResolver::new(resolvers.for_profile(selected.1));
        let (verdict, approved) = self.verdict_under(selected, requested.0, request, &programs)?;
        if selects_other_profile(&verdict, selected.0) {
            return Err(Denial::ProfileChain(requested.0.clone(), selected.0.clone()));
        }
        let spec = build_spec(self, request, selected, &verdict, &programs)?;
        Ok((verdict, ExecSpec { approved, ..spec }))
    }

    /// Checks what the caller brings, and asks the rules, under one profile. `own` is the profile of commands that no rule gives one. With the
    /// verdict come the commands that a person's yes would be about.
    fn verdict_under(
        &self,
        (name, profile): (&ProfileName, &Arc<Profile>),
        own: &ProfileName,
        request: &Request,
        programs: &dyn ProgramResolver,
    ) -> Result<(RuleVerdict, Vec<ApprovedCommand>), Denial> {
        check_variables(self, name, profile, request.session_env.iter().chain(&request.env))?;
        check_cwd(&request.roots, &request.cwd)?;
        let roots: Vec<&str> = request.roots.iter().map(|root| root.as_str()).collect();
        for rule in self.rules() {
            rule.look_at_directories(&self.known_directories, &roots, programs);
        }
        let context = RequestContext {
            principal: request.principal.clone(),
            labels: (*request.labels).clone(),
            cwd: request.cwd.as_str().to_owned(),
            relative_from: request.relative_from(),
            env: environment::merge_variables(profile, &request.session_env, &request.env),
            further_env: BTreeMap::new(),
            known_directories: self.known_directories.all().1,
        };
        let verdict = match &request.command {
            CommandSpec::Argv { command, args } => {
                let argv: Vec<String> = std::iter::once(command).chain(args).cloned().collect();
                apply_rules(self, (own.as_str(), profile), programs, &context, CommandInput::Argv(&argv))
            }
            CommandSpec::ShellLine(line) => {
                let line = shell_line(profile, line);
                apply_rules(self, (own.as_str(), profile), programs, &context, line)
            }
        };
        let approved = ApprovedCommand::all_of(self, &verdict.units, &context, programs);
        Ok((verdict, approved))
    }
}

fn selects_other_profile(verdict: &RuleVerdict, name: &ProfileName) -> bool {
    verdict.effects.profile.as_deref().is_some_and(|selected| selected != name.as_str())
}

impl Evaluation<'_> {
    /// What the journal keeps of it.
    pub fn trace(&self) -> EvaluationTrace {
        let Ok(Evaluated { verdict, digest, .. }) = &self.result else { return EvaluationTrace::default() };
        EvaluationTrace {
            digest: Some(*digest),
            commands: verdict.units.iter().map(|unit| shell::print(&unit.words)).collect(),
            observed: verdict.observed.clone(),
        }
    }

    /// Decides. A permit holds for this request and this generation of the policy only. An approval counts if it was
    /// granted for the same request, principal and generation.
    pub fn decide(self, approval: Option<ApprovalGrant>) -> Result<Permit, Denial> {
        let Evaluated { principal, verdict, spec, digest } = self.result?;
        let (policy, generation) = (self.policy, self.policy.generation());
        match verdict.decision {
            Decision::Allow => {}
            Decision::Deny => {
                return Err(Denial::from_verdict(policy, (&spec.profile_name, spec.profile()), &verdict));
            }
            Decision::Ask => match approval {
                Some(approval) if approval.covers(digest, generation, &principal) => {}
                _ => {
                    let question = ApprovalQuestion::from_verdict(policy, &verdict, digest, generation);
                    return Err(Denial::NeedsApproval(Box::new(question)));
                }
            },
        }
        Ok(Permit { digest, generation, rule: verdict.cause_rule, spec })
    }
}

/// Permission to run one exact command, once.
///
/// It holds the command itself. With a digest alone, the command would be carried beside it and compared at the spawn; so there
/// is no second copy that could differ, and a permit for one command cannot be used for another.
#[derive(Debug)]
#[must_use = "a permit that is not used runs nothing"]
pub struct Permit {
    pub(super) digest: Digest,
    pub(super) generation: u64,
    pub(super) rule: Option<String>,
    pub(super) spec: ExecSpec,
}

impl Permit {
    /// The digest of the request that was allowed.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The generation of the policy that allowed it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The rule that allowed it; absent where nothing in the request needed one.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The command, for choosing its sandbox.
    pub fn spec(&self) -> &ExecSpec {
        &self.spec
    }

    /// Gives the permit up for the command that it allows.
    pub fn into_spec(self) -> ExecSpec {
        self.spec
    }
}

/// Evaluates all rules on a command. `own_profile` is what it runs under where no rule gives another; `profile` is the one that it is
/// looked at under.
pub(super) fn apply_rules(
    policy: &PolicySet,
    (own_profile, profile): (&str, &Profile),
    resolver: &dyn ProgramResolver,
    request: &RequestContext,
    command: CommandInput<'_>,
) -> RuleVerdict {
    let context = EvalContext {
        rules: policy.rules(),
        resolver,
        request,
        own_profile,
        // Where it is not seen what a name means to a process, a directory of the workspace changes what all names mean.
        lookup: match environment::keeps_lookup(profile, &request.env)
            && (judges_execs(profile) || profile.searched() == profile.path)
        {
            true => Lookup::Trusted,
            false => Lookup::Changed,
        },
        unseen: match judges_execs(profile) {
            true => Unseen::JudgedAtExec,
            false => Unseen::Asked,
        },
        assignment_verdict: &|name, value| match policy.is_secret(name) {
            true => AssignmentVerdict::Denied,
            false => environment::assignment_verdict(&profile.environment, name, value),
        },
    };
    evaluate_rules(command, context)
}

/// Whether every exec under the profile is certain to be evaluated. With a gate that is only preferred, it is not.
pub(super) fn judges_execs(profile: &Profile) -> bool {
    profile.gate.enabled && profile.gate.requirement == Requirement::Require
}

/// A request of a line, which the profile's shell reads.
pub(super) fn shell_line<'a>(profile: &'a Profile, line: &'a str) -> CommandInput<'a> {
    CommandInput::ProfileShell { shell: profile.shell.to_str().unwrap_or("sh"), line }
}

/// Checks what a session brings for all of its terminals, so that a mistake is reported when the session is opened.
/// Returns the profile's name.
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

/// Checks the variables that a caller passes. A denied variable passes with the value that the command has anyway.
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
        let checked = environment::check_variable(&profile.environment, entry.name(), Some(entry.value()));
        let Err(refused) = checked else { continue };
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

/// Checks the working directory by its text only. The sandbox is the boundary: a link in the workspace cannot lead out
/// of it.
pub(super) fn check_cwd(roots: &[AbsPath], cwd: &AbsPath) -> Result<(), Denial> {
    if roots.iter().any(|root| cwd.is_within(root)) {
        Ok(())
    } else {
        Err(Denial::CwdOutsideRoots(cwd.clone()))
    }
}

#[cfg(test)]
mod tests;
