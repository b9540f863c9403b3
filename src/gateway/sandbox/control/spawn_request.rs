//! Builds the supervisor's spawn request from a command specification. The specification was taken out of a permit,
//! which this spawn consumes.

use std::{collections::BTreeMap, net::Ipv4Addr, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use nix::sys::resource::{Resource, getrlimit};

use crate::{
    byte_text,
    network::HTTP_PROXY_PORT,
    output::ring::MAX_RETAINED_BYTES,
    policy::{
        self, ExecSpec, OverflowMode, StdinSource, StreamMode,
        command::{
            interpreter::interpreted_argv,
            program::{FileId, PathStability, Resolved},
        },
        implied_variables::PROXY_ADDRESS,
        profile::{LimitRules, Network, Requirement},
    },
    proto::supervisor::{FileIdentity, Judged, JudgedFile, Limits, PtySize, Rlimit, Spawn},
};

/// The smallest ring that blocks its command when full. With a smaller one, command and reader would take turns at
/// every byte.
const LOSSLESS_RING_MIN_BYTES: u64 = 256 << 10;

/// What the gateway adds to what policy allowed. Holds secrets, so it has no `Debug`.
pub struct SpawnExtras {
    /// Who asked: what rules about execs may depend on.
    pub principal: String,
    /// The session's labels: likewise.
    pub labels: BTreeMap<String, String>,
    /// The terminal's metadata, kept for the next gateway.
    pub metadata: Bytes,
    /// The working directory by the caller's name, where links lead to it.
    pub named_cwd: Option<String>,
    /// Variables of the gateway's own, as `NAME=value`, in place of those of the same name.
    pub variables: &'static [&'static str],
    /// Secrets, as `NAME=value`.
    pub secrets: Vec<Bytes>,
    /// Bytes that each ring holds in addition to the retained ones. Redacting needs what came before them.
    pub margin_bytes: u64,
    /// The command's stdin, in place of one that is written to.
    pub given_input: Option<Arc<OwnedFd>>,
}

/// The name in `NAME=value`.
fn name_of(entry: &[u8]) -> Option<&[u8]> {
    entry.split(|byte| *byte == b'=').next()
}

/// The request for one command, in a sandbox whose proxies listen at this address.
pub fn build(terminal_id: String, exec_spec: ExecSpec, extras: SpawnExtras, proxies: Ipv4Addr) -> Spawn {
    let SpawnExtras { metadata, named_cwd, variables, secrets, margin_bytes, given_input, .. } = extras;
    // Shells go by it where it leads to their directory, as they do outside.
    let named_cwd = named_cwd.map(|name| Bytes::from([b"PWD=", &*byte_text::to_bytes(&name)].concat()));
    let is_replaced = |entry: &Bytes| variables.iter().any(|own| name_of(own.as_bytes()) == name_of(entry));
    let own = variables.iter().map(|own| Bytes::from_static(own.as_bytes())).chain(named_cwd);
    let ring_bytes = match exec_spec.overflow() {
        OverflowMode::DropOldest => exec_spec.output_limit_bytes(),
        OverflowMode::Block => exec_spec.output_limit_bytes().max(LOSSLESS_RING_MIN_BYTES),
    };
    let times = &exec_spec.profile().times;
    Spawn {
        env: env(&exec_spec, &terminal_id, proxies)
            .filter(|entry| !is_replaced(entry))
            .chain(own)
            .chain(secrets)
            .collect(),
        terminal_id,
        judged: judged(&exec_spec),
        program: exec_spec.program().to_owned(),
        argv: argv(&exec_spec),
        cwd: exec_spec.cwd().as_str().to_owned(),
        cwd_identity: exec_spec.directory().map(|id| FileIdentity {
            device: id.device,
            inode: id.inode,
            changed_ns: 0,
        }),
        path: exec_spec.search_path().iter().map(|directory| text(directory)).collect(),
        limits: Some(limits(&exec_spec.profile().limits)),
        ring_bytes: ring_bytes.saturating_add(margin_bytes).min(MAX_RETAINED_BYTES.max(ring_bytes)),
        split_output: exec_spec.streams() == StreamMode::Split,
        open_stdin: given_input.is_none() && exec_spec.stdin() == StdinSource::Open,
        stdin_given: given_input.is_some(),
        block_when_full: exec_spec.overflow() == OverflowMode::Block,
        time_limit_ms: exec_spec.time_limit().map_or(0, whole_millis),
        idle_limit_ms: exec_spec.idle_limit().map_or(0, whole_millis),
        kill_grace_ms: millis(exec_spec.kill_grace()),
        linger_ms: millis(times.linger),
        metadata,
        pty: exec_spec.streams().pty().map(pty_size),
        umask: Some(exec_spec.umask().bits()),
    }
}

/// A size, as the protocol has it.
pub(super) fn pty_size(size: policy::PtySize) -> PtySize {
    PtySize { columns: size.columns().into(), rows: size.rows().into() }
}

/// The environment, in which the proxy's address is the sandbox's own and says which terminal uses it: only for the records, since a command
/// can say another.
fn env<'a>(
    exec_spec: &'a ExecSpec,
    terminal_id: &'a str,
    proxies: Ipv4Addr,
) -> impl Iterator<Item = Bytes> + 'a {
    exec_spec.env().iter().map(move |entry| match exec_spec.network() {
        Network::Proxy if entry.ends_with(format!("={PROXY_ADDRESS}").as_bytes()) => {
            let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
            let value = format!("=http://{terminal_id}:x@{proxies}:{HTTP_PROXY_PORT}");
            Bytes::from([name, value.as_bytes()].concat())
        }
        Network::None | Network::Host | Network::Proxy => entry.clone(),
    })
}

/// The only files that may be executed. The program is not searched for again: its path is the one at which policy
/// found the file.
fn judged(exec_spec: &ExecSpec) -> Option<Judged> {
    let file = match exec_spec.resolved() {
        Resolved::File(file) => file,
        Resolved::Missing => return Some(Judged::default()),
        Resolved::Builtin | Resolved::Unknown => return None,
    };
    let interpreters = exec_spec.interpreters().iter().map(|interpreter| match &interpreter.file {
        Resolved::File(file) => JudgedFile { path: interpreter.path.clone().into(), ..judged_file(file) },
        // No file has inode 0, so a file that appears later is not executed.
        Resolved::Missing => {
            let identity = Some(FileIdentity::default());
            JudgedFile { path: interpreter.path.clone().into(), identity, is_immutable: false }
        }
        Resolved::Builtin | Resolved::Unknown => {
            JudgedFile { path: interpreter.path.clone().into(), identity: None, is_immutable: false }
        }
    });
    Some(Judged { files: std::iter::once(judged_file(file)).chain(interpreters).collect() })
}

fn judged_file(file: &FileId) -> JudgedFile {
    let FileId { device, inode, changed_nanos: changed_ns, .. } = *file;
    JudgedFile {
        path: bytes_of(&file.lookup_path),
        identity: Some(FileIdentity { device, inode, changed_ns }),
        is_immutable: file.stability == PathStability::Fixed,
    }
}

/// The arguments of a script whose interpreter is executed in its place, as execve(2) would build them: the
/// interpreter and its argument, the script, the script's own arguments.
fn argv(exec_spec: &ExecSpec) -> Vec<Bytes> {
    let (Some(file), false) = (exec_spec.resolved_file(), exec_spec.interpreters().is_empty()) else {
        return exec_spec.argv().to_vec();
    };
    let lines = exec_spec.interpreters().iter().map(|interpreter| {
        (Bytes::from(interpreter.path.clone()), interpreter.argument.clone().map(Bytes::from))
    });
    let script = bytes_of(&file.lookup_path);
    interpreted_argv(script, exec_spec.argv().iter().skip(1).cloned(), lines)
}

fn bytes_of(text: &str) -> Bytes {
    byte_text::to_bytes(text).into_owned().into()
}

fn limits(rules: &LimitRules) -> Limits {
    let leaf = &rules.terminal;
    Limits {
        memory_bytes: leaf.memory_bytes,
        swap_bytes: leaf.swap_bytes,
        pids: leaf.pids,
        cpu_millis: leaf.cpu_millis,
        rlimits: rlimits(rules),
        require: rules.requirement == Requirement::Require,
    }
}

/// The profile's limits, and no core files unless the profile sets that limit.
fn rlimits(rules: &LimitRules) -> Vec<Rlimit> {
    let unsaid = (!rules.rlimits.contains_key("core")).then(|| rlimit("core", 0)).flatten();
    rules.rlimits.iter().filter_map(|(name, value)| rlimit(name, *value)).chain(unsaid).collect()
}

/// The kernel pipes a core to the program in `kernel.core_pattern`, which is root on the host, even with a limit of
/// 0 (core(5)). A limit of 1 prevents that as well.
const NO_DUMP: u64 = 1;

/// A limit of setrlimit(2), capped at the gateway's own hard limit, which cannot be raised without privilege. A
/// lower limit than the profile's is no shortfall. Policy has refused unknown names.
fn rlimit(name: &str, value: u64) -> Option<Rlimit> {
    let resource = match name {
        "as" => Resource::RLIMIT_AS,
        "core" => Resource::RLIMIT_CORE,
        "cpu" => Resource::RLIMIT_CPU,
        "data" => Resource::RLIMIT_DATA,
        "fsize" => Resource::RLIMIT_FSIZE,
        "memlock" => Resource::RLIMIT_MEMLOCK,
        "msgqueue" => Resource::RLIMIT_MSGQUEUE,
        "nofile" => Resource::RLIMIT_NOFILE,
        "nproc" => Resource::RLIMIT_NPROC,
        "sigpending" => Resource::RLIMIT_SIGPENDING,
        "stack" => Resource::RLIMIT_STACK,
        _ => return None,
    };
    // If the limit cannot be read it is requested as it is; setting it then fails with its stage and errno.
    let hard = getrlimit(resource).map_or(u64::MAX, |(_, hard)| hard);
    let value = if resource == Resource::RLIMIT_CORE { value.max(NO_DUMP) } else { value };
    let value = value.min(hard);
    Some(Rlimit { resource: resource as u32, soft: value, hard: value })
}

/// Zero means "none" in the protocol, so shorter limits are rounded up to a millisecond.
fn whole_millis(time: Duration) -> u64 {
    millis(time).max(1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn text(path: &Path) -> String {
    byte_text::from_path(path)
}
