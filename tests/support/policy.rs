//! The shipped policy, and how tests change it.

use std::{fs, path::Path};

/// The text of the shipped policy, changed.
pub(super) fn changed_policy(change: Option<fn(&mut toml::Table)>) -> String {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/default.toml");
    let text = fs::read_to_string(&shipped).unwrap_or_else(|e| panic!("{}: {e}", shipped.display()));
    let Some(change) = change else { return text };
    let mut table: toml::Table = text.parse().expect("the shipped policy is TOML");
    change(&mut table);
    toml::to_string(&table).expect("a table can be written as TOML")
}

/// Adds a rule, given by its keys, behind those of the policy.
pub fn add_rule(policy: &mut toml::Table, rule: &str) {
    let rule: toml::Table = rule.parse().expect("the rule is TOML");
    policy["rule"].as_array_mut().expect("the policy has rules").push(rule.into());
}

/// Denies `touch`.
pub fn deny_touch(policy: &mut toml::Table) {
    add_rule(
        policy,
        "id = 'no-touch'\ndecision = 'deny'\nargv = ['touch', '**']\nreason = 'touching is for people'",
    );
}

/// Has the exec gate in the shipped profile, and refuses to run without it.
pub fn require_gate(policy: &mut toml::Table) {
    let gate = "enabled = true\nrequirement = \"require\"".parse::<toml::Table>().expect("it is TOML");
    policy["profile"]["workspace"].as_table_mut().expect("a profile").insert("gate".to_owned(), gate.into());
}

/// Lets callers choose the host's network, which the shipped policy does not offer.
pub fn offer_hosts_network(policy: &mut toml::Table) {
    let network = policy["profile"]["workspace"]["network"].as_table_mut().expect("a profile has a network");
    network["choices"].as_array_mut().expect("a list").push("host".into());
}
