//! Programs: which file a command word names, as far as the evaluator needs to know, and what interprets a script.
//!
//! Policy does no input or output: the caller that asks for a verdict says which files there are, by this trait. The arguments of
//! interpreters are those that the kernel gives them (fs/binfmt_script.c, `load_script`). An interpreter's path and argument are bytes, as
//! the kernel has them; what rules compare is text, in which bytes that are not UTF-8 are replaced.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use super::shell::LineCwd;
use crate::byte_text;

/// The last part of a path, or the name itself.
pub fn base_name(given: &str) -> &str {
    given.rsplit('/').next().unwrap_or(given)
}

/// The file that a command word names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// This one.
    File(FileId),
    /// A builtin of the shell that reads the line; no file is run.
    Builtin,
    /// None.
    Missing,
    /// It can't be known before the command runs.
    Unknown,
}

/// A file, with its identity, so that one file under two names is known to be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileId {
    /// The path after all links.
    pub path: String,
    /// `st_dev` of stat(2).
    pub device: u64,
    /// `st_ino` of stat(2).
    pub inode: u64,
    /// `st_ctim` of stat(2) in nanoseconds: changes whenever the file does.
    pub changed_nanos: i64,
    /// The path by which it was found, links not followed; relative when it was named so.
    pub lookup_path: String,
    /// Whether the path by which it was found can come to lead elsewhere.
    pub stability: PathStability,
}

/// What a directory is, whatever it is called: `st_dev` and `st_ino` of stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// A directory as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Its path after all links.
    pub path: String,
    /// What it is.
    pub id: DirectoryId,
    /// `st_ctim` of stat(2) in nanoseconds: changes when it is renamed. 0: nobody asked.
    pub changed_nanos: i64,
}

/// Whether commands, or a principal outside, can change what a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStability {
    /// Only the host's administrator can: every directory on it is read-only inside and root's outside.
    Fixed,
    /// They may.
    Changeable,
}

/// What runs a script: its first line, with the file that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// As the line has it.
    pub path: Vec<u8>,
    /// The one argument that the line may have.
    pub argument: Option<Vec<u8>>,
    /// The file.
    pub file: Resolved,
}

/// What is known of what runs a file: nothing but itself, where it is no script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interpreters {
    /// The interpreter of the script first, then that one's where it is a script too.
    pub chain: Vec<Interpreter>,
    /// Whether the last file, or the first one where there is no interpreter, may have another one: it cannot be read.
    pub may_go_on: bool,
}

impl Interpreter {
    /// The path for rules.
    pub fn path_text(&self) -> String {
        byte_text::from_bytes(&self.path)
    }

    /// The argument for rules.
    pub fn argument_text(&self) -> Option<String> {
        self.argument.as_ref().map(|argument| byte_text::from_bytes(argument))
    }
}

impl Resolved {
    /// Whether both are the one and same existing file.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(a), Self::File(b)) => (a.device, a.inode) == (b.device, b.inode),
            _ => false,
        }
    }

    /// The file's path.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File(file) => Some(&file.path),
            Self::Builtin | Self::Missing | Self::Unknown => None,
        }
    }
}

/// Which files there are, in the view that the command will have.
pub trait ProgramResolver {
    /// What a name without a slash means on the trusted path.
    fn find_in_path(&self, name: &str) -> Resolved;

    /// What a name without a slash means for a command: there may be directories that are searched and not trusted.
    fn find_command(&self, name: &str) -> Resolved {
        self.find_in_path(name)
    }

    /// Whether a file that [`Self::find_command`] has found is of the trusted path.
    fn is_trusted(&self, _found: &Resolved) -> bool {
        true
    }

    /// Whether the trusted path gives a file this name, too.
    fn is_named(&self, file: &Resolved, name: &str) -> bool {
        file.is_same(&self.find_in_path(name))
    }

    /// What a path means, relative to `cwd` (absolute) when it is relative.
    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved;

    /// The directory at an absolute path, after all links; `None` where it can't be known.
    fn real_directory(&self, path: &str) -> Option<String> {
        Some(path.to_owned())
    }

    /// Whether a file is a program of 32 bits, whose system calls are not those of this machine.
    fn is_32_bit(&self, _file: &FileId) -> bool {
        false
    }

    /// The directory at an absolute path, after all links, and then those above it, as far as commands see the host's. Empty: it can't
    /// be seen. `None`: there is no host, and a path is what it says.
    fn directories(&self, _path: &str) -> Option<Vec<Directory>> {
        None
    }

    /// The host's clock by which it stamps directories, since the epoch; zero where there is no host: everything is later.
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    /// The directories in a directory, links not followed, by their paths; `None` where they can't be seen, and commands may see them.
    fn subdirectories(&self, _path: &str) -> Option<Vec<(String, DirectoryId)>> {
        Some(Vec::new())
    }

    /// Whether a directory, at an absolute path, is one in which commands may write and has an entry of this name.
    fn has_own_entry(&self, _directory: &str, _name: &str) -> bool {
        false
    }

    /// What runs a file that is a script: its interpreter, and that one's where it is a script too. Nothing for every other file.
    fn interpreters(&self, _file: &FileId, _cwd: &str) -> Interpreters {
        Interpreters::default()
    }
}

/// Programs as they were when they were first looked at. Within one evaluation a word means one file, and a script has one first
/// line, however fast another process changes what is there: what the rules have seen is what is ordered.
pub struct CachedResolver<'a> {
    inner: Box<dyn ProgramResolver + 'a>,
    seen: RefCell<HashMap<(String, String), Resolved>>,
    directories: RefCell<HashMap<String, Option<Vec<Directory>>>>,
    /// By file and working directory. There are few of them.
    scripts: RefCell<Vec<(FileId, String, Interpreters)>>,
}

impl<'a> CachedResolver<'a> {
    /// A cache of what the resolver says, with nothing in it yet.
    pub fn new(inner: Box<dyn ProgramResolver + 'a>) -> Self {
        Self { inner, seen: RefCell::default(), directories: RefCell::default(), scripts: RefCell::default() }
    }

    fn cached(&self, word: &str, cwd: &str, look: impl FnOnce() -> Resolved) -> Resolved {
        self.seen.borrow_mut().entry((word.to_owned(), cwd.to_owned())).or_insert_with(look).clone()
    }
}

impl ProgramResolver for CachedResolver<'_> {
    fn find_in_path(&self, name: &str) -> Resolved {
        self.cached(name, "", || self.inner.find_in_path(name))
    }

    fn find_command(&self, name: &str) -> Resolved {
        // No directory has this name.
        self.cached(name, "PATH", || self.inner.find_command(name))
    }

    fn is_trusted(&self, found: &Resolved) -> bool {
        self.inner.is_trusted(found)
    }

    fn is_named(&self, file: &Resolved, name: &str) -> bool {
        self.inner.is_named(file, name)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let cwd = if path.starts_with('/') { "/" } else { cwd };
        self.cached(path, cwd, || self.inner.resolve_path(path, cwd))
    }

    fn real_directory(&self, path: &str) -> Option<String> {
        self.inner.real_directory(path)
    }

    fn is_32_bit(&self, file: &FileId) -> bool {
        self.inner.is_32_bit(file)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn directories(&self, path: &str) -> Option<Vec<Directory>> {
        let mut directories = self.directories.borrow_mut();
        directories.entry(path.to_owned()).or_insert_with(|| self.inner.directories(path)).clone()
    }

    fn subdirectories(&self, path: &str) -> Option<Vec<(String, DirectoryId)>> {
        self.inner.subdirectories(path)
    }

    fn has_own_entry(&self, directory: &str, name: &str) -> bool {
        self.inner.has_own_entry(directory, name)
    }

    fn interpreters(&self, file: &FileId, cwd: &str) -> Interpreters {
        let is_this = |(seen, from, _): &&(FileId, String, Interpreters)| seen == file && from == cwd;
        if let Some((.., known)) = self.scripts.borrow().iter().find(is_this) {
            return known.clone();
        }
        let found = self.inner.interpreters(file, cwd);
        self.scripts.borrow_mut().push((file.clone(), cwd.to_owned(), found.clone()));
        found
    }
}

/// The file that a command word names at a place.
pub fn resolve_command(resolver: &dyn ProgramResolver, given: &str, cwd: &str, place: &LineCwd) -> Resolved {
    if given.is_empty() {
        return Resolved::Missing;
    }
    if !given.contains('/') {
        return resolver.find_command(given);
    }
    match resolve_place(cwd, place) {
        Some(cwd) => resolver.resolve_path(given, &cwd),
        None if given.starts_with('/') => resolver.resolve_path(given, "/"),
        None => Resolved::Unknown,
    }
}

/// The name that the kernel has for a program that a command word names: the path that is executed.
pub fn script_name<'a>(given: &'a str, file: &'a FileId) -> &'a str {
    if given.contains('/') { given } else { &file.lookup_path }
}

/// Every name is a file of its own in `/usr/bin`, and every path is itself: for checking rules without a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NominalResolver;

impl ProgramResolver for NominalResolver {
    fn find_in_path(&self, name: &str) -> Resolved {
        nominal(&format!("/usr/bin/{name}"))
    }

    fn is_named(&self, file: &Resolved, name: &str) -> bool {
        file.path().and_then(|path| path.strip_prefix("/usr/bin/")) == Some(name)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let whole = if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") };
        // Without links, what `..` takes back is what the kernel takes back.
        let plain = resolve_place(&whole, &LineCwd::Start).unwrap_or(whole);
        let usual = ["/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/"];
        match usual.iter().find_map(|directory| plain.strip_prefix(directory)) {
            Some(name) if !name.contains('/') => self.find_in_path(name),
            _ => nominal(&plain),
        }
    }
}

fn nominal(path: &str) -> Resolved {
    // FNV-1a: a stable number for each path is all that is asked of it.
    let inode = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (path, lookup_path) = (path.to_owned(), path.to_owned());
    Resolved::File(FileId {
        path,
        device: 0,
        inode,
        changed_nanos: 0,
        lookup_path,
        stability: PathStability::Fixed,
    })
}

/// The absolute directory of a place, with `.` and `..` taken out by their letters; `None` where it is not known.
pub fn resolve_place(cwd: &str, place: &LineCwd) -> Option<String> {
    let joined = match place {
        LineCwd::Unknown => return None,
        LineCwd::Start => cwd.to_owned(),
        LineCwd::After(target) if target.starts_with('/') => target.clone(),
        LineCwd::After(target) => format!("{cwd}/{target}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// The arguments of the last interpreter of a script, which is executed in its place. `script`: the name that the kernel has for it;
/// `arguments`: its own, without `argv[0]`, which is dropped; `lines`: path and argument of each interpreter, that of the script first.
pub fn interpreted_argv<T>(
    script: T,
    arguments: impl IntoIterator<Item = T>,
    lines: impl DoubleEndedIterator<Item = (T, Option<T>)>,
) -> Vec<T> {
    let interpreters = lines.rev().flat_map(|(path, argument)| std::iter::once(path).chain(argument));
    interpreters.chain([script]).chain(arguments).collect()
}

/// Each interpreter with its own arguments, that of the script first. They are the end of what the last one gets (`last_argv`), since
/// each takes the place of the one before with its own words in front.
pub fn with_arguments<'a, T>(
    interpreters: &'a [Interpreter],
    last_argv: &'a [T],
) -> Vec<(&'a Interpreter, &'a [T])> {
    let mut start = 0;
    let mut found: Vec<_> = interpreters
        .iter()
        .rev()
        .map(|interpreter| {
            let own = last_argv.get(start..).unwrap_or_default();
            start += 1 + usize::from(interpreter.argument.is_some());
            (interpreter, own)
        })
        .collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::{super::program::Resolved, *};

    #[test]
    fn each_interpreter_gets_its_words_the_script_and_the_arguments() {
        let interpreter = |path: &str, argument: Option<&str>| Interpreter {
            path: path.into(),
            argument: argument.map(Into::into),
            file: Resolved::Unknown,
        };
        let chain = [
            interpreter("/opt/i", Some("a b")),
            interpreter("/usr/bin/env", None),
            interpreter("/x", Some("-")),
        ];
        let lines = chain.iter().map(|one| (one.path_text(), one.argument_text()));
        let last = interpreted_argv("push".to_owned(), ["one".to_owned()], lines);
        assert_eq!(last.join(" "), "/x - /usr/bin/env /opt/i a b push one");
        let own: Vec<String> = with_arguments(&chain, &last).iter().map(|(_, argv)| argv.join(" ")).collect();
        assert_eq!(
            own,
            [
                "/opt/i a b push one",
                "/usr/bin/env /opt/i a b push one",
                "/x - /usr/bin/env /opt/i a b push one"
            ]
        );
        let none = std::iter::empty::<(String, Option<String>)>();
        assert_eq!(interpreted_argv("x".to_owned(), [], none), ["x"]);
        assert!(with_arguments::<String>(&[], &[]).is_empty());
    }
}
