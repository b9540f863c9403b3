//! Kept shells: how each is started without start files, what is typed into it to run a line, and the marks by which it says where the line
//! begins and ends.
//!
//! Pure: types nothing and reads nothing itself. Marks are a convenience. A line runs in the shell and can write any mark that it has seen;
//! it cannot have seen the one that is asked for after it.
//!
//! The shells read lines from the terminal as the kernel edits them, without an editor of their own, so that no key has another meaning and
//! what is typed ahead is kept. fish cannot be without its editor: it is left the keys that it has without start files, none of which is
//! typed here with another meaning. A line is quoted so that the shell gets exactly its bytes, and the terminal takes none for a key.

#![forbid(unsafe_code)]

pub(crate) mod marks;

pub(crate) use self::marks::Mark;
pub(crate) use self::marks::{FoundMark, MarkScanner};

/// A number that is used once, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nonce(String);

impl Nonce {
    /// From random bytes.
    pub(crate) fn new(random: [u8; 8]) -> Self {
        Self(format!("{:016x}", u64::from_be_bytes(random)))
    }

    /// Its digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A shell that can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellKind {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// The Korn shells: mksh, ksh93.
    Korn,
    /// Any other shell of the name `sh`, and dash.
    Posix,
    /// fish.
    Fish,
}

/// How a terminal takes what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// The kernel edits lines (ICANON, termios(3)): one that was typed and not entered can be erased.
    Lines,
    /// Those who read get each key, and no line is there to be erased.
    Keys,
}

/// Writes a mark with the status that is handed over, and returns that status. By way of /dev/tty: a line may have sent the shell's own
/// output elsewhere. What would make the shell show this, or run a trap for it, is off from the begin of a line until the line itself, and
/// `_provost_r` turns it on there: `eval` fails as its line does, so that ERR would fire twice. If a line was not even read, the next mark
/// turns it on.
const FUNCTION_BEGIN: &str =
    r#"_provost() { case $- in *x*) set +x; _provost_t="${_provost_t-}set -x; ";; esac; "#;
const PRINTF_MARK: &str =
    r#"_provost_s=$3; printf '\033]7711;%s;%s;%s;%s\007' "$1" "$2" "$_provost_s" "$PWD" >/dev/tty; "#;
/// The same where printf is no builtin.
const PRINT_MARK: &str =
    r#"_provost_s=$3; print -nr -- $'\033]7711;'"$1;$2;$_provost_s;$PWD"$'\007' >/dev/tty; "#;
const FUNCTION_END: &str = r#"case $1 in B) _provost_r=; case ${_provost_t-} in ?*) _provost_r="{ _provost_t=; $_provost_t"; case $_provost_s in [1-9]*) _provost_r="$_provost_r(exit $_provost_s) && :; ";; esac; _provost_r="$_provost_r} 2>/dev/null; ";; esac;; *) eval "${_provost_t-}"; _provost_t=;; esac; return "$_provost_s"; }; "#;
/// bash shows a function no ERR and DEBUG trap, so that they are taken before its call. What turned its line editing on (a start file that
/// a line reads) is turned off again: no prompt is written with it.
const BASH_PART: &str = r#"case ${_provost_u-} in ?*) _provost_t="${_provost_t-}$_provost_u; "; _provost_u=;; esac; if [[ -o vi || -o emacs ]]; then set +o vi +o emacs; fi; "#;
const BASH_TRAPS: &str = "_provost_s=$? _provost_u=$(trap -p ERR DEBUG); trap - ERR DEBUG; ";
/// zsh and mksh give a function an `xtrace` of its own, so that it cannot turn off that of a line. ksh93 does not.
const ZSH_FUNCTION: &str = "_provost() { ";
const ZSH_FUNCTION_END: &str = r#"return "$_provost_s"; }; "#;
const KORN_FUNCTION_END: &str = r#"case ${KSH_VERSION-} in *KSH*) ;; *) eval "${_provost_t-}";; esac; _provost_t=; return "$_provost_s"; }; "#;
const FISH_FUNCTION: &str = r"function _provost; set -l _provost_s $status; set -q argv[3]; and set _provost_s $argv[3]; printf '\e]7711;%s;%s;%s;%s\a' $argv[1] $argv[2] $_provost_s $PWD >/dev/tty; return $_provost_s; end; ";
/// What fish does before the first prompt: nothing is written, nothing asked of other programs, and no line is kept in a file. Its other
/// set of keys needs a function of the start files that are not read.
const FISH_INIT: &str = "set -g fish_greeting; set -g fish_history ''; function fish_prompt; end; function fish_title; end; \
     function _provost_keys --on-variable fish_key_bindings; $fish_key_bindings; end";
/// Erases what has been typed at the prompt and not entered (VKILL, termios(3)).
const ERASE_LINE: &str = "\u{15}";

impl ShellKind {
    /// The kind of a shell, by its path or name; `None` for one that cannot be kept.
    pub(crate) fn of(program: &str) -> Option<Self> {
        match program.rsplit('/').next()? {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "ksh" | "mksh" | "ksh93" => Some(Self::Korn),
            "sh" | "dash" => Some(Self::Posix),
            "fish" => Some(Self::Fish),
            _ => None,
        }
    }

    /// A name by which [`Self::of`] finds it again.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Korn => "mksh",
            Self::Posix => "sh",
            Self::Fish => "fish",
        }
    }

    /// Its arguments: interactive, and without a start file that a command could write.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &["--noprofile", "--norc", "--noediting", "-i"],
            Self::Zsh => &["-f", "+Z", "-i"],
            Self::Korn | Self::Posix => &["-i"],
            Self::Fish => &["--no-config", "--interactive", "--init-command", FISH_INIT],
        }
    }

    /// Variables that it is started with: the file that these shells read first has nothing in it. mksh has no option for that, and reads
    /// `~/.mkshrc` if it is given no other file.
    pub(crate) fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Bash | Self::Zsh | Self::Fish => &[],
            Self::Korn | Self::Posix => &["ENV=/dev/null"],
        }
    }

    /// What is typed first, and again where marks have gone missing: the function that writes marks, a prompt with a mark, and a question,
    /// which gets the exit status of what came before. All in one line, because a shell may still have an editor, which would read what
    /// comes behind the line as keys.
    pub(crate) fn prepare(self, prompt: &Nonce, question: &Nonce) -> String {
        let prompt = prompt.as_str();
        let by_printf = format!(r#"PS1="$(printf '\033]7711;P;{prompt};;\007')\$ "; PS2="#);
        let text = match self {
            Self::Bash => format!(
                "set +o history +o histexpand; unset HISTFILE PROMPT_COMMAND PS0; {FUNCTION_BEGIN}{BASH_PART}{PRINTF_MARK}{FUNCTION_END}{by_printf}"
            ),
            Self::Zsh => format!(
                "unset HISTFILE; setopt no_prompt_sp no_prompt_cr no_bang_hist interactive_comments; {ZSH_FUNCTION}{PRINTF_MARK}{ZSH_FUNCTION_END}{by_printf}"
            ),
            Self::Korn => format!(
                "unset ENV; set +o emacs +o vi +o gmacs 2>/dev/null; {FUNCTION_BEGIN}{PRINT_MARK}{KORN_FUNCTION_END}PS1=$'\\033]7711;P;{prompt};;\\007$ '; PS2="
            ),
            Self::Posix => {
                format!("unset ENV; {FUNCTION_BEGIN}{PRINTF_MARK}{FUNCTION_END}{by_printf}")
            }
            Self::Fish => format!(
                r"{FISH_INIT}; {FISH_FUNCTION}function fish_prompt; printf '\e]7711;P;{prompt};;\a$ '; end; functions -e fish_right_prompt fish_mode_prompt"
            ),
        };
        match self {
            Self::Fish => {
                format!(" set -g _provost_p $status; {text}; _provost A {} $_provost_p\n", question.as_str())
            }
            Self::Bash | Self::Zsh | Self::Korn | Self::Posix => {
                format!(" _provost_p=$?; {text}; {}\n", self.mark("A", question, "$_provost_p"))
            }
        }
    }

    /// What is typed to run a line: a mark, the line, a mark. The line is evaluated by the shell itself, not in a function, so that what
    /// it sets stays.
    pub(crate) fn run(self, nonce: &Nonce, line: &str, mode: InputMode) -> String {
        let line = quote(self.quoting(), line);
        let (erase, end) = (self.erase(mode), self.mark("E", nonce, "$?"));
        let begin = match self {
            Self::Bash => {
                format!("{{ {BASH_TRAPS}{}; }} >/dev/null 2>&1", self.call("B", nonce, "$_provost_s"))
            }
            Self::Zsh | Self::Korn | Self::Posix | Self::Fish => self.mark("B", nonce, "$?"),
        };
        let restored = match self {
            Self::Bash | Self::Posix => r#""${_provost_r-}""#,
            Self::Zsh | Self::Korn | Self::Fish => "",
        };
        format!("{erase} {begin}; eval {restored}{line}; {end}\n")
    }

    /// Writes a mark. A trace, and what a trap writes, goes nowhere.
    fn mark(self, kind: &str, nonce: &Nonce, status: &str) -> String {
        let call = self.call(kind, nonce, status);
        match self {
            Self::Bash | Self::Zsh | Self::Posix => format!("{{ {call}; }} >/dev/null 2>&1"),
            // Its trace goes where it went before, with each redirection.
            Self::Korn | Self::Fish => call,
        }
    }

    /// Calls the function: as a part of a list, its status neither fires ERR nor ends the shell.
    fn call(self, kind: &str, nonce: &Nonce, status: &str) -> String {
        let nonce = nonce.as_str();
        match self {
            Self::Bash | Self::Zsh | Self::Korn | Self::Posix => {
                format!(r#"_provost {kind} {nonce} "{status}" && :"#)
            }
            Self::Fish => format!("_provost {kind} {nonce}"),
        }
    }

    fn quoting(self) -> Quoting {
        match self {
            Self::Bash | Self::Zsh | Self::Korn => Quoting::Dollar,
            Self::Posix => Quoting::Printf,
            Self::Fish => Quoting::Fish,
        }
    }

    /// What is typed to ask whether the shell is at its prompt, and for the exit status of what came before.
    pub(crate) fn ask(self, nonce: &Nonce, mode: InputMode) -> String {
        format!("{} {}\n", self.erase(mode), self.mark("A", nonce, "$?"))
    }

    /// Erases what stands at the prompt. fish's editor has a key for it, whatever the terminal does.
    fn erase(self, mode: InputMode) -> &'static str {
        match (self, mode) {
            (Self::Fish, _) | (_, InputMode::Lines) => ERASE_LINE,
            (Self::Bash | Self::Zsh | Self::Korn | Self::Posix, InputMode::Keys) => "",
        }
    }
}

/// The longest line, in bytes.
pub(crate) const LINE_MAX_BYTES: usize = 32 << 10;
/// After this many bytes the typed text goes on in the next line: the kernel edits lines of 4096 bytes (N_TTY, termios(3)).
const TYPED_LINE_BYTES: usize = 1_000;

/// A line that cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineTextError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It is too long.
    #[error("must have at most {LINE_MAX_BYTES} bytes")]
    TooLong,
    /// It has a NUL, which no shell reads.
    #[error("must not hold a NUL byte")]
    Nul,
}

/// A line that can be run.
///
/// # Errors
/// [`LineTextError`].
pub(crate) fn checked_line(line: &str) -> Result<&str, LineTextError> {
    match line {
        "" => Err(LineTextError::Empty),
        _ if line.len() > LINE_MAX_BYTES => Err(LineTextError::TooLong),
        _ if line.contains('\0') => Err(LineTextError::Nul),
        _ => Ok(line),
    }
}

/// How a shell is given quotes and control characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// A control character as `$'\033'`.
    Dollar,
    /// A control character as `$(printf '\033')`, by a builtin.
    Printf,
    /// As fish reads it: a backslash escapes within quotes, and control characters are escapes outside of them. A newline is one, too:
    /// an editor would indent what comes behind it.
    Fish,
}

/// The line as one word of the shell.
fn quote(quoting: Quoting, line: &str) -> String {
    let mut typed = String::with_capacity(line.len() + 64);
    typed.push('\'');
    let mut line_begin = 0;
    for character in line.chars() {
        match (character, quoting) {
            ('\'' | '\\', Quoting::Fish) => typed.extend(['\\', character]),
            ('\'', Quoting::Dollar | Quoting::Printf) => typed.push_str("'\\''"),
            ('\n', Quoting::Dollar | Quoting::Printf) => {
                typed.push('\n');
                line_begin = typed.len();
            }
            (control, quoting) if control.is_ascii_control() => {
                typed.push_str(&quoted_control(quoting, control));
            }
            (other, _) => typed.push(other),
        }
        if typed.len() - line_begin > TYPED_LINE_BYTES {
            typed.push_str("'\\\n'");
            line_begin = typed.len();
        }
    }
    typed.push('\'');
    typed
}

/// A control character within a quoted word.
fn quoted_control(quoting: Quoting, control: char) -> String {
    let code = u32::from(control);
    match quoting {
        Quoting::Dollar => format!("'$'\\{code:03o}''"),
        Quoting::Printf => format!("'\"$(printf '\\{code:03o}')\"'"),
        Quoting::Fish => format!("'\\x{code:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const ALL: [ShellKind; 5] =
        [ShellKind::Bash, ShellKind::Zsh, ShellKind::Korn, ShellKind::Posix, ShellKind::Fish];

    #[test]
    fn shells_are_known_by_their_base_name() {
        assert_eq!(ShellKind::of("/usr/bin/bash"), Some(ShellKind::Bash));
        assert_eq!(ShellKind::of("dash"), Some(ShellKind::Posix));
        assert_eq!(ShellKind::of("/usr/bin/fish"), Some(ShellKind::Fish));
        for unknown in ["", "/", "tcsh", "python3", "/bin/sh/"] {
            assert_eq!(ShellKind::of(unknown), None, "{unknown}");
        }
        for kind in ALL {
            assert_eq!(ShellKind::of(kind.name()), Some(kind));
        }
    }

    #[test]
    fn no_typed_line_is_longer_than_the_kernel_edits() {
        let nonce = Nonce::new([7; 8]);
        for kind in ALL {
            for line in ["é'\u{1b}".repeat(5_000), "x".repeat(30_000)] {
                let typed = kind.prepare(&nonce, &nonce)
                    + &kind.run(&nonce, &line, InputMode::Lines)
                    + &kind.ask(&nonce, InputMode::Lines);
                assert!(typed.lines().all(|one| one.len() < 4_000), "{kind:?}");
            }
        }
    }

    #[test]
    fn nothing_is_erased_where_it_would_be_read_as_a_key() {
        let nonce = Nonce::new([7; 8]);
        for kind in ALL {
            for (mode, erases) in [(InputMode::Lines, true), (InputMode::Keys, kind == ShellKind::Fish)] {
                assert_eq!(kind.ask(&nonce, mode).starts_with(ERASE_LINE), erases, "{kind:?}");
                assert_eq!(kind.run(&nonce, "x", mode).starts_with(ERASE_LINE), erases, "{kind:?}");
            }
        }
    }

    /// What a shell makes of the quoted line.
    fn read_by(program: &str, quoting: Quoting, line: &str) -> Option<Vec<u8>> {
        let script = format!("printf %s {}", quote(quoting, line));
        let output = Command::new(program).args(["-c", &script]).output().ok()?;
        Some(output.stdout)
    }

    #[test]
    fn every_shell_reads_the_line_as_it_was() {
        let all: String = (1u8..=127).map(char::from).collect();
        let lines = [
            all.as_str(),
            "echo 'it'\"'s\" $HOME `x` \\ !! #",
            "a\n'b'\n\n\tc",
            &"é'\n\u{7f}€\\".repeat(900),
            &"x".repeat(5_000),
        ];
        let shells = [
            ("sh", Quoting::Printf),
            ("dash", Quoting::Printf),
            ("bash", Quoting::Dollar),
            ("zsh", Quoting::Dollar),
            ("mksh", Quoting::Dollar),
            ("fish", Quoting::Fish),
        ];
        for (program, quoting) in shells {
            for line in lines {
                // A shell that is not here is tested where it is; `sh` is everywhere.
                if let Some(read) = read_by(program, quoting, line) {
                    assert_eq!(String::from_utf8_lossy(&read), *line, "{program}");
                } else {
                    assert_ne!(program, "sh", "there is a shell");
                }
            }
        }
    }

    #[test]
    fn nothing_that_is_typed_is_a_key() {
        let all: String = (1u8..=127).map(char::from).collect();
        for quoting in [Quoting::Dollar, Quoting::Printf, Quoting::Fish] {
            let typed = quote(quoting, &all);
            assert!(typed.chars().all(|one| one == '\n' || !one.is_ascii_control()), "{typed:?}");
        }
    }

    #[test]
    fn a_line_that_no_shell_can_run_is_refused() {
        assert_eq!(checked_line(""), Err(LineTextError::Empty));
        assert_eq!(checked_line("a\0b"), Err(LineTextError::Nul));
        assert_eq!(checked_line(&"x".repeat(LINE_MAX_BYTES + 1)), Err(LineTextError::TooLong));
        assert_eq!(checked_line("x"), Ok("x"));
    }
}
