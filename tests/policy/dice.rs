//! Chance that can be repeated: a small generator with a seed that tests print.

/// An xorshift generator; the seed must not be 0.
pub(super) struct Dice(pub u64);

impl Dice {
    /// A number below another.
    pub(super) fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).expect("below a usize")
    }
}
