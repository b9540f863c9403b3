//! Lists, chains and pipelines: how commands are put together, and what that does to the working directory.

use super::{
    Dialect, LineCwd, OpaqueReason, Word,
    parser::{ParseResult, Parser},
};

/// What a list goes on until.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The end of the part that is read.
    End,
    /// `)`.
    Parenthesis,
    /// One of these words in the place of a command.
    Words(&'static [&'static str]),
    /// `;;` and its kind, or `esac`.
    NextCase,
}

/// Whether a list has a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListContent {
    Empty,
    Commands,
}

impl Parser<'_> {
    pub(super) fn whole_line(&mut self) -> ParseResult<()> {
        self.list(Until::End)?;
        // A here-document without a newline behind its operator has no body.
        if self.pending.is_empty() { Ok(()) } else { self.fail(OpaqueReason::Syntax) }
    }

    /// A list that must hold a command.
    pub(super) fn body(&mut self, until: Until) -> ParseResult<()> {
        match self.list(until)? {
            ListContent::Commands => Ok(()),
            ListContent::Empty => self.fail(OpaqueReason::Syntax),
        }
    }

    pub(super) fn list(&mut self, until: Until) -> ParseResult<ListContent> {
        self.deeper(|reader| reader.list_here(until))
    }

    fn list_here(&mut self, until: Until) -> ParseResult<ListContent> {
        let mut held = ListContent::Empty;
        loop {
            self.lines()?;
            if self.is_over(until) {
                return Ok(held);
            }
            if self.is_at_end() {
                return self.fail(OpaqueReason::Syntax);
            }
            let before = self.state.place.clone();
            let defined = self.chain()?;
            held = ListContent::Commands;
            self.blanks();
            match (self.peek(), self.peek_at(1)) {
                (b';', b';' | b'&' | b'|') => {
                    if !self.is_over(until) {
                        return self.fail(OpaqueReason::Syntax);
                    }
                    self.define(defined);
                }
                (b';', _) => {
                    self.operator(1)?;
                    self.define(defined);
                }
                // In the background: a process of its own.
                (b'&', next) if next != b'&' => {
                    self.operator(1)?;
                    self.state.place = before;
                }
                (b'\n', _) => self.define(defined),
                _ if self.is_at_end() || self.is_over(until) => self.define(defined),
                _ => return self.fail(OpaqueReason::Syntax),
            }
        }
    }

    /// A definition that is a command of the line itself happens for certain.
    fn define(&mut self, name: Option<String>) {
        if let Some(name) = name.filter(|_| self.depth == 1) {
            self.state.define(name);
        }
    }

    fn is_over(&self, until: Until) -> bool {
        match until {
            Until::End => self.is_at_end(),
            Until::Parenthesis => self.peek() == b')',
            Until::Words(words) => self.reserved().is_some_and(|word| words.contains(&word)),
            Until::NextCase => {
                (self.peek() == b';' && matches!(self.peek_at(1), b';' | b'&' | b'|'))
                    || self.reserved() == Some("esac")
            }
        }
    }

    /// `a && b || c`. Says the name of the function that it defines, if it is a definition and nothing else.
    fn chain(&mut self) -> ParseResult<Option<String>> {
        let before = self.state.place.clone();
        let mut defined = self.pipeline()?;
        let mut is_certain = true;
        loop {
            self.blanks();
            let is_or = self.is_before("||");
            if !is_or && !self.is_before("&&") {
                break;
            }
            self.operator(2)?;
            self.lines()?;
            defined = None;
            // Behind `||`, what stands before it has failed, or a part of it has.
            is_certain &= !is_or || self.state.place == before;
            if !is_certain {
                self.state.place = LineCwd::Unknown;
            }
            let here = self.state.place.clone();
            self.pipeline()?;
            is_certain &= self.state.place == here;
            if is_or && !is_certain {
                self.state.place = LineCwd::Unknown;
            }
        }
        if !is_certain {
            self.state.place = LineCwd::Unknown;
        }
        Ok(defined)
    }

    fn pipeline(&mut self) -> ParseResult<Option<String>> {
        let is_timed = self.dialect != Dialect::Posix && self.reserved() == Some("time");
        if is_timed {
            self.time()?;
            if self.is_at_end() || matches!(self.peek(), b'\n' | b';' | b'&' | b'|' | b')') {
                return Ok(None);
            }
        }
        let is_negated = self.reserved() == Some("!");
        if is_negated {
            self.at += 1;
            if self.peek() == b'(' {
                // With extended patterns, which may be on, this is one.
                self.mark_opaque(self.at - 1, OpaqueReason::Dialect);
            }
            self.blanks();
        }
        let before = self.state.place.clone();
        let defined = self.command()?;
        self.blanks();
        if self.peek() != b'|' || self.peek_at(1) == b'|' {
            return Ok(defined.filter(|_| !is_negated && !is_timed));
        }
        // Each part is a process of its own; the last may be the shell itself.
        while self.peek() == b'|' && self.peek_at(1) != b'|' {
            let length = if self.peek_at(1) == b'&' { 2 } else { 1 };
            self.operator(length)?;
            self.lines()?;
            self.state.place = before.clone();
            self.command()?;
            self.blanks();
        }
        if self.state.place != before {
            self.state.place = LineCwd::Unknown;
        }
        Ok(None)
    }

    /// The word `time` before a pipeline, with its own option.
    fn time(&mut self) -> ParseResult<()> {
        self.emit(Vec::new(), vec![Word::Literal("time".into())])?;
        self.at += "time".len();
        self.blanks();
        for option in ["-p", "--"] {
            if self.is_before(option) && self.rest().get(2).is_none_or(|b| matches!(b, b' ' | b'\t' | b'\n'))
            {
                self.at += option.len();
                self.blanks();
            }
        }
        Ok(())
    }
}
