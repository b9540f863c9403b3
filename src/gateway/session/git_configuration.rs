//! Reads a caller's git configuration, and writes of it what git may have in a sandbox: the keys of a list, the files that say what is
//! ignored and which attributes files have, and the conditions under which other files are included.
//!
//! With the caller's rights, as data: git is not run. What a value names is copied and never shown in place. Everything else is left out, and named.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs, io,
    os::{fd::AsFd as _, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use nix::errno::Errno;
use serde::Deserialize;

use super::small_file::{self, Links};
use crate::{
    policy::AbsPath,
    sandbox::spec::{GitConfiguration, GitFile},
    sys::rights::Rights,
    workspace::{self, ConfigEntry},
};

/// Bytes of the configuration files together, and how many there may be.
const CONFIG_MAX_BYTES: u64 = 1 << 20;
const FILES_MAX: usize = 32;
/// How deep files include one another, as in git.
const DEPTH_MAX: usize = 10;
/// Bytes of all that is written.
const WRITTEN_MAX_BYTES: usize = 256 << 10;
/// Bytes of a value.
const VALUE_MAX_BYTES: usize = 1_024;
/// Names of keys that were left out.
const LEFT_OUT_MAX: usize = 32;
/// Links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;
/// What the name of a file of patterns has in it, in small letters.
const PATTERN_NAMES: [&str; 3] = ["ignore", "exclude", "attributes"];
/// Where copies lie in the private home.
const DIRECTORY: &str = ".config/git";
/// Where git-lfs is looked for: only root can change these directories, or it is not used.
const TRUSTED_DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// What a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ValueKind {
    Bool,
    Number,
    Word,
    Text,
}

#[derive(Debug, Deserialize)]
struct CarriedKeys {
    quiet: BTreeSet<String>,
    #[serde(flatten)]
    by_kind: BTreeMap<ValueKind, BTreeSet<String>>,
}

static DATA: LazyLock<CarriedKeys> = LazyLock::new(|| {
    let text = include_str!("../policies/data/git-carried.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

/// What git has of the configuration in a home.
///
/// A file below one of `roots`, or where another user can write, is left out: what commands write must not decide what is read here.
pub(super) fn of(home: &Path, rights: &Rights, roots: &[AbsPath]) -> GitConfiguration {
    let read = || Reader::new(home, git_lfs(), (roots, rights)).read();
    rights.run_with(read).unwrap_or_default()
}

struct Reader<'a> {
    home: &'a Path,
    git_lfs: Option<PathBuf>,
    roots: &'a [AbsPath],
    rights: &'a Rights,
    files_left: usize,
    bytes_left: u64,
    written_left: usize,
    copies: Vec<GitFile>,
    left_out: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn new(home: &'a Path, git_lfs: Option<PathBuf>, (roots, rights): (&'a [AbsPath], &'a Rights)) -> Self {
        Self {
            home,
            git_lfs,
            roots,
            rights,
            files_left: FILES_MAX,
            bytes_left: CONFIG_MAX_BYTES,
            written_left: WRITTEN_MAX_BYTES,
            copies: Vec::new(),
            left_out: BTreeSet::new(),
        }
    }

    fn read(mut self) -> GitConfiguration {
        let mut text = Sections::default();
        // As git reads them: what is later wins.
        for name in [".config/git/config", ".gitconfig"] {
            self.include(&mut text, &self.home.join(name), 0);
        }
        // Git's own places, where the configuration names no others.
        for name in ["ignore", "attributes"] {
            match self.data(&self.home.join(DIRECTORY).join(name)) {
                Ok(Some(content)) => {
                    self.copies.push(GitFile { name: format!("{DIRECTORY}/{name}"), content })
                }
                Ok(None) => drop(self.left_out.insert(format!("{DIRECTORY}/{name}"))),
                Err(_) => {}
            }
        }
        let left_out = self.left_out.into_iter().take(LEFT_OUT_MAX).collect();
        GitConfiguration { text: text.written, files: self.copies, left_out }
    }

    /// Writes what is carried of a file in its place.
    fn include(&mut self, text: &mut Sections, path: &Path, depth: usize) {
        if depth > DEPTH_MAX || self.files_left == 0 {
            self.left_out.insert("include.path".to_owned());
            return;
        }
        let bytes = match self.read_own(path, self.bytes_left) {
            Ok(Some((_, bytes))) => bytes,
            Ok(None) => {
                self.left_out.insert("include.path".to_owned());
                return;
            }
            Err(_) => return,
        };
        self.files_left -= 1;
        self.bytes_left -= bytes.len() as u64;
        for entry in workspace::config_entries(&bytes) {
            self.entry(text, &entry, path, depth);
        }
    }

    fn entry(&mut self, text: &mut Sections, entry: &ConfigEntry, file: &Path, depth: usize) {
        let Some(value) = std::str::from_utf8(&entry.value).ok().filter(|value| is_plain(value)) else {
            self.leave_out(entry);
            return;
        };
        let is_written = match (entry.section(), entry.subsection(), entry.variable()) {
            ("include", None, "path") => {
                if let Some(path) = self.path_of(value, file) {
                    self.include(text, &path, depth + 1);
                }
                return;
            }
            ("includeif", Some(condition), "path") => self.include_if(text, condition, value, file, depth),
            ("core", None, "excludesfile") => {
                self.copy_of(value, "ignore").is_some_and(|copy| self.write(text, entry, &copy))
            }
            ("core", None, "attributesfile") => {
                self.copy_of(value, "attributes").is_some_and(|copy| self.write(text, entry, &copy))
            }
            ("url", Some(address), "insteadof" | "pushinsteadof") => {
                is_open_address(address) && is_open_address(value) && self.write(text, entry, value)
            }
            ("filter", Some("lfs"), variable) => {
                self.lfs_value(variable, value).is_some_and(|value| self.write(text, entry, &value))
            }
            (section, subsection, variable) => {
                kind_of(section, subsection, variable).is_some_and(|kind| is_of(kind, value))
                    && self.write(text, entry, value)
            }
        };
        if !is_written {
            self.leave_out(entry);
        }
    }

    /// Another file, which git includes in the sandbox where it would outside.
    fn include_if(
        &mut self,
        text: &mut Sections,
        condition: &str,
        path: &str,
        file: &Path,
        depth: usize,
    ) -> bool {
        let Some(condition) = self.condition(condition, file) else { return false };
        let Some(path) = self.path_of(path, file) else { return false };
        let mut included = Sections::default();
        self.include(&mut included, &path, depth + 1);
        if included.written.is_empty() {
            return true;
        }
        let name = format!("{DIRECTORY}/included-{}", self.copies.len());
        let written = self.write_in(text, ("includeIf", Some(&condition)), "path", &format!("~/{name}"));
        self.copies.push(GitFile { name, content: included.written.into_bytes() });
        written
    }

    /// A condition that means the same in the sandbox, where repositories lie where they lie, and the home is another one.
    fn condition(&self, condition: &str, file: &Path) -> Option<String> {
        let (kind, pattern) = condition.split_once(':')?;
        let below = |start: &Path, rest: &str| Some(format!("{}/{rest}", start.to_str()?));
        // The directory is that of the file itself, and not of a link to it: as git takes it here, and nowhere else.
        let real = || file.canonicalize().ok().and_then(|file| file.parent().map(Path::to_owned));
        let pattern = match kind {
            "gitdir" | "gitdir/i" => match (pattern.strip_prefix("~/"), pattern.strip_prefix("./")) {
                (Some(rest), _) => below(self.home, rest)?,
                (_, Some(rest)) => below(&real()?, rest)?,
                (None, None) if pattern.starts_with('~') => return None,
                (None, None) => pattern.to_owned(),
            },
            "onbranch" => pattern.to_owned(),
            "hasconfig" if pattern.starts_with("remote.*.url:") => pattern.to_owned(),
            _ => return None,
        };
        Some(format!("{kind}:{pattern}"))
    }

    fn path_of(&self, value: &str, file: &Path) -> Option<PathBuf> {
        match value.strip_prefix("~/") {
            Some(rest) => Some(self.home.join(rest)),
            None if value.starts_with(['~', '%']) || value.is_empty() => None,
            None => Some(file.parent()?.join(value)),
        }
    }

    /// A copy of a file of patterns, as the value of its key. An empty value is none.
    fn copy_of(&mut self, value: &str, what: &str) -> Option<String> {
        if value.is_empty() || value == "/dev/null" {
            return Some(value.to_owned());
        }
        let path = match value.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(value),
        };
        // A relative one is found from wherever git runs.
        if !path.is_absolute() {
            return None;
        }
        // As git takes a file that is not there.
        let content = match self.data(&path) {
            Ok(content) => content?,
            Err(_) => Vec::new(),
        };
        let name = format!("{DIRECTORY}/{what}-{}", self.copies.len());
        let written = format!("~/{name}");
        self.copies.push(GitFile { name, content });
        Some(written)
    }

    /// A file of patterns; `None` for one that is not the caller's to give. By its name it is one, where links end: a configuration that a
    /// command of another session has written gives no other file.
    fn data(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let Some((real, content)) = self.read_own(path, self.written_left as u64)? else { return Ok(None) };
        let name = real.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if !PATTERN_NAMES.iter().any(|part| name.contains(part)) {
            return Ok(None);
        }
        self.written_left -= content.len();
        Ok(Some(content))
    }

    /// A file and its path without links; `None` for one that a link or a directory leads to which commands or other users can write.
    fn read_own(&self, path: &Path, max_bytes: u64) -> io::Result<Option<(PathBuf, Vec<u8>)>> {
        let Some(real) = self.own_path(path)? else { return Ok(None) };
        let below = real.strip_prefix("/").unwrap_or(&real);
        let top = fs::File::open("/")?;
        let content = small_file::read(top.as_fd(), below, Links::Refused, max_bytes)?;
        Ok(Some((real, content)))
    }

    /// Follows the links of a path one by one: each of them, and each directory, has to be the caller's or root's, and outside of the roots.
    fn own_path(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut left: Vec<OsString> = path.iter().rev().map(OsString::from).collect();
        let (mut real, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = left.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            if name == "/" || name == "." {
                continue;
            }
            let next = real.join(&name);
            let found = fs::symlink_metadata(&next)?;
            if !self.is_own(&next, &found) {
                return Ok(None);
            }
            if !found.is_symlink() {
                real = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::ELOOP.into());
            }
            let to = fs::read_link(&next)?;
            if to.is_absolute() {
                real = PathBuf::from("/");
            }
            left.extend(to.iter().rev().map(OsString::from));
        }
        Ok(Some(real))
    }

    fn is_own(&self, path: &Path, found: &fs::Metadata) -> bool {
        let is_trusted = found.uid() == 0 || found.uid() == self.rights.uid;
        // Only a name's owner takes it out of a directory with the sticky bit. A link's own mode means nothing.
        let is_closed =
            found.is_symlink() || found.mode() & 0o002 == 0 || (found.is_dir() && found.mode() & 0o1000 != 0);
        let is_in_root = self.roots.iter().any(|root| path.starts_with(root.as_path()));
        is_trusted && is_closed && !is_in_root
    }

    /// What `git lfs install` writes, by the path of the system's git-lfs.
    fn lfs_value(&self, variable: &str, value: &str) -> Option<String> {
        let is_standard = match variable {
            "required" => {
                return (self.git_lfs.is_some() && is_of(ValueKind::Bool, value)).then(|| value.to_owned());
            }
            "clean" => value == "git-lfs clean -- %f",
            "smudge" => matches!(value, "git-lfs smudge -- %f" | "git-lfs smudge --skip -- %f"),
            "process" => matches!(value, "git-lfs filter-process" | "git-lfs filter-process --skip"),
            _ => false,
        };
        let program = self.git_lfs.as_ref()?.to_str()?;
        is_standard.then(|| value.replacen("git-lfs", program, 1))
    }

    fn write(&mut self, text: &mut Sections, entry: &ConfigEntry, value: &str) -> bool {
        self.write_in(text, (entry.section(), entry.subsection()), entry.variable(), value)
    }

    fn write_in(
        &mut self,
        text: &mut Sections,
        section: (&str, Option<&str>),
        variable: &str,
        value: &str,
    ) -> bool {
        let before = text.written.len();
        text.write(section, variable, value);
        let bytes = text.written.len() - before;
        if bytes > self.written_left {
            text.written.truncate(before);
            text.section = None;
            return false;
        }
        self.written_left -= bytes;
        true
    }

    /// Names the key, without a subsection: there are addresses with passwords among those.
    fn leave_out(&mut self, entry: &ConfigEntry) {
        let (section, variable) = (entry.section(), entry.variable());
        let plain = format!("{section}.{variable}");
        if !DATA.quiet.contains(section) && !DATA.quiet.contains(&plain) {
            self.left_out.insert(match entry.subsection() {
                Some(_) => format!("{section}.*.{variable}"),
                None => plain,
            });
        }
    }
}

/// A configuration that is being written.
#[derive(Default)]
struct Sections {
    written: String,
    /// The one that the last entry is in.
    section: Option<(String, Option<String>)>,
}

impl Sections {
    fn write(&mut self, (section, subsection): (&str, Option<&str>), variable: &str, value: &str) {
        let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let whole = (section.to_owned(), subsection.map(str::to_owned));
        if self.section.as_ref() != Some(&whole) {
            let head = match subsection {
                Some(subsection) => format!("[{section} \"{}\"]\n", quote(subsection)),
                None => format!("[{section}]\n"),
            };
            self.written.push_str(&head);
            self.section = Some(whole);
        }
        let value = quote(value).replace('\t', "\\t");
        self.written.push_str(&format!("\t{variable} = \"{value}\"\n"));
    }
}

fn kind_of(section: &str, subsection: Option<&str>, variable: &str) -> Option<ValueKind> {
    let names = match subsection {
        None => vec![format!("{section}.{variable}"), format!("{section}.*")],
        Some(_) => vec![format!("{section}.*.{variable}"), format!("{section}.*")],
    };
    // A `*` at the end is for a key of two parts, where there is no other subsection: `color.diff.new` has the subsection "diff".
    let names = names.into_iter().chain(subsection.map(|subsection| format!("{section}.{subsection}.*")));
    let kinds = &DATA.by_kind;
    names
        .into_iter()
        .find_map(|name| kinds.iter().find(|(_, keys)| keys.contains(&name)).map(|(kind, _)| *kind))
}

fn is_of(kind: ValueKind, value: &str) -> bool {
    let is_bool = || {
        ["", "true", "false", "yes", "no", "on", "off", "1", "0"]
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word))
    };
    let is_number = || {
        let digits = value.strip_prefix('-').unwrap_or(value);
        let digits = digits.strip_suffix(['k', 'm', 'g', 'K', 'M', 'G']).unwrap_or(digits);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_word =
        || value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".,:=+/*_-#@;!%~^".contains(&byte));
    match kind {
        ValueKind::Bool => is_bool(),
        ValueKind::Number => is_bool() || is_number(),
        ValueKind::Word => is_bool() || is_word(),
        // Git runs a program for a format that verifies signatures.
        ValueKind::Text => !value.contains("%G"),
    }
}

fn is_plain(value: &str) -> bool {
    value.len() <= VALUE_MAX_BYTES && !value.chars().any(|c| c.is_control() && c != '\t')
}

/// An address, or the start of one, with no user but "git", who has no password, and of no program that git would run for it.
fn is_open_address(address: &str) -> bool {
    let user = address.rsplit_once('@').map(|(before, _)| before.rsplit('/').next().unwrap_or(before));
    !address.contains("::") && user.is_none_or(|user| user == "git")
}

/// The system's git-lfs, where only root can put another one in its place.
fn git_lfs() -> Option<PathBuf> {
    let is_roots = |path: &Path| fs::metadata(path).is_ok_and(|it| it.uid() == 0 && it.mode() & 0o022 == 0);
    TRUSTED_DIRECTORIES.iter().find_map(|directory| {
        let path = Path::new(directory).join("git-lfs");
        let real = path.canonicalize().ok()?;
        let is_trusted = is_roots(&real) && is_roots(real.parent()?) && is_roots(Path::new(directory));
        (is_trusted && real.is_file()).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_home(
        files: &[(&str, &str)],
        git_lfs: Option<&str>,
    ) -> (GitConfiguration, PathBuf, tempfile::TempDir) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().canonicalize().unwrap();
        for (name, text) in files {
            fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
            fs::write(path.join(name), text).unwrap();
        }
        let read = Reader::new(&path, git_lfs.map(PathBuf::from), (&[], &Rights::own())).read();
        (read, path, home)
    }

    fn text_of(configuration: &str) -> String {
        of_home(&[(".gitconfig", configuration)], None).0.text
    }

    #[test]
    fn the_data_file_has_each_key_once_and_none_that_runs_a_program() {
        let all: Vec<&String> = DATA.by_kind.values().flatten().collect();
        assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
        for key in all {
            assert_eq!(*key, key.to_lowercase());
            let text = match key.split('.').collect::<Vec<_>>()[..] {
                [section, "*"] => format!("[{section}]\nname = x\n"),
                [section, variable] => format!("[{section}]\n{variable} = x\n"),
                [section, one, variable] => {
                    format!("[{section} \"{one}\"]\n{variable} = x\n").replace('*', "x")
                }
                _ => panic!("{key}"),
            };
            let found = workspace::gitconfig::dangerous(
                text.as_bytes(),
                workspace::gitconfig::ConfigKind::Repository,
            );
            assert!(found.is_empty(), "{key}: {found:?}");
        }
    }

    #[test]
    fn harmless_settings_are_carried_and_what_runs_programs_or_holds_secrets_is_named() {
        let (read, ..) = of_home(
            &[(
                ".gitconfig",
                "[core]\n autocrlf = input\n pager = less\n hooksPath = /x\n[url \"https://tok@h/\"]\n insteadOf = a\n\
                 [url \"git@github.com:\"]\n insteadOf = https://github.com/\n[diff \"bin\"]\n textconv = strings\n\
                 [color \"diff\"]\n new = green bold\n[advice]\n detachedHead\n[http]\n extraHeader = Secret\n",
            )],
            None,
        );
        assert_eq!(
            read.text,
            "[core]\n\tautocrlf = \"input\"\n[url \"git@github.com:\"]\n\tinsteadof = \"https://github.com/\"\n\
             [color \"diff\"]\n\tnew = \"green bold\"\n[advice]\n\tdetachedhead = \"true\"\n"
        );
        assert_eq!(read.left_out, ["core.hookspath", "diff.*.textconv", "url.*.insteadof"]);
    }

    #[test]
    fn values_that_are_not_what_their_key_takes_are_left_out() {
        for line in [
            "[core]\n autocrlf = \"a b\"\n",
            "[core]\n compression = x\n",
            "[fetch]\n prune = maybe\n",
            "[format]\n pretty = \"%G?\"\n",
            "[user]\n name = \"a\\nb\"\n",
        ] {
            assert_eq!(text_of(line), "", "{line}");
        }
        assert_eq!(
            text_of("[user]\n name = a\\\\b \"\\\"c\\\"\"\n"),
            "[user]\n\tname = \"a\\\\b \\\"c\\\"\"\n"
        );
    }

    #[test]
    fn other_files_are_included_in_their_place_and_under_their_conditions() {
        let (read, home, _kept) = of_home(
            &[
                (
                    ".gitconfig",
                    "[user]\n email = private\n[include]\n path = more\n[includeIf \"gitdir:~/work/\"]\n path = ~/work.inc\n\
                     [includeIf \"onbranch:x\"]\n path = none\n[includeIf \"unknown:x\"]\n path = more\n",
                ),
                ("more", "[push]\n default = current\n[include]\n path = .gitconfig\n"),
                ("work.inc", "[user]\n email = work\n[core]\n sshCommand = evil\n"),
            ],
            None,
        );
        let home = home.display();
        let once = "[user]\n\temail = \"private\"\n[push]\n\tdefault = \"current\"\n";
        assert!(read.text.starts_with(once), "{}", read.text);
        let conditional = format!("[includeIf \"gitdir:{home}/work/\"]\n\tpath = \"~/.config/git/included-");
        assert!(read.text.contains(&conditional) && !read.text.contains("unknown"), "{}", read.text);
        assert!(
            read.files.iter().all(|file| file.content == b"[user]\n\temail = \"work\"\n"),
            "{:?}",
            read.files
        );
        assert!(
            read.left_out.contains(&"core.sshcommand".to_owned())
                && read.left_out.contains(&"include.path".to_owned())
        );
    }

    #[test]
    fn patterns_of_ignored_files_and_attributes_are_copied() {
        let (read, ..) =
            of_home(&[(".config/git/ignore", "*.log\n"), (".config/git/attributes", "*.bin -text\n")], None);
        let names: Vec<&str> = read.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, [".config/git/ignore", ".config/git/attributes"]);
        let (read, ..) = of_home(
            &[
                (".gitconfig", "[core]\n excludesFile = ~/my-ignore\n"),
                ("my-ignore", "*.tmp\n"),
                (".config/git/ignore", "*.log\n"),
            ],
            None,
        );
        assert_eq!(read.text, "[core]\n\texcludesfile = \"~/.config/git/ignore-0\"\n");
        let file = |name: &str, content: &[u8]| GitFile { name: name.into(), content: content.to_vec() };
        let (own, usual) = (file(".config/git/ignore-0", b"*.tmp\n"), file(".config/git/ignore", b"*.log\n"));
        assert_eq!(read.files, [own, usual], "another condition may leave git its usual one");
        for (named, is_copied) in [("/nowhere", true), ("relative", false), ("~other/x", false), ("", true)] {
            let (read, ..) = of_home(&[(".gitconfig", &format!("[core]\n excludesFile = {named}\n"))], None);
            assert_eq!(read.text.is_empty(), !is_copied, "{named}");
        }
    }

    #[test]
    fn of_filters_only_the_standard_ones_of_git_lfs_are_carried() {
        let standard = "[filter \"lfs\"]\n clean = git-lfs clean -- %f\n smudge = git-lfs smudge -- %f\n \
                        process = git-lfs filter-process\n required = true\n";
        let (read, ..) = of_home(&[(".gitconfig", standard)], Some("/usr/bin/git-lfs"));
        assert_eq!(
            read.text,
            "[filter \"lfs\"]\n\tclean = \"/usr/bin/git-lfs clean -- %f\"\n\tsmudge = \"/usr/bin/git-lfs smudge -- %f\"\n\
             \tprocess = \"/usr/bin/git-lfs filter-process\"\n\trequired = \"true\"\n"
        );
        let (read, ..) = of_home(&[(".gitconfig", standard)], None);
        assert_eq!((read.text.as_str(), read.left_out.len()), ("", 4));
        let other = standard
            .replace("git-lfs clean -- %f", "git-lfs clean -- %f; evil")
            .replace("\"lfs\"", "\"other\"");
        assert_eq!(of_home(&[(".gitconfig", &other)], Some("/usr/bin/git-lfs")).0.text, "");
    }
}
