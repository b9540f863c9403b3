//! Judging: a complete request against a policy. The only place where a [`Permit`] is made.
//!
//! Decides by what the request and the policy say, and by which files there are, which the caller brings as
//! [`Programs`]: no clock, no file system. A request is allowed as a whole or refused with the one rule that
//! refused it; it is never changed into something that the caller did not ask for, but for what ceilings cut
//! and what the rules that allow it say.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::Digest as _;

use super::{
    AbsPath, Approval, Denial, Digest, Order, Permit, PolicySet, ProfileName, Program, Question, Request,
    command::{
        program::{FileId, Found, Glimpse, Programs},
        rule::{Circumstances, Decision, Effects},
        shell::{self, Dialect},
        verdict::{self, Bench, Form, Verdict},
    },
    environment::{self, Entry, Refused},
    profile::{Network, Profile},
    secret::Grant,
};

/// A request with everything that was found out about it: for judging, and for explaining.
#[derive(Debug)]
pub struct Hearing {
    /// The profile that it would run under.
    pub profile_name: ProfileName,
    /// What the rules say.
    pub verdict: Verdict,
    /// What exactly would be run.
    pub order: Order,
}

/// Which files there are, under each profile: profiles have search paths and folders of their own.
pub trait Views {
    /// What a command under this profile finds.
    fn under<'a>(&'a self, profile: &'a Profile) -> Box<dyn Programs + 'a>;
}

/// What is to be kept of a judging, whatever it ended with.
#[derive(Debug, Default)]
pub struct Minutes {
    /// Of the request; absent where it was refused before it had a normal form.
    pub digest: Option<Digest>,
    /// Every command that was seen in it, in its normal form.
    pub commands: Vec<String>,
    /// Rules that only watch, and what they would have decided.
    pub observed: Vec<(String, Decision)>,
}

/// Judges a request. The permit holds for this request and this generation of the policy only. An `approval`
/// answers the question of a rule that asks, if it was given for the very same request and policy.
pub fn judge(
    policy: &PolicySet,
    request: &Request,
    views: &dyn Views,
    approval: Option<Approval>,
) -> Result<Permit, Denial> {
    judge_with_minutes(policy, request, views, approval, &mut Minutes::default())
}

/// As [`judge`], and fills in what is to be kept of it.
pub fn judge_with_minutes(
    policy: &PolicySet,
    request: &Request,
    views: &dyn Views,
    approval: Option<Approval>,
    minutes: &mut Minutes,
) -> Result<Permit, Denial> {
    *minutes = Minutes::default();
    let Hearing { verdict, order, .. } = hear(policy, request, views)?;
    let (digest, generation) = (digest(request, &verdict, &order), policy.generation());
    *minutes = Minutes {
        digest: Some(digest),
        commands: verdict.units.iter().map(|unit| shell::print(&unit.words)).collect(),
        observed: verdict.observed.clone(),
    };
    match verdict.decision {
        Decision::Allow => {}
        Decision::Deny => return Err(Denial::of(policy, &order.profile_name, &verdict)),
        Decision::Ask => match approval {
            Some(approval) if approval.answers(digest, generation, &request.principal) => {}
            _ => {
                let question = Question::of(policy, &verdict, digest, generation);
                return Err(Denial::NeedsApproval(Box::new(question)));
            }
        },
    }
    let observed = verdict.observed;
    Ok(Permit { digest, generation, rule: verdict.cause_rule, observed, order })
}

/// Finds out everything about a request, without deciding. An error where even that cannot be done: the profile
/// does not exist, does not offer the network, denies a variable; the folder is outside.
pub fn hear(policy: &PolicySet, request: &Request, views: &dyn Views) -> Result<Hearing, Denial> {
    let asked = policy
        .profile(request.profile.as_deref())
        .ok_or_else(|| Denial::Profile(request.profile.clone().unwrap_or_default()))?;
    let programs = Glimpse::of(views.under(asked.1));
    let (verdict, (name, profile), programs) = match ask_rules(policy, request, asked, &programs)? {
        // A rule names another profile: what it changes (files, variables, folders) is judged again.
        verdict if wants_other(&verdict, asked.0) => {
            let wanted = verdict.effects.profile.clone().unwrap_or_default();
            let other = policy.profile(Some(&wanted)).ok_or(Denial::Profile(wanted))?;
            let programs = Glimpse::of(views.under(other.1));
            let again = ask_rules(policy, request, other, &programs)?;
            if wants_other(&again, other.0) {
                return Err(Denial::Profiles(asked.0.clone(), other.0.clone()));
            }
            (again, other, programs)
        }
        verdict => (verdict, asked, programs),
    };
    let network = judge_network(name, profile, request)?;
    let effects = &verdict.effects;
    let set: Vec<Entry> = effects
        .environment
        .iter()
        .filter_map(|(name, value)| Entry::new(name.clone(), value.clone()).ok())
        .collect();
    let caller: Vec<Entry> = request.env.iter().chain(&set).cloned().collect();
    let (program, argv) = command_line(profile, &request.program);
    let judged = programs_file(&programs, &program, request);
    let order = Order {
        profile_name: name.clone(),
        profile: limited(profile, effects),
        confinement: policy.confinement(name),
        network,
        interpreters: match &judged {
            Found::File(file) => programs.interpreters(file, request.cwd.as_str()),
            Found::Builtin | Found::Missing | Found::Unknown => Vec::new(),
        },
        judged,
        program,
        argv,
        env: environment::merge(profile, &request.session_env, &caller),
        secrets: grants(policy, profile, effects),
        cwd: request.cwd.clone(),
        output_limit_bytes: request
            .output_limit_bytes
            .unwrap_or(profile.output.default_bytes)
            .min(profile.output.ceiling_bytes),
        streams: request.streams,
        stdin: request.stdin,
        overflow: request.overflow,
        time_limit: tighter(time_limit(profile, request.time_limit), effects.time_limit),
        idle_limit: tighter(tighter(profile.times.idle, request.idle_limit), effects.idle_limit),
        kill_grace: request.kill_grace.unwrap_or(profile.times.grace),
    };
    Ok(Hearing { profile_name: name.clone(), verdict, order })
}

fn wants_other(verdict: &Verdict, name: &ProfileName) -> bool {
    verdict.effects.profile.as_deref().is_some_and(|wanted| wanted != name.as_str())
}

/// Lets the profile's own rules and the command rules speak.
fn ask_rules(
    policy: &PolicySet,
    request: &Request,
    (name, profile): (&ProfileName, &Arc<Profile>),
    programs: &dyn Programs,
) -> Result<Verdict, Denial> {
    judge_environment(policy, name, profile, request.session_env.iter().chain(&request.env))?;
    judge_cwd(&request.roots, &request.cwd)?;
    let env = environment::merged(profile, &request.session_env, &request.env);
    let circumstances = Circumstances {
        principal: request.principal.clone(),
        labels: (*request.labels).clone(),
        cwd: request.cwd.as_str().to_owned(),
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    };
    let bench = Bench {
        rules: policy.rules(),
        programs,
        circumstances: &circumstances,
        denies_variable: &|name| {
            policy.is_secret(name) || environment::judge_name(&profile.environment, name).is_err()
        },
    };
    Ok(match &request.program {
        Program::Command { command, args } => {
            let argv: Vec<String> = std::iter::once(command).chain(args).cloned().collect();
            verdict::judge(Form::Argv(&argv), bench)
        }
        Program::ShellLine(line) => {
            let shell = profile.shell.file_name().and_then(|name| name.to_str()).unwrap_or("sh");
            verdict::judge(Form::Line(line, Dialect::of(shell)), bench)
        }
    })
}

/// What the profile gives, and what the rules add.
fn grants(policy: &PolicySet, profile: &Profile, effects: &Effects) -> Vec<Grant> {
    let names: BTreeSet<&String> = profile.secrets.iter().chain(&effects.secrets).collect();
    // Loading has refused names that are none.
    let grant =
        |name: &String| Some(Grant { name: name.clone(), file: policy.secrets.get(name)?.file.clone() });
    names.into_iter().filter_map(grant).collect()
}

fn programs_file(programs: &dyn Programs, program: &str, request: &Request) -> Found {
    match program.contains('/') {
        true => programs.at(program, request.cwd.as_str()),
        false => programs.trusted(program),
    }
}

/// The profile, with the terminal's limits as low as the rules say.
fn limited(profile: &Arc<Profile>, effects: &Effects) -> Arc<Profile> {
    let (own, more) = (profile.limits.terminal, effects.limits);
    let terminal = super::profile::CgroupLimits {
        memory_bytes: lower(own.memory_bytes, more.memory_bytes),
        swap_bytes: lower(own.swap_bytes, more.swap_bytes),
        pids: lower(own.pids, more.pids),
        cpu_millis: lower(own.cpu_millis, more.cpu_millis),
    };
    if terminal == own {
        return profile.clone();
    }
    let mut profile = Profile::clone(profile);
    profile.limits.terminal = terminal;
    Arc::new(profile)
}

fn lower(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Judges what a session brings for all of its terminals, so that a mistake is told at once. Each terminal's
/// request is judged as a whole all the same. Returns the name of the profile.
pub fn judge_session(
    policy: &PolicySet,
    profile: Option<&str>,
    roots: &[AbsPath],
    cwd: &AbsPath,
    env: &[Entry],
) -> Result<ProfileName, Denial> {
    let (name, profile) =
        policy.profile(profile).ok_or_else(|| Denial::Profile(profile.unwrap_or_default().to_owned()))?;
    judge_environment(policy, name, profile, env)?;
    judge_cwd(roots, cwd)?;
    Ok(name.clone())
}

fn judge_network(name: &ProfileName, profile: &Profile, request: &Request) -> Result<Network, Denial> {
    let network = request.network.unwrap_or(profile.network.default);
    if profile.network.choices.contains(&network) {
        Ok(network)
    } else {
        Err(Denial::Network { profile: name.clone(), network })
    }
}

fn judge_environment<'a>(
    policy: &PolicySet,
    name: &ProfileName,
    profile: &Profile,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> Result<(), Denial> {
    for entry in entries {
        if policy.is_secret(entry.name()) {
            return Err(Denial::Secret(entry.name().to_owned()));
        }
        environment::judge_name(&profile.environment, entry.name()).map_err(|refused| match refused {
            Refused::Denied(pattern) => Denial::EnvironmentDenied {
                profile: name.clone(),
                name: entry.name().to_owned(),
                pattern: pattern.to_owned(),
            },
            Refused::NotAllowed => {
                Denial::EnvironmentNotAllowed { profile: name.clone(), name: entry.name().to_owned() }
            }
        })?;
    }
    Ok(())
}

/// By its text only. The sandbox's own view is the boundary: what a link in the workspace points to outside of
/// it does not exist there.
fn judge_cwd(roots: &[AbsPath], cwd: &AbsPath) -> Result<(), Denial> {
    if roots.iter().any(|root| cwd.is_within(root)) { Ok(()) } else { Err(Denial::Cwd(cwd.clone())) }
}

fn command_line(profile: &Profile, program: &Program) -> (String, Vec<Bytes>) {
    match program {
        Program::Command { command, args } => {
            let argv = std::iter::once(command).chain(args).map(|arg| Bytes::from(arg.clone())).collect();
            (command.clone(), argv)
        }
        Program::ShellLine(line) => {
            let shell = profile.shell.to_string_lossy().into_owned();
            let argv = vec![shell.clone().into(), Bytes::from_static(b"-c"), line.clone().into()];
            (shell, argv)
        }
    }
}

/// The caller's limit may go up to the ceiling, or where there is none, to the profile's own limit.
fn time_limit(profile: &Profile, asked: Option<Duration>) -> Option<Duration> {
    let ceiling = profile.times.ceiling.or(profile.times.limit);
    tighter(ceiling, asked.or(profile.times.limit))
}

fn tighter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Of every field that says what will run, of the files that it names, and of what the session lets it touch: an approval
/// is for all of that. Each part goes in with its length, so that no two requests share a text.
fn digest(request: &Request, verdict: &Verdict, order: &Order) -> Digest {
    let mut hash = sha2::Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(b"provost.order.v3");
    part(request.principal.as_bytes());
    part(&(request.roots.len() as u64).to_le_bytes());
    request.roots.iter().for_each(|root| part(root.as_str().as_bytes()));
    part(&(request.labels.len() as u64).to_le_bytes());
    request.labels.iter().flat_map(|(name, value)| [name, value]).for_each(|text| part(text.as_bytes()));
    part(order.profile_name.as_str().as_bytes());
    part(order.program.as_bytes());
    part(order.cwd.as_str().as_bytes());
    for list in [&order.argv, &order.env] {
        part(&(list.len() as u64).to_le_bytes());
        list.iter().for_each(|item| part(item));
    }
    part(&(order.secrets.len() as u64).to_le_bytes());
    for Grant { name, file } in &order.secrets {
        part(name.as_bytes());
        part(file.as_os_str().as_encoded_bytes());
    }
    let millis = |time: Option<Duration>| time.map_or(u64::MAX, |time| time.as_millis() as u64);
    let units = verdict.units.iter().map(|unit| &unit.file);
    let interpreters = order.interpreters.iter().map(|interpreter| &interpreter.file);
    let named: Vec<[u64; 3]> = order
        .judged_file()
        .map(identity)
        .into_iter()
        .chain(units.chain(interpreters).map(|found| match found {
            Found::File(file) => identity(file),
            Found::Builtin | Found::Missing | Found::Unknown => [0; 3],
        }))
        .collect();
    let limits = order.profile.limits.terminal;
    for number in [named.len() as u64].into_iter().chain(named.into_iter().flatten()).chain(
        [limits.memory_bytes, limits.swap_bytes, limits.pids, limits.cpu_millis]
            .map(|limit| limit.unwrap_or(u64::MAX)),
    ) {
        part(&number.to_le_bytes());
    }
    for number in [
        order.network as u64,
        order.streams as u64,
        order.stdin as u64,
        order.overflow as u64,
        order.output_limit_bytes,
        millis(order.time_limit),
        millis(order.idle_limit),
        millis(Some(order.kill_grace)),
    ] {
        part(&number.to_le_bytes());
    }
    Digest(hash.finalize().into())
}

fn identity(file: &FileId) -> [u64; 3] {
    [file.device, file.inode, file.changed_nanos as u64]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::{Overflow, Stdin, Streams, command::program::Nominal},
        *,
    };

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
}
