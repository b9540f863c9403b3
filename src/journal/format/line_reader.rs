//! Reads a journal's file line by line, in bounded memory. Does not parse the lines.

use std::io::{self, BufRead, BufReader, Read};

use super::line::MAX_LINE_BYTES;

/// How a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// With a newline.
    Newline,
    /// With the file.
    EndOfFile,
    /// The line is longer than any line of a journal; its rest was skipped.
    TooLong,
}

/// A line as it stands in the file.
#[derive(Debug)]
pub(crate) struct RawLine<'a> {
    /// 1-based.
    pub number: u64,
    /// Where it begins.
    pub offset: u64,
    /// Without its newline.
    pub bytes: &'a [u8],
    /// How it ends.
    pub ending: LineEnd,
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    source: BufReader<R>,
    buffer: Vec<u8>,
    number: u64,
    offset: u64,
}

impl<R: Read> LineReader<R> {
    pub fn new(source: R) -> Self {
        Self::at(source, 0, 0)
    }

    /// Of a source that has been moved to `offset`, behind `number` lines.
    pub fn at(source: R, offset: u64, number: u64) -> Self {
        Self { source: BufReader::with_capacity(128 * 1024, source), buffer: Vec::new(), number, offset }
    }

    /// The next line; `None` at the end of the file.
    pub fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.buffer.clear();
        let limit = MAX_LINE_BYTES as u64;
        let taken = self.source.by_ref().take(limit).read_until(b'\n', &mut self.buffer)?;
        if taken == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        self.number += 1;
        self.offset += taken as u64;
        let ending = if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            LineEnd::Newline
        } else if taken < MAX_LINE_BYTES {
            LineEnd::EndOfFile
        } else {
            self.skip_line()?;
            LineEnd::TooLong
        };
        Ok(Some(RawLine { number: self.number, offset, bytes: &self.buffer, ending }))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let available = self.source.fill_buf()?;
            if available.is_empty() {
                return Ok(());
            }
            let end = available.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let passed = end.unwrap_or(available.len());
            self.source.consume(passed);
            self.offset += passed as u64;
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_offsets_and_endings() {
        let long = vec![b'x'; MAX_LINE_BYTES + 5];
        let text = [b"one\n\n".as_slice(), &long, b"\nend"].concat();
        let mut reader = LineReader::new(text.as_slice());
        let mut seen = Vec::new();
        while let Some(line) = reader.next().unwrap() {
            seen.push((line.number, line.offset, line.bytes.len(), line.ending));
        }
        let after = 5 + long.len() as u64 + 1;
        assert_eq!(
            seen,
            [
                (1, 0, 3, LineEnd::Newline),
                (2, 4, 0, LineEnd::Newline),
                (3, 5, MAX_LINE_BYTES, LineEnd::TooLong),
                (4, after, 3, LineEnd::EndOfFile),
            ]
        );
    }
}
