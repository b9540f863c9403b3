//! What a line does to its own shell as it goes along: the working directory, and names that become functions.
//!
//! Only what surely happens is followed. A `cd` that may not have happened makes the directory unknown; whatever might
//! take a function away makes its name that of a program again.

use std::ops::Range;

use super::{LineCwd, Named, SimpleCommand, Word};

/// What is known of the shell at one point of the line.
#[derive(Debug)]
pub(super) struct ShellState {
    /// The working directory.
    pub(super) place: LineCwd,
    /// Functions that are surely defined.
    functions: Vec<String>,
    /// Functions that may be.
    pub(super) defined: Vec<String>,
    /// Something defined earlier (a function, a trap) may change the directory whenever it runs.
    is_unsteady: bool,
    /// A `trap ... DEBUG` or its kind may change it before every command.
    is_lost: bool,
    /// Something in the line changes the directory, wherever it stands.
    moves: bool,
    /// Functions may have been taken away by something that cannot be followed.
    forgets: bool,
    /// Commands that run later than where they stand.
    deferred: Vec<Range<usize>>,
    /// Function bodies around what is being read.
    bodies: usize,
}

impl Default for ShellState {
    fn default() -> Self {
        Self {
            place: LineCwd::Start,
            functions: Vec::new(),
            defined: Vec::new(),
            is_unsteady: false,
            is_lost: false,
            moves: false,
            forgets: false,
            deferred: Vec::new(),
            bodies: 0,
        }
    }
}

impl ShellState {
    /// Whether a command names a function that is surely defined.
    pub(super) fn named(&self, words: &[Word]) -> Named {
        match words.first().and_then(Word::literal) {
            Some(name) if self.functions.iter().any(|function| function == name) => Named::Function,
            _ => Named::Program,
        }
    }

    /// A function's body begins.
    pub(super) fn enter_body(&mut self, name: &str) {
        self.bodies += 1;
        self.defined.push(name.to_owned());
    }

    /// It ends; `commands` are those in it, and `before` the directory where it began.
    pub(super) fn leave_body(&mut self, commands: Range<usize>, before: &LineCwd) {
        self.bodies -= 1;
        self.deferred.push(commands);
        if self.place != *before {
            self.place = LineCwd::Unknown;
            self.is_unsteady = true;
        }
    }

    /// A definition that surely happened.
    pub(super) fn define(&mut self, name: String) {
        if !self.forgets {
            self.functions.push(name);
        }
    }

    /// What a command does to what comes behind it.
    pub(super) fn follow(&mut self, words: &[Word]) {
        let Some((command, arguments)) = words.split_first() else { return };
        let Some(name) = command.literal() else {
            // It is evaluated as any command whatever; as any, it may also be a `cd`.
            return self.lose_cwd();
        };
        let is_redefined = self.defined.iter().any(|defined| defined == name);
        match name {
            _ if is_redefined && self.is_unsteady => self.lose_cwd(),
            "cd" if !is_redefined => self.change_cwd(arguments),
            "cd" | "pushd" | "popd" | "chdir" => self.lose_cwd(),
            "trap" if mentions(arguments, &MOVING) => {
                self.lose_cwd();
                self.is_unsteady = true;
                self.is_lost = true;
            }
            "eval" | "command" | "builtin" | "exec" | "time" | "noglob" | "nocorrect" | "-" | "repeat"
                if mentions(arguments, &MOVING) =>
            {
                self.lose_cwd();
            }
            "." | "source" => self.lose_cwd(),
            _ => {}
        }
        match name {
            "unset" if self.bodies == 0 && self.keeps_functions(arguments) => {}
            "unset" | "unfunction" | "unhash" | "disable" => self.forgets_functions(),
            "eval" | "trap" | "command" | "builtin" | "noglob" | "nocorrect" | "-" | "repeat" | "time"
                if arguments
                    .iter()
                    .filter_map(Word::literal)
                    .any(|text| FORGETTING.iter().any(|name| text.contains(name))) =>
            {
                self.forgets_functions();
            }
            _ => {}
        }
        if self.is_lost {
            self.place = LineCwd::Unknown;
        }
    }

    /// The line has been read: what runs later than it stands runs where the directory may have become another.
    pub(super) fn finish(&self, commands: &mut [SimpleCommand]) {
        if !self.moves {
            return;
        }
        for range in &self.deferred {
            for command in commands.get_mut(range.clone()).into_iter().flatten() {
                command.place = LineCwd::Unknown;
            }
        }
        for command in commands {
            if command.words.first().and_then(Word::literal) == Some("trap") {
                command.place = LineCwd::Unknown;
            }
        }
    }

    fn lose_cwd(&mut self) {
        self.moves = true;
        self.place = LineCwd::Unknown;
    }

    fn forgets_functions(&mut self) {
        self.functions.clear();
        // What stands in a function or a trap may run at any time.
        self.forgets = true;
    }

    /// Whether an `unset` names nothing but variables that are no functions, too.
    fn keeps_functions(&self, arguments: &[Word]) -> bool {
        arguments.iter().all(|word| {
            word.literal().is_some_and(|text| {
                text == "-v" || (!text.starts_with('-') && !self.defined.iter().any(|name| name == text))
            })
        })
    }

    fn change_cwd(&mut self, arguments: &[Word]) {
        self.moves = true;
        let mut target = None;
        for word in arguments {
            match word.literal() {
                Some("-L" | "--") if target.is_none() => {}
                Some(text) if target.is_none() && !text.starts_with('-') => target = Some(text),
                _ => return self.place = LineCwd::Unknown,
            }
        }
        self.place = match (target, &self.place) {
            (Some(target), _) if target.starts_with('/') => LineCwd::After(target.to_owned()),
            (Some(target), LineCwd::Start) => LineCwd::After(target.to_owned()),
            (Some(target), LineCwd::After(base)) => LineCwd::After(format!("{base}/{target}")),
            (None, _) | (_, LineCwd::Unknown) => LineCwd::Unknown,
        };
    }
}

const MOVING: [&str; 4] = ["cd", "pushd", "popd", "chdir"];
const FORGETTING: [&str; 4] = ["unset", "unfunction", "unhash", "disable"];

/// Whether words that a shell may run as commands hold one of these, or can't be seen.
fn mentions(words: &[Word], names: &[&str]) -> bool {
    words.iter().any(|word| word.literal().is_none_or(|text| names.iter().any(|name| text.contains(name))))
}
