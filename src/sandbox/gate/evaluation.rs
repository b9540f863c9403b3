//! Holds an exec that was read against the policy.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    sys::{
        stat::fstatat,
        statvfs::{FsFlags, fstatvfs},
    },
};
use sha2::{Digest as _, Sha256};

use super::{
    lookup::{LastLink, Lookup, check_executable},
    process::{FileVersion, HostProc},
    reading::{ReadExec, ReadFile},
    terminals::Terminal,
};
use crate::{
    byte_text,
    policy::{
        ApprovedCommand, ExecRequest, ExecVerdict, PolicySet,
        command::{
            interpreter::Interpreter,
            program::{Directory, FileId, PathStability, ProgramResolver, Resolved},
        },
        profile::Profile,
    },
    proto::gate::Exec,
};

/// Names of programs that are remembered.
pub(super) const MAX_NAMES: usize = 4_096;
/// How long a name means the file that was found.
const NAME_LIFETIME: Duration = Duration::from_secs(1);

/// Of one exec, described to people: this many arguments, with so many bytes.
const MAX_DESCRIBED_ARGUMENTS: usize = 32;
const MAX_DESCRIBED_BYTES: usize = 4 << 10;

/// Programs by their names, for a second.
#[derive(Debug, Default)]
pub(super) struct ProgramNames {
    known: RefCell<HashMap<String, (Instant, Resolved)>>,
}

impl ProgramNames {
    /// Another policy may have another search path.
    pub(super) fn forget(&self) {
        self.known.borrow_mut().clear();
    }
}

/// Evaluates an exec of a terminal's process.
pub(super) fn evaluate(
    policy: &PolicySet,
    terminal: &Terminal,
    exec: &ReadExec,
    proc: &HostProc,
    names: &ProgramNames,
    process: i32,
) -> ExecVerdict {
    let text = byte_text::from_bytes;
    let argv: Vec<String> = match exec.argv.is_empty() {
        true => vec![String::new()],
        false => exec.argv.iter().map(|one| text(one)).collect(),
    };
    let variables = exec.env.as_ref().map(|env| Variables::of(env));
    let none_further = BTreeMap::new();
    let (path, cwd) = (text(&exec.absolute_path), text(&exec.cwd));
    let interpreters: Vec<Interpreter> = exec
        .lines
        .iter()
        .zip(exec.files.iter().skip(1))
        .map(|(line, file)| Interpreter {
            path: line.path.clone(),
            argument: line.argument.clone(),
            file: Resolved::File(file_id(file)),
        })
        .collect();
    let final_argv: Vec<String> = exec.final_argv.iter().map(|one| text(one)).collect();
    let profile = policy.profile(Some(terminal.profile.as_str())).map(|(_, profile)| &**profile);
    let resolver = ViewResolver { proc, profile, names, directories: &exec.directories };
    let request = ExecRequest {
        principal: &terminal.principal,
        labels: &terminal.labels,
        profile: &terminal.profile,
        cwd: &cwd,
        relative_from: &terminal.relative_from,
        path: &path,
        argv: &argv,
        env: variables.as_ref().map(|variables| &variables.first),
        further_env: variables.as_ref().map_or(&none_further, |variables| &variables.further),
        file: file_id(&exec.files[0]),
        interpreters: &interpreters,
        final_argv: &final_argv,
        starts_any_rule: terminal.starts_any_rule.as_deref(),
        approved: approved_for(process, terminal, proc),
    };
    policy.evaluate_exec(&request, &resolver)
}

/// What a person has approved that a process may make use of.
fn approved_for<'t>(process: i32, terminal: &'t Terminal, proc: &HostProc) -> &'t [ApprovedCommand] {
    match terminal.line {
        Some(line) if !terminal.approved.is_empty() && !proc.is_of_line(process, line) => &[],
        Some(_) | None => &terminal.approved,
    }
}

/// The exec for people and for the journal.
pub(super) fn describe(exec: &ReadExec) -> Exec {
    let text = |bytes: &[u8]| byte_text::shown(&byte_text::from_bytes(bytes)).into_owned();
    let mut digest = Sha256::new();
    let (mut argv, mut bytes) = (Vec::new(), 0);
    for argument in &exec.argv {
        digest.update(argument);
        digest.update([0]);
        bytes += argument.len();
        // The first ones, without a gap.
        if argv.len() < MAX_DESCRIBED_ARGUMENTS && bytes <= MAX_DESCRIBED_BYTES {
            argv.push(text(argument));
        }
    }
    Exec {
        file: exec.files.first().map(|file| text(&file.path)).unwrap_or_default(),
        path: text(&exec.path),
        argv_omitted: (exec.argv.len() - argv.len()) as u32,
        argv,
        argv_sha256: digest.finalize().to_vec().into(),
        cwd: text(&exec.cwd),
        interpreters: exec.files.iter().skip(1).map(|file| text(&file.path)).collect(),
    }
}

/// An environment, as rules read it.
#[derive(Debug, Default)]
struct Variables {
    /// What getenv(3) finds.
    first: BTreeMap<String, String>,
    /// Of variables that are there more than once: some programs take the last one, as bash does.
    further: BTreeMap<String, Vec<String>>,
}

impl Variables {
    fn of(env: &[Vec<u8>]) -> Self {
        let text = byte_text::from_bytes;
        let mut variables = Self::default();
        for entry in env {
            // What has no `=` is a variable to nobody.
            let Some(end) = entry.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (text(&entry[..end]), text(&entry[end + 1..]));
            match variables.first.get(&name) {
                None => {
                    variables.first.insert(name, value);
                }
                Some(_) => variables.further.entry(name).or_default().push(value),
            }
        }
        variables
    }
}

fn file_id(file: &ReadFile) -> FileId {
    let FileVersion { device, inode, changed_nanos } = file.version;
    let path = byte_text::from_bytes(&file.path);
    FileId {
        lookup_path: path.clone(),
        path,
        device,
        inode,
        changed_nanos,
        stability: PathStability::Changeable,
    }
}

/// Programs as the sandbox shows them.
struct ViewResolver<'a> {
    proc: &'a HostProc,
    profile: Option<&'a Profile>,
    names: &'a ProgramNames,
    /// The working directory of the exec, and those above it.
    directories: &'a [Directory],
}

impl ViewResolver<'_> {
    fn find(&self, path: &[u8]) -> Resolved {
        let lookup = Lookup { proc: self.proc, thread: None };
        let Ok((opened, status)) = lookup.open(AT_FDCWD, path, LastLink::Follow) else {
            return Resolved::Missing;
        };
        let Ok(real) = self.proc.path_of(opened.as_fd()) else { return Resolved::Missing };
        if check_executable(opened.as_fd(), &status).is_err() {
            return Resolved::Missing;
        }
        let file =
            ReadFile { path: real, version: FileVersion::of(&status), lookup_path: Some(path.to_vec()) };
        Resolved::File(file_id(&file))
    }
}

impl ProgramResolver for ViewResolver<'_> {
    fn find_in_path(&self, name: &str) -> Resolved {
        let Some(profile) = self.profile else { return Resolved::Missing };
        if let Some((found_at, known)) = self.names.known.borrow().get(name)
            && found_at.elapsed() < NAME_LIFETIME
        {
            return known.clone();
        }
        let paths = profile.path.iter().map(|directory| directory.join(byte_text::to_path(name)));
        let found = paths.map(|path| self.find(path.as_os_str().as_encoded_bytes()));
        let found = found.into_iter().find(|found| *found != Resolved::Missing).unwrap_or(Resolved::Missing);
        let mut known = self.names.known.borrow_mut();
        if known.len() >= MAX_NAMES {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), found.clone()));
        found
    }

    /// The directories above the one that the exec runs in: its evaluation asks about no other one.
    fn directories(&self, _: &str) -> Option<Vec<Directory>> {
        Some(self.directories.to_vec())
    }

    fn has_own_entry(&self, directory: &str, name: &str) -> bool {
        let lookup = Lookup { proc: self.proc, thread: None };
        let path = byte_text::to_path(directory);
        let Ok((opened, _)) = lookup.open(AT_FDCWD, path.as_os_str().as_encoded_bytes(), LastLink::Follow)
        else {
            return false;
        };
        // What the host alone writes is mounted to be read.
        let is_read_only = fstatvfs(&opened).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
        !is_read_only && fstatat(&opened, name, AtFlags::AT_SYMLINK_NOFOLLOW) != Err(Errno::ENOENT)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let path = byte_text::to_path(cwd).join(byte_text::to_path(path));
        self.find(path.as_os_str().as_encoded_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_variable_is_kept() {
        let env = ["X=dev", "Y=a=b", "X", "X=prod", "X=", "Z"].map(|entry| entry.as_bytes().to_vec());
        let Variables { first, further } = Variables::of(&env);
        assert_eq!(first, BTreeMap::from([("X".into(), "dev".into()), ("Y".into(), "a=b".into())]));
        assert_eq!(further, BTreeMap::from([("X".into(), vec!["prod".into(), String::new()])]));
    }
}
