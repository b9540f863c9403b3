//! The shells that can be kept: how each is started without start files, and what is typed into it.
//!
//! The shells read lines from the terminal as the kernel edits them, without an editor of their own, so that no key has another
//! meaning and what is typed ahead is kept. fish cannot be without its editor: it is left the keys that it has without start files,
//! none of which is typed here with another meaning.

use super::quote::{Quoting, quote};

/// A number that is used once, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// From random bytes.
    pub fn new(random: [u8; 8]) -> Self {
        Self(format!("{:016x}", u64::from_be_bytes(random)))
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A shell that can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellKind {
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

/// Writes a mark, and leaves `$?` as it was. By way of /dev/tty: a line may have sent the shell's own output elsewhere.
const PRINTF_FUNCTION: &str = r#"_provost() { _provost_s=$?; printf '\033]7711;%s;%s;%s;%s\007' "$1" "$2" "$_provost_s" "$PWD" >/dev/tty; return $_provost_s; }; "#;
/// The same where printf is no builtin.
const PRINT_FUNCTION: &str = r#"_provost() { _provost_s=$?; print -nr -- $'\033]7711;'"$1;$2;$_provost_s;$PWD"$'\007' >/dev/tty; return $_provost_s; }; "#;
/// The same for fish.
const FISH_FUNCTION: &str = r"function _provost; set -l _provost_s $status; printf '\e]7711;%s;%s;%s;%s\a' $argv[1] $argv[2] $_provost_s $PWD >/dev/tty; return $_provost_s; end; ";
/// What fish does before the first prompt: nothing is written, nothing asked of other programs, and no line is kept in a file. Its other
/// set of keys needs a function of the start files that are not read.
const FISH_INIT: &str = "set -g fish_greeting; set -g fish_history ''; function fish_prompt; end; function fish_title; end; \
     function _provost_keys --on-variable fish_key_bindings; $fish_key_bindings; end";
/// Erases what has been typed at the prompt and not entered (VKILL, termios(3)).
const ERASE_LINE: char = '\u{15}';

impl ShellKind {
    /// Of a shell's path or name; `None` for one that cannot be kept.
    pub fn of(program: &str) -> Option<Self> {
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Korn => "mksh",
            Self::Posix => "sh",
            Self::Fish => "fish",
        }
    }

    /// Its arguments: interactive, and without a start file that a command could write.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &["--noprofile", "--norc", "--noediting", "-i"],
            Self::Zsh => &["-f", "+Z", "-i"],
            Self::Korn | Self::Posix => &["-i"],
            Self::Fish => &["--no-config", "--interactive", "--init-command", FISH_INIT],
        }
    }

    /// Variables that it is started with: the file that these shells read first has nothing in it. mksh has no option for that, and reads
    /// `~/.mkshrc` if it is given no other file.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Bash | Self::Zsh | Self::Fish => &[],
            Self::Korn | Self::Posix => &["ENV=/dev/null"],
        }
    }

    /// What is typed first: the function that writes marks, a prompt with a mark, and a question. All in one line, because a shell may
    /// still have an editor, which would read what comes behind the line as keys.
    pub fn prepare(self, prompt: &Nonce, question: &Nonce) -> String {
        let prompt = prompt.as_str();
        let by_printf = format!(r#"PS1="$(printf '\033]7711;P;{prompt};;\007')\$ "; PS2="#);
        let text = match self {
            Self::Bash => format!(
                "set +o history +o histexpand; unset HISTFILE PROMPT_COMMAND PS0; {PRINTF_FUNCTION}{by_printf}"
            ),
            Self::Zsh => format!(
                "unset HISTFILE; setopt no_prompt_sp no_prompt_cr no_bang_hist interactive_comments; {PRINTF_FUNCTION}{by_printf}"
            ),
            Self::Korn => format!(
                "unset ENV; set +o emacs +o vi +o gmacs 2>/dev/null; {PRINT_FUNCTION}PS1=$'\\033]7711;P;{prompt};;\\007$ '; PS2="
            ),
            Self::Posix => format!("unset ENV; {PRINTF_FUNCTION}{by_printf}"),
            Self::Fish => format!(
                r"{FISH_INIT}; {FISH_FUNCTION}function fish_prompt; printf '\e]7711;P;{prompt};;\a$ '; end; functions -e fish_right_prompt fish_mode_prompt"
            ),
        };
        format!(" {text}; _provost A {}\n", question.as_str())
    }

    /// What is typed to run a line: a mark, the line, a mark. The line is evaluated by the shell itself, not in a function, so that what
    /// it sets stays.
    pub fn run(self, nonce: &Nonce, line: &str) -> String {
        let (nonce, line) = (nonce.as_str(), quote(self.quoting(), line));
        format!("{ERASE_LINE} _provost B {nonce}; eval {line}; _provost E {nonce}\n")
    }

    fn quoting(self) -> Quoting {
        match self {
            Self::Bash | Self::Zsh | Self::Korn => Quoting::Dollar,
            Self::Posix => Quoting::Printf,
            Self::Fish => Quoting::Fish,
        }
    }

    /// What is typed to ask whether the shell is at its prompt, and for the exit status of what came before.
    pub fn ask(self, nonce: &Nonce) -> String {
        format!("{ERASE_LINE} _provost A {}\n", nonce.as_str())
    }
}

#[cfg(test)]
mod tests {
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
                let typed = kind.prepare(&nonce, &nonce) + &kind.run(&nonce, &line) + &kind.ask(&nonce);
                assert!(typed.lines().all(|one| one.len() < 4_000), "{kind:?}");
            }
        }
    }
}
