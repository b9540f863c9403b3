//! Finds the blocks of headers among the HTTP/2 frames of a client (RFC 9113, 4 and 6.2).
//!
//! It judges no frame. One that it does not understand, and a block longer than its bounds, passes as it is, and the
//! HTTP/2 library says what is wrong with it.

use std::ops::Range;

use super::block;

/// The bytes that a client's connection begins with (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// The longest block of headers that is looked at, with the heads of its frames. The headers of a call have at most
/// 16 KiB (`HEADERS_BYTES` in `gateway/server`).
pub(super) const BLOCK_MAX_BYTES: usize = 20 << 10;
/// The most frames that such a block may have.
const BLOCK_FRAMES_MAX: usize = 16;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Where in the frames of a connection a reader is.
#[derive(Debug)]
pub(super) struct FrameScanner {
    /// Bytes that are yet to come and are not looked at.
    skip: usize,
}

impl FrameScanner {
    /// At the beginning of a connection.
    pub(super) fn new() -> Self {
        Self { skip: PREFACE_BYTES }
    }

    /// Goes over bytes that have arrived, makes each `:authority` in them valid, and returns how many of them can be
    /// read. The others must be given again, with more bytes behind them.
    pub(super) fn scan(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            if at == bytes.len() {
                return at;
            }
            match find_block(&bytes[at..]) {
                Found::Incomplete => return at,
                Found::Other { length } => self.skip = length,
                Found::Block(block) => {
                    block.make_authority_valid(&mut bytes[at..]);
                    self.skip = block.end;
                }
            }
        }
    }
}

/// What bytes begin with.
enum Found {
    /// More bytes are needed to know.
    Incomplete,
    /// So many bytes of something that is not looked at.
    Other {
        length: usize,
    },
    Block(Block),
}

/// A complete block of headers: the places of its fragments, and its end.
struct Block {
    first: Range<usize>,
    rest: Vec<Range<usize>>,
    end: usize,
}

impl Block {
    fn make_authority_valid(&self, bytes: &mut [u8]) {
        if self.rest.is_empty() {
            block::make_authority_valid(&mut bytes[self.first.clone()]);
            return;
        }
        let fragments = || std::iter::once(&self.first).chain(&self.rest);
        let mut whole = Vec::with_capacity(self.end);
        for fragment in fragments() {
            whole.extend_from_slice(&bytes[fragment.clone()]);
        }
        block::make_authority_valid(&mut whole);
        let mut at = 0;
        for fragment in fragments() {
            bytes[fragment.clone()].copy_from_slice(&whole[at..at + fragment.len()]);
            at += fragment.len();
        }
    }
}

fn find_block(bytes: &[u8]) -> Found {
    let Some(head) = FrameHead::parse(bytes) else { return Found::Incomplete };
    let length = head.frame_length();
    if head.kind != HEADERS || length > BLOCK_MAX_BYTES {
        return Found::Other { length };
    }
    let Some(first) = head.fragment(bytes) else { return Found::Incomplete };
    if first.start > first.end {
        return Found::Other { length };
    }
    let mut block = Block { first, rest: Vec::new(), end: length };
    let mut has_ended = head.has(END_HEADERS);
    while !has_ended {
        let Some(next) = bytes.get(block.end..).and_then(FrameHead::parse) else {
            return Found::Incomplete;
        };
        let end = block.end + next.frame_length();
        // The frames behind those that pass here are no beginning of a block, and pass as well.
        if next.kind != CONTINUATION || end > BLOCK_MAX_BYTES || block.rest.len() + 1 == BLOCK_FRAMES_MAX {
            return Found::Other { length: block.end };
        }
        block.rest.push(block.end + HEAD_BYTES..end);
        block.end = end;
        has_ended = next.has(END_HEADERS);
    }
    if bytes.len() < block.end { Found::Incomplete } else { Found::Block(block) }
}

/// The first bytes of a frame.
struct FrameHead {
    payload_length: usize,
    kind: u8,
    flags: u8,
}

impl FrameHead {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [high, mid, low, kind, flags, ..] = *bytes.get(..HEAD_BYTES)? else { return None };
        let payload_length = u32::from_be_bytes([0, high, mid, low]) as usize;
        Some(Self { payload_length, kind, flags })
    }

    fn frame_length(&self) -> usize {
        HEAD_BYTES + self.payload_length
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Where the headers of a HEADERS frame are, between its fields and its padding; backwards if they overlap. `None`:
    /// the length of the padding has not arrived.
    fn fragment(&self, frame: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut end) = (HEAD_BYTES, self.frame_length());
        if self.has(PADDED) && self.payload_length > 0 {
            start += 1;
            end -= usize::from(*frame.get(HEAD_BYTES)?).min(self.payload_length);
        }
        if self.has(PRIORITY) {
            start += 5;
        }
        Some(start..end)
    }
}
