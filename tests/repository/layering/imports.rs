//! Which file of a module imports which, and the cycles in that graph.
//!
//! A path is followed through re-exports and globs to the file that defines its item. What the file of an enclosing
//! module defines is in scope of the files below it by the language, and is not counted as an import.

use std::collections::{BTreeMap, BTreeSet};

use crate::layering::source::{Source, is_word, words};

/// A `use` declaration of one item: `use a::b as c` has the path `["a", "b"]` and the name `c`; a glob has the name `*`.
struct Use {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

struct File<'a> {
    uses: Vec<Use>,
    /// The code without its `use` declarations.
    body: String,
    definitions: BTreeSet<String>,
    children: BTreeSet<String>,
    source: &'a Source,
}

/// What imports what.
type Edges<'a> = BTreeMap<&'a [String], BTreeSet<&'a [String]>>;

/// The import graph of `src`: for each file the files of the same member that it imports.
pub(super) struct Imports<'a> {
    files: BTreeMap<&'a [String], File<'a>>,
    edges: Edges<'a>,
}

impl<'a> Imports<'a> {
    /// Reads the imports of all files.
    pub(super) fn of(sources: &'a [Source]) -> Self {
        let code = sources.iter().filter(|source| !source.path.iter().any(|part| part == "tests"));
        let files = code.map(|source| (source.path.as_slice(), File::of(source))).collect();
        let mut imports = Self { files, edges: BTreeMap::new() };
        let paths: Vec<&'a [String]> = imports.files.keys().copied().collect();
        for path in paths {
            let imported = imports.imported_by(path);
            imports.edges.insert(path, imported);
        }
        imports
    }

    /// The cycles, each as the sorted file names that are in it.
    pub(super) fn cycles(&self) -> Vec<Vec<String>> {
        let name = |path: &&[String]| self.files[path].source.name.clone();
        cycles(&self.edges).iter().map(|cycle| cycle.iter().map(name).collect()).collect()
    }

    /// The cycles between what lies in one directory: its directories, and its files.
    pub(super) fn cycles_of_parts(&self) -> Vec<Vec<String>> {
        let deepest = self.files.keys().map(|path| path.len()).max().unwrap_or_default();
        (2..=deepest).flat_map(|depth| self.cycles_at(depth)).collect()
    }

    /// The cycles between the parts of one directory that have a path of so many names.
    fn cycles_at(&self, depth: usize) -> Vec<Vec<String>> {
        fn part(path: &[String], depth: usize) -> &[String] {
            &path[..path.len().min(depth)]
        }
        let mut edges: Edges<'_> = BTreeMap::new();
        for (from, imported) in self.edges.iter().filter(|(from, _)| from.len() >= depth) {
            let from = part(from, depth);
            let others = imported.iter().filter(|to| to.len() >= depth).map(|to| part(to, depth));
            let in_it = others.filter(|to| *to != from && to[..depth - 1] == from[..depth - 1]);
            edges.entry(from).or_default().extend(in_it);
        }
        let name = |path: &&[String]| path.join("/");
        cycles(&edges).iter().map(|cycle| cycle.iter().map(name).collect()).collect()
    }

    fn imported_by(&self, path: &[String]) -> BTreeSet<&'a [String]> {
        let file = &self.files[path];
        let used = file.uses.iter().filter(|used| !used.is_public).map(|used| used.path.clone());
        let targets = used.chain(paths_in(&file.body)).filter_map(|used| {
            let (module, rest) = self.absolute(path, &used)?;
            self.defining_file(module, rest, 0)
        });
        targets.filter(|target| target[0] == path[0] && !path.starts_with(target)).collect()
    }

    /// The module that a path starts from, and the rest of the path; `None` for other crates and for local names.
    fn absolute<'p>(&self, from: &[String], path: &'p [String]) -> Option<(Vec<String>, &'p [String])> {
        match path[0].as_str() {
            "crate" => Some((vec![from[0].clone()], &path[1..])),
            "self" => Some((from.to_vec(), &path[1..])),
            "super" => {
                let climbs = path.iter().take_while(|part| *part == "super").count();
                Some((from[..from.len().saturating_sub(climbs)].to_vec(), &path[climbs..]))
            }
            first if self.files[from].children.contains(first) => Some((from.to_vec(), path)),
            _ => None,
        }
    }

    /// The file that defines what a path below a module leads to.
    fn defining_file(
        &self,
        mut module: Vec<String>,
        mut rest: &[String],
        depth: usize,
    ) -> Option<&'a [String]> {
        while let Some(next) = rest.first() {
            module.push(next.clone());
            if !self.files.contains_key(module.as_slice()) {
                module.pop();
                break;
            }
            rest = &rest[1..];
        }
        let (path, file) = self.files.get_key_value(module.as_slice())?;
        let Some(name) = rest.first() else { return Some(path) };
        // A re-export can lead back to itself only through a glob.
        if file.definitions.contains(name) || depth > 8 {
            return Some(path);
        }
        let follow = |target: &[String]| {
            let (module, target) = self.absolute(path, target)?;
            self.defining_file(module, target, depth + 1)
        };
        if let Some(used) = file.uses.iter().find(|used| used.name == *name) {
            return follow(&used.path);
        }
        let globs = file.uses.iter().filter(|used| used.name == "*");
        let through_glob = globs
            .filter_map(|glob| follow(&[glob.path.as_slice(), std::slice::from_ref(name)].concat()))
            .find(|target| self.files[target].definitions.contains(name));
        Some(through_glob.unwrap_or(path))
    }
}

/// The cycles of a graph, each sorted.
fn cycles<'a>(edges: &Edges<'a>) -> Vec<Vec<&'a [String]>> {
    let reached: BTreeMap<_, _> = edges.keys().map(|path| (*path, reached_from(edges, path))).collect();
    let mut done = BTreeSet::new();
    let mut cycles = Vec::new();
    for path in edges.keys() {
        let cycle: Vec<&[String]> =
            reached[path].iter().filter(|other| reached[*other].contains(path)).copied().collect();
        if !cycle.is_empty() && done.insert(cycle[0]) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reached_from<'a>(edges: &Edges<'a>, start: &'a [String]) -> BTreeSet<&'a [String]> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(path) = waiting.pop() {
        for next in &edges[path] {
            if reached.insert(*next) {
                waiting.push(next);
            }
        }
    }
    reached
}

impl<'a> File<'a> {
    fn of(source: &'a Source) -> Self {
        let (uses, body) = split_uses(&source.code);
        let mut definitions = BTreeSet::new();
        let mut children = BTreeSet::new();
        let tokens: Vec<&str> = words(&body).collect();
        for pair in tokens.windows(2) {
            match pair[0] {
                "mod" => drop(children.insert(pair[1].to_owned())),
                "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type" | "union" => {
                    definitions.insert(pair[1].to_owned());
                }
                _ => {}
            }
        }
        Self { uses, body, definitions, children, source }
    }
}

/// The `use` declarations of a file, and the code without them.
fn split_uses(code: &str) -> (Vec<Use>, String) {
    let (mut uses, mut body) = (Vec::new(), String::new());
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let (before, after) = rest.split_at(at);
        let is_keyword = !before.ends_with(is_word) && !before.ends_with(['+', '\'']);
        let Some(end) = after.find(';').filter(|_| is_keyword) else {
            body.push_str(&rest[..at + 4]);
            rest = &rest[at + 4..];
            continue;
        };
        let declared = before.rsplit([';', '}', '{', ']']).next().unwrap_or_default();
        let is_public = declared.trim_start().starts_with("pub");
        let mut leaves = Vec::new();
        flatten(&after[4..end], &[], &mut leaves);
        uses.extend(leaves.into_iter().map(|(path, name)| Use { path, name, is_public }));
        body.push_str(before);
        rest = &after[end..];
    }
    body.push_str(rest);
    (uses, body)
}

/// The single items of a `use` tree: the path of each and the name that it gets.
fn flatten(tree: &str, prefix: &[String], leaves: &mut Vec<(Vec<String>, String)>) {
    let segments = |text: &str| -> Vec<String> {
        text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let tree = tree.trim();
    if let Some((before, group)) = tree.split_once('{') {
        let prefix = [prefix, &segments(before)].concat();
        let group = group.rsplit_once('}').map_or(group, |(inner, _)| inner);
        members(group).iter().for_each(|member| flatten(member, &prefix, leaves));
        return;
    }
    let (path, alias) =
        tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = [prefix, &segments(path)].concat();
    let Some(last) = path.last().cloned() else { return };
    if last == "*" || last == "self" && path.len() > 1 {
        path.pop();
    }
    let own_name = if last == "self" { path.last().cloned().unwrap_or(last) } else { last };
    leaves.push((path, alias.map_or(own_name, str::to_owned)));
}

/// The members of a group, split at the commas of its first level.
fn members(group: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut members = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                members.push(String::new());
                continue;
            }
            _ => {}
        }
        members.last_mut().expect("there is always one").push(c);
    }
    members.into_iter().filter(|member| !member.trim().is_empty()).collect()
}

/// The paths of two or more segments in code.
fn paths_in(body: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find(is_word) {
        let begins_path = !rest[..start].ends_with("::");
        rest = &rest[start..];
        let mut path = Vec::new();
        loop {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            path.push(rest[..end].to_owned());
            rest = &rest[end..];
            match rest.strip_prefix("::") {
                Some(next) if next.starts_with(is_word) => rest = next,
                _ => break,
            }
        }
        if begins_path && path.len() > 1 {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &[&str], text: &str) -> Source {
        let code = crate::layering::source::code_of(text);
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        Source { name: path.join("/"), path, lines: 0, code }
    }

    #[test]
    fn a_cycle_is_found_through_a_re_export_a_glob_and_an_inline_path() {
        let sources = [
            source(
                &["m"],
                "mod a; mod b; mod c; pub use b::*; pub(super) use c::Third as Last; pub struct Own;",
            ),
            source(&["m", "a"], "use super::{Own, Second}; pub struct First;"),
            source(&["m", "b"], "pub struct Second; fn f(_: super::Last) {}"),
            source(&["m", "c"], "pub struct Third(pub crate::a::First);"),
            source(&["n"], "use m::Second;"),
        ];
        assert_eq!(Imports::of(&sources).cycles(), [["m/a", "m/b", "m/c"]]);
        assert!(Imports::of(&sources[..3]).cycles().is_empty());
    }

    #[test]
    fn a_cycle_between_directories_is_found_where_their_files_are_in_none() {
        let sources = [
            source(&["m"], "mod a; mod b;"),
            source(&["m", "a"], "mod first; mod second;"),
            source(&["m", "a", "first"], "use crate::b::Lower;"),
            source(&["m", "a", "second"], "pub struct Last;"),
            source(&["m", "b"], "use super::a::second::Last; pub struct Lower;"),
        ];
        let imports = Imports::of(&sources);
        assert!(imports.cycles().is_empty());
        assert_eq!(imports.cycles_of_parts(), [["m/a", "m/b"]]);
    }

    #[test]
    fn what_an_enclosing_module_defines_is_no_import() {
        let sources = [
            source(&["m"], "mod a; use a::First; pub struct Own(First);"),
            source(&["m", "a"], "use super::Own; pub struct First;"),
        ];
        assert!(Imports::of(&sources).cycles().is_empty());
    }
}
