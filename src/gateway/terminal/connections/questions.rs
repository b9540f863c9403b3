//! Questions about connections of commands that run, put to a person while the connection waits, and what persons have approved of
//! connections that are still open.
//!
//! Connections of one terminal to the same place that wait at the same time are one question. It ends with the answer, the expiry, another
//! policy, or the end of the last connection that waits for it. Each approved connection has a word, which its further questions say again.
//! A net process forgets the word with the connection. It holds for one place, in one sandbox, under one policy. Under another
//! policy it only shows that the connection was approved, so that it can stay open where a rule asks. For that the words of
//! earlier policies are kept and looked up: a net process keeps no connection open with a word of its own making.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared, join_all},
};
use sha2::Digest as _;
use ulid::Ulid;

use crate::{
    approval::{
        Answer, ApprovalLimitReached, ApprovalRequest, ApprovalStore, AskedConnection, AskedWithin,
        RequestMode, RequestedAction, Resolution,
    },
    journal::Record,
    network::{destination::Destination, socket_path::SocketPath},
    policy::{ActivePolicy, ApprovalQuestion, CommandSpec, Digest, connect::Approved},
    sandbox::net_link::Asker,
    session::{Session, SessionId},
    terminal::{
        recorder::{CountedOnly, Recorder},
        records,
        secrets::redactor::KnownSecrets,
        spec::{CommandForm, OnAsk},
        state::{PersonWait, Terminal},
    },
};

/// Connections of one session that wait for a person.
const WAITING_MAX: usize = 32;

/// Where a connection goes about which is asked.
#[derive(Debug)]
pub(in crate::terminal) struct AskedPlace {
    /// The name or address, or a socket of the host as `unix:PATH`.
    pub(in crate::terminal) host: String,
    /// Its port; 0: a socket has none.
    pub(in crate::terminal) port: u16,
    /// Both, as the rules read them.
    pub(in crate::terminal) text: String,
}

impl From<&Destination> for AskedPlace {
    fn from(destination: &Destination) -> Self {
        Self { host: destination.host.to_string(), port: destination.port, text: destination.to_string() }
    }
}

impl From<&SocketPath> for AskedPlace {
    fn from(path: &SocketPath) -> Self {
        Self { host: path.to_string(), port: 0, text: path.to_string() }
    }
}

/// What is asked about.
#[derive(Debug)]
pub(in crate::terminal) struct ConnectQuestion {
    /// The sandbox.
    pub(in crate::terminal) sandbox: String,
    /// The terminal that the connection belongs to, where that is known; else those that it may belong to.
    pub(in crate::terminal) terminals: Vec<Arc<Terminal>>,
    /// The name or address.
    pub(in crate::terminal) host: String,
    /// Its port.
    pub(in crate::terminal) port: u16,
    /// What the name leads to, where the rule is about that.
    pub(in crate::terminal) addresses: Vec<IpAddr>,
    /// The one HTTP request that the rule asks about; empty: it asks about the connection.
    pub(in crate::terminal) request: String,
    /// The rule that asks.
    pub(in crate::terminal) rule: String,
    /// Its own words.
    pub(in crate::terminal) reason: String,
    /// The policy's generation.
    pub(in crate::terminal) generation: u64,
    /// The record of the decision to ask.
    pub(in crate::terminal) record: Record,
}

/// What a person has said, or why none has. The text is for the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::terminal) enum Answered {
    Approved,
    Refused(String),
}

type SharedAnswer = Shared<BoxFuture<'static, Answered>>;
type WeakAnswer = WeakShared<BoxFuture<'static, Answered>>;

/// The questions that wait.
#[derive(Debug)]
pub(in crate::terminal) struct ConnectQuestions {
    parts: Arc<Parts>,
    waiting: Arc<Mutex<HashMap<SessionId, usize>>>,
    open: Mutex<HashMap<[u8; 32], WeakAnswer>>,
}

/// What putting a question takes.
#[derive(Debug)]
struct Parts {
    approvals: Arc<ApprovalStore>,
    recorder: Recorder,
    policy: Arc<ActivePolicy>,
    known_secrets: Arc<KnownSecrets>,
}

impl ConnectQuestions {
    /// None yet.
    pub(in crate::terminal) fn new(
        approvals: Arc<ApprovalStore>,
        recorder: Recorder,
        policy: Arc<ActivePolicy>,
        known_secrets: Arc<KnownSecrets>,
    ) -> Self {
        let parts = Arc::new(Parts { approvals, recorder, policy, known_secrets });
        Self { parts, waiting: Arc::default(), open: Mutex::default() }
    }

    /// Waits for a person's answer, while the program waits for its connection.
    pub(in crate::terminal) async fn ask(&self, question: ConnectQuestion, asker: &Asker) -> Answered {
        let terminals = question.terminals.clone();
        let Some(session) = terminals.first().map(|terminal| terminal.session.clone()) else {
            return Answered::Refused("a rule asks, and no command runs that could wait".to_owned());
        };
        if terminals.iter().any(|terminal| terminal.spec.on_ask == OnAsk::Refuse) {
            return Answered::Refused(format!(
                "{}: a person must approve it, and the command does not wait for one",
                question.reason
            ));
        }
        let Some(_place) = WaitingPlace::take(&self.waiting, session.id) else {
            return Answered::Refused(format!(
                "{WAITING_MAX} connections of this session wait for a person, the most that may"
            ));
        };
        asker.wait_for_person().await;
        let _not_idle: Vec<PersonWait> = terminals.iter().map(PersonWait::begin).collect();
        let answer = self.join(question, session);
        let over = join_all(terminals.iter().map(|terminal| terminal.wait_over()));
        tokio::select! {
            // An answer counts before the end of what waited for it.
            biased;
            answered = answer => answered,
            () = asker.withdrawn() => Answered::Refused("the program has not waited for the answer of a person".to_owned()),
            _ = over => Answered::Refused("the command has ended before a person has answered".to_owned()),
        }
    }

    /// The answer to the same question that waits already, or to this one.
    fn join(&self, question: ConnectQuestion, session: Arc<Session>) -> SharedAnswer {
        let key = digest(&question);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, answer| answer.upgrade().is_some());
        let waiting = open.get(&key).and_then(WeakShared::upgrade).filter(|answer| answer.peek().is_none());
        if let Some(waiting) = waiting {
            return waiting;
        }
        let answer = self.parts.clone().put(question, session, Digest::from_bytes(key)).boxed().shared();
        open.extend(answer.downgrade().map(|weak| (key, weak)));
        answer
    }
}

impl Parts {
    /// Writes the question down, puts it, and waits for its end. Dropped, it takes the question back.
    async fn put(
        self: Arc<Self>,
        question: ConnectQuestion,
        session: Arc<Session>,
        digest: Digest,
    ) -> Answered {
        if let Err(reached) = self.approvals.check_capacity(session.principal) {
            // What cannot be written is refused all the same.
            let _ = self.recorder.record_denial(&records::approval_limit_reached(&session, &reached)).await;
            return Answered::Refused(reached.to_string());
        }
        match self.recorder.record_denial(&question.record).await {
            Ok(Ok(_)) => {}
            // Nobody is asked about what is not in the journal.
            Ok(Err(CountedOnly)) => return Answered::Refused("too many questions were asked".to_owned()),
            Err(_) => return Answered::Refused("the journal cannot be written".to_owned()),
        }
        let request = ApprovalRequest::new(self.action(question, &session, digest), RequestMode::Waiting);
        let id = request.id;
        let record = records::approval_requested(&request, self.approvals.expiry());
        if self.recorder.record(&record).await.is_err() {
            return Answered::Refused("the journal cannot be written".to_owned());
        }
        let waiting = match self.approvals.submit(request) {
            Ok(waiting) => waiting,
            Err(reached) => {
                let reached: ApprovalLimitReached = reached;
                // Another one was put while this was written: it was never put, and that is written, too.
                self.recorder.record_best_effort(&records::approval_limit_reached(&session, &reached));
                self.recorder.record_best_effort(&records::approval_not_submitted(&session, id));
                return Answered::Refused(reached.to_string());
            }
        };
        // A policy may have come into force meanwhile.
        self.approvals.supersede(self.policy.current().generation());
        match waiting.end().await {
            Resolution::Approved(_) => Answered::Approved,
            Resolution::Denied(answer) => Answered::Refused(denied_by(&answer)),
            Resolution::Expired => Answered::Refused("nobody approved it in time".to_owned()),
            Resolution::Superseded => {
                Answered::Refused("the policy was replaced while it waited for a person".to_owned())
            }
            Resolution::Withdrawn => Answered::Refused("the question was taken back".to_owned()),
        }
    }

    /// What a person is shown.
    fn action(&self, question: ConnectQuestion, session: &Session, digest: Digest) -> RequestedAction {
        let redactor = self.known_secrets.redactor(&self.policy.current());
        // Where there are several, nobody knows which one it is.
        let known = if let [terminal] = &question.terminals[..] { Some(terminal) } else { None };
        let program = known.map_or(CommandSpec::ShellLine(String::new()), |terminal| {
            let command = redactor.redact_text(&terminal.spec.command);
            match terminal.spec.form {
                CommandForm::ShellLine => CommandSpec::ShellLine(command),
                CommandForm::Program => {
                    let args = terminal.spec.args.iter().map(|argument| redactor.redact_text(argument));
                    CommandSpec::Argv { command, args: args.collect() }
                }
            }
        });
        let at: String = question.addresses.iter().map(|address| format!(" at {address}")).collect();
        let port = if question.port == 0 { String::new() } else { format!(":{}", question.port) };
        let what = match question.request.as_str() {
            "" => "connection to".to_owned(),
            request => format!("{request} at"),
        };
        let command = redactor.redact_text(&format!("{what} {}{port}{at}", question.host));
        RequestedAction {
            principal: session.principal,
            session: session.id,
            question: ApprovalQuestion {
                rule: question.rule,
                command,
                reason: Some(question.reason).filter(|reason| !reason.is_empty()),
                others: Vec::new(),
                digest,
                generation: question.generation,
            },
            program,
            cwd: known.map(|terminal| redactor.redact_text(&terminal.spec.cwd)).unwrap_or_default(),
            profile: question
                .terminals
                .first()
                .map(|terminal| terminal.spec.profile.to_string())
                .unwrap_or_default(),
            env_names: Vec::new(),
            request_id: None,
            within: Some(AskedWithin::Connection(AskedConnection {
                terminal: known.map(|terminal| terminal.id.to_string()),
                host: redactor.redact_text(&question.host),
                port: question.port,
                addresses: question.addresses,
            })),
        }
    }
}

fn denied_by(answer: &Answer) -> String {
    let comment = if answer.comment.is_empty() { String::new() } else { format!(": {}", answer.comment) };
    format!("{} has denied it{comment}", answer.approver)
}

/// The digest of what the answer is for.
fn digest(question: &ConnectQuestion) -> [u8; 32] {
    let mut hash = sha2::Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(&question.sandbox);
    add(&question.terminals.len().to_string());
    question.terminals.iter().for_each(|terminal| add(&terminal.id.to_string()));
    add(&question.host);
    add(&question.port.to_string());
    question.addresses.iter().for_each(|address| add(&address.to_string()));
    add(&question.request);
    add(&question.rule);
    add(&question.generation.to_string());
    hash.finalize().into()
}

/// One of the places for connections that wait.
struct WaitingPlace {
    waiting: Arc<Mutex<HashMap<SessionId, usize>>>,
    session: SessionId,
}

impl WaitingPlace {
    fn take(waiting: &Arc<Mutex<HashMap<SessionId, usize>>>, session: SessionId) -> Option<Self> {
        let mut all = lock(waiting);
        let count = all.entry(session).or_default();
        if *count >= WAITING_MAX {
            return None;
        }
        *count += 1;
        drop(all);
        Some(Self { waiting: waiting.clone(), session })
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut all = lock(&self.waiting);
        let left = all.get(&self.session).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(all.remove(&self.session)),
            left => drop(all.insert(self.session, left)),
        }
    }
}

fn lock(waiting: &Mutex<HashMap<SessionId, usize>>) -> MutexGuard<'_, HashMap<SessionId, usize>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Words that are known. The oldest goes: who says it then is asked about again.
const GRANTS_MAX: usize = 4_096;

/// What was approved. Only a word that was given for it leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::terminal) struct ConnectGrant {
    /// The sandbox.
    pub(in crate::terminal) sandbox: String,
    /// The name or address, as the rules read it, with its port.
    pub(in crate::terminal) destination: String,
    /// The policy's generation.
    pub(in crate::terminal) generation: u64,
    /// The addresses that were approved; none: the name was.
    pub(in crate::terminal) addresses: Vec<IpAddr>,
}

impl ConnectGrant {
    /// What it allows under a policy: nothing under another one than its own.
    pub(in crate::terminal) fn approved_under(&self, generation: u64) -> Approved<'_> {
        match (self.generation == generation, self.addresses.as_slice()) {
            (false, _) => Approved::Nothing,
            (true, []) => Approved::Name,
            (true, addresses) => Approved::Addresses(addresses),
        }
    }
}

/// The words that are known.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ConnectGrants(Mutex<Grants>);

/// In the order in which they were given.
#[derive(Debug, Default)]
struct Grants {
    by_number: BTreeMap<u64, (Ulid, ConnectGrant)>,
    last_number: u64,
}

impl ConnectGrants {
    /// The word for what was approved.
    pub(in crate::terminal) fn give(&self, grant: ConnectGrant) -> String {
        let mut grants = self.lock();
        while grants.by_number.len() >= GRANTS_MAX {
            grants.by_number.pop_first();
        }
        grants.last_number += 1;
        let (number, secret) = (grants.last_number, Ulid::generate());
        grants.by_number.insert(number, (secret, grant));
        format!("{number}.{secret}")
    }

    /// What was approved with this word, under whichever policy; `None`: nothing of this place in this sandbox was.
    pub(in crate::terminal) fn find(
        &self,
        word: &str,
        (sandbox, destination): (&str, &str),
    ) -> Option<ConnectGrant> {
        let (number, secret) = word.split_once('.')?;
        let grants = self.lock();
        let (own_secret, grant) = grants.by_number.get(&number.parse().ok()?)?;
        if Ulid::from_string(secret).ok()? != *own_secret {
            return None;
        }
        let is_for_this = (grant.sandbox.as_str(), grant.destination.as_str()) == (sandbox, destination);
        is_for_this.then(|| grant.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Grants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(destination: &str, generation: u64) -> ConnectGrant {
        ConnectGrant {
            sandbox: "s".to_owned(),
            destination: destination.to_owned(),
            generation,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn a_word_holds_for_one_place_in_one_sandbox_under_one_policy() {
        let grants = ConnectGrants::default();
        let word = grants.give(grant("a.test:443", 1));
        let found = grants.find(&word, ("s", "a.test:443")).expect("it was given");
        assert_eq!(found.approved_under(1), Approved::Name);
        assert_eq!(found.approved_under(2), Approved::Nothing, "another policy is in force");
        for other in [("t", "a.test:443"), ("s", "a.test:80"), ("s", "b.test:443")] {
            assert_eq!(grants.find(&word, other), None, "{other:?}");
        }
        let other_secret = format!("1.{}", Ulid::generate());
        for never_given in ["", "yes", "1", "1.", "2.x", &other_secret] {
            assert_eq!(grants.find(never_given, ("s", "a.test:443")), None, "{never_given:?}");
        }
        grants.give(grant("a.test:443", 2));
        assert_eq!(grants.find(&word, ("s", "a.test:443")), Some(found), "it was approved all the same");
    }

    #[test]
    fn the_oldest_words_go_when_there_are_too_many() {
        let grants = ConnectGrants::default();
        let first = grants.give(grant("a.test:443", 1));
        for _ in 1..GRANTS_MAX {
            grants.give(grant("b.test:443", 1));
        }
        assert!(grants.find(&first, ("s", "a.test:443")).is_some(), "there is room for as many");
        let last = grants.give(grant("b.test:443", 1));
        assert_eq!(grants.find(&first, ("s", "a.test:443")), None);
        assert!(grants.find(&last, ("s", "b.test:443")).is_some());
    }
}
