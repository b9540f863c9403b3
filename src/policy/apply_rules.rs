//! Asks the rules of a policy about one command, as it would run under one profile.
//!
//! Used for requests, for a policy's own tests and for the corpus of known bypasses.

use super::{
    command::{
        program::ProgramResolver,
        rule::RequestContext,
        shell::Dialect,
        verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, RuleVerdict, evaluate_rules},
    },
    environment,
    profile::Profile,
    set::PolicySet,
};

/// Evaluates all rules on a command.
pub(super) fn apply_rules(
    policy: &PolicySet,
    profile: &Profile,
    resolver: &dyn ProgramResolver,
    request: &RequestContext,
    command: CommandInput<'_>,
) -> RuleVerdict {
    let context = EvalContext {
        rules: policy.rules(),
        resolver,
        request,
        lookup: match environment::keeps_lookup(profile, &request.env) {
            true => Lookup::Trusted,
            false => Lookup::Changed,
        },
        assignment_verdict: &|name, value| match policy.is_secret(name) {
            true => AssignmentVerdict::Denied,
            false => environment::assignment_verdict(&profile.environment, name, value),
        },
    };
    evaluate_rules(command, context)
}

/// The grammar of the profile's shell.
pub(super) fn dialect(profile: &Profile) -> Dialect {
    Dialect::of(profile.shell.file_name().and_then(|name| name.to_str()).unwrap_or("sh"))
}
