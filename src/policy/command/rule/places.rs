//! Where the file of a command lies, as patterns for paths may write it.
//!
//! A rule that allows by a relative pattern means the file after all links, from the real directory in which the command runs. Rules that
//! deny or ask mean it by whatever path it is reached.

use super::{
    super::{
        kinds::chooses_by_name,
        pattern::TextPattern,
        program::{ProgramResolver, Resolved, resolve_place},
        shell::LineCwd,
    },
    base_name,
    conditions::RequestContext,
};

/// Where the file of one command lies.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The path of a command that is written as one: after all links, from the real directory in which it runs.
    real: Option<String>,
    /// Every absolute path that leads to it: after all links, as it was found, as it is written.
    absolute: Vec<String>,
    /// The same, from each of the directories.
    relative: Vec<String>,
    /// Where it runs, where the request or the process is, and where relative patterns begin, too, links followed and not.
    directories: Vec<String>,
}

impl Places {
    pub(super) fn of(
        given: &str,
        file: &Resolved,
        place: &LineCwd,
        request: &RequestContext,
        programs: &dyn ProgramResolver,
    ) -> Self {
        let cwd = request.cwd.as_str();
        let followed =
            |directory: &Option<String>| directory.as_deref().and_then(|path| programs.real_directory(path));
        let (here, start) = (resolve_place(cwd, place), resolve_place(cwd, &LineCwd::Start));
        let (real_here, real_start) = (followed(&here), followed(&start));
        let is_path = given.contains('/');
        let real = match (file.path(), &real_here) {
            (Some(path), Some(directory)) if is_path => from_directory(path, directory),
            _ => None,
        };
        let mut absolute: Vec<String> = file.path().map(str::to_owned).into_iter().collect();
        if let Resolved::File(file) = file
            && file.lookup_path.starts_with('/')
        {
            absolute.push(plain(&file.lookup_path));
        }
        match given.starts_with('/') {
            true => absolute.push(plain(given)),
            false if is_path => {
                let directories = [&here, &real_here].into_iter().flatten();
                absolute.extend(directories.map(|directory| plain(&format!("{directory}/{given}"))));
            }
            false => {}
        }
        let further =
            request.relative_from.iter().flat_map(|from| [Some(from.clone()), programs.real_directory(from)]);
        let mut directories: Vec<String> =
            [here, real_here, start, real_start].into_iter().chain(further).flatten().collect();
        for paths in [&mut absolute, &mut directories] {
            paths.sort_unstable();
            paths.dedup();
        }
        let mut relative: Vec<String> = absolute
            .iter()
            .flat_map(|path| directories.iter().filter_map(move |directory| from_directory(path, directory)))
            .collect();
        if is_path && !given.starts_with('/') {
            relative.push(plain(given));
        }
        Self { real, absolute, relative, directories }
    }

    /// Whether the file lies where a relative pattern of a rule that allows says.
    pub(super) fn are_allowed_by(&self, text: &TextPattern) -> bool {
        self.real.as_deref().is_some_and(|path| is_there(text, path))
    }

    /// Whether a pattern of a rule that denies or asks is about the file.
    pub(super) fn are_caught_by(
        &self,
        text: &TextPattern,
        file: &Resolved,
        programs: &dyn ProgramResolver,
    ) -> bool {
        let is_from_here = |path: &String| match is_relative(text) {
            true => is_there(text, path),
            false => {
                (text.accepts(path) && !path.starts_with("../"))
                    || path.strip_prefix("./").is_some_and(|bare| text.accepts(bare))
            }
        };
        self.absolute.iter().any(|path| text.accepts(path))
            || self.relative.iter().any(is_from_here)
            || self.are_above(text)
            || self.are_the_file_at(text, file, programs)
    }

    /// Whether it may be the file that a relative pattern names, from a directory that is not known.
    pub(super) fn may_be_caught_by(&self, text: &TextPattern) -> bool {
        below(text).is_some_and(|rest| self.absolute.iter().any(|path| directory_of(path, rest).is_some()))
    }

    /// Whether it is the file that a relative path names from a directory above: of the workspace, when the command runs further down.
    fn are_above(&self, text: &TextPattern) -> bool {
        let Some(rest) = below(text) else { return false };
        let mut tops = self.absolute.iter().filter_map(|path| directory_of(path, rest));
        tops.any(|top| {
            let is_below = |directory: &String| {
                directory.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            self.directories.iter().any(is_below)
        })
    }

    /// Whether it is the very file that a path leads to: by links, or under a second name.
    fn are_the_file_at(&self, text: &TextPattern, file: &Resolved, programs: &dyn ProgramResolver) -> bool {
        let TextPattern::Literal(path) = text else { return false };
        // A file that is many programs is not each of them.
        if file.path().is_none_or(|path| chooses_by_name(base_name(path))) {
            return false;
        }
        match path.starts_with('/') {
            true => programs.resolve_path(path, "/").is_same(file),
            false => {
                self.directories.iter().any(|directory| programs.resolve_path(path, directory).is_same(file))
            }
        }
    }
}

/// Whether a pattern is about the path by which a program is called, the last link not followed.
pub(super) fn is_called_by(
    (text, is_relative): (&TextPattern, bool),
    (given, file): (&str, &Resolved),
    cwd: Option<&str>,
    programs: &dyn ProgramResolver,
) -> bool {
    let called = match file {
        Resolved::File(file) if !given.contains('/') => file.lookup_path.as_str(),
        _ => given,
    };
    let Some(cwd) = cwd else { return false };
    let Some(called) = resolve_place(cwd, &LineCwd::After(called.to_owned())) else { return false };
    let Some((directory, name)) = called.rsplit_once('/') else { return false };
    let Some(directory) = programs.real_directory(directory) else { return false };
    let path = format!("{directory}/{name}");
    let from_here = || from_directory(&path, &programs.real_directory(cwd)?);
    text.accepts(&path) || (is_relative && from_here().is_some_and(|path| is_there(text, &path)))
}

/// Whether a relative pattern is about this path: as many directories further up, and the rest.
fn is_there(text: &TextPattern, path: &str) -> bool {
    let wanted = match text {
        TextPattern::Literal(literal) => steps_up(literal, "../"),
        TextPattern::Glob(glob) => steps_up(&glob.beginning(), "../"),
        // It begins with what makes it match whole texts.
        TextPattern::Expression(_) => 0,
    };
    wanted == steps_up(path, "../") && text.accepts(path)
}

fn steps_up(mut path: &str, step: &str) -> usize {
    let mut steps = 0;
    while let Some(rest) = path.strip_prefix(step) {
        (path, steps) = (rest, steps + 1);
    }
    steps
}

/// What a literal relative path names below the directory that it starts from.
fn below(text: &TextPattern) -> Option<&str> {
    let TextPattern::Literal(path) = text else { return None };
    let rest = path.strip_prefix("./").unwrap_or(path);
    (!rest.starts_with('/') && !rest.starts_with("../")).then_some(rest)
}

/// The directory from which `rest` leads to `path`. The root is none that a rule means.
fn directory_of<'p>(path: &'p str, rest: &str) -> Option<&'p str> {
    path.strip_suffix(rest)?.strip_suffix('/').filter(|directory| !directory.is_empty())
}

/// An absolute path from a directory; `None` for the directory and those above it.
fn from_directory(path: &str, directory: &str) -> Option<String> {
    let (path, directory) = (parts(path), parts(directory));
    let common = path.iter().zip(&directory).take_while(|(a, b)| a == b).count();
    let rest = path.get(common..).filter(|rest| !rest.is_empty())?.join("/");
    Some(match directory.len() - common {
        0 => format!("./{rest}"),
        steps => format!("{}{rest}", "../".repeat(steps)),
    })
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// A path without `.`, doubled slashes and what `..` takes back, by its letters. A relative one begins with a dot.
pub(super) fn plain(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let whole = parts.join("/");
    match (is_absolute, parts.first()) {
        (true, _) => format!("/{whole}"),
        (false, Some(&"..")) => whole,
        (false, _) => format!("./{whole}"),
    }
}

/// Whether a pattern is about paths, and not about names.
pub(super) fn is_about_paths(text: &TextPattern) -> bool {
    match text {
        TextPattern::Literal(literal) => literal.contains('/'),
        TextPattern::Glob(glob) => glob.names('/'),
        TextPattern::Expression(regex) => regex.as_str().contains('/'),
    }
}

/// Whether it begins with a dot, and so at the working directory.
pub(super) fn is_relative(text: &TextPattern) -> bool {
    match text {
        TextPattern::Literal(literal) => begins_with_dot(literal),
        TextPattern::Glob(glob) => begins_with_dot(&glob.beginning()),
        TextPattern::Expression(regex) => {
            regex.as_str().contains("^\\./") || regex.as_str().contains("^\\.\\./")
        }
    }
}

fn begins_with_dot(path: &str) -> bool {
    path.starts_with("./") || path.starts_with("../")
}

#[cfg(test)]
mod tests;
