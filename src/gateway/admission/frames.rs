//! Meters a connection: reads the headers of its HTTP/2 frames and adds up their costs.
//!
//! It decodes only the nine bytes of a frame header (RFC 9113, 4.1). The HTTP/2 library handles the frames, and closes
//! a connection that does not speak HTTP/2.

/// The bytes that a client's connection begins with (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// A DATA frame shorter than this, which does not end its stream, costs more.
const SMALL_BYTES: u32 = 64;

/// Where in the bytes of a connection a reader is.
#[derive(Debug, Default)]
pub(super) struct FrameMeter {
    preface: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    payload_left: usize,
    begun: bool,
}

impl FrameMeter {
    /// Whether the preface and the head of a first frame have come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Goes over bytes that have arrived, and returns what the frames that begin in them cost.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u32 {
        let mut units = 0_u32;
        let preface = bytes.len().min(PREFACE_BYTES - self.preface);
        self.preface += preface;
        bytes = &bytes[preface..];
        while !bytes.is_empty() {
            let payload = bytes.len().min(self.payload_left);
            self.payload_left -= payload;
            bytes = &bytes[payload..];
            let head = bytes.len().min(HEAD_BYTES - self.head_len);
            if self.payload_left > 0 || head == 0 {
                continue;
            }
            self.head[self.head_len..self.head_len + head].copy_from_slice(&bytes[..head]);
            self.head_len += head;
            bytes = &bytes[head..];
            if self.head_len == HEAD_BYTES {
                let [high, mid, low, kind, flags, ..] = self.head;
                let length = u32::from_be_bytes([0, high, mid, low]);
                units = units.saturating_add(cost(kind, flags, length));
                self.payload_left = length as usize;
                self.head_len = 0;
                self.begun = true;
            }
        }
        units
    }
}

/// What a frame costs, about in the time that it takes to handle it. Frames that callers need few of cost more than
/// their time.
fn cost(kind: u8, flags: u8, length: u32) -> u32 {
    const END_STREAM: u8 = 1;
    match kind {
        // DATA, and crumbs of it.
        0 if length < SMALL_BYTES && flags & END_STREAM == 0 => 12,
        0 => 1,
        // HEADERS: a call.
        1 => 8,
        // PRIORITY, PING.
        2 | 6 => 5,
        // WINDOW_UPDATE: one for each few pieces of output that a client takes.
        8 => 1,
        // CONTINUATION.
        9 => 5,
        // RST_STREAM, SETTINGS, PUSH_PROMISE, GOAWAY, unknown ones.
        _ => 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD_BYTES + payload, 0x55);
        bytes
    }

    #[test]
    fn frames_are_counted_alike_however_their_bytes_arrive() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for one in [frame(4, 0, 18), frame(1, 4, 300), frame(0, 0, 1), frame(0, 1, 0), frame(6, 0, 8)] {
            bytes.extend(one);
        }
        let expected = 20 + 8 + 12 + 1 + 5;
        for piece in [1, 2, 7, 24, 33, 1_000] {
            let mut frames = FrameMeter::default();
            let units: u32 = bytes.chunks(piece).map(|chunk| frames.count(chunk)).sum();
            assert_eq!(units, expected, "in pieces of {piece}");
            assert!(frames.has_begun());
        }
    }

    #[test]
    fn a_connection_has_not_begun_before_the_head_of_its_first_frame() {
        let mut frames = FrameMeter::default();
        frames.count(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.count(&frame(4, 0, 0)[..8]);
        assert!(!frames.has_begun());
    }
}
