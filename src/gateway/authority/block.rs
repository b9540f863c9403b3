//! Finds `:authority` in a block of headers (HPACK, RFC 7541) and overwrites an invalid value where it lies.
//!
//! The new value is as long as the old one, both encoded and decoded. So the block, its frames and the client's header table keep their
//! sizes, and the indexes that the client uses later mean the same fields: no table is needed here to know them. A block that cannot be
//! parsed is left alone, as is a name that is given by an index of the dynamic table, which no known client does for a name that the static
//! table has.
//!
//! The Huffman code of HPACK (RFC 7541, appendix B) is decoded, and fillers are made in it. The code is canonical: the lengths of its codes
//! define them.

use std::ops::Range;

use tonic::codegen::http::uri::Authority;

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
        if self.is_huffman { decode_huffman(bytes).as_deref() == Some(NAME) } else { bytes == NAME }
    }

    fn make_valid(&self, block: &mut [u8]) {
        let bytes = &mut block[self.range.clone()];
        if !self.is_huffman {
            if !is_valid(bytes) {
                bytes.iter_mut().filter(|byte| !is_plain(**byte)).for_each(|byte| *byte = b'-');
            }
        } else if let Some(decoded) = decode_huffman(bytes)
            && !is_valid(&decoded)
            && let Some(filler) = filler(decoded.len(), bytes.len())
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

/// The bits of the code of each byte, and of the end of a string.
#[rustfmt::skip]
const CODE_BITS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const SYMBOLS: usize = 257;
const END_OF_STRING: u16 = 256;
const BITS_MIN: usize = 5;
const BITS_MAX: usize = 30;

/// Bytes that are valid in an authority, and whose codes have 5, 6, 7 and 8 bits.
const FILLERS: [u8; 4] = [b'a', b'b', b'j', b'X'];

/// The codes of one length: as many in a row as there are symbols.
#[derive(Clone, Copy)]
struct CodesOfLength {
    first_code: u32,
    /// The index of the first symbol, in `SORTED`.
    first_index: u32,
    count: u32,
}

const BY_LENGTH: [CodesOfLength; BITS_MAX + 1] = codes_by_length();
/// The symbols in the order of their codes.
const SORTED: [u16; SYMBOLS] = sorted_symbols();

const fn codes_by_length() -> [CodesOfLength; BITS_MAX + 1] {
    let mut lengths = [CodesOfLength { first_code: 0, first_index: 0, count: 0 }; BITS_MAX + 1];
    let mut symbol = 0;
    while symbol < SYMBOLS {
        lengths[CODE_BITS[symbol] as usize].count += 1;
        symbol += 1;
    }
    let mut bits = 1;
    while bits <= BITS_MAX {
        let shorter = lengths[bits - 1];
        lengths[bits].first_code = (shorter.first_code + shorter.count) << 1;
        lengths[bits].first_index = shorter.first_index + shorter.count;
        bits += 1;
    }
    lengths
}

const fn sorted_symbols() -> [u16; SYMBOLS] {
    let mut sorted = [0; SYMBOLS];
    let (mut filled, mut bits) = (0, BITS_MIN);
    while bits <= BITS_MAX {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if CODE_BITS[symbol] as usize == bits {
                sorted[filled] = symbol as u16;
                filled += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    sorted
}

/// `None`: it is no valid string (RFC 7541, 5.2).
pub(super) fn decode_huffman(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(encoded.len() * 8 / BITS_MIN);
    let (mut code, mut bits) = (0_u32, 0_usize);
    for byte in encoded {
        for position in (0..8).rev() {
            code = code << 1 | u32::from(byte >> position & 1);
            bits += 1;
            let codes = BY_LENGTH.get(bits)?;
            // Codes of this length that were lower would have been shorter.
            let rank = code - codes.first_code.min(code);
            if code >= codes.first_code && rank < codes.count {
                let symbol = SORTED[(codes.first_index + rank) as usize];
                if symbol == END_OF_STRING {
                    return None;
                }
                decoded.push(u8::try_from(symbol).ok()?);
                (code, bits) = (0, 0);
            }
        }
    }
    // The rest of the last byte is padded with ones.
    (bits < 8 && code == (1 << bits) - 1).then_some(decoded)
}

/// The code of a valid authority with so many bytes that takes so many bytes encoded. `None`: there is none, which
/// cannot be when the code made a string shorter.
pub(super) fn filler(decoded_length: usize, encoded_length: usize) -> Option<Vec<u8>> {
    // The last encoded byte must be used, if only its first bit.
    let bits_needed = (encoded_length * 8).checked_sub(7)?;
    let mut extra = bits_needed.saturating_sub(decoded_length * BITS_MIN);
    let text: Vec<u8> = (0..decoded_length)
        .map(|_| {
            let longer = extra.min(FILLERS.len() - 1);
            extra -= longer;
            FILLERS[longer]
        })
        .collect();
    let encoded = encode_huffman(&text);
    (encoded.len() == encoded_length).then_some(encoded)
}

pub(super) fn encode_huffman(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(text.len());
    let (mut pending, mut bits) = (0_u64, 0_usize);
    for byte in text {
        let length = usize::from(CODE_BITS[usize::from(*byte)]);
        pending = pending << length | u64::from(code_of(*byte));
        bits += length;
        while bits >= 8 {
            bits -= 8;
            encoded.push((pending >> bits & 0xff) as u8);
        }
        pending &= (1 << bits) - 1;
    }
    if bits > 0 {
        let padding = 8 - bits;
        encoded.push((pending << padding | ((1 << padding) - 1)) as u8);
    }
    encoded
}

fn code_of(byte: u8) -> u32 {
    let codes = BY_LENGTH[usize::from(CODE_BITS[usize::from(byte)])];
    let sorted = &SORTED[codes.first_index as usize..][..codes.count as usize];
    let rank = sorted.iter().take_while(|symbol| **symbol != u16::from(byte)).count();
    codes.first_code + rank as u32
}
