//! Which of the variables that a client names are passed on to a command.
//!
//! The client's own environment stays with it: what is passed on describes the language and the terminal, and names no program and no
//! file. A user adds names on the command line; the policy judges each of them.

use std::collections::HashMap;

use crate::proto::v1::EnvVar;

/// Variables that are passed on.
const PASSED_ON: [&str; 8] = ["LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "CI", "CODEX_CI"];
/// And all that begin so.
const PASSED_ON_PREFIX: &str = "LC_";

/// The variables of a command. `policy` is what the client would set over its own environment, `env` what it sets for this command.
pub(super) fn passed_on(
    policy: &HashMap<String, String>,
    env: &HashMap<String, String>,
    more: &[String],
) -> Vec<EnvVar> {
    let is_passed = |name: &str| {
        PASSED_ON.contains(&name)
            || name.starts_with(PASSED_ON_PREFIX)
            || more.iter().any(|other| other == name)
    };
    let set = policy.iter().filter(|(name, _)| !env.contains_key(*name)).chain(env);
    let mut passed: Vec<EnvVar> = set
        .filter(|(name, _)| is_passed(name))
        .map(|(name, value)| EnvVar { name: name.clone(), value: value.clone(), ..Default::default() })
        .collect();
    passed.sort_by(|one, other| one.name.cmp(&other.name));
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_programs_stays_outside() {
        let of = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let policy = of(&[("LANG", "de"), ("MINE", "1"), ("LD_PRELOAD", "x")]);
        let env = of(&[("LANG", "C.UTF-8"), ("PATH", "/evil"), ("HOME", "/root"), ("LC_ALL", "C")]);
        let passed = passed_on(&policy, &env, &["MINE".to_owned()]);
        let shown: Vec<_> = passed.iter().map(|var| format!("{}={}", var.name, var.value)).collect();
        assert_eq!(shown, ["LANG=C.UTF-8", "LC_ALL=C", "MINE=1"]);
    }
}
