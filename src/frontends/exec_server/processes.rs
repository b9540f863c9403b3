//! The processes of a client: started, written to, signalled, stopped.
//!
//! Each is a terminal of the client's session. A process keeps its name, its end and its last output after its end, until room is
//! needed.
//!
//! The client's own environment stays with it: what is passed on to a command describes the language and the terminal, and names no program
//! and no file. A user adds names on the command line; the policy judges each of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tonic::Code;

use super::{
    errors::{self, ErrorCode, RpcError},
    follow::StartedProcess,
    message,
    process::{InputKind, Process, ReadLimits},
    session::{ExecSession, Resumption, Run},
    wish,
};
use crate::{
    client,
    json_rpc::Receipt,
    proto::v1::{self, EnvVar, create_terminal_request::Command},
};

/// Processes that run, or have ended and can be read.
pub(super) const PROCESSES_MAX: usize = 64;
/// The bytes of one `process/write`.
pub(super) const WRITE_MAX_BYTES: usize = 1 << 20;
/// Writes to a process that its command has not taken yet.
pub(super) const WRITES_MAX: usize = 16;
/// The longest name of a process or a write, in bytes.
const NAME_MAX_BYTES: usize = 256;
/// Output that the gateway retains of each stream of a process, in bytes, for a gateway that is restarted.
const GATEWAY_BYTES: u64 = 4 << 20;
/// The size of a pseudo-terminal; the protocol has none.
const PTY: (u32, u32) = (80, 24);
/// What Ctrl-C types.
const INTERRUPT_KEY: u8 = 0x03;
/// Variables that are passed on.
const PASSED_ON: [&str; 8] = ["LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "CI", "CODEX_CI"];
/// And all that begin so.
const PASSED_ON_PREFIX: &str = "LC_";

/// The processes of one client.
#[derive(Debug)]
pub(super) struct Processes {
    session: Arc<ExecSession>,
    /// Names of further variables that are passed on.
    env_names: Vec<String>,
    /// Oldest first.
    known: Mutex<Vec<Arc<Process>>>,
}

/// A member that is not here could be a wish for less: it is refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StartParams {
    process_id: String,
    argv: Vec<String>,
    cwd: String,
    #[serde(default)]
    env_policy: Option<EnvPolicy>,
    #[serde(default)]
    env: HashMap<String, String>,
    #[serde(default)]
    tty: bool,
    #[serde(default)]
    pipe_stdin: bool,
    #[serde(default)]
    arg0: Option<String>,
    #[serde(default)]
    sandbox: Option<Value>,
    #[serde(default)]
    enforce_managed_network: bool,
    /// Which of its tool calls it is for.
    #[serde(default, rename = "metadata")]
    _metadata: IgnoredAny,
    /// Variables of a shell of its user. Only those pass that are named.
    #[serde(default, rename = "shellSnapshot")]
    _shell_snapshot: IgnoredAny,
    /// More than a command has without it, and so nothing.
    #[serde(default, rename = "credentialProviders")]
    _credential_providers: IgnoredAny,
    /// The ports of a proxy of the client, which are not in the sandbox.
    #[serde(default)]
    managed_network: Option<IgnoredAny>,
    /// A proxy that the client would have here. There is none.
    #[serde(default)]
    network_proxy: Option<IgnoredAny>,
}

/// What is about variables that a command would inherit means nothing: it inherits none of this process.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EnvPolicy {
    #[serde(default)]
    set: HashMap<String, String>,
    #[serde(default, rename = "inherit")]
    _inherit: IgnoredAny,
    #[serde(default, rename = "ignoreDefaultExcludes")]
    _ignore_default_excludes: IgnoredAny,
    #[serde(default, rename = "exclude")]
    _exclude: IgnoredAny,
    #[serde(default, rename = "includeOnly")]
    _include_only: IgnoredAny,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadParams {
    process_id: String,
    #[serde(default)]
    after_seq: Option<u64>,
    #[serde(default)]
    max_bytes: Option<usize>,
    #[serde(default)]
    wait_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WriteParams {
    process_id: String,
    chunk: String,
    /// A client that does not know whether it was accepted sends it again under the same name.
    #[serde(default)]
    write_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignalParams {
    process_id: String,
    signal: Signal,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Signal {
    Interrupt,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminateParams {
    process_id: String,
}

impl Processes {
    pub(super) fn new(session: Arc<ExecSession>, env_names: Vec<String>) -> Self {
        Self { session, env_names, known: Mutex::default() }
    }

    /// Starts a process. Its notifications come when it is followed, after the answer.
    pub(super) async fn start(&self, params: Value) -> Result<(Value, StartedProcess), RpcError> {
        let params: StartParams = message::params(params)?;
        let create = self.request(&params).await?;
        let input_kind = match (params.tty, params.pipe_stdin) {
            (true, _) => InputKind::Pty,
            (false, true) => InputKind::Pipe,
            (false, false) => InputKind::None,
        };
        let (process, inputs) = self.reserve(params.process_id)?;
        let starting = Run::start(self.session.client.clone(), create, Resumption::Resumed);
        let started = tokio::select! {
            started = starting => started.map_err(|status| errors::not_started(&status)),
            // Dropped, the call stops what it has started.
            () = process.cancelled.cancelled() => Err(RpcError::cancelled()),
        };
        let run = match started {
            Ok(run) => run,
            Err(error) => {
                self.lock().retain(|known| !Arc::ptr_eq(known, &process));
                return Err(error);
            }
        };
        process.started(run.terminal.id.clone(), input_kind);
        let answer = json!({ "processId": process.id, "sandboxType": Value::Null });
        let is_pty = params.tty;
        Ok((answer, StartedProcess { session: self.session.clone(), process, run, inputs, is_pty }))
    }

    async fn request(&self, params: &StartParams) -> Result<v1::CreateTerminalRequest, RpcError> {
        if params.process_id.is_empty() || params.process_id.len() > NAME_MAX_BYTES {
            return Err(RpcError::bad_params(&format!("processId: 1 to {NAME_MAX_BYTES} bytes")));
        }
        let Some((program, args)) = params.argv.split_first() else {
            return Err(RpcError::bad_params("argv: it is empty"));
        };
        if params.arg0.as_ref().is_some_and(|arg0| arg0 != program) {
            let problem = "arg0: a command is started under the name of the program that policy has judged";
            return Err(RpcError::bad_params(problem));
        }
        let wish = wish::wish_of(&self.session, params.sandbox.as_ref()).await?;
        wish.admits_process()?;
        // A network that goes through the client's own proxy is met by none.
        let is_managed = params.enforce_managed_network
            || params.managed_network.is_some()
            || params.network_proxy.is_some();
        let is_offline = wish.is_offline() || is_managed;
        let set = params.env_policy.as_ref().map(|policy| &policy.set);
        let stdin = match params.tty || params.pipe_stdin {
            true => v1::StdinMode::Open,
            false => v1::StdinMode::Closed,
        };
        let (columns, rows) = PTY;
        Ok(v1::CreateTerminalRequest {
            session_id: self.session.id.clone(),
            command: Some(Command::Program(program.clone())),
            args: args.to_vec(),
            env: passed_on(set.unwrap_or(&HashMap::new()), &params.env, &self.env_names),
            cwd: message::path_of(&params.cwd, "cwd")?,
            output_byte_limit: Some(GATEWAY_BYTES),
            network: if is_offline { v1::Network::None } else { v1::Network::Unspecified }.into(),
            output_mode: if params.tty { v1::OutputMode::Merged } else { v1::OutputMode::Split }.into(),
            stdin_mode: stdin.into(),
            on_ask: v1::OnAsk::Refuse.into(),
            pty: params.tty.then(|| v1::Pty { columns, rows, term: String::new() }),
            ..client::new_terminal()
        })
    }

    /// A place for a new process. The oldest that has ended makes room.
    fn reserve(&self, id: String) -> Result<(Arc<Process>, mpsc::Receiver<Bytes>), RpcError> {
        let mut known = self.lock();
        if known.iter().any(|process| process.id == id) {
            let problem = "processId: there is a process of this name";
            return Err(RpcError::new(ErrorCode::InvalidRequest, "BAD_ARGUMENT", problem));
        }
        if known.len() >= PROCESSES_MAX {
            let settled = known.iter().position(|process| process.is_settled());
            let ended = settled.or_else(|| known.iter().position(|process| process.has_ended()));
            known.remove(ended.ok_or_else(|| RpcError::too_many("processes", PROCESSES_MAX))?);
        }
        let (process, inputs) = Process::new(id, WRITES_MAX);
        let process = Arc::new(process);
        known.push(process.clone());
        Ok((process, inputs))
    }

    /// Output and end of a process, and what is to be done when the client has it. Waits, if the client says so.
    pub(super) async fn read(&self, params: Value) -> Result<(Value, Receipt), RpcError> {
        let params: ReadParams = message::params(params)?;
        let process = self.find(&params.process_id)?;
        let limits = ReadLimits {
            after_seq: params.after_seq.unwrap_or_default(),
            // As much as is kept: a client that comes back has to have it all.
            max_bytes: params.max_bytes.unwrap_or(usize::MAX),
            wait: Duration::from_millis(params.wait_ms.unwrap_or_default()),
        };
        let read = process.read(limits).await;
        let next = read["nextSeq"].as_u64().unwrap_or_default();
        Ok((read, Box::new(move || process.received(0..=next.saturating_sub(1)))))
    }

    /// Puts bytes before a process. Waits for nothing, so that writes keep their order.
    pub(super) fn write(&self, params: Value) -> Result<Value, RpcError> {
        let params: WriteParams = message::params(params)?;
        let bytes = message::decode_bytes(&params.chunk, "chunk")?;
        if bytes.len() > WRITE_MAX_BYTES {
            return Err(RpcError::bad_params(&format!("chunk: at most {WRITE_MAX_BYTES} bytes")));
        }
        if params.write_id.as_ref().is_some_and(|name| name.len() > NAME_MAX_BYTES) {
            return Err(RpcError::bad_params(&format!("writeId: at most {NAME_MAX_BYTES} bytes")));
        }
        let status = |status: &str| Ok(json!({ "status": status }));
        let Ok(process) = self.find(&params.process_id) else { return status("unknownProcess") };
        if process.terminal_id().is_none() {
            return status("starting");
        }
        if params.write_id.as_deref().is_some_and(|name| process.has_written(name)) {
            return status("accepted");
        }
        if process.input_kind() == InputKind::None || process.has_ended() {
            return status("stdinClosed");
        }
        match process.input.try_send(Bytes::from(bytes)) {
            Ok(()) => {
                params.write_id.into_iter().for_each(|name| process.written(name));
                status("accepted")
            }
            Err(mpsc::error::TrySendError::Closed(_)) => status("stdinClosed"),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(RpcError::too_many("writes that the command has not read", WRITES_MAX))
            }
        }
    }

    /// Interrupts a process: as by Ctrl-C in its pseudo-terminal, else by a signal to its process group.
    pub(super) async fn signal(&self, params: Value) -> Result<Value, RpcError> {
        let params: SignalParams = message::params(params)?;
        let Signal::Interrupt = params.signal;
        let process = self.find(&params.process_id)?;
        let Some(terminal_id) = process.terminal_id().filter(|_| !process.has_ended()) else {
            let problem = "the process does not run";
            return Err(RpcError::new(ErrorCode::InvalidRequest, "NOT_RUNNING", problem));
        };
        if process.input_kind() == InputKind::Pty {
            let typed = process.input.try_send(Bytes::from_static(&[INTERRUPT_KEY]));
            return match typed {
                Ok(()) => Ok(json!({})),
                Err(_) => Err(RpcError::too_many("writes that the command has not read", WRITES_MAX)),
            };
        }
        let session_id = self.session.id.clone();
        let request = v1::SignalTerminalRequest { terminal_id, session_id, signal: "SIGINT".to_owned() };
        // Once: a signal that was sent twice is another signal.
        let sent = self.session.client.client().terminals.signal_terminal(request).await;
        sent.map(|_| json!({})).map_err(|status| errors::of_process(&status))
    }

    /// Stops a process with all that it has started.
    pub(super) async fn terminate(&self, params: Value) -> Result<Value, RpcError> {
        let params: TerminateParams = message::params(params)?;
        let running = |is: bool| Ok(json!({ "running": is }));
        let Ok(process) = self.find(&params.process_id) else { return running(false) };
        if process.has_ended() {
            return running(false);
        }
        process.cancelled.cancel();
        let Some(terminal_id) = process.terminal_id() else { return running(true) };
        match self.session.client.kill_terminal(&terminal_id, &self.session.id).await {
            Ok(()) => running(true),
            Err(status) if status.code() == Code::NotFound => running(false),
            Err(status) => Err(errors::of_process(&status)),
        }
    }

    fn find(&self, id: &str) -> Result<Arc<Process>, RpcError> {
        let found = self.lock().iter().find(|process| process.id == id).cloned();
        found.ok_or_else(|| {
            let problem =
                "processId: there is no such process; one that has ended is forgotten when room is needed";
            RpcError::new(ErrorCode::InvalidRequest, "UNKNOWN_PROCESS", problem)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.known.lock().expect("no code panics while it holds the processes")
    }
}

/// The variables of a command. `policy` is what the client would set over its own environment, `env` what it sets for this command.
fn passed_on(
    policy: &HashMap<String, String>,
    env: &HashMap<String, String>,
    more: &[String],
) -> Vec<EnvVar> {
    let is_passed = |name: &str| {
        PASSED_ON.contains(&name)
            || name.starts_with(PASSED_ON_PREFIX)
            || more.iter().any(|other| other == name)
    };
    let set = policy.iter().filter(|(name, _)| !env.contains_key(*name)).chain(env);
    let mut passed: Vec<EnvVar> = set
        .filter(|(name, _)| is_passed(name))
        .map(|(name, value)| EnvVar { name: name.clone(), value: value.clone(), ..Default::default() })
        .collect();
    passed.sort_by(|one, other| one.name.cmp(&other.name));
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_programs_stays_outside() {
        let of = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let policy = of(&[("LANG", "de"), ("MINE", "1"), ("LD_PRELOAD", "x")]);
        let env = of(&[("LANG", "C.UTF-8"), ("PATH", "/evil"), ("HOME", "/root"), ("LC_ALL", "C")]);
        let passed = passed_on(&policy, &env, &["MINE".to_owned()]);
        let shown: Vec<_> = passed.iter().map(|var| format!("{}={}", var.name, var.value)).collect();
        assert_eq!(shown, ["LANG=C.UTF-8", "LC_ALL=C", "MINE=1"]);
    }
}
