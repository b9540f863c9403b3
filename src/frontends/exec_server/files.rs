//! The file operations of the protocol: each is one command in the client's sandbox, or a few, and sees what any command there sees.
//!
//! Nothing of the host's file system is opened here. What is no regular file is neither read nor written as one. A file that
//! a client reads in pieces has a handle, which is a path and no descriptor: each piece is read by a command of its own, and a file that is
//! replaced meanwhile is read as it is then. Writing in pieces is refused.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    FILE_MAX_BYTES,
    errors::{ErrorCode, RpcError},
    file_programs::{self, FileProgram, FileStatus, Links, MissingFiles, Printed, WalkOptions},
    message,
    session::ExecSession,
    wish,
};
use crate::file_uri;

/// What a program that changes files prints, at most.
const CHANGE_MAX_BYTES: usize = 4_096;
/// Files that are open at once, to be read in pieces.
pub(super) const HANDLES_MAX: usize = 64;
/// The largest piece of a file, in bytes.
pub const BLOCK_MAX_BYTES: usize = 4 << 20;
/// The longest name of a handle, in bytes.
const NAME_MAX_BYTES: usize = 256;

/// The files of one client.
#[derive(Debug)]
pub(super) struct Files {
    session: Arc<ExecSession>,
}

/// What is done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    /// With all that is in it.
    ReadTree,
    Change,
    /// With all that is in it.
    ChangeTree,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PathParams {
    path: String,
    #[serde(default)]
    sandbox: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WriteParams {
    path: String,
    data_base64: String,
    #[serde(default)]
    sandbox: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeParams {
    path: String,
    #[serde(default)]
    recursive: Option<bool>,
    #[serde(default)]
    force: Option<bool>,
    #[serde(default)]
    sandbox: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CopyParams {
    source_path: String,
    destination_path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    sandbox: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WalkParams {
    path: String,
    options: WalkOptions,
    #[serde(default)]
    sandbox: Option<Value>,
}

impl Files {
    pub(super) fn new(session: Arc<ExecSession>) -> Self {
        Self { session }
    }

    pub(super) async fn read_file(&self, params: Value) -> Result<Value, RpcError> {
        let params: PathParams = message::params(params)?;
        let path = self.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::Read).await?;
        let status = self.regular(&path).await?;
        if status.size > FILE_MAX_BYTES as u64 {
            return Err(too_large(status.size));
        }
        let args = ["--", path.as_str()];
        let printed = self.run("fs/readFile", "cat", &args, &[], FILE_MAX_BYTES).await?;
        if printed.is_cut {
            return Err(too_large(FILE_MAX_BYTES as u64 + 1));
        }
        self.checked(&path, &printed).await?;
        Ok(json!({ "dataBase64": message::encode_bytes(&printed.stdout) }))
    }

    /// Writes a file as a whole. One that is there keeps its mode and its links.
    pub(super) async fn write_file(&self, params: Value) -> Result<Value, RpcError> {
        let params: WriteParams = message::params(params)?;
        let bytes = message::decode_bytes(&params.data_base64, "dataBase64")?;
        if bytes.len() > FILE_MAX_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        let path = self.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::Change).await?;
        // Opened without waiting: a FIFO that nobody reads is an error at once.
        let target = format!("of={path}");
        let args = [target.as_str(), "bs=64K", "iflag=fullblock", "oflag=nonblock", "status=none"];
        let printed = self.run("fs/writeFile", "dd", &args, &bytes, CHANGE_MAX_BYTES).await?;
        self.checked(&path, &printed).await?;
        Ok(json!({}))
    }

    pub(super) async fn create_directory(&self, params: Value) -> Result<Value, RpcError> {
        let params: ChangeParams = message::params(params)?;
        let path = self.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::Change).await?;
        let options: &[&str] = if params.recursive.unwrap_or(true) { &["-p"] } else { &[] };
        self.change("fs/createDirectory", "mkdir", options, &[&path]).await
    }

    pub(super) async fn remove(&self, params: Value) -> Result<Value, RpcError> {
        let params: ChangeParams = message::params(params)?;
        let sandbox = params.sandbox.as_ref();
        let path = self.admitted_link(&params.path, "path", sandbox, Purpose::ChangeTree).await?;
        // -d: an empty directory, too. The path has no slash at its end, by which a link would be the directory that it leads to.
        let depth = if params.recursive.unwrap_or(true) { "-r" } else { "-d" };
        let options: &[&str] = if params.force.unwrap_or(true) { &[depth, "-f"] } else { &[depth] };
        self.change("fs/remove", "rm", options, &[&path]).await
    }

    pub(super) async fn copy(&self, params: Value) -> Result<Value, RpcError> {
        let params: CopyParams = message::params(params)?;
        let sandbox = params.sandbox.as_ref();
        self.admitted(&params.source_path, "sourcePath", sandbox, Purpose::ReadTree).await?;
        let source =
            self.admitted_link(&params.source_path, "sourcePath", sandbox, Purpose::ReadTree).await?;
        let to =
            self.admitted(&params.destination_path, "destinationPath", sandbox, Purpose::ChangeTree).await?;
        let restricts = wish::wish_of(&self.session, sandbox).await?.restricts_files();
        let status = file_programs::link_status(&self.session, &source).await?;
        let options: &[&str] = match (status.is_directory(), params.recursive) {
            // What is there is replaced: a link in it would lead elsewhere.
            (true, true) if restricts => &["-R", "-P", "-T", "--remove-destination"],
            (true, true) => &["-R", "-P", "-T"],
            (true, false) => {
                return Err(invalid("recursive: a directory is copied only with recursive: true"));
            }
            (false, _) if status.is_file() || status.is_symlink() => &["-P", "-T"],
            (false, _) => return Err(invalid("sourcePath: it is no file, directory or link")),
        };
        self.change("fs/copy", "cp", options, &[&source, &to]).await
    }

    pub(super) async fn get_metadata(&self, params: Value) -> Result<Value, RpcError> {
        let params: PathParams = message::params(params)?;
        let sandbox = params.sandbox.as_ref();
        self.admitted(&params.path, "path", sandbox, Purpose::Read).await?;
        let path = self.admitted_link(&params.path, "path", sandbox, Purpose::Read).await?;
        let link = file_programs::link_status(&self.session, &path).await?;
        let target = match link.is_symlink() {
            true => file_programs::status(&self.session, &path).await?,
            false => link,
        };
        Ok(json!({
            "isDirectory": target.is_directory(),
            "isFile": target.is_file(),
            "isSymlink": link.is_symlink(),
            "size": target.size,
            "createdAtMs": target.created_at_ms,
            "modifiedAtMs": target.modified_at_ms,
        }))
    }

    pub(super) async fn canonicalize(&self, params: Value) -> Result<Value, RpcError> {
        let params: PathParams = message::params(params)?;
        let path = self.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::Read).await?;
        let real = file_programs::real_path(&self.session, &path, MissingFiles::Refused).await?;
        Ok(json!({ "path": file_uri::of_path(&real) }))
    }

    pub(super) async fn read_directory(&self, params: Value) -> Result<Value, RpcError> {
        let params: PathParams = message::params(params)?;
        let path = self.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::Read).await?;
        self.directory(&path).await?;
        let links = self.links(params.sandbox.as_ref()).await?;
        file_programs::read_directory(&self.session, &path, links).await
    }

    pub(super) async fn walk(&self, params: Value) -> Result<Value, RpcError> {
        let params: WalkParams = message::params(params)?;
        let path = self.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::ReadTree).await?;
        self.directory(&path).await?;
        let links = self.links(params.sandbox.as_ref()).await?;
        let shown_as = message::path_of(&params.path, "path")?;
        file_programs::walk(&self.session, (&path, &shown_as), &params.options, links).await
    }

    /// The path of a URI, if the client's own wish lets it do this there. With such a wish it is the resolved one: what is done is done to
    /// what was compared, and no link leads elsewhere. Commands that change it meanwhile are held by the sandbox, not by the wish.
    async fn admitted(
        &self,
        uri: &str,
        field: &str,
        sandbox: Option<&Value>,
        purpose: Purpose,
    ) -> Result<String, RpcError> {
        let path = message::path_of(uri, field)?;
        let wish = wish::wish_of(&self.session, sandbox).await?;
        if wish.restricts_files() {
            let real = file_programs::real_path(&self.session, &path, MissingFiles::Allowed).await?;
            match purpose {
                Purpose::Read => wish.admits_reading(&real)?,
                Purpose::ReadTree => wish.admits_reading_below(&real)?,
                Purpose::Change => wish.admits_writing(&real)?,
                Purpose::ChangeTree => wish.admits_writing_below(&real)?,
            }
            return Ok(real);
        }
        Ok(path)
    }

    /// As [`Files::admitted`], of what has the name itself, and not what it links to.
    async fn admitted_link(
        &self,
        uri: &str,
        field: &str,
        sandbox: Option<&Value>,
        purpose: Purpose,
    ) -> Result<String, RpcError> {
        let path = message::path_of(uri, field)?;
        let wish = wish::wish_of(&self.session, sandbox).await?;
        if !wish.restricts_files() {
            return Ok(path);
        }
        let Some((directory, name)) = split(&path) else {
            return match purpose {
                // It is a directory, and no link.
                Purpose::Read | Purpose::ReadTree => self.admitted(uri, field, sandbox, purpose).await,
                Purpose::Change | Purpose::ChangeTree => Err(invalid("path: its last part is no name")),
            };
        };
        let real = file_programs::real_path(&self.session, directory, MissingFiles::Allowed).await?;
        let place = format!("{}/{name}", real.trim_end_matches('/'));
        match purpose {
            Purpose::Read => wish.admits_reading(&place)?,
            // What it links to is not read by this.
            Purpose::ReadTree => wish.admits_reading_below(&place)?,
            Purpose::Change => wish.admits_writing(&place)?,
            Purpose::ChangeTree => wish.admits_writing_below(&place)?,
        }
        Ok(place)
    }

    /// Whether links in a directory are looked through: they may lead to what a wish is about.
    async fn links(&self, sandbox: Option<&Value>) -> Result<Links, RpcError> {
        let wish = wish::wish_of(&self.session, sandbox).await?;
        Ok(if wish.admits_reading_below("/").is_ok() { Links::LookedThrough } else { Links::Left })
    }

    /// What a path is, which must be a regular file.
    pub(super) async fn regular(&self, path: &str) -> Result<FileStatus, RpcError> {
        let status = file_programs::status(&self.session, path).await?;
        match status.is_file() {
            true => Ok(status),
            false => Err(invalid("path: it is no regular file")),
        }
    }

    async fn directory(&self, path: &str) -> Result<(), RpcError> {
        let status = file_programs::status(&self.session, path).await?;
        match status.is_directory() {
            true => Ok(()),
            false => Err(invalid("path: it is no directory")),
        }
    }

    async fn change(
        &self,
        method: &str,
        name: &str,
        options: &[&str],
        paths: &[&str],
    ) -> Result<Value, RpcError> {
        let args = [options, &["--"], paths].concat();
        let printed = self.run(method, name, &args, &[], CHANGE_MAX_BYTES).await?;
        self.checked(paths.first().copied().unwrap_or_default(), &printed).await?;
        Ok(json!({}))
    }

    /// An error, if a program that worked at a path has failed.
    pub(super) async fn checked(&self, path: &str, printed: &Printed) -> Result<(), RpcError> {
        match printed.is_ok() {
            true => Ok(()),
            false => Err(file_programs::failure(&self.session, path, printed).await),
        }
    }

    pub(super) async fn run(
        &self,
        method: &str,
        name: &str,
        args: &[&str],
        input: &[u8],
        max_bytes: usize,
    ) -> Result<Printed, RpcError> {
        file_programs::run(&self.session, FileProgram { method, name, args, input, max_bytes }).await
    }
}

/// The directory of a path and the name in it.
fn split(path: &str) -> Option<(&str, &str)> {
    let (directory, name) = path.trim_end_matches('/').rsplit_once('/')?;
    let directory = if directory.is_empty() { "/" } else { directory };
    (!matches!(name, "" | "." | "..")).then_some((directory, name))
}

fn invalid(problem: &str) -> RpcError {
    RpcError::new(ErrorCode::InvalidRequest, "BAD_ARGUMENT", problem)
}

fn too_large(bytes: u64) -> RpcError {
    let problem = format!(
        "the file has {bytes} bytes or more; at most {FILE_MAX_BYTES} are read or written as a whole"
    );
    RpcError::new(ErrorCode::InvalidRequest, "FILE_TOO_LARGE", &problem)
}

/// The open files of one client.
#[derive(Debug, Default)]
pub(super) struct Handles {
    /// Name and path.
    open: Mutex<Vec<(String, String)>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OpenParams {
    handle_id: String,
    path: String,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    sandbox: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadBlockParams {
    handle_id: String,
    offset: u64,
    len: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CloseParams {
    handle_id: String,
}

impl Handles {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) async fn open(&self, files: &Files, params: Value) -> Result<Value, RpcError> {
        let params: OpenParams = message::params(params)?;
        if params.handle_id.is_empty() || params.handle_id.len() > NAME_MAX_BYTES {
            return Err(RpcError::bad_params(&format!("handleId: 1 to {NAME_MAX_BYTES} bytes")));
        }
        if params.mode.as_deref().is_some_and(|mode| mode != "read") {
            return Err(RpcError::bad_params(
                "mode: only read; a file is written as a whole, by fs/writeFile",
            ));
        }
        let path = files.admitted(&params.path, "path", params.sandbox.as_ref(), Purpose::Read).await?;
        files.regular(&path).await?;
        let mut open = self.lock();
        if open.iter().any(|(name, _)| *name == params.handle_id) {
            return Err(RpcError::bad_params("handleId: there is a handle of this name"));
        }
        if open.len() >= HANDLES_MAX {
            return Err(RpcError::too_many("open files", HANDLES_MAX));
        }
        open.push((params.handle_id.clone(), path));
        Ok(json!({ "handleId": params.handle_id }))
    }

    pub(super) async fn read_block(&self, files: &Files, params: Value) -> Result<Value, RpcError> {
        let params: ReadBlockParams = message::params(params)?;
        let path =
            self.lock().iter().find(|(name, _)| *name == params.handle_id).map(|(_, path)| path.clone());
        let path = path.ok_or_else(|| {
            RpcError::new(ErrorCode::NotFound, "UNKNOWN_HANDLE", "handleId: there is no such handle")
        })?;
        let length = params.len.min(BLOCK_MAX_BYTES);
        // One byte more than is asked for says whether it was the last piece.
        let (from, skip, count) =
            (format!("if={path}"), format!("skip={}", params.offset), format!("count={}", length + 1));
        let args =
            [from.as_str(), &skip, &count, "bs=64K", "iflag=skip_bytes,count_bytes,nonblock", "status=none"];
        let printed = files.run("fs/readBlock", "dd", &args, &[], length + 1).await?;
        files.checked(&path, &printed).await?;
        let is_last = printed.stdout.len() <= length;
        let bytes = &printed.stdout[..printed.stdout.len().min(length)];
        Ok(json!({ "chunk": message::encode_bytes(bytes), "eof": is_last }))
    }

    /// Forgets a handle; one that is not there, too.
    pub(super) fn close(&self, params: Value) -> Result<Value, RpcError> {
        let params: CloseParams = message::params(params)?;
        self.lock().retain(|(name, _)| *name != params.handle_id);
        Ok(json!({}))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.open.lock().expect("no code panics while it holds the handles")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        assert_eq!(split("/a/b/"), Some(("/a", "b")));
        assert_eq!(split("/a"), Some(("/", "a")));
        for path in ["/", "/a/..", "/."] {
            assert_eq!(split(path), None, "{path}");
        }
    }
}
