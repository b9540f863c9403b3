//! The modes of a terminal that viewers and input depend on.

/// Modes, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes(pub u32);

impl Modes {
    /// The cursor is shown.
    pub const SHOWS_CURSOR: Self = Self(1);
    /// The alternate screen is shown: a full-screen program runs.
    pub const ALTERNATE_SCREEN: Self = Self(1 << 1);
    /// Cursor keys send application sequences (DECCKM).
    pub const APPLICATION_CURSOR: Self = Self(1 << 2);
    /// The keypad sends application sequences (DECKPAM).
    pub const APPLICATION_KEYPAD: Self = Self(1 << 3);
    /// Pastes are bracketed.
    pub const BRACKETED_PASTE: Self = Self(1 << 4);
    /// Mouse buttons are reported.
    pub const MOUSE_CLICKS: Self = Self(1 << 5);
    /// And motion with a button held.
    pub const MOUSE_DRAGS: Self = Self(1 << 6);
    /// And any motion.
    pub const MOUSE_MOTION: Self = Self(1 << 7);
    /// Mouse reports are in decimal (SGR).
    pub const SGR_MOUSE: Self = Self(1 << 8);
    /// Mouse coordinates are in UTF-8.
    pub const UTF8_MOUSE: Self = Self(1 << 9);
    /// Getting and losing the focus is reported.
    pub const FOCUS_EVENTS: Self = Self(1 << 10);
    /// Enter sends CR LF.
    pub const NEW_LINE: Self = Self(1 << 11);
    /// Text at the end of a row goes on in the next.
    pub const WRAPS: Self = Self(1 << 12);
    /// Text is inserted.
    pub const INSERTS: Self = Self(1 << 13);
    const ALL: u32 = (1 << 14) - 1;

    /// From bits; unknown ones are left out.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL)
    }

    /// Whether all of those are set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether mouse buttons are reported in any mode.
    #[must_use]
    pub fn reports_mouse(self) -> bool {
        self.0 & (Self::MOUSE_CLICKS.0 | Self::MOUSE_DRAGS.0 | Self::MOUSE_MOTION.0) != 0
    }

    /// Sets those if the condition holds.
    pub fn set(&mut self, other: Self, is_set: bool) {
        if is_set {
            self.0 |= other.0;
        }
    }
}
