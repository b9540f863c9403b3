//! The connections of a terminal that were refused: the first ones, and the number of the others.

use std::sync::{Mutex, PoisonError};

use crate::proto::v1::{ConnectDenial, Outcome};

/// The most refused connections in one outcome.
const DENIALS_MAX: usize = 64;

/// The refused connections of one terminal.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ConnectDenials(Mutex<(Vec<ConnectDenial>, u64)>);

impl ConnectDenials {
    /// Counts one.
    pub(in crate::terminal) fn count(&self, denial: ConnectDenial) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0.len() < DENIALS_MAX {
            counted.0.push(denial);
        } else {
            counted.1 += 1;
        }
    }

    /// Puts them into the outcome, unless it has some already: of an end that another gateway has seen.
    pub(in crate::terminal) fn report(&self, outcome: &mut Outcome) {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !counted.0.is_empty() {
            outcome.connect_denials.clone_from(&counted.0);
            outcome.connect_denials_omitted = counted.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_listed_and_the_others_counted() {
        let denials = ConnectDenials::default();
        for port in 0..100 {
            denials.count(ConnectDenial { port, ..ConnectDenial::default() });
        }
        let mut outcome = Outcome::default();
        denials.report(&mut outcome);
        assert_eq!((outcome.connect_denials.len(), outcome.connect_denials_omitted), (64, 36));
        assert_eq!(outcome.connect_denials[63].port, 63);
    }
}
