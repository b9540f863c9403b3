//! Commands that have words of their own: groups, conditions, loops, functions, and `[[ ... ]]`, whose words and operators are no commands.
//!
//! In `[[ ... ]]` it is noted what dash would take for a program. Words that the shell may take for arithmetic must not hide commands.

use super::{
    Dialect, LineCwd, OpaqueReason, Word, holds_substitution,
    lists::Until,
    parser::{ParseResult, Parser, is_delimiter, name_length},
    quoting::Context,
    simple::takes_for_word,
};

impl Parser<'_> {
    /// One command of any kind. Says the name of the function that it defines, if it does nothing else.
    pub(super) fn command(&mut self) -> ParseResult<Option<String>> {
        match self.reserved() {
            None if self.peek() != b'(' => return self.simple(),
            Some(word) if takes_for_word(word, self.dialect) => return self.simple(),
            Some("function") => return self.function_by_word(),
            _ => {}
        }
        self.compound()?;
        self.redirections()?;
        Ok(None)
    }

    fn compound(&mut self) -> ParseResult<()> {
        match self.reserved() {
            None if self.is_before("((") => self.arithmetic_command(),
            None if self.peek() == b'(' => self.subshell(),
            Some("{") => {
                self.at += 1;
                self.body(Until::Words(&["}"]))?;
                self.expect("}")
            }
            Some("[[") => self.condition(),
            Some("if") => self.perhaps(Self::if_then),
            Some("case") => self.perhaps(Self::case),
            Some("while" | "until") => self.repeatedly(Self::while_do),
            Some("for" | "select") => self.repeatedly(Self::for_do),
            // bash takes no simple command for a function's body, and no other word begins a command.
            Some(_) | None => self.fail(OpaqueReason::Syntax),
        }
    }

    fn subshell(&mut self) -> ParseResult<()> {
        self.operator(1)?;
        self.apart(|reader| reader.body(Until::Parenthesis))?;
        self.at += 1;
        Ok(())
    }

    fn if_then(&mut self) -> ParseResult<()> {
        self.expect("if")?;
        loop {
            self.body(Until::Words(&["then"]))?;
            self.expect("then")?;
            self.body(Until::Words(&["elif", "else", "fi"]))?;
            match self.reserved() {
                Some("elif") => self.at += "elif".len(),
                Some("else") => {
                    self.at += "else".len();
                    self.body(Until::Words(&["fi"]))?;
                    return self.expect("fi");
                }
                _ => return self.expect("fi"),
            }
        }
    }

    /// What runs again and again: what is at its end holds for its beginning, too.
    fn repeatedly(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<()>) -> ParseResult<()> {
        let first = self.line.commands.len();
        let before = self.state.place.clone();
        read(self)?;
        let commands = first..self.line.commands.len();
        if self.state.place != before {
            self.state.place = LineCwd::Unknown;
            for command in &mut self.line.commands[commands.clone()] {
                command.place = LineCwd::Unknown;
            }
        }
        self.line.loops.push(commands);
        Ok(())
    }

    fn while_do(&mut self) -> ParseResult<()> {
        self.at += "while".len();
        self.body(Until::Words(&["do"]))?;
        self.do_done()
    }

    fn do_done(&mut self) -> ParseResult<()> {
        self.expect("do")?;
        self.body(Until::Words(&["done"]))?;
        self.expect("done")
    }

    fn for_do(&mut self) -> ParseResult<()> {
        if self.reserved() == Some("select") && self.dialect == Dialect::Posix {
            self.mark_opaque(self.at, OpaqueReason::Dialect);
        }
        let is_for = self.peek() == b'f';
        self.at += if is_for { "for".len() } else { "select".len() };
        self.blanks();
        if self.is_before("((") {
            self.operator(2)?;
            self.arithmetic_of_for()?;
        } else {
            let length = name_length(self.rest());
            let name = self.text[self.at..self.at + length].to_owned();
            self.at += length;
            if length == 0 || !matches!(self.peek(), b' ' | b'\t' | b'\n' | b';' | 0) {
                return self.fail(OpaqueReason::Syntax);
            }
            self.assign([name])?;
            self.blanks();
            if self.peek() != b';' {
                self.lines()?;
            }
            if self.reserved() == Some("in") {
                self.at += "in".len();
                self.blanks();
                while !matches!(self.peek(), 0 | b'\n' | b';') {
                    self.plain_word()?;
                    self.blanks();
                }
            }
        }
        self.blanks();
        if self.peek() == b';' {
            self.operator(1)?;
        }
        self.lines()?;
        self.do_done()
    }

    fn case(&mut self) -> ParseResult<()> {
        self.expect("case")?;
        self.blanks();
        self.plain_word()?;
        self.lines()?;
        self.expect("in")?;
        loop {
            self.lines()?;
            if self.reserved() == Some("esac") {
                return self.expect("esac");
            }
            self.case_patterns()?;
            self.list(Until::NextCase)?;
            if self.reserved() == Some("esac") {
                return self.expect("esac");
            }
            let is_longer = self.is_before(";;&");
            self.operator(if is_longer { 3 } else { 2 })?;
        }
    }

    fn case_patterns(&mut self) -> ParseResult<()> {
        if self.peek() == b'(' {
            self.operator(1)?;
            self.blanks();
        }
        loop {
            if self.reserved().is_some() {
                return self.fail(OpaqueReason::Syntax);
            }
            self.plain_word()?;
            self.blanks();
            match self.peek() {
                b')' => return self.operator(1),
                b'|' => self.operator(1)?,
                _ => return self.fail(OpaqueReason::Syntax),
            }
            self.blanks();
        }
    }

    /// `function NAME [()] ...`: to dash, a program of this name.
    fn function_by_word(&mut self) -> ParseResult<Option<String>> {
        if self.dialect == Dialect::Posix {
            return self.fail(OpaqueReason::Dialect);
        }
        self.at += "function".len();
        self.blanks();
        let name = self.any_word()?;
        let Some(name) = name.plain().filter(|name| is_function_name(name)).map(str::to_owned) else {
            return self.fail(OpaqueReason::Dialect);
        };
        self.blanks();
        if self.peek() == b'(' {
            self.operator(1)?;
            self.function_body(name)
        } else {
            self.body_of(name)
        }
    }

    /// What stands behind `NAME (`.
    pub(super) fn function_body(&mut self, name: String) -> ParseResult<Option<String>> {
        self.blanks();
        if self.peek() != b')' || !is_function_name(&name) {
            return self.fail(OpaqueReason::Syntax);
        }
        self.operator(1)?;
        self.body_of(name)
    }

    fn body_of(&mut self, name: String) -> ParseResult<Option<String>> {
        self.lines()?;
        let first = self.line.commands.len();
        let before = self.state.place.clone();
        self.state.enter_body(&name);
        self.compound()?;
        self.state.leave_body(first..self.line.commands.len(), &before);
        let redirections = self.redirections()?;
        let is_name = name_length(name.as_bytes()) == name.len();
        // A definition with redirections, or of a name that sh does not take, is not counted on.
        let is_plain = redirections == 0 && (is_name || self.dialect != Dialect::Posix);
        Ok(Some(name).filter(|_| is_plain))
    }
}

fn is_function_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:+".contains(&b))
}

impl Parser<'_> {
    pub(super) fn condition(&mut self) -> ParseResult<()> {
        let start = self.at;
        self.at += "[[".len();
        let mut open = 0_usize;
        let mut words = 0_usize;
        let mut context = Context::Plain;
        // As a program would be given them.
        let mut written = vec![Word::Literal("[[".into())];
        // Where the word before this one stands, and whether it has this one taken for arithmetic.
        let (mut before, mut is_operand) = (self.at..self.at, false);
        loop {
            self.blanks();
            match self.peek() {
                b']' if self.is_before("]]") && self.rest().get(2).is_none_or(|b| is_delimiter(*b)) => break,
                b'(' if context == Context::Plain => {
                    open += 1;
                    self.operator(1)?;
                }
                b')' if open > 0 => {
                    open -= 1;
                    self.operator(1)?;
                }
                b'&' | b'|' if self.is_before("&&") || self.is_before("||") => {
                    self.operator(2)?;
                    self.inner_lines()?;
                }
                b'<' | b'>' if self.peek_at(1) != b'(' => self.operator(1)?,
                b'\n' | 0 => return self.fail(OpaqueReason::Syntax),
                _ => {
                    let word = self.word(context)?;
                    words += 1;
                    // `[[ A -eq B ]]` takes both for arithmetic.
                    if holds_substitution(&word.value) {
                        self.mark_opaque(word.start, OpaqueReason::Assignment);
                    }
                    let here = word.start..word.end;
                    let compares =
                        matches!(word.value.as_str(), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge");
                    if compares {
                        self.evaluated(before)?;
                    }
                    if is_operand {
                        self.evaluated(here.clone())?;
                    }
                    is_operand = compares || matches!(word.value.as_str(), "-v" | "-R");
                    before = here;
                    context = match word.plain() {
                        Some("=~") if context == Context::Plain => Context::Expression,
                        Some("=" | "==" | "!=") if context == Context::Plain => Context::Pattern,
                        _ => Context::Plain,
                    };
                    written.push(word.finish(self.text));
                }
            }
        }
        if open > 0 || words == 0 || context != Context::Plain {
            return self.fail(OpaqueReason::Syntax);
        }
        // To dash these are words of a program, and operators between commands; to busybox words without them.
        let operators = ['&', '|', '<', '>', '(', ')', '\n', ';'];
        if self.dialect == Dialect::Posix {
            if self.text[start..self.at].contains(operators) {
                self.mark_opaque(start, OpaqueReason::Dialect);
            }
            written.push(Word::Literal("]]".into()));
            self.emit(Vec::new(), written)?;
        }
        self.at += "]]".len();
        Ok(())
    }
}
