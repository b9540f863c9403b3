//! Finds `:authority` in a block of headers (HPACK, RFC 7541) and overwrites an invalid value where it lies.
//!
//! The new value is as long as the old one, both encoded and decoded. So the block, its frames and the client's header
//! table keep their sizes, and the indexes that the client uses later mean the same fields: no table is needed here to
//! know them. A block that cannot be parsed is left alone, as is a name that is given by an index of the dynamic table,
//! which no known client does for a name that the static table has.

use std::ops::Range;

use tonic::codegen::http::uri::Authority;

use super::huffman;

const NAME: &[u8] = b":authority";
/// `:authority` in the static table (RFC 7541, appendix A).
const NAME_INDEX: usize = 1;

const INDEXED: u8 = 0x80;
const INCREMENTAL_INDEXING: u8 = 0x40;
const TABLE_SIZE_UPDATE: u8 = 0x20;
const HUFFMAN: u8 = 0x80;

/// Overwrites the value of the first `:authority` that the block spells out, if it is invalid.
pub(super) fn make_authority_valid(block: &mut [u8]) {
    if let Some(Some(value)) = find_authority(block) {
        value.make_valid(block);
    }
}

/// `None`: the block cannot be parsed. `Some(None)`: it spells out no authority.
fn find_authority(block: &[u8]) -> Option<Option<Text>> {
    let mut parser = Parser { block, at: 0 };
    let mut authority = None;
    while let Some(first) = block.get(parser.at).copied() {
        if first & INDEXED != 0 {
            parser.integer(7)?;
        } else if first & INCREMENTAL_INDEXING == 0 && first & TABLE_SIZE_UPDATE != 0 {
            parser.integer(5)?;
        } else {
            let index = parser.integer(if first & INCREMENTAL_INDEXING == 0 { 4 } else { 6 })?;
            let is_authority = if index == 0 { parser.text()?.is_name(block) } else { index == NAME_INDEX };
            let value = parser.text()?;
            if is_authority {
                authority = authority.or(Some(value));
            }
        }
    }
    Some(authority)
}

struct Parser<'a> {
    block: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    /// An integer whose first byte has so many bits of it (RFC 7541, 5.1).
    fn integer(&mut self, prefix_bits: u32) -> Option<usize> {
        /// More than any length in a block can have.
        const SHIFT_MAX: u32 = 21;
        let mask = (1_usize << prefix_bits) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Some(value);
        }
        for shift in (0..=SHIFT_MAX).step_by(7) {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A string (RFC 7541, 5.2).
    fn text(&mut self) -> Option<Text> {
        let is_huffman = self.block.get(self.at)? & HUFFMAN != 0;
        let length = self.integer(7)?;
        let range = self.at..self.at.checked_add(length)?;
        self.block.get(range.clone())?;
        self.at = range.end;
        Some(Text { range, is_huffman })
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

/// The place of a string in a block.
struct Text {
    range: Range<usize>,
    is_huffman: bool,
}

impl Text {
    fn is_name(&self, block: &[u8]) -> bool {
        let bytes = &block[self.range.clone()];
        if self.is_huffman { huffman::decode(bytes).as_deref() == Some(NAME) } else { bytes == NAME }
    }

    fn make_valid(&self, block: &mut [u8]) {
        let bytes = &mut block[self.range.clone()];
        if !self.is_huffman {
            if !is_valid(bytes) {
                bytes.iter_mut().filter(|byte| !is_plain(**byte)).for_each(|byte| *byte = b'-');
            }
        } else if let Some(decoded) = huffman::decode(bytes)
            && !is_valid(&decoded)
            && let Some(filler) = huffman::filler(decoded.len(), bytes.len())
        {
            bytes.copy_from_slice(&filler);
        }
    }
}

/// By the rule of the HTTP/2 library; an empty value cannot be made valid.
fn is_valid(authority: &[u8]) -> bool {
    authority.iter().all(|byte| is_plain(*byte)) || Authority::try_from(authority).is_ok()
}

/// Whether the byte is valid at every place of an authority.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
