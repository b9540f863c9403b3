//! Counters that are cheap enough for the path of every command: each increment is one atomic addition.
//!
//! This module only counts; each module defines its own labels. A vector has one counter for each label of a fixed list, so
//! that no caller can make it grow. Pure.

#![forbid(unsafe_code)]

mod histogram;

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

pub use histogram::{BUCKETS_US, Histogram};

/// One of a few things that are counted apart.
pub trait Label: Copy + PartialEq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// For programs: lower case, and the same in every version.
    fn label(self) -> &'static str;
}

/// Defines an enumeration whose members are labels.
#[macro_export]
macro_rules! labels {
    ($(#[$about:meta])* $visible:vis enum $name:ident {
        $($(#[$about_one:meta])* $one:ident = $label:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $name {
            $($(#[$about_one])* $one,)+
        }

        impl $crate::counters::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$one,)+];

            fn label(self) -> &'static str {
                match self {
                    $(Self::$one => $label,)+
                }
            }
        }
    };
}
pub use labels;

/// A count that only goes up.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// How many by now.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

/// Counts that only go up, one for each label.
pub struct CounterVec<W: 'static> {
    labels: &'static [W],
    counts: Box<[Counter]>,
}

impl<W: Label> Default for CounterVec<W> {
    fn default() -> Self {
        Self { labels: W::ALL, counts: W::ALL.iter().map(|_| Counter::default()).collect() }
    }
}

impl<W: Label> CounterVec<W> {
    /// One more of this label. One that its list has not is not counted.
    pub fn inc(&self, label: W) {
        if let Some(count) = self.counter(label) {
            count.inc();
        }
    }

    /// How many of this label by now.
    pub fn get(&self, label: W) -> u64 {
        self.counter(label).map_or(0, Counter::read)
    }

    /// Every label with its count.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.labels.iter().zip(&self.counts).map(|(label, count)| (label.label(), count.read()))
    }

    fn counter(&self, label: W) -> Option<&Counter> {
        let at = self.labels.iter().position(|one| *one == label)?;
        self.counts.get(at)
    }
}

impl<W: Label> fmt::Debug for CounterVec<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    labels! {
        enum Fruit {
            Apple = "apple",
            Pear = "pear",
        }
    }

    #[test]
    fn each_label_is_counted_apart_and_unused_labels_are_listed() {
        let counters = CounterVec::<Fruit>::default();
        counters.inc(Fruit::Pear);
        counters.inc(Fruit::Pear);
        assert_eq!(counters.get(Fruit::Pear), 2);
        assert_eq!(counters.read().collect::<Vec<_>>(), [("apple", 0), ("pear", 2)]);
    }
}
