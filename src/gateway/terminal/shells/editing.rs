//! Finds what would switch the line editing of bash: while it evaluates a line, it dies of that.
//!
//! bash then reads on from another input in the middle of the line (`set_edit_mode` of its set.def), through a pointer that is not set. What the
//! reader of lines cannot see does the same; the call then says that the shell has ended. In a file that a line reads it is harmless.

use crate::policy::command::shell::{Dialect, Word, parse};

/// The options that are line editing.
const MODES: [&str; 2] = ["vi", "emacs"];

/// Whether a line of bash switches line editing on or off.
pub(in crate::terminal) fn switches_line_editing(line: &str) -> bool {
    parse(line, Dialect::Bash).commands.iter().any(|command| {
        let words: Vec<_> =
            command.words.iter().map(|word| Word::literal(word).unwrap_or_default()).collect();
        switches(&words)
    })
}

fn switches(words: &[&str]) -> bool {
    match words {
        ["builtin" | "command", "-p" | "--", rest @ ..] | ["builtin" | "command", rest @ ..] => {
            switches(rest)
        }
        ["set", options @ ..] => set_switches(options),
        ["shopt", options @ ..] => {
            let has = |flag| options.iter().any(|option| option.starts_with('-') && option.contains(flag));
            has('o') && (has('s') || has('u')) && options.iter().any(|option| MODES.contains(option))
        }
        _ => false,
    }
}

/// `-o NAME`, `+o NAME`, also as `-eo NAME`.
fn set_switches(options: &[&str]) -> bool {
    let mut takes_name = false;
    for option in options {
        if takes_name && MODES.contains(option) {
            return true;
        }
        let is_name = std::mem::take(&mut takes_name);
        if option.starts_with(['-', '+']) && *option != "--" {
            takes_name = option.contains('o');
        } else if !is_name {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_switches_line_editing_is_found() {
        for line in [
            "set -o vi",
            "set -o emacs",
            "set +o emacs",
            "cd src && set -e -o pipefail -o vi",
            "set -euo pipefail -o vi",
            "set -eo vi",
            "if true; then set -o \"vi\"; fi",
            "edit() { \\set -o vi; }",
            "builtin set -o vi",
            "command -p set -o emacs",
            "shopt -s -o vi",
            "shopt -so emacs",
            "shopt -u -o emacs",
        ] {
            assert!(switches_line_editing(line), "{line}");
        }
    }

    #[test]
    fn what_only_names_it_is_not() {
        for line in [
            "set -o",
            "set -euo pipefail",
            "set -- -o vi",
            "set vi emacs",
            "vi file; emacs file",
            "echo 'set -o vi' >>~/.inputrc",
            "echo set -o vi",
            "shopt -o vi",
            "shopt -s extglob",
            "bash -c 'set -o vi'",
            "git config core.editor vi",
        ] {
            assert!(!switches_line_editing(line), "{line}");
        }
    }
}
