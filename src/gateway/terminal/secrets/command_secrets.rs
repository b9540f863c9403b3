//! The secrets of a command: read from their files just before it starts, and kept for masking.
//!
//! A command whose secret cannot be read or masked is refused. Nothing here prints a value, and an error names only the
//! secret; the path of its file goes into the gateway's log.

use std::{
    fmt,
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use bytes::Bytes;

use crate::{
    masking::{MaskError, Masker, SECRET_MAX_BYTES, SECRET_MIN_BYTES},
    policy::SecretGrant,
    proto::state,
};

/// The secrets of one command, together. They are part of what its supervisor keeps for the next gateway.
const TOTAL_MAX_BYTES: usize = 256 << 10;

/// Bits of a file's mode that no secret has: everybody may read, or write.
const OPEN_TO_ALL: u32 = 0o006;

/// A command cannot have a secret.
#[derive(Debug, thiserror::Error)]
#[error("secret {name:?} cannot be given to the command")]
pub(crate) struct SecretError {
    /// The secret's name.
    pub name: String,
    /// What is wrong with it.
    #[source]
    pub fault: SecretFault,
}

/// What is wrong with a secret's file, or with the value in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFault {
    /// open(2).
    #[error("its file cannot be opened")]
    Open(#[source] io::Error),
    /// read(2).
    #[error("its file cannot be read")]
    Read(#[source] io::Error),
    /// A directory, a pipe, a device.
    #[error("its file is no regular file")]
    NotAFile,
    /// The file's mode.
    #[error("its file can be read or written by everybody (mode {0:04o})")]
    OpenToAll(u32),
    /// No variable can hold it.
    #[error("its value has a NUL byte")]
    Nul,
    /// Too much is to be kept for the next gateway.
    #[error("a command's secrets have {0} bytes together: no more than {TOTAL_MAX_BYTES} are given")]
    TotalTooLarge(usize),
    /// Its value would not be masked.
    #[error("its value cannot be masked")]
    Mask(#[source] MaskError),
}

impl SecretFault {
    /// The kernel's number for it, where it was the kernel that refused.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Open(cause) | Self::Read(cause) => cause.raw_os_error(),
            Self::NotAFile | Self::OpenToAll(_) | Self::Nul | Self::TotalTooLarge(_) | Self::Mask(_) => None,
        }
    }
}

/// The values of a command's secrets. Not printed by anything, not even for debugging.
#[derive(Default)]
pub(in crate::terminal) struct Secrets {
    values: Vec<(String, Vec<u8>)>,
    masker: Masker,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// Reads them, and those that are only masked: they are put into requests of the command, and servers may say them again.
    /// Waits for the file system; not for the writer of a pipe.
    pub(in crate::terminal) fn read(
        grants: &[SecretGrant],
        masked: &[SecretGrant],
    ) -> Result<Self, SecretError> {
        let mut values = Vec::new();
        for SecretGrant { name, file } in grants {
            let value = read(file).map_err(|fault| {
                tracing::error!(secret.name = name, secret.file = %crate::printable::path(file), error = %fault, "secret not read");
                SecretError { name: name.clone(), fault }
            })?;
            values.push((name.clone(), value));
        }
        Self::new(values, &read_for_masking(masked))
    }

    fn new(values: Vec<(String, Vec<u8>)>, masked: &[Vec<u8>]) -> Result<Self, SecretError> {
        let bytes = values.iter().map(|(_, value)| value.len()).sum();
        if bytes > TOTAL_MAX_BYTES {
            let name = values.last().map_or_else(String::new, |(name, _)| name.clone());
            return Err(SecretError { name, fault: SecretFault::TotalTooLarge(bytes) });
        }
        let mask = |fault, name: &str| SecretError { name: name.to_owned(), fault: SecretFault::Mask(fault) };
        let masker = Masker::new(values.iter().map(|(_, value)| value).chain(masked)).map_err(|error| {
            let name = match &error {
                MaskError::TooShort { index, .. } | MaskError::TooLong { index, .. } => values.get(*index),
                MaskError::TooMany(_) => values.last(),
            };
            mask(error, name.map_or("", |(name, _)| name.as_str()))
        })?;
        Ok(Self { values, masker })
    }

    /// As `NAME=value`, for the command's environment.
    pub(in crate::terminal) fn environment(&self) -> Vec<Bytes> {
        let entry = |(name, value): &(String, Vec<u8>)| [name.as_bytes(), b"=", value].concat().into();
        self.values.iter().map(entry).collect()
    }

    /// For the next gateway, which must mask them, too.
    pub(in crate::terminal) fn to_records(&self) -> Vec<state::Secret> {
        let secret = |(name, value): &(String, Vec<u8>)| state::Secret {
            name: name.clone(),
            value: Bytes::copy_from_slice(value),
        };
        self.values.iter().map(secret).collect()
    }

    /// Takes them out of what leaves the gateway.
    pub(in crate::terminal) fn masker(&self) -> &Masker {
        &self.masker
    }
}

/// The values of secrets that a command is not given and that its output may have. One that cannot be read or masked is put into no
/// request either.
pub(in crate::terminal) fn read_for_masking(grants: &[SecretGrant]) -> Vec<Vec<u8>> {
    let values = grants.iter().filter_map(|grant| read(&grant.file).ok());
    values.filter(|value| (SECRET_MIN_BYTES..=SECRET_MAX_BYTES).contains(&value.len())).collect()
}

/// A value that is put into a request.
pub(in crate::terminal) fn read_for_request(grant: &SecretGrant) -> Result<Vec<u8>, SecretFault> {
    let value = read(&grant.file)?;
    // One that is not masked in output is not used.
    Masker::new([&value]).map_err(SecretFault::Mask)?;
    Ok(value)
}

/// A value that may be given.
fn read(path: &Path) -> Result<Vec<u8>, SecretFault> {
    let (file, metadata) = open(path)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OPEN_TO_ALL != 0 {
        return Err(SecretFault::OpenToAll(mode));
    }
    let value = value(file)?;
    if value.contains(&0) { Err(SecretFault::Nul) } else { Ok(value) }
}

/// A value that is to be hidden, whether or not it may be given.
pub(in crate::terminal) fn read_for_redaction(path: &Path) -> Result<Vec<u8>, SecretFault> {
    value(open(path)?.0)
}

fn open(path: &Path) -> Result<(File, Metadata), SecretFault> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(SecretFault::Open)?;
    let metadata = file.metadata().map_err(SecretFault::Read)?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(SecretFault::NotAFile) }
}

fn value(file: File) -> Result<Vec<u8>, SecretFault> {
    // One more than is masked, and a line end: what is too long is seen to be.
    let mut value = Vec::new();
    file.take(SECRET_MAX_BYTES as u64 + 3).read_to_end(&mut value).map_err(SecretFault::Read)?;
    if value.last() == Some(&b'\n') {
        value.pop();
        if value.last() == Some(&b'\r') {
            value.pop();
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    fn file(directory: &Path, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(format!("{mode:o}-{}", content.len()));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn secrets(file: &Path) -> Result<Secrets, SecretFault> {
        let grant = SecretGrant { name: "TOKEN".into(), file: file.to_owned() };
        Secrets::read(&[grant], &[]).map_err(|error| error.fault)
    }

    #[test]
    fn one_line_end_is_no_part_of_a_value() {
        let directory = tempfile::tempdir().unwrap();
        for (content, value) in [("s3cret\n", "s3cret"), ("s3cret\r\n", "s3cret"), ("a b c\n\n", "a b c\n")] {
            let secrets = secrets(&file(directory.path(), content.as_bytes(), 0o600)).unwrap();
            assert_eq!(secrets.environment(), [Bytes::from(format!("TOKEN={value}"))]);
            assert_eq!(format!("{secrets:?}"), "[\"TOKEN\"]");
        }
    }

    #[test]
    fn what_cannot_be_kept_secret_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let of = |content: &[u8], mode| secrets(&file(directory.path(), content, mode)).unwrap_err();
        assert!(matches!(of(b"s3cret", 0o644), SecretFault::OpenToAll(0o644)));
        assert!(matches!(of(b"s3cret", 0o602), SecretFault::OpenToAll(0o602)));
        assert!(matches!(of(b"abc", 0o600), SecretFault::Mask(MaskError::TooShort { .. })));
        assert!(matches!(of(b"", 0o600), SecretFault::Mask(MaskError::TooShort { .. })));
        assert!(matches!(of(b"s3c\0ret", 0o600), SecretFault::Nul));
        assert!(matches!(of(&[b'x'; 65_537], 0o600), SecretFault::Mask(MaskError::TooLong { .. })));
        assert!(matches!(secrets(directory.path()).unwrap_err(), SecretFault::NotAFile));
        assert!(matches!(secrets(&directory.path().join("absent")).unwrap_err(), SecretFault::Open(_)));
        let longest = [vec![b'x'; 65_536], b"\r\n".to_vec()].concat();
        assert!(secrets(&file(directory.path(), &longest, 0o440)).is_ok());
    }
}
