//! What a caller may bring: variables, and a working directory within its session's roots.
//!
//! Checked for a session when it is opened, and again for each of its commands.

use super::{
    denial::Denial,
    environment::{self, EnvEntry, VariableDenial},
    path::AbsPath,
    profile::{Profile, ProfileName},
    set::PolicySet,
};

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
