//! Git's own programs: `git-X`, which is `git X`.

use super::{
    program::{ProgramResolver, Resolved},
    rule::base_name,
};

/// Where git keeps them, below the prefix of its own file (git(1), `--exec-path`).
const DIRECTORIES: [&str; 3] = ["lib/git-core", "lib64/git-core", "libexec/git-core"];

/// Whether a file that is run as `given` is git's program of that name: git itself, or a file in the directory of the git that the
/// trusted path finds. Any other file can call itself so.
pub fn is_of_git(file: &Resolved, given: &str, programs: &dyn ProgramResolver) -> bool {
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
    use super::{super::program::NominalResolver, *};

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
