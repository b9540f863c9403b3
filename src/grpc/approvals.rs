//! The approvals service.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::SystemTime};

use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{
    caller,
    errors::{self, Missing},
    fields, pages, streams,
};
use crate::{
    approval::{Answer, Approval, ApprovalId, Asking, Book, Said, State},
    policy::Program,
    proto::v1::{
        Approval as ApprovalWord, ApprovalAnswer, ApprovalDecision, ApprovalState, ListApprovalsRequest,
        ListApprovalsResponse, ResolveApprovalRequest, WatchApprovalsRequest,
        approvals_server::Approvals as Service,
    },
    session::{Principal, Session, SessionId, Sessions},
    terminal::{Terminals, outcome::timestamp},
};

/// The service.
#[derive(Debug, Clone)]
pub struct ApprovalsService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals, and the questions about those to be.
    pub terminals: Arc<Terminals>,
}

impl ApprovalsService {
    fn book(&self) -> &Arc<Book> {
        self.terminals.approvals()
    }

    /// The session of that id, where the caller may see its questions.
    fn find_session(&self, caller: Principal, id: &str) -> Result<Option<Arc<Session>>, Status> {
        if id.is_empty() {
            return Ok(None);
        }
        let own = self.sessions.find(caller, id);
        let found = own.or_else(|| {
            let id = SessionId::parse(id).filter(|_| self.book().shows_all(caller))?;
            self.sessions.all().into_iter().find(|session| session.id == id)
        });
        found.map(Some).ok_or_else(|| errors::not_found(Missing::Session))
    }
}

#[tonic::async_trait]
impl Service for ApprovalsService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<ApprovalWord, Status>> + Send>>;

    async fn list(
        &self,
        request: Request<ListApprovalsRequest>,
    ) -> Result<Response<ListApprovalsResponse>, Status> {
        let caller = caller(&request)?.principal;
        let ListApprovalsRequest { session_id, pending_only, page_size, page_token } = request.get_ref();
        let page = pages::wanted(*page_size, page_token, ApprovalId::parse).map_err(errors::bad_field)?;
        let session = self.find_session(caller, session_id)?.map(|session| session.id);
        let mut approvals = self.book().list(caller, session);
        approvals.retain(|approval| {
            (!pending_only || approval.state == State::Pending)
                && page.after.is_none_or(|after| approval.id() > after)
        });
        let (approvals, next_page_token) = page.fill(approvals, word, |approval| approval.id().to_string());
        Ok(Response::new(ListApprovalsResponse { approvals, next_page_token }))
    }

    async fn watch(
        &self,
        request: Request<WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = caller(&request)?.principal;
        let session = self.find_session(caller, &request.get_ref().session_id)?;
        let changes = self.book().changes();
        let mut watch =
            Watch { book: self.book().clone(), caller, session, changes, present: VecDeque::new() };
        watch.take_in_present();
        let stream = unfold(watch, |mut watch| async move {
            let approval = watch.next().await?;
            Some((Ok(word(&approval)), watch))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn resolve(
        &self,
        request: Request<ResolveApprovalRequest>,
    ) -> Result<Response<ApprovalWord>, Status> {
        let caller = caller(&request)?.principal;
        let resolution = fields::resolution(request.into_inner()).map_err(errors::bad_field)?;
        let id = resolution.id.ok_or_else(|| errors::not_found(Missing::Approval))?;
        let answer = Answer {
            said: resolution.said,
            approver: caller,
            on_behalf_of: resolution.on_behalf_of,
            comment: resolution.comment,
            at: SystemTime::now(),
        };
        let approval = self.terminals.resolve(id, answer).await.map_err(|error| errors::answer(&error))?;
        Ok(Response::new(word(&approval)))
    }
}

/// What is open, then every change.
struct Watch {
    book: Arc<Book>,
    caller: Principal,
    session: Option<Arc<Session>>,
    changes: Receiver<Approval>,
    present: VecDeque<Approval>,
}

impl Watch {
    fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    fn take_in_present(&mut self) {
        let open = |approval: &Approval| matches!(approval.state, State::Pending | State::Approved);
        let list = self.book.list(self.caller, self.session_id());
        self.present = list.into_iter().filter(open).collect();
    }

    async fn next(&mut self) -> Option<Approval> {
        loop {
            if let Some(approval) = self.present.pop_front() {
                return Some(approval);
            }
            tokio::select! {
                // What became of the questions is told before the end that made it so.
                biased;
                change = self.changes.recv() => match change {
                    Ok(approval) if self.book.concerns(&approval, self.caller, self.session_id()) => {
                        return Some(approval);
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => self.take_in_present(),
                    Err(RecvError::Closed) => return None,
                },
                () = streams::closed(self.session.as_deref()) => return None,
            }
        }
    }
}

/// An approval, at this moment.
fn word(approval: &Approval) -> ApprovalWord {
    let asked = &approval.asked;
    let wanted = &asked.wanted;
    let (command, args, shell_line) = match &wanted.program {
        Program::Command { command, args } => (command.clone(), args.clone(), false),
        Program::ShellLine(line) => (line.clone(), Vec::new(), true),
    };
    ApprovalWord {
        id: approval.id().to_string(),
        state: state(approval.state).into(),
        session_id: wanted.session.to_string(),
        principal: wanted.principal.to_string(),
        asks_about: wanted.question.command.clone(),
        command,
        args,
        shell_line,
        cwd: wanted.cwd.clone(),
        profile: wanted.profile.clone(),
        env_names: wanted.env_names.clone(),
        rule: wanted.question.rule.clone(),
        reason: wanted.question.reason.clone().unwrap_or_default(),
        request_digest: wanted.question.digest.to_string(),
        generation: wanted.question.generation,
        created_at: Some(timestamp(asked.at)),
        expires_at: Some(timestamp(approval.expires_at)),
        waited_for: asked.asking == Asking::Waiting,
        request_id: wanted.request_id.clone().unwrap_or_default(),
        answer: approval.answer.as_deref().map(answer),
    }
}

fn answer(answer: &Answer) -> ApprovalAnswer {
    ApprovalAnswer {
        decision: match answer.said {
            Said::Yes => ApprovalDecision::Approve,
            Said::No => ApprovalDecision::Deny,
        }
        .into(),
        approver: answer.approver.to_string(),
        on_behalf_of: answer.on_behalf_of.clone(),
        comment: answer.comment.clone(),
        answered_at: Some(timestamp(answer.at)),
    }
}

fn state(state: State) -> ApprovalState {
    match state {
        State::Pending => ApprovalState::Pending,
        State::Approved => ApprovalState::Approved,
        State::Used => ApprovalState::Used,
        State::Denied => ApprovalState::Denied,
        State::Expired => ApprovalState::Expired,
        State::Withdrawn => ApprovalState::Withdrawn,
        State::Superseded => ApprovalState::Superseded,
    }
}
