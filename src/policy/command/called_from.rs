//! Programs that take their configuration from the place at which they are called: what a link to one runs is code of the link's place.
//!
//! Python reads `pyvenv.cfg` next to the path that it is called by, or above it, and runs what the environment there says before anything else,
//! wherever the link leads. In a place where commands may write, such a program is one of the place and no other.

use super::{
    program::{ProgramResolver, Resolved, base_name, resolve_place},
    shell::LineCwd,
};

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
