//! Frames of the protocols between a gateway and the processes of its sandboxes: supervisor, gate, screen and net process. Pure.
//!
//! A frame is a `u32` little-endian length of the message, a `u8` number of descriptors that belong to it, and
//! the message. This module turns messages into bytes and bytes into frames. It does no I/O, holds no
//! descriptor, and refuses a frame longer than [`MAX_MESSAGE_BYTES`] as soon as its length is known.

pub mod gate;
pub mod launch;
pub mod net;
pub mod screen;
pub mod subreaper;
pub mod versions;

use prost::Message;

/// The longest message that a frame may carry.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Bytes in front of each message: the length and the number of descriptors.
pub const HEADER_BYTES: usize = 5;

/// The most descriptors that one frame may carry: what one SCM_RIGHTS message can (`SCM_MAX_FD`, unix(7)).
pub const MAX_DESCRIPTORS: usize = 253;

/// Why a message cannot become a frame.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EncodeError {
    /// The message is too long.
    #[error("message of {0} bytes, more than {MAX_MESSAGE_BYTES}")]
    TooLong(usize),
    /// Too many descriptors for one frame.
    #[error("{0} descriptors for one frame, more than {MAX_DESCRIPTORS}")]
    TooManyDescriptors(usize),
}

/// Why bytes are not frames. The connection cannot be used any more.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The announced length is above the bound.
    #[error("frame announces {0} bytes, more than {MAX_MESSAGE_BYTES}")]
    TooLong(usize),
    /// The announced number of descriptors is above the bound.
    #[error("frame announces {0} descriptors, more than {MAX_DESCRIPTORS}")]
    TooManyDescriptors(usize),
}

/// Makes the frame of `message`, which goes with `descriptors` descriptors.
pub fn encode(message: &impl Message, descriptors: usize) -> Result<Vec<u8>, EncodeError> {
    let length = message.encoded_len();
    if length > MAX_MESSAGE_BYTES {
        return Err(EncodeError::TooLong(length));
    }
    if descriptors > MAX_DESCRIPTORS {
        return Err(EncodeError::TooManyDescriptors(descriptors));
    }
    let mut frame = Vec::with_capacity(HEADER_BYTES + length);
    frame.extend_from_slice(&(length as u32).to_le_bytes());
    frame.push(descriptors as u8);
    message.encode_raw(&mut frame);
    Ok(frame)
}

/// One received message, still encoded, and the number of descriptors that came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// The protobuf message.
    pub message: Vec<u8>,
    /// How many descriptors belong to it.
    pub descriptors: usize,
}

/// Holds at most one incomplete frame and the bytes after it; the caller takes out the frames before it feeds more.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Everything before this was already given out.
    start: usize,
}

impl Decoder {
    /// Takes in the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, if its bytes are here.
    pub fn next_frame(&mut self) -> Result<Option<RawFrame>, DecodeError> {
        let rest = &self.buffer[self.start..];
        let Some((header, body)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, count] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let descriptors = usize::from(count);
        if length > MAX_MESSAGE_BYTES {
            return Err(DecodeError::TooLong(length));
        }
        if descriptors > MAX_DESCRIPTORS {
            return Err(DecodeError::TooManyDescriptors(descriptors));
        }
        let Some(message) = body.get(..length) else {
            return Ok(None);
        };
        let frame = RawFrame { message: message.to_vec(), descriptors };
        self.start += HEADER_BYTES + length;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            // One long message must not pin its memory for the rest of the connection's life.
            self.buffer.shrink_to(64 << 10);
        }
        Ok(Some(frame))
    }

    /// Whether the stream may end here: no part of a frame is waiting for its rest.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.buffer.len() == self.start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::supervisor::{ToSupervisor, WriteStdin, to_supervisor::Request};

    fn message(sequence: u64, data: Vec<u8>) -> ToSupervisor {
        let request = WriteStdin { terminal_id: "t".into(), data: data.into(), eof: false, offset: None };
        ToSupervisor { sequence, request: Some(Request::WriteStdin(request)) }
    }

    #[test]
    fn a_message_above_the_bound_is_not_encoded() {
        let long = message(1, vec![0; MAX_MESSAGE_BYTES]);
        assert_eq!(encode(&long, 0), Err(EncodeError::TooLong(long.encoded_len())));
    }

    #[test]
    fn a_frame_above_the_bound_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::default();
        decoder.feed(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder.feed(&[0]);
        assert_eq!(decoder.next_frame(), Err(DecodeError::TooLong(u32::MAX as usize)));
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        assert_eq!(encode(&message(1, vec![]), 254), Err(EncodeError::TooManyDescriptors(254)));
        let mut decoder = Decoder::default();
        decoder.feed(&[0, 0, 0, 0, 255]);
        assert_eq!(decoder.next_frame(), Err(DecodeError::TooManyDescriptors(255)));
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
            sizes in prop::collection::vec((0usize..3000, 0usize..=MAX_DESCRIPTORS), 1..8),
            cut in 1usize..4000,
        ) {
            let sent: Vec<_> = sizes.iter().enumerate()
                .map(|(n, (size, fds))| (message(n as u64, vec![n as u8; *size]), *fds)).collect();
            let mut stream = Vec::new();
            for (message, fds) in &sent {
                stream.extend(encode(message, *fds).unwrap());
            }
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push((ToSupervisor::decode(&frame.message[..]).unwrap(), frame.descriptors));
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(decoder.is_at_boundary());
        }

        #[test]
        fn no_stream_of_bytes_makes_the_decoder_fall(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
