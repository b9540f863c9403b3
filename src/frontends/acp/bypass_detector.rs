//! Whether an agent asks for terminals, or runs commands itself.
//!
//! Some agents run commands by themselves although terminals are offered; then nothing is judged. What gives them away
//! is a tool call of the kind `execute` that completes while no terminal was asked for. Pure: it counts and says so
//! once; who warns whom is decided elsewhere. What it
//! remembers is bounded: the oldest entries go.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// Tool calls that are remembered as executing, at once; the oldest go first.
const EXECUTING_MAX: usize = 1_024;
/// Sessions whose terminals are counted; the oldest go first.
const COUNTED_MAX: usize = 1_024;

/// What was seen of one agent.
#[derive(Debug, Default)]
pub(super) struct BypassDetector {
    /// Terminals that were asked for in a session and that no completed tool call has accounted for.
    unaccounted: BoundedMap<String, u64>,
    /// Tool calls that execute something, and whether a terminal was seen in them.
    executing: BoundedMap<(String, String), TerminalUse>,
    reported: Reported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reported {
    #[default]
    NotYet,
    Once,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TerminalUse {
    #[default]
    NotSeen,
    Terminal,
}

/// What one update says of a tool call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolCallObservation<'a> {
    pub(super) session: &'a str,
    pub(super) tool_call: &'a str,
    /// As far as it is said.
    pub(super) kind: Option<&'a str>,
    /// As far as it is said.
    pub(super) status: Option<&'a str>,
    /// Whether one of the gateway's terminals is in its content.
    pub(super) shows_terminal: ShowsTerminal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShowsTerminal {
    Yes,
    No,
}

/// The agent has run a command that bypassed the gateway. Reported once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BypassDetected;

impl BypassDetector {
    /// A terminal was asked for, whatever the policy made of it.
    pub(super) fn terminal_requested(&mut self, session: &str) {
        *self.unaccounted.entry(session.to_owned(), COUNTED_MAX) += 1;
    }

    /// A tool call was begun or changed.
    pub(super) fn observe(&mut self, update: ToolCallObservation<'_>) -> Option<BypassDetected> {
        let key = (update.session.to_owned(), update.tool_call.to_owned());
        if update.kind == Some("execute") {
            self.executing.entry(key.clone(), EXECUTING_MAX);
        }
        if update.shows_terminal == ShowsTerminal::Yes
            && let Some(seen) = self.executing.get_mut(&key)
        {
            *seen = TerminalUse::Terminal;
        }
        let is_over = matches!(update.status, Some("completed" | "failed"));
        let seen = if is_over { self.executing.remove(&key)? } else { return None };
        let unaccounted = self.unaccounted.get_mut(&update.session.to_owned());
        let was_asked_for = unaccounted.is_some_and(|count| {
            let was_asked_for = *count > 0;
            *count = count.saturating_sub(1);
            was_asked_for
        });
        let had_terminal = was_asked_for || seen == TerminalUse::Terminal;
        // One that failed may have been refused before anything ran.
        let bypassed = update.status == Some("completed") && !had_terminal;
        (bypassed && std::mem::replace(&mut self.reported, Reported::Once) == Reported::NotYet)
            .then_some(BypassDetected)
    }

    /// A session is over.
    pub(super) fn remove_session(&mut self, session: &str) {
        self.unaccounted.retain(|of| of != session);
        self.executing.retain(|(of, _)| of != session);
    }
}

/// A map that forgets the oldest.
#[derive(Debug)]
pub(super) struct BoundedMap<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> BoundedMap<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub(super) fn insert(&mut self, key: K, value: V, max_entries: usize) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > max_entries {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }

    pub(super) fn entry(&mut self, key: K, max_entries: usize) -> &mut V
    where
        V: Default,
    {
        if !self.entries.contains_key(&key) {
            self.insert(key.clone(), V::default(), max_entries);
        }
        self.entries.entry(key).or_default()
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let removed = self.entries.remove(key)?;
        self.order.retain(|other| other != key);
        Some(removed)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
        self.order.retain(|key| keep(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update<'a>(
        tool_call: &'a str,
        kind: Option<&'a str>,
        status: Option<&'a str>,
    ) -> ToolCallObservation<'a> {
        ToolCallObservation { session: "s", tool_call, kind, status, shows_terminal: ShowsTerminal::No }
    }

    #[test]
    fn an_execution_without_a_terminal_is_said_once() {
        let mut detector = BypassDetector::default();
        assert_eq!(detector.observe(update("1", Some("execute"), Some("pending"))), None);
        assert_eq!(detector.observe(update("1", None, Some("in_progress"))), None);
        assert_eq!(detector.observe(update("1", None, Some("completed"))), Some(BypassDetected));
        assert_eq!(detector.observe(update("2", Some("execute"), Some("completed"))), None);
    }

    #[test]
    fn an_agent_that_asks_for_terminals_is_not_accused() {
        let mut detector = BypassDetector::default();
        for id in ["1", "2"] {
            detector.observe(update(id, Some("execute"), None));
            detector.terminal_requested("s");
        }
        for id in ["1", "2"] {
            assert_eq!(detector.observe(update(id, None, Some("completed"))), None);
        }
        let shown =
            ToolCallObservation { shows_terminal: ShowsTerminal::Yes, ..update("3", Some("execute"), None) };
        detector.observe(shown);
        assert_eq!(detector.observe(update("3", None, Some("completed"))), None);
    }

    #[test]
    fn what_was_refused_or_is_no_execution_says_nothing() {
        let mut detector = BypassDetector::default();
        detector.observe(update("1", Some("execute"), None));
        assert_eq!(detector.observe(update("1", None, Some("failed"))), None);
        assert_eq!(detector.observe(update("2", Some("read"), Some("completed"))), None);
    }

    #[test]
    fn a_terminal_of_another_session_does_not_count() {
        let mut detector = BypassDetector::default();
        detector.terminal_requested("other");
        assert_eq!(detector.observe(update("1", Some("execute"), Some("completed"))), Some(BypassDetected));
    }
}
