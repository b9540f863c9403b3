//! What a gateway counts of itself, cheaply enough to be counted on the way of every command: one atomic addition.
//!
//! Knows how to count, not what: each module has the words of its own. Every tally has one place for each word of a
//! fixed list, so that nothing that a caller sends can make it larger. Pure.

#![forbid(unsafe_code)]

mod histogram;

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

pub use histogram::{BUCKETS_US, Histogram, HistogramSnapshot};

/// One of a few things that are counted apart.
pub trait Word: Copy + PartialEq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// For programs: lower case, and the same in every version.
    fn word(self) -> &'static str;
}

/// Defines an enumeration whose members are words.
macro_rules! words {
    ($(#[$about:meta])* $visible:vis enum $name:ident {
        $($(#[$about_one:meta])* $one:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $name {
            $($(#[$about_one])* $one,)+
        }

        impl $crate::counters::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$one,)+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$one => $word,)+
                }
            }
        }
    };
}
pub(crate) use words;

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

/// Counts that only go up, one for each word.
pub struct CounterVec<W: 'static> {
    words: &'static [W],
    counts: Box<[Counter]>,
}

impl<W: Word> Default for CounterVec<W> {
    fn default() -> Self {
        Self { words: W::ALL, counts: W::ALL.iter().map(|_| Counter::default()).collect() }
    }
}

impl<W: Word> CounterVec<W> {
    /// One more of this word. One that its list has not is not counted.
    pub fn inc(&self, word: W) {
        if let Some(count) = self.counter(word) {
            count.inc();
        }
    }

    /// How many of this word by now.
    pub fn get(&self, word: W) -> u64 {
        self.counter(word).map_or(0, Counter::read)
    }

    /// Every word with its count.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.words.iter().zip(&self.counts).map(|(word, count)| (word.word(), count.read()))
    }

    fn counter(&self, word: W) -> Option<&Counter> {
        let at = self.words.iter().position(|one| *one == word)?;
        self.counts.get(at)
    }
}

impl<W: Word> fmt::Debug for CounterVec<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        enum Fruit {
            Apple = "apple",
            Pear = "pear",
        }
    }

    #[test]
    fn each_word_is_counted_apart_and_those_that_never_came_are_there() {
        let tally = CounterVec::<Fruit>::default();
        tally.inc(Fruit::Pear);
        tally.inc(Fruit::Pear);
        assert_eq!(tally.get(Fruit::Pear), 2);
        assert_eq!(tally.read().collect::<Vec<_>>(), [("apple", 0), ("pear", 2)]);
    }
}
