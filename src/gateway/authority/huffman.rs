//! The Huffman code of HPACK (RFC 7541, appendix B): decodes, and makes fillers.
//!
//! The code is canonical: the lengths of its codes define them.

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
    /// Of the first symbol, in `SORTED`.
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
pub(super) fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
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
    let encoded = encode(&text);
    (encoded.len() == encoded_length).then_some(encoded)
}

pub(super) fn encode(text: &[u8]) -> Vec<u8> {
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
