//! What a digest, and with it a person's yes, is bound to: every part of an exec spec by itself.

use super::*;
use crate::Umask;

const RULES: &str = r#"
    default_profile = "one"
    [secrets.TOKEN]
    file = "/secrets/token"
    [secrets.OTHER]
    file = "/secrets/other"
    [profile.one]
    network = { default = "none", choices = ["host", "none"] }
    output = { default_bytes = 10, ceiling_bytes = 100 }
    times = { limit = "10s", ceiling = "60s", grace = "1s", linger = "0s" }
    [profile.two]
    network = { default = "none", choices = ["host", "none"] }
    output = { default_bytes = 10, ceiling_bytes = 100 }
    times = { limit = "10s", ceiling = "60s", grace = "1s", linger = "0s" }
    [[rule]]
    id = "anything"
    decision = "allow"
    argv = ["**"]
    effects = { EFFECTS }
"#;

fn digest_of(effects: &str, request: &Request, version: i64) -> Digest {
    let policy = PolicySet::parse("p", &RULES.replace("EFFECTS", effects)).unwrap();
    policy.evaluate(request, &OnPaths { version }).decide(None).unwrap().digest()
}

#[test]
fn requests_that_differ_in_one_part_have_digests_that_differ() {
    let absolute = |path: &str| AbsPath::parse(path).unwrap();
    let seconds = |count| Some(Duration::from_secs(count));
    let label = |name: &str, value: &str| Arc::new([(name.to_owned(), value.to_owned())].into());
    let requests = [
        ("as it is", request()),
        ("umask", Request { umask: Some(Umask::new(0o77).unwrap()), ..request() }),
        ("principal", Request { principal: "uid:1001".into(), ..request() }),
        ("a root more", Request { roots: [absolute("/work"), absolute("/b")].into(), ..request() }),
        ("a label", Request { labels: label("a", "b"), ..request() }),
        ("its name", Request { labels: label("c", "b"), ..request() }),
        ("its value", Request { labels: label("a", "c"), ..request() }),
        ("profile", Request { profile: Some("two".into()), ..request() }),
        ("program", command("false", &[])),
        ("argument", command("true", &["a"])),
        ("another argument", command("true", &["b"])),
        ("one argument of two", command("true", &["ab", "c"])),
        ("the other of them", command("true", &["a", "bc"])),
        ("line", Request { command: CommandSpec::ShellLine("true".into()), ..request() }),
        ("cwd", Request { cwd: absolute("/work/b"), ..request() }),
        ("variable", Request { env: with_env("A"), ..request() }),
        ("another variable", Request { env: with_env("B"), ..request() }),
        ("network", Request { network: Some(Network::Host), ..request() }),
        ("streams", Request { streams: StreamMode::Split, ..request() }),
        ("stdin", Request { stdin: StdinSource::Open, ..request() }),
        ("overflow", Request { overflow: OverflowMode::Block, ..request() }),
        ("output limit", Request { output_limit_bytes: Some(11), ..request() }),
        ("time limit", Request { time_limit: seconds(11), ..request() }),
        ("idle limit", Request { idle_limit: seconds(11), ..request() }),
        ("grace", Request { kill_grace: seconds(11), ..request() }),
    ];
    let digests = requests.map(|(part, request)| (part, digest_of("", &request, 1)));
    assert_all_differ(&digests);
}

#[test]
fn what_rules_give_and_which_files_there_are_is_in_the_digest() {
    let mut digests = [
        ("nothing", ""),
        ("a secret", "secrets = ['TOKEN']"),
        ("another secret", "secrets = ['OTHER']"),
        ("both", "secrets = ['OTHER', 'TOKEN']"),
        ("memory", "limits = { memory_bytes = 90000000 }"),
        ("swap", "limits = { swap_bytes = 90000000 }"),
        ("processes", "limits = { pids = 9 }"),
        ("processor", "limits = { cpu_millis = 9 }"),
    ]
    .map(|(part, effects)| (part, digest_of(effects, &request(), 1)))
    .to_vec();
    digests.push(("a file that was exchanged", digest_of("", &request(), 2)));
    let with_secret = |name: &str, from: &str, to: &str| {
        let rules = RULES.replace("EFFECTS", &format!("secrets = ['{name}']")).replace(from, to);
        let policy = PolicySet::parse("p", &rules).unwrap();
        policy.evaluate(&request(), &OnPaths { version: 1 }).decide(None).unwrap().digest()
    };
    digests.push(("the file of a secret", with_secret("TOKEN", "/secrets/token", "/secrets/moved")));
    digests.push(("the name of a secret", with_secret("OTHER", "/secrets/other", "/secrets/token")));
    assert_all_differ(&digests);
}

fn assert_all_differ(digests: &[(&str, Digest)]) {
    for (place, (part, digest)) in digests.iter().enumerate() {
        for (other, other_digest) in &digests[..place] {
            assert_ne!(digest, other_digest, "{part} and {other}");
        }
    }
}
