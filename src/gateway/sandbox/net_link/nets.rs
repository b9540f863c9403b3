//! What all net processes of a gateway share: the observer that decides, and the files by which names are found.

use std::{
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Authorities, TrustedRoots};
use crate::{
    policy::connect::ConnectingProgram,
    pool::Pool,
    proto::net::{self, Ended, HostEntry, Question, Waiting, verdict::Verdict},
    sandbox::{sandbox_state::SandboxState, spec::SandboxSpec},
};

/// The most of a file of names that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most entries of a table of hosts.
const MAX_HOSTS: usize = 10_000;

/// Whose connections a net process carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetOwner {
    /// The sandbox.
    pub sandbox_id: String,
    /// Its session.
    pub session_id: String,
    /// The user id of the session's principal.
    pub uid: u32,
    /// The profile of its terminals.
    pub profile: String,
}

impl NetOwner {
    /// Describes the network of a sandbox that is to be launched.
    pub(crate) fn of(spec: &SandboxSpec) -> Self {
        Self {
            sandbox_id: spec.id.clone(),
            session_id: spec.assignment.session_id.clone(),
            uid: spec.principal_uid,
            profile: spec.profile_name.clone(),
        }
    }

    /// Describes the network of a sandbox that another gateway has launched for this user.
    pub(crate) fn of_adopted(state: &SandboxState, uid: u32) -> Self {
        Self {
            sandbox_id: state.id.clone(),
            session_id: state.assignment.session_id.clone(),
            uid,
            profile: state.profile.to_string(),
        }
    }
}

/// The programs of a connection, when they have been looked for. It goes on when nobody waits.
pub(crate) type ProgramLook = Shared<BoxFuture<'static, ConnectingProgram>>;

/// Who has made a connection, as far as that is known.
#[derive(Debug)]
pub(crate) struct ConnectionOrigin {
    /// The terminal that the program belongs to.
    pub terminal: Option<String>,
    /// The program. Who decides nothing by it need not wait.
    pub program: ProgramLook,
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) struct Judged {
    /// What is decided.
    pub verdict: Verdict,
    /// With `Dial.is_connected`: the connection.
    pub connection: Option<OwnedFd>,
}

impl From<Verdict> for Judged {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, connection: None }
    }
}

/// A verdict, and the sockets that go with it.
pub(super) type Answer = (net::Verdict, Vec<Arc<OwnedFd>>);

/// The net process at the other end of one question: it can be told to wait, and can take its question back.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(super) number: u64,
    pub(super) answers: mpsc::Sender<Answer>,
    pub(super) withdrawn: CancellationToken,
}

impl Asker {
    /// Says that the verdict takes the time that a person takes.
    pub(crate) async fn wait_for_person(&self) {
        let waiting = net::Verdict { number: self.number, verdict: Some(Verdict::Waiting(Waiting {})) };
        // A process that is gone has taken its question back.
        let _ = self.answers.send((waiting, Vec::new())).await;
    }

    /// Resolves when the question is not asked any more: the program has gone. The end of the process drops who awaits this.
    pub(crate) async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }
}

/// Decides about connections, and writes them down.
pub(crate) trait ConnectionObserver: Send + Sync + fmt::Debug {
    /// Answers a question. An `asker` who takes its question back while a person is asked gets any answer.
    fn judge<'a>(
        &'a self,
        owner: &'a NetOwner,
        question: Question,
        origin: ConnectionOrigin,
        asker: &'a Asker,
    ) -> BoxFuture<'a, Judged>;

    /// The generation of the policy in force, if open connections are judged again when it changes: [`ConnectionObserver::judge`] is then
    /// asked about each.
    fn judges_open(&self, owner: &NetOwner) -> Option<u64>;

    /// A connection that was allowed has ended. Must not wait.
    fn ended(&self, owner: &NetOwner, ended: Ended, terminal: Option<String>);
}

/// The files by which names are found, as the host's own programs do: hosts(5) and resolv.conf(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameFiles {
    /// Names that no server is asked for.
    pub hosts: PathBuf,
    /// The servers.
    pub resolv_conf: PathBuf,
    /// By which the certificates of servers are verified.
    pub trusted_roots: TrustedRoots,
}

impl Default for NameFiles {
    fn default() -> Self {
        Self {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            trusted_roots: TrustedRoots::of_host(),
        }
    }
}

/// Looks for the programs of connections: one of each user at a time, and so many of all beyond that.
const LOOKS_PER_USER: usize = 1;
const SHARED_LOOKS: usize = 1;

/// The net processes of a gateway.
#[derive(Debug)]
pub(crate) struct Nets {
    files: NameFiles,
    authorities: Arc<Authorities>,
    observer: OnceLock<Arc<dyn ConnectionObserver>>,
    policies: watch::Sender<()>,
    looks: Arc<Pool>,
}

impl Nets {
    /// None yet. Keys lie in this state directory.
    pub(crate) fn new(files: NameFiles, state: &Path) -> Arc<Self> {
        let authorities = Arc::new(Authorities::new(state, files.trusted_roots.clone()));
        let looks = Arc::new(Pool::new(LOOKS_PER_USER, SHARED_LOOKS));
        Arc::new(Self {
            files,
            authorities,
            observer: OnceLock::new(),
            policies: watch::Sender::new(()),
            looks,
        })
    }

    /// Where it is looked which programs have a connection. A user whose processes have many descriptors takes a thread and no more, and
    /// no other user waits for that.
    pub(crate) fn looks(&self) -> &Arc<Pool> {
        &self.looks
    }

    /// By what TLS of the sandboxes is opened.
    pub(crate) fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// Sets the observer, before any sandbox is started.
    ///
    /// # Panics
    /// When there is one already.
    pub(crate) fn set_observer(&self, observer: Arc<dyn ConnectionObserver>) {
        self.observer
            .set(observer)
            .expect("the observer of connections is set once, by the terminals' context");
    }

    /// Another policy is in force.
    pub(crate) fn policy_replaced(&self) {
        self.policies.send_replace(());
    }

    pub(super) fn policies(&self) -> watch::Receiver<()> {
        self.policies.subscribe()
    }

    pub(super) fn observer(&self) -> Option<Arc<dyn ConnectionObserver>> {
        self.observer.get().cloned()
    }

    /// The table of hosts, as it is now. A file that cannot be read has no entries.
    pub(super) fn hosts(&self) -> Vec<HostEntry> {
        let text = read(&self.files.hosts);
        let entries = text.lines().flat_map(|line| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let address = words.next().unwrap_or_default().to_owned();
            words.map(move |name| HostEntry { name: name.to_owned(), address: address.clone() })
        });
        entries.take(MAX_HOSTS).collect()
    }

    /// The certificates (DER) by which servers are verified, as they are now.
    pub(super) fn trusted_roots(&self) -> Vec<Vec<u8>> {
        self.files.trusted_roots.certificates()
    }

    /// The servers of names, as they are now.
    pub(super) fn nameservers(&self) -> Vec<String> {
        let text = read(&self.files.resolv_conf);
        let server = |line: &str| {
            let mut words = line.split_whitespace();
            (words.next() == Some("nameserver")).then(|| words.next().map(str::to_owned)).flatten()
        };
        text.lines().filter_map(server).collect()
    }
}

fn read(path: &Path) -> String {
    crate::sys::text_file::read_text(path, MAX_FILE_BYTES).unwrap_or_else(|error| {
        tracing::warn!(path = %crate::printable::path(path), %error, "a file of names cannot be read");
        String::new()
    })
}
