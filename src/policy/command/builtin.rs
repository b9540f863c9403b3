//! What a shell does by itself: names that it takes for builtins, variables that change what a name means.

/// Variables that change which file a name means, or how a shell reads a line.
pub(super) fn changes_lookup(name: &str) -> bool {
    matches!(
        name,
        "PATH" | "IFS" | "CDPATH" | "BASH_ENV" | "ENV" | "SHELLOPTS" | "BASHOPTS" | "POSIXLY_CORRECT"
    )
}

/// Names that every one of the known shells takes for itself, so that no file is run.
pub(super) fn is_builtin(name: &str) -> bool {
    matches!(
        name,
        ":" | "."
            | "["
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
