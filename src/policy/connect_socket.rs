//! Decides about connections to unix sockets of the host: those that a profile lets in, by the rules that name them.
//!
//! The same order as for hosts: deny over ask over allow, and what no rule matches is denied.

use super::{
    command::rule::{Decision, RuleMode},
    connect::{ConnectRule, SocketRequest, TlsHandling, Tunnel},
    connect_decision::{ConnectDecision, ConnectReason},
    set::PolicySet,
};

impl PolicySet {
    /// Decides whether a socket may be connected to.
    pub fn connect_socket(&self, request: &SocketRequest<'_>) -> ConnectDecision {
        let about = |rule: &&ConnectRule| rule.is_about_socket(request);
        let (observing, rules): (Vec<_>, Vec<_>) =
            self.connect_rules().iter().filter(about).partition(|rule| rule.mode == RuleMode::Observe);
        let observed: Vec<String> = observing.into_iter().map(|rule| rule.id.clone()).collect();
        let decided = |decision, reason| ConnectDecision {
            decision,
            reason,
            tunnel: Tunnel::Any,
            requests_only: false,
            tls: TlsHandling::Carry,
            credentials: Vec::new(),
            authorities: Vec::new(),
            observed: observed.clone(),
        };
        let is_let_in =
            self.profile(Some(request.profile)).is_some_and(|(_, one)| one.network.lets_in(request.path));
        if !is_let_in {
            return decided(Decision::Deny, ConnectReason::SocketNotLetIn);
        }
        let first = |decision| rules.iter().find(move |rule| rule.decision == decision);
        let asking = first(Decision::Ask);
        let deciding = match (first(Decision::Deny), asking, first(Decision::Allow)) {
            (Some(rule), _, _) => Some((Decision::Deny, rule)),
            (None, Some(rule), _) if !request.is_approved => Some((Decision::Ask, rule)),
            (None, _, Some(rule)) | (None, Some(rule), None) => Some((Decision::Allow, rule)),
            (None, None, None) => None,
        };
        match deciding {
            Some((decision, rule)) => {
                decided(decision, ConnectReason::Rule(rule.id.clone(), rule.reason.clone()))
            }
            None => decided(Decision::Deny, ConnectReason::Default),
        }
    }
}
