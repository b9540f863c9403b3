//! What a terminal has from its command's start on, and the receipt made of it: the confinement that was in force for the command, as
//! the kernel showed it.
//!
//! Asks nothing, except that the gateway's own namespaces are read once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    masking::{MaskError, Masker},
    policy::{AbsPath, profile::Network},
    proto::{
        supervisor::Started,
        v1::{self, PtyReceipt, Receipt},
    },
    sandbox::control::{gate::SandboxGate, handle::Sandbox},
    session::Session,
    sys::ring,
    terminal::spec::{TerminalId, TerminalSpec},
};

/// The most values that a running command's output is masked by.
const VALUES_MAX: usize = 256;

/// What is there once the command runs.
#[derive(Debug)]
pub(crate) struct Live {
    /// As the supervisor saw it.
    pub started: Started,
    /// The ring of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// The ring of stderr, when it is kept apart.
    pub stderr: Option<ring::RingReader>,
    /// Where it runs.
    pub sandbox: Arc<Sandbox>,
    /// Takes its secrets out of what leaves the gateway.
    pub masker: LiveMasker,
}

/// What masks the output of a command. Secrets that its requests are given may change while it runs: their values are added, and none is
/// taken away.
#[derive(Debug)]
pub(crate) struct LiveMasker(Mutex<Masker>);

/// Why a value is not masked in a command's output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveMaskError {
    /// There are too many.
    #[error("its output is masked by {VALUES_MAX} values already")]
    TooMany,
    /// It cannot be masked.
    #[error(transparent)]
    Mask(#[from] MaskError),
}

impl LiveMasker {
    /// Masks what it is known to have when it begins.
    pub(crate) fn new(masker: Masker) -> Self {
        Self(Mutex::new(masker))
    }

    /// What is masked now.
    pub(crate) fn current(&self) -> Masker {
        self.lock().clone()
    }

    /// Whether anything is.
    pub(crate) fn masks_any(&self) -> bool {
        self.lock().count() > 0
    }

    /// Masks this value from now on, which the output cannot have yet.
    ///
    /// # Errors
    /// [`LiveMaskError`].
    pub(crate) fn add(&self, value: &[u8]) -> Result<(), LiveMaskError> {
        let mut masker = self.lock();
        if masker.has(value) {
            return Ok(());
        }
        if masker.count() >= VALUES_MAX {
            return Err(LiveMaskError::TooMany);
        }
        *masker = masker.with(value)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Masker> {
        // Every change of it is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From this landlock ABI on, abstract sockets outside of the sandbox are out of reach: landlock(7), scopes.
const ABI_WITH_SCOPES: u32 = 6;

/// The receipt of a terminal that was started; `survivors` once it has ended.
pub(in crate::terminal) fn receipt(
    id: TerminalId,
    spec: &TerminalSpec,
    session: &Session,
    live: &Live,
    survivors: Option<u32>,
) -> Receipt {
    let sandbox = &live.sandbox;
    let status = ProcStatus::parse(&live.started.status);
    let confinement = sandbox.effective_confinement();
    let identity = sandbox.identity();
    let unset = live.started.unset_limits.iter().map(|limit| format!("{limit} could not be set"));
    let shortfalls = sandbox.shortfalls().iter().map(|one| format!("{}: {}", one.protection, one.reason));
    Receipt {
        terminal_id: id.to_string(),
        sandbox_id: sandbox.id().to_owned(),
        profile: spec.profile.to_string(),
        namespaces: confinement
            .map(|confinement| own_namespaces(&confinement.namespaces))
            .unwrap_or_default(),
        host_uid: identity.command_host_uid,
        host_gid: identity.command_host_gid,
        uid: identity.command_uid,
        gid: identity.command_gid,
        no_new_privs: status.number("NoNewPrivs") == Some(1),
        capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
            .into_iter()
            .filter_map(|name| status.text(name).map(|mask| (name.to_owned(), mask.to_owned())))
            .collect(),
        seccomp_mode: status.number("Seccomp").unwrap_or_default(),
        seccomp_filters: status.number("Seccomp_filters").unwrap_or_default(),
        landlock_abi: confinement.map(|confinement| confinement.landlock_abi).unwrap_or_default(),
        network: network(spec.network).into(),
        network_exposure: reachable(
            spec.network,
            confinement.map_or(0, |confinement| confinement.landlock_abi),
        ),
        limits: live.started.limits.clone(),
        cgroup: confinement.map(|confinement| confinement.cgroup.clone()).unwrap_or_default(),
        shortfalls: shortfalls.chain(unset).collect(),
        survivors,
        gate: match sandbox.gate() {
            SandboxGate::None => "none".to_owned(),
            SandboxGate::Linked(_) | SandboxGate::Lost => "verified".to_owned(),
        },
        pty: live.started.pty.map(|size| PtyReceipt { columns: size.columns, rows: size.rows }),
        roots: session.writable_roots().map(AbsPath::shown).collect(),
        read_only_roots: session.read_only_roots().map(AbsPath::shown).collect(),
        repository: session.repository.to_report(),
        kept_caches: sandbox.kept_caches().to_vec(),
        covered: sandbox.covered().to_vec(),
    }
}

/// The network with this name, as the API has it.
pub(in crate::terminal) fn network(name: &str) -> v1::Network {
    match name {
        name if name == Network::None.name() => v1::Network::None,
        name if name == Network::Host.name() => v1::Network::Host,
        name if name == Network::Proxy.name() => v1::Network::Proxy,
        _ => v1::Network::Unspecified,
    }
}

/// What a command on the host's network reaches there in addition to its way out.
fn reachable(network: &str, landlock_abi: u32) -> Vec<String> {
    if network != Network::Host.name() {
        return Vec::new();
    }
    let mut reachable = vec!["services on the host's loopback", "metadata addresses of the host's cloud"];
    if landlock_abi < ABI_WITH_SCOPES {
        reachable.push("the host's abstract sockets");
    }
    reachable.into_iter().map(str::to_owned).collect()
}

/// /proc/PID/status, as proc_pid_status(5) describes it.
struct ProcStatus<'a>(HashMap<&'a str, &'a str>);

impl<'a> ProcStatus<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        Self(text.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k, v.trim())).collect())
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }
}

/// The names of the namespaces that are not the gateway's, sorted.
fn own_namespaces(of_sandbox: &HashMap<String, u64>) -> Vec<String> {
    static OF_GATEWAY: OnceLock<HashMap<String, u64>> = OnceLock::new();
    let of_gateway = OF_GATEWAY.get_or_init(read_namespaces);
    let mut own: Vec<String> = of_sandbox
        .iter()
        .filter(|(name, inode)| of_gateway.get(*name).is_some_and(|ours| ours != *inode))
        .map(|(name, _)| name.clone())
        .collect();
    own.sort();
    own
}

fn read_namespaces() -> HashMap<String, u64> {
    use std::os::unix::fs::MetadataExt;
    ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net", "time"]
        .into_iter()
        .filter_map(|name| {
            let metadata = std::fs::metadata(format!("/proc/self/ns/{name}")).ok()?;
            Some((name.to_owned(), metadata.ino()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_comes_later_is_masked_with_those_before_and_there_are_not_too_many() {
        let masker = LiveMasker::new(Masker::NONE);
        assert!(!masker.masks_any());
        masker.add(b"first-value").unwrap();
        masker.add(b"second-value").unwrap();
        masker.add(b"first-value").unwrap();
        assert_eq!(masker.current().mask_text("first-value second-value"), "*** ***");
        assert!(matches!(masker.add(b"abc"), Err(LiveMaskError::Mask(_))));
        for number in 2..VALUES_MAX {
            masker.add(format!("value-{number}").as_bytes()).unwrap();
        }
        assert!(matches!(masker.add(b"one-more"), Err(LiveMaskError::TooMany)));
        masker.add(b"second-value").unwrap();
    }

    #[test]
    fn the_hosts_network_says_what_it_reaches() {
        assert_eq!(reachable("none", 0), [""; 0]);
        assert_eq!(reachable("host", 7).len(), 2);
        assert_eq!(reachable("host", 5).len(), 3);
    }

    #[test]
    fn the_status_is_read_by_name() {
        let status = ProcStatus::parse(b"Name:\tcat\nNoNewPrivs:\t1\nCapEff:\t0000000000000000\n");
        assert_eq!(status.number("NoNewPrivs"), Some(1));
        assert_eq!(status.text("CapEff"), Some("0000000000000000"));
        assert_eq!(status.number("Seccomp"), None);
    }
}
