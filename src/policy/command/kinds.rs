//! Kinds of programs, by name: those that run others, and those that take their configuration from the place at which they are called.
//!
//! What the former run is found out by [`super::wrapper`]. What a link to one of the latter runs is code of the link's place: Python reads
//! `pyvenv.cfg` next to the path that it is called by, or above it, and runs what the environment there says before anything else, wherever
//! the link leads. In a place where commands may write, such a program is one of the place and no other.

use super::{
    program::{ProgramResolver, Resolved, base_name, resolve_place},
    shell::{LineCwd, OpaqueReason, Word},
};

/// Programs that run others in ways that are not followed.
#[rustfmt::skip]
pub(super) const HIDING: [&str; 109] = [
    "at", "batch", "bwrap", "capsh", "catchsegv", "cgexec", "choom", "chpst", "chroot", "crontab",
    "daemon", "daemonize", "dbus-launch", "dbus-run-session", "dumb-init", "eatmydata", "entr", "expect",
    "fakechroot", "fakeroot", "faketime", "firejail", "gdb", "gosu", "i386", "linux32", "linux64", "lldb",
    "ltrace", "newgrp", "nsenter", "numactl", "parallel", "perf", "pkexec", "prlimit", "proot", "rlwrap",
    "run-parts", "runcon", "runuser", "screen", "script", "setarch", "setpriv", "sg", "ssh-agent",
    "start-stop-daemon", "strace", "su", "su-exec", "systemd-run", "tini", "tmux", "unbuffer", "unshare",
    "valgrind", "xvfb-run", "cpulimit", "chronic", "ifne", "mispipe", "pee", "sem", "setlock", "envdir", "softlimit",
    "setuidgid", "aa-exec", "nsjail", "proxychains", "proxychains4", "torsocks", "systemd-inhibit", "systemd-cat", "sshpass",
    "ccache", "distcc", "sccache", "hyperfine", "watchexec",
    // Other names of setarch(8).
    "aarch64", "arm64", "armv7l", "armv8l", "i486", "i586", "i686", "ppc64le", "riscv64", "s390x", "uname26", "x86_64", "amd64",
    // Shells of other grammars.
    "csh", "elvish", "fish", "hush", "lksh", "msh", "nu", "oksh", "osh", "pdksh", "posh", "rksh", "tcsh", "xonsh", "yash",
];

/// Whether what a program hides is what a rule that allows it by name allows.
pub fn is_taken_on_trust(name: &str, reason: OpaqueReason) -> bool {
    match reason {
        OpaqueReason::Script => true,
        OpaqueReason::Wrapper => HIDING.contains(&name) || chooses_versions(name),
        _ => false,
    }
}

/// Whether a program runs others of a version that it chooses, by a subcommand.
pub(super) fn chooses_versions(name: &str) -> bool {
    matches!(
        name,
        "pyenv"
            | "rbenv"
            | "nodenv"
            | "goenv"
            | "jenv"
            | "plenv"
            | "phpenv"
            | "tfenv"
            | "asdf"
            | "mise"
            | "rtx"
            | "direnv"
            | "bundle"
            | "bundler"
            | "pipenv"
            | "conda"
            | "mamba"
            | "micromamba"
            | "fnm"
            | "volta"
            | "n"
            | "nvm"
    )
}

/// Whether programs run a variable's value as a line for a shell: a pager, an editor, a transport.
pub fn holds_a_command(name: &str) -> bool {
    let ends_so = ["_PAGER", "_EDITOR", "_ASKPASS"].iter().any(|end| name.ends_with(end));
    ends_so
        || matches!(
            name,
            "PAGER"
                | "MANPAGER"
                | "EDITOR"
                | "VISUAL"
                | "FCEDIT"
                | "GIT_EXTERNAL_DIFF"
                | "GIT_SSH"
                | "GIT_SSH_COMMAND"
                | "GIT_PROXY_COMMAND"
                | "CC"
                | "CXX"
                | "CPP"
                | "FC"
                | "LD"
                | "AR"
                | "BROWSER"
                | "RSYNC_RSH"
                | "RUSTC_WRAPPER"
                | "RUSTC_WORKSPACE_WRAPPER"
        )
}

/// Whether a command makes a file that is also another one.
pub fn makes_links(name: &str, words: &[Word]) -> bool {
    let links = |word: &Word| {
        word.literal().is_none_or(|text| {
            matches!(text, "--symbolic-link" | "--link")
                || (text.starts_with('-') && !text.starts_with("--") && text.contains(['s', 'l']))
        })
    };
    matches!(name, "ln" | "link") || (name == "cp" && words.iter().skip(1).any(links))
}

/// Wrappers that do nothing by themselves: what they run is evaluated, and they need no rule of their own.
pub fn is_transparent(name: &str) -> bool {
    matches!(
        name,
        "env"
            | "nohup"
            | "setsid"
            | "nice"
            | "ionice"
            | "chrt"
            | "taskset"
            | "timeout"
            | "stdbuf"
            | "time"
            | "xargs"
    ) || is_shell(name)
        || is_many_programs(name)
        || name.starts_with("git-")
}

/// Whether a builtin's text is unwrapped, so that what it would run is evaluated as such.
pub fn runs_its_text(name: &str) -> bool {
    matches!(name, "eval" | "trap" | "command" | "builtin" | "exec" | "time" | "coproc" | "alias" | "enable")
}

/// Whether a base name is that of a shell.
pub fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "rbash")
}

/// Whether a program is many, and its first argument says which.
pub fn is_many_programs(name: &str) -> bool {
    runs_applets(name) || name == "coreutils"
}

/// Whether a program is many, and each of them runs the others by their names in its own process. Both take for themselves whatever
/// begins with their name. Of coreutils(1), each executes what it runs.
pub fn runs_applets(name: &str) -> bool {
    let rest = name.strip_prefix("busybox").or_else(|| name.strip_prefix("toybox"));
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.starts_with(['.', '-', '_']) || rest.starts_with(char::is_numeric)
    })
}

/// Whether a program that is one of many runs, with these arguments, others in ways that are not followed.
pub(super) fn is_hiding_applet(name: &str, args: &[Word]) -> bool {
    let has_option = |letters: &[char], long: &[&str]| {
        args.iter().any(|word| {
            word.literal().is_none_or(|text| match text.strip_prefix("--") {
                Some(text) => long.iter().any(|long| text.starts_with(long)),
                None => text.starts_with('-') && text.contains(letters),
            })
        })
    };
    match name {
        "crond" | "cttyhack" | "envuidgid" | "getty" | "ifdown" | "ifup" | "inetd" | "init" | "inotifyd"
        | "login" | "logwrapper" | "mdev" | "ntpd" | "oneit" | "openvt" | "runsv" | "runsvdir"
        | "sulogin" | "svlogd" | "tcpsvd" | "telnetd" | "toysh" | "udhcpc" | "udhcpc6" | "udpsvd" => true,
        "nc" | "netcat" => has_option(&['e', 'E', 'l', 'L'], &[]),
        // Options may stand in its first word without a dash.
        "tar" => {
            has_option(&['I'], &["to-c", "use-c"])
                || args
                    .first()
                    .and_then(Word::literal)
                    .is_some_and(|text| !text.starts_with('-') && text.contains('I'))
        }
        _ => false,
    }
}

/// Whether a program may run others in its own process, without an exec that a gate could judge.
pub fn runs_in_place(name: &str) -> bool {
    is_many_programs(name) || is_dynamic_loader(name)
}

/// Whether a file is many programs, and chooses by the name under which it runs.
pub fn chooses_by_name(real_name: &str) -> bool {
    matches!(real_name, "rustup" | "systemctl") || is_many_programs(real_name)
}

/// Whether a base name is that of a dynamic loader, which runs the program it is given (ld.so(8)). With musl it is the library.
pub fn is_dynamic_loader(name: &str) -> bool {
    matches!(name, "ld.so" | "libc.so")
        || name.starts_with("libc.musl-")
        || (name.starts_with("ld-") && name.contains(".so"))
}

/// Programs, by the beginnings of their names, and the entries that make a place theirs: in it, or in the directory above.
const READS_PLACE: &[(&[&str], &[&str])] = &[
    (&["python", "pypy", "graalpy"], &["pyvenv.cfg", "pybuilddir.txt"]),
    // Their libraries are looked for next to them and above.
    (&["tclsh", "wish", "expect"], &["lib", "library"]),
];

/// Whether a file that is called by this path, relative to an absolute directory, is a program of that path's place.
pub fn is_of_its_place(file: &Resolved, given: &str, cwd: &str, programs: &dyn ProgramResolver) -> bool {
    let Resolved::File(found) = file else { return false };
    let called = if given.contains('/') { given } else { &found.lookup_path };
    let names = [base_name(&found.path), base_name(called)];
    let is_of = |begin: &&str| names.iter().any(|name| name.starts_with(begin));
    let Some((_, entries)) = READS_PLACE.iter().find(|(begins, _)| begins.iter().any(&is_of)) else {
        return false;
    };
    let written = if called.starts_with('/') { called.to_owned() } else { format!("{cwd}/{called}") };
    // Some go by the letters of the path, `..` and all.
    let plain = resolve_place("/", &LineCwd::After(written.clone()));
    let above =
        |path: &str| path.trim_end_matches('/').rsplit_once('/').map(|(above, _)| format!("{above}/"));
    [Some(written), plain].into_iter().flatten().any(|path| {
        let here = above(&path);
        let higher = here.as_deref().and_then(above);
        let mut places = [here, higher].into_iter().flatten();
        places.any(|place| entries.iter().any(|name| programs.has_own_entry(&place, name)))
    })
}
