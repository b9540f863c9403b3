//! Which files a command of a configuration names: its programs, and the scripts that it gives to interpreters. Pure.
//!
//! Reads the command as the policy reads a shell line, and in a coarser way as well: each finds what the other one misses.
//! Says where a program is named in a way that nobody knows before it runs.

use std::collections::BTreeSet;

use crate::policy::command::shell::{self, Dialect, LineCwd, OpaqueReason, SimpleCommand, Word};

/// Programs that run the file that they are given.
const INTERPRETERS: [&str; 18] = [
    "sh", "bash", "dash", "zsh", "ksh", "fish", "python", "python2", "python3", "node", "deno", "bun",
    "ruby", "perl", "php", "lua", "source", ".",
];
/// Programs that run the program that they are given.
const WRAPPERS: [&str; 16] = [
    "env", "exec", "command", "builtin", "nice", "ionice", "nohup", "time", "timeout", "setsid", "stdbuf",
    "xargs", "sudo", "chronic", "uv", "poetry",
];
/// Words behind which such a program has what it runs.
const RUN_WORDS: [&str; 2] = ["run", "exec"];
/// Options after which a program is given code in a file.
const FILE_OPTIONS: [(&str, &str); 9] = [
    ("awk", "-f"),
    ("gawk", "-f"),
    ("mawk", "-f"),
    ("sed", "-f"),
    ("java", "-jar"),
    ("node", "-r"),
    ("node", "--require"),
    ("php", "-f"),
    ("perl", "-x"),
];
/// How commands name the top of the repository's files, which is where git runs them.
const TOP_LEVEL: [&str; 2] = ["$(git rev-parse --show-toplevel)", "`git rev-parse --show-toplevel`"];
/// Commands in commands that are read.
const MAX_DEPTH: usize = 4;

/// What a command names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandFiles {
    /// The files, relative to where the command runs where they are not absolute. They may begin with `~`.
    pub files: BTreeSet<String>,
    /// Something that it runs is known only when it runs.
    pub is_unknown: bool,
}

impl CommandFiles {
    /// The files of a command, as a value of a configuration has it.
    pub(super) fn of(value: &str) -> Self {
        let mut found = Self::default();
        let mut text = value.trim_start_matches('!').to_owned();
        for top in TOP_LEVEL {
            text = text.replace(top, ".");
        }
        for home in ["${HOME}", "$HOME"] {
            text = text.replace(home, "~");
        }
        found.files.extend(coarse_words(&text).into_iter().map(str::to_owned));
        found.add_line(&text, 0);
        found
    }

    fn add_line(&mut self, text: &str, depth: usize) {
        let parsed = shell::parse(text, Dialect::Posix);
        self.is_unknown |= depth > MAX_DEPTH || !parsed.opaque.is_empty();
        if depth <= MAX_DEPTH {
            parsed.commands.iter().for_each(|command| self.add_command(command, depth));
        }
    }

    fn add_command(&mut self, command: &SimpleCommand, depth: usize) {
        let (mut is_wrapped, mut is_after_option) = (false, false);
        for (at, word) in command.words.iter().enumerate() {
            let Some(program) = self.known(word) else { return };
            let name = program.rsplit('/').next().unwrap_or(&program);
            let is_option = is_wrapped && name.starts_with('-');
            let is_no_program =
                is_option || name.contains('=') || is_number(name) || RUN_WORDS.contains(&name);
            if is_wrapped && is_no_program {
                is_after_option = is_option;
                continue;
            }
            if program.contains('/') {
                self.add_file(&program, &command.place);
            }
            let rest = command.words.get(at + 1..).unwrap_or_default();
            if WRAPPERS.contains(&name) {
                is_wrapped = true;
            } else if INTERPRETERS.contains(&name) {
                return self.add_script(name, rest, &command.place, depth);
            } else if name == "eval" {
                let line: Vec<&str> = rest.iter().filter_map(Word::literal).collect();
                self.is_unknown |= line.len() < rest.len();
                return self.add_line(&line.join(" "), depth + 1);
            } else if !is_after_option {
                return self.add_option_files(name, rest, &command.place);
            }
            // It may be an option's value.
            is_after_option = false;
        }
    }

    /// What an interpreter is given: a line, a module, or a file.
    fn add_script(&mut self, name: &str, words: &[Word], place: &LineCwd, depth: usize) {
        self.add_option_files(name, words, place);
        let is_python = name.starts_with("python");
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(text) = self.known(word) else { return };
            let takes_line = text.starts_with('-') && !text.starts_with("--") && text.ends_with('c');
            if takes_line {
                if !is_python && let Some(line) = words.next().and_then(Word::literal) {
                    self.add_line(line, depth + 1);
                }
                return;
            }
            if is_python && text.starts_with("-") && text.ends_with('m') {
                if let Some(module) = words.next().and_then(|word| self.known(word)) {
                    self.add_module(&module, place);
                }
                return;
            }
            if !text.starts_with('-') && !RUN_WORDS.contains(&text.as_str()) {
                return self.add_file(&text, place);
            }
        }
    }

    /// The files of a module of Python's, and of the packages that it is in.
    fn add_module(&mut self, module: &str, place: &LineCwd) {
        let path = module.replace('.', "/");
        self.add_file(&format!("{path}.py"), place);
        self.add_file(&format!("{path}/__main__.py"), place);
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            self.add_file(&format!("{}/__init__.py", &path[..at]), place);
        }
    }

    fn add_option_files(&mut self, name: &str, words: &[Word], place: &LineCwd) {
        for (option, value) in words.iter().zip(words.iter().skip(1)) {
            let is_option = |(program, known): &(&str, &str)| {
                *program == name && option.literal().is_some_and(|option| option == *known)
            };
            if FILE_OPTIONS.iter().any(is_option)
                && let Some(file) = self.known(value)
            {
                self.add_file(&file, place);
            }
        }
    }

    /// By the directory of the line, and by the one that a command before has changed to.
    fn add_file(&mut self, file: &str, place: &LineCwd) {
        if let (LineCwd::After(directory), false) = (place, file.starts_with(['/', '~'])) {
            self.files.insert(format!("{directory}/{file}"));
        }
        self.is_unknown |= *place == LineCwd::Unknown && file.starts_with("./");
        self.files.insert(file.to_owned());
    }

    /// The text of a word that names a program or a script. What the person's environment and arguments name alone is no
    /// file of a workspace.
    fn known(&mut self, word: &Word) -> Option<String> {
        match word {
            Word::Literal(text) => Some(text.clone()),
            Word::Opaque { text, reason } => {
                let plain = text.trim_matches('"');
                if plain.starts_with("~/") && !plain.contains(['$', '`', '*', '?', '[', '{', '\\', '"', '\''])
                {
                    return Some(plain.to_owned());
                }
                self.is_unknown |= *reason != OpaqueReason::Expansion || plain.contains('/');
                None
            }
        }
    }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// The words of a command that are programs or scripts by their form, whatever the grammar of the command is.
fn coarse_words(value: &str) -> Vec<&str> {
    let is_between = |c: char| c.is_whitespace() || "\"'`;|&()<>{}".contains(c);
    let words = value.split(is_between).filter(|word| !word.is_empty());
    let (mut found, mut is_script, mut is_first) = (Vec::new(), false, true);
    for word in words {
        let is_program = is_first || is_script;
        is_first = false;
        // An interpreter's options stand before its script.
        if is_script && word.starts_with('-') {
            continue;
        }
        let name = word.rsplit('/').next().unwrap_or(word);
        let is_interpreter = is_program && (INTERPRETERS.contains(&name) || name == "env");
        if word.starts_with("./") || is_script && !is_interpreter || is_program && word.contains('/') {
            found.push(word);
        }
        is_script = is_interpreter;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(value: &str) -> Vec<String> {
        CommandFiles::of(value).files.into_iter().collect()
    }

    #[test]
    fn scripts_are_found_where_an_interpreter_is_given_them_and_arguments_are_left_alone() {
        for (value, expected) in [
            ("!./run.sh src/main.py", &["./run.sh"][..]),
            ("python3 -u tools/clean.py %f", &["tools/clean.py"]),
            ("/usr/bin/env bash 'a.sh' b", &["/usr/bin/env", "a.sh"]),
            ("!git fetch && ./x.sh", &["./x.sh"]),
            ("less", &[]),
            ("less -R", &[]),
            ("!git log --format=%h src/a", &[]),
        ] {
            assert_eq!(files(value), expected, "{value}");
            assert!(!CommandFiles::of(value).is_unknown, "{value}");
        }
    }

    #[test]
    fn a_program_is_found_however_it_is_written() {
        for (value, file) in [
            ("!f() { tools/x.sh; }; f", "tools/x.sh"),
            ("!f() { tools/x.sh \"$@\"; }; f", "tools/x.sh"),
            ("!$(git rev-parse --show-toplevel)/tools/a.sh", "./tools/a.sh"),
            ("!\"$(git rev-parse --show-toplevel)\"/tools/a.sh", "./tools/a.sh"),
            ("!`git rev-parse --show-toplevel`/tools/a.sh", "./tools/a.sh"),
            ("!cd tools && ./a.sh", "tools/./a.sh"),
            ("!cd tools; sh a.sh", "tools/a.sh"),
            ("\"my tools/mon\"", "my tools/mon"),
            ("'my tools/mon' -x", "my tools/mon"),
            ("my\\ tools/mon", "my tools/mon"),
            ("~/x/mon", "~/x/mon"),
            ("$HOME/x/mon", "~/x/mon"),
            ("\"${HOME}/x/mon\"", "~/x/mon"),
            ("PYTHONPATH=. python3 -m tools.clean", "tools/clean.py"),
            ("python3 -m tools.clean", "tools/clean/__main__.py"),
            ("python3 -Im tools", "tools/__init__.py"),
            ("sh -c 'tools/x.sh \"$1\"' -", "tools/x.sh"),
            ("bash -ec 'exec tools/x.sh'", "tools/x.sh"),
            ("eval tools/x.sh", "tools/x.sh"),
            ("sudo -u b tools/x.sh", "tools/x.sh"),
            ("A=b timeout 5 nice -n 5 tools/x.sh", "tools/x.sh"),
            (". tools/x", "tools/x"),
            ("awk -f tools/x.awk", "tools/x.awk"),
            ("uv run tools/x.py", "tools/x.py"),
            ("bun run tools/x.ts", "tools/x.ts"),
            ("if true; then tools/x.sh; fi", "tools/x.sh"),
            ("a | (cd b && tools/x.sh)", "b/tools/x.sh"),
        ] {
            assert!(files(value).contains(&file.to_owned()), "{value}: {:?}", files(value));
        }
    }

    #[test]
    fn what_is_known_only_when_it_runs_is_said_and_a_persons_own_programs_are_not() {
        for value in ["!$(tools/choose)/x", "!cd $(pwd)/x && ./a.sh", "$TOOLS/x.sh", "sh \"$(ls)\"", "!'x"] {
            assert!(CommandFiles::of(value).is_unknown, "{value}");
        }
        for value in
            ["!$EDITOR x", "!f() { git log \"$@\"; }; f", "vim -d \"$LOCAL\" \"$REMOTE\"", "!sh \"$1\""]
        {
            assert!(!CommandFiles::of(value).is_unknown, "{value}: {:?}", CommandFiles::of(value));
        }
    }
}
