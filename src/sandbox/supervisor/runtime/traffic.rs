//! What the commands of a sandbox wanted of a network that it does not have: names, which are refused here, and packets without a route,
//! which the kernel counts.
//!
//! A command can ask for any name, as often as it likes. In a turn a few questions are answered, and few names are remembered.

use std::{net::UdpSocket, os::fd::OwnedFd};

use crate::{
    network::{
        dns::{self, QuestionError, Reply},
        name::HostName,
    },
    proto::supervisor::Unreachable,
    supervisor::ready::RouteCounters,
};

/// Questions that are answered in one turn of the loop.
const QUESTIONS_PER_TURN: usize = 16;
/// The longest question. Those of resolvers have at most 512 bytes.
const QUESTION_MAX_BYTES: usize = 1_024;
/// Names of a sandbox that are remembered. Then the one that was asked for the longest ago goes.
const NAMES_MAX: usize = 64;
/// Names in one report.
const NAMES_REPORTED: usize = 8;

/// What was refused so far.
#[derive(Debug)]
pub(super) struct RefusedTraffic {
    /// None where the sandbox has the host's network, or proxies.
    resolver: Option<UdpSocket>,
    counters: Option<RouteCounters>,
    /// As of the last end of a command.
    no_route: u64,
    names: RefusedNames,
}

/// Where a command's own part of it begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TrafficMark {
    questions: u64,
    no_route: u64,
}

impl RefusedTraffic {
    pub(super) fn new(resolver: Option<OwnedFd>, counters: Option<RouteCounters>) -> Self {
        // What set-up itself was refused is no command's.
        let no_route = counters.as_ref().map_or(0, RouteCounters::read);
        let own_name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            resolver: resolver.map(UdpSocket::from),
            counters,
            no_route,
            names: RefusedNames::new(own_name),
        }
    }

    /// Which does not block.
    pub(super) fn resolver(&self) -> Option<&UdpSocket> {
        self.resolver.as_ref()
    }

    /// Marks where a command starts now. While no other runs, nothing has been counted since the last one's end.
    pub(super) fn mark(&self) -> TrafficMark {
        TrafficMark { questions: self.names.questions, no_route: self.no_route }
    }

    /// Refuses the names that were asked for, some of them.
    pub(super) fn answer(&mut self) {
        let Some(resolver) = &self.resolver else { return };
        let mut bytes = [0; QUESTION_MAX_BYTES];
        for _ in 0..QUESTIONS_PER_TURN {
            let Ok((count, from)) = resolver.recv_from(&mut bytes) else { return };
            let answer = match dns::read_question(&bytes[..count]) {
                Ok(question) => {
                    self.names.add(&question.name);
                    question.reply(Reply::NoSuchName)
                }
                Err(QuestionError::Unreadable(answer)) => answer,
                Err(QuestionError::NoQuestion) => continue,
            };
            // One that does not read its answers loses them.
            let _ = resolver.send_to(&answer, from);
        }
    }

    /// What was refused since the mark; `None`: nothing.
    pub(super) fn since(&mut self, mark: TrafficMark) -> Option<Unreachable> {
        self.answer();
        self.count();
        let names = self.names.since(mark.questions);
        let no_route = self.no_route.saturating_sub(mark.no_route);
        let names_omitted = names.len().saturating_sub(NAMES_REPORTED) as u64;
        let names: Vec<_> = names.into_iter().take(NAMES_REPORTED).collect();
        (!names.is_empty() || no_route > 0).then_some(Unreachable { names, names_omitted, no_route })
    }

    /// What is counted from here on belongs to the next command.
    pub(super) fn count(&mut self) {
        self.no_route = self.counters.as_ref().map_or(0, RouteCounters::read);
    }
}

/// The names, in the order in which they were first asked for.
#[derive(Debug)]
struct RefusedNames {
    own_name: Option<String>,
    /// Each with the number of the last question for it.
    names: Vec<(String, u64)>,
    questions: u64,
}

impl RefusedNames {
    fn new(own_name: Option<String>) -> Self {
        Self { own_name, names: Vec::new(), questions: 0 }
    }

    /// What is no name of a host is not remembered, nor is the sandbox's own.
    fn add(&mut self, name: &str) {
        let Ok(name) = HostName::parse(name) else { return };
        let name = name.as_str();
        if name == "localhost" || Some(name) == self.own_name.as_deref() || name.ends_with(".arpa") {
            return;
        }
        self.questions += 1;
        if let Some((_, last)) = self.names.iter_mut().find(|(known, _)| known == name) {
            *last = self.questions;
            return;
        }
        if self.names.len() >= NAMES_MAX
            && let Some(oldest) = (0..self.names.len()).min_by_key(|&index| self.names[index].1)
        {
            self.names.remove(oldest);
        }
        self.names.push((name.to_owned(), self.questions));
    }

    fn since(&self, question: u64) -> Vec<String> {
        self.names.iter().filter(|(_, last)| *last > question).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_names_are_those_that_were_asked_for_since_it_began() {
        let mut names = RefusedNames::new(Some("box".into()));
        for name in
            ["a.example", "B.example", "localhost", "box", "4.3.2.1.in-addr.arpa", "no name", "a.example"]
        {
            names.add(name);
        }
        assert_eq!(names.since(0), ["a.example", "b.example"]);
        assert_eq!(names.since(2), ["a.example"]);
        assert_eq!(names.since(names.questions), [""; 0]);
    }

    #[test]
    fn the_names_of_a_flood_are_forgotten_and_the_last_ones_kept() {
        let mut names = RefusedNames::new(None);
        for number in 0..1_000 {
            names.add(&format!("n{number}.example"));
            names.add("kept.example");
        }
        let known = names.since(0);
        assert_eq!(known.len(), NAMES_MAX);
        assert!(known.contains(&"kept.example".to_owned()) && known.contains(&"n999.example".to_owned()));
    }
}
