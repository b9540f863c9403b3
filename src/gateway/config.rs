//! The gateway's configuration: one TOML file, then what the command line overrides.
//!
//! Unknown keys are refused. Every number has its unit in its name, and every bound of the gateway that can be set is set here; those of a
//! command are the profile's. No metrics are served unless an address is given, and one beyond loopback needs a word of its own.

use std::{
    io,
    net::SocketAddr,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    approval::ApprovalConfig,
    journal_lifecycle::{JournalConfig, JournalSection},
    policy::{PolicyFileError, PolicySet, duration},
    policy_directory,
    sandbox::{
        host::host_ids,
        net_link::{NameFiles, TrustedRoots},
        spec::WithoutGateway,
    },
    shutdown::OnStop,
    sys::text_file,
    terminal::Quotas,
};

/// Bytes that a configuration may hold. More is refused.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Where the policy comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    /// `default.toml` in this directory.
    Directory(PathBuf),
    /// The one that is compiled in, as it is.
    CompiledIn,
    /// The one that is compiled in, with resource limits preferred instead of required.
    CompiledInPreferringLimits,
}

/// A gateway's configuration, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file that it was read from; absent: none.
    pub file: Option<PathBuf>,
    /// The unix socket to listen on.
    pub listen: PathBuf,
    /// Permission bits of that socket. Who may connect may run commands.
    pub socket_mode: u32,
    /// The directory that the gateway keeps its state in; one gateway at a time.
    pub state: PathBuf,
    /// The program of its sandboxes, for a program that embeds a gateway and is not installed with it; absent: it is next to the
    /// running one.
    pub sandbox_program: Option<PathBuf>,
    /// The directory of the caches that outlive their sessions. Several gateways of one user may share it.
    pub kept_caches: PathBuf,
    /// Where the policy comes from.
    pub policies: PolicySource,
    /// The cgroup that sandboxes are made in, as /proc/PID/cgroup writes it; absent: the one that the gateway was
    /// started in.
    pub cgroup: Option<PathBuf>,
    /// The host ids that sandboxes' identities are taken from, on a privileged host.
    pub ids: IdRange,
    /// Bounds on sessions and terminals.
    pub quotas: Quotas,
    /// How persons are asked.
    pub approvals: ApprovalConfig,
    /// How long a finished terminal that nobody released is kept.
    pub finished_kept: Duration,
    /// The gateway ends when it has had no session for so long; absent: never.
    pub idle_exit: Option<Duration>,
    /// How long waits and streams are served after SIGTERM.
    pub drain: Duration,
    /// What becomes of commands then.
    pub on_stop: OnStop,
    /// Sandboxes end with the gateway.
    pub die_with_gateway: DieWithGateway,
    /// How long they go on without a gateway otherwise.
    pub without_gateway: WithoutGateway,
    /// How the journal is kept; absent: there is none.
    pub journal: Option<JournalConfig>,
    /// Where metrics are served; absent: nowhere.
    pub metrics: Option<MetricsAddress>,
    /// By what the proxies of sandboxes find the addresses of names.
    pub names: NameFiles,
}

/// How long sandboxes go on by default that no gateway can reach any more.
const UNREACHABLE_KEPT: Duration = Duration::from_secs(10 * 60);

/// Whether sandboxes outlive a gateway that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DieWithGateway {
    /// They end with it.
    Yes,
    /// They run on.
    No,
}

/// A range of host ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdRange {
    /// The first id.
    pub first: u32,
    /// How many; each sandbox takes two.
    pub count: u32,
}

impl Default for IdRange {
    /// Above the ranges that distributions hand out to people and to containers.
    fn default() -> Self {
        Self { first: host_ids::DEFAULT_FIRST_ID, count: 2 * host_ids::DEFAULT_PAIRS }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", crate::printable::path(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is wrong; shown with its place.
    #[error("{0}")]
    File(PolicyFileError),
    /// The policies directory is no policy.
    #[error(transparent)]
    Policies(policy_directory::PolicyDirectoryError),
}

impl ConfigError {
    /// The whole text with what caused it, and the place in a policy file when it is about one.
    pub(super) fn into_problem(self) -> (String, Option<PolicyFileError>) {
        match self {
            Self::Policies(policy_directory::PolicyDirectoryError::File(error)) => {
                (error.to_string(), Some(error))
            }
            Self::Policies(error @ policy_directory::PolicyDirectoryError::Read { .. }) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                (format!("{error}{}", cause.unwrap_or_default()), None)
            }
            error @ (Self::Read { .. } | Self::File(_) | Self::Policies(_)) => (error.to_string(), None),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: None,
            listen: default_listen(),
            socket_mode: 0o600,
            state: default_state(),
            sandbox_program: None,
            kept_caches: default_kept_caches(),
            policies: default_policies(),
            cgroup: None,
            ids: IdRange::default(),
            quotas: Quotas::default(),
            approvals: ApprovalConfig::default(),
            finished_kept: Duration::from_secs(30 * 60),
            idle_exit: None,
            drain: Duration::from_secs(20),
            on_stop: OnStop::default(),
            die_with_gateway: DieWithGateway::No,
            without_gateway: WithoutGateway { unreachable_max: UNREACHABLE_KEPT, max: None },
            journal: Some(JournalConfig::default()),
            metrics: None,
            names: NameFiles::default(),
        }
    }
}

impl Config {
    /// The configuration of a file; what it leaves out has its default. A file that says nothing is refused: who names one means something
    /// by it, and a write that was cut short leaves one, by which the policies would be others.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = text_file::read_text(path, CONFIG_BYTES_MAX)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        if toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.is_empty()) {
            let problem = "the file says nothing: it is empty or has nothing but comments; without --config everything has its default";
            return Err(ConfigError::File(PolicyFileError::at(
                &path.display().to_string(),
                &text,
                0..0,
                problem,
            )));
        }
        Ok(Self { file: Some(path.to_owned()), ..Self::parse(&path.display().to_string(), &text)? })
    }

    /// As [`Config::load`], of a text.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let parsed: ConfigFile = toml::from_str(text).map_err(|error| {
            let place = error.span().unwrap_or(0..0);
            ConfigError::File(PolicyFileError::at(file, text, place, error.message()))
        })?;
        let default = Self::default();
        Ok(Self {
            file: None,
            listen: parsed.listen.unwrap_or(default.listen),
            socket_mode: parsed.socket_mode.unwrap_or(default.socket_mode),
            state: parsed.state.unwrap_or(default.state),
            sandbox_program: default.sandbox_program,
            kept_caches: parsed.kept_caches.unwrap_or(default.kept_caches),
            policies: parsed.policies.map_or(default.policies, PolicySource::Directory),
            cgroup: parsed.cgroup,
            ids: parsed.ids.unwrap_or_default(),
            quotas: parsed.quotas,
            approvals: parsed.approvals,
            finished_kept: parsed.finished_kept.unwrap_or(default.finished_kept),
            idle_exit: None,
            drain: parsed.drain.unwrap_or(default.drain),
            on_stop: parsed.on_stop.unwrap_or(default.on_stop),
            die_with_gateway: default.die_with_gateway,
            without_gateway: WithoutGateway {
                unreachable_max: parsed.unreachable_kept.unwrap_or(UNREACHABLE_KEPT),
                max: parsed.without_gateway_kept,
            },
            journal: parsed.journal.0,
            metrics: parsed.metrics.0,
            names: parsed.names.into_files(),
        })
    }

    /// The same, with paths that mean the same wherever this process is.
    ///
    /// # Errors
    /// When the current directory is gone.
    pub(super) fn with_absolute_paths(&self) -> Result<Self, ConfigError> {
        let absolute = |path: &PathBuf| {
            absolute_path(path).map_err(|source| ConfigError::Read { path: path.clone(), source })
        };
        let policies = match &self.policies {
            PolicySource::Directory(path) => PolicySource::Directory(absolute(path)?),
            compiled_in => compiled_in.clone(),
        };
        Ok(Self {
            file: self.file.as_ref().map(absolute).transpose()?,
            state: absolute(&self.state)?,
            sandbox_program: self.sandbox_program.as_ref().map(absolute).transpose()?,
            kept_caches: absolute(&self.kept_caches)?,
            policies,
            ..self.clone()
        })
    }

    /// What `provost run` starts by itself: private state, limits preferred, nothing kept at the end. The socket and
    /// the state directory are made by [`embed`](super::embed).
    pub fn embedded() -> Self {
        Self {
            policies: PolicySource::CompiledInPreferringLimits,
            die_with_gateway: DieWithGateway::Yes,
            journal: None,
            idle_exit: None,
            drain: Duration::from_secs(10),
            on_stop: OnStop::Stop,
            ..Self::default()
        }
    }
}

impl PolicySource {
    /// Loads and checks the policy.
    pub fn load(&self) -> Result<PolicySet, ConfigError> {
        match self {
            Self::CompiledIn => Ok(PolicySet::compiled_in()),
            Self::CompiledInPreferringLimits => Ok(PolicySet::compiled_in().preferring_limits()),
            Self::Directory(directory) => {
                let policy = policy_directory::read(directory).map_err(ConfigError::Policies)?;
                // As with the compiled-in policy: an ordinary user may have no cgroup with the controllers.
                let prefers = policy.has_built_in_profiles() && default_policies() != Self::CompiledIn;
                Ok(if prefers { policy.preferring_limits() } else { policy })
            }
        }
    }
}

/// Whether this user's gateway runs commands without the limits that the host does not give: an ordinary user's.
pub fn compiled_in_prefers_limits() -> bool {
    !nix::unistd::geteuid().is_root()
}

/// The compiled-in policy. An ordinary user may have no cgroup with the controllers that limits need: then commands run
/// without these limits, as with `provost run`, and the start says so once.
fn default_policies() -> PolicySource {
    match compiled_in_prefers_limits() {
        false => PolicySource::CompiledIn,
        true => PolicySource::CompiledInPreferringLimits,
    }
}

/// Where a gateway listens, and a client looks, when nothing is said: `/run/provost/provost.sock` for root,
/// else `$XDG_RUNTIME_DIR/provost/provost.sock`, else `/tmp/provost-UID/provost.sock`.
pub fn default_listen() -> PathBuf {
    runtime_directory().join("provost.sock")
}

/// A path from `/` on. The current directory is left at once by the `..` that a path begins with: the directories that it lies in are
/// known without links, and what lies in it is not on the way.
///
/// # Errors
/// When the current directory is gone.
pub fn absolute_path(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return std::path::absolute(path);
    }
    let mut parts = path.components();
    let mut from = match path.is_absolute() {
        true => PathBuf::new(),
        false => std::env::current_dir()?,
    };
    loop {
        match parts.clone().next() {
            Some(Component::ParentDir) => drop(from.pop()),
            Some(Component::CurDir) => {}
            Some(_) => return std::path::absolute(from.join(parts.as_path())),
            None => return Ok(from),
        }
        parts.next();
    }
}

/// Where a gateway keeps its state when nothing is said: `/var/lib/provost` for root, else `state` in the directory of
/// its socket.
pub fn default_state() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        PathBuf::from("/var/lib/provost")
    } else {
        runtime_directory().join("state")
    }
}

/// Where caches are kept when nothing is said: `/var/cache/provost` for root, else `provost/kept` in `$XDG_CACHE_HOME`
/// or `~/.cache`. An embedded gateway, whose state is gone with it, has the same.
pub fn default_kept_caches() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/cache/provost");
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    caches.map_or_else(|| runtime_directory().join("kept"), |caches| caches.join("provost/kept"))
}

/// Private to the user.
pub(super) fn runtime_directory() -> PathBuf {
    let user = nix::unistd::geteuid();
    if user.is_root() {
        return PathBuf::from("/run/provost");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if Path::new(&directory).is_absolute() => PathBuf::from(directory).join("provost"),
        _ => PathBuf::from(format!("/tmp/provost-{user}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default, deserialize_with = "listen_address")]
    listen: Option<PathBuf>,
    #[serde(default, deserialize_with = "octal_mode")]
    socket_mode: Option<u32>,
    state: Option<PathBuf>,
    kept_caches: Option<PathBuf>,
    policies: Option<PathBuf>,
    cgroup: Option<PathBuf>,
    ids: Option<IdRange>,
    #[serde(default)]
    quotas: Quotas,
    #[serde(default)]
    approvals: ApprovalConfig,
    #[serde(default, with = "duration::optional")]
    finished_kept: Option<Duration>,
    #[serde(default, with = "duration::optional")]
    drain: Option<Duration>,
    on_stop: Option<OnStop>,
    #[serde(default, with = "duration::optional")]
    unreachable_kept: Option<Duration>,
    #[serde(default, with = "duration::optional")]
    without_gateway_kept: Option<Duration>,
    #[serde(default)]
    journal: JournalSection,
    #[serde(default)]
    metrics: MetricsSection,
    #[serde(default)]
    names: NamesSection,
}

/// As the file writes it.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct NamesSection {
    hosts: Option<PathBuf>,
    resolv_conf: Option<PathBuf>,
    trusted_roots: Option<PathBuf>,
}

impl NamesSection {
    fn into_files(self) -> NameFiles {
        let default = NameFiles::default();
        NameFiles {
            hosts: self.hosts.unwrap_or(default.hosts),
            resolv_conf: self.resolv_conf.unwrap_or(default.resolv_conf),
            trusted_roots: self.trusted_roots.map_or(default.trusted_roots, TrustedRoots::of),
        }
    }
}

/// `unix:/absolute/path`.
pub fn parse_listen(text: &str) -> Result<PathBuf, &'static str> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    match path.map(PathBuf::from) {
        Some(path) if path.is_absolute() && path.file_name().is_some() => Ok(path),
        _ => Err("must be of the form unix:/absolute/path"),
    }
}

/// Reads the address of a unix socket.
pub(super) fn listen_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_listen(&text).map(Some).map_err(D::Error::custom)
}

/// Reads permission bits in octal.
pub(super) fn octal_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match u32::from_str_radix(&text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Some(mode)),
        _ => Err(D::Error::custom("must be permission bits in octal, as in \"0600\"")),
    }
}

/// Where metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// To everybody on this host, or beyond it when that was said.
    Tcp(SocketAddr),
    /// To whom the socket's permission bits let in.
    Unix {
        /// The socket.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// The section, as it is meant: `None` where no metrics are served.
#[derive(Debug, Default)]
pub(super) struct MetricsSection(pub Option<MetricsAddress>);

/// The section, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: Option<String>,
    #[serde(default, deserialize_with = "octal_mode")]
    socket_mode: Option<u32>,
    #[serde(default)]
    beyond_loopback: bool,
}

/// What of the section cannot be meant.
#[derive(Debug, thiserror::Error)]
enum MetricsConfigError {
    #[error("metrics.listen must be of the form IP:PORT or unix:/absolute/path")]
    Address,
    #[error(
        "metrics.listen is for everybody who reaches {0}, without a password or encryption: say \
         metrics.beyond_loopback = true if that is meant"
    )]
    BeyondLoopback(SocketAddr),
    #[error("metrics.{0} is for a metrics.listen that it fits")]
    Stray(&'static str),
}

/// A socket of its own is for its user alone, as the gateway's is.
const SOCKET_MODE: u32 = 0o600;

impl<'de> Deserialize<'de> for MetricsSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        address(MetricsTable::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

fn address(written: MetricsTable) -> Result<Option<MetricsAddress>, MetricsConfigError> {
    let MetricsTable { listen, socket_mode, beyond_loopback } = written;
    let address = match &listen {
        None => None,
        Some(text) => Some(match (text.parse::<SocketAddr>(), parse_listen(text)) {
            (Ok(address), _) if !address.ip().is_loopback() && !beyond_loopback => {
                return Err(MetricsConfigError::BeyondLoopback(address));
            }
            (Ok(address), _) => MetricsAddress::Tcp(address),
            (Err(_), Ok(path)) => MetricsAddress::Unix { path, mode: socket_mode.unwrap_or(SOCKET_MODE) },
            (Err(_), Err(_)) => return Err(MetricsConfigError::Address),
        }),
    };
    let is_tcp = matches!(address, Some(MetricsAddress::Tcp(_)));
    if beyond_loopback && !is_tcp {
        return Err(MetricsConfigError::Stray("beyond_loopback"));
    }
    if socket_mode.is_some() && (is_tcp || address.is_none()) {
        return Err(MetricsConfigError::Stray("socket_mode"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leaves_the_current_directory_by_the_dots_that_it_begins_with() {
        let here = std::env::current_dir().unwrap();
        let above = here.parent().unwrap().to_owned();
        for (given, absolute) in [
            ("../policies", above.join("policies")),
            ("./.././policies", above.join("policies")),
            ("..", above.clone()),
            (".", here.clone()),
            ("policies", here.join("policies")),
            // A directory may be a link, and is on the way.
            ("in/../policies", here.join("in/../policies")),
            ("/in/../policies", PathBuf::from("/in/../policies")),
            ("/../policies", PathBuf::from("/../policies")),
        ] {
            assert_eq!(absolute_path(Path::new(given)).unwrap(), absolute, "{given}");
        }
        assert!(absolute_path(Path::new("")).is_err());
    }

    #[test]
    fn a_file_sets_what_it_names_and_leaves_the_rest() {
        let config = Config::parse(
            "c.toml",
            "listen = \"unix:/tmp/p.sock\"\nsocket_mode = \"0660\"\nfinished_kept = \"5m\"\n[quotas]\nlive_terminals_per_session = 3\n",
        )
        .unwrap();
        assert_eq!(config.listen, PathBuf::from("/tmp/p.sock"));
        assert_eq!(config.socket_mode, 0o660);
        assert_eq!(config.finished_kept, Duration::from_secs(300));
        assert_eq!(config.quotas.live_terminals_per_session, 3);
        assert_eq!(config.quotas.sessions_per_principal, Quotas::default().sessions_per_principal);
    }

    #[test]
    fn the_shipped_file_says_what_the_defaults_are() {
        let shipped = Config::parse("provost.toml", include_str!("../../deploy/provost.toml")).unwrap();
        let roots = Config {
            listen: "/run/provost/provost.sock".into(),
            state: "/var/lib/provost".into(),
            kept_caches: "/var/cache/provost".into(),
            ..Config::default()
        };
        assert_eq!(shipped, roots);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_with_their_place() {
        for (text, line) in [
            ("lisen = \"x\"\n", 1),
            ("\nlisten = \"tcp:1\"\n", 2),
            ("socket_mode = \"9\"\n", 1),
            ("drain = \"5\"\n", 1),
            ("[quotas]\nno_such = 1\n", 2),
        ] {
            let error = Config::parse("c.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("c.toml:{line}:")), "{error}");
        }
    }

    fn section(text: &str) -> Result<Option<MetricsAddress>, String> {
        let parsed = Config::parse("c.toml", &format!("[metrics]\n{text}\n"));
        parsed.map(|config| config.metrics).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_on_this_host_unless_the_file_says_that_more_is_meant() {
        assert_eq!(section("").unwrap(), None);
        for here in ["127.0.0.1:9464", "[::1]:0"] {
            let address = here.parse().unwrap();
            assert_eq!(section(&format!("listen = '{here}'")).unwrap(), Some(MetricsAddress::Tcp(address)));
        }
        let everywhere = "listen = '0.0.0.0:9464'";
        assert!(section(everywhere).unwrap_err().contains("metrics.beyond_loopback = true"));
        assert!(section(&format!("{everywhere}\nbeyond_loopback = true")).unwrap().is_some());
        let socket = MetricsAddress::Unix { path: "/run/m.sock".into(), mode: 0o600 };
        assert_eq!(section("listen = 'unix:/run/m.sock'").unwrap(), Some(socket));
        let shared = MetricsAddress::Unix { path: "/run/m.sock".into(), mode: 0o660 };
        assert_eq!(section("listen = 'unix:/run/m.sock'\nsocket_mode = '0660'").unwrap(), Some(shared));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_name() {
        for (text, problem) in [
            ("listen = 'localhost:9464'", "IP:PORT"),
            ("listen = '9464'", "IP:PORT"),
            ("listen = 'unix:m.sock'", "IP:PORT"),
            ("listen = '127.0.0.1:1'\nsocket_mode = '0600'", "metrics.socket_mode"),
            ("socket_mode = '0600'", "metrics.socket_mode"),
            ("beyond_loopback = true", "metrics.beyond_loopback"),
            ("address = '127.0.0.1:1'", "unknown field `address`"),
        ] {
            let error = section(text).unwrap_err();
            assert!(error.starts_with("c.toml:") && error.contains(problem), "{text}: {error}");
        }
    }
}
