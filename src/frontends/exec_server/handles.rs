//! Files that a client reads in pieces.
//!
//! A handle is a path, not a descriptor: each piece is read by a command of its own, and a file that is replaced meanwhile is read as
//! it is then. Writing in pieces is refused.

use std::sync::{Mutex, MutexGuard};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    files::{Files, Purpose},
    message::{self, ErrorCode, RpcError},
};

/// Files that are open at once.
pub const HANDLES_MAX: usize = 64;
/// The largest piece, in bytes.
pub const BLOCK_MAX_BYTES: usize = 4 << 20;
/// The longest name of a handle, in bytes.
const NAME_MAX_BYTES: usize = 256;

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
