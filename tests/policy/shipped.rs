//! The policies that are shipped, the cases they are held to, and the page that explains them.

use std::{fs, path::PathBuf};

use provost_gateway::policy_directory;
use provost_policy::{
    PolicySet,
    command::rule::{Decision, RuleAt},
    suite::{Corpus, Suite},
};

pub(super) fn at(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(super) fn read(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn examples() -> PolicySet {
    policy_directory::read(&at("policies/examples")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_examples_say_what_the_cases_expect() {
    let name = "policies/tests/cases.toml";
    let text = read(name);
    let suite = Suite::parse(name, &text).unwrap_or_else(|error| panic!("{error}"));
    let failed = suite.run(&examples(), &text);
    let said: Vec<_> =
        failed.iter().map(|f| format!("{name}:{}: {:?}: {}", f.line, f.command, f.problem)).collect();
    assert!(failed.is_empty(), "{}", said.join("\n"));
    assert!(suite.cases.len() >= 650, "{}", suite.cases.len());
    let said = |at: usize| format!("{:?}", suite.cases[at].get_ref());
    let again = (1..suite.cases.len()).find(|at| (0..*at).any(|before| said(before) == said(*at)));
    assert_eq!(again.map(said), None, "a case stands there twice");
}

#[test]
fn what_is_allowed_without_a_gate_is_allowed_with_one() {
    let name = "policies/tests/cases.toml";
    let text = read(name);
    let mut suite = Suite::parse(name, &text).unwrap_or_else(|error| panic!("{error}"));
    suite
        .cases
        .retain(|case| case.get_ref().expect == Decision::Allow && case.get_ref().at == RuleAt::Request);
    suite.defaults.gate = Some(true);
    assert!(suite.cases.len() >= 300, "{}", suite.cases.len());
    let failed: Vec<_> =
        suite.run(&examples(), &text).into_iter().map(|f| (f.line, f.command, f.problem)).collect();
    assert_eq!(failed, []);
}

#[test]
fn everyday_lines_that_hide_something_are_asked_about_only_without_a_gate() {
    let name = "policies/tests/everyday.toml";
    let text = read(name);
    let mut suite = Suite::parse(name, &text).unwrap_or_else(|error| panic!("{error}"));
    assert!(suite.cases.len() >= 528, "{}", suite.cases.len());
    for policy in [examples(), PolicySet::compiled_in()] {
        assert_eq!(suite.run(&policy, &text), []);
    }
    suite.defaults.gate = Some(false);
    let asked = suite.run(&examples(), &text).len();
    assert!(asked >= 15, "{asked} of {}", suite.cases.len());
}

#[test]
fn an_argument_of_two_megabytes_is_data_in_a_vector_and_not_read_in_a_line() {
    let long = "a".repeat(2 << 20);
    let text = format!(
        "[defaults]\ngate = false\n[[case]]\ncommand = ['ls', '{long}']\nexpect = 'allow'\n[[case]]\nline = 'ls {long}'\nexpect = 'ask'\n\
         [[case]]\ncommand = ['sh', '-c', 'ls {long}']\nexpect = 'ask'\n"
    );
    let suite = Suite::parse("long", &text).unwrap_or_else(|error| panic!("{error}"));
    let problems: Vec<_> = suite.run(&examples(), &text).into_iter().map(|failed| failed.problem).collect();
    assert_eq!(problems, [""; 0]);
}

#[test]
fn no_known_way_round_gets_round_the_examples_and_no_mention_is_taken_for_the_deed() {
    let findings = Corpus::compiled_in().run(&examples());
    assert_eq!(findings.bypasses, []);
    assert_eq!(findings.mistaken, []);
    assert!(findings.evaluated >= 10_000, "{}", findings.evaluated);
}

#[test]
fn the_default_policy_lets_anything_run() {
    let text = "[[case]]\nline = 'unknown $X; eval \"$Y\"; bash ./x.sh'\nexpect = 'allow'\nrule = 'anything'\n\
                [[case]]\nline = 'LD_PRELOAD=./x ls'\nexpect = 'deny'\n";
    let suite = Suite::parse("default", text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(suite.run(&PolicySet::compiled_in(), text), []);
}

#[test]
fn each_preset_is_a_whole_policy_and_says_what_its_cases_expect() {
    let mut names: Vec<_> = fs::read_dir(at("policies/presets"))
        .expect("the presets are there")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["go.toml", "java.toml", "node.toml", "python.toml", "review.toml", "rust.toml"]);
    for name in names {
        let text = read(&format!("policies/presets/{name}"));
        let policy = PolicySet::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(policy.warnings(), [], "{name}");
        let cases = read(&format!("policies/tests/presets/{name}"));
        let suite = Suite::parse(&name, &cases).unwrap_or_else(|error| panic!("{error}"));
        assert!(suite.cases.len() >= 3, "{name}");
        let failed = suite.run(&policy, &cases);
        let said: Vec<_> =
            failed.iter().map(|f| format!("{}: {:?}: {}", f.line, f.command, f.problem)).collect();
        assert!(failed.is_empty(), "{name}: {}", said.join("\n"));
        let (profile_name, profile) = policy.profile(None).expect("it has a default");
        assert_eq!(format!("{profile_name}.toml"), name);
        assert_eq!(profile.toolchains.is_empty(), name == "review.toml", "{name}");
        let caches: &[&str] = match &*name {
            "go.toml" => &["go"],
            "java.toml" => &["maven", "gradle"],
            "node.toml" => &["npm"],
            "python.toml" => &["pip", "uv"],
            "rust.toml" => &["cargo"],
            _ => &[],
        };
        assert_eq!(profile.caches, caches, "{name}");
        // Nothing is kept unless a policy says so.
        assert!(profile.kept_caches.names.is_empty(), "{name}");
    }
}

#[test]
fn no_rule_that_is_shipped_is_got_round_by_an_option_that_nobody_knows() {
    assert_eq!(examples().warnings(), []);
    assert_eq!(PolicySet::compiled_in().warnings(), []);
}

#[test]
fn no_profile_that_is_shipped_lets_a_variable_of_the_list_in() {
    let (default, examples) = (PolicySet::compiled_in(), examples());
    for (name, profile) in default.profiles().chain(examples.profiles()) {
        assert_eq!(profile.environment.drop, [""; 0], "{name}");
    }
    let names: Vec<_> = examples.profiles().map(|(name, _)| name.as_str().to_owned()).collect();
    assert_eq!(names, ["build", "ci", "locked", "read-only", "workspace"]);
}

/// The fenced blocks of a page, by what stands behind the fence.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        block = match (block, line) {
            (None, line) => (line.strip_prefix("```") == Some(kind)).then(String::new),
            (Some(text), "```") => {
                found.push(text);
                None
            }
            (Some(text), line) => Some(text + line + "\n"),
        };
    }
    found
}

#[test]
fn the_examples_of_the_page_are_policies_and_do_what_the_page_says() {
    let page = read("docs/policies.md");
    let policies = blocks(&page, "toml");
    assert!(policies.len() >= 3, "{}", policies.len());
    for text in &policies {
        PolicySet::parse("docs/policies.md", text).unwrap_or_else(|error| panic!("{error}"));
    }
    let rules = PolicySet::parse("docs/policies.md", &policies[1]).unwrap_or_else(|error| panic!("{error}"));
    for text in blocks(&page, "toml test") {
        let suite = Suite::parse("docs/policies.md", &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(suite.run(&rules, &text), []);
        assert_eq!(suite.cases.len(), 3);
    }
}
