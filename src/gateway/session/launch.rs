//! Finds or launches the sandbox for a command of a session.

use std::{path::PathBuf, sync::Arc};

use super::{
    FILESYSTEM_TIMEOUT, LaunchContext,
    files::FilesTurn,
    home_search,
    sandboxes::{key_of, sandbox_key},
    session::Session,
};
use crate::{
    policy::{
        ExecSpec,
        profile::{Isolation, Network, Profile},
    },
    pool::PoolError,
    sandbox::{
        SandboxLinks,
        agent_link::{self, CallersAgent},
        control::{handle::Sandbox, start::StartError},
        launch::LaunchError,
        net_link::AuthorityError,
        sandbox_state::SandboxState,
        spec::{
            AgentUse, CallerHome, GitIdentity, Root, SandboxAssignment, SandboxSpec, SessionFilesUse,
            SharedCache, Sharing,
        },
    },
};

/// When a sandbox was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxOrigin {
    /// For the one who asked.
    Started,
    /// It was up, or another one who asked at the same time has started it.
    Reused,
}

impl Session {
    /// The sandbox that a command is to run in, started when there is none.
    pub(crate) async fn sandbox_for(
        &self,
        context: &LaunchContext,
        exec_spec: &ExecSpec,
    ) -> Result<(Arc<Sandbox>, Sharing, SandboxOrigin), Arc<StartError>> {
        self.prepare_certificates(context, exec_spec).await?;
        if sharing_for(context, exec_spec) == Sharing::Exclusive {
            let start = || self.start_sandbox(context, exec_spec, Sharing::Exclusive);
            let started = match start().await {
                // A command listens there, and the next launch has another one.
                Err(error) if error.is_of_own_address() => start().await,
                started => started,
            };
            return Ok((started.map_err(Arc::new)?, Sharing::Exclusive, SandboxOrigin::Started));
        }
        let mut origin = SandboxOrigin::Reused;
        let launch = async || {
            origin = SandboxOrigin::Started;
            self.start_sandbox(context, exec_spec, Sharing::Shared).await.map_err(Arc::new)
        };
        let sandbox = self.sandboxes.launch_cell(sandbox_key(exec_spec)).get_or_init(launch).await.clone()?;
        Ok((sandbox, Sharing::Shared, origin))
    }

    /// Whether the sandbox that a command is to run in is up. It may be lost the moment after.
    pub(crate) fn has_sandbox_for(&self, context: &LaunchContext, exec_spec: &ExecSpec) -> bool {
        sharing_for(context, exec_spec) == Sharing::Shared
            && self.sandboxes.launch_cell(sandbox_key(exec_spec)).get().is_some()
    }

    /// Before the command begins: what it reads once must be there.
    async fn prepare_certificates(
        &self,
        context: &LaunchContext,
        exec_spec: &ExecSpec,
    ) -> Result<(), Arc<StartError>> {
        let hosts = &exec_spec.opened_tls().hosts;
        if hosts.is_empty() {
            return Ok(());
        }
        let prepared = context.nets.authorities().prepare(&self.id.to_string(), hosts).await;
        prepared.map_err(|error| Arc::new(StartError::Net(error.into())))
    }

    fn certificates_directory(&self, context: &LaunchContext) -> Result<PathBuf, StartError> {
        let made = context.nets.authorities().shown_directory(&self.id.to_string());
        made.map_err(|error| StartError::Net(AuthorityError::Write(error).into()))
    }

    async fn start_sandbox(
        &self,
        context: &LaunchContext,
        exec_spec: &ExecSpec,
        sharing: Sharing,
    ) -> Result<Arc<Sandbox>, StartError> {
        let roots = self.clone_roots(exec_spec.profile())?;
        let caches = self.caches_of(context, exec_spec.profile()).await.map_err(LaunchError::Wait)?;
        let caches = match shares_files(exec_spec) {
            true => self.with_kept(context, exec_spec, caches).await?,
            false => caches,
        };
        let certificates = match exec_spec.network() {
            Network::Proxy => Some(self.certificates_directory(context)?),
            Network::None | Network::Host => None,
        };
        let turn = if shares_files(exec_spec) { Some(self.files.turn().await) } else { None };
        let alone = sharing == Sharing::Exclusive && turn.is_some();
        let session_network = match exec_spec.network() {
            Network::None | Network::Proxy if alone => {
                Some(self.networks.of(context, self.principal, sandbox_key(exec_spec)).await)
            }
            Network::None | Network::Proxy | Network::Host => None,
        };
        let spec = SandboxSpec {
            id: format!("sbx_{}", ulid::Ulid::generate()),
            profile_name: exec_spec.profile_name().to_string(),
            profile: exec_spec.profile().clone(),
            roots,
            named: self.linked_names(),
            network: exec_spec.network(),
            owner: self.owner,
            principal_uid: self.principal.uid,
            groups: self.rights.groups.clone(),
            caller_home: self.caller_home(exec_spec.profile()),
            caches,
            agent: self.agent_for(context, exec_spec.profile()),
            has_program_rules: exec_spec.has_program_rules(),
            certificates,
            governing: context.governing.clone(),
            session_network,
            session_files: turn.as_ref().map_or(SessionFilesUse::Own, FilesTurn::for_launch),
            assignment: SandboxAssignment {
                session_id: self.id.to_string(),
                confinement: exec_spec.confinement(),
                sharing,
            },
            die_with_gateway: context.die_with_gateway,
            without_gateway: context.without_gateway,
            fail_at: fail_at(),
        };
        let links = SandboxLinks { gates: &context.gates, nets: &context.nets, agents: &context.agents };
        let started = Sandbox::start(&context.host, &context.state, spec, links, &context.counters).await;
        match (&started, turn) {
            (_, None) => {}
            (Ok(sandbox), Some(turn)) => turn.end(sandbox.clone()),
            (Err(error), Some(turn)) if error.is_of_session_files() => turn.forget(),
            (Err(_), Some(turn)) => drop(turn),
        }
        started
    }

    /// Waits until the session has its files from the sandboxes that hold them.
    pub(crate) async fn fetch_files(&self) {
        drop(self.files.turn().await);
    }

    /// Takes files and network of the session from an adopted sandbox.
    pub(crate) fn adopt_sandbox_files(
        self: &Arc<Self>,
        context: &LaunchContext,
        state: &SandboxState,
        adopted: &Arc<Sandbox>,
    ) {
        if adopted.has_session_files() {
            self.files.adopt(adopted.clone());
        }
        if adopted.has_session_network() {
            let networks = self.networks.adopt(context, self.principal, key_of(state), adopted.clone());
            // So that the session has it when that sandbox ends.
            tokio::spawn(networks);
        }
    }

    /// What a profile lets a sandbox have of the caller's home.
    fn caller_home(&self, profile: &Profile) -> CallerHome {
        let git_identity = shown_identity(self.git_identity.clone(), self.ssh_agent.is_some(), profile);
        let shows_all = profile.git.identity && profile.git.configuration;
        CallerHome { git_identity, git_configuration: self.git_configuration.clone().filter(|_| shows_all) }
    }

    /// The caller's SSH agent, where the caller has named one and the profile gives commands something of it.
    fn agent_for(&self, context: &LaunchContext, profile: &Profile) -> Option<AgentUse> {
        let path = self.ssh_agent.as_ref().filter(|_| !profile.ssh_agent.is_empty())?;
        let agent = CallersAgent {
            path: path.as_path().to_owned(),
            rights: self.rights.clone(),
            pool: context.pool.clone(),
        };
        let held = context.descriptors.reserve_unchecked(self.principal, agent_link::MAX_DESCRIPTORS);
        Some(AgentUse { agent, held: Arc::new(held) })
    }

    /// The caches of the caller's home that a profile names. The first call looks for all of them, on the caller's file
    /// system.
    async fn caches_of(
        &self,
        context: &LaunchContext,
        profile: &Profile,
    ) -> Result<Vec<SharedCache>, PoolError> {
        if profile.caches.is_empty() {
            return Ok(Vec::new());
        }
        let look = async || {
            let writable: Vec<_> = self.writable_roots().map(|root| root.as_path().to_owned()).collect();
            let (rights, governing) = (self.rights.clone(), context.governing.clone());
            let find = move || home_search::find_caches(&rights, &writable, &governing);
            let found: Vec<_> = context.pool.run(self.principal.uid, FILESYSTEM_TIMEOUT, find).await?;
            // Each is held itself, and as the session's sandboxes share it.
            let count = 2 * found.len() as u64;
            Ok((found, context.descriptors.reserve_unchecked(self.principal, count)))
        };
        let (found, _) = self.caches.get_or_try_init(look).await?;
        Ok(found.iter().filter_map(|one| one.shared_by(profile)).collect())
    }

    fn clone_roots(&self, profile: &Profile) -> Result<Vec<Root>, StartError> {
        if let Some(lost) = self.lost_roots.first() {
            return Err(StartError::RootGone(lost.as_path().to_owned()));
        }
        let clone = |root: &Root| {
            let descriptor = root.descriptor.try_clone().map_err(StartError::Descriptors)?;
            Ok(Root { path: root.path.clone(), descriptor, role: root.role })
        };
        let toolchains = self.known_toolchains().into_iter().flat_map(|one| one.of_profile(profile));
        self.root_descriptors.iter().chain(toolchains).map(clone).collect()
    }
}

/// What a profile shows of how the caller's commits are made. They are signed only by an agent that the profile lets git use.
fn shown_identity(known: Option<GitIdentity>, has_agent: bool, profile: &Profile) -> Option<GitIdentity> {
    let known = known.filter(|_| profile.git.identity);
    let signs = has_agent && profile.ssh_agent.sign.iter().any(|name| name == "git");
    known.map(|git| GitIdentity { signing: git.signing.filter(|_| signs), ..git })
}

/// Whether a command has the session's `/tmp`, home and id. What a secret is written to, nobody else reads, and what a profile
/// isolates meets nothing that other commands have left.
fn shares_files(exec_spec: &ExecSpec) -> bool {
    exec_spec.secrets().is_empty() && exec_spec.profile().isolation == Isolation::Session
}

fn sharing_for(context: &LaunchContext, exec_spec: &ExecSpec) -> Sharing {
    // Commands of one sandbox have one id, so that each can read the others' environment and memory.
    let has_secrets = !exec_spec.secrets().is_empty();
    let asked_for = exec_spec.profile().isolation == Isolation::Terminal;
    // Without a tree kill by cgroup, the end of a sandbox's first process is the tree kill.
    match has_secrets || asked_for || !context.host.kills_trees_by_cgroup(&context.state) {
        true => Sharing::Exclusive,
        false => Sharing::Shared,
    }
}

/// The stage of set-up that is to fail, by its name in the supervisor's protocol.
#[cfg(feature = "failpoints")]
fn fail_at() -> Option<String> {
    std::env::var("PROVOST_FAIL_AT").ok()
}

/// None: this build has no failpoints.
#[cfg(not(feature = "failpoints"))]
fn fail_at() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::{AbsPath, CommandSpec, PolicySet, Request, command::program::NominalResolver},
        sandbox::spec::GitSigning,
    };

    #[test]
    fn only_commands_without_secrets_that_are_not_isolated_have_the_sessions_files() {
        for (lines, is_shared) in [
            ("", true),
            ("isolation = 'terminal'", false),
            ("secrets = ['TOKEN']", false),
            ("isolation = 'terminal'\nsecrets = ['TOKEN']", false),
        ] {
            let policy = format!(
                "default_profile = 'one'\n[secrets.TOKEN]\nfile = '/secrets/token'\n[profile.one]\n{lines}\n\
                 [[rule]]\nid = 'anything'\ndecision = 'allow'\nargv = ['**']\n"
            );
            let work = AbsPath::parse("/work").unwrap();
            let command = CommandSpec::Argv { command: "true".into(), args: vec![] };
            let request = Request::plain("uid:1000".into(), Arc::from([work.clone()]), work, command);
            let policy = PolicySet::parse("test.toml", &policy).unwrap();
            let permit = policy.evaluate(&request, &NominalResolver).decide(None).unwrap();
            assert_eq!(shares_files(permit.spec()), is_shared, "{lines}");
        }
    }

    #[test]
    fn commits_are_signed_only_where_there_is_an_agent_and_the_profile_lets_git_sign() {
        let signing = GitSigning { key: "ssh-ed25519 AAAA".into(), commits: true, tags: false };
        let signed =
            GitIdentity { name: "Ann".into(), email: "ann@example.org".into(), signing: Some(signing) };
        let unsigned = GitIdentity { signing: None, ..signed.clone() };
        for (has_agent, identity, sign, expected) in [
            (true, true, &["git"][..], Some(&signed)),
            (true, true, &["other", "git"], Some(&signed)),
            (true, true, &["other"], Some(&unsigned)),
            (true, true, &[], Some(&unsigned)),
            (false, true, &["git"], Some(&unsigned)),
            (true, false, &["git"], None),
        ] {
            let mut profile = Profile::default();
            profile.git.identity = identity;
            profile.ssh_agent.sign = sign.iter().map(|name| (*name).to_owned()).collect();
            let shown = shown_identity(Some(signed.clone()), has_agent, &profile);
            assert_eq!(shown.as_ref(), expected, "{has_agent} {identity} {sign:?}");
        }
    }
}
