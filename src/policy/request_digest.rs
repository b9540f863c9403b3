//! The digest of a request: what an approval is bound to.

use std::time::Duration;

use sha2::Digest as _;

use super::{
    command::{
        program::{FileId, Resolved},
        verdict::RuleVerdict,
    },
    digest::Digest,
    exec_spec::ExecSpec,
    request::Request,
    secret::SecretGrant,
};

/// Hashes every field that says what will run, the files that it names, and what the session lets it touch. Each part
/// goes in with its length, so that no two requests share a text.
pub(super) fn request_digest(request: &Request, verdict: &RuleVerdict, spec: &ExecSpec) -> Digest {
    let mut hash = sha2::Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(b"provost.order.v4");
    part(request.principal.as_bytes());
    part(&(request.roots.len() as u64).to_le_bytes());
    request.roots.iter().for_each(|root| part(root.as_str().as_bytes()));
    part(&(request.labels.len() as u64).to_le_bytes());
    request.labels.iter().flat_map(|(name, value)| [name, value]).for_each(|text| part(text.as_bytes()));
    part(spec.profile_name.as_str().as_bytes());
    part(spec.program.as_bytes());
    part(spec.cwd.as_str().as_bytes());
    let directory = spec.directory.map_or([0; 2], |id| [id.device, id.inode]);
    directory.iter().for_each(|number| part(&number.to_le_bytes()));
    for list in [&spec.argv, &spec.env] {
        part(&(list.len() as u64).to_le_bytes());
        list.iter().for_each(|item| part(item));
    }
    part(&(spec.secrets.len() as u64).to_le_bytes());
    for SecretGrant { name, file } in &spec.secrets {
        part(name.as_bytes());
        part(file.as_os_str().as_encoded_bytes());
    }
    let millis = |time: Option<Duration>| time.map_or(u64::MAX, |time| time.as_millis() as u64);
    let units = verdict.units.iter().map(|unit| &unit.file);
    let interpreters = spec.interpreters.iter().map(|interpreter| &interpreter.file);
    let named: Vec<[u64; 3]> = spec
        .resolved_file()
        .map(identity)
        .into_iter()
        .chain(units.chain(interpreters).map(|found| match found {
            Resolved::File(file) => identity(file),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => [0; 3],
        }))
        .collect();
    let limits = spec.profile.limits.terminal;
    for number in [named.len() as u64].into_iter().chain(named.into_iter().flatten()).chain(
        [limits.memory_bytes, limits.swap_bytes, limits.pids, limits.cpu_millis]
            .map(|limit| limit.unwrap_or(u64::MAX)),
    ) {
        part(&number.to_le_bytes());
    }
    for number in [
        spec.network as u64,
        spec.streams.digest_number(),
        spec.stdin as u64,
        spec.overflow as u64,
        spec.output_limit_bytes,
        millis(spec.time_limit),
        millis(spec.idle_limit),
        millis(Some(spec.kill_grace)),
        u64::from(spec.umask.bits()),
    ] {
        part(&number.to_le_bytes());
    }
    Digest(hash.finalize().into())
}

fn identity(file: &FileId) -> [u64; 3] {
    [file.device, file.inode, file.changed_nanos as u64]
}
