//! A map of the most recent entries: at its bound, the oldest go. It keeps nothing alive and tells nobody.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

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
    pub(in crate::acp) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    pub(in crate::acp) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub(in crate::acp) fn insert(&mut self, key: K, value: V, max_entries: usize) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > max_entries {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }

    pub(in crate::acp) fn entry(&mut self, key: K, max_entries: usize) -> &mut V
    where
        V: Default,
    {
        if !self.entries.contains_key(&key) {
            self.insert(key.clone(), V::default(), max_entries);
        }
        self.entries.entry(key).or_default()
    }

    pub(in crate::acp) fn remove(&mut self, key: &K) -> Option<V> {
        let removed = self.entries.remove(key)?;
        self.order.retain(|other| other != key);
        Some(removed)
    }

    pub(in crate::acp) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
        self.order.retain(|key| keep(key));
    }
}
