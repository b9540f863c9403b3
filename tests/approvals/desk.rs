//! What the tests of this suite share: a gateway that asks before `touch`, and a person who answers.

use std::sync::Arc;

use tonic::{Streaming, transport::Channel};

use crate::support::{
    Caller, Command, Gateway, Options, Refusal, Session, Terminal, add_rule,
    api::{
        Approval, ApprovalDecision, ApprovalState, ListApprovalsRequest, OnAsk, ResolveApprovalRequest,
        WatchApprovalsRequest, WatchApprovalsResponse, approvals_client::ApprovalsClient,
    },
    within,
};

/// The rule that asks.
pub(crate) const RULE: &str = "careful";
/// Its reason.
pub(crate) const REASON: &str = "touching needs a person";

/// A gateway whose policy asks before `touch`, with this table `approvals`.
pub(crate) fn gateway(approvals: &str) -> Arc<Gateway> {
    let config = Some(format!("[approvals]\n{approvals}\n"));
    Gateway::start_with(Options { policy: Some(ask_before_touch), config, ..Options::default() })
}

/// Adds the rule that asks; and one that asks before `./tool`.
pub(crate) fn ask_before_touch(policy: &mut toml::Table) {
    for (id, program, reason) in [(RULE, "touch", REASON), ("own", "./tool", "it is your own")] {
        let rule = format!("id = '{id}'\ndecision = 'ask'\nargv = ['{program}', '**']\nreason = '{reason}'");
        add_rule(policy, &rule);
    }
}

/// A command that asks, and does not wait.
pub(crate) fn unattended(command: Command) -> Command {
    command.with(|request| request.on_ask = OnAsk::Refuse.into())
}

/// `touch NAME` in a session.
pub(crate) fn touch(session: &Session, name: &str) -> Command {
    session.command("touch").args([name])
}

/// Begins a create that will wait.
pub(crate) fn begin(command: Command) -> tokio::task::JoinHandle<Result<Terminal, Refusal>> {
    tokio::spawn(command.try_create())
}

/// What came of it.
pub(crate) async fn outcome(
    begun: tokio::task::JoinHandle<Result<Terminal, Refusal>>,
) -> Result<Terminal, Refusal> {
    within("the end of a create", begun).await.expect("it does not panic")
}

/// Fails unless it was refused.
pub(crate) async fn refusal(begun: tokio::task::JoinHandle<Result<Terminal, Refusal>>) -> Refusal {
    match outcome(begun).await {
        Ok(terminal) => panic!("it was not refused: {:?}", terminal.info),
        Err(refusal) => refusal,
    }
}

/// A person at a gateway.
#[derive(Clone)]
pub(crate) struct Desk {
    approvals: ApprovalsClient<Channel>,
}

impl Desk {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self { approvals: ApprovalsClient::new(caller.channel()) }
    }

    /// Everything that this person sees.
    pub(crate) async fn list(&self) -> Vec<Approval> {
        let mut approvals = self.approvals.clone();
        let request = ListApprovalsRequest::default();
        within("a list", approvals.list_approvals(request))
            .await
            .expect("it can be listed")
            .into_inner()
            .approvals
    }

    /// Lists what this person sees and nobody has answered, of one session or, where that is empty, of all.
    pub(crate) async fn pending(&self, session_id: &str) -> Vec<String> {
        let mut approvals = self.approvals.clone();
        let request = ListApprovalsRequest {
            session_id: session_id.to_owned(),
            pending_only: true,
            ..ListApprovalsRequest::default()
        };
        let list =
            within("a list", approvals.list_approvals(request)).await.expect("it can be listed").into_inner();
        list.approvals.into_iter().map(|approval| approval.id).collect()
    }

    /// The ids of everything that this person sees, so many a page.
    pub(crate) async fn pages(&self, page_size: i32) -> Vec<Vec<String>> {
        let (mut pages, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListApprovalsRequest { page_size, page_token, ..ListApprovalsRequest::default() };
            let mut approvals = self.approvals.clone();
            let page = within("a page", approvals.list_approvals(request)).await.expect("it can be listed");
            let page = page.into_inner();
            pages.push(page.approvals.into_iter().map(|approval| approval.id).collect());
            page_token = page.next_page_token;
            // One that never ends is cut off.
            if page_token.is_empty() || pages.len() > 10 {
                return pages;
            }
        }
    }

    pub(crate) async fn get(&self, id: &str) -> Approval {
        let list = self.list().await;
        list.into_iter().find(|approval| approval.id == id).unwrap_or_else(|| panic!("{id} is not listed"))
    }

    pub(crate) async fn try_watch(&self, session_id: &str) -> Result<Changes, Refusal> {
        let mut approvals = self.approvals.clone();
        let request = WatchApprovalsRequest { session_id: session_id.to_owned() };
        Ok(Changes(within("a watch", approvals.watch_approvals(request)).await?.into_inner()))
    }

    /// Watches everything that this person sees.
    pub(crate) async fn watch(&self) -> Changes {
        self.try_watch("").await.expect("it can be watched")
    }

    pub(crate) async fn answer(&self, id: &str, decision: ApprovalDecision) -> Result<Approval, Refusal> {
        self.resolve(ResolveApprovalRequest {
            approval_id: id.to_owned(),
            decision: decision.into(),
            ..ResolveApprovalRequest::default()
        })
        .await
    }

    pub(crate) async fn resolve(&self, request: ResolveApprovalRequest) -> Result<Approval, Refusal> {
        let mut approvals = self.approvals.clone();
        Ok(within("an answer", approvals.resolve_approval(request))
            .await?
            .into_inner()
            .approval
            .expect("it is set"))
    }

    pub(crate) async fn approve(&self, id: &str) -> Approval {
        self.answer(id, ApprovalDecision::Approve).await.expect("it can be approved")
    }

    pub(crate) async fn deny(&self, id: &str) -> Approval {
        self.answer(id, ApprovalDecision::Deny).await.expect("it can be denied")
    }
}

/// Changes of approvals, as they come.
pub(crate) struct Changes(Streaming<WatchApprovalsResponse>);

impl Changes {
    /// The next change; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Approval> {
        let change = within("a change of an approval", self.0.message()).await.expect("the stream is whole");
        change.map(|change| change.approval.expect("it is set"))
    }

    /// The next change, which must be to this state.
    pub(crate) async fn must_be(&mut self, state: ApprovalState) -> Approval {
        let approval = self.next().await.expect("the stream goes on");
        assert_eq!(approval.state(), state, "{approval:?}");
        approval
    }
}
