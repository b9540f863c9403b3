//! Holds `deny.toml` without a tool that has to be built first: licenses, and crates that come in two versions.
//!
//! To build cargo-deny takes longer than to build Provost, and an installed binary would have to be fetched and trusted. This
//! reads the rules from `deny.toml` and the crates from `cargo metadata`, offline, and understands the kinds of rules that the
//! file has. It knows nothing of advisories: `cargo deny check advisories` needs the network, and has a result that changes while
//! the code does not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

#[test]
fn every_dependency_has_a_license_that_is_allowed() {
    let rules = rules();
    let allowed = texts(&rules["licenses"]["allow"]);
    let mut wrong = Vec::new();
    for package in packages() {
        if !satisfied(&package.license, &allowed) {
            wrong.push(format!("{} {}: {}", package.name, package.version, package.license));
        }
    }
    assert!(wrong.is_empty(), "not allowed by deny.toml:\n{}", wrong.join("\n"));
}

#[test]
fn no_allowance_is_stale() {
    let packages = packages();
    for license in texts(&rules()["licenses"]["allow"]) {
        let used = packages.iter().any(|package| package.license.contains(&license));
        assert!(used, "deny.toml allows {license}, which no dependency has");
    }
    for (name, version) in skipped() {
        let used =
            packages.iter().any(|package| package.name == name && is_version(&package.version, &version));
        assert!(used, "deny.toml skips {name}@{version}, which is no dependency");
    }
}

#[test]
fn no_crate_comes_in_two_versions_without_a_reason() {
    let skipped = skipped();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let is_skipped = skipped
            .iter()
            .any(|(name, version)| *name == package.name && is_version(&package.version, version));
        if !is_skipped {
            versions.entry(package.name).or_default().insert(package.version);
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "twice, and not argued in deny.toml: {versions:?}");
}

#[test]
fn no_banned_crate_is_there() {
    let rules = rules();
    let banned: Vec<String> =
        rules["bans"]["deny"].as_array().expect("a list").iter().map(|entry| text(&entry["crate"])).collect();
    for package in packages() {
        assert!(!banned.contains(&package.name), "{} is banned by deny.toml", package.name);
    }
}

struct Package {
    name: String,
    version: String,
    license: String,
}

/// What is built for this platform, build scripts and tests included.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let resolved: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|n| n["id"].as_str())
        .collect();
    let listed = metadata["packages"].as_array().expect("a list");
    let packages: Vec<Package> = listed
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| resolved.contains(id)))
        .map(|package| Package {
            name: package["name"].as_str().unwrap_or_default().to_owned(),
            version: package["version"].as_str().unwrap_or_default().to_owned(),
            license: package["license"].as_str().unwrap_or("none").to_owned(),
        })
        .collect();
    assert!(packages.len() > 50, "the dependencies were not found");
    packages
}

fn rules() -> toml::Table {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    text.parse().expect("deny.toml is TOML")
}

fn skipped() -> Vec<(String, String)> {
    let rules = rules();
    let entries = rules["bans"]["skip"].as_array().expect("a list");
    entries
        .iter()
        .map(|entry| {
            let (name, version) =
                entry["crate"].as_str().and_then(|c| c.split_once('@')).expect("name@version");
            assert!(!text(&entry["reason"]).is_empty(), "{name} is skipped without a reason");
            (name.to_owned(), version.to_owned())
        })
        .collect()
}

/// Whether an SPDX expression holds when only `allowed` licenses may be used.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    // "MIT/Apache-2.0" is how "MIT OR Apache-2.0" was once written; an exception only gives more.
    let plain = expression.replace('/', " OR ").replace(" WITH LLVM-exception", "");
    let spaced = plain.replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    alternatives(&mut words, allowed)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn alternatives(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut holds = together(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        holds |= together(words, allowed);
    }
    holds
}

fn together(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut holds = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        holds &= one(words, allowed);
    }
    holds
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> bool {
    match words.next() {
        Some("(") => {
            let holds = alternatives(words, allowed);
            words.next_if_eq(&")").is_some() && holds
        }
        Some(license) => allowed.iter().any(|name| name == license),
        None => false,
    }
}

/// Whether `version` is of the series that `given` names: "1" has 1.2.3, "0.25" has 0.25.1.
fn is_version(version: &str, given: &str) -> bool {
    version.strip_prefix(given).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn texts(value: &toml::Value) -> Vec<String> {
    value.as_array().expect("a list").iter().map(text).collect()
}

fn text(value: &toml::Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn expressions_of_licenses_are_understood() {
    let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
    for expression in ["MIT", "MIT OR GPL-3.0", "(GPL-2.0 OR MIT) AND Apache-2.0", "MIT/Unlicense"] {
        assert!(satisfied(expression, &allowed), "{expression}");
    }
    for expression in ["GPL-3.0", "MIT AND GPL-3.0", "none", "", "(MIT OR X) AND Y", "(MIT"] {
        assert!(!satisfied(expression, &allowed), "{expression}");
    }
}
