//! What a shell does by itself: names that it takes for builtins, variables that change what a name means.

use super::shell::{Word, holds_number};

/// Variables that change which file a name means, or how a shell reads a line.
pub(crate) fn changes_lookup(name: &str) -> bool {
    matches!(
        name,
        "PATH"
            | "path"
            | "IFS"
            | "CDPATH"
            | "cdpath"
            | "BASH_ENV"
            | "ENV"
            | "SHELLOPTS"
            | "BASHOPTS"
            | "POSIXLY_CORRECT"
            | "BASH_CMDS"
            | "BASH_ALIASES"
            | "aliases"
            | "commands"
            | "functions"
            | "PS0"
            | "PS4"
            | "PROMPT_COMMAND"
            | "TEXTDOMAIN"
            | "TEXTDOMAINDIR"
            | "EXECIGNORE"
            | "BASH_COMPAT"
            | "histchars"
            | "NULLCMD"
            | "READNULLCMD"
            | "ZDOTDIR"
            | "fpath"
            | "FPATH"
            | "module_path"
            | "MODULE_PATH"
    ) || name.starts_with("BASH_FUNC_")
}

/// Whether a shell looks at a variable while it runs, also where it is not exported.
pub(super) fn is_read_by_shells(name: &str) -> bool {
    // A file that is read at the start, and only from the environment.
    let is_read_at_start = name == "ENV";
    let of_prompts = ["PS", "PROMPT", "RPROMPT", "RPS", "SPROMPT"];
    (changes_lookup(name) && !is_read_at_start)
        || holds_number(name)
        || name.starts_with("BASH")
        || name.starts_with("HIST")
        || of_prompts.iter().any(|beginning| name.starts_with(beginning))
        || matches!(
            name,
            "HOME" | "OLDPWD" | "PWD" | "GLOBIGNORE" | "MAIL" | "MAILPATH" | "INPUTRC" | "FCEDIT" | "SHELL"
        )
}

/// Names that every one of the known shells takes for itself, so that no file is run.
pub(super) fn is_builtin(name: &str) -> bool {
    matches!(
        name,
        ":" | "."
            | "["
            | "[["
            | "alias"
            | "bg"
            | "break"
            | "builtin"
            | "cd"
            | "command"
            | "continue"
            | "declare"
            | "echo"
            | "enable"
            | "eval"
            | "exec"
            | "exit"
            | "export"
            | "false"
            | "fg"
            | "getopts"
            | "hash"
            | "jobs"
            | "kill"
            | "let"
            | "local"
            | "popd"
            | "printf"
            | "pushd"
            | "pwd"
            | "read"
            | "readonly"
            | "return"
            | "set"
            | "shift"
            | "shopt"
            | "source"
            | "test"
            | "time"
            | "times"
            | "trap"
            | "true"
            | "type"
            | "typeset"
            | "ulimit"
            | "umask"
            | "unalias"
            | "unset"
            | "wait"
            | "coproc"
    )
}

/// Builtins that do something outside of the shell by themselves; they need a rule as a program does.
pub(super) fn runs_a_file(name: &str) -> bool {
    matches!(name, "kill")
}

/// Which arguments of a builtin name variables that it sets. None: it sets none.
pub(super) fn variables_set<'a>(name: &str, args: &'a [Word]) -> Vec<&'a Word> {
    let is_option = |word: &&Word| word.literal().is_some_and(|text| text.starts_with(['-', '+']));
    match name {
        "export" | "declare" | "typeset" | "readonly" | "local" | "unset" | "read" | "getopts" | "let" => {
            args.iter().filter(|word| !is_option(word)).collect()
        }
        "printf" => match args {
            [flag, name, ..] if flag.literal() == Some("-v") => vec![name],
            [flag, ..] if flag.literal().is_none_or(|flag| flag.starts_with("-v")) => vec![flag],
            _ => Vec::new(),
        },
        "wait" => args.iter().skip_while(|word| word.literal() != Some("-p")).skip(1).take(1).collect(),
        _ => Vec::new(),
    }
}

/// Whether a builtin makes one variable another name of a second one, which is then set by it.
pub(super) fn makes_names_of_names(name: &str, args: &[Word]) -> bool {
    let is_reference = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains('n');
    matches!(name, "declare" | "typeset" | "local") && args.iter().filter_map(Word::literal).any(is_reference)
}

/// Whether options of `set`, or of a shell, leave the reading of lines as it is: `-e`, `-o pipefail` and their kind.
///
/// `-k` takes assignments from among the arguments, `-H` brings the history into lines, `-P` changes what `cd` does.
pub(super) fn keeps_reading(args: &[Word]) -> bool {
    let mut args = args.iter();
    while let Some(word) = args.next() {
        let Some(text) = word.literal() else { return false };
        let is_option = text.len() > 1 && text.starts_with(['-', '+']);
        if text == "--" || text == "-" || !is_option {
            return true;
        }
        if !text[1..].chars().all(|c| "eufxvnabhmCETBo".contains(c)) {
            return false;
        }
        let names_option = text.ends_with('o');
        if text[1..].contains('o') && !names_option {
            return false;
        }
        if names_option && !args.next().is_none_or(|word| word.literal().is_some_and(is_harmless_option)) {
            return false;
        }
    }
    true
}

/// Options by name that change neither how lines are read nor what names mean.
pub(super) fn is_harmless_option(name: &str) -> bool {
    matches!(
        name,
        "errexit"
            | "nounset"
            | "pipefail"
            | "xtrace"
            | "verbose"
            | "noglob"
            | "noclobber"
            | "noexec"
            | "allexport"
            | "notify"
            | "monitor"
            | "hashall"
            | "errtrace"
            | "functrace"
            | "braceexpand"
            | "nolog"
            | "ignoreeof"
    )
}

/// Builtins whose arguments are data and nothing else.
pub(super) fn takes_data(name: &str) -> bool {
    matches!(
        name,
        "echo" | "printf" | "true" | "false" | ":" | "cd" | "exit" | "return" | "kill" | "pwd" | "type"
    )
}
