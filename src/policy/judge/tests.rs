//! Judgements on whole requests, against small policies and nominal files.

use std::sync::Arc;

use super::{
    super::{Overflow, Stdin, Streams, command::program::Nominal},
    *,
};

mod bound;
mod profiles;

impl Views for Nominal {
    fn under<'a>(&'a self, _: &'a Profile) -> Box<dyn Programs + 'a> {
        Box::new(Self)
    }
}

fn judge(policy: &PolicySet, request: &Request) -> Result<Permit, Denial> {
    super::judge(policy, request, &Nominal, None)
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
    Request {
        principal: "uid:1000".into(),
        labels: Arc::default(),
        roots: Arc::from([AbsPath::parse("/work").unwrap()]),
        session_env: Arc::from([]),
        program: Program::Command { command: "true".into(), args: vec![] },
        env: vec![],
        cwd: AbsPath::parse("/work").unwrap(),
        profile: None,
        network: None,
        output_limit_bytes: None,
        streams: Streams::Merged,
        stdin: Stdin::Closed,
        overflow: Overflow::DropOldest,
        time_limit: None,
        idle_limit: None,
        kill_grace: None,
    }
}

fn with_env(name: &str) -> Vec<Entry> {
    vec![Entry::new(name.into(), "x".into()).unwrap()]
}

#[test]
fn a_plain_request_is_permitted_with_the_profiles_values() {
    let permit = judge(&policy(), &request()).unwrap();
    assert_eq!(permit.generation(), 1);
    let order = permit.redeem();
    assert_eq!(order.profile_name().as_str(), "workspace");
    assert_eq!(order.network(), Network::None);
    assert_eq!(order.output_limit_bytes(), 10);
    assert_eq!(order.time_limit(), Some(Duration::from_secs(10)));
    assert_eq!(order.argv(), ["true"]);
}

#[test]
fn an_unknown_profile_is_denied() {
    let denial = judge(&policy(), &Request { profile: Some("other".into()), ..request() }).unwrap_err();
    assert_eq!(denial, Denial::Profile("other".into()));
}

#[test]
fn a_network_that_the_profile_does_not_offer_is_denied() {
    let denial = judge(&policy(), &Request { network: Some(Network::Host), ..request() }).unwrap_err();
    assert_eq!(denial.rule(), "profile.workspace.network.choices");
    let offered = Request { profile: Some("listed".into()), network: Some(Network::None), ..request() };
    assert_eq!(judge(&policy(), &offered).unwrap().order().network(), Network::None);
}

#[test]
fn a_denied_variable_is_denied_from_the_caller_and_from_the_session() {
    let caller = Request { env: with_env("LD_PRELOAD"), ..request() };
    assert_eq!(judge(&policy(), &caller).unwrap_err().rule(), "profile.workspace.environment.deny:LD_*");
    let session = Request { session_env: with_env("LD_PRELOAD").into(), ..request() };
    assert!(matches!(judge(&policy(), &session), Err(Denial::EnvironmentDenied { .. })));
    let unlisted = Request { env: with_env("OTHER"), profile: Some("listed".into()), ..request() };
    assert_eq!(judge(&policy(), &unlisted).unwrap_err().rule(), "profile.listed.environment.allow");
}

#[test]
fn a_working_folder_outside_the_roots_is_denied() {
    for cwd in ["/", "/workshop", "/etc", "/proc/self/cwd"] {
        let denial =
            judge(&policy(), &Request { cwd: AbsPath::parse(cwd).unwrap(), ..request() }).unwrap_err();
        assert_eq!(denial.rule(), "session.roots", "{cwd}");
    }
}

#[test]
fn ceilings_cut_what_is_asked_for() {
    let order = judge(
        &policy(),
        &Request {
            output_limit_bytes: Some(u64::MAX),
            time_limit: Some(Duration::from_secs(3600)),
            ..request()
        },
    )
    .unwrap()
    .redeem();
    assert_eq!(order.output_limit_bytes(), 100);
    assert_eq!(order.time_limit(), Some(Duration::from_secs(60)));
    let none = judge(&policy(), &Request { output_limit_bytes: Some(0), ..request() }).unwrap();
    assert_eq!(none.order().output_limit_bytes(), 0);
}

#[test]
fn a_shell_line_is_one_argument_of_the_profiles_shell() {
    let line = Program::ShellLine("echo a; echo b".into());
    let order = judge(&policy(), &Request { program: line, ..request() }).unwrap().redeem();
    assert_eq!(order.program(), "/bin/sh");
    assert_eq!(order.argv(), ["/bin/sh", "-c", "echo a; echo b"]);
}

#[test]
fn requests_that_differ_have_permits_that_differ() {
    let digest = |request: Request| judge(&policy(), &request).unwrap().digest();
    let command = |command: &str, args: &[&str]| Request {
        program: Program::Command {
            command: command.into(),
            args: args.iter().map(|&arg| arg.into()).collect(),
        },
        ..request()
    };
    assert_eq!(digest(command("a", &["b"])), digest(command("a", &["b"])));
    assert_ne!(digest(command("a", &["b", "c"])), digest(command("a", &["bc"])));
    assert_ne!(digest(command("a", &[])), digest(command("a", &[""])));
    assert_ne!(digest(request()), digest(Request { env: with_env("A"), ..request() }));
    assert_ne!(digest(request()), digest(Request { stdin: Stdin::Open, ..request() }));
}

fn command(command: &str, args: &[&str]) -> Request {
    let args = args.iter().map(|&arg| arg.into()).collect();
    Request { program: Program::Command { command: command.into(), args }, ..request() }
}

#[test]
fn a_denial_names_the_rule_and_gives_its_reason_word_for_word() {
    for request in [
        command("shred", &["x"]),
        Request { program: Program::ShellLine("ls; env shred x".into()), ..request() },
    ] {
        let denial = judge(&policy(), &request).unwrap_err();
        assert_eq!(denial.rule(), "no-shred");
        assert!(denial.to_string().contains("disks are not yours"), "{denial}");
        assert!(denial.to_string().contains("shred x"), "{denial}");
    }
    let nothing = PolicySet::parse("p", "default_profile = 'a'\n[profile.a]").unwrap();
    assert_eq!(judge(&nothing, &request()).unwrap_err().rule(), "default");
}

#[test]
fn an_approval_answers_its_own_question_only() {
    let push = command("git", &["push"]);
    let Err(Denial::NeedsApproval(question)) = judge(&policy(), &push) else { panic!("it asks") };
    assert_eq!(question.rule, "publish");
    let approval = || Approval::grant(&question, "uid:1000".into(), "uid:0".into());
    assert!(super::judge(&policy(), &push, &Nominal, Some(approval())).is_ok());
    let other = [
        command("git", &["push", "-f"]),
        Request { principal: "uid:1001".into(), ..push.clone() },
        Request { env: with_env("A"), ..push.clone() },
        Request { roots: Arc::from([AbsPath::parse("/").unwrap()]), ..push.clone() },
        Request { labels: Arc::new([("team".into(), "b".into())].into()), ..push.clone() },
    ];
    for request in other {
        assert!(super::judge(&policy(), &request, &Nominal, Some(approval())).is_err());
    }
    let reloaded = policy().with_generation(2);
    assert!(super::judge(&reloaded, &push, &Nominal, Some(approval())).is_err());
    // No approval lets through what is denied.
    assert!(super::judge(&policy(), &command("shred", &[]), &Nominal, Some(approval())).is_err());
}

#[test]
fn effects_of_the_rule_that_allows_are_in_the_order() {
    let order = judge(&policy(), &command("make", &["all"])).unwrap().redeem();
    assert_eq!(order.profile_name().as_str(), "listed");
    assert_eq!(order.network(), Network::Host);
    assert_eq!(order.time_limit(), Some(Duration::from_secs(5)));
    assert_eq!(order.profile().limits.terminal.pids, Some(9));
    assert!(order.env().contains(&Bytes::from("J=1")));
    // The profile that the rule names denies what the one that was asked for allows.
    let denied = judge(&policy(), &Request { env: with_env("OTHER"), ..command("make", &[]) });
    assert_eq!(denied.unwrap_err().rule(), "profile.listed.environment.allow");
}

#[test]
fn a_line_cannot_set_what_the_profile_denies() {
    let line = Request { program: Program::ShellLine("LD_PRELOAD=./x ls".into()), ..request() };
    assert_eq!(judge(&policy(), &line).unwrap_err().rule(), "profile.workspace.environment");
}

/// A file for each name, in the first folder of the profile's path; `changed_nanos` tells versions apart.
struct OnPaths {
    version: i64,
}

struct OnPath(String, i64);

impl Views for OnPaths {
    fn under<'a>(&'a self, profile: &'a Profile) -> Box<dyn Programs + 'a> {
        let folder = profile.path.first().map(|folder| folder.display().to_string());
        Box::new(OnPath(folder.unwrap_or_default(), self.version))
    }
}

impl Programs for OnPath {
    fn trusted(&self, name: &str) -> Found {
        self.at(&format!("{}/{name}", self.0), "/")
    }

    fn at(&self, path: &str, _: &str) -> Found {
        let inode = path.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Found::File(FileId { inode, changed_nanos: self.1, ..file(path) })
    }
}

fn file(path: &str) -> FileId {
    match Nominal.at(path, "/") {
        Found::File(file) => file,
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
    let judged = |command_word: &str| {
        super::judge(&policy, &command(command_word, &[]), &OnPaths { version: 1 }, None)
    };
    let permit = judged("tool").unwrap();
    let order = permit.order();
    assert_eq!(order.profile_name().as_str(), "second");
    assert_eq!(order.judged_file().map(|file| file.path.as_str()), Some("/second/tool"));
    assert_eq!(order.search_path(), [std::path::Path::new("/second")]);
    // The rule of the first profile's file is not asked about the second's.
    assert_eq!(permit.rule(), Some("tool"));
}

#[test]
fn a_yes_is_bound_to_every_file_that_the_request_names() {
    let policy = policy();
    let behind_a_wrapper = Request { program: Program::ShellLine("env git push".into()), ..request() };
    let views = OnPaths { version: 1 };
    let asked = super::judge(&policy, &behind_a_wrapper, &views, None);
    let Err(Denial::NeedsApproval(question)) = asked else { panic!("it asks: {asked:?}") };
    let approval = || Approval::grant(&question, "uid:1000".into(), "uid:0".into());
    assert!(super::judge(&policy, &behind_a_wrapper, &views, Some(approval())).is_ok());
    let replaced = OnPaths { version: 2 };
    assert!(super::judge(&policy, &behind_a_wrapper, &replaced, Some(approval())).is_err());
}
