//! The directories of the workspace in a caller's PATH: an activated virtual environment, `node_modules/.bin` and their like.
//!
//! They hold what commands have written, so that a name found there is never what a rule that allows the name means. Where the execs of a
//! command's processes are not judged, what those start by a name could be such a program, too: there the directories are searched
//! only if the rules allow any command whatever.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    exec_spec::ExecSpec,
    path::AbsPath,
    profile::Profile,
    request::{CommandSpec, Request},
    variables::matches,
};
use crate::byte_text;

/// The variable of an activated virtual environment.
const VIRTUAL_ENV: &str = "VIRTUAL_ENV";

/// A name and arguments that no rule has.
const ANY_PROGRAM: &str = "any-program-of-provost";
const ANY_ARGS: [&str; 3] = ["any-argument", "--any-option", "/any/path"];

/// The profile that also searches what the request's caller has in PATH and lies within the roots.
pub(super) fn adapt(profile: Arc<Profile>, request: &Request) -> Arc<Profile> {
    let is_denied = |name: &str| profile.environment.deny.iter().any(|pattern| matches(pattern, name));
    // One that holds the separator would be two others.
    let is_taken = |directory: &AbsPath| {
        request.roots.iter().any(|root| directory.is_within(root)) && !directory.as_str().contains(':')
    };
    if is_denied("PATH") || !request.search_path.iter().any(is_taken) {
        return profile;
    }
    let mut searched: Vec<PathBuf> = Vec::new();
    for directory in request.search_path.iter() {
        let path = directory.as_path().to_owned();
        if profile.path.contains(&path) {
            add_own(&mut searched, &profile.path);
        } else if is_taken(directory) && !searched.contains(&path) {
            searched.push(path);
        }
    }
    add_own(&mut searched, &profile.path);
    let virtual_env = request.virtual_env.as_ref().filter(|environment| {
        !is_denied(VIRTUAL_ENV) && searched.contains(&environment.as_path().join("bin"))
    });
    let mut adapted = Profile::clone(&profile);
    if let Some(environment) = virtual_env {
        let set = &mut adapted.environment.set;
        set.entry(VIRTUAL_ENV.to_owned()).or_insert_with(|| environment.as_str().to_owned());
    }
    adapted.searched = searched;
    Arc::new(adapted)
}

/// The profile's own directories stay together, where the first of them stands for the caller.
fn add_own(searched: &mut Vec<PathBuf>, own: &[PathBuf]) {
    if own.first().is_some_and(|first| !searched.contains(first)) {
        searched.extend_from_slice(own);
    }
}

/// The request as it is judged without the workspace's directories. A program that was found there is named by its path.
pub(super) fn without_workspace(request: &Request, spec: &ExecSpec) -> Request {
    let found = spec.resolved_file().filter(|file| spec.profile().is_found_in_workspace(&file.lookup_path));
    let command = match (&request.command, found) {
        (CommandSpec::Argv { command, args }, Some(file)) if !command.contains('/') => {
            CommandSpec::Argv { command: file.lookup_path.clone(), args: args.clone() }
        }
        (command, _) => command.clone(),
    };
    Request { command, search_path: Arc::default(), virtual_env: None, ..request.clone() }
}

/// The request for a program of which rules know nothing but that it is in this directory of the workspace.
pub(super) fn any_program(request: &Request, directory: &Path) -> Request {
    let command = byte_text::from_path(&directory.join(ANY_PROGRAM));
    let args = ANY_ARGS.map(str::to_owned).to_vec();
    Request {
        command: CommandSpec::Argv { command, args },
        search_path: Arc::default(),
        virtual_env: None,
        ..request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(search_path: &[&str], deny: &[&str]) -> (Vec<String>, Option<String>) {
        let path = |text: &&str| AbsPath::parse(text).unwrap();
        let mut profile = Profile { path: vec!["/usr/bin".into(), "/bin".into()], ..Profile::default() };
        profile.environment.deny = deny.iter().map(|&name| name.to_owned()).collect();
        let command = CommandSpec::ShellLine("true".into());
        let request = Request {
            search_path: search_path.iter().map(path).collect(),
            virtual_env: Some(path(&"/work/v")),
            ..Request::plain("uid:1".into(), Arc::from([path(&"/work")]), path(&"/work"), command)
        };
        let adapted = adapt(Arc::new(profile), &request);
        let paths = adapted.searched().iter().map(|path| path.display().to_string());
        (paths.collect(), adapted.environment.set.get(VIRTUAL_ENV).cloned())
    }

    #[test]
    fn directories_within_the_roots_keep_their_place_among_the_profiles_own() {
        let own = ["/usr/bin", "/bin"];
        assert_eq!(searched(&[], &[]).0, own);
        assert_eq!(searched(&["/evil", "/workshop/bin", "/usr/bin"], &[]).0, own);
        let (paths, virtual_env) = searched(&["/work/v/bin", "/evil", "/bin", "/usr/bin", "/work/b"], &[]);
        assert_eq!(paths, ["/work/v/bin", "/usr/bin", "/bin", "/work/b"]);
        assert_eq!(virtual_env.as_deref(), Some("/work/v"));
        let (paths, virtual_env) = searched(&["/work/b", "/work/b", "/work/a:/evil"], &[]);
        assert_eq!(paths, ["/work/b", "/usr/bin", "/bin"]);
        assert_eq!(virtual_env, None, "its programs are not searched");
        assert_eq!(searched(&["/work/v/bin"], &["PATH"]).0, own);
        assert_eq!(searched(&["/work/v/bin"], &["VIRTUAL_*"]).1, None);
    }
}
