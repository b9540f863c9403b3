//! The known bytes that `emit pattern` writes: any slice can be checked by its offset alone.

/// The pattern. Byte i is byte `i % 8` of the little-endian number `mix(i / 8)`.
pub struct Pattern;

fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

impl Pattern {
    /// The byte at an offset.
    pub fn at(offset: u64) -> u8 {
        mix(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// The bytes of a range.
    pub fn bytes(from: u64, to: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity((to - from) as usize + 8);
        let mut word = from / 8;
        while word * 8 < to {
            out.extend_from_slice(&mix(word).to_le_bytes());
            word += 1;
        }
        out.drain(..(from % 8) as usize);
        out.truncate((to - from) as usize);
        out
    }

    /// Fails unless `data` is the pattern from `offset` on.
    pub fn check(offset: u64, data: &[u8]) {
        let expected = Self::bytes(offset, offset + data.len() as u64);
        if let Some(i) = (0..data.len()).find(|&i| data[i] != expected[i]) {
            panic!(
                "byte {} of the output is {:#x} and should be {:#x}",
                offset + i as u64,
                data[i],
                expected[i]
            );
        }
    }
}
