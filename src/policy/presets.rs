//! The ready policies of `policies/presets`, and one policy for a project of several kinds.

/// A kind of work that there is a ready policy for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name: that of its file, its profile and its toolchain.
    pub name: &'static str,
    /// Files of which one in a directory says that a project is of this kind.
    pub signs: &'static [&'static str],
    text: &'static str,
}

/// All that files choose. Reading alone (`review`) is chosen by nobody but a person.
pub const PRESETS: [Preset; 5] = [
    Preset { name: "node", signs: &["package.json"], text: include_str!("policies/presets/node.toml") },
    Preset {
        name: "python",
        signs: &["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile"],
        text: include_str!("policies/presets/python.toml"),
    },
    Preset { name: "rust", signs: &["Cargo.toml"], text: include_str!("policies/presets/rust.toml") },
    Preset { name: "go", signs: &["go.mod"], text: include_str!("policies/presets/go.toml") },
    Preset {
        name: "java",
        signs: &["pom.xml", "build.gradle", "build.gradle.kts"],
        text: include_str!("policies/presets/java.toml"),
    },
];

/// The name of the rule that each preset has for itself.
const OWN_RULE: &str = "[[rule]]\nid = \"publish\"\n";

/// One policy for a project of these kinds. None for no kind.
pub fn compose(kinds: &[Preset]) -> Option<String> {
    let first = kinds.first()?;
    let (shared, _) = first.text.split_once(OWN_RULE)?;
    let (_, shared) = shared.split_once("\n\n")?;
    let names: Vec<String> = kinds.iter().map(|kind| format!("{:?}", kind.name)).collect();
    let name = first.name;
    let description = |line: &str| line.starts_with("description = ");
    let shared: Vec<&str> = shared.lines().filter(|line| !description(line)).collect();
    let shared = shared
        .join("\n")
        .replace(&format!("default_profile = {name:?}"), "default_profile = \"project\"")
        .replace(&format!("[profile.{name}"), "[profile.project")
        .replace(&format!("toolchains = [{name:?}]"), &format!("toolchains = [{}]", names.join(", ")));
    let own = kinds.iter().filter_map(|kind| {
        let (_, rule) = kind.text.split_once(OWN_RULE)?;
        Some(format!("[[rule]]\nid = \"publish-{}\"\n{rule}", kind.name))
    });
    let head = format!(
        "# Work on a project of {}. Written by `provost init`; yours to change. `provost policy check` looks at it.",
        kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" and ")
    );
    let own: Vec<String> = own.collect();
    Some(format!("{head}\n\n{}\n\n{}", shared.trim_end(), own.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::{super::set::PolicySet, *};

    #[test]
    fn every_choice_of_kinds_is_one_valid_policy_with_the_rules_and_toolchains_of_each() {
        for chosen in 1_u32..1 << PRESETS.len() {
            let kinds: Vec<Preset> = PRESETS
                .into_iter()
                .enumerate()
                .filter(|(at, _)| chosen & (1 << at) != 0)
                .map(|(_, kind)| kind)
                .collect();
            let text = compose(&kinds).unwrap();
            let policy = PolicySet::parse("p.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(policy.warnings(), [], "{text}");
            let (name, profile) = policy.profile(None).unwrap();
            assert_eq!((name.as_str(), profile.gate.enabled), ("project", true));
            assert_eq!(profile.toolchains, kinds.iter().map(|kind| kind.name).collect::<Vec<_>>());
            for kind in &kinds {
                let own = format!("publish-{}", kind.name);
                assert!(
                    policy.rules().iter().any(|rule| rule.id == own && !rule.examples.is_empty()),
                    "{text}"
                );
            }
            let shared = policy.rules().iter().filter(|rule| rule.id == "push");
            assert_eq!(shared.count(), 1, "what they share is there once");
            assert_eq!(super::super::format::format(&text).unwrap(), text);
        }
        assert_eq!(compose(&[]), None);
    }
}
