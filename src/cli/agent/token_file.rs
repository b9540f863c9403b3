//! The file with the token of an HTTP endpoint: made with a new token, or read if it is this user's alone.
//!
//! Who has the token has the endpoint's commands. So the file lies where neither another user nor a command can read or replace it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{
    cli::console::error::CliError,
    local_http::{TOKEN_MAX_CHARACTERS, Token},
    policy::profile::Filesystem,
    printable,
    sys::random,
};

/// Bytes of a new token.
const TOKEN_BYTES: usize = 32;
/// Bytes of the name under which a file is written.
const NAME_BYTES: usize = 12;
/// Write permission for others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, only an entry's owner can rename or remove it.
const STICKY: u32 = 0o1000;

/// The token in the file, which is made if it is not there. Commands are shown `shown`: real paths, in which it may not lie; and the
/// directories of the system, where links lead to others of them.
pub(super) fn token_in<'a>(
    file: &Path,
    shown: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<Token, CliError> {
    let cannot = |what: &str, error: io::Error| {
        CliError::caused_by(format!("cannot {what} the token {}", printable::path(file)), error)
    };
    let place = place_of(file).map_err(|error| cannot("use", error))?;
    let system = Filesystem::default().system;
    let of_session = shown.into_iter().find(|directory| place.starts_with(directory));
    if let Some(directory) =
        of_session.or_else(|| system.iter().find(|directory| place.starts_with(directory)))
    {
        let (file, directory) = (printable::path(file), printable::path(directory));
        return Err(CliError::message_only(format!(
            "commands could read the token {file}: it lies in {directory}"
        ))
        .with_advice("choose a file that is in no directory of --root or --ro, and in none of the system that sandboxes show"));
    }
    let text = match create(&place) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(&place).map_err(|error| cannot("use", error))?
        }
        Err(error) => return Err(cannot("make", error)),
    };
    Token::parse(text.trim()).ok_or_else(|| {
        CliError::message_only(format!("{} has no token", printable::path(file)))
            .with_advice("remove it, and a new one is made")
    })
}

/// Where the file is, by a path without links. Its directory is made if it is not there, and nobody else may be able to change it.
fn place_of(file: &Path) -> io::Result<PathBuf> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "it is no name of a file");
    let name = file.file_name().ok_or_else(invalid)?;
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let directory = directory.canonicalize()?;
    for part in directory.ancestors() {
        let status = fs::metadata(part)?;
        let is_ours = status.uid() == 0 || status.uid() == nix::unistd::geteuid().as_raw();
        let is_open = status.mode() & WRITABLE_BY_OTHERS != 0 && status.mode() & STICKY == 0;
        if !is_ours || is_open {
            let message =
                format!("others can replace it: {} is not this user's alone", printable::path(part));
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    Ok(directory.join(name))
}

/// The text of a new token.
pub(super) fn new_token() -> io::Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(random::bytes::<TOKEN_BYTES>()?))
}

/// Makes the file with a new token. It has its token from the moment on at which it is there.
fn create(file: &Path) -> io::Result<String> {
    let token = new_token()?;
    let name = format!(".{}", URL_SAFE_NO_PAD.encode(random::bytes::<NAME_BYTES>()?));
    let unfinished = file.with_file_name(name);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
    let written = written.and_then(|mut unfinished| unfinished.write_all(format!("{token}\n").as_bytes()));
    // Unlike a rename, a link replaces nothing.
    let made = written.and_then(|()| fs::hard_link(&unfinished, file));
    let _ = fs::remove_file(&unfinished);
    made.map(|()| token)
}

/// Reads a regular file of this user that nobody else can open.
fn read(file: &Path) -> io::Result<String> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let status = file.metadata()?;
    let is_own = status.uid() == nix::unistd::geteuid().as_raw();
    if !status.is_file() || !is_own || status.mode() & 0o077 != 0 {
        let message = "it is not a file of this user with the mode 0600";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut text = String::new();
    file.take(TOKEN_MAX_CHARACTERS as u64 + 2).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn can_use(file: &Path) -> bool {
        token_in(file, []).is_ok()
    }

    #[test]
    fn a_token_is_made_once_and_for_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/token");
        assert!(can_use(&file));
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(directory.path().join("new")).unwrap().mode() & 0o777, 0o700);
        assert!(text.trim().len() >= 43);
        assert!(can_use(&file));
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(fs::read_dir(directory.path().join("new")).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn servers_that_start_at_once_have_one_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::thread::scope(|scope| {
            let starts: Vec<_> = (0..16).map(|_| scope.spawn(|| token_in(&file, []))).collect();
            let text = starts.into_iter().map(|start| start.join().unwrap()).collect::<Result<Vec<_>, _>>();
            let text = text.unwrap_or_else(|error| panic!("{error:?}"));
            let own = fs::read_to_string(&file).unwrap();
            assert!(text.iter().all(|token| token.is(own.trim())));
        });
    }

    #[test]
    fn a_file_that_others_can_open_or_a_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        assert!(can_use(&file));
        let (link, nowhere) = (directory.path().join("link"), directory.path().join("nowhere"));
        symlink(&file, &link).unwrap();
        symlink(directory.path().join("absent"), &nowhere).unwrap();
        assert!(!can_use(&link) && !can_use(&nowhere) && !directory.path().join("absent").exists());
        set_mode(&file, 0o640);
        assert!(!can_use(&file));
        set_mode(&file, 0o600);
        fs::write(&file, "short").unwrap();
        assert!(!can_use(&file));
    }

    #[test]
    fn a_file_that_others_can_replace_or_commands_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("root");
        fs::create_dir(&root).unwrap();
        let file = root.join("token");
        for mode in [0o777, 0o775] {
            set_mode(&root, mode);
            assert!(!can_use(&file), "{mode:o}");
            assert!(!file.exists());
        }
        set_mode(&root, 0o1777);
        assert!(can_use(&file), "as /tmp is");
        set_mode(&root, 0o755);
        assert!(can_use(&file) && token_in(&file, [&root]).is_err());
        for file in ["/etc/provost-token", "/usr/provost-token"] {
            let refused = token_in(Path::new(file), []).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|said| said.contains("could read the token")), "{file}");
        }
        symlink(&root, directory.path().join("other")).unwrap();
        assert!(token_in(&directory.path().join("other/token"), [&root]).is_err(), "by another way");
    }
}
