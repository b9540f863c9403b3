//! Decisions on whole requests, with small policies and nominal files.

use std::{sync::Arc, time::Duration};

use super::{
    super::{
        AbsPath, OverflowMode, SecretGrant, StdinSource, StreamMode, check_session,
        command::program::{FileId, NominalResolver, Resolved},
        environment::EnvEntry,
        profile::Network,
    },
    *,
};

mod bound;
mod lines;
mod profiles;

fn decide(policy: &PolicySet, request: &Request) -> Result<Permit, Denial> {
    policy.evaluate(request, &NominalResolver).decide(None)
}

fn policy() -> PolicySet {
    PolicySet::parse(
        "test.toml",
        r#"
        default_profile = "workspace"
        [profile.workspace]
        environment.deny = ["LD_*"]
        output = { default_bytes = 10, ceiling_bytes = 100 }
        times = { limit = "10s", ceiling = "60s", grace = "1s", linger = "0s" }
        [profile.listed]
        environment.allow = ["MY_*"]
        network = { default = "host", choices = ["host", "none"] }
        [[rule]]
        id = "anything"
        decision = "allow"
        argv = ["**"]
        [[rule]]
        id = "no-shred"
        decision = "deny"
        argv = ["shred", "**"]
        reason = "disks are not yours"
        [[rule]]
        id = "publish"
        decision = "ask"
        argv = ["git", "push", "**"]
        reason = "publishing needs a person"
        [[rule]]
        id = "make-small"
        decision = "allow"
        argv = ["make", "**"]
        effects = { time_limit = "5s", environment = { J = "1" }, limits = { pids = 9 }, profile = "listed" }
        "#,
    )
    .unwrap()
}

fn request() -> Request {
    let work = AbsPath::parse("/work").unwrap();
    let command = CommandSpec::Argv { command: "true".into(), args: vec![] };
    Request::plain("uid:1000".into(), Arc::from([work.clone()]), work, command)
}

fn with_env(name: &str) -> Vec<EnvEntry> {
    vec![EnvEntry::new(name.into(), "x".into()).unwrap()]
}

#[test]
fn a_plain_request_is_permitted_with_the_profiles_values() {
    let permit = decide(&policy(), &request()).unwrap();
    assert_eq!(permit.generation(), 1);
    let spec = permit.into_spec();
    assert_eq!(spec.profile_name().as_str(), "workspace");
    assert_eq!(spec.network(), Network::None);
    assert_eq!(spec.output_limit_bytes(), 10);
    assert_eq!(spec.time_limit(), Some(Duration::from_secs(10)));
    assert_eq!(spec.argv(), ["true"]);
}

#[test]
fn an_unknown_profile_is_denied() {
    let denial = decide(&policy(), &Request { profile: Some("other".into()), ..request() }).unwrap_err();
    assert_eq!(denial, Denial::UnknownProfile("other".into()));
}

#[test]
fn a_network_that_the_profile_does_not_offer_is_denied() {
    let denial = decide(&policy(), &Request { network: Some(Network::Host), ..request() }).unwrap_err();
    assert_eq!(denial.rule(), "profile.workspace.network.choices");
    let offered = Request { profile: Some("listed".into()), network: Some(Network::None), ..request() };
    assert_eq!(decide(&policy(), &offered).unwrap().spec().network(), Network::None);
}

#[test]
fn a_denied_variable_is_denied_from_the_caller_and_from_the_session() {
    let caller = Request { env: with_env("LD_PRELOAD"), ..request() };
    assert_eq!(decide(&policy(), &caller).unwrap_err().rule(), "profile.workspace.environment.deny:LD_*");
    let session = Request { session_env: with_env("LD_PRELOAD").into(), ..request() };
    assert!(matches!(decide(&policy(), &session), Err(Denial::EnvironmentDenied { .. })));
    let unlisted = Request { env: with_env("OTHER"), profile: Some("listed".into()), ..request() };
    assert_eq!(decide(&policy(), &unlisted).unwrap_err().rule(), "profile.listed.environment.allow");
}

#[test]
fn a_working_directory_outside_the_roots_is_denied() {
    for cwd in ["/", "/workshop", "/etc", "/proc/self/cwd"] {
        let denial =
            decide(&policy(), &Request { cwd: AbsPath::parse(cwd).unwrap(), ..request() }).unwrap_err();
        assert_eq!(denial.rule(), "session.roots", "{cwd}");
    }
}

#[test]
fn ceilings_cut_what_is_asked_for() {
    let spec = decide(
        &policy(),
        &Request {
            output_limit_bytes: Some(u64::MAX),
            time_limit: Some(Duration::from_secs(3600)),
            ..request()
        },
    )
    .unwrap()
    .into_spec();
    assert_eq!(spec.output_limit_bytes(), 100);
    assert_eq!(spec.time_limit(), Some(Duration::from_secs(60)));
    let none = decide(&policy(), &Request { output_limit_bytes: Some(0), ..request() }).unwrap();
    assert_eq!(none.spec().output_limit_bytes(), 0);
}

#[test]
fn a_shell_line_is_one_argument_of_the_profiles_shell() {
    let line = CommandSpec::ShellLine("echo a; echo b".into());
    let spec = decide(&policy(), &Request { command: line, ..request() }).unwrap().into_spec();
    assert_eq!(spec.program(), "/bin/sh");
    assert_eq!(spec.argv(), ["/bin/sh", "-c", "echo a; echo b"]);
}

#[test]
fn requests_that_differ_have_permits_that_differ() {
    let digest = |request: Request| decide(&policy(), &request).unwrap().digest();
    let command = |command: &str, args: &[&str]| Request {
        command: CommandSpec::Argv {
            command: command.into(),
            args: args.iter().map(|&arg| arg.into()).collect(),
        },
        ..request()
    };
    assert_eq!(digest(command("a", &["b"])), digest(command("a", &["b"])));
    assert_ne!(digest(command("a", &["b", "c"])), digest(command("a", &["bc"])));
    assert_ne!(digest(command("a", &[])), digest(command("a", &[""])));
    assert_ne!(digest(request()), digest(Request { env: with_env("A"), ..request() }));
    assert_ne!(digest(request()), digest(Request { stdin: StdinSource::Open, ..request() }));
}

fn command(command: &str, args: &[&str]) -> Request {
    let args = args.iter().map(|&arg| arg.into()).collect();
    Request { command: CommandSpec::Argv { command: command.into(), args }, ..request() }
}

#[test]
fn a_denial_names_the_rule_and_gives_its_reason_word_for_word() {
    for request in [
        command("shred", &["x"]),
        Request { command: CommandSpec::ShellLine("ls; env shred x".into()), ..request() },
    ] {
        let denial = decide(&policy(), &request).unwrap_err();
        assert_eq!(denial.rule(), "no-shred");
        assert!(denial.to_string().contains("disks are not yours"), "{denial}");
        assert!(denial.to_string().contains("shred x"), "{denial}");
    }
    let nothing = PolicySet::parse("p", "default_profile = 'a'\n[profile.a]").unwrap();
    assert_eq!(decide(&nothing, &request()).unwrap_err().rule(), "default");
}

#[test]
fn an_approval_answers_its_own_question_only() {
    let push = command("git", &["push"]);
    let Err(Denial::NeedsApproval(question)) = decide(&policy(), &push) else { panic!("it asks") };
    assert_eq!(question.rule, "publish");
    let approval = || ApprovalGrant::issue(&question, "uid:1000".into());
    assert!(policy().evaluate(&push, &NominalResolver).decide(Some(approval())).is_ok());
    let other = [
        command("git", &["push", "-f"]),
        Request { principal: "uid:1001".into(), ..push.clone() },
        Request { env: with_env("A"), ..push.clone() },
        Request { roots: Arc::from([AbsPath::parse("/").unwrap()]), ..push.clone() },
        Request { labels: Arc::new([("team".into(), "b".into())].into()), ..push.clone() },
    ];
    for request in other {
        assert!(policy().evaluate(&request, &NominalResolver).decide(Some(approval())).is_err());
    }
    let reloaded = policy().with_generation(2);
    assert!(reloaded.evaluate(&push, &NominalResolver).decide(Some(approval())).is_err());
    // No approval lets through what is denied.
    assert!(policy().evaluate(&command("shred", &[]), &NominalResolver).decide(Some(approval())).is_err());
}

#[test]
fn effects_of_the_rule_that_allows_are_in_the_spec() {
    let spec = decide(&policy(), &command("make", &["all"])).unwrap().into_spec();
    assert_eq!(spec.profile_name().as_str(), "listed");
    assert_eq!(spec.network(), Network::Host);
    assert_eq!(spec.time_limit(), Some(Duration::from_secs(5)));
    assert_eq!(spec.profile().limits.terminal.pids, Some(9));
    assert!(spec.env().contains(&bytes::Bytes::from("J=1")));
    // The profile that the rule names denies what the one that was asked for allows.
    let denied = decide(&policy(), &Request { env: with_env("OTHER"), ..command("make", &[]) });
    assert_eq!(denied.unwrap_err().rule(), "profile.listed.environment.allow");
}

#[test]
fn a_line_cannot_set_what_the_profile_denies() {
    let line = Request { command: CommandSpec::ShellLine("LD_PRELOAD=./x ls".into()), ..request() };
    assert_eq!(decide(&policy(), &line).unwrap_err().rule(), "profile.workspace.environment");
}

/// A file for each name, in the first directory of the profile's path; `changed_nanos` tells versions apart.
struct OnPaths {
    version: i64,
}

struct OnPath(String, i64);

impl ProfileResolvers for OnPaths {
    fn for_profile<'a>(&'a self, profile: &'a Profile) -> Box<dyn ProgramResolver + 'a> {
        let directory = profile.path.first().map(|directory| directory.display().to_string());
        Box::new(OnPath(directory.unwrap_or_default(), self.version))
    }
}

impl ProgramResolver for OnPath {
    fn find_in_path(&self, name: &str) -> Resolved {
        self.resolve_path(&format!("{}/{name}", self.0), "/")
    }

    fn resolve_path(&self, path: &str, _: &str) -> Resolved {
        let inode = path.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Resolved::File(FileId { inode, changed_nanos: self.1, ..file(path) })
    }
}

fn file(path: &str) -> FileId {
    match NominalResolver.resolve_path(path, "/") {
        Resolved::File(file) => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_is_the_one_that_the_profile_of_the_rule_finds() {
    let policy = PolicySet::parse(
        "p",
        "default_profile = 'first'\n[profile.first]\npath = ['/first']\n[profile.second]\npath = ['/second']\n\
         [[rule]]\nid = 'tool'\ndecision = 'allow'\nargv = ['tool', '**']\neffects = { profile = 'second' }\n\
         [[rule]]\nid = 'own'\ndecision = 'allow'\nargv = ['/first/tool', '**']\n",
    )
    .unwrap();
    let decided = |command_word: &str| {
        policy.evaluate(&command(command_word, &[]), &OnPaths { version: 1 }).decide(None)
    };
    let permit = decided("tool").unwrap();
    let spec = permit.spec();
    assert_eq!(spec.profile_name().as_str(), "second");
    assert_eq!(spec.resolved_file().map(|file| file.path.as_str()), Some("/second/tool"));
    assert_eq!(spec.search_path(), [std::path::Path::new("/second")]);
    // The rule of the first profile's file is not asked about the second's.
    assert_eq!(permit.rule(), Some("tool"));
}

#[test]
fn a_yes_is_bound_to_every_file_that_the_request_names() {
    let policy = policy();
    let behind_a_wrapper = Request { command: CommandSpec::ShellLine("env git push".into()), ..request() };
    let resolvers = OnPaths { version: 1 };
    let asked = policy.evaluate(&behind_a_wrapper, &resolvers).decide(None);
    let Err(Denial::NeedsApproval(question)) = asked else { panic!("it asks: {asked:?}") };
    let approval = || ApprovalGrant::issue(&question, "uid:1000".into());
    assert!(policy.evaluate(&behind_a_wrapper, &resolvers).decide(Some(approval())).is_ok());
    let replaced = OnPaths { version: 2 };
    assert!(policy.evaluate(&behind_a_wrapper, &replaced).decide(Some(approval())).is_err());
}
