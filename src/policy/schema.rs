//! The JSON schema of policy files, for editors: made from the types that read them.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::{
    command::rule::{RuleMode, RuleSource},
    connect::ConnectSource,
    profile::Profile,
    set::SecretSource,
};

/// A policy file. Every `*.toml` of a policies directory is one, and together they are the policy.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "read by the schema only; `load` has the same with the places of its parts")]
#[schemars(deny_unknown_fields, rename = "PolicyFile")]
struct PolicyFileSchema {
    /// The profile of sessions and commands that name none. Exactly one file of the directory has it.
    default_profile: Option<String>,
    /// The mode of the rules of this file that do not give one.
    #[schemars(default)]
    mode: RuleMode,
    /// Warnings of `provost policy check` about this file that are not shown: "ID", or "ID:NAME" for one rule or profile.
    #[schemars(default)]
    silence: Vec<String>,
    /// Secrets, by the name of the variable that holds each.
    #[schemars(default)]
    secrets: BTreeMap<String, SecretSource>,
    /// Descriptions of confinement, by name.
    #[schemars(default)]
    profile: BTreeMap<String, Profile>,
    /// What may run. Their order means nothing: deny beats ask beats allow, and what none matches is denied.
    #[schemars(default)]
    rule: Vec<RuleSource>,
    /// What sandboxes with the network `proxy` may reach. Deny beats allow, and what none matches is denied.
    #[schemars(default)]
    connect: Vec<ConnectSource>,
}

/// The JSON schema of a policy file.
pub fn policy_file_schema() -> schemars::Schema {
    schemars::schema_for!(PolicyFileSchema)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schema_names_every_key_of_a_rule_and_refuses_others() {
        let schema = serde_json::to_value(super::policy_file_schema()).unwrap();
        let rule = &schema["$defs"]["RuleSource"];
        for key in [
            "id", "decision", "argv", "flags", "skip", "when", "effects", "reason", "matches", "rejects",
            "mode", "starts", "at",
        ] {
            assert!(rule["properties"][key].is_object(), "{key}");
        }
        assert_eq!(rule["additionalProperties"], false);
        assert_eq!(schema["$defs"]["Profile"]["additionalProperties"], false);
    }
}
