//! Puts a gateway together from its configuration: policy, state directory, journal, sessions, terminals; and every reason for which a
//! gateway does not start, or ends. Nothing here knows of commands or output.

use std::{io, sync::Arc, time::Duration};

use crate::{
    admission::{self, Admission},
    adoption::AdoptionError,
    approval::ApprovalStore,
    config::{Config, ConfigError, DieWithGateway},
    journal_lifecycle::{self, JournalError},
    kept_cache::KeptCaches,
    metrics::MetricsError,
    path_trust::{self, GoverningConflict, TrustError},
    policy::ActivePolicy,
    policy_reload::{self, PolicyReloader},
    pool::Pool,
    sandbox::{
        gate_link::Gates,
        host::{
            Host, HostCgroupError, host_ids,
            nested::{self, Nested},
        },
        net_link::Nets,
    },
    sandbox_program::{ProgramError, SandboxProgram},
    session::{DescriptorQuota, LaunchContext, Persistence, Sessions},
    shutdown::OnStop,
    socket::ListenError,
    state_directory::{StateDirectory, StateError},
    terminal::{self, Terminals},
};

/// Requests of one user whose file systems are looked at, and that are judged, at once; more wait.
const FILE_SYSTEM_REQUESTS_PER_USER: usize = 4;
/// As many of all users.
const FILE_SYSTEM_REQUESTS: usize = 64;
/// Large requests of one user that are judged at once. None are shared: one that hangs keeps nobody else's waiting.
const LARGE_REQUESTS_PER_USER: usize = 1;

/// A gateway, put together and not yet listening.
pub(super) struct Gateway {
    pub(super) state: StateDirectory,
    pub(super) admission: Arc<Admission>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) terminals: Arc<Terminals>,
    pub(super) policy_reloader: PolicyReloader,
    pub(super) finished_kept: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) on_stop: OnStop,
}

impl Gateway {
    pub(super) fn open(config: &Config) -> Result<Self, ServeError> {
        nested::check()?;
        let config = &config.with_absolute_paths()?;
        let program = match &config.sandbox_program {
            Some(path) => SandboxProgram::open(path)?,
            None => SandboxProgram::find()?,
        };
        path_trust::check_trust_at_start(config)?;
        let stamps_before = PolicyReloader::stamps_before_load(&config.policies);
        let loaded = config.policies.load()?;
        let named_paths = path_trust::policy_paths(&config.policies, &config.kept_caches, &loaded);
        path_trust::check_trust(&named_paths)?;
        let policy = Arc::new(ActivePolicy::new(loaded, policy_reload::now_unix_ms()));
        let state = StateDirectory::open(&config.state)?;
        let governing = Arc::new(path_trust::governing_paths(config, &program));
        let recorder = journal_lifecycle::open(config.journal.as_ref(), &state.directory)?;
        journal_lifecycle::record_start(&recorder, &policy.current());
        let ids = host_ids::HostIdRange::new(
            config.ids.first,
            config.ids.count / 2,
            host_ids::DEFAULT_LOCKS.into(),
        );
        if config.die_with_gateway == DieWithGateway::No {
            // An embedded gateway learns it from its first launch.
            program.check_build()?;
        }
        let mut host = Host::detect()
            .with_program(program)
            .with_ids(ids)
            .with_principal_limits(config.quotas.principal_limits());
        if let Some(cgroup) = &config.cgroup {
            host = host.with_cgroup(cgroup)?;
        }
        let pool = Arc::new(Pool::new(FILE_SYSTEM_REQUESTS_PER_USER, FILE_SYSTEM_REQUESTS));
        let (own_uid, descriptors_max) = (nix::unistd::geteuid().as_raw(), admission::descriptors_max());
        let descriptors = DescriptorQuota::new(own_uid, descriptors_max);
        let gates = Gates::new(policy.clone());
        let nets = Nets::new(config.names.clone(), &state.directory);
        let launch_context = LaunchContext {
            host: Arc::new(host),
            pool: pool.clone(),
            large_request_pool: Pool::new(LARGE_REQUESTS_PER_USER, 0),
            state: state.directory.clone(),
            kept_caches: KeptCaches::new(config.kept_caches.clone()),
            descriptors: descriptors.clone(),
            governing: governing.clone(),
            die_with_gateway: config.die_with_gateway == DieWithGateway::Yes,
            without_gateway: Some(config.without_gateway),
            gates: gates.clone(),
            nets: nets.clone(),
            agents: Arc::default(),
            counters: Arc::default(),
        };
        // While the rest of the gateway is being opened.
        launch_context.host.prewarm_launcher(&launch_context.state);
        let store = match config.die_with_gateway {
            DieWithGateway::Yes => Persistence::InMemory,
            DieWithGateway::No => Persistence::InFiles,
        };
        let sessions_max = config.quotas.sessions_per_principal;
        let sessions =
            Sessions::new(state.directory.clone(), governing.clone(), store, sessions_max, pool, descriptors);
        let sessions = Arc::new(sessions);
        path_trust::replace(&governing, named_paths, (&policy.current(), &policy.current()), &sessions)?;
        let observer = terminal::approval_observer(recorder.clone());
        let approvals =
            ApprovalStore::new(config.approvals.clone(), nix::unistd::geteuid().as_raw(), observer);
        Ok(Self {
            terminals: Terminals::new(
                launch_context,
                policy.clone(),
                approvals.clone(),
                config.quotas,
                recorder.clone(),
            ),
            policy_reloader: PolicyReloader {
                source: config.policies.clone(),
                kept_caches: config.kept_caches.clone(),
                in_force: policy,
                approvals,
                recorder,
                gates,
                nets,
                loaded_stamps: stamps_before,
                governing,
                sessions: sessions.clone(),
            },
            sessions,
            admission: Admission::new(nix::unistd::geteuid().as_raw(), admission::descriptors_max()),
            state,
            finished_kept: config.finished_kept,
            drain_timeout: config.drain,
            on_stop: config.on_stop,
        })
    }
}

/// Why a gateway did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It would be in a sandbox of another one.
    #[error(transparent)]
    Nested(#[from] Nested),
    /// The configuration or the policy cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Others could change what governs the commands.
    #[error(transparent)]
    Distrust(#[from] TrustError),
    /// Commands would reach what governs them.
    #[error(transparent)]
    Conflict(#[from] GoverningConflict),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What an earlier gateway has left cannot be taken over.
    #[error(transparent)]
    Adoption(#[from] AdoptionError),
    /// The program of the sandboxes cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The configured cgroup cannot be used.
    #[error(transparent)]
    Cgroup(#[from] HostCgroupError),
    /// The journal cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Signals cannot be watched.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    /// The API cannot be described.
    #[error("cannot describe the API for reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The server failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
}
