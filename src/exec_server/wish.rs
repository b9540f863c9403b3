//! The sandbox that a client wishes for a request. It only tightens: what can be met is met, and what cannot is refused with the reason.
//!
//! The client's wish is no boundary: the boundary is the profile of the session. So a wish for more than the profile gives changes
//! nothing, and a wish for less than it gives never passes as met when it is not.

use serde_json::Value;

use super::{
    message::{ErrorCode, RpcError},
    uri,
};

/// What a client does without.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wish {
    is_offline: bool,
    /// None: no wish about files.
    files: Option<Vec<Entry>>,
    /// Directories in which the session's commands may write.
    roots: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// The directories that the entry is about.
    paths: Vec<String>,
    access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    None,
    Read,
    Write,
}

impl Wish {
    /// What a request's `sandbox` says; none is no wish.
    pub(super) fn of(sandbox: Option<&Value>, roots: &[String]) -> Result<Self, RpcError> {
        let none = Self { roots: roots.to_vec(), ..Self::default() };
        let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.is_null()) else { return Ok(none) };
        let permissions = &sandbox["permissions"];
        let is_offline = permissions["network"] == "restricted";
        match permissions["type"].as_str() {
            Some("disabled") => return Ok(none),
            Some("external") => return Ok(Self { is_offline, ..none }),
            Some("managed") => {}
            _ => return Err(unmet("sandbox.permissions is of a kind that this server does not know")),
        }
        let file_system = &permissions["file_system"];
        let files = match file_system["type"].as_str() {
            Some("unrestricted") => None,
            Some("restricted") => {
                let workspace = workspace_of(sandbox)?;
                let entries = file_system["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
                let entry = |entry| Entry::of(entry, &workspace);
                Some(entries.iter().filter_map(|each| entry(each).transpose()).collect::<Result<_, _>>()?)
            }
            _ => {
                return Err(unmet(
                    "sandbox.permissions.file_system is of a kind that this server does not know",
                ));
            }
        };
        Ok(Self { is_offline, files, ..none })
    }

    /// Whether the command is to have no network.
    pub(super) fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// Whether anything is wished about files.
    pub(super) fn restricts_files(&self) -> bool {
        self.files.is_some()
    }

    /// Whether a command can run as wished: it must be allowed to write all that the profile lets it write.
    pub(super) fn admits_process(&self) -> Result<(), RpcError> {
        let Some(entries) = &self.files else { return Ok(()) };
        if let Some(root) = self.roots.iter().find(|root| self.access(root) != Access::Write) {
            return Err(unmet(&format!(
                "sandbox.permissions leaves {root} read-only, where the commands of this session may write"
            )));
        }
        let lies_within = |path: &String| self.roots.iter().any(|root| is_below(path, root));
        let exception = entries
            .iter()
            .filter(|entry| entry.access != Access::Write)
            .flat_map(|entry| &entry.paths)
            .find(|path| lies_within(path) || self.access(path) == Access::None);
        match exception {
            Some(path) => Err(unmet(&format!("sandbox.permissions takes rights from {path} alone"))),
            None => Ok(()),
        }
    }

    /// Whether a file operation may read this path, which has no links and no `..` in it.
    pub(super) fn admits_reading(&self, path: &str) -> Result<(), RpcError> {
        match self.access(path) {
            Access::Read | Access::Write => Ok(()),
            Access::None => Err(denied(path, "read")),
        }
    }

    /// Whether a file operation may change this path, which has no links and no `..` in it.
    pub(super) fn admits_writing(&self, path: &str) -> Result<(), RpcError> {
        match self.access(path) {
            Access::Write => Ok(()),
            Access::Read | Access::None => Err(denied(path, "write")),
        }
    }

    /// As [`Wish::admits_reading`], of a directory with all that is in it.
    pub(super) fn admits_reading_below(&self, path: &str) -> Result<(), RpcError> {
        self.admits_reading(path)?;
        match self.exception_below(path, |access| access == Access::None) {
            Some(exception) => Err(denied(exception, "read")),
            None => Ok(()),
        }
    }

    /// As [`Wish::admits_writing`], of a directory with all that is in it.
    pub(super) fn admits_writing_below(&self, path: &str) -> Result<(), RpcError> {
        self.admits_writing(path)?;
        match self.exception_below(path, |access| access != Access::Write) {
            Some(exception) => Err(denied(exception, "write")),
            None => Ok(()),
        }
    }

    fn exception_below(&self, path: &str, is_exception: impl Fn(Access) -> bool) -> Option<&String> {
        let entries = self.files.iter().flatten().filter(|entry| is_exception(entry.access));
        entries.flat_map(|entry| &entry.paths).find(|below| is_below(below, path))
    }

    /// What the most specific entry says; of two alike the stricter one.
    fn access(&self, path: &str) -> Access {
        let Some(entries) = &self.files else { return Access::Write };
        let matching = entries.iter().flat_map(|entry| entry.paths.iter().map(|path| (path, entry.access)));
        let matching = matching.filter(|(directory, _)| is_below(path, directory));
        let strictness = |access: Access| match access {
            Access::Write => 0,
            Access::Read => 1,
            Access::None => 2,
        };
        let best = matching
            .max_by_key(|(directory, access)| (directory.trim_end_matches('/').len(), strictness(*access)));
        best.map_or(Access::None, |(_, access)| access)
    }
}

impl Entry {
    /// None: an entry that changes nothing here.
    fn of(entry: &Value, workspace: &[String]) -> Result<Option<Self>, RpcError> {
        let access = match entry["access"].as_str() {
            Some("read") => Access::Read,
            Some("write") => Access::Write,
            Some("none" | "deny") => Access::None,
            _ => {
                return Err(unmet(
                    "an entry of sandbox.permissions has an access that this server does not know",
                ));
            }
        };
        let path = &entry["path"];
        let unknown = || unmet("an entry of sandbox.permissions has a path that this server does not know");
        let paths = match path["type"].as_str() {
            Some("path") => vec![absolute(path["path"].as_str().ok_or_else(unknown)?)?],
            Some("special") => match path["value"]["kind"].as_str() {
                Some("root") => vec!["/".to_owned()],
                Some("project_roots") if workspace.is_empty() => return Err(unknown()),
                Some("project_roots") => match path["value"]["subpath"].as_str() {
                    Some(below) => {
                        let join = |root: &String| format!("{}/{below}", root.trim_end_matches('/'));
                        workspace.iter().map(join).collect()
                    }
                    None => workspace.to_vec(),
                },
                Some("slash_tmp" | "tmpdir") => vec!["/tmp".to_owned()],
                // What programs need to start is read-only in every sandbox.
                Some("minimal") => return Ok(None),
                _ => return Err(unknown()),
            },
            // A pattern can only be followed by the client itself.
            _ => return Err(unknown()),
        };
        Ok(Some(Self { paths, access }))
    }
}

/// The directories that the client calls its project's: those that it names, else its working directory.
fn workspace_of(sandbox: &Value) -> Result<Vec<String>, RpcError> {
    let named = sandbox["workspaceRoots"].as_array().filter(|named| !named.is_empty());
    let path = |uri: &Value, field| uri::path_of(uri.as_str().unwrap_or_default(), field);
    match named {
        Some(named) => named.iter().map(|root| path(root, "sandbox.workspaceRoots")).collect(),
        None if sandbox["cwd"].is_null() => Ok(Vec::new()),
        None => path(&sandbox["cwd"], "sandbox.cwd").map(|cwd| vec![cwd]),
    }
}

/// The client writes paths of this host in two ways.
fn absolute(path: &str) -> Result<String, RpcError> {
    match path.starts_with('/') {
        true => Ok(path.to_owned()),
        false => uri::path_of(path, "sandbox.permissions"),
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn unmet(problem: &str) -> RpcError {
    let message = format!(
        "the sandbox that the client wishes for cannot be met, and nothing was run: {problem}. Provost confines every \
         command by its policy; configure the client to ask for no sandbox of its own (sandbox_mode = \
         \"danger-full-access\")"
    );
    RpcError::new(ErrorCode::Refused, "SANDBOX_WISH_UNMET", &message)
}

fn denied(path: &str, what: &str) -> RpcError {
    let message = format!("the client's own sandbox.permissions do not let it {what} {path}");
    RpcError::new(ErrorCode::InvalidRequest, "SANDBOX_WISH", &message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wish(network: &str, entries: &Value) -> Result<Wish, RpcError> {
        let sandbox = json!({ "cwd": "file:///w", "permissions": {
            "type": "managed", "network": network, "file_system": { "type": "restricted", "entries": entries },
        } });
        Wish::of(Some(&sandbox), &["/w".to_owned()])
    }

    fn special(kind: &str, access: &str) -> Value {
        json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access })
    }

    fn path(path: &str, access: &str) -> Value {
        json!({ "path": { "type": "path", "path": path }, "access": access })
    }

    #[test]
    fn no_wish_and_a_wish_for_everything_change_nothing() {
        for sandbox in [None, Some(json!(null)), Some(json!({ "permissions": { "type": "disabled" } }))] {
            let wish = Wish::of(sandbox.as_ref(), &[]).unwrap();
            assert!(!wish.is_offline() && wish.admits_process().is_ok() && wish.admits_writing("/x").is_ok());
        }
        let all = wish("enabled", &json!([special("root", "write")])).unwrap();
        assert!(all.admits_process().is_ok() && !all.is_offline());
    }

    #[test]
    fn a_command_that_may_write_the_workspace_can_run_and_one_that_may_not_is_refused() {
        let entries = json!([special("root", "read"), special("project_roots", "write")]);
        let workspace = wish("restricted", &entries).unwrap();
        assert!(workspace.admits_process().is_ok() && workspace.is_offline());
        for entries in [
            json!([special("root", "read")]),
            json!([special("project_roots", "write"), path("file:///w/.git", "read")]),
            json!([special("project_roots", "write"), path("/etc/shadow", "none")]),
        ] {
            let refused = wish("restricted", &entries).unwrap().admits_process().unwrap_err();
            assert_eq!(refused.data["reason"], "SANDBOX_WISH_UNMET");
        }
    }

    #[test]
    fn a_file_operation_obeys_the_most_specific_entry() {
        let entries = json!([
            special("root", "read"),
            special("project_roots", "write"),
            path("/w/.git", "read"),
            path("/s", "none")
        ]);
        let wish = wish("restricted", &entries).unwrap();
        assert!(wish.admits_reading("/etc/passwd").is_ok() && wish.admits_writing("/etc/passwd").is_err());
        assert!(wish.admits_writing("/w/a").is_ok() && wish.admits_writing("/w/.git/config").is_err());
        assert!(wish.admits_reading("/s/x").is_err() && wish.admits_reading("/sx").is_ok());
        assert!(wish.admits_writing("/workspace").is_err(), "a name that only begins alike");
        assert!(wish.admits_writing_below("/w").is_err() && wish.admits_writing_below("/w/a").is_ok());
        assert!(wish.admits_reading_below("/").is_err() && wish.admits_reading_below("/w").is_ok());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let glob = json!([{ "path": { "type": "glob_pattern", "pattern": "**/.env" }, "access": "none" }]);
        assert!(wish("enabled", &glob).is_err());
        let later = json!({ "permissions": { "type": "later" } });
        assert!(Wish::of(Some(&later), &[]).is_err());
    }
}
