//! Lines of a stream, with a bound: what every front end reads its client's messages by.
//!
//! A line that is too long is dropped to its end and reported by its beginning and its end, so that it costs one message and can be
//! answered by its id.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a line that is too long is kept: of its beginning, and of its end.
const BEGINNING_BYTES: usize = 64 << 10;
const END_BYTES: usize = 1 << 10;
/// What is read at once, at least.
const CHUNK_BYTES: usize = 64 << 10;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    /// A line, with its end.
    Complete(Bytes),
    /// A line that is longer than may be. What is between was dropped.
    TooLong {
        /// Its first bytes.
        beginning: Bytes,
        /// Its last ones, without the line end; those of the beginning where it is hardly too long.
        end: Bytes,
    },
    /// What stood after the last line end. The writer has gone away.
    Unfinished(Bytes),
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    from: R,
    max_bytes: usize,
    buffer: BytesMut,
    /// Up to here there is no line end in the buffer.
    searched: usize,
    /// The beginning of a line that is being dropped.
    dropping: Option<Bytes>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// `max_bytes`: of a line, its end not counted.
    pub(crate) fn new(from: R, max_bytes: usize) -> Self {
        Self { from, max_bytes, buffer: BytesMut::new(), searched: 0, dropping: None }
    }

    /// The next line; none at the end. May be dropped and called again without losing any.
    pub(crate) async fn next(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            self.buffer.reserve(CHUNK_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.rest());
            }
        }
    }

    fn buffered(&mut self) -> Option<InputLine> {
        let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.drop_when_too_long();
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + at + 1).freeze();
        self.searched = 0;
        let text = line.slice(..line.len() - 1);
        if self.dropping.is_none() && text.len() <= self.max_bytes {
            return Some(InputLine::Complete(line));
        }
        Some(self.too_long(&text))
    }

    /// A new buffer takes the place of a large one, whose memory goes.
    fn drop_when_too_long(&mut self) {
        if self.dropping.is_none() && self.buffer.len() > self.max_bytes {
            self.dropping = Some(Bytes::copy_from_slice(first(&self.buffer)));
        }
        if self.dropping.is_some() {
            self.buffer = BytesMut::from(last(&self.buffer));
        }
    }

    fn too_long(&mut self, text: &[u8]) -> InputLine {
        let beginning = self.dropping.take().unwrap_or_else(|| Bytes::copy_from_slice(first(text)));
        InputLine::TooLong { beginning, end: Bytes::copy_from_slice(last(text)) }
    }

    fn rest(&mut self) -> Option<InputLine> {
        self.searched = 0;
        let rest = self.buffer.split().freeze();
        match self.dropping {
            Some(_) => Some(self.too_long(&rest)),
            None => (!rest.is_empty()).then_some(InputLine::Unfinished(rest)),
        }
    }
}

fn first(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(BEGINNING_BYTES)]
}

fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(END_BYTES)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn line(text: &[u8]) -> Option<InputLine> {
        Some(InputLine::Complete(Bytes::copy_from_slice(text)))
    }

    #[tokio::test]
    async fn lines_come_whole_and_the_last_one_is_unfinished() {
        let mut lines = LineReader::new(&b"a\n\nbc\r\nd"[..], MAX);
        for expected in [&b"a\n"[..], b"\n", b"bc\r\n"] {
            assert_eq!(lines.next().await.unwrap(), line(expected));
        }
        assert_eq!(lines.next().await.unwrap(), Some(InputLine::Unfinished(Bytes::from_static(b"d"))));
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_one_line() {
        for more in [1, 5, CHUNK_BYTES, 3 * MAX] {
            let mut text = b"begin".to_vec();
            text.resize(MAX + more - 3, b'x');
            text.extend_from_slice(b"end\nnext\n");
            let mut lines = LineReader::new(&text[..], MAX);
            let Some(InputLine::TooLong { beginning, end }) = lines.next().await.unwrap() else {
                panic!("{more} more");
            };
            assert!(beginning.starts_with(b"begin") && beginning.len() == BEGINNING_BYTES, "{more} more");
            assert!(end.ends_with(b"xend") && end.len() == END_BYTES, "{more} more");
            assert_eq!(lines.next().await.unwrap(), line(b"next\n"));
            assert_eq!(lines.next().await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_line_as_long_as_may_be_is_taken_and_one_without_an_end_is_too_long() {
        let mut text = vec![b'x'; MAX];
        text.push(b'\n');
        text.resize(3 * MAX, b'y');
        let mut lines = LineReader::new(&text[..], MAX);
        assert!(
            matches!(lines.next().await.unwrap(), Some(InputLine::Complete(line)) if line.len() == MAX + 1)
        );
        assert!(matches!(lines.next().await.unwrap(), Some(InputLine::TooLong { .. })));
        assert_eq!(lines.next().await.unwrap(), None);
    }
}
