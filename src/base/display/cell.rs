//! One cell of a screen: its character, its colours, its attributes.

/// Combining marks that a cell keeps.
pub const MAX_MARKS: usize = 8;

/// A colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Colour {
    /// The viewer's own.
    #[default]
    Default,
    /// One of the palette of 256.
    Palette(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

impl Colour {
    /// As a word of the shared memory.
    #[must_use]
    pub fn to_word(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::Palette(index) => 1 << 24 | u32::from(index),
            Self::Rgb(red, green, blue) => {
                2 << 24 | u32::from(red) << 16 | u32::from(green) << 8 | u32::from(blue)
            }
        }
    }

    /// From a word; one that means nothing is the default colour.
    #[must_use]
    pub fn from_word(word: u32) -> Self {
        let [kind, red, green, blue] = word.to_be_bytes();
        match kind {
            1 => Self::Palette(blue),
            2 => Self::Rgb(red, green, blue),
            _ => Self::Default,
        }
    }
}

/// Attributes of a cell, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Attributes(pub u16);

impl Attributes {
    /// Bold.
    pub const BOLD: Self = Self(1);
    /// Faint.
    pub const DIM: Self = Self(1 << 1);
    /// Italic.
    pub const ITALIC: Self = Self(1 << 2);
    /// Underlined, in any style.
    pub const UNDERLINE: Self = Self(1 << 3);
    /// Colours are exchanged.
    pub const INVERSE: Self = Self(1 << 4);
    /// Not shown.
    pub const HIDDEN: Self = Self(1 << 5);
    /// Struck out.
    pub const STRIKEOUT: Self = Self(1 << 6);
    /// The left half of a wide character.
    pub const WIDE: Self = Self(1 << 7);
    /// Has no character of its own: the right half of a wide character, or the gap before one that did not fit.
    pub const SPACER: Self = Self(1 << 8);
    /// Those that are seen.
    pub const STYLE: Self = Self(0x7f);

    const ALL: u16 = 0x1ff;

    /// From bits; unknown ones are left out.
    #[must_use]
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL)
    }

    /// Whether all of those are set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These that are among those.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Sets those if the condition holds.
    pub fn set(&mut self, other: Self, is_set: bool) {
        if is_set {
            self.0 |= other.0;
        }
    }
}

/// A cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Never a control character.
    pub character: char,
    /// The colour of the text.
    pub foreground: Colour,
    /// Behind it.
    pub background: Colour,
    /// The others.
    pub attributes: Attributes,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            character: ' ',
            foreground: Colour::Default,
            background: Colour::Default,
            attributes: Attributes::default(),
        }
    }
}

impl Cell {
    /// Bytes of a cell in shared memory.
    pub const BYTES: usize = 16;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&u32::from(self.character).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.foreground.to_word().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.background.to_word().to_le_bytes());
        bytes[12..14].copy_from_slice(&self.attributes.0.to_le_bytes());
        bytes
    }

    /// From bytes: any bytes are some cell.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            character: shown(char::from_u32(word(0)).unwrap_or(char::REPLACEMENT_CHARACTER)),
            foreground: Colour::from_word(word(4)),
            background: Colour::from_word(word(8)),
            attributes: Attributes::from_bits(u16::from_le_bytes([bytes[12], bytes[13]])),
        }
    }

    /// Whether two cells look the same but for their characters.
    #[must_use]
    pub fn has_style_of(&self, other: &Self) -> bool {
        self.foreground == other.foreground
            && self.background == other.background
            && self.attributes.within(Attributes::STYLE) == other.attributes.within(Attributes::STYLE)
    }
}

/// A character as it may stand in a cell: a control character is a blank.
#[must_use]
pub fn shown(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_cell_that_can_be_shown(bytes in any::<[u8; Cell::BYTES]>()) {
            let cell = Cell::from_bytes(&bytes);
            prop_assert!(!cell.character.is_control());
            prop_assert_eq!(Cell::from_bytes(&cell.to_bytes()), cell);
        }
    }
}
