//! The approvals service.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    time::SystemTime,
};

use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{
    caller, deadline,
    errors::{self, ResourceKind},
    pagination, request, response,
    response::shown,
};
use crate::{
    approval::{
        Answer, Approval, ApprovalId, ApprovalStatus, ApprovalStore, ApproverDecision, AskedConnection,
        AskedExec, AskedWithin, RequestMode,
    },
    policy::{self, CommandSpec},
    proto::v1::{
        Approval as ApprovalWord, ApprovalAnswer, ApprovalConnection, ApprovalDecision, ApprovalExec,
        ApprovalState, AskedCommand, ListApprovalsRequest, ListApprovalsResponse, ResolveApprovalRequest,
        ResolveApprovalResponse, WatchApprovalsRequest, WatchApprovalsResponse, approval,
        approvals_server::Approvals as Service,
    },
    session::{Principal, Session, SessionId, Sessions},
    terminal::{Terminals, outcome::timestamp},
};

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalsService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals, and the questions about those to be.
    pub terminals: Arc<Terminals>,
}

impl ApprovalsService {
    fn store(&self) -> &Arc<ApprovalStore> {
        self.terminals.approvals()
    }

    /// The session of that id, where the caller may see its questions.
    fn find_session(&self, caller: Principal, id: &str) -> Result<Option<Arc<Session>>, Status> {
        if id.is_empty() {
            return Ok(None);
        }
        let own = self.sessions.find(caller, id);
        let found = own.or_else(|| {
            let id = SessionId::parse(id).filter(|_| self.store().sees_all(caller))?;
            self.sessions.all().into_iter().find(|session| session.id == id)
        });
        found.map(Some).ok_or_else(|| errors::not_found(ResourceKind::Session))
    }
}

#[tonic::async_trait]
impl Service for ApprovalsService {
    type WatchApprovalsStream = Pin<Box<dyn Stream<Item = Result<WatchApprovalsResponse, Status>> + Send>>;

    async fn list_approvals(
        &self,
        request: Request<ListApprovalsRequest>,
    ) -> Result<Response<ListApprovalsResponse>, Status> {
        let caller = caller(&request)?.principal;
        let ListApprovalsRequest { session_id, pending_only, page_size, page_token } = request.get_ref();
        let page =
            pagination::parse_page(*page_size, page_token, ApprovalId::parse).map_err(errors::bad_field)?;
        let session = self.find_session(caller, session_id)?.map(|session| session.id);
        let mut approvals = self.store().list(caller, session);
        approvals.retain(|approval| {
            (!pending_only || approval.state == ApprovalStatus::Pending)
                && page.after.is_none_or(|after| approval.id() > after)
        });
        let (approvals, next_page_token) =
            page.fill(approvals, approval_message, |approval| approval.id().to_string());
        Ok(Response::new(ListApprovalsResponse { approvals, next_page_token }))
    }

    async fn watch_approvals(
        &self,
        request: Request<WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let caller = caller(&request)?.principal;
        let session = self.find_session(caller, &request.get_ref().session_id)?;
        let changes = self.store().changes();
        let mut watch = ApprovalWatch {
            store: self.store().clone(),
            caller,
            session,
            changes,
            snapshot: VecDeque::new(),
            shown: HashMap::new(),
        };
        watch.load_snapshot();
        let stream = unfold(watch, |mut watch| async move {
            let approval = watch.next().await?;
            let response = WatchApprovalsResponse { approval: Some(approval_message(&approval)) };
            Some((Ok(response), watch))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn resolve_approval(
        &self,
        request: Request<ResolveApprovalRequest>,
    ) -> Result<Response<ResolveApprovalResponse>, Status> {
        let caller = caller(&request)?.principal;
        let limit = deadline::timeout_of(request.metadata());
        let resolution = request::approval_answer(request.into_inner()).map_err(errors::bad_field)?;
        let id = resolution.id.ok_or_else(|| errors::not_found(ResourceKind::Approval))?;
        let answer = Answer {
            decision: resolution.decision,
            approver: caller,
            on_behalf_of: resolution.on_behalf_of,
            comment: resolution.comment,
            at: SystemTime::now(),
        };
        let resolved = deadline::within(limit, self.terminals.resolve(id, answer)).await?;
        let approval = resolved.map_err(|error| errors::resolve_approval(&error))?;
        Ok(Response::new(ResolveApprovalResponse { approval: Some(approval_message(&approval)) }))
    }
}

/// What is open, then every change.
struct ApprovalWatch {
    store: Arc<ApprovalStore>,
    caller: Principal,
    session: Option<Arc<Session>>,
    changes: Receiver<Approval>,
    snapshot: VecDeque<Approval>,
    /// The states of the snapshot, until a later one comes. Changes that came in before the snapshot was taken are in it.
    shown: HashMap<ApprovalId, ApprovalStatus>,
}

impl ApprovalWatch {
    fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    fn load_snapshot(&mut self) {
        let open = |approval: &Approval| {
            matches!(approval.state, ApprovalStatus::Pending | ApprovalStatus::Approved)
        };
        let list = self.store.list(self.caller, self.session_id());
        self.snapshot = list.into_iter().filter(open).collect();
        self.shown = self.snapshot.iter().map(|approval| (approval.id(), approval.state)).collect();
    }

    /// Whether the snapshot has shown this state or a later one. Only open approvals are in a snapshot: pending, then approved.
    fn was_shown(&mut self, approval: &Approval) -> bool {
        match self.shown.get(&approval.id()) {
            Some(state) if approval.state == *state || approval.state == ApprovalStatus::Pending => true,
            Some(_) => {
                self.shown.remove(&approval.id());
                false
            }
            None => false,
        }
    }

    async fn next(&mut self) -> Option<Approval> {
        loop {
            if let Some(approval) = self.snapshot.pop_front() {
                return Some(approval);
            }
            tokio::select! {
                // What became of the questions is told before the end that made it so.
                biased;
                change = self.changes.recv() => match change {
                    Ok(approval) if self.store.is_visible_in(&approval, self.caller, self.session_id()) => {
                        if !self.was_shown(&approval) {
                            return Some(approval);
                        }
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => self.load_snapshot(),
                    Err(RecvError::Closed) => return None,
                },
                () = response::closed(self.session.as_deref()) => return None,
            }
        }
    }
}

/// An approval, at this moment.
fn approval_message(approval: &Approval) -> ApprovalWord {
    let asked = &approval.request;
    let request = &asked.action;
    let (command, args) = match &request.program {
        CommandSpec::Argv { command, args } => (
            approval::Command::Program(shown(command)),
            args.iter().map(|argument| shown(argument)).collect(),
        ),
        CommandSpec::ShellLine(line) => (approval::Command::ShellLine(shown(line)), Vec::new()),
    };
    let (exec, connection) = match &request.within {
        Some(AskedWithin::Exec(exec)) => (Some(exec_message(exec)), None),
        Some(AskedWithin::Connection(connection)) => (None, Some(connection_message(connection))),
        None => (None, None),
    };
    ApprovalWord {
        id: approval.id().to_string(),
        state: state_message(approval.state).into(),
        session_id: request.session.to_string(),
        principal: request.principal.to_string(),
        matched_command: shown(&request.question.command),
        command: Some(command),
        args,
        cwd: shown(&request.cwd),
        profile: request.profile.clone(),
        env_names: request.env_names.clone(),
        rule: request.question.rule.clone(),
        reason: request.question.reason.clone().unwrap_or_default(),
        request_digest: request.question.digest.to_string(),
        generation: request.question.generation,
        created_at: Some(timestamp(asked.at)),
        expires_at: Some(timestamp(approval.expires_at)),
        has_waiting_call: asked.mode == RequestMode::Waiting,
        request_id: request.request_id.clone().unwrap_or_default(),
        answer: approval.answer.as_deref().map(answer_message),
        exec,
        connection,
        others: request.question.others.iter().map(asked_message).collect(),
    }
}

fn asked_message(asked: &policy::AskedCommand) -> AskedCommand {
    AskedCommand {
        command: shown(&asked.command),
        rule: asked.rule.clone(),
        reason: asked.reason.clone().unwrap_or_default(),
    }
}

fn exec_message(exec: &AskedExec) -> ApprovalExec {
    ApprovalExec {
        terminal_id: exec.terminal.clone(),
        file: exec.file.clone(),
        interpreters: exec.interpreters.clone(),
        args_omitted: exec.args_omitted,
    }
}

fn connection_message(connection: &AskedConnection) -> ApprovalConnection {
    ApprovalConnection {
        terminal_id: connection.terminal.clone().unwrap_or_default(),
        host: connection.host.clone(),
        port: connection.port.into(),
        addresses: connection.addresses.iter().map(ToString::to_string).collect(),
    }
}

fn answer_message(answer: &Answer) -> ApprovalAnswer {
    ApprovalAnswer {
        decision: match answer.decision {
            ApproverDecision::Approve => ApprovalDecision::Approve,
            ApproverDecision::Deny => ApprovalDecision::Deny,
        }
        .into(),
        approver: answer.approver.to_string(),
        on_behalf_of: answer.on_behalf_of.clone(),
        comment: answer.comment.clone(),
        answered_at: Some(timestamp(answer.at)),
    }
}

fn state_message(state: ApprovalStatus) -> ApprovalState {
    match state {
        ApprovalStatus::Pending => ApprovalState::Pending,
        ApprovalStatus::Approved => ApprovalState::Approved,
        ApprovalStatus::Used => ApprovalState::Used,
        ApprovalStatus::Denied => ApprovalState::Denied,
        ApprovalStatus::Expired => ApprovalState::Expired,
        ApprovalStatus::Withdrawn => ApprovalState::Withdrawn,
        ApprovalStatus::Superseded => ApprovalState::Superseded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        approval::{ApprovalConfig, ApprovalObserver, ApprovalRequest, RequestedAction},
        policy::{ApprovalQuestion, Digest},
    };

    const CALLER: Principal = Principal { uid: 1_000 };

    fn asked(store: &ApprovalStore) -> ApprovalId {
        let question = ApprovalQuestion {
            rule: "careful".into(),
            command: "touch".into(),
            reason: None,
            others: Vec::new(),
            digest: Digest::from_bytes([1; 32]),
            generation: 1,
        };
        let action = RequestedAction {
            principal: CALLER,
            session: SessionId::generate(),
            question,
            program: CommandSpec::Argv { command: "touch".into(), args: vec![] },
            cwd: "/work".into(),
            profile: "a".into(),
            env_names: vec![],
            request_id: None,
            within: None,
        };
        store.submit_deferred(ApprovalRequest::new(action, RequestMode::Deferred)).unwrap().id()
    }

    fn approve(store: &ApprovalStore, id: ApprovalId) {
        let (decision, at) = (ApproverDecision::Approve, SystemTime::now());
        let answer =
            Answer { decision, approver: CALLER, on_behalf_of: String::new(), comment: String::new(), at };
        store.resolve(id, answer).unwrap();
    }

    async fn next(watch: &mut ApprovalWatch) -> (ApprovalId, ApprovalStatus) {
        let watched = tokio::time::timeout(std::time::Duration::from_secs(20), watch.next()).await;
        let approval = watched.expect("a change is reported").expect("the watch goes on");
        (approval.id(), approval.state)
    }

    #[tokio::test]
    async fn a_state_that_the_snapshot_has_shown_is_not_told_again_and_each_later_one_is() {
        let store = ApprovalStore::new(ApprovalConfig::default(), 0, ApprovalObserver(Box::new(|_| {})));
        let mut watch = ApprovalWatch {
            store: store.clone(),
            caller: CALLER,
            session: None,
            changes: store.changes(),
            snapshot: VecDeque::new(),
            shown: HashMap::new(),
        };
        // These changes come in before the snapshot is taken, and are in it.
        let (approved, pending) = (asked(&store), asked(&store));
        approve(&store, approved);
        watch.load_snapshot();
        let mut shown = [next(&mut watch).await, next(&mut watch).await];
        shown.sort_by_key(|(_, state)| *state == ApprovalStatus::Approved);
        assert_eq!(shown, [(pending, ApprovalStatus::Pending), (approved, ApprovalStatus::Approved)]);

        approve(&store, pending);
        assert_eq!(next(&mut watch).await, (pending, ApprovalStatus::Approved));
        store.supersede(2);
        let mut ended = [next(&mut watch).await, next(&mut watch).await];
        ended.sort_by_key(|(id, _)| *id == approved);
        assert_eq!(ended, [(pending, ApprovalStatus::Superseded), (approved, ApprovalStatus::Superseded)]);
    }
}
