//! The keys with which a person leaves a terminal that goes on running.
//!
//! What may be their beginning is held back until the next key says. Pure.

use std::str::FromStr;

/// A sequence of keys, and how much of it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct DetachKeys {
    keys: Vec<u8>,
    typed: usize,
}

/// What becomes of typed bytes.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Typed {
    /// These are for the command.
    Pass(Vec<u8>),
    /// Leave, after these.
    Detach(Vec<u8>),
}

impl FromStr for DetachKeys {
    type Err = String;

    /// As docker has them: keys with commas between them, each a character or `ctrl-` and one of a-z @ [ \ ] ^ _.
    fn from_str(text: &str) -> Result<Self, String> {
        let key = |key: &str| match key.as_bytes() {
            [key] if key.is_ascii_graphic() => Ok(*key),
            [b'c', b't', b'r', b'l', b'-', key @ (b'a'..=b'z' | b'@' | b'['..=b'_')] => Ok(key & 0x1f),
            _ => Err(format!("{key:?} is no key: write a character, or ctrl- and a letter")),
        };
        let keys = text.split(',').filter(|_| !text.is_empty()).map(key).collect::<Result<_, _>>()?;
        Ok(Self { keys, typed: 0 })
    }
}

impl DetachKeys {
    /// No keys leave.
    pub(in crate::cli) fn none() -> Self {
        Self { keys: Vec::new(), typed: 0 }
    }

    /// Takes typed bytes.
    pub(in crate::cli) fn take(&mut self, typed: &[u8]) -> Typed {
        let mut passed = Vec::with_capacity(typed.len());
        for &byte in typed {
            if self.keys.get(self.typed) == Some(&byte) {
                self.typed += 1;
                if self.typed == self.keys.len() {
                    self.typed = 0;
                    return Typed::Detach(passed);
                }
                continue;
            }
            passed.extend_from_slice(&self.keys[..self.typed]);
            self.typed = usize::from(self.keys.first() == Some(&byte));
            if self.typed == 0 {
                passed.push(byte);
            }
        }
        Typed::Pass(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> DetachKeys {
        text.parse().unwrap()
    }

    #[test]
    fn keys_are_written_as_in_docker() {
        assert_eq!(keys("ctrl-p,ctrl-q").keys, [16, 17]);
        assert_eq!(keys("ctrl-@,ctrl-[,a").keys, [0, 27, b'a']);
        assert_eq!(keys(""), DetachKeys::none());
        for wrong in ["ctrl-", "ctrl-P", "ab", ",", "a,", "ctrl-é"] {
            assert!(wrong.parse::<DetachKeys>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_beginning_is_held_back_until_it_is_none() {
        let mut detach = keys("ctrl-p,ctrl-q");
        assert_eq!(detach.take(b"ab\x10"), Typed::Pass(b"ab".to_vec()));
        assert_eq!(detach.take(b"c"), Typed::Pass(b"\x10c".to_vec()));
        assert_eq!(detach.take(b"\x10\x10"), Typed::Pass(b"\x10".to_vec()));
        assert_eq!(detach.take(b"\x11never"), Typed::Detach(Vec::new()));
        assert_eq!(detach.take(b"x\x10\x11"), Typed::Detach(b"x".to_vec()));
        assert_eq!(DetachKeys::none().take(b"\x10\x11"), Typed::Pass(b"\x10\x11".to_vec()));
    }
}
