//! Judging: a complete request against a policy. The only place where a [`Permit`] is made.
//!
//! Decides by what the request and the policy say and by nothing else: no clock, no file system. A request is
//! allowed as a whole or refused with the one rule that refused it; it is never changed into something that the
//! caller did not ask for, but for what the ceilings cut.

use std::time::Duration;

use bytes::Bytes;
use sha2::Digest as _;

use super::{
    AbsPath, Digest, Order, Permit, PolicySet, ProfileName, Program, Request,
    environment::{self, Entry, Refused},
    profile::{Network, Profile},
};

/// A refusal, with the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// There is no such profile.
    #[error("there is no profile {0:?}")]
    Profile(String),
    /// The profile does not offer this network.
    #[error("profile {profile:?} does not offer the network {network:?}")]
    Network {
        /// The profile.
        profile: ProfileName,
        /// What was asked for.
        network: Network,
    },
    /// A pattern denies this variable.
    #[error("environment variable {name:?} is denied by {pattern:?} of profile {profile:?}")]
    EnvironmentDenied {
        /// The profile.
        profile: ProfileName,
        /// The variable.
        name: String,
        /// The pattern that denies it.
        pattern: String,
    },
    /// The profile lists what may be passed, and this is not among it.
    #[error("environment variable {name:?} is not among those that profile {profile:?} allows")]
    EnvironmentNotAllowed {
        /// The profile.
        profile: ProfileName,
        /// The variable.
        name: String,
    },
    /// The working folder lies outside the session's roots.
    #[error("working folder {0} lies outside the session's roots")]
    Cwd(AbsPath),
}

impl Denial {
    /// The rule that refused, by name: stable, for people and programs.
    pub fn rule(&self) -> String {
        match self {
            Self::Profile(_) => "profile.exists".to_owned(),
            Self::Network { profile, .. } => format!("profile.{profile}.network.choices"),
            Self::EnvironmentDenied { profile, pattern, .. } => {
                format!("profile.{profile}.environment.deny:{pattern}")
            }
            Self::EnvironmentNotAllowed { profile, .. } => format!("profile.{profile}.environment.allow"),
            Self::Cwd(_) => "session.roots".to_owned(),
        }
    }
}

/// Judges a request. The permit holds for this request and this generation of the policy only.
pub fn judge(policy: &PolicySet, request: &Request) -> Result<Permit, Denial> {
    let (name, profile) = policy
        .profile(request.profile.as_deref())
        .ok_or_else(|| Denial::Profile(request.profile.clone().unwrap_or_default()))?;
    let network = judge_network(name, profile, request)?;
    judge_environment(name, profile, request.session_env.iter().chain(&request.env))?;
    judge_cwd(&request.roots, &request.cwd)?;
    judge_command(policy, request)?;

    let (program, argv) = command_line(profile, &request.program);
    let order = Order {
        profile_name: name.clone(),
        profile: profile.clone(),
        network,
        program,
        argv,
        env: environment::merge(profile, &request.session_env, &request.env),
        cwd: request.cwd.clone(),
        output_limit_bytes: request
            .output_limit_bytes
            .unwrap_or(profile.output.default_bytes)
            .min(profile.output.ceiling_bytes),
        streams: request.streams,
        stdin: request.stdin,
        overflow: request.overflow,
        time_limit: time_limit(profile, request.time_limit),
        idle_limit: tighter(profile.times.idle, request.idle_limit),
        kill_grace: request.kill_grace.unwrap_or(profile.times.grace),
    };
    Ok(Permit { digest: digest(&order), generation: policy.generation(), order })
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
    judge_environment(name, profile, env)?;
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
    name: &ProfileName,
    profile: &Profile,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> Result<(), Denial> {
    for entry in entries {
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

/// The place of the command rules. There are none yet: which programs may run is not policy's to say so far, and
/// every command that the other steps let through is allowed. No rule file can pretend otherwise, because
/// `[[rule]]` is an unknown key.
fn judge_command(_policy: &PolicySet, _request: &Request) -> Result<(), Denial> {
    Ok(())
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

/// Of every field that says what will run. Each part goes in with its length, so that no two orders share a text.
fn digest(order: &Order) -> Digest {
    let mut hash = sha2::Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(b"provost.order.v1");
    part(order.profile_name.as_str().as_bytes());
    part(order.program.as_bytes());
    part(order.cwd.as_str().as_bytes());
    for list in [&order.argv, &order.env] {
        part(&(list.len() as u64).to_le_bytes());
        list.iter().for_each(|item| part(item));
    }
    let millis = |time: Option<Duration>| time.map_or(u64::MAX, |time| time.as_millis() as u64);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::{Overflow, Stdin, Streams},
        *,
    };

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
            "#,
        )
        .unwrap()
    }

    fn request() -> Request {
        Request {
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
}
