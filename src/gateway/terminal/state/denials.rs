//! What of a terminal was refused while its command ran.

use super::{connect_denials::ConnectDenials, exec_denials::ExecDenials};
use crate::proto::v1::Outcome;

/// The refused execs and connections of one terminal.
#[derive(Debug)]
pub(in crate::terminal) struct Denials {
    /// The execs.
    pub(in crate::terminal) execs: ExecDenials,
    /// The connections.
    pub(in crate::terminal) connections: ConnectDenials,
}

impl Denials {
    /// With the execs that are known already.
    pub(in crate::terminal) fn new(execs: ExecDenials) -> Self {
        Self { execs, connections: ConnectDenials::default() }
    }

    /// Puts them into the outcome.
    pub(in crate::terminal) fn report(&self, outcome: &mut Outcome) {
        self.execs.report(outcome);
        self.connections.report(outcome);
    }
}
