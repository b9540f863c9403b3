//! Finds marks in a terminal's output: control sequences that the shell's function writes, with a nonce each.
//!
//! Takes the output in pieces of any size. What it finds may have been written by any program in the terminal.

/// The longest text of a mark, in bytes: a path of the kernel's length, and the rest.
const MARK_MAX_BYTES: usize = 4_096 + 64;
const MARK_BEGIN: &[u8] = b"\x1b]7711;";
const MARK_END: u8 = 0x07;
/// What a program writes that takes the whole screen (DECSET 1049, xterm's control sequences).
const ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049h";

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The line with this nonce begins.
    Begun(String),
    /// The line with this nonce is over.
    Over(String),
    /// A prompt with this token.
    Prompt(String),
    /// The answer to a question: the exit status of what came before, and the directory.
    Answer {
        /// The nonce of the question.
        nonce: String,
        /// As the shell has it.
        status: u8,
        /// As the shell has it.
        cwd: String,
    },
    /// A program takes the whole screen. No mark of a shell's.
    AlternateScreen,
}

/// A mark and its place in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundMark {
    /// Which.
    pub mark: Mark,
    /// The offset of its first byte.
    pub begin: u64,
    /// The offset behind its last byte.
    pub end: u64,
}

/// Looks for marks in output that comes in pieces. Keeps at most the beginning of one.
#[derive(Debug)]
pub(crate) struct MarkScanner {
    /// A sequence that has begun and is not complete.
    partial: Vec<u8>,
    offset: u64,
}

impl MarkScanner {
    /// From an offset on.
    pub(crate) fn new(offset: u64) -> Self {
        Self { partial: Vec::new(), offset }
    }

    /// Up to where no mark has begun.
    pub(crate) fn settled_offset(&self) -> u64 {
        self.offset - self.partial.len() as u64
    }

    /// Goes on at a later offset: what lies before was lost.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        self.partial.clear();
        self.offset = offset;
    }

    /// Takes the bytes that come next.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<FoundMark> {
        let mut found = Vec::new();
        for &byte in bytes {
            self.offset += 1;
            if self.partial.is_empty() && byte != 0x1b {
                continue;
            }
            self.partial.push(byte);
            if self.partial == ALTERNATE_SCREEN {
                found.extend(self.take(Some(Mark::AlternateScreen)));
            } else if self.partial.starts_with(MARK_BEGIN) {
                if byte == MARK_END {
                    let mark = parse(&self.partial[MARK_BEGIN.len()..self.partial.len() - 1]);
                    found.extend(self.take(mark));
                } else if self.partial.len() > MARK_MAX_BYTES {
                    self.partial.clear();
                }
            } else if !MARK_BEGIN.starts_with(&self.partial) && !ALTERNATE_SCREEN.starts_with(&self.partial) {
                self.partial.clear();
                if byte == 0x1b {
                    self.partial.push(byte);
                }
            }
        }
        found
    }

    fn take(&mut self, mark: Option<Mark>) -> Option<FoundMark> {
        let begin = self.settled_offset();
        self.partial.clear();
        mark.map(|mark| FoundMark { mark, begin, end: self.offset })
    }
}

/// `KIND;NONCE;STATUS;DIRECTORY`.
fn parse(text: &[u8]) -> Option<Mark> {
    let text = std::str::from_utf8(text).ok()?;
    let mut parts = text.splitn(4, ';');
    let (kind, nonce) = (parts.next()?, parts.next()?.to_owned());
    let (status, cwd) = (parts.next()?, parts.next()?);
    match kind {
        "B" => Some(Mark::Begun(nonce)),
        "E" => Some(Mark::Over(nonce)),
        "P" => Some(Mark::Prompt(nonce)),
        "A" => Some(Mark::Answer { nonce, status: status.parse().ok()?, cwd: cwd.to_owned() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &[u8] = b"x\x1b]7711;B;1;0;/w\x07out\x1b[?1049h\x1b]0;t\x07\x1b\x1b]7711;E;1;0;/w\x07\x1b]7711;A;2;255;/a;b\x07";

    fn found_in(pieces: &[&[u8]]) -> Vec<FoundMark> {
        let mut scanner = MarkScanner::new(100);
        pieces.iter().flat_map(|piece| scanner.feed(piece)).collect()
    }

    #[test]
    fn marks_are_found_however_the_output_is_cut() {
        let whole = found_in(&[OUTPUT]);
        let kinds: Vec<&Mark> = whole.iter().map(|found| &found.mark).collect();
        let answer = Mark::Answer { nonce: "2".into(), status: 255, cwd: "/a;b".into() };
        assert_eq!(
            kinds,
            [&Mark::Begun("1".into()), &Mark::AlternateScreen, &Mark::Over("1".into()), &answer]
        );
        assert_eq!((whole[0].begin, whole[0].end), (101, 117));
        for at in 0..OUTPUT.len() {
            assert_eq!(found_in(&[&OUTPUT[..at], &OUTPUT[at..]]), whole, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = OUTPUT.chunks(1).collect();
        assert_eq!(found_in(&bytes), whole);
    }

    #[test]
    fn what_has_begun_is_not_settled_and_what_never_ends_is_forgotten() {
        let mut scanner = MarkScanner::new(0);
        assert!(scanner.feed(b"ab\x1b]77").is_empty());
        assert_eq!(scanner.settled_offset(), 2);
        assert!(scanner.feed(b"x").is_empty());
        assert_eq!(scanner.settled_offset(), 7);
        scanner.feed(MARK_BEGIN);
        scanner.feed(&vec![b'.'; MARK_MAX_BYTES]);
        assert!(scanner.settled_offset() > MARK_MAX_BYTES as u64);
        assert_eq!(scanner.feed(b"\x1b]7711;P;t;;\x07").len(), 1);
    }

    #[test]
    fn what_is_no_mark_is_none() {
        for other in [
            &b"\x1b]7711;B;1\x07"[..],
            b"\x1b]7711;A;1;256;/\x07",
            b"\x1b]7711;A;1;;/\x07",
            b"\x1b]7711;X;1;0;/\x07",
            b"\x1b]7711;A;1;0;/\xff\x07",
            b"\x1b]7711\x07",
        ] {
            assert_eq!(found_in(&[other]), []);
        }
    }
}
