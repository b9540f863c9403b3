//! The sandbox that a client wishes for a request. It only tightens: what can be met is met, and what cannot is refused with the reason.
//!
//! The client's wish is no boundary: the boundary is the profile of the session. So a wish for more than the profile gives changes
//! nothing, and a wish for less than it gives never passes as met when it is not.
//!
//! A client can name a link. What it wishes is about the place to which the link leads in the sandbox, and about the link.

use serde_json::Value;

use super::{
    errors::{ErrorCode, RpcError},
    file_programs::{self, MissingFiles},
    message,
    session::ExecSession,
};
use crate::printable;

/// Where commands have their temporary files.
const TEMPORARY: &str = "/tmp";
/// What a wish can say. What it says of Windows and of Landlock is how its own sandbox would do it.
const SANDBOX_MEMBERS: [&str; 9] = [
    "permissions",
    "cwd",
    "workspaceRoots",
    "userHomeDir",
    "temporaryDirectories",
    "windowsSandboxLevel",
    "windowsSandboxPrivateDesktop",
    "windowsSandboxProxySettingsMode",
    "useLegacyLandlock",
];
/// What is shown of the name of a member, in bytes.
const NAME_SHOWN_MAX_BYTES: usize = 80;

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
    /// The directories that the entry is about, without `.` and `..`.
    paths: Vec<String>,
    access: Access,
    /// Whether the client names a path, which can have links in it.
    is_named: bool,
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
        only(sandbox, "sandbox", &SANDBOX_MEMBERS)?;
        let permissions = &sandbox["permissions"];
        only(permissions, "sandbox.permissions", &["type", "network", "file_system"])?;
        let kind = permissions["type"].as_str();
        if kind == Some("disabled") {
            return Ok(none);
        }
        let is_offline = match permissions["network"].as_str() {
            Some("restricted") => true,
            Some("enabled") => false,
            _ => {
                return Err(unmet("sandbox.permissions.network is of a kind that this server does not know"));
            }
        };
        match kind {
            Some("external") => return Ok(Self { is_offline, ..none }),
            Some("managed") => {}
            _ => return Err(unmet("sandbox.permissions is of a kind that this server does not know")),
        }
        let file_system = &permissions["file_system"];
        only(file_system, "sandbox.permissions.file_system", &["type", "entries", "glob_scan_max_depth"])?;
        let files = match file_system["type"].as_str() {
            Some("unrestricted") => None,
            Some("restricted") => {
                let directories = Directories::of(sandbox)?;
                let entries = file_system["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
                let entry = |entry| Entry::of(entry, &directories);
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

    /// The same wish, which is also about where the user's own links to the roots lead: each is a name and a root.
    fn with_linked_roots(mut self, linked: &[(String, String)]) -> Self {
        for entry in self.files.iter_mut().flatten() {
            let real = |path: &String| {
                let (name, root) = linked.iter().find(|(name, _)| is_below(path, name))?;
                Some(format!("{root}{}", &path[name.trim_end_matches('/').len()..]))
            };
            let found: Vec<String> = entry.paths.iter().filter_map(real).collect();
            entry.paths.extend(found);
        }
        self
    }

    /// The paths that the client names to do without something there. They can have links in them.
    fn named_exceptions(&self) -> Vec<String> {
        let entries = self.files.iter().flatten();
        let exceptions = entries.filter(|entry| entry.is_named && entry.access != Access::Write);
        exceptions.flat_map(|entry| entry.paths.clone()).collect()
    }

    /// The same wish, which is also about where the [`Wish::named_exceptions`] really are, in their order.
    fn with_real_paths(mut self, real: Vec<String>) -> Self {
        let mut real = real.into_iter();
        let entries = self.files.iter_mut().flatten();
        for entry in entries.filter(|entry| entry.is_named && entry.access != Access::Write) {
            let found = real.by_ref().take(entry.paths.len()).collect::<Vec<_>>();
            entry.paths.extend(found);
        }
        self
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
    fn of(entry: &Value, directories: &Directories) -> Result<Option<Self>, RpcError> {
        only(entry, "an entry of sandbox.permissions", &["path", "access", "missing_path_behavior"])?;
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
        only(path, "a path of sandbox.permissions", &["type", "path", "value", "pattern"])?;
        only(&path["value"], "a path of sandbox.permissions", &["kind", "subpath"])?;
        let workspace = &directories.workspace;
        let paths = match path["type"].as_str() {
            Some("path") => vec![plain(absolute(path["path"].as_str().ok_or_else(unknown)?)?)?],
            Some("special") => match path["value"]["kind"].as_str() {
                Some("root") => vec!["/".to_owned()],
                Some("project_roots") if workspace.is_empty() => return Err(unknown()),
                Some("project_roots") => match path["value"]["subpath"].as_str() {
                    Some(below) => {
                        let join = |root: &String| plain(format!("{}/{below}", root.trim_end_matches('/')));
                        workspace.iter().map(join).collect::<Result<_, _>>()?
                    }
                    None => workspace.clone(),
                },
                Some("slash_tmp") => vec![TEMPORARY.to_owned()],
                // The sandbox's own, and what the client takes for it.
                Some("tmpdir") => {
                    directories.temporary.iter().cloned().chain([TEMPORARY.to_owned()]).collect()
                }
                // What programs need to start is read-only in every sandbox.
                Some("minimal") => return Ok(None),
                _ => return Err(unknown()),
            },
            // A pattern can only be followed by the client itself.
            _ => return Err(unknown()),
        };
        let is_named = path["type"] == "path" || !path["value"]["subpath"].is_null();
        Ok(Some(Self { paths, access, is_named }))
    }
}

/// What the client's names for directories mean.
#[derive(Debug, Default)]
struct Directories {
    /// Those that it calls its project's: those that it names, else its working directory.
    workspace: Vec<String>,
    temporary: Vec<String>,
}

impl Directories {
    fn of(sandbox: &Value) -> Result<Self, RpcError> {
        let path = |uri: &Value, field| plain(message::path_of(uri.as_str().unwrap_or_default(), field)?);
        let list = |name: &str, field| match &sandbox[name] {
            Value::Null => Ok(Vec::new()),
            Value::Array(named) => named.iter().map(|uri| path(uri, field)).collect(),
            _ => Err(unmet(&format!("{field} is no list"))),
        };
        let mut workspace: Vec<String> = list("workspaceRoots", "sandbox.workspaceRoots")?;
        if workspace.is_empty() && !sandbox["cwd"].is_null() {
            workspace.push(path(&sandbox["cwd"], "sandbox.cwd")?);
        }
        Ok(Self { workspace, temporary: list("temporaryDirectories", "sandbox.temporaryDirectories")? })
    }
}

/// A member that this server does not know could be a wish for less than it gives.
fn only(object: &Value, what: &str, known: &[&str]) -> Result<(), RpcError> {
    let members = object.as_object().into_iter().flat_map(|members| members.keys());
    match members.into_iter().find(|name| !known.contains(&name.as_str())) {
        Some(other) => {
            let other = printable::bounded_line(other, NAME_SHOWN_MAX_BYTES);
            Err(unmet(&format!("{what} has a member that this server does not know: {other}")))
        }
        None => Ok(()),
    }
}

/// The client writes paths of this host in two ways.
fn absolute(path: &str) -> Result<String, RpcError> {
    match path.starts_with('/') {
        true => Ok(path.to_owned()),
        false => message::path_of(path, "sandbox.permissions"),
    }
}

/// A path that says where it leads. By another one an exception would be compared with what it is not about.
fn plain(path: String) -> Result<String, RpcError> {
    let parts = path.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    match parts {
        Some("") => Ok(path),
        Some(parts) if !parts.split('/').any(|part| matches!(part, "" | "." | "..")) => Ok(path),
        _ => Err(unmet(&format!(
            "sandbox.permissions has a path that is not absolute, or has \".\" or \"..\" in it: {}",
            printable::bounded_line(&path, NAME_SHOWN_MAX_BYTES)
        ))),
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

/// What a request's `sandbox` says. Runs a command in the sandbox if it names exceptions, and only then.
pub(super) async fn wish_of(session: &ExecSession, sandbox: Option<&Value>) -> Result<Wish, RpcError> {
    let wish = Wish::of(sandbox, &session.roots)?.with_linked_roots(&session.linked);
    let exceptions = wish.named_exceptions();
    if exceptions.is_empty() {
        return Ok(wish);
    }
    let real = file_programs::real_paths(session, &exceptions, MissingFiles::Allowed).await?;
    Ok(wish.with_real_paths(real))
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
        for permissions in [
            json!({ "type": "later", "network": "restricted" }),
            json!({ "type": "external", "network": "limited" }),
            json!({ "type": "external" }),
            json!({ "type": "disabled", "except": ["/w"] }),
        ] {
            let refused = Wish::of(Some(&json!({ "permissions": permissions })), &[]).unwrap_err();
            assert_eq!(refused.data["reason"], "SANDBOX_WISH_UNMET", "{permissions}");
        }
        let all = special("root", "write");
        assert!(wish("enabled", &json!([all.clone()])).is_ok());
        let mut narrowed = all.clone();
        narrowed["until"] = json!("noon");
        assert!(wish("enabled", &json!([narrowed])).is_err());
        let mut narrowed = all;
        narrowed["path"]["value"]["except"] = json!("/w");
        assert!(wish("enabled", &json!([narrowed])).is_err());
        let more = json!({ "permissions": { "type": "disabled" }, "noExec": ["/w"] });
        assert!(Wish::of(Some(&more), &[]).is_err());
    }
}
