//! What else a program may be than its written name says: one of the programs that its file is, or git's (`git-X`, which is `git X`).
//!
//! Rules that deny or ask hold for every reading of a command. None of them is a permission.

use super::{
    kinds,
    program::{ProgramResolver, Resolved},
    rule::base_name,
    shell::Word,
    wrapper::{self, WrappedCommand},
};

/// What systemctl(1) is by its name, and by every name that has one of these in it.
const OF_SYSTEMCTL: [&str; 7] = ["halt", "init", "poweroff", "reboot", "runlevel", "shutdown", "telinit"];

/// The other readings of a command. `is_itself`: the trusted path gives the file the name that is written. `is_read_as_git`: its
/// written name has been read as git's already.
pub(crate) fn other_readings(
    words: &[Word],
    file: &Resolved,
    is_itself: bool,
    is_read_as_git: bool,
) -> Vec<Vec<Word>> {
    let Some((command, arguments)) = words.split_first() else { return Vec::new() };
    let Some(base) = command.literal().map(base_name) else { return Vec::new() };
    let real = file.path().map_or(base, base_name);
    let mut beginnings: Vec<Vec<&str>> = Vec::new();
    if !is_itself && real != base {
        beginnings.extend(of_many(base, real).into_iter().map(|name| vec![name]));
    }
    let written = Some(base).filter(|_| !is_read_as_git);
    let followed = Some(real).filter(|real| *real != base);
    let of_git = [written, followed].into_iter().flatten().filter_map(|name| name.strip_prefix("git-"));
    beginnings.extend(of_git.filter(|name| !name.is_empty()).map(|name| vec!["git", name]));
    let whole = |beginning: Vec<&str>| -> Vec<Word> {
        let beginning = beginning.into_iter().map(|word| Word::Literal(word.to_owned()));
        beginning.chain(arguments.iter().cloned()).collect()
    };
    beginnings.into_iter().map(whole).collect()
}

/// What a file that is many programs may be under a name that is not one of theirs.
fn of_many<'a>(base: &'a str, real: &'a str) -> Vec<&'a str> {
    let is_proxy = || {
        ["cargo", "rust", "clippy", "rls"].iter().any(|tool| base.starts_with(tool))
            && !base.starts_with("rustup")
    };
    match real {
        // rustup refuses names that it does not know.
        "rustup" if is_proxy() => Vec::new(),
        "systemctl" => {
            let named = OF_SYSTEMCTL.into_iter().filter(|name| base.contains(name));
            std::iter::once(real).chain(named).collect()
        }
        // Some look behind a prefix, and all look into the first argument, each by its own rules.
        _ if kinds::chooses_by_name(real) => {
            let behind = base.rsplit_once(|c: char| !c.is_ascii_alphanumeric()).map(|(_, name)| name);
            std::iter::once(real).chain(behind.filter(|name| !name.is_empty())).collect()
        }
        _ => Vec::new(),
    }
}

/// What a reading runs in its own process. An option is one of the program that the written name says, except for the one that chooses
/// a program.
pub(crate) fn unwrap(words: &[Word]) -> Vec<WrappedCommand> {
    let mut literals = words.iter().map(Word::literal);
    let name = literals.next().flatten().unwrap_or_default();
    let is_option = |text: &str| text.starts_with('-') && !text.starts_with("--coreutils-prog");
    match literals.next().flatten() {
        Some(first) if kinds::is_many_programs(name) && is_option(first) => Vec::new(),
        _ => wrapper::unwrap(name, words),
    }
}

/// Where git keeps them, below the prefix of its own file (git(1), `--exec-path`).
const DIRECTORIES: [&str; 3] = ["lib/git-core", "lib64/git-core", "libexec/git-core"];

/// Whether a file that is run as `given` is git's program of that name: git itself, or a file in the directory of the git that the
/// trusted path finds. Any other file can call itself so.
pub(crate) fn is_of_git(file: &Resolved, given: &str, programs: &dyn ProgramResolver) -> bool {
    if programs.is_named(file, "git") {
        return true;
    }
    let Some((directory, name)) = file.path().and_then(|path| path.rsplit_once('/')) else { return false };
    // A link elsewhere gives one of git's programs the name of another; a link in git's own directory is git's.
    let is_called_so =
        name == base_name(given) || given.rsplit_once('/').is_some_and(|(written, _)| written == directory);
    is_called_so && is_directory_of_git(directory, programs)
}

fn is_directory_of_git(directory: &str, programs: &dyn ProgramResolver) -> bool {
    let git = programs.find_in_path("git");
    let Some((place, _)) = git.path().and_then(|path| path.rsplit_once('/')) else { return false };
    let Some((prefix, last)) = place.rsplit_once('/') else { return false };
    match last {
        "git-core" => place == directory,
        "bin" => directory
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| DIRECTORIES.contains(&rest)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            program::{NominalResolver, ProgramResolver},
            shell,
        },
        *,
    };

    fn readings(line: &str, file: &str, is_itself: bool) -> Vec<String> {
        let words: Vec<Word> = line.split(' ').map(|word| Word::Literal(word.to_owned())).collect();
        let file = NominalResolver.resolve_path(file, "/");
        other_readings(&words, &file, is_itself, false).iter().map(|words| shell::print(words)).collect()
    }

    #[test]
    fn a_link_is_read_as_what_its_file_may_be() {
        assert_eq!(readings("./bb dd x", "/usr/bin/busybox", false), ["busybox dd x"]);
        assert_eq!(readings("./busybox-dd x", "/usr/bin/busybox", false), ["busybox x", "dd x"]);
        assert_eq!(readings("dd x", "/usr/bin/busybox", true), [""; 0]);
        assert_eq!(readings("./s stop x", "/usr/bin/systemctl", false), ["systemctl stop x"]);
        assert_eq!(readings("./myhalt -f", "/usr/bin/systemctl", false), ["systemctl -f", "halt -f"]);
        assert_eq!(readings("./cargo-fmt -f", "/home/a/.cargo/bin/rustup", false), [""; 0]);
        assert_eq!(readings("./r update", "/home/a/.cargo/bin/rustup", false), ["rustup update"]);
        assert_eq!(readings("./x y", "/usr/bin/rm", false), [""; 0]);
        assert_eq!(readings("git-core/git-push -f", "/work/git-core/git-push", false), ["git push -f"]);
        assert_eq!(readings("./x -f", "/usr/lib/git-core/git-push", false), ["git push -f"]);
    }

    #[test]
    fn only_the_directory_of_the_trusted_git_holds_gits_programs() {
        let is_gits = |path: &str, given: &str| {
            is_of_git(&NominalResolver.resolve_path(path, "/"), given, &NominalResolver)
        };
        for directory in ["/usr/lib/git-core", "/usr/libexec/git-core"] {
            let path = format!("{directory}/git-log");
            assert!(is_gits(&path, &path) && is_gits(&path, "git-log"), "{path}");
        }
        assert!(is_gits("/usr/bin/git", "./git-log"));
        // A link in git's own directory.
        assert!(is_gits("/usr/lib/git-core/git-remote-http", "/usr/lib/git-core/git-remote-https"));
        for path in [
            "/work/git-core/git-log",
            "/work/usr/lib/git-core/git-log",
            "/usr/lib/git-core/x/git-log",
            "/usr/share/git-core/git-log",
            "/usr/local/libexec/git-core/git-log",
            "/work/git-log",
        ] {
            assert!(!is_gits(path, path), "{path}");
        }
        assert!(!is_gits("/usr/lib/git-core/git-remote-http", "./git-log"), "a link with another name");
    }
}
