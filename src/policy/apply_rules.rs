//! Asks the rules of a policy about one command, as it would run under one profile.
//!
//! Used for requests, for a policy's own tests and for the corpus of known bypasses.

use super::{
    command::{
        evaluate_rules,
        program::ProgramResolver,
        rule::RequestContext,
        verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, RuleVerdict, Unseen},
    },
    environment,
    profile::{Profile, Requirement},
    set::PolicySet,
};

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
